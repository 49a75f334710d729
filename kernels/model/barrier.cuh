/* barrier: all blocks of a launch wait for each other. They run at the same time: the launch is a cooperative one. */
#pragma once

#include "model/plan.cuh"

struct barrier {
	unsigned *counters; /* [2]: arrivals; blocks that have left */
	unsigned expected;  /* arrivals when all are there */
};

/* What this block has written before, others see when they have waited. */
static __device__ __forceinline__ void arrive(struct barrier &barrier)
{
	barrier.expected += BLOCKS;
	meet_block();
	if (threadIdx.x == 0)
		asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(barrier.counters) : "memory");
}

static __device__ __forceinline__ void wait(const struct barrier &barrier)
{
	unsigned arrivals;

	if (threadIdx.x == 0)
		do
			asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
				     : "=r"(arrivals)
				     : "l"(barrier.counters)
				     : "memory");
		while (arrivals < barrier.expected);
	meet_block();
}

static __device__ __forceinline__ void meet(struct barrier &barrier)
{
	arrive(barrier);
	wait(barrier);
}

/* The last block to leave makes the counters ready for the next launch. */
static __device__ __forceinline__ void leave(const struct barrier &barrier)
{
	if (threadIdx.x == 0 && atomicInc(barrier.counters + 1, BLOCKS - 1) == BLOCKS - 1)
		barrier.counters[0] = 0;
}
