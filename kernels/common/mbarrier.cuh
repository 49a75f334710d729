/* mbarrier: barriers in shared memory, 8 bytes each at an address of theirs. A phase ends when all arrivals that it was
 * made for are there, and all bytes that it was told of; then the next one begins. */
#pragma once

static __device__ __forceinline__ void mbarrier_init(unsigned barrier, int arrivals)
{
	asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

/* What a thread has made can be used by the copy engine; a block's other threads also have to meet it. */
static __device__ __forceinline__ void mbarrier_publish(void)
{
	asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

static __device__ __forceinline__ void mbarrier_arrive(unsigned barrier)
{
	asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/* One lane of each warp speaks for all of it. */
static __device__ __forceinline__ void mbarrier_arrive_warp(unsigned barrier)
{
	__syncwarp();
	if (threadIdx.x % 32 == 0)
		mbarrier_arrive(barrier);
}

/* Arrives, and makes the barrier wait for so many bytes, too. */
static __device__ __forceinline__ void mbarrier_expect(unsigned barrier, int bytes)
{
	asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
		     : "memory");
}

/* Waits for the end of the phase of this parity. A new barrier is in phase 0, and the one before has ended. */
static __device__ __forceinline__ void mbarrier_wait(unsigned barrier, int parity)
{
	int done;

	do
		asm volatile("{\n"
			     ".reg .pred p;\n"
			     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
			     "selp.b32 %0, 1, 0, p;\n"
			     "}"
			     : "=r"(done)
			     : "r"(barrier), "r"(parity)
			     : "memory");
	while (!done);
}
