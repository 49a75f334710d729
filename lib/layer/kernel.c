/* What the layer does to each number by itself. Compiled once for each instruction set. */
#include "layer/kernel.h"

#include <math.h>

#include "cpu/vector.h"
#include "layer/layer.h"

static void narrow(const float *from, uint16_t *to, size_t count)
{
	for (size_t i = 0; i < count; i += LANES)
		vector_store_bf16(to + i, vector_load(from + i));
}

static void widen(const uint16_t *from, float *to, size_t count)
{
	for (size_t i = 0; i < count; i += LANES)
		vector_store(to + i, vector_of_bf16(from + i));
}

static void convolve(const uint16_t *rows, size_t stride, const float *weight, int channels, uint16_t *out)
{
	for (int c = 0; c < channels; c += LANES) {
		vector sum = {0};

		for (int tap = 0; tap < 4; tap++)
			sum += vector_load(weight + tap * channels + c) *
				vector_of_bf16(rows + (size_t)tap * stride + c);
		vector_store_bf16(out + c, sum * vector_sigmoid(sum));
	}
}

static void gate(const uint16_t *o, const float *weight, uint16_t *gate, int dim)
{
	vector squares = {0};
	float sum = 0, scale;

	for (int i = 0; i < dim; i += LANES) {
		vector x = vector_of_bf16(o + i);

		squares += x * x;
	}
	for (int i = 0; i < LANES; i++)
		sum += squares[i];
	scale = 1 / sqrtf(sum / (float)dim + LAYER_EPSILON);
	for (int i = 0; i < dim; i += LANES)
		vector_store_bf16(gate + i,
			scale * vector_of_bf16(o + i) * vector_load(weight + i) *
				vector_sigmoid(vector_of_bf16(gate + i)));
}

const struct layer_kernel VARIANT(layer_kernel) = {narrow, widen, convolve, gate};
