/* flash: what the kernels of attention have in common: a block keeps BLOCK_M rows, each warp 16 of them or 32, and
 * walks through tiles of BLOCK_N rows of other tensors, which are loaded NUM_STAGES at a time.
 *
 * Compile-time parameters, of the problem:
 *   HEAD_DIM    S: 32, 64 or 128
 *   CAUSAL      1: queries see no keys behind them, 0: all
 *   INPUT       element type: bf16 or fp16 (common/dtype.h)
 *   VECTOR      1: every row of every tensor is contiguous and 16-byte aligned, 0: any strides (those that have a tensor
 *               map are aligned all the same)
 * and tunables (lib/op/flash/config.c):
 *   BLOCK_M     rows that a block keeps: 64 or 128
 *   BLOCK_N     rows of a tile that it walks through: 32, 64 or 128
 *   NUM_WARPS   that multiply: 4, 8 or 12
 *   NUM_STAGES  tiles that there is room for: 1, 2, 3 or 4; all but the one in work are being loaded
 *   PRODUCT_WARPS  4: products by wgmma, four warps together, for which another one loads (Hopper; roles.cuh); 1: by
 *               mma.sync, and all warps load what they multiply
 * and what only the ladder of versions (lib/op/flash/cuda.c) sets otherwise:
 *   EARLY_END   1: tiles above the diagonal are not visited, 0: they are, and masked
 *   ATOMICS     1: the gradient adds to dQ in memory (atomics.cuh), 0: it has a pass for it */
#pragma once

#include "common/element.cuh"

#if INPUT == INPUT_F16
#define TILE_TYPE "f16"
#endif
#include "common/tile.cuh"
#include "flash/arguments.h"
#include "flash/layout.h"

#define THREADS FLASH_THREADS(NUM_WARPS, PRODUCT_WARPS)
#define BLOCKS_AT_LEAST 1 /* at a time on a multiprocessor: ptxas wants to know, or ignores setmaxnreg */
#define GROUPS FLASH_GROUPS(BLOCK_M, NUM_WARPS)
#define WARP_ROWS (16 * GROUPS)
#define SEGMENTS (HEAD_DIM / 8) /* of 16 bytes, of a row */
#define DIM_N (HEAD_DIM / 8)
#define DIM_K (HEAD_DIM / 16)
#define WALK_N (BLOCK_N / 8)
#define WALK_K (BLOCK_N / 16)
#define KEPT_BYTES FLASH_TILE_BYTES(HEAD_DIM, BLOCK_M)
#define WALKED_BYTES FLASH_TILE_BYTES(HEAD_DIM, BLOCK_N)

#define SKIPS (CAUSAL && EARLY_END)

#define LOG2E 1.4426950408889634f
#define MINUS_INFINITY __int_as_float(0xff800000)

/* --- where a block is ------------------------------------------------------------------------------- */

/* A block's rows of a head of a sequence. */
struct place {
	int batch, head;
	long long first; /* token of the sequence */
	int tokens;      /* of the sequence */
	int row;         /* that the block begins with; none where it is no less than tokens */
};

/* Heads and sequences change fastest, so that blocks of about as much work run at a time. `last_first`: late rows see
 * more than early ones. */
static __device__ __forceinline__ struct place locate(
	const struct flash_arguments &a, int heads, bool last_first)
{
	const int others = a.sequences * heads, other = blockIdx.x % others, sequence = other / heads;
	const int number = blockIdx.x / others, count = gridDim.x / others;
	struct place place = {sequence, other % heads, 0, (int)a.tokens,
		(last_first ? count - 1 - number : number) * BLOCK_M};

	if (a.cu_seqlens) {
		place.batch = 0;
		place.first = a.cu_seqlens[sequence];
		place.tokens = a.cu_seqlens[sequence + 1] - a.cu_seqlens[sequence];
	}
	return place;
}

static __device__ __forceinline__ ELEMENT *head_of(
	const struct device_tensor &tensor, const struct place &place, int head)
{
	return (ELEMENT *)tensor.data + row_offset(tensor, place.batch, place.first, head);
}

/* Of a head's first token, in lse and what has its shape. */
static __device__ __forceinline__ long long query_index(
	const struct flash_arguments &a, const struct place &place, int head)
{
	return ((long long)place.batch * a.heads + head) * a.tokens + place.first;
}

/* --- tiles ------------------------------------------------------------------------------------------ */

