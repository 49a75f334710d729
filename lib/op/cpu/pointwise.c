/* Everything but the chunks: composing maps, and what the layer does to each number by itself. Compiled once
 * for each instruction set. */
#include "op/cpu/kernel.h"

#include <math.h>

#include "op/cpu/vector.h"

void POINTWISE(apply)(int dim, const float *p, const float *r, const float *from, float *to)
{
	memcpy(to, r, (size_t)(dim * dim) * sizeof(*to));
	for (int i = 0; i < dim; i++)
		for (int n = 0; n < dim; n++)
			for (int j = 0; j < dim; j++)
				to[i * dim + j] += p[i * dim + n] * from[n * dim + j];
}

void POINTWISE(narrow)(const float *from, uint16_t *to, size_t count)
{
	for (size_t i = 0; i < count; i += LANES)
		vector_store_bf16(to + i, vector_load(from + i));
}

void POINTWISE(widen)(const uint16_t *from, float *to, size_t count)
{
	for (size_t i = 0; i < count; i += LANES)
		vector_store(to + i, vector_of_bf16(from + i));
}

void POINTWISE(convolve)(const uint16_t *rows, size_t stride, const float *weight, int channels, uint16_t *out)
{
	for (int c = 0; c < channels; c += LANES) {
		vector sum = {0};

		for (int tap = 0; tap < 4; tap++)
			sum += vector_load(weight + tap * channels + c) *
			       vector_of_bf16(rows + (size_t)tap * stride + c);
		vector_store_bf16(out + c, sum * vector_sigmoid(sum));
	}
}

void POINTWISE(gate)(const uint16_t *o, const float *weight, uint16_t *gate, int dim)
{
	vector squares = {0};
	float sum = 0, scale;

	for (int i = 0; i < dim; i += LANES) {
		vector x = vector_of_bf16(o + i);

		squares += x * x;
	}
	for (int i = 0; i < LANES; i++)
		sum += squares[i];
	scale = 1 / sqrtf(sum / (float)dim + 1e-5f);
	for (int i = 0; i < dim; i += LANES)
		vector_store_bf16(gate + i, scale * vector_of_bf16(o + i) * vector_load(weight + i) *
						    vector_sigmoid(vector_of_bf16(gate + i)));
}
