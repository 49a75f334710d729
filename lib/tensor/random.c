#include "tensor/random.h"

#include <math.h>
#include <stdio.h>

/* splitmix64: the sequence that starts from each seed, at any index. */
static uint64_t bits_at(uint64_t seed, uint64_t index)
{
	uint64_t z = seed + (index + 1) * 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

static uint64_t stream_seed(uint64_t seed, uint64_t stream)
{
	return bits_at(bits_at(seed, 0), stream);
}

/* Two normally distributed numbers (Box and Muller). */
static void normal_pair(uint64_t bits, float deviation, float pair[2])
{
	float uniform = ((float)(bits >> 40) + 0.5f) * 0x1p-24f; /* never 0 */
	float angle = (float)(bits & 0xffffff) * (float)(2 * M_PI * 0x1p-24);
	float radius = deviation * sqrtf(-2 * logf(uniform));

	pair[0] = radius * cosf(angle);
	pair[1] = radius * sinf(angle);
}

static void fill_normal(uint64_t start, uint64_t first, float deviation, float *out, size_t count)
{
	for (size_t i = 0; i < count; i += 2) {
		float pair[2];

		normal_pair(bits_at(start, (first + i) / 2), deviation, pair);
		out[i] = pair[0];
		if (i + 1 < count)
			out[i + 1] = pair[1];
	}
}

static void fill_uniform(uint64_t start, uint64_t first, float low, float high, float *out, size_t count)
{
	for (size_t i = 0; i < count; i++)
		out[i] = low + (high - low) * ((float)(bits_at(start, first + i) >> 40) * 0x1p-24f);
}

/* Numbers that a thread makes at a time. */
#define SLICE ((size_t)1 << 14)

void random_normal(uint64_t seed, uint64_t stream, float deviation, float *out, size_t count)
{
	uint64_t start = stream_seed(seed, stream);

#pragma omp parallel for
	for (size_t first = 0; first < count; first += SLICE)
		fill_normal(
			start, first, deviation, out + first, count - first < SLICE ? count - first : SLICE);
}

void random_uniform(uint64_t seed, uint64_t stream, float low, float high, float *out, size_t count)
{
	fill_uniform(stream_seed(seed, stream), 0, low, high, out, count);
}

void random_fill(const struct distribution *distribution, uint64_t seed, uint64_t stream, uint64_t first,
	float *out, size_t count)
{
	uint64_t start = stream_seed(seed, stream);

	if (distribution->kind == DISTRIBUTION_NORMAL)
		fill_normal(start, first, distribution->deviation, out, count);
	else
		fill_uniform(start, first, distribution->low, distribution->high, out, count);
}

void distribution_describe(const struct distribution *distribution, char *text, size_t size)
{
	if (distribution->kind == DISTRIBUTION_NORMAL)
		snprintf(text, size, "normal, deviation %g", (double)distribution->deviation);
	else
		snprintf(text, size, "uniform in %g … %g", (double)distribution->low,
			(double)distribution->high);
}
