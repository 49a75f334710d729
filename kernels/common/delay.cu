/* delay: keeps the GPU busy for a while, without touching memory, so that the host can queue work behind
 * it. The clock of the whole GPU ticks about once a microsecond. */
#include "common/arguments.h"
#include "common/launch.cuh"

extern "C" __global__ void delay(const __grid_constant__ struct delay_arguments a)
{
	wait_for_launch_before();

	unsigned long long start, now;

	asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
	do
		asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
	while (now - start < a.nanoseconds);
}