static __device__ __forceinline__ unsigned shared_memory(void)
{
	extern __shared__ __align__(1024) unsigned char memory[];

	return (unsigned)__cvta_generic_to_shared(memory);
}

static __device__ __forceinline__ uint4 pack_eight(const float (&x)[8])
{
	return make_uint4(element_pair(x[0], x[1]), element_pair(x[2], x[3]), element_pair(x[4], x[5]),
		element_pair(x[6], x[7]));
}

/* Starts loading ROWS rows of a head from `row` on; zeros from `tokens` on. */
template <int ROWS>
static __device__ __forceinline__ void load_tile(
	unsigned tile, const struct device_tensor &tensor, const ELEMENT *head, int row, int tokens)
{
	const int step = THREADS / SEGMENTS, first = threadIdx.x / SEGMENTS, segment = threadIdx.x % SEGMENTS;
	const ELEMENT *column = head + segment * 8 * tensor.stride[3];

	UNROLL
	for (int pass = 0; pass < (ROWS + step - 1) / step; pass++) {
		const int r = first + pass * step;
		const bool valid = row + r < tokens;
		const ELEMENT *source = column + (valid ? (row + r) * tensor.stride[1] : 0);
		const unsigned address = tile + tile_offset<HEAD_DIM>(r, segment);

		if (ROWS % step && r >= ROWS)
			break;
#if VECTOR
		copy_async(address, source, valid);
#else
		float value[8] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};

		if (valid)
			load_eight(value, source, tensor.stride[3]);
		store_shared(address, pack_eight(value));
#endif
	}
}

/* Row 0 to 15 of group `group` of the calling warp's rows. */
static __device__ __forceinline__ int warp_row(int group)
{
	return threadIdx.x / 32 * WARP_ROWS + group * 16;
}

/* Writes the warp's rows of a result, times `factor`, to its part of a tile, which nobody else reads, and from there
 * to a head's rows from `row` on. */
static __device__ __forceinline__ void store_tile(const float (&c)[GROUPS][DIM_N][4],
	const float (&factor)[GROUPS][2], unsigned tile, const struct device_tensor &tensor, ELEMENT *head,
	int row, int tokens)
{
	const int lane = threadIdx.x & 31, segment = lane % SEGMENTS;

	__syncwarp();
	UNROLL
	for (int g = 0; g < GROUPS; g++) {
		UNROLL
		for (int n = 0; n < DIM_N; n++) {
			UNROLL
			for (int half = 0; half < 2; half++)
				store_shared(tile +
						tile_offset<HEAD_DIM>(
							warp_row(g) + (lane >> 2) + half * 8, n) +
						(lane & 3) * 4,
					element_pair(factor[g][half] * c[g][n][half * 2],
						factor[g][half] * c[g][n][half * 2 + 1]));
		}
	}
	__syncwarp();
	for (int r = lane / SEGMENTS; r < WARP_ROWS; r += 32 / SEGMENTS) {
		const int at = warp_row(0) + r;
		const uint4 line = load_shared(tile + tile_offset<HEAD_DIM>(at, segment));
		ELEMENT *target = head + (row + at) * tensor.stride[1] + segment * 8 * tensor.stride[3];

		if (row + at >= tokens)
			continue;
		store_eight(target, line, tensor.stride[3]);
	}
}

/* --- the walk --------------------------------------------------------------------------------------- */

/* What `load(tile)` starts to load for tile 0, 1, … arrives in stage tile % NUM_STAGES. Call begin_walk() before the
 * first, and next_tile() before each: behind it, this tile is there for all threads, and nobody reads the one before
 * any more. */
template <typename LOAD> static __device__ __forceinline__ void begin_walk(int count, LOAD load)
{
	UNROLL
	for (int tile = 0; tile < NUM_STAGES - 1; tile++) {
		if (tile < count)
			load(tile);
		copy_async_commit();
	}
}

template <typename LOAD> static __device__ __forceinline__ void next_tile(int tile, int count, LOAD load)
{
	if (NUM_STAGES == 1) {
		__syncthreads();
		load(tile);
		copy_async_commit();
	}
	copy_async_wait_group<(NUM_STAGES > 1 ? NUM_STAGES - 2 : 0)>();
	__syncthreads();
	if (NUM_STAGES > 1) {
		if (tile + NUM_STAGES - 1 < count)
			load(tile + NUM_STAGES - 1);
		copy_async_commit();
	}
}

/* --- products --------------------------------------------------------------------------------------- */

