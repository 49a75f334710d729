/* kernel: the part of the layer that is compiled once for each instruction set. Counts of numbers are
 * multiples of 16. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct layer_kernel {
	/* bf16 from fp32 and back. */
	void (*narrow)(const float *from, uint16_t *to, size_t count);
	void (*widen)(const uint16_t *from, float *to, size_t count);
	/* One token of the depthwise convolution and SiLU: rows[0 … 3], `stride` numbers apart, are the
	 * inputs of three tokens before it and its own; weight [4, channels]. */
	void (*convolve)(
		const uint16_t *rows, size_t stride, const float *weight, int channels, uint16_t *out);
	/* One head of one token: gate [dim] becomes RMSNorm(o) · weight · sigmoid(gate). */
	void (*gate)(const uint16_t *o, const float *weight, uint16_t *gate, int dim);
};

extern const struct layer_kernel layer_kernel_baseline;
#ifdef __x86_64__
extern const struct layer_kernel layer_kernel_x86_64_v3, layer_kernel_x86_64_v4;
#endif

/* For the instruction set in use. */
const struct layer_kernel *layer_kernel_in_use(void);
