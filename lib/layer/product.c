#include "layer/product.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/blas.h"
#include "cpu/cpu.h"
#include "layer/kernel.h"
#include "tensor/dtype.h"

/* pairs [columns / 32][inner / 2][32]: the bf16 of two neighbours in a row of W */
static void pack(struct product *product)
{
	for (int column = 0; column < product->columns; column++)
		for (int p = 0; p < product->inner / 2; p++) {
			const float *two = product->weight + (size_t)column * (size_t)product->inner + 2 * p;
			size_t at = (size_t)(column / 32 * (product->inner / 2) + p) * 32 +
				(size_t)(column % 32);

			product->pairs[at] = bits_of_float(two[0]) >> 16 |
				(bits_of_float(two[1]) & 0xffff0000);
		}
}

int product_make(struct product *product, const float *weight, const float *bias, int columns, int inner,
	struct error *err)
{
	size_t count = (size_t)columns * (size_t)inner;
	bool fits_amx = columns % 32 == 0 && inner % 32 == 0;

	*product = (struct product){
		.columns = columns,
		.inner = inner,
		.weight = malloc(count * sizeof(float)),
		.bias = bias ? malloc((size_t)columns * sizeof(float)) : NULL,
		.pairs = fits_amx ? aligned_alloc(64, count / 2 * sizeof(uint32_t)) : NULL,
	};
	if (!product->weight || (bias && !product->bias) || (fits_amx && !product->pairs)) {
		product_free(product);
		return error_set(err, STATUS_ENVIRONMENT, "not enough memory for the weights of a layer");
	}
	for (size_t i = 0; i < count; i++)
		product->weight[i] = bf16_to_float(bf16_of_float(weight[i]));
	for (int i = 0; bias && i < columns; i++)
		product->bias[i] = bf16_to_float(bf16_of_float(bias[i]));
	if (fits_amx)
		pack(product);
	return 0;
}

void product_free(struct product *product)
{
	free(product->weight);
	free(product->bias);
	free(product->pairs);
	*product = (struct product){0};
}

static bool is_ours(const struct product *product)
{
	return cpu_variant() == CPU_X86_64_AMX && product->pairs;
}

int product_ready(const struct product *product, struct error *err)
{
	return is_ours(product) ? 0 : blas_open(err);
}

void product_run(const struct product *product, const struct layer_kernel *kernel, const uint16_t *x,
	int rows, uint16_t *y, float *scratch)
{
	size_t columns = (size_t)product->columns, inner = (size_t)product->inner;
	float *wide = scratch, *sums = scratch + PRODUCT_ROWS * inner;

#ifdef __x86_64__
	if (is_ours(product)) {
		product_amx(x, rows, product->inner, product->pairs, product->columns, product->bias, y);
		return;
	}
#endif
	kernel->widen(x, wide, (size_t)rows * inner);
	blas_multiply(wide, product->weight, sums, rows, product->columns, product->inner);
	for (size_t row = 0; product->bias && row < (size_t)rows; row++)
		for (size_t i = 0; i < columns; i++)
			sums[row * columns + i] += product->bias[i];
	kernel->narrow(sums, y, (size_t)rows * columns);
}
