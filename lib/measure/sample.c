#include "measure/sample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

#define DOUBT 0.05 /* that the median lies outside of its confidence interval */

void sample_add(struct sample *sample, double seconds)
{
	if (sample->count == sample->capacity) {
		sample->capacity = sample->capacity ? 2 * sample->capacity : 16;
		sample->seconds = xrealloc(sample->seconds, sample->capacity * sizeof(*sample->seconds));
	}
	sample->seconds[sample->count++] = seconds;
}

void sample_free(struct sample *sample)
{
	free(sample->seconds);
	*sample = (struct sample){0};
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Of `count` sorted times the index of the one at which the median's confidence interval begins; it ends as many
 * before the last. Each time is below the median with a chance of one half, so how many are is binomial. -1: even
 * from the first to the last it is too narrow. */
static int interval_begin(size_t count)
{
	double n = (double)count, below = 0;
	int k = -1;

	for (;;) {
		double next = k + 1;

		below += exp(lgamma(n + 1) - lgamma(next + 1) - lgamma(n - next + 1) - n * M_LN2);
		if (2 * below > DOUBT)
			return k;
		k++;
	}
}

struct sample_summary sample_summarise(const struct sample *sample)
{
	size_t count = sample->count, tenth = (count - 1) / 10;
	double *sorted = xcalloc(count, sizeof(*sorted)), median;
	int begin = interval_begin(count);
	struct sample_summary summary;

	memcpy(sorted, sample->seconds, count * sizeof(*sorted));
	qsort(sorted, count, sizeof(*sorted), by_value);
	median = (sorted[(count - 1) / 2] + sorted[count / 2]) / 2;
	summary = (struct sample_summary){
		.median = median,
		.spread = (sorted[count - 1 - tenth] - sorted[tenth]) / median,
		.noise = begin < 0 ? NAN : (sorted[count - 1 - (size_t)begin] - sorted[begin]) / 2 / median,
	};
	free(sorted);
	return summary;
}

bool sample_settled(const struct sample *sample)
{
	return sample->count && sample_summarise(sample).noise <= SAMPLE_SETTLED;
}
