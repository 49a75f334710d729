/* layer_project: x to q, k, v and the narrow half of the gate in one launch, on Hopper: the projections, with the
 * convolutions of four taps and SiLU at their end. x is read once and what comes out is written once; nothing between
 * them goes through memory. gather.cu, cuBLASLt and convolve.cu do the same elsewhere, and for few tokens.
 *
 * A block takes PROJECT_ROWS tokens in bf16 into shared memory, all HIDDEN numbers of them, and multiplies them by the
 * weights, 64 columns at a time, which stream through a ring of buffers (all blocks want the same ones: they come from the
 * second-level cache). It is the transposed product, W xᵀ: a thread then has two channels of 32 tokens, one behind the
 * other, for the rows of x are put where wgmma makes it so, and a convolution stays within the thread but for its first
 * three tokens, which the lane before has. The first LAYER_HISTORY tokens of a tile are only looked back at.
 *
 * Two groups of four warps multiply, each with columns and a ring of its own, so that one convolves and stores while the
 * other has the tensor cores. Six more warps load x of the next tile, a slice of 64 numbers as soon as nobody needs the
 * last tile's any more; and a warp for each ring copies weights. What is to be done, tiles times columns, is dealt out evenly to as many blocks as there are multiprocessors,
 * in stretches of its order: a tile may be shared by several blocks.
 *
 * Weights lie in memory as they are wanted in shared memory: layer_tile sees to that. Bound by the tensor cores,
 * and by what of the end of a step is not hidden. Compile-time
 * parameters: HIDDEN, WIDTH (heads · S), HEAD_DIM, INPUT (1: bf16), FROM_F32 (1: x is fp32, 0: x is bf16). */
#define PRODUCT_WARPS 4 /* for tile.cuh: a product is made by four warps together */

#include "common/element.cuh"
#include "common/mbarrier.cuh"
#include "common/tile.cuh"
#include "layer/arguments.h"
#include "layer/layout.h"
#include "layer/segment.cuh"
#include "layer/silu.cuh"

#define THREADS PROJECT_THREADS
#define GROUPS 2  /* of four warps, that multiply; each has a warp that copies its weights */
#define LOADERS 6 /* warps that load x */
#define STAGES 6  /* of each of their rings */
#define ROWS (PROJECT_ROWS - LAYER_HISTORY)
#define SLICES (HIDDEN / PROJECT_INNER)
#define BLOCKS ((3 * WIDTH + HEAD_DIM) / PROJECT_COLUMNS)
#define RUN (PROJECT_ROWS / 4) /* tokens of a thread */
#define N (RUN / 2)

/* --- what lies where -------------------------------------------------------------------------------- */

#define SLICE_BYTES (PROJECT_ROWS * PROJECT_INNER * 2)
#define WEIGHT_BYTES (PROJECT_COLUMNS * PROJECT_INNER * 2)

static __device__ __forceinline__ unsigned slice_of(unsigned shared, int slice)
{
	return shared + slice * SLICE_BYTES;
}

static __device__ __forceinline__ unsigned stage_of(unsigned shared, int group, int stage)
{
	return shared + SLICES * SLICE_BYTES + (group * STAGES + stage) * WEIGHT_BYTES;
}

/* Behind them: of each slice, then of each ring's stages, that it is full, and that it is empty. */
static __device__ __forceinline__ unsigned barrier_of(unsigned shared, int number)
{
	return stage_of(shared, GROUPS, 0) + number * 8;
}

static __device__ __forceinline__ unsigned slice_full(unsigned shared, int slice)
{
	return barrier_of(shared, slice);
}

static __device__ __forceinline__ unsigned slice_empty(unsigned shared, int slice)
{
	return barrier_of(shared, SLICES + slice);
}

static __device__ __forceinline__ unsigned stage_full(unsigned shared, int group, int stage)
{
	return barrier_of(shared, 2 * SLICES + group * STAGES + stage);
}

static __device__ __forceinline__ unsigned stage_empty(unsigned shared, int group, int stage)
{
	return barrier_of(shared, 2 * SLICES + (GROUPS + group) * STAGES + stage);
}

static_assert(SLICES * (SLICE_BYTES + 16) + GROUPS * (STAGES * (WEIGHT_BYTES + 16)) <= PROJECT_SHARED,
	"there is room");

static __device__ void make_barriers(unsigned shared)
{
	for (int slice = 0; slice < SLICES; slice++) {
		mbarrier_init(slice_full(shared, slice), 4);
		mbarrier_init(slice_empty(shared, slice), GROUPS * 4);
	}
	for (int group = 0; group < GROUPS; group++)
		for (int stage = 0; stage < STAGES; stage++) {
			mbarrier_init(stage_full(shared, group, stage), 1);
			mbarrier_init(stage_empty(shared, group, stage), 4);
		}
	mbarrier_publish();
}

