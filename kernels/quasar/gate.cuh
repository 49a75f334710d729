/* gate: α = (1 − exp(−β λ)) / (λ + ε) */
#pragma once

#include "quasar/layout.h"

static __device__ __forceinline__ float gate(float beta, float lambda)
{
	return -expm1f(-beta * lambda) / (lambda + (float)QUASAR_EPSILON);
}
