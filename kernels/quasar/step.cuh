/* step: takes the state through one chunk and makes its outputs, all in a warp's registers; a way for each kind of build, which
 * differ in who has made the chunk's matrices, and in which products run at a time. */
#pragma once

#include "quasar/roles.cuh"

/* A chunk's tiles, by address. */
struct tiles {
	unsigned keys, values, queries, inverse, scores;
};

/* Yᵀ = Vᵀ − (K St)ᵀ, where y holds (K St)ᵀ. */
static __device__ __forceinline__ void subtract_from_values(float (&y)[CHUNK_N][4], unsigned values, int warp)
{
	const unsigned lane = lane_offset<HEAD_DIM>(false);

	UNROLL
	for (int n = 0; n < CHUNK_N; n += 2) {
		float value[2][4];

		UNROLL
		for (int p = 0; p < PLANES; p++) {
			unsigned v[4];

			load_matrices_transposed(v,
				values + p * ROWS_PLANE + n * 8 * HEAD_DIM * 2 +
					(lane ^ tile_column<HEAD_DIM>(2 * warp)));
			UNROLL
			for (int i = 0; i < 4; i++) {
				float &even = value[i / 2][i % 2 * 2], &odd = value[i / 2][i % 2 * 2 + 1];

				even = p ? even + bf16_low(v[i]) : bf16_low(v[i]);
				odd = p ? odd + bf16_high(v[i]) : bf16_high(v[i]);
			}
		}
		UNROLL
		for (int j = 0; j < 2; j++) {
			UNROLL
			for (int i = 0; i < 4; i++)
				y[n + j][i] = value[j][i] - y[n + j][i];
		}
	}
}

/* Yᵀ = Vᵀ − (K St)ᵀ, packed. */
static __device__ __forceinline__ void differences(unsigned (&packed)[PLANES][CHUNK_K][4],
	const float (&state)[STATE_N][4], const struct tiles &tiles, int warp)
{
	unsigned a_state[PLANES][STATE_K][4];
	float y[CHUNK_N][4];

	pack_rows<PLANES>(a_state, state);
	multiply<PLANES, HEAD_DIM, false, FULL, 1, false>(y, a_state, tiles.keys, ROWS_PLANE);
	subtract_from_values(y, tiles.values, warp);
	pack_rows<PLANES>(packed, y);
}

/* Nᵀ = Yᵀ Tᵀ, and packed in the place of Yᵀ. */
static __device__ __forceinline__ void solve(
	float (&n)[CHUNK_N][4], unsigned (&packed)[PLANES][CHUNK_K][4], const struct tiles &tiles)
{
	multiply<PLANES, CHUNK, true, UPPER, 1, false>(n, packed, tiles.inverse, SQUARE_PLANE);
	pack_rows<PLANES>(packed, n);
}

/* With a gate: what is left of the state behind the chunk, and of Nᵀ, packed. */
static __device__ __forceinline__ void pack_behind(unsigned (&packed)[PLANES][CHUNK_K][4],
	float (&state)[STATE_N][4], float (&n)[CHUNK_N][4], const struct decay &decay)
{
	if (!GATED)
		return;
	decay_whole(state, decay);
	decay_columns<false>(n, decay);
	pack_rows<PLANES>(packed, n);
}

#if UPSTREAM
static __device__ __forceinline__ void step(struct chunk_block &block, const struct tiles &tiles,
	float (&state)[STATE_N][4], float (&o)[CHUNK_N][4])
{
	unsigned a_state[PLANES][STATE_K][4], n[PLANES][CHUNK_K][4];
	float twice[STATE_N][4], y[CHUNK_N][4];

	if (!READY_INVERSE) {
		make_rows<false>(block, tiles.keys, 0, 0);
		__syncthreads();
		make_inverse(block);
	}
	differences(n, state, tiles, block.warp);
	if (!READY_INVERSE) {
		publish_tiles();
		__syncthreads();
	}
	solve(y, n, tiles);
	multiply<PLANES, HEAD_DIM, true, FULL>(state, n, tiles.keys, ROWS_PLANE);
	differences(n, state, tiles, block.warp);
	solve(y, n, tiles);
	copy(twice, state);
	multiply<PLANES, HEAD_DIM, true, FULL>(twice, n, tiles.keys, ROWS_PLANE);
	pack_rows<PLANES>(a_state, twice);
	multiply<PLANES, HEAD_DIM, false, FULL, 1, false>(o, a_state, tiles.queries, ROWS_PLANE);
}
#elif NUM_STAGES == 3
static __device__ __forceinline__ void step(struct chunk_block &block, const struct tiles &tiles,
	float (&state)[STATE_N][4], float (&o)[CHUNK_N][4])
{
	unsigned a_state[PLANES][STATE_K][4], n[PLANES][CHUNK_K][4], behind[PLANES][CHUNK_K][4];
	float y[CHUNK_N][4];

	pack_rows<PLANES>(a_state, state);
	multiply_start<PLANES, HEAD_DIM, false, FULL, 1, false>(y, a_state, tiles.keys, ROWS_PLANE);
	multiply_start<PLANES, HEAD_DIM, false, FULL, 1, false>(o, a_state, tiles.queries, ROWS_PLANE);
	multiply_finish<1>(y);
	if (GATED)
		decay_columns<true>(y, block.decay);
	subtract_from_values(y, tiles.values, block.warp);
	pack_rows<PLANES>(n, y);
	multiply_start<PLANES, CHUNK, true, UPPER, 1, false>(y, n, tiles.inverse, SQUARE_PLANE);
	multiply_finish<1>(o);
	multiply_finish(y);
	if (GATED)
		decay_columns<true>(o, block.decay);
	pack_rows<PLANES>(n, y);
	pack_behind(behind, state, y, block.decay);
	multiply_start<PLANES, HEAD_DIM, true, FULL>(state, GATED ? behind : n, tiles.keys, ROWS_PLANE);
	multiply_start<PLANES, CHUNK, false, UPPER>(o, n, tiles.scores, SQUARE_PLANE);
	multiply_finish<1>(state);
	multiply_finish(o);
}
#elif SEPARATE_INVERSE
/* Where warps are many, each makes a part of a block row of the scores, of 16 columns or more, and those beyond make none. */
#define SCORE_PARTS (WARPS / BLOCKS > BLOCKS ? BLOCKS : WARPS > BLOCKS ? WARPS / BLOCKS : 1)
#define SCORE_N (CHUNK_N / SCORE_PARTS)
#define SCORERS (SCORE_PARTS * BLOCKS) /* warps */

