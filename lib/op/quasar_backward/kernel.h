/* kernel: the part of the gradient that is compiled once for each instruction set. */
#pragma once

#include "op/quasar_backward/problem.h"

/* Everything of one head of one batch; `d_beta`: its part of that. False without memory. */
typedef bool quasar_gradient_kernel(
	const struct quasar_gradient *gradient, int64_t batch, int head, double *d_beta);

extern quasar_gradient_kernel quasar_gradient_kernel_baseline;
#ifdef __x86_64__
extern quasar_gradient_kernel quasar_gradient_kernel_x86_64_v3, quasar_gradient_kernel_x86_64_v4;
#endif
