/* layer_narrow: fp32 to bf16, eight numbers a thread. Bound by memory. */
#include "common/element.cuh"
#include "layer/arguments.h"
#include "layer/layout.h"

#define THREADS LAYER_THREADS

extern "C" __global__ void __launch_bounds__(THREADS)
	layer_narrow(const __grid_constant__ struct layer_narrow_arguments a)
{
	const long long i = (blockIdx.x * (long long)THREADS + threadIdx.x) * NARROW_NUMBERS;

	if (i >= a.count)
		return;
	const float4 low = *(const float4 *)(a.from + i), high = *(const float4 *)(a.from + i + 4);

	*(uint4 *)((ELEMENT *)a.to + i) = make_uint4(element_pair(low.x, low.y), element_pair(low.z, low.w),
		element_pair(high.x, high.y), element_pair(high.z, high.w));
}
