/* kernel: the part of linear attention that is compiled once for each instruction set. */
#pragma once

#include "op/linear/pass.h"

/* The element more that x and y of a gradient have is one of a group of sixteen; the others are zeros. */
static inline int pass_rows(const struct linear_pass *pass)
{
	return pass->key_dim + (pass_is_augmented(pass) ? 16 : 0);
}

/* Kernels work on tokens first … last − 1 of one head of one batch: `state` [pass_rows(), V], 64-byte aligned, whose
 * row key_dim is an augmented pass's sum, and `sum` [K], forward's. */
struct linear_kernel {
	/* Adds the tokens' yᵀ w and y. */
	void (*accumulate)(const struct linear_pass *pass, int64_t batch, int head, int64_t first,
		int64_t last, float *state, double *sum);
	/* Writes the outputs. Causal: state and sum advance; bidirectional: they are those of all tokens. */
	void (*forward)(const struct linear_pass *pass, int64_t batch, int head, int64_t first, int64_t last,
		float *state, double *sum);
};

extern const struct linear_kernel linear_kernel_baseline;
#ifdef __x86_64__
extern const struct linear_kernel linear_kernel_x86_64_v3, linear_kernel_x86_64_v4;
#endif
