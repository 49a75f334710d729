/* roles: with NUM_STAGES = 3 a block has makers, which load chunks and make their matrices, beside carriers, which take the state
 * through them. Makers are a chunk ahead: a chunk's rows lie in one of three stages, what is made of them in one of two places.
 * Without makers all are carriers, and meet at the block's barrier. */
#pragma once

#include "quasar/inverse.cuh"

/* Barriers by number, the last two for each of the two places. */
enum { CARRIERS_MEET = 1, MAKERS_MEET, IS_MADE, IS_USED = IS_MADE + 2 };

static __device__ __forceinline__ void meet(int barrier, int threads)
{
	asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

/* The same for those who need not wait. */
static __device__ __forceinline__ void tell(int barrier)
{
	asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(THREADS) : "memory");
}

static __device__ __forceinline__ void carriers_meet(void)
{
	if (MAKERS)
		meet(CARRIERS_MEET, CARRIERS);
	else
		__syncthreads();
}

/* Whether the condition holds for any carrier. */
static __device__ __forceinline__ bool any_carrier(bool condition)
{
	int any;

	if (!MAKERS)
		return __syncthreads_or(condition);
	asm volatile("{ .reg .pred p, q; setp.ne.s32 p, %1, 0; bar.red.or.pred q, %2, %3, p; "
		     "selp.s32 %0, 1, 0, q; }"
		     : "=r"(any)
		     : "r"((int)condition), "r"((int)CARRIERS_MEET), "r"(CARRIERS)
		     : "memory");
	return any;
}

/* Registers that the compiler leaves each thread, in steps of 8, are shared out anew: a maker needs fewer. */
#define SHARED_OUT (WARPGROUP_PRODUCTS && MAKERS && 65536 / (THREADS * MIN_BLOCKS) < 232)
#define REGISTERS (65536 / (THREADS * MIN_BLOCKS) / 8 * 8)
#define MAKER_REGISTERS (SEPARATE_INVERSE ? 64 : 88)
#define CARRIER_REGISTERS ((REGISTERS * THREADS - MAKER_REGISTERS * MAKERS) / CARRIERS / 8 * 8)

template <bool MAKER> static __device__ __forceinline__ void take_registers(void)
{
#if WARPGROUP_PRODUCTS && NUM_STAGES == 3
	if (SHARED_OUT && MAKER)
		asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(MAKER_REGISTERS));
	else if (SHARED_OUT)
		asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(CARRIER_REGISTERS));
#endif
}

static __device__ __forceinline__ unsigned place_of_inverse(unsigned made, int index)
{
	return made + index % 2 * SQUARE_BYTES;
}

static __device__ __forceinline__ unsigned place_of_scores(unsigned made, int index)
{
	return made + (SEPARATE_INVERSE ? 0 : 2 * SQUARE_BYTES) + index % 2 * SQUARE_BYTES;
}

/* The chunks first, first + STEP, … of a group, `count` of them. Where carriers need no more from chunk i on, they set
 * stopped[i % 2] before they tell that it is used: makers that are at chunk i + 1 do not look there. */
template <int TENSORS, int STEP>
static __device__ __forceinline__ void make_matrices(const struct quasar_chunk_arguments &a,
	const struct rows &rows, const struct share &share, int first, int count, unsigned made,
	unsigned stages, const volatile int *stopped)
{
	const bool with_scores = TENSORS == 3 && !UPSTREAM;
	struct chunk_block block = start_block(a, made, share.sequence % a.heads);
	float gate[2];

	block.warp = __shfl_sync(
		~0u, block.warp - WARPS, 0); /* the compiler sees that all lanes have the same */
	block.lower = made + MADE_BYTES(with_scores) - SQUARE_BYTES;
	load_stage<TENSORS>(a, rows, share, first, stages);
	load_gates(gate, a, rows, first);
	for (int i = 0; i < MADE_BYTES(with_scores) / SQUARE_BYTES; i++)
		clear_square(made + i * SQUARE_BYTES);
	for (int i = 0; i < count; i++) {
		const unsigned keys = stages + i % 3 * STAGE_BYTES(TENSORS), queries = keys + 2 * ROWS_BYTES;
		const unsigned scores = place_of_scores(made, i);

		/* what depends on the lane would be kept in registers otherwise, and those are short */
		asm volatile("" : "+r"(block.lane));
		if (i) {
			meet(IS_USED + i % 2, THREADS);
			if (STEP < 0 && stopped[i % 2])
				break;
		}
		copy_async_wait();
		publish_tiles();
		meet(MAKERS_MEET, MAKERS);
		if (i + 1 < count)
			load_stage<TENSORS>(a, rows, share, first + (i + 1) * STEP,
				stages + (i + 1) % 3 * STAGE_BYTES(TENSORS), block.warp * 32 + block.lane);
		if (GATED) {
			block.decay = decay_of(gate);
			load_gates(gate, a, rows, max(first + (i + 1) * STEP, 0));
		}
		block.transposed_inverse = place_of_inverse(made, i);
#if WARPGROUP_PRODUCTS
		float g[CHUNK_N][4];

		if (!SEPARATE_INVERSE) {
			multiply_tiles<PLANES, HEAD_DIM>(g, keys, keys, ROWS_PLANE, ROWS_PLANE);
			if (GATED)
				decay_products(g, block.decay, block.warp, 0);
			make_lower_row(block, 0, block.warp, g);
		}
		if (with_scores) {
			multiply_tiles<PLANES, HEAD_DIM>(g, queries, keys, ROWS_PLANE, ROWS_PLANE);
			if (GATED)
				decay_products(g, block.decay, block.warp, 0);
			make_score_row(scores, block.warp, 0, block.lane, g);
		}
#else
		if (!SEPARATE_INVERSE)
			make_rows<with_scores>(block, keys, queries, scores);
		else if (with_scores)
			make_score_rows(block, keys, queries, scores, block.warp, MAKER_WARPS);
#endif
		if (!SEPARATE_INVERSE) {
			meet(MAKERS_MEET, MAKERS);
			make_inverse(block);
		}
		publish_tiles();
		tell(IS_MADE + i % 2);
	}
	copy_async_wait();
}
