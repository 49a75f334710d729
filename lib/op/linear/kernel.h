/* kernel: the part of linear attention that is compiled once for each instruction set. */
#pragma once

#include "op/linear/problem.h"

/* Kernels work on tokens first … last − 1 of one head of one batch: `state` [K, V], 64-byte aligned, and
 * `sum` [K]. */
struct linear_kernel {
	/* Adds the tokens' φ(k)ᵀ v and φ(k). */
	void (*accumulate)(const struct linear_problem *problem, int64_t batch, int head, int64_t first,
		int64_t last, float *state, double *sum);
	/* Writes the outputs. Causal: state and sum advance; bidirectional: they are those of all tokens. */
	void (*forward)(const struct linear_problem *problem, int64_t batch, int head, int64_t first,
		int64_t last, float *state, double *sum);
};

extern const struct linear_kernel linear_kernel_baseline;
#ifdef __x86_64__
extern const struct linear_kernel linear_kernel_x86_64_v3, linear_kernel_x86_64_v4;
#endif
