/* layer_gather: the tokens of a segment, with the history that the convolutions need, in bf16 and one behind
 * the other, as the projections take them. Eight numbers a thread. Bound by memory. Compile-time parameters:
 * INPUT (1: bf16), FROM_F32 (1: x is fp32, 0: x is bf16). */
#include "common/element.cuh"
#include "layer/layout.h"
#include "layer/segment.cuh"

#define THREADS LAYER_THREADS

static __device__ __forceinline__ void gather(const struct layer_gather_arguments &a)
{
	const unsigned i = (blockIdx.x * THREADS + threadIdx.x) * GATHER_NUMBERS, row = i / a.hidden;
	const long long token = first_token(a.segment, blockIdx.y) - LAYER_HISTORY + row;
	const long long from = (first_row(a.segment, blockIdx.y) + token) * a.hidden + i % a.hidden;
	const long long rows = LAYER_HISTORY + a.segment.length;
	uint4 eight = make_uint4(0, 0, 0, 0);

	if (row >= rows)
		return;
	if (token >= 0 && token < a.segment.tokens) {
#if FROM_F32
		const float4 low = __ldcs((const float4 *)((const float *)a.from + from));
		const float4 high = __ldcs((const float4 *)((const float *)a.from + from + 4));

		eight = make_uint4(element_pair(low.x, low.y), element_pair(low.z, low.w),
			element_pair(high.x, high.y), element_pair(high.z, high.w));
#else
		eight = *(const uint4 *)((const ELEMENT *)a.from + from);
#endif
	}
	*(uint4 *)((ELEMENT *)a.to + blockIdx.y * rows * a.hidden + i) = eight;
}

#ifndef FLAT_ENTRY
extern "C" __global__ void __launch_bounds__(THREADS)
	layer_gather(const __grid_constant__ struct layer_gather_arguments a)
{
	wait_for_launch_before();
	gather(a);
}
#endif