/* A place in a ring of stages; `parity` is that of the round. */
struct turn {
	int stage, parity;
};

static __device__ __forceinline__ void advance(struct turn &turn)
{
	if (++turn.stage == STAGES) {
		turn.stage = 0;
		turn.parity ^= 1;
	}
}

/* --- who does what ---------------------------------------------------------------------------------- */

/* Steps are tiles times blocks of columns. Those first … end − 1 are this block's, and the two groups take turns. */
struct share {
	int first, end;
	int tiles; /* of a stretch */
};

static __device__ __forceinline__ struct share own_share(const struct layer_project_arguments &a)
{
	const int tiles = (a.segment.length + ROWS - 1) / ROWS;
	const long long steps = (long long)tiles * a.sequences * BLOCKS;

	return {(int)(steps * blockIdx.x / gridDim.x), (int)(steps * (blockIdx.x + 1) / gridDim.x), tiles};
}

/* The end of those steps of the share that have the same tile as `step`. */
static __device__ __forceinline__ int tile_end(const struct share &share, int step)
{
	return min(share.end, (step / BLOCKS + 1) * BLOCKS);
}

/* The first step from `step` on that is the group's. */
static __device__ __forceinline__ int turn_of(const struct share &share, int step, int group)
{
	return step + ((step - share.first) % GROUPS != group);
}

struct tile {
	int stretch, row; /* its first output row in the stretch */
	long long token;  /* of that row, in the sequence */
};

static __device__ __forceinline__ struct tile tile_of(
	const struct layer_project_arguments &a, const struct share &share, int step)
{
	const int number = step / BLOCKS, stretch = number / share.tiles;
	const int row = number % share.tiles * ROWS;

	return {stretch, row, first_token(a.segment, stretch) + row};
}

/* --- x ---------------------------------------------------------------------------------------------- */

#if FROM_F32
#define X float
#define FOUR float4
#else
#define X ELEMENT
#define FOUR uint2
#endif

static __device__ __forceinline__ const X *tokens_of(
	const struct layer_project_arguments &a, const struct tile &tile)
{
	return (const X *)a.x + first_row(a.segment, tile.stretch) * HIDDEN;
}

static __device__ __forceinline__ uint2 four_elements(const FOUR &four)
{
#if FROM_F32
	return make_uint2(element_pair(four.x, four.y), element_pair(four.z, four.w));
#else
	return four;
#endif
}

static __device__ __forceinline__ void store_shared(unsigned address, uint2 value)
{
	asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(address), "r"(value.x), "r"(value.y)
		     : "memory");
}

/* Where a token of a tile lies: row 8 n + 2 quad + e has token RUN quad + 2 n + e, so that a lane's columns of the
 * product, the rows 8 n + 2 quad + e of x, are one run of tokens. */
static __device__ __forceinline__ int place_of(int token)
{
	return token % RUN / 2 * 8 + token / RUN * 2 + token % 2;
}

/* A warp loads every LOADERSth run of tokens of a slice, into registers, so that it is on its way before there is room. */
static __device__ void load_slices(
	const struct layer_project_arguments &a, const struct share &share, unsigned shared, int warp)
{
	const int lane = threadIdx.x % 32, column = lane % 16 * 4;
	int parity = 1;

	for (int step = share.first; step < share.end; step = tile_end(share, step), parity ^= 1) {
		const struct tile tile = tile_of(a, share, step);

		for (int part = warp; part < SLICES * 4; part += LOADERS) {
			const int slice = part / 4, first = part % 4 * RUN + lane / 16;
			const X *from = tokens_of(a, tile) + slice * PROJECT_INNER + column;
			FOUR x[RUN / 2];

			UNROLL
			for (int i = 0; i < RUN / 2; i++) {
				const long long token = tile.token - LAYER_HISTORY + first + 2 * i;

				x[i] = FOUR();
				if (token >= 0 && token < a.segment.tokens)
					x[i] = __ldcs((const FOUR *)(from + token * HIDDEN));
			}
			mbarrier_wait(slice_empty(shared, slice), parity);
			UNROLL
			for (int i = 0; i < RUN / 2; i++)
				store_shared(slice_of(shared, slice) +
						tile_offset<PROJECT_INNER>(
							place_of(first + 2 * i), column / 8) +
						column % 8 * 2,
					four_elements(x[i]));
			publish_tiles();
			mbarrier_arrive_warp(slice_full(shared, slice));
		}
	}
}

/* --- weights ---------------------------------------------------------------------------------------- */

/* A tile has PROJECT_COLUMNS rows of PROJECT_INNER numbers, permuted as tile.cuh has them. Tiles follow each other as they
 * are needed. Rows 2 quad + e and 8 + 2 quad + e of 16 have the columns 4 quad + e and 4 quad + 2 + e: what a lane
 * stores in the end are then four that are neighbours. A thread moves 16 bytes. */
