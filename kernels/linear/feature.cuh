/* feature: feature maps of linear attention, and their derivatives, on registers. A NaN stays one. */
#pragma once

#include "common/dtype.h"
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

/* Where there is none, at 0, that from the left, as PyTorch has it. */
template <int FUNCTION> static __device__ __forceinline__ float feature_derivative(float x)
{
	if (FUNCTION == FEATURE_ELU1)
		return x > 0.0f ? 1.0f : feature_exp(x);
	if (FUNCTION == FEATURE_RELU)
		return x <= 0.0f ? 0.0f : x != x ? x : 1.0f;
	if (FUNCTION == FEATURE_SQUARED_RELU)
		return x < 0.0f ? 0.0f : 2.0f * x;
	if (FUNCTION == FEATURE_EXP)
		return x > FEATURE_EXP_LIMIT ? 0.0f : feature_exp(x);
	return 1.0f;
}
