/* feature: feature maps of linear attention, and their derivatives, on registers. A NaN stays one. */
#pragma once

#include "common/dtype.h"
#include "common/tile.cuh"
#include "linear/layout.h"

static __device__ __forceinline__ float feature_exp(float x)
{
#if INPUT == INPUT_F32
	return expf(x);
#else
	float power;

	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x * 1.44269504f));
	return power;
#endif
}

template <int FUNCTION> static __device__ __forceinline__ float feature(float x)
{
	if (FUNCTION == FEATURE_ELU1)
		return x > 0.0f ? x + 1.0f : feature_exp(x);
	if (FUNCTION == FEATURE_RELU)
		return x < 0.0f ? 0.0f : x;
	if (FUNCTION == FEATURE_SQUARED_RELU)
		return x < 0.0f ? 0.0f : x * x;
	if (FUNCTION == FEATURE_EXP)
		return feature_exp(x > FEATURE_EXP_LIMIT ? FEATURE_EXP_LIMIT : x);
	return x;
}

#if INPUT == INPUT_BF16
static __device__ __forceinline__ unsigned minimum_pair(unsigned a, unsigned b)
{
	unsigned pair;

	asm("min.NaN.bf16x2 %0, %1, %2;" : "=r"(pair) : "r"(a), "r"(b));
	return pair;
}

static __device__ __forceinline__ unsigned maximum_pair(unsigned a, unsigned b)
{
	unsigned pair;

	asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(pair) : "r"(a), "r"(b));
	return pair;
}

static __device__ __forceinline__ unsigned multiply_add_pair(unsigned a, unsigned b, unsigned c)
{
	unsigned pair;

	asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(pair) : "r"(a), "r"(b), "r"(c));
	return pair;
}

/* Of two bf16, rounded once, as feature() would be. */
template <int FUNCTION> static __device__ __forceinline__ unsigned feature_pair(unsigned x)
{
	const unsigned ones = 0x3f803f80u;

	if (FUNCTION == FEATURE_ELU1) /* x + 1 is never above eˣ */
		return maximum_pair(multiply_add_pair(x, ones, ones),
			minimum_pair(pack_bf16(feature_exp(bf16_low(x)), feature_exp(bf16_high(x))), ones));
	if (FUNCTION == FEATURE_RELU)
		return maximum_pair(x, 0);
	if (FUNCTION == FEATURE_SQUARED_RELU)
		return multiply_add_pair(maximum_pair(x, 0), maximum_pair(x, 0), 0x80008000u);
	if (FUNCTION == FEATURE_IDENTITY)
		return x;
	return pack_bf16(feature<FUNCTION>(bf16_low(x)), feature<FUNCTION>(bf16_high(x)));
}
#endif

/* Where there is none, at 0, that from the left, as PyTorch has it. */
template <int FUNCTION> static __device__ __forceinline__ float feature_derivative(float x)
{
	if (FUNCTION == FEATURE_ELU1) {
		float slope;

		asm("min.NaN.f32 %0, %1, %2;" : "=f"(slope) : "f"(feature_exp(x)), "f"(1.0f));
		return slope;
	}
	if (FUNCTION == FEATURE_RELU)
		return x <= 0.0f ? 0.0f : x != x ? x : 1.0f;
	if (FUNCTION == FEATURE_SQUARED_RELU)
		return x < 0.0f ? 0.0f : 2.0f * x;
	if (FUNCTION == FEATURE_EXP)
		return x > FEATURE_EXP_LIMIT ? 0.0f : feature_exp(x);
	return 1.0f;
}
