/* barrier: all blocks of a launch wait for each other. They run at the same time: the launch is a cooperative one. */
#pragma once

struct barrier {
	unsigned *counters; /* [2]: arrivals; blocks that have left */
	unsigned expected;  /* arrivals when all are there */
};

#ifndef BARRIER
#define BARRIER 0
#endif
/* BARRIER 0: all count in one place. 1: each block has a flag, and a thread of every block looks at each of them: nothing is
 * counted one by one. 2: the same, looked at without taking in what others wrote until all are there. */
#define FLAGS_AT 64 /* of the counters */

/* What this block has written before, others see when they have waited. */
static __device__ __forceinline__ void arrive(struct barrier &barrier)
{
#if BARRIER
	barrier.expected++;
	__syncthreads();
	if (threadIdx.x == 0)
		asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(barrier.counters + FLAGS_AT + blockIdx.x),
			"r"(barrier.expected)
			: "memory");
#else
	barrier.expected += BLOCKS;
	__syncthreads();
	if (threadIdx.x == 0)
		asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(barrier.counters) : "memory");
#endif
}

static __device__ __forceinline__ void wait(const struct barrier &barrier)
{
	unsigned arrivals;

#if BARRIER
	if (threadIdx.x < BLOCKS)
		do
#if BARRIER == 2
			asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];"
#else
			asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
#endif
				     : "=r"(arrivals)
				     : "l"(barrier.counters + FLAGS_AT + threadIdx.x)
				     : "memory");
		while ((int)(arrivals - barrier.expected) < 0);
#if BARRIER == 2
	asm volatile("fence.acq_rel.gpu;" ::: "memory");
#endif
#else
	if (threadIdx.x == 0)
		do
			asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
				     : "=r"(arrivals)
				     : "l"(barrier.counters)
				     : "memory");
		while (arrivals < barrier.expected);
#endif
	__syncthreads();
}

static __device__ __forceinline__ void meet(struct barrier &barrier)
{
	arrive(barrier);
	wait(barrier);
}

/* The last block to leave makes the counters ready for the next launch. */
static __device__ __forceinline__ void leave(const struct barrier &barrier)
{
#if BARRIER
	/* all have left when the launch ends: where the flags stand then, the next one begins */
#else
	if (threadIdx.x == 0 && atomicInc(barrier.counters + 1, BLOCKS - 1) == BLOCKS - 1)
		barrier.counters[0] = 0;
#endif
}
