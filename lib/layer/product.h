/* product: a linear map of bf16 rows to bf16 rows, as autocast computes it: y = round(x Wᵀ + b), the factors
 * rounded to bf16, sums in fp32. On AMX by our own kernel, else by OpenBLAS. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct layer_kernel;

struct product {
	int columns, inner;
	float *weight;   /* [columns, inner], rounded to bf16 */
	float *bias;     /* [columns], rounded; NULL: none */
	uint32_t *pairs; /* the weights as AMX wants them; NULL when the sizes are not multiples of 32 */
};

/* Rows that are worth multiplying at a time: x and y stay in a second-level cache. */
#define PRODUCT_ROWS 256

/* `bias` may be NULL. Copies what it needs. */
int product_make(struct product *product, const float *weight, const float *bias, int columns, int inner,
	struct error *err);
void product_free(struct product *product);

/* Makes sure that product_run() can run: opens OpenBLAS if this product needs it. STATUS_ENVIRONMENT. */
int product_ready(const struct product *product, struct error *err);

/* x [rows, inner], y [rows, columns], bf16, at most PRODUCT_ROWS rows, on the calling thread, with the kernel for
 * the instruction set in use. `x` has room for a multiple of 32 rows, `scratch` for PRODUCT_ROWS ·
 * (inner + columns) numbers. */
void product_run(const struct product *product, const struct layer_kernel *kernel, const uint16_t *x,
	int rows, uint16_t *y, float *scratch);

#ifdef __x86_64__
/* The same on AMX, the weights as a struct product has them in pairs. */
void product_amx(const uint16_t *x, int rows, int inner, const uint32_t *pairs, int columns,
	const float *bias, uint16_t *y);
#endif