static __device__ __forceinline__ void tile_weights(const struct layer_tile_arguments &a)
{
	const int number = blockIdx.x * LAYER_THREADS + threadIdx.x, segment = number % 8;
	const int row = number / 8 % PROJECT_COLUMNS, tile = number / 8 / PROJECT_COLUMNS;
	const int column = tile / SLICES * PROJECT_COLUMNS + row / 16 * 16 + row % 8 / 2 * 4 +
		row / 8 % 2 * 2 + row % 2;

	if (tile < BLOCKS * SLICES)
		*(uint4 *)((char *)a.to + tile * WEIGHT_BYTES + tile_offset<PROJECT_INNER>(row, segment)) = ((
			const uint4 *)a.from)[column * (HIDDEN / 8) + tile % SLICES * 8 + segment];
}

/* The tiles of a group's steps, into its ring. */
static __device__ void copy_weights(
	const struct layer_project_arguments &a, const struct share &share, unsigned shared, int group)
{
	struct turn turn = {0, 1};

	for (int step = turn_of(share, share.first, group); step < share.end; step += GROUPS) {
		const char *from = (const char *)a.weight + step % BLOCKS * (SLICES * WEIGHT_BYTES);

		for (int slice = 0; slice < SLICES; slice++, advance(turn)) {
			const unsigned full = stage_full(shared, group, turn.stage);

			mbarrier_wait(stage_empty(shared, group, turn.stage), turn.parity);
			mbarrier_expect(full, WEIGHT_BYTES);
			asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
				     "[%0], [%1], %2, [%3];" ::"r"(stage_of(shared, group, turn.stage)),
				     "l"(from + slice * WEIGHT_BYTES), "r"(WEIGHT_BYTES), "r"(full)
				     : "memory");
		}
	}
}

/* --- the product ------------------------------------------------------------------------------------ */

/* c (+)= W xᵀ for 16 of the inner numbers, of tiles in shared memory. */
static __device__ __forceinline__ void multiply_tiles(
	float (&c)[N][4], unsigned long long weights, unsigned long long x, int accumulate)
{
	asm volatile("{\n"
		     ".reg .pred p;\n"
		     "setp.ne.b32 p, %66, 0;\n"
		     "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" NAMES_64
		     "}, %64, %65, p, 1, 1, 0, 0;\n"
		     "}"
		     : TILE_64(c, 0)
		     : "l"(weights), "l"(x), "r"(accumulate));
}

