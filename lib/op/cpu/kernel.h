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

	/* bf16 from fp32 and back. */
	void (*narrow)(const float *from, uint16_t *to, size_t count);
	void (*widen)(const uint16_t *from, float *to, size_t count);
	/* One token of the depthwise convolution and SiLU: rows[0 … 3], `stride` numbers apart, are the
	 * inputs of three tokens before it and its own; weight [4, channels]. */
	void (*convolve)(const uint16_t *rows, size_t stride, const float *weight, int channels, uint16_t *out);
	/* One head of one token: gate [dim] becomes RMSNorm(o) · weight · sigmoid(gate). */
	void (*gate)(const uint16_t *o, const float *weight, uint16_t *gate, int dim);
	/* y = round(x Wᵀ + bias), the weights as struct product has them in pairs; NULL where OpenBLAS does it.
	 * `x` is readable up to a multiple of 32 rows. */
	void (*product)(const uint16_t *x, int rows, int inner, const uint32_t *pairs, int columns,
		const float *bias, uint16_t *y);
};

/* The one in use. */
const struct cpu_kernel *cpu_kernel_in_use(void);

#ifdef KERNEL
#define JOIN_OF(a, b) a##b
#define JOIN(a, b) JOIN_OF(a, b)
#define POINTWISE(name) JOIN(pointwise_##name##_, KERNEL)
void POINTWISE(apply)(int dim, const float *p, const float *r, const float *from, float *to);
void POINTWISE(narrow)(const float *from, uint16_t *to, size_t count);
void POINTWISE(widen)(const uint16_t *from, float *to, size_t count);
void POINTWISE(convolve)(const uint16_t *rows, size_t stride, const float *weight, int channels, uint16_t *out);
void POINTWISE(gate)(const uint16_t *o, const float *weight, uint16_t *gate, int dim);
#endif

extern const struct cpu_kernel cpu_kernel_baseline;
#ifdef __x86_64__
extern const struct cpu_kernel cpu_kernel_x86_64_v3, cpu_kernel_x86_64_v4, cpu_kernel_x86_64_amx;

/* Asks the system for the use of AMX's registers, which it grants process by process. */
bool cpu_amx_permitted(void);
#endif
