/* transition: pass 1: each group composes its chunks' maps of the state, from the last chunk to the first, until the past is
 * forgotten. */
#pragma once

#include "quasar/roles.cuh"

#define NEGLIGIBLE 6e-8f /* fp32 would lose it in the sums anyway */

/* In the first pass registers do not suffice for a left factor beside two states: it goes through shared memory. */
#define STATE_TILE (WARPGROUP_PRODUCTS && MAKERS && HEAD_DIM == 128)

/* Writes P − I as the tile that pass 2 multiplies with, and Rᵀ where the lane that will own it looks. */
static __device__ __forceinline__ void store_transition(unsigned char *transition, int warp, int lane,
	const float (&p)[STATE_N][4], const float (&r)[STATE_N][4])
{
	const int group = lane >> 2, pair = (lane & 3) * 2;
	float *registers = (float *)(transition + STATE_BYTES);

	UNROLL
	for (int n = 0; n < STATE_N; n++) {
		UNROLL
		for (int half = 0; half < 2; half++) {
			int key = warp * 16 + group + half * 8;
			int before = n * 8 + pair; /* of two neighbours */
			unsigned split[PLANES];

			split_bf16<PLANES>(split, p[n][half * 2] - (before == key),
				p[n][half * 2 + 1] - (before + 1 == key));
			UNROLL
			for (int i = 0; i < PLANES; i++)
				*(unsigned *)(transition + i * STATE_PLANE + tile_offset<HEAD_DIM>(key, n) +
					pair * 2) = split[i];
			UNROLL
			for (int i = 0; i < 2; i++) {
				int value = n * 8 + pair + i, owner = value % 8 * 4 + key % 8 / 2;

				registers[((value / 16 * STATE_N + key / 8) * 32 + owner) * 4 +
					value % 16 / 8 * 2 + key % 2] = r[n][half * 2 + i];
			}
		}
	}
}

