/* lower: L = I + tril(D G, −1), a block row of 16 at a time, from that block row of G = K Kᵀ; with it α, which is D's diagonal, and
 * the inverses of L's diagonal blocks, in fp32. G is a warp's result of a product, in registers. */
#pragma once

#include "quasar/block.cuh"
#include "quasar/gate.cuh"

/* Writes a block of 16 × 16 of a tile, which has the layout of a left factor. */
template <int COLUMNS = CHUNK>
static __device__ __forceinline__ void store_block(
	unsigned tile, int row, int column, int lane, const unsigned (&block)[4])
{
#if WARPGROUP_PRODUCTS
	store_matrices(tile + row * 16 * COLUMNS * 2 +
			(lane_offset<COLUMNS>(true, lane) ^ tile_column<COLUMNS>(2 * column)),
		block);
#else
	UNROLL
	for (int i = 0; i < 4; i++)
		store_shared(tile +
				tile_offset<COLUMNS>(row * 16 + (lane >> 2) + i % 2 * 8, column * 2 + i / 2) +
				(lane & 3) * 4,
			block[i]);
#endif
}

/* The same of the block's transpose. */
template <int COLUMNS = CHUNK>
static __device__ __forceinline__ void store_block_transposed(
	unsigned tile, int row, int column, int lane, const unsigned (&block)[4])
{
#if WARPGROUP_PRODUCTS
	store_matrices_transposed(tile + row * 16 * COLUMNS * 2 +
			(lane_offset<COLUMNS>(false, lane) ^ tile_column<COLUMNS>(2 * column)),
		block);
#else
	const unsigned transposed[4] = {transpose_matrix(block[0]), transpose_matrix(block[2]),
		transpose_matrix(block[1]), transpose_matrix(block[3])};

	store_block<COLUMNS>(tile, row, column, lane, transposed);
#endif
}

/* The diagonal block of block row `row` of G. */
static __device__ __forceinline__ void take_diagonal_block(
	float (&diagonal)[2][4], const float (&g)[CHUNK_N][4], int row)
{
	UNROLL
	for (int n = 0; n < 2; n++) {
		UNROLL
		for (int i = 0; i < 4; i++) {
			diagonal[n][i] = g[n][i];
			UNROLL
			for (int column = 1; column < BLOCKS; column++)
				diagonal[n][i] = column == row ? g[2 * column + n][i] : diagonal[n][i];
		}
	}
}

/* By an instruction, for the compiler would make branches of it, and put the shuffles that come before into each: only
 * half a warp comes by there. */
static __device__ __forceinline__ float selected(int condition, float one, float other)
{
	float result;

	asm("{\n.reg .pred p;\nsetp.ne.s32 p, %3, 0;\nselp.f32 %0, %1, %2, p;\n}"
		: "=f"(result)
		: "f"(one), "f"(other), "r"(condition));
	return result;
}

/* Eight neighbours of a C × C tile, from an array. */
static __device__ __forceinline__ void store_segment(
	unsigned tile, int row, int segment, const float (&x)[8], float scale)
{
	const unsigned address = tile + tile_offset<CHUNK>(row, segment);
	uint4 plane[2];
	unsigned *high = &plane[0].x, *low = &plane[1].x;

	UNROLL
	for (int i = 0; i < 4; i++) {
		unsigned pair[PLANES];

		split_bf16<PLANES>(pair, scale * x[2 * i], scale * x[2 * i + 1]);
		high[i] = pair[0];
		low[i] = pair[PLANES - 1];
	}
	store_shared(address, plane[0]);
	if (PLANES > 1)
		store_shared(address + SQUARE_PLANE, plane[1]);
}

/* x becomes the solution of L x = x, with a unit lower triangle of 8 × 8 in rows of 64 bytes. */
static __device__ __forceinline__ void solve_column(float (&x)[8], unsigned lower)
{
	UNROLL
	for (int i = 1; i < 8; i++) {
		const float4 left = load_shared_float4(lower + i * 64);
		const float4 right = i > 4 ? load_shared_float4(lower + i * 64 + 16)
					   : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
		const float l[8] = {left.x, left.y, left.z, left.w, right.x, right.y, right.z, right.w};

		UNROLL
		for (int k = 0; k < i; k++)
			x[i] -= l[k] * x[k];
	}
}

/* α, the row of L left of its diagonal block, and the diagonal block's inverse, transposed, as it is and
 * scaled to T's. `g` is block row `row` of G. */
static __device__ __forceinline__ void make_lower_row(
	struct chunk_block &block, int slot, int row, const float (&g)[CHUNK_N][4])
{
	const int lane = block.lane, group = lane >> 2, pair = (lane & 3) * 2;
	const unsigned scratch = block.transposed_inverse + row * 16 * CHUNK * 2; /* this row's own part */
	float diagonal[2][4], even, odd, x[8], z[8], product[2];

