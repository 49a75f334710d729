/* roles: attention with warps of two kinds (WARP_ROLES = 2): NUM_WARPS of them multiply, four at a time, 64 kept rows
 * each four; those behind them load tiles, and have given most of their registers away. The two meet at barriers,
 * one for each stage and four warps that says that its tile is there, and one for each stage that says that all are
 * done with it: so the warps that multiply go on apart from each other, and the tensor cores are with some while
 * others work on their scores. */
#pragma once

#include "flash/flash.cuh"

#define WARPGROUPS (NUM_WARPS / 4)
#define STAGE_BARRIERS (WARPGROUPS + 1)

/* --- tiles from loaders ------------------------------------------------------------------------------ */

static __device__ __forceinline__ void barrier_wait(int number, int threads)
{
	asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

static __device__ __forceinline__ void barrier_arrive(int number, int threads)
{
	asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

/* Numbers of barriers; 0 is __syncthreads(). */
static __device__ __forceinline__ int loaded_barrier(int tile, int warpgroup)
{
	return 1 + tile % NUM_STAGES * STAGE_BARRIERS + warpgroup;
}

static __device__ __forceinline__ int done_barrier(int tile)
{
	return loaded_barrier(tile, WARPGROUPS);
}

static __device__ __forceinline__ int turn_barrier(int warpgroup)
{
	return 1 + NUM_STAGES * STAGE_BARRIERS + warpgroup;
}

static __device__ __forceinline__ bool is_loader(void)
{
	return threadIdx.x >= NUM_WARPS * 32;
}

/* Registers of a thread: from those that load to those that multiply. */
static __device__ __forceinline__ void give_registers(void)
{
#if WARPGROUP_PRODUCTS
	asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(FLASH_LOADER_REGISTERS(NUM_WARPS)));
#endif
}

static __device__ __forceinline__ void take_registers(void)
{
#if WARPGROUP_PRODUCTS
	asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(FLASH_PRODUCT_REGISTERS(NUM_WARPS)));
#endif
}

/* All that loaders do: `load(tile)` starts to load tile 0, 1, … The next one is under way before one is waited for. */
template <typename LOAD> static __device__ __forceinline__ void load_tiles(int count, LOAD load)
{
	const int later = NUM_STAGES > 2;

#pragma unroll 1
	for (int tile = 0; tile < count + later; tile++) {
		if (tile < count) {
			if (tile >= NUM_STAGES)
				barrier_wait(done_barrier(tile), THREADS);
			load(tile);
		}
		copy_async_commit();
		copy_async_wait_group<later>();
		publish_tiles();
		UNROLL
		for (int i = 0; i < WARPGROUPS; i++)
			if (tile >= later)
				barrier_arrive(loaded_barrier(tile - later, i), 128 + LOADERS);
	}
}

/* For those that multiply: until tile `tile` is there. */
static __device__ __forceinline__ void take_tile(int tile)
{
	barrier_wait(loaded_barrier(tile, threadIdx.x / 128), 128 + LOADERS);
}

/* This one is read no more. */
static __device__ __forceinline__ void give_tile(int tile, int count)
{
	if (tile + NUM_STAGES < count)
		barrier_arrive(done_barrier(tile), THREADS);
}

/* Four warps after the other start their products, so that those of one are under way while the others work on scores.
 * The first turn is given by whoever has the last one. */
static __device__ __forceinline__ void begin_turns(void)
{
	if (threadIdx.x / 128 == WARPGROUPS - 1)
		barrier_arrive(turn_barrier(0), 2 * 128);
}

static __device__ __forceinline__ void take_turn(void)
{
	barrier_wait(turn_barrier(threadIdx.x / 128), 2 * 128);
}

/* `last`: no more are taken. */
static __device__ __forceinline__ void give_turn(bool last)
{
	const int next = threadIdx.x / 128 + 1;

	if (next < WARPGROUPS)
		barrier_arrive(turn_barrier(next), 2 * 128);
	else if (!last)
		barrier_arrive(turn_barrier(0), 2 * 128);
}

/* --- products ---------------------------------------------------------------------------------------- */

/* The rows of a tile that the calling warps keep: 64 of each four, or where they do not multiply together 16. They
 * stay there: ptxas 13.0 gives the registers of a left factor that a loop reads each time to others within it. */
static __device__ __forceinline__ unsigned kept_rows(unsigned tile)
{
	return tile + (WARPGROUP_PRODUCTS ? threadIdx.x / 128 * 64 : warp_row(0)) * HEAD_DIM * 2;
}

/* scores = kept · walkedᵀ, until multiply_finish(). */
static __device__ __forceinline__ void start_scores(
	float (&scores)[GROUPS][WALK_N][4], unsigned kept, unsigned walked)
{
#if WARPGROUP_PRODUCTS
	hold(scores[0]);
	asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
	UNROLL
	for (int k = 0; k < DIM_K; k++) {
		const unsigned column = tile_column<HEAD_DIM>(2 * k);
		const unsigned long long a = tile_descriptor<HEAD_DIM>(kept + column),
					 b = tile_descriptor<HEAD_DIM>(walked + column);

		if (k)
			warpgroup_multiply_add<true>(scores[0], a, b);
		else
			warpgroup_multiply_add<false>(scores[0], a, b);
	}
	asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#else
	unsigned factors[1][DIM_K][4];

	load_rows<1, HEAD_DIM>(factors, kept, 0);
	multiply_start<1, HEAD_DIM, false, FULL, 1, false>(scores[0], factors, walked, 0);
#endif
}

/* Left factors from scores. */
static __device__ __forceinline__ void pack_scores(
	unsigned (&factors)[1][WALK_K][4], const float (&scores)[GROUPS][WALK_N][4])
{
	unsigned packed[GROUPS][1][WALK_K][4];

	pack_columns(packed, scores, 0);
	UNROLL
	for (int k = 0; k < WALK_K; k++) {
		UNROLL
		for (int i = 0; i < 4; i++) {
			factors[0][k][i] = packed[0][0][k][i];
			/* it is there before the product begins, and not made while that is under way */
			asm volatile("" : "+r"(factors[0][k][i])::"memory");
		}
	}
}

/* sums += factors · walked, or with ADDS false sums =, until multiply_finish(). */
template <bool ADDS = true>
static __device__ __forceinline__ void start_sums(
	float (&sums)[GROUPS][DIM_N][4], const unsigned (&factors)[1][WALK_K][4], unsigned walked)
{
	multiply_start<1, HEAD_DIM, true, FULL, 1, ADDS>(sums[0], factors, walked, 0);
}
