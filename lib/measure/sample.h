/* sample: times that were measured one after the other, and what can be said of them. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* The median is settled when it is known this well. */
#define SAMPLE_SETTLED 0.01

struct sample {
	double *seconds;
	size_t count, capacity;
};

/* `seconds`: of one run. */
void sample_add(struct sample *sample, double seconds);
void sample_free(struct sample *sample);

struct sample_summary {
	double median; /* seconds */
	/* From the fastest tenth to the slowest one, as a part of the median; of up to ten times, from the
	 * fastest to the slowest. */
	double spread;
	/* How far the median may be off: half the width of its confidence interval (95 %, from the order of the times
	 * alone, whatever their distribution), as a part of it. NAN: fewer than six times cannot tell. */
	double noise;
};

/* Of one time at least. */
struct sample_summary sample_summarise(const struct sample *sample);

/* Whether the median is known to within SAMPLE_SETTLED. */
bool sample_settled(const struct sample *sample);