	take_diagonal_block(diagonal, g, row);

	/* λ is the diagonal of G: row `group` of an 8 × 8 tile has it in lane group / 2 of its four. Of two neighbouring lanes
	 * each computes α of one of the two rows that both have. */
	UNROLL
	for (int half = 0; half < 2; half++) {
		even = __shfl_sync(~0u, diagonal[half][half * 2], (lane & ~3) | group >> 1);
		odd = __shfl_sync(~0u, diagonal[half][half * 2 + 1], (lane & ~3) | group >> 1);
		product[half] = selected(group & 1, odd, even);
	}
	even = gate(block.beta, lane & 1 ? product[1] : product[0]);
	UNROLL
	for (int half = 0; half < 2; half++)
		block.alpha[slot][half] = __shfl_sync(~0u, even, (lane & ~1) | half);

	/* the diagonal block: lane c solves for column c of the inverse, downwards */
	UNROLL
	for (int n = 0; n < 2; n++) {
		UNROLL
		for (int half = 0; half < 2; half++)
			store_shared(scratch + (group + half * 8) * 64 + (n * 8 + pair) * 4,
				block.alpha[slot][half] * diagonal[n][half * 2],
				block.alpha[slot][half] * diagonal[n][half * 2 + 1]);
	}
	__syncwarp();
	UNROLL
	for (int k = 0; k < CHUNK_K - 1; k++) {
		unsigned high[4], low[4];

		if (k >= row)
			continue;
		UNROLL
		for (int i = 0; i < 4; i++) {
			unsigned split[2];

			split_bf16<2>(split, block.alpha[slot][i % 2] * g[2 * k + i / 2][i % 2 * 2],
				block.alpha[slot][i % 2] * g[2 * k + i / 2][i % 2 * 2 + 1]);
			high[i] = split[0];
			low[i] = split[1];
		}
		store_block(block.lower, row, k, lane, high);
		store_block(block.lower, k, row, lane, low);
	}
	/* [A 0; B C] has the inverse [A⁻¹ 0; Z C⁻¹] with C Z = −B A⁻¹, of 8 × 8 each: lane c of eight solves for a column of
	 * A⁻¹ or C⁻¹, then all have that of A⁻¹ and two rows of it times −B each, then all solve for a column of Z */
	const int of_c = lane >> 3 & 1, pair_of_rows = lane >> 3;
	const unsigned corner = scratch + 8 * 64 + 8 * 4;

	UNROLL
	for (int i = 0; i < 8; i++)
		x[i] = i == (lane & 7) ? 1.0f : 0.0f;
	solve_column(x, of_c ? corner : scratch);
	UNROLL
	for (int i = 0; i < 8; i++)
		z[i] = __shfl_sync(~0u, x[i], lane & 7);
	UNROLL
	for (int i = 0; i < 2; i++) {
		const unsigned l = scratch + (8 + pair_of_rows * 2 + i) * 64;
		const float4 left = load_shared_float4(l), right = load_shared_float4(l + 16);

		product[i] = -left.x * z[0] - left.y * z[1] - left.z * z[2] - left.w * z[3];
		product[i] -= right.x * z[4] + right.y * z[5] + right.z * z[6] + right.w * z[7];
	}
	UNROLL
	for (int i = 0; i < 8; i++)
		z[i] = __shfl_sync(~0u, product[i % 2], (lane & 7) + i / 2 * 8);
	solve_column(z, corner);
	__syncwarp();
	even = __shfl_sync(~0u, block.alpha[slot][0], (lane & 7) * 4);
	odd = __shfl_sync(~0u, block.alpha[slot][1], (lane & 7) * 4);
#if WARPGROUP_PRODUCTS
	/* what the scratch left where T is zero */
	UNROLL
	for (int from = 0; from < 16 * (BLOCKS - 1); from += 32) {
		const int i = from + lane;

		if (i < 16 * row)
			store_shared(block.transposed_inverse + tile_offset<CHUNK>(row * 16 + i % 8, i / 8),
				make_uint4(0, 0, 0, 0));
	}
#endif
	/* lanes from 16 on write what is scaled */
	const unsigned tile = lane & 16 ? block.transposed_inverse : block.lower;
	const float scale = lane & 16 ? (of_c ? odd : even) : 1.0f;

	store_segment(tile, row * 16 + (lane & 15), row * 2 + of_c, x, scale);
	store_segment(tile, row * 16 + (lane & 15), row * 2 + 1 - of_c, z, of_c ? 0.0f : scale);
}
