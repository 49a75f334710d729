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

/* fp32 with the lower half of its bits rounded away: the value of the nearest bf16. */
INLINE vector round_bf16(vector x)
{
	vector_int bits = (vector_int)x;
	vector_int rounded = (bits + 0x7fff + ((bits >> 16) & 1)) & ~0xffff;

	return vector_select(x == x, (vector)rounded, x);
}

void POINTWISE(round)(const float *from, float *to, size_t count)
{
	for (size_t i = 0; i < count; i += LANES)
		vector_store(to + i, round_bf16(vector_load(from + i)));
}

void POINTWISE(narrow)(const float *from, uint16_t *to, size_t count)
{
	for (size_t i = 0; i < count; i++)
		to[i] = bf16_of_float(from[i]);
}

void POINTWISE(convolve)(const float *rows, size_t stride, const float *weight, int channels, uint16_t *out)
{
	float result[LANES] ALIGNED;

	for (int c = 0; c < channels; c += LANES) {
		vector sum = {0};

		for (int tap = 0; tap < 4; tap++)
			sum += vector_load(weight + tap * channels + c) *
			       vector_load(rows + (size_t)tap * stride + c);
		vector_store(result, sum * vector_sigmoid(sum));
		for (int i = 0; i < LANES; i++)
			out[c + i] = bf16_of_float(result[i]);
	}
}

void POINTWISE(gate)(const uint16_t *o, const float *weight, float *gate, int dim)
{
	float x[128] ALIGNED, scale;
	vector squares = {0};
	float sum = 0;

	for (int i = 0; i < dim; i++)
		x[i] = bf16_to_float(o[i]);
	for (int i = 0; i < dim; i += LANES)
		squares += vector_load(x + i) * vector_load(x + i);
	for (int i = 0; i < LANES; i++)
		sum += squares[i];
	scale = 1 / sqrtf(sum / (float)dim + 1e-5f);
	for (int i = 0; i < dim; i += LANES)
		vector_store(gate + i, round_bf16(scale * vector_load(x + i) * vector_load(weight + i) *
						  vector_sigmoid(vector_load(gate + i))));
}
