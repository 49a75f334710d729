/* kernel: what is compiled once for each instruction set. */
#pragma once

#include <stdbool.h>

#include "op/quasar.h"

/* Kernels work on one head of one batch: `state` [S, S] is read and written, 64-byte aligned. Rows are
 * those of quasar_source(); `first` is a multiple of UPSTREAM_CHUNK under upstream semantics. */
struct cpu_kernel {
	const char *name;
	/* Outputs of the rows first … last − 1, and the state behind them. */
	void (*forward)(const struct quasar_problem *problem, int64_t batch, int head, int64_t first,
		int64_t last, float *state);
	/* The affine map of these rows, state' = P state + R, without outputs: multiplies `transition`
	 * [S, S] by P from the left, while `state` advances as with forward(). */
	void (*advance)(const struct quasar_problem *problem, int64_t batch, int head, int64_t first,
		int64_t last, float *state, float *transition);
	/* to = P from + R, all [S, S] */
	void (*apply)(int dim, const float *p, const float *r, const float *from, float *to);

	/* For the layer. Counts of numbers are multiples of 16. */

	/* Rounds to what bf16 can hold; `to` may be `from`. */
	void (*round)(const float *from, float *to, size_t count);
	/* The same, stored as bf16. */
	void (*narrow)(const float *from, uint16_t *to, size_t count);
	/* One token of the depthwise convolution and SiLU: rows[0 … 3], `stride` numbers apart, are the
	 * token's inputs and, before it, those of three tokens; weight [4, channels]. */
	void (*convolve)(const float *rows, size_t stride, const float *weight, int channels, uint16_t *out);
	/* One head of one token: gate [dim] becomes RMSNorm(o) · weight · sigmoid(gate), rounded to bf16. */
	void (*gate)(const uint16_t *o, const float *weight, float *gate, int dim);
};

/* The one in use. */
const struct cpu_kernel *cpu_kernel_in_use(void);

#ifdef KERNEL
#define JOIN_OF(a, b) a##b
#define JOIN(a, b) JOIN_OF(a, b)
#define POINTWISE(name) JOIN(pointwise_##name##_, KERNEL)
void POINTWISE(apply)(int dim, const float *p, const float *r, const float *from, float *to);
void POINTWISE(round)(const float *from, float *to, size_t count);
void POINTWISE(narrow)(const float *from, uint16_t *to, size_t count);
void POINTWISE(convolve)(const float *rows, size_t stride, const float *weight, int channels, uint16_t *out);
void POINTWISE(gate)(const uint16_t *o, const float *weight, float *gate, int dim);
#endif

extern const struct cpu_kernel cpu_kernel_baseline;
#ifdef __x86_64__
extern const struct cpu_kernel cpu_kernel_x86_64_v3, cpu_kernel_x86_64_v4, cpu_kernel_x86_64_amx;

/* Asks the system for the use of AMX's registers, which it grants process by process. */
bool cpu_amx_permitted(void);
#endif
