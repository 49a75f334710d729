/* block: what a block of quasar_chunk is made of: its warps, and what lies where in its shared memory.
 *
 * Warps carry the state; with NUM_STAGES = 3 others make a chunk's matrices (roles.cuh), else the same do. Shared memory is laid
 * out as quasar/layout.h says. T's place holds Tᵀ. L's place holds, on the diagonal, the transposed inverses of L's diagonal
 * blocks, in PLANES planes; below it, L rounded to bf16, and above it, mirrored, what the rounding left over: nearly parallel
 * keys make the inverse cancel, and one bf16 is then not enough. */
#pragma once

#include "common/tile.cuh"
#include "quasar/arguments.h"
#include "quasar/decay.cuh"
#include "quasar/layout.h"

#define PLANES CHUNK_PLANES(INPUT)
#define WARPS CHUNK_WARPS(HEAD_DIM)
#define CARRIERS (WARPS * 32) /* threads */
#define MAKER_WARPS CHUNK_MAKER_WARPS(NUM_STAGES)
#define MAKERS (MAKER_WARPS * 32)
#define THREADS CHUNK_THREADS(HEAD_DIM, NUM_STAGES)
#define BLOCKS (CHUNK / 16)
/* Those that load chunks and make their matrices. */
#define MAKING_WARPS (MAKERS ? MAKER_WARPS : WARPS)
#define MAKING_THREADS (MAKING_WARPS * 32)
#define BLOCKS_PER_WARP ((BLOCKS + MAKING_WARPS - 1) / MAKING_WARPS)

/* n-tiles of 8 and k steps of 16 in a row of the state and of a chunk's matrix */
#define STATE_N (HEAD_DIM / 8)
#define STATE_K (HEAD_DIM / 16)
#define CHUNK_N (CHUNK / 8)
#define CHUNK_K (CHUNK / 16)

#define ROWS_PLANE (CHUNK * HEAD_DIM * 2)
#define ROWS_BYTES CHUNK_ROWS_BYTES(HEAD_DIM, CHUNK, PLANES)
#define SQUARE_PLANE (CHUNK * CHUNK * 2)
#define SQUARE_BYTES CHUNK_SQUARE_BYTES(CHUNK, PLANES)
#define INVERSE_BYTES CHUNK_INVERSE_BYTES(CHUNK, PLANES)
#define SEPARATE_INVERSE (NUM_LAUNCHES == 3)
/* T is there already when the warps that hold the state come to a chunk. */
#define READY_INVERSE (SEPARATE_INVERSE || MAKERS)
#define MADE_BYTES(scores) CHUNK_MADE_BYTES(CHUNK, PLANES, NUM_STAGES, NUM_LAUNCHES, scores)
#define STAGE_BYTES(tensors) CHUNK_STAGE_BYTES(HEAD_DIM, CHUNK, PLANES, NUM_LAUNCHES, tensors)

/* A group's transition: P − I as a tile, then Rᵀ as the fp32 registers of its owners. The identity is left
 * out so that what rounding to bf16 loses is relative to how much the group changes the state, not to the
 * state, which a slow memory carries over many groups. */
#define STATE_PLANE (HEAD_DIM * HEAD_DIM * 2)
#define STATE_BYTES CHUNK_STATE_BYTES(HEAD_DIM, PLANES)
#define TRANSITION_BYTES CHUNK_TRANSITION_BYTES(HEAD_DIM, PLANES)

/* What a warp knows of the chunk that it is at. */
struct chunk_block {
	int warp, lane;
	unsigned transposed_inverse, lower; /* addresses of T, L */
	float beta;
	float alpha[BLOCKS_PER_WARP][2]; /* of this lane's two rows in each of the warp's block rows */
	struct decay decay;              /* with a gate, of the chunk that the block is at */
};

static __device__ __forceinline__ struct chunk_block start_block(
	const struct quasar_chunk_arguments &a, unsigned squares, int head)
{
	struct chunk_block block;

	block.warp = threadIdx.x / 32;
	block.lane = threadIdx.x % 32;
	block.transposed_inverse = squares;
	block.lower = squares + SQUARE_BYTES;
	block.beta = a.beta[head];
	return block;
}

static __device__ __forceinline__ unsigned shared_base(void)
{
	extern __shared__ __align__(1024) unsigned char memory[];

	return (unsigned)__cvta_generic_to_shared(memory);
}

/* Blocks of T and of tril(Q Kᵀ) that nobody writes are zero, and wgmma reads them. */
static __device__ __forceinline__ void clear_square(unsigned tile)
{
#if WARPGROUP_PRODUCTS
	for (int i = threadIdx.x % MAKING_THREADS; i < SQUARE_BYTES / 16; i += MAKING_THREADS)
		store_shared(tile + i * 16, make_uint4(0, 0, 0, 0));
#endif
}
