/* search: the fastest of many configurations, by trying them.
 *
 * What a trial is lies with the caller: building, timing and verifying are callbacks, so that the same search tunes
 * kernels of any kind. Drift does not choose: a time counts as a part of the best configuration's time, which is taken
 * again every few trials, and a challenger takes that one's place only when it wins nearly every
 * turn of a duel, and is verified then.
 *
 * Builds run ahead of timing, several at once. Each device is used by one thread: the first by the caller's. */
#pragma once

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "op/config.h"

enum tune_strategy {
	TUNE_AUTO,       /* exhaustive where the budget suffices, else halving, then local */
	TUNE_EXHAUSTIVE, /* all of them */
	TUNE_HALVING,    /* random ones, of which the better half is timed for longer, and so on */
	TUNE_LOCAL,      /* the neighbours of the best, as long as that leads on */
};
const char *tune_strategy_name(enum tune_strategy strategy); /* "auto", "exhaustive", … */

enum tune_outcome {
	TUNE_UNTRIED,
	TUNE_TIMED,
	TUNE_HOPELESS, /* so slow in its first calls that no more of them were made */
	TUNE_FAILED,   /* it does not build or run, hangs or computes something else */
};
const char *tune_outcome_name(enum tune_outcome outcome); /* "untried", … */

/* What is known of a candidate's machine code; -1 and NAN: not known. */
struct tune_build {
	int registers, shared_bytes, spills;
	double occupancy;
	const char *limited_by;
};

#define TUNE_BUILD_UNKNOWN ((struct tune_build){-1, -1, -1, NAN, NULL})

struct tune_candidate {
	struct config config;
	enum tune_outcome
		outcome; /* the caller may set it beforehand, with `problem` or times: what was tried before */
	struct tune_build build;
	double seconds; /* of a call, as part of the best one's at that time and in units of its; NAN: not timed */
	double noise; /* how far that may be off, as a part of it; NAN: not known */
	bool verified;
	char problem[240]; /* of TUNE_FAILED */
};

/* Of these STATUS_FAILED is the candidate's fault and ends its trials; any other error ends the search. */
struct tune_work {
	void *context;
	/* Called by several threads at a time, once for all candidates with the same compiled parameters. */
	int (*build)(void *context, const struct config *config, struct tune_build *build, struct error *err);
	/* Seconds of each of `runs` calls. Each device's calls come from one thread. */
	int (*time)(void *context, int device, const struct config *config, int runs, double *seconds,
		struct error *err);
	/* The device's clock during the last calls, in MHz; NAN: not known. NULL: of none. */
	double (*mhz)(void *context, int device);
	/* Whether it computes the right thing. */
	int (*verify)(void *context, int device, const struct config *config, struct error *err);
	/* A trial is over, or the best one has changed; one call at a time. Either may be NULL. */
	void (*record)(void *context, const struct tune_candidate *candidate);
	void (*progress)(
		void *context, size_t done, size_t planned, double seconds_left, double best_seconds);
	double (*clock)(void); /* clock_elapsed(), but in tests */
};

struct tune_search {
	const struct tune_work *work;
	const struct parameter *parameters;
	struct tune_candidate *candidates; /* the first is the one to beat */
	size_t count;
	enum tune_strategy strategy;
	double budget; /* seconds; no trial begins after them */
	uint64_t seed; /* of the order and of the choice among candidates */
	int devices, builders;
};

struct tune_found {
	size_t best;                        /* of the candidates */
	double first_seconds, best_seconds; /* a call of the first one and of the best, in turns */
	size_t tried, failed;
	bool complete;    /* within the budget, and not interrupted */
	bool interrupted; /* by the user: what was found until then stands */
};

/* The first candidate is built, timed and verified before all others: when it cannot be, that is the error. */
int tune_search_run(const struct tune_search *search, struct tune_found *found, struct error *err);
