/* kernel: the part of the operation that is compiled once for each instruction set. */
#pragma once

#include "op/quasar/problem.h"

/* Kernels work on one head of one batch: `state` [S, S] is read and written, 64-byte aligned. Rows are
 * those of quasar_source(); `first` is a multiple of UPSTREAM_CHUNK under upstream semantics. */
struct quasar_kernel {
	/* Outputs of the rows first … last − 1, and the state behind them. */
	void (*forward)(const struct quasar_problem *problem, int64_t batch, int head, int64_t first,
		int64_t last, float *state);
	/* The affine map of these rows, state' = P state + R, without outputs: multiplies `transition`
	 * [S, S] by P from the left, while `state` advances as with forward(). */
	void (*advance)(const struct quasar_problem *problem, int64_t batch, int head, int64_t first,
		int64_t last, float *state, float *transition);
	/* to = P from + R, all [S, S] */
	void (*apply)(int dim, const float *p, const float *r, const float *from, float *to);
};

extern const struct quasar_kernel quasar_kernel_baseline;
#ifdef __x86_64__
extern const struct quasar_kernel quasar_kernel_x86_64_v3, quasar_kernel_x86_64_v4, quasar_kernel_x86_64_amx;
#endif
