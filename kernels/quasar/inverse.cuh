/* inverse: step b. of a chunk: T = L⁻¹ D of the blocks that step a. left; and both steps for every chunk, where that has a launch of
 * its own. */
#pragma once

#include "quasar/matrices.cuh"
#include "quasar/rows.cuh"

/* Step b: the blocks of T under the diagonal in block column `column`, downwards:
 * X_ij = −D_i Σ_k L_ik X_kj with j ≤ k < i, computed transposed; D_i is the inverse of L_ii. */
static __device__ __forceinline__ void make_inverse_column(
	const struct chunk_block &block, int slot, int column)
{
	unsigned x[BLOCKS][PLANES][1][4];

	load_rows<PLANES, CHUNK>(
		x[0], block.lower + column * 16 * CHUNK * 2, SQUARE_PLANE, column, block.lane);
	UNROLL
	for (int step = 1; step < BLOCKS; step++) {
		const int row = column + step;
		float sum[2][4], result[2][4];
		unsigned z[PLANES][1][4];

		if (row >= BLOCKS)
			break;
		clear(sum);
		UNROLL
		for (int k = 0; k < step; k++) {
			multiply_block<CHUNK, false>(sum, x[k][0], block.lower, row, column + k, block.lane);
			multiply_block<CHUNK, false>(sum, x[k][0], block.lower, column + k, row, block.lane);
			if (PLANES > 1)
				multiply_block<CHUNK, false>(
					sum, x[k][PLANES - 1], block.lower, row, column + k, block.lane);
		}
		pack_rows<PLANES>(z, sum, -1.0f);
		clear(result);
		UNROLL
		for (int left = 0; left < PLANES; left++) {
			UNROLL
			for (int right = 0; left + right < PLANES; right++)
				multiply_block<CHUNK, true>(result, z[left],
					block.lower + right * SQUARE_PLANE, row, row, block.lane);
		}
		pack_rows<PLANES>(x[step], result);
		UNROLL
		for (int n = 0; n < 2; n++) {
			UNROLL
			for (int i = 0; i < 4; i++)
				result[n][i] *= block.alpha[slot][i / 2];
		}
		pack_rows<PLANES>(z, result);
		UNROLL
		for (int p = 0; p < PLANES; p++)
			store_block(block.transposed_inverse + p * SQUARE_PLANE, column, row, block.lane,
				z[p][0]);
	}
}

static __device__ __forceinline__ void make_inverse(const struct chunk_block &block)
{
	UNROLL
	for (int slot = 0; slot < BLOCKS_PER_WARP; slot++)
		if (block.warp + slot * MAKING_WARPS < BLOCKS)
			make_inverse_column(block, slot, block.warp + slot * MAKING_WARPS);
}

/* BLOCKS warps, or all, make a chunk's. */
static __device__ __forceinline__ void make_inverses(const struct quasar_chunk_arguments &a)
{
	const int at_once = CHUNKS_AT_ONCE(HEAD_DIM, CHUNK), part = threadIdx.x / (THREADS / at_once);
	struct share share;

	if (!make_share(share, a, at_once * CHUNK, true))
		return;

	const int first = share.index * at_once;
	const struct rows rows = start_rows(a, share);
	const unsigned tiles = shared_base(), squares = tiles + at_once * ROWS_BYTES;
	struct chunk_block block = start_block(a, squares + part * INVERSE_BYTES, share.sequence % a.heads);

	block.warp %= BLOCKS;
	if (GATED) {
		float gate[2];

		load_gates(gate, a, rows, first + part);
		block.decay = decay_of(gate);
	}
	for (int i = 0; i < at_once; i++) { /* behind the end rows are zeros */
		load_chunk<1>(a, rows, first + i, tiles + i * ROWS_BYTES);
		clear_square(squares + i * INVERSE_BYTES);
	}
	copy_async_wait();
	publish_tiles();
	__syncthreads();
#if WARPGROUP_PRODUCTS
	make_lower(block, tiles + part * ROWS_BYTES);
#else
	make_rows<false>(block, tiles + part * ROWS_BYTES, 0, 0);
#endif
	__syncthreads();
	make_inverse(block);
	__syncthreads();
	for (int i = 0; i < at_once && first + i < chunks_of(a, share); i++)
		for (int at = threadIdx.x * 16; at < SQUARE_BYTES; at += THREADS * 16)
			*(uint4 *)(inverse_of(a, share, first + i) + at) = load_shared(
				squares + i * INVERSE_BYTES + at);
}