static __device__ __forceinline__ void step(struct chunk_block &block, const struct tiles &tiles,
	float (&state)[STATE_N][4], float (&o)[CHUNK_N][4])
{
	const int part = SCORERS < WARPS ? block.warp / BLOCKS % SCORE_PARTS : block.warp / BLOCKS;
	const int row = block.warp % BLOCKS;
	unsigned a_state[PLANES][STATE_K][4], a_queries[PLANES][STATE_K][4], n[PLANES][CHUNK_K][4];
	unsigned behind[PLANES][CHUNK_K][4];
	float y[CHUNK_N][4], c[SCORE_N][4];

	load_rows<PLANES, HEAD_DIM>(a_queries, tiles.queries + row * 16 * HEAD_DIM * 2, ROWS_PLANE);
	pack_rows<PLANES>(a_state, state);
	multiply_start<PLANES, HEAD_DIM, false, FULL, 1, false>(
		c, a_queries, tiles.keys + part * SCORE_N * 8 * HEAD_DIM * 2, ROWS_PLANE);
	multiply_start<PLANES, HEAD_DIM, false, FULL, 1, false>(y, a_state, tiles.keys, ROWS_PLANE);
	multiply_finish<1>(c);
	if (GATED)
		decay_products(c, block.decay, row, part * SCORE_N);
	if (SCORERS >= WARPS || block.warp < SCORERS)
		make_score_row(tiles.scores, row, part * SCORE_N, block.lane, c);
	/* where warps are few each makes several block rows */
	make_score_rows(block, tiles.keys, tiles.queries, tiles.scores, row + WARPS, WARPS);
	publish_tiles();
	multiply_finish(y);
	if (GATED)
		decay_columns<true>(y, block.decay);
	subtract_from_values(y, tiles.values, block.warp);
	pack_rows<PLANES>(n, y);
	multiply_start<PLANES, CHUNK, true, UPPER, 1, false>(y, n, tiles.inverse, SQUARE_PLANE);
	multiply_start<PLANES, HEAD_DIM, false, FULL, 1, false>(o, a_state, tiles.queries, ROWS_PLANE);
	multiply_finish<1>(y);
	pack_rows<PLANES>(n, y);
	pack_behind(behind, state, y, block.decay);
	carriers_meet();
	multiply_start<PLANES, HEAD_DIM, true, FULL>(state, GATED ? behind : n, tiles.keys, ROWS_PLANE);
	multiply_finish<1>(o);
	if (GATED)
		decay_columns<true>(o, block.decay);
	multiply_start<PLANES, CHUNK, false, UPPER>(o, n, tiles.scores, SQUARE_PLANE);
	multiply_finish<1>(state);
	multiply_finish(o);
}
#else
static __device__ __forceinline__ void step(struct chunk_block &block, const struct tiles &tiles,
	float (&state)[STATE_N][4], float (&o)[CHUNK_N][4])
{
	unsigned a_state[PLANES][STATE_K][4], n[PLANES][CHUNK_K][4], behind[PLANES][CHUNK_K][4];
	float y[CHUNK_N][4];

	make_rows<true>(block, tiles.keys, tiles.queries, tiles.scores);
	__syncthreads();
	make_inverse(block);
	pack_rows<PLANES>(a_state, state);
	multiply<PLANES, HEAD_DIM, false, FULL, 1, false>(y, a_state, tiles.keys, ROWS_PLANE);
	if (GATED)
		decay_columns<true>(y, block.decay);
	subtract_from_values(y, tiles.values, block.warp);
	pack_rows<PLANES>(n, y);
	multiply<PLANES, HEAD_DIM, false, FULL, 1, false>(o, a_state, tiles.queries, ROWS_PLANE);
	if (GATED)
		decay_columns<true>(o, block.decay);
	publish_tiles();
	__syncthreads();
	solve(y, n, tiles);
	pack_behind(behind, state, y, block.decay);
	multiply_start<PLANES, HEAD_DIM, true, FULL>(state, GATED ? behind : n, tiles.keys, ROWS_PLANE);
	multiply_start<PLANES, CHUNK, false, UPPER>(o, n, tiles.scores, SQUARE_PLANE);
	multiply_finish<1>(state);
	multiply_finish(o);
}
#endif
