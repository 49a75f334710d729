/* output: pass 2: each group goes through its chunks and writes o, and the last one of a sequence the final state. */
#pragma once

#include "quasar/step.cuh"
#include "quasar/walk.cuh"

/* Turns the warp's values around in the tile of V, of which it alone has read these columns, so that they leave in
 * pieces of 16 bytes. */
static __device__ __forceinline__ void store_output(const struct quasar_chunk_arguments &a,
	const struct share &share, ELEMENT *out, int chunk, unsigned values, int warp, int lane,
	const float (&o)[CHUNK_N][4])
{
	const long long step = 16 * a.o.stride[1];
	const long long left = tokens_of(a, share) - (long long)chunk * CHUNK;

	out += chunk * (CHUNK * a.o.stride[1]);

	__syncwarp();
	UNROLL
	for (int n = 0; n < CHUNK_N; n++) {
#if INPUT == INPUT_F32
		UNROLL
		for (int i = 0; i < 4; i++) { /* four of 16 values in each of two segments of two planes */
			int token = n * 8 + (lane & 3) * 2 + (i & 1), value = lane >> 2;

			store_shared_float(values + (i >> 1) * ROWS_PLANE +
					tile_offset<HEAD_DIM>(token, warp * 2 + value / 4) + value % 4 * 4,
				o[n][i]);
		}
#else
		UNROLL
		for (int half = 0; half < 2; half++)
			store_shared(values + tile_offset<HEAD_DIM>(n * 8 + (lane >> 2), warp * 2 + half) +
					(lane & 3) * 4,
				transpose_matrix(element_pair(o[n][half * 2], o[n][half * 2 + 1])));
#endif
	}
	__syncwarp();
	UNROLL
	for (int block = 0; block < BLOCKS; block++, out += step) {
		const int row = block * 16 + lane / 2;
		ELEMENT line[8];

		if (row >= left)
			continue;
#if INPUT == INPUT_F32
		UNROLL
		for (int i = 0; i < 2; i++)
			((uint4 *)line)[i] = load_shared(
				values + lane % 2 * ROWS_PLANE + tile_offset<HEAD_DIM>(row, warp * 2 + i));
#else
		*(uint4 *)line = load_shared(values + tile_offset<HEAD_DIM>(row, warp * 2 + lane % 2));
#endif
#if VECTOR
		UNROLL
		for (int i = 0; i < (int)sizeof(line) / 16; i++)
			((uint4 *)out)[i] = ((uint4 *)line)[i];
#else
		UNROLL
		for (int i = 0; i < 8; i++)
			out[i * a.o.stride[3]] = line[i];
#endif
	}
}

static __device__ __forceinline__ void make_output(const struct quasar_chunk_arguments &a)
{
	struct share share;

	if (!make_share(share, a, (long long)a.chunks_per_group * CHUNK, true))
		return;

	const struct rows rows = start_rows(a, share);
	const int first = share.index * a.chunks_per_group,
		  end = min(first + a.chunks_per_group, chunks_of(a, share));
	const unsigned made = shared_base();
	const unsigned stages = made + (MAKERS ? MADE_BYTES(!UPSTREAM) : 0);
	const unsigned behind = stages + NUM_STAGES * STAGE_BYTES(3);
	struct chunk_block block = start_block(a, behind, share.sequence % a.heads);
	/* this thread's piece of the warp's 16 values, of the chunk's row lane / 2 */
	ELEMENT *out = (ELEMENT *)a.o.data +
		row_offset(a.o, PACKED ? 0 : share.sequence / a.heads,
			(PACKED ? share.first : 0) + block.lane / 2, share.sequence % a.heads) +
		(block.warp * 16 + block.lane % 2 * 8) * a.o.stride[3];
	struct tiles tiles;
	float state[STATE_N][4], gate[2];

	if (threadIdx.x >= CARRIERS) {
		take_registers<true>();
		make_matrices<3, 1>(a, rows, share, first, end - first, made, stages, NULL);
		return;
	}
	take_registers<false>();
	load_gates(gate, a, rows, first);
	tiles.scores = behind + (SEPARATE_INVERSE ? 0 : INVERSE_BYTES);

#if NUM_STAGES == 3
	start_state(state, a, share, block.warp, block.lane, stages + 2 * STAGE_BYTES(3));
	tell(IS_USED + 1);
#elif NUM_STAGES == 2
	load_stage<3>(a, rows, share, first, stages);
	start_state(state, a, share, block.warp, block.lane, stages + STAGE_BYTES(3));
	__syncthreads();
#else
	start_state(state, a, share, block.warp, block.lane, stages);
	__syncthreads();
	load_stage<3>(a, rows, share, first, stages);
#endif
	if (!READY_INVERSE)
		clear_square(block.transposed_inverse);
	if (!UPSTREAM && !MAKERS)
		clear_square(tiles.scores);
	for (int chunk = first; chunk < end; chunk++) {
		float o[CHUNK_N][4];

		tiles.keys = stages + (chunk - first) % NUM_STAGES * STAGE_BYTES(3);
		tiles.values = tiles.keys + ROWS_BYTES;
		tiles.queries = tiles.values + ROWS_BYTES;
		tiles.inverse = SEPARATE_INVERSE ? tiles.queries + ROWS_BYTES : block.transposed_inverse;
		if (MAKERS) {
			if (!SEPARATE_INVERSE)
				tiles.inverse = place_of_inverse(made, chunk - first);
			tiles.scores = place_of_scores(made, chunk - first);
			meet(IS_MADE + (chunk - first) % 2, THREADS);
		} else {
			copy_async_wait();
			publish_tiles();
			__syncthreads();
		}
		if (NUM_STAGES == 2 && chunk + 1 < end)
			load_stage<3>(
				a, rows, share, chunk + 1, stages + (chunk - first + 1) % 2 * STAGE_BYTES(3));
		if (GATED) {
			block.decay = decay_of(gate);
			load_gates(gate, a, rows, chunk + 1);
		}
		step(block, tiles, state, o);
		store_output(a, share, out, chunk, tiles.values, block.warp, block.lane, o);
		if (MAKERS && chunk + 2 < end)
			tell(IS_USED + (chunk - first) % 2);
		if (NUM_STAGES == 1 && chunk + 1 < end) {
			__syncthreads();
			load_stage<3>(a, rows, share, chunk + 1, stages);
		}
	}
	copy_async_wait();
	if (a.final_state && share.index == groups_of(a, share) - 1) {
		UNROLL
		for (int n = 0; n < STATE_N; n++) {
			UNROLL
			for (int i = 0; i < 4; i++)
				a.final_state[(long long)share.sequence * HEAD_DIM * HEAD_DIM +
					STATE_INDEX(block.warp, block.lane, n, i)] = state[n][i];
		}
	}
}
