/* launch: what a launch begins with. */
#pragma once

/* Until the launch before has ended, and what it wrote can be read. The host begins launches while that one still ends
 * (gpu_launch() in lib/gpu/gpu.c), so every kernel calls this before it reads or writes memory. */
static __device__ __forceinline__ void wait_for_launch_before(void)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
	asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
