/* checks: does a fork's own layer run, compute the right function wherever it is asked, and take the time that it seems to
 * take? Each of the checks below is added under its name; docs/checks.md tells what makes it fail.
 *
 *   fork.compile  fork.import  fork.construct  fork.call  fork.finite  fork.written  fork.repeat  fork.inputs
 *   fork.reference  fork.lengths  fork.state  fork.timing  fork.name  fork.memory  fork.gradient
 *
 * A fork may be anybody's: what it says of itself is not believed. Its outputs are compared here, and the time is taken
 * here. */
#pragma once

#include <stdbool.h>

#include "base/check.h"
#include "measure/device.h"
#include "measure/measure.h"
#include "probe/probe.h"

#define CHECKS_LENGTHS 12

struct checks_plan {
	const char *fork;
	const char *python; /* as in struct probe_options; so is environment */
	char *const *environment;
	const struct device *device;  /* where the fork runs, and our own layer where that stands for fp64 */
	int64_t tokens;               /* the length that is looked at most */
	int64_t target;               /* that of the claim; 0: none */
	bool target_required;         /* else it is left out when it takes long */
	bool more_lengths;            /* up to 262,144, as far as time and memory allow */
	const enum semantics *wanted; /* NULL: either */
	double repeat_cosine, repeat_difference; /* between runs: at least, at most */
	double budget;                           /* seconds, for all of it */
	uint64_t seed;
};

struct inquiry; /* the checks of a fork, while they are made */

struct checks_length {
	int64_t tokens;
	struct probe_times
		times; /* 3 warm-up calls and 10 others, unless there was no time for that: times.calls */
};

struct checks_found {
	bool ran;             /* all was run that should be: else nothing speaks for the fork */
	char why_not[256];    /* what kept it from being run; "" when the fork itself did */
	char torch[64];       /* PyTorch's version */
	const char *function; /* "upstream", "causal"; NULL: neither */
	struct checks_length lengths[CHECKS_LENGTHS];
	int length_count;
};

/* fork.compile alone, which needs no PyTorch. -1 for what kept it from being made; no Python at all is a check that is
 * skipped. */
int checks_compile(const struct checks_plan *plan, struct check_list *checks, struct error *err);

/* Starts the Pythons that checks_run() needs, for a Python with PyTorch: from now on they import that, and something else
 * can be done meanwhile. What `plan` points to has to stay. NULL on error; a Python that does not start is none yet. */
struct inquiry *checks_open(const struct checks_plan *plan, struct error *err);
void checks_close(struct inquiry *inquiry); /* NULL is fine */

/* All of them, once. Not passing is no error; -1 is for what kept the checks from being made, and is not the fork's fault.
 * Without PyTorch, or where a fork that needs a GPU has none, the checks are skipped, and `found` says so. */
int checks_run(
	struct inquiry *inquiry, struct check_list *checks, struct checks_found *found, struct error *err);

/* Skips the check that a fork, which was not run, does not get to, and says why in `found`. */
void checks_not_run(
	struct checks_found *found, struct check_list *checks, const char *name, const struct error *why);

/* What was measured at a length. */
void checks_measurement(const struct checks_length *length, struct measurement *measurement);
