/* element: the element types of tensors, chosen by INPUT (common/dtype.h). */
#pragma once

#include "common/arguments.h"
#include "common/dtype.h"
#include "common/launch.cuh"

#ifndef VECTOR
#define VECTOR 0
#endif

#if INPUT == INPUT_F32
#define ELEMENT float
#else
#define ELEMENT unsigned short
#endif

static __device__ __forceinline__ float element_float(ELEMENT element)
{
#if INPUT == INPUT_F32
	return element;
#elif INPUT == INPUT_BF16
	return __uint_as_float((unsigned)element << 16);
#else
	float value;

	asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(element));
	return value;
#endif
}

static __device__ __forceinline__ ELEMENT float_element(float value)
{
#if INPUT == INPUT_F32
	return value;
#elif INPUT == INPUT_BF16
	ELEMENT element;

	asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(element) : "f"(value));
	return element;
#else
	ELEMENT element;

	asm("cvt.rn.f16.f32 %0, %1;" : "=h"(element) : "f"(value));
	return element;
#endif
}

#if INPUT != INPUT_F32
static __device__ __forceinline__ unsigned element_pair(float low, float high)
{
	unsigned pair;

#if INPUT == INPUT_BF16
	asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
#else
	asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
#endif
	return pair;
}
#endif

#if INPUT != INPUT_F32
/* Eight elements of a row to `target` on, 16 bytes at a time if VECTOR. */
static __device__ __forceinline__ void store_eight(ELEMENT *target, uint4 line, long long stride)
{
#if VECTOR
	/* the compiler may make four stores of one of a uint4 */
	asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(target), "r"(line.x), "r"(line.y),
		     "r"(line.z), "r"(line.w)
		     : "memory");
#else
	const unsigned pairs[4] = {line.x, line.y, line.z, line.w};

#pragma unroll
	for (int i = 0; i < 8; i++)
		target[i * stride] = (ELEMENT)(pairs[i / 2] >> i % 2 * 16);
#endif
}
#endif

static __device__ __forceinline__ long long row_offset(
	const struct device_tensor &tensor, int batch, long long token, int head)
{
	return batch * tensor.stride[0] + token * tensor.stride[1] + head * tensor.stride[2];
}

static __device__ __forceinline__ float load_element(
	const struct device_tensor &tensor, int batch, long long token, int head, int dim)
{
	const ELEMENT *row = (const ELEMENT *)tensor.data + row_offset(tensor, batch, token, head);

	return element_float(row[dim * tensor.stride[3]]);
}

/* Eight elements of a row from `source` on, 16 bytes at a time if VECTOR. */
static __device__ __forceinline__ void load_eight(float (&x)[8], const ELEMENT *source, long long stride)
{
#if VECTOR && INPUT == INPUT_F32
	const float4 low = ((const float4 *)source)[0], high = ((const float4 *)source)[1];

	x[0] = low.x, x[1] = low.y, x[2] = low.z, x[3] = low.w;
	x[4] = high.x, x[5] = high.y, x[6] = high.z, x[7] = high.w;
#elif VECTOR
	const uint4 line = *(const uint4 *)source;
	const unsigned pairs[4] = {line.x, line.y, line.z, line.w};

#pragma unroll
	for (int i = 0; i < 8; i++)
		x[i] = element_float((ELEMENT)(pairs[i / 2] >> i % 2 * 16));
#else
#pragma unroll
	for (int i = 0; i < 8; i++)
		x[i] = element_float(source[i * stride]);
#endif
}
