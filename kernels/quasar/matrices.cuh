/* matrices: step a. of a chunk: L and, causal, tril(Q Kᵀ), which warps make of the tiles of K and Q in block rows of 16. */
#pragma once

#include "quasar/lower.cuh"

/* Of block row `row` of tril(Q Kᵀ) what lies in the tiles of 8 columns from `first` on, from that part of Q Kᵀ. */
template <int N>
static __device__ __forceinline__ void make_score_row(
	unsigned scores, int row, int first, int lane, const float (&c)[N][4])
{
	const int group = lane >> 2, pair = (lane & 3) * 2;
	const unsigned kept = pair > group ? 0u : pair == group ? 0xffffu : ~0u; /* of two neighbours */

	unsigned packed[PLANES][N / 2][4];

	pack_rows<PLANES>(packed, c);
	UNROLL
	for (int k = 0; k < N / 2; k++) {
		const int column = first / 2 + k;

		UNROLL
		for (int p = 0; p < PLANES; p++) {
			if (column > row)
				continue;
			if (column == row) { /* without what lies above the diagonal */
				packed[p][k][0] &= kept;
				packed[p][k][2] = 0;
				packed[p][k][3] &= kept;
			}
			store_block(scores + p * SQUARE_PLANE, row, column, lane, packed[p][k]);
		}
	}
}

/* Block rows `row`, row + step, … of tril(Q Kᵀ). */
static __device__ __forceinline__ void make_score_rows(
	const struct chunk_block &block, unsigned keys, unsigned queries, unsigned scores, int row, int step)
{
	UNROLL
	for (; row < BLOCKS; row += step) {
		unsigned left[PLANES][STATE_K][4];
		float c[CHUNK_N][4];

		load_rows<PLANES, HEAD_DIM>(left, queries + row * 16 * HEAD_DIM * 2, ROWS_PLANE);
		clear(c);
		multiply<PLANES, HEAD_DIM, false, FULL>(c, left, keys, ROWS_PLANE);
		if (GATED)
			decay_products(c, block.decay, row, 0);
		make_score_row(scores, row, 0, block.lane, c);
	}
}

#if WARPGROUP_PRODUCTS
/* L by four warps together, a block row each. */
static __device__ __forceinline__ void make_lower(struct chunk_block &block, unsigned keys)
{
	unsigned left[PLANES][STATE_K][4];
	float g[CHUNK_N][4];

	clear(g);
	load_rows<PLANES, HEAD_DIM>(left, keys + block.warp * 16 * HEAD_DIM * 2, ROWS_PLANE);
	multiply<PLANES, HEAD_DIM, false, FULL>(g, left, keys, ROWS_PLANE);
	if (GATED)
		decay_products(g, block.decay, block.warp, 0);
	make_lower_row(block, 0, block.warp, g);
}
#endif

/* Step a. Each warp makes a block row of L and, causal, one of tril(Q Kᵀ): a long one beside a short one,
 * or, where warps are many, one of the two. Both come from the same reading of K. The blocks above the
 * diagonal are computed too and dropped: branches around them cost more than they save. */
template <bool WITH_SCORES>
static __device__ __forceinline__ void make_rows(
	struct chunk_block &block, unsigned keys, unsigned queries, unsigned scores)
{
	UNROLL
	for (int slot = 0; slot < BLOCKS_PER_WARP; slot++) {
		const int first = MAKING_WARPS > BLOCKS ? (block.warp + MAKING_WARPS - BLOCKS) % MAKING_WARPS
							: block.warp;
		const int lower = block.warp + slot * MAKING_WARPS < BLOCKS ? block.warp + slot * MAKING_WARPS
									    : -1;
		const int score = !WITH_SCORES ? -1 : BLOCKS - 1 - first - slot * MAKING_WARPS;
		float g[CHUNK_N][4], c[CHUNK_N][4];

		clear(g);
		clear(c);
		const unsigned lane = lane_offset<HEAD_DIM>(false);

		UNROLL
		for (int k = 0; k < STATE_K; k++) {
			unsigned left[PLANES][1][4], left_q[PLANES][1][4];

			load_rows<PLANES, HEAD_DIM>(
				left, keys + max(lower, 0) * 16 * HEAD_DIM * 2, ROWS_PLANE, k);
			if (WITH_SCORES)
				load_rows<PLANES, HEAD_DIM>(
					left_q, queries + max(score, 0) * 16 * HEAD_DIM * 2, ROWS_PLANE, k);
			UNROLL
			for (int j = 0; j < BLOCKS; j++) {
				UNROLL
				for (int p = 0; p < PLANES; p++) {
					unsigned b[4];

					load_matrices(b,
						keys + p * ROWS_PLANE + j * 16 * HEAD_DIM * 2 +
							(lane ^ tile_column<HEAD_DIM>(2 * k)));
					UNROLL
					for (int other = 0; other + p < PLANES; other++) {
						multiply_add(g[2 * j], left[other][0], b[0], b[1]);
						multiply_add(g[2 * j + 1], left[other][0], b[2], b[3]);
						if (!WITH_SCORES)
							continue;
						multiply_add(c[2 * j], left_q[other][0], b[0], b[1]);
						multiply_add(c[2 * j + 1], left_q[other][0], b[2], b[3]);
					}
				}
			}
		}
		if (GATED) {
			decay_products(g, block.decay, max(lower, 0), 0);
			decay_products(c, block.decay, max(score, 0), 0);
		}
		if (score >= 0)
			make_score_row(scores, score, 0, block.lane, c);
		if (lower >= 0)
			make_lower_row(block, slot, lower, g);
	}
}
