/* gate: α for a register's worth of rows. */
#pragma once

#include "cpu/vector.h"
#include "op/quasar/problem.h"

/* α = (1 − exp(−β λ)) / (λ + ε) */
INLINE vector vector_gate(vector lambda, float beta)
{
	return -vector_expm1_negative(-beta * lambda) / (lambda + (float)QUASAR_EPSILON);
}