static __device__ __forceinline__ void make_transition(const struct quasar_chunk_arguments &a)
{
	struct share share;

	if (!make_share(share, a, (long long)a.chunks_per_group * CHUNK, false))
		return;

	const struct rows rows = start_rows(a, share);
	const int first = share.index * a.chunks_per_group,
		  last = min(first + a.chunks_per_group, chunks_of(a, share)) - 1;
	const unsigned made = shared_base(), stages = made + (MAKERS ? MADE_BYTES(0) : 0);
	const unsigned behind = stages + NUM_STAGES * STAGE_BYTES(2);
	struct chunk_block block = start_block(a, behind, share.sequence % a.heads);
	float p[STATE_N][4], r[STATE_N][4], gate[2];
	int forgotten = 0;
	__shared__ int stopped[2];

	if (MAKERS) {
		if (threadIdx.x < 2)
			stopped[threadIdx.x] = 0;
		__syncthreads();
		if (threadIdx.x >= CARRIERS) {
			take_registers<true>();
			make_matrices<2, -1>(a, rows, share, last, last - first + 1, made, stages, stopped);
			return;
		}
		take_registers<false>();
		tell(IS_USED + 1);
	}
	load_gates(gate, a, rows, last);
	clear(r);
	UNROLL
	for (int n = 0; n < STATE_N; n++) {
		UNROLL
		for (int i = 0; i < 4; i++)
			p[n][i] = n * 8 + (block.lane & 3) * 2 + (i & 1) ==
				block.warp * 16 + (block.lane >> 2) + (i >> 1) * 8;
	}
	if (!READY_INVERSE)
		clear_square(block.transposed_inverse);
	if (!MAKERS)
		load_stage<2>(a, rows, share, last, stages);
	int chunk = last;

	for (; chunk >= first; chunk--) {
		const unsigned keys = stages + (last - chunk) % NUM_STAGES * STAGE_BYTES(2);
		const unsigned inverse = SEPARATE_INVERSE ? keys + 2 * ROWS_BYTES
			: MAKERS                          ? place_of_inverse(made, last - chunk)
							  : block.transposed_inverse;
		float m[CHUNK_N][4], largest = 0.0f;
		unsigned a_state[PLANES][STATE_K][4], a_chunk[PLANES][CHUNK_K][4];

		UNROLL
		for (int n = 0; n < STATE_N; n++) {
			UNROLL
			for (int i = 0; i < 4; i++)
				largest = fmaxf(largest, fabsf(p[n][i]));
		}
		if (!MAKERS) {
			copy_async_wait();
			publish_tiles();
		}
		const unsigned tile = behind + (last - chunk) % 2 * STATE_BYTES;

#if STATE_TILE
		pack_rows<PLANES>(a_state, p);
		store_rows<PLANES, HEAD_DIM>(tile + block.warp * 16 * HEAD_DIM * 2, a_state, STATE_PLANE);
		publish_tiles();
#endif
		forgotten = !any_carrier(!(largest <= NEGLIGIBLE));
		if (forgotten)
			break;
		if (MAKERS)
			meet(IS_MADE + (last - chunk) % 2, THREADS);
		if (NUM_STAGES == 2 && chunk > first)
			load_stage<2>(
				a, rows, share, chunk - 1, stages + (last - chunk + 1) % 2 * STAGE_BYTES(2));
		if (GATED) {
			block.decay = decay_of(gate);
			load_gates(gate, a, rows, max(chunk - 1, 0));
		}
#if STATE_TILE
		multiply_tiles<PLANES, HEAD_DIM>(
			m, tile + block.warp / 4 * (STATE_PLANE / 2), keys, STATE_PLANE, ROWS_PLANE);
#else
		pack_rows<PLANES>(a_state, p);
		if (READY_INVERSE) {
			multiply<PLANES, HEAD_DIM, false, FULL, 1, false>(m, a_state, keys, ROWS_PLANE);
		} else {
			make_rows<false>(block, keys, 0, 0);
			__syncthreads();
			make_inverse(block);
			multiply<PLANES, HEAD_DIM, false, FULL, 1, false>(m, a_state, keys, ROWS_PLANE);
			publish_tiles();
			__syncthreads();
		}
#endif
		if (GATED)
			decay_columns<false>(m, block.decay);
		pack_rows<PLANES>(a_chunk, m);
		multiply<PLANES, CHUNK, false, LOWER, 1, false>(m, a_chunk, inverse, SQUARE_PLANE);
		pack_rows<PLANES>(a_chunk, m);
		if (GATED) {
			unsigned decayed[PLANES][CHUNK_K][4];

			decay_columns<true>(m, block.decay);
			decay_whole(p, block.decay);
			pack_rows<PLANES>(decayed, m);
			multiply<PLANES, HEAD_DIM, true, FULL, -1>(p, decayed, keys, ROWS_PLANE);
		} else {
			multiply_start<PLANES, HEAD_DIM, true, FULL, -1>(p, a_chunk, keys, ROWS_PLANE);
		}
		if (!READY_INVERSE) /* registers are short */
			multiply_finish(p);
		multiply_start<PLANES, HEAD_DIM, true, FULL>(r, a_chunk, keys + ROWS_BYTES, ROWS_PLANE);
		multiply_finish<1>(p);
		multiply_finish(r);
		if (MAKERS && chunk - 1 > first)
			tell(IS_USED + (last - chunk) % 2);
		if (NUM_STAGES == 1 && chunk > first) {
			__syncthreads();
			load_stage<2>(a, rows, share, chunk - 1, stages);
		}
	}
	if (MAKERS && forgotten && chunk - 1 > first) {
		meet(IS_MADE + (last - chunk) % 2, THREADS);
		if (threadIdx.x == 0)
			stopped[(last - chunk) % 2] = 1;
		tell(IS_USED + (last - chunk) % 2);
	}
	store_transition(transition_of(a, share, share.index), block.warp, block.lane, p, r);
	if (threadIdx.x == 0)
		*forgotten_of(a, share, share.index) = forgotten;
}
