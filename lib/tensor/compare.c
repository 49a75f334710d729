#include "tensor/compare.h"

#include <math.h>

#include "tensor/dtype.h"

struct sums {
	double ab, aa, bb, dd, most;
	bool finite;
};

static void add(struct sums *sums, double a, double b)
{
	double difference = fabs(a - b);

	sums->ab += a * b;
	sums->aa += a * a;
	sums->bb += b * b;
	sums->dd += difference * difference;
	sums->most = difference > sums->most ? difference : sums->most;
	sums->finite &= isfinite(a) && isfinite(b);
}

static struct comparison finish(const struct sums *sums)
{
	double norms = sqrt(sums->aa) * sqrt(sums->bb);

	return (struct comparison){
		.cosine = norms > 0 ? sums->ab / norms : sums->aa == sums->bb,
		.max_difference = sums->most,
		.relative_error = sums->bb > 0 ? sqrt(sums->dd / sums->bb) : sqrt(sums->dd),
		.norm = sqrt(sums->bb),
		.finite = sums->finite,
	};
}

bool comparison_agrees(const struct comparison *comparison, double least_cosine, double most_relative_error)
{
	return comparison->finite && comparison->relative_error <= most_relative_error &&
		(comparison->cosine >= least_cosine || comparison->norm == 0);
}

struct comparison compare_bf16(const uint16_t *a, const uint16_t *b, size_t count)
{
	struct sums sums = {.finite = true};

	for (size_t i = 0; i < count; i++)
		add(&sums, (double)bf16_to_float(a[i]), (double)bf16_to_float(b[i]));
	return finish(&sums);
}

struct comparison compare_bf16_double(const uint16_t *a, const double *b, size_t count)
{
	struct sums sums = {.finite = true};

	for (size_t i = 0; i < count; i++)
		add(&sums, (double)bf16_to_float(a[i]), b[i]);
	return finish(&sums);
}

struct comparison compare_float(const float *a, const float *b, size_t count)
{
	struct sums sums = {.finite = true};

	for (size_t i = 0; i < count; i++)
		add(&sums, (double)a[i], (double)b[i]);
	return finish(&sums);
}

struct comparison compare_float_double(const float *a, const double *b, size_t count)
{
	struct sums sums = {.finite = true};

	for (size_t i = 0; i < count; i++)
		add(&sums, (double)a[i], b[i]);
	return finish(&sums);
}
