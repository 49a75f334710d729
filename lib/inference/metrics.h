/* metrics: what a server has done so far, in Prometheus' text format. */
#pragma once

#include <pthread.h>
#include <stdint.h>

#include "base/buffer.h"
#include "inference/engine.h"

/* How requests end. */
enum outcome { OUTCOME_OK, OUTCOME_INVALID, OUTCOME_BUSY, OUTCOME_ABANDONED, OUTCOME_FAILED, OUTCOMES };

#define HISTOGRAM_BOUNDS 14

struct histogram {
	uint64_t counts[HISTOGRAM_BOUNDS + 1]; /* by the bound that a time is within; the last: by none */
	double sum;
};

struct metrics {
	pthread_mutex_t mutex;
	uint64_t outcomes[OUTCOMES];
	struct histogram waiting, first_token, whole; /* seconds, of requests that were answered */
};

void metrics_init(struct metrics *metrics);
void metrics_destroy(struct metrics *metrics);

void metrics_count(struct metrics *metrics, enum outcome outcome);

/* A request that was answered. */
void metrics_generation(struct metrics *metrics, const struct generation *generation);

/* Appends all of it; `info` is NULL while the model is loading. */
void metrics_write(struct metrics *metrics, const char *model, const struct model_info *info,
	const struct engine_counts *counts, struct buffer *out);
