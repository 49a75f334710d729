/* kernel: the part of a model's arithmetic that is compiled once for each instruction set. Sums are in fp32. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tensor/dtype.h"

/* The most inputs that multiply() takes at a time. */
#define KERNEL_INPUTS 4

/* Rows of weights are best multiplied in multiples of this. */
#define KERNEL_ROWS 4

/* Keys of a head stand in blocks of so many tokens: [dim][KERNEL_BLOCK], so that a block's products with a query
 * need no sum across a register. Values are rows, [dim] a token. */
#define KERNEL_BLOCK 16

struct model_kernel {
	/* y[n · y_stride + row] = the product of row `row` of the weights [rows, columns] and x[n], n < inputs. */
	void (*multiply)(const void *weights, enum dtype dtype, int rows, int columns, const float *x,
		int inputs, float *y, size_t y_stride);
	void (*widen)(const void *from, enum dtype dtype, size_t count, float *to);
	/* Whether all numbers are finite. */
	bool (*all_finite)(const void *from, enum dtype dtype, size_t count);
	/* out = x / √(mean of x² + epsilon) · weight. May be in place. */
	void (*normalise)(const float *x, const float *weight, float epsilon, int count, float *out);
	/* gate = silu(gate) · up */
	void (*activate)(float *gate, const float *up, int count);
	/* One head, one query: softmax(query · keys · scale) · values, over the first `tokens` tokens. */
	void (*attend)(const float *query, const float *keys, const float *values, int tokens, int dim,
		float scale, float *out);
	/* The first of the largest numbers; -1 when some are not finite. */
	int (*largest)(const float *x, int count);
};

/* Of the instruction set in use. */
const struct model_kernel *model_kernel(void);

extern const struct model_kernel model_kernel_baseline;
#ifdef __x86_64__
extern const struct model_kernel model_kernel_x86_64_v3, model_kernel_x86_64_v4;
#endif