/* One slice of the inner numbers. */
static __device__ __forceinline__ void multiply_slice(
	float (&c)[N][4], unsigned weights, unsigned x, int accumulate)
{
	hold(c);
	asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
	UNROLL
	for (int k = 0; k < PROJECT_INNER / 16; k++)
		multiply_tiles(c, tile_descriptor<PROJECT_INNER>(weights + tile_column<PROJECT_INNER>(2 * k)),
			tile_descriptor<PROJECT_INNER>(x + tile_column<PROJECT_INNER>(2 * k)),
			accumulate || k);
	asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* --- convolution and output ------------------------------------------------------------------------- */

/* The product's column `index` of this thread, counted from its run's first token; `before` has the three tokens before
 * that. */
static __device__ __forceinline__ float value_of(
	const float (&c)[N][4], const float (&before)[LAYER_HISTORY][2], int index, int half)
{
	return index < 0 ? before[-1 - index][half] : c[index / 2][half * 2 + index % 2];
}

/* Stores this warp's 16 channels of a tile; lane 4 j + quad stores channels 4 quad … 4 quad + 3 of what are columns j of
 * the product. `to` is where row 0 of the tile's outputs belongs; of `rows` outputs those from `valid` on are zeros. */
template <bool CONVOLVED, int STRIDE>
static __device__ __forceinline__ void store_channels(
	const float (&c)[N][4], const float *weights, ELEMENT *to, int rows, int valid)
{
	const int lane = threadIdx.x % 32, group = lane / 4;
	const int first = group / 2 * RUN + group % 2 - LAYER_HISTORY;
	float weight[2][4], before[LAYER_HISTORY][2];

	UNROLL
	for (int half = 0; half < 2; half++) {
		UNROLL
		for (int tap = 0; tap < 4 && CONVOLVED; tap++)
			weight[half][tap] = weights[tap * WIDTH + group / 2 * 4 + half * 2 + group % 2] / 2;
		UNROLL
		for (int back = 0; back < LAYER_HISTORY; back++)
			before[back][half] = __shfl_up_sync(
				~0u, value_of(c, before, RUN - 1 - back, half), 1);
	}
	to += (long long)first * STRIDE + lane % 4 * 4;
	UNROLL
	for (int n = 0; n < N; n++) {
		const int row = first + 2 * n;
		unsigned pair[2];

		UNROLL
		for (int half = 0; half < 2; half++) {
			float y[2];

			UNROLL
			for (int e = 0; e < 2; e++) {
				const int i = 2 * n + e;

				y[e] = value_of(c, before, i, half);
				if (CONVOLVED)
					y[e] = silu_of_twice(
						weight[half][0] * value_of(c, before, i - 3, half) +
						weight[half][1] * value_of(c, before, i - 2, half) +
						weight[half][2] * value_of(c, before, i - 1, half) +
						weight[half][3] * y[e]);
			}
			pair[half] = transpose_matrix(element_pair(y[0], y[1]));
		}
		if (row >= 0 && row < rows)
			*(uint2 *)(to + 2 * n * STRIDE) = row < valid ? make_uint2(pair[0], pair[1])
								      : make_uint2(0, 0);
	}
}

static __device__ __forceinline__ void store_block(
	const float (&c)[N][4], const struct layer_project_arguments &a, const struct tile &tile, int block)
{
	const int column = block * PROJECT_COLUMNS + threadIdx.x % 128 / 32 * 16;
	const int which = column / WIDTH, channel = column % WIDTH;
	const int rows = min(ROWS, a.segment.length - tile.row);
	const int valid = (int)min((long long)rows, max(a.segment.tokens - tile.token, 0ll));

	if (which < 3)
		store_channels<true, WIDTH>(c, a.taps + which * 4 * WIDTH + channel,
			(ELEMENT *)(which == 0       ? a.q
					: which == 1 ? a.k
						     : a.v) +
				((long long)tile.stretch * a.segment.length + tile.row) * WIDTH + channel,
			rows, valid);
	else
		store_channels<false, HEAD_DIM>(c, nullptr,
			(ELEMENT *)a.narrow + (first_row(a.segment, tile.stretch) + tile.token) * HEAD_DIM +
				channel,
			valid, valid);
}

/* The steps of a group. A slice of x is let go of in the group's last step with that tile. */
static __device__ void multiply_blocks(
	const struct layer_project_arguments &a, const struct share &share, unsigned shared, int group)
{
	struct turn turn = {0, 0};
	int parity = 0;

	for (int step = share.first, end; step < share.end; step = end, parity ^= 1) {
		const struct tile tile = tile_of(a, share, step);
		const int first = turn_of(share, step, group);

		end = tile_end(share, step);
		if (first >= end) /* nothing to do here: the tile is let go of all the same */
			for (int slice = 0; slice < SLICES; slice++) {
				mbarrier_wait(slice_full(shared, slice), parity);
				mbarrier_arrive_warp(slice_empty(shared, slice));
			}
		for (int own = first; own < end; own += GROUPS) {
			float c[N][4];
			int before = 0;

			for (int slice = 0; slice < SLICES; slice++, advance(turn)) {
				mbarrier_wait(stage_full(shared, group, turn.stage), turn.parity);
				if (own == first)
					mbarrier_wait(slice_full(shared, slice), parity);
				multiply_slice(c, stage_of(shared, group, turn.stage),
					slice_of(shared, slice), slice);
				if (slice) { /* the one before is done */
					asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
					mbarrier_arrive_warp(stage_empty(shared, group, before));
					if (own + GROUPS >= end)
						mbarrier_arrive_warp(slice_empty(shared, slice - 1));
				}
				before = turn.stage;
			}
			multiply_finish(c);
			mbarrier_arrive_warp(stage_empty(shared, group, before));
			if (own + GROUPS >= end)
				mbarrier_arrive_warp(slice_empty(shared, SLICES - 1));
			store_block(c, a, tile, own % BLOCKS);
		}
	}
}

static __device__ __forceinline__ void project(const struct layer_project_arguments &a)
{
	extern __shared__ __align__(1024) char memory[];
	const unsigned shared = (unsigned)__cvta_generic_to_shared(memory);
	const int warp = threadIdx.x / 32;
	const struct share share = own_share(a);

	if (threadIdx.x == 0)
		make_barriers(shared);
	__syncthreads();
	if (warp < GROUPS * 4)
		multiply_blocks(a, share, shared, warp / 4);
	else if (warp < GROUPS * 4 + LOADERS)
		load_slices(a, share, shared, warp - GROUPS * 4);
	else if (threadIdx.x % 32 == 0)
		copy_weights(a, share, shared, warp - GROUPS * 4 - LOADERS);
}

#ifndef FLAT_ENTRY
extern "C" __global__ void __launch_bounds__(LAYER_THREADS)
	layer_tile(const __grid_constant__ struct layer_tile_arguments a)
{
	wait_for_launch_before();
	tile_weights(a);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
	layer_project(const __grid_constant__ struct layer_project_arguments a)
{
	wait_for_launch_before();
	project(a);
}
#endif