/* Left factors of STEPS k steps, of the warp's rows. */
#define FACTORS(STEPS) unsigned(&a)[GROUPS][1][STEPS][4]

/* Those of a kept tile, from k step `first` on. */
template <int STEPS>
static __device__ __forceinline__ void load_kept(FACTORS(STEPS), unsigned tile, int first)
{
	UNROLL
	for (int g = 0; g < GROUPS; g++)
		load_rows<1, HEAD_DIM>(a[g], tile + warp_row(g) * HEAD_DIM * 2, 0, first);
}

/* Those that the columns of a result, from 16 · first on, are. */
template <int STEPS, int N>
static __device__ __forceinline__ void pack_columns(FACTORS(STEPS), const float (&c)[GROUPS][N][4], int first)
{
	UNROLL
	for (int g = 0; g < GROUPS; g++) {
		UNROLL
		for (int k = 0; k < STEPS; k++) {
			UNROLL
			for (int i = 0; i < 4; i++) {
				const float(&pair)[4] = c[g][2 * (first + k) + i / 2];

				a[g][0][k][i] = element_pair(pair[i % 2 * 2], pair[i % 2 * 2 + 1]);
			}
		}
	}
}

/* c += a · B, from k step `first` on. As in common/tile.cuh the rows of the tile are the columns of B (TRANSPOSED
 * false), or the rows (true). Each part of B that is read serves all GROUPS. */
template <bool TRANSPOSED, int STEPS, int N>
static __device__ __forceinline__ void multiply_tile(
	float (&c)[GROUPS][N][4], const FACTORS(STEPS), unsigned tile, int first)
{
	const unsigned lane = lane_offset<HEAD_DIM>(TRANSPOSED);

	UNROLL
	for (int k = 0; k < STEPS; k++) {
		UNROLL
		for (int n = 0; n < N; n += 2) {
			unsigned b[4];

			if (TRANSPOSED)
				load_matrices_transposed(b,
					tile + (first + k) * 16 * HEAD_DIM * 2 +
						(lane ^ tile_column<HEAD_DIM>(n)));
			else
				load_matrices(b,
					tile + n * 8 * HEAD_DIM * 2 +
						(lane ^ tile_column<HEAD_DIM>(2 * (first + k))));
			UNROLL
			for (int g = 0; g < GROUPS; g++) {
				multiply_add(c[g][n], a[g][0][k], b[0], b[1]);
				multiply_add(c[g][n + 1], a[g][0][k], b[2], b[3]);
			}
		}
	}
}

/* c += kept · walkedᵀ, one k step after the other, which takes the fewest registers. */
static __device__ __forceinline__ void multiply_kept(
	float (&c)[GROUPS][WALK_N][4], unsigned kept, unsigned walked)
{
	UNROLL
	for (int step = 0; step < DIM_K; step++) {
		unsigned a[GROUPS][1][1][4];

		load_kept(a, kept, step);
		multiply_tile<false>(c, a, walked, step);
	}
}

/* c += P · walked, with the scores' place holding P. */
static __device__ __forceinline__ void multiply_walked(
	float (&c)[GROUPS][DIM_N][4], const float (&p)[GROUPS][WALK_N][4], unsigned walked)
{
	UNROLL
	for (int step = 0; step < WALK_K; step++) {
		unsigned a[GROUPS][1][1][4];

		pack_columns(a, p, step);
		multiply_tile<true>(c, a, walked, step);
	}
}

template <int N> static __device__ __forceinline__ void clear_groups(float (&c)[GROUPS][N][4])
{
	UNROLL
	for (int g = 0; g < GROUPS; g++)
		clear(c[g]);
}

/* Row and column in the tile of scores, kept by walked, that element i of c[g][n] has in this lane. */
static __device__ __forceinline__ int score_row(int g, int i)
{
	return warp_row(g) + ((threadIdx.x & 31) >> 2) + (i >> 1) * 8;
}

static __device__ __forceinline__ int score_column(int n, int i)
{
	return n * 8 + (threadIdx.x & 3) * 2 + (i & 1);
}

static __device__ __forceinline__ float power_of_two(float x)
{
	float y;

	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
}

/* Over the four lanes that share a row. */
static __device__ __forceinline__ float sum_of_row(float x)
{
	x += __shfl_xor_sync(~0u, x, 1);
	return x + __shfl_xor_sync(~0u, x, 2);
}

static __device__ __forceinline__ float most_of_row(float x)
{
	x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
	return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}
