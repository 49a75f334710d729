/* measure: how fast the operation or the layer runs on a device, as a validator would time it: warm-up,
 * then runs with a clock around each. */
#pragma once

#include <stdbool.h>

#include "measure/device.h"
#include "measure/sample.h"

/* What validators do. */
#define MEASURE_WARMUPS 3
#define MEASURE_RUNS 10

#define MEASURE_MOST_RUNS 1000 /* of which no more are made for the median to settle */

enum workload {
	WORKLOAD_LAYER, /* quasar's own */
	WORKLOAD_OP,    /* an operation alone, quasar's own */
};
const char *workload_name(enum workload workload); /* "layer", "op" */

/* The validator's shape: batch 1, hidden 512, 8 heads of 64 (a file of weights has its own), random input,
 * bf16 (measure/fixture.h). */
struct measure_plan {
	enum workload workload;
	enum semantics semantics;    /* of WORKLOAD_LAYER */
	const struct family *family; /* of WORKLOAD_OP, and which of its functions */
	int options[FAMILY_OPTIONS];
	int64_t tokens;
	int warmups, runs;
	const char
		*weights; /* of the layer, a safetensors file; NULL: random ones of the validator's shape */
	double budget;    /* seconds: fewer runs when it would be exceeded, at least one; 0: no limit */
	bool settle;      /* go on beyond `runs` until the median is settled, as far as the budget allows */
	struct sample *sample; /* gets the time of each run; NULL: not wanted */
	uint64_t seed;
	double copy_rate; /* of the device's memory, bytes per second, for the floor; 0: not wanted */
	/* called after each run with what is done of what is planned; nothing done: it begins again, in new processes.
	 * NULL: nobody watches */
	void (*progress)(int done, int planned, void *context);
	void *context;
};

struct measurement {
	int warmups, runs; /* done */
	bool shortened;    /* fewer than planned, because of the budget */
	double seconds;    /* median of a run */
	double spread;     /* of the runs, and how far the median may be off: measure/sample.h */
	double noise;
	int processes; /* of which the runs are; 0: of this one */
	double tokens_per_second;
	double bytes, operations; /* of an operation, at least; 0: not known */
	double floor_seconds;     /* its traffic at the copy rate; 0: not known */
	double memory_mb;         /* peak, in MiB, weights and input included; NAN: not known */
};

/* MiB that a measurement will need, about. */
double measure_memory(enum workload workload, int64_t tokens);

/* STATUS_ENVIRONMENT when memory is short or the weights cannot be read, STATUS_INTERRUPTED when the user
 * asked to stop. */
int measure_run(const struct device *device, const struct measure_plan *plan, struct measurement *result,
	struct error *err);

/* Sums up the times of its runs in `result`. They become the plan's sample, if that is wanted; else they are freed. */
void measure_conclude(const struct measure_plan *plan, struct sample *sample, struct measurement *result);
