/* roles: attention with warps of two kinds (PRODUCT_WARPS = 4): NUM_WARPS of them multiply, four at a time, 64 kept rows
 * each four. Behind them one has the copy engine load tiles; three more are there with it to give away most of their
 * registers, which takes four. Barriers in shared memory, two a stage, say that its tile is there, and that all warps are
 * done with it: so the warps that multiply go on apart from each other, and the tensor cores are with some while others
 * work on their scores. */
#pragma once

#include "common/mbarrier.cuh"
#include "flash/flash.cuh"

#define WARPGROUPS (NUM_WARPS / 4)
#define BOX_ROWS FLASH_BOX_ROWS(HEAD_DIM, BLOCK_N)

/* --- roles ------------------------------------------------------------------------------------------- */

static __device__ __forceinline__ bool is_loader(void)
{
	return threadIdx.x >= NUM_WARPS * 32;
}

/* Registers of a thread: from those that load to those that multiply. Returns whether this is the warp that loads. */
static __device__ __forceinline__ bool give_registers(void)
{
	asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(FLASH_LOADER_REGISTERS(NUM_WARPS)));
	return threadIdx.x < (NUM_WARPS + 1) * 32;
}

static __device__ __forceinline__ void take_registers(void)
{
	asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(FLASH_PRODUCT_REGISTERS(NUM_WARPS)));
}

/* --- tiles from the copy engine ---------------------------------------------------------------------- */

/* The barriers lie one behind the other: of the kept tiles, then of each stage. `barriers`: the first one. */
static __device__ __forceinline__ unsigned loaded_barrier(unsigned barriers, int tile)
{
	return barriers + 8 + tile % NUM_STAGES * 16;
}

static __device__ __forceinline__ unsigned done_barrier(unsigned barriers, int tile)
{
	return loaded_barrier(barriers, tile) + 8;
}

/* Of the phase in which a tile is loaded. */
static __device__ __forceinline__ int parity(int tile)
{
	return tile / NUM_STAGES & 1;
}

/* `loads`: how often the loader arrives for a tile. All threads have to call it. */
static __device__ __forceinline__ void make_barriers(unsigned barriers, int loads)
{
	if (threadIdx.x == 0) {
		mbarrier_init(barriers, 1);
		UNROLL
		for (int stage = 0; stage < NUM_STAGES; stage++) {
			mbarrier_init(loaded_barrier(barriers, stage), loads);
			mbarrier_init(done_barrier(barriers, stage), NUM_WARPS);
		}
		mbarrier_publish();
	}
	__syncthreads();
}

static_assert(alignof(struct tensor_map) == 64, "the copy engine reads no other");

/* Has the copy engine load ROWS rows of a head of a tensor, from `row` on, by one thread, and the barrier learn of it; zeros
 * behind the sequence. flash_arguments says how the map is made. */
template <int ROWS>
static __device__ __forceinline__ void fetch_tile(unsigned tile, const struct tensor_map &map,
	const struct place &place, bool packed, int head, int row, unsigned barrier)
{
	for (int at = 0; at < ROWS; at += BOX_ROWS) {
		const int inside = max(0, min(BOX_ROWS, place.tokens - (row + at)));
		const int first = packed ? BOX_ROWS - inside : row + at;
		const int last = packed ? (int)place.first + row + at + inside : place.batch;

		asm volatile(
			"cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
			"[%0], [%1, {%2, %3, %4, %5, %6}], [%7];" ::"r"(tile + at * HEAD_DIM * 2),
			"l"(&map), "r"(0), "r"(first), "r"(0), "r"(head), "r"(last), "r"(barrier)
			: "memory");
	}
}

/* What the warp that loads does: `load(tile, barrier)` for tile 0, 1, … as soon as there is room. */
template <typename LOAD>
static __device__ __forceinline__ void load_tiles(unsigned barriers, int count, LOAD load)
{
#pragma unroll 1
	for (int tile = 0; tile < count; tile++) {
		mbarrier_wait(done_barrier(barriers, tile), parity(tile) ^ 1);
		load(tile, loaded_barrier(barriers, tile));
	}
}

/* For those that multiply: until the kept tiles are there, until tile `tile` is, and that this one is read no more. */
static __device__ __forceinline__ void take_kept(unsigned barriers)
{
	mbarrier_wait(barriers, 0);
}

static __device__ __forceinline__ void take_tile(unsigned barriers, int tile)
{
	mbarrier_wait(loaded_barrier(barriers, tile), parity(tile));
}

static __device__ __forceinline__ void give_tile(unsigned barriers, int tile)
{
	mbarrier_arrive_warp(done_barrier(barriers, tile));
}

/* --- turns ------------------------------------------------------------------------------------------- */

/* Numbers of barriers; 0 is __syncthreads(). Two times four warps meet at each. */
static __device__ __forceinline__ int turn_barrier(int warpgroup)
{
	return 1 + warpgroup;
}

static __device__ __forceinline__ void offer_turn(int warpgroup)
{
	asm volatile("bar.arrive %0, %1;" ::"r"(turn_barrier(warpgroup)), "n"(2 * 128) : "memory");
}

/* Four warps after the other start their products, so that those of one are under way while the others work on scores.
 * The first turn is given by whoever has the last one. */
static __device__ __forceinline__ void begin_turns(void)
{
	if (threadIdx.x / 128 == WARPGROUPS - 1)
		offer_turn(0);
}

static __device__ __forceinline__ void take_turn(void)
{
	asm volatile("bar.sync %0, %1;" ::"r"(turn_barrier(threadIdx.x / 128)), "n"(2 * 128) : "memory");
}

/* `last`: no more are taken. */
static __device__ __forceinline__ void give_turn(bool last)
{
	const int next = threadIdx.x / 128 + 1;

	if (next < WARPGROUPS)
		offer_turn(next);
	else if (!last)
		offer_turn(0);
}

/* --- products ---------------------------------------------------------------------------------------- */

/* The rows of a tile that the calling four warps keep. They stay there: ptxas 13.0 gives the registers of a left factor that a loop reads each time to others within it. */
static __device__ __forceinline__ unsigned kept_rows(unsigned tile)
{
	return tile + threadIdx.x / 128 * 64 * HEAD_DIM * 2;
}

/* scores = kept · walkedᵀ, until multiply_finish(). */
static __device__ __forceinline__ void start_scores(
	float (&scores)[GROUPS][WALK_N][4], unsigned kept, unsigned walked)
{
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
