#include "probe/timing.h"

#include <math.h>
#include <stdio.h>

#include "base/clock.h"
#include "gpu/gpu.h"

#define BATCH 8      /* rounds after which the median is looked at */
#define NO_LIMIT 1e9 /* seconds */

/* No round of a batch begins later: one that is no longer than this still ends within what the session may take. */
#define BATCH_SECONDS (PROBE_SECONDS / 3)

#define UNSTEADY 0.03 /* of times, as a part of their median: then it matters how a process begins */
#define STARTS 6 /* processes of which that is timed: as many times as tell how far their median may be off */

struct timing {
	struct probe *probe;
	const struct measure_plan *plan;
	struct measurement *result;
	struct sample sample;
	double started, call; /* seconds that a call takes, about */
	int calls;            /* of a round */
	int planned;          /* calls in all, at least */
	bool rests;           /* before each round */
};

static double time_left(const struct timing *timing)
{
	double budget = timing->plan->budget > 0 ? timing->plan->budget : NO_LIMIT;

	return budget - (clock_elapsed() - timing->started);
}

/* Rounds on one input, the warm-ups on the same. */
static int time_batch(struct timing *timing, double rest, int warmups, int calls, int rounds,
	struct probe_times *times, struct error *err)
{
	const struct probe_timing request = {
		.tokens = timing->plan->tokens,
		.warmups = warmups,
		.calls = calls,
		.rounds = rounds,
		.seconds = fmin(fmax(time_left(timing), 0), BATCH_SECONDS),
		.rest = rest,
	};

	probe_limit(timing->probe, PROBE_SECONDS);
	return probe_time(timing->probe, &request, times, err);
}

static void tell_progress(const struct timing *timing)
{
	if (timing->plan->progress)
		timing->plan->progress(timing->result->runs, timing->planned, timing->plan->context);
}

static void add_times(struct timing *timing, const struct probe_times *times)
{
	for (int i = 0; i < times->rounds; i++)
		sample_add(&timing->sample, times->process[i] / times->calls);
	timing->result->runs += times->rounds * times->calls;
	tell_progress(timing);
}

/* As many calls as warm up tell by the last of them how many the budget allows. Where it allows no more, that one is
 * the measurement. */
static int plan_rounds(struct timing *timing, struct error *err)
{
	const struct measure_plan *plan = timing->plan;
	struct probe_times times;

	timing->result->warmups = plan->warmups > 0 ? plan->warmups - 1 : 0;
	if (time_batch(timing, 0, timing->result->warmups, 1, 1, &times, err) < 0)
		return -1;
	timing->result->memory_mb = times.memory_mb;
	timing->call = times.process[0];
	timing->calls = (int)fmin(plan->runs, time_left(timing) / timing->call);
	timing->result->shortened = timing->calls < plan->runs;
	if (timing->calls < 1)
		add_times(timing, &times);
	else
		timing->result->warmups++;
	return 0;
}

static bool is_enough(const struct timing *timing)
{
	const struct sample *sample = &timing->sample;

	if (!sample->count)
		return false;
	return !timing->plan->settle || timing->calls < 1 || time_left(timing) <= 0 ||
		sample->count >= MEASURE_MOST_RUNS || sample_settled(sample);
}

/* Each batch has an input of its own, and warms up again where that costs little beside its rounds. After a rest it is one
 * round. */
static int time_rounds(struct timing *timing, struct error *err)
{
	const struct measure_plan *plan = timing->plan;
	double rest = timing->rests ? GPU_REST : 0;
	int rounds = plan->settle && !timing->rests ? BATCH : 1;

	while (!is_enough(timing)) {
		bool affordable = timing->call * (plan->warmups + timing->calls) < time_left(timing);
		struct probe_times times;

		if (time_batch(timing, rest, affordable ? plan->warmups : 0, timing->calls, rounds, &times,
			    err) < 0)
			return -1;
		add_times(timing, &times);
	}
	return 0;
}

/* Times the layer in a new session, by one of the functions that are below. */
static int in_session(struct timing *timing, const struct probe_options *options,
	int (*time)(struct timing *timing, struct error *err), struct error *err)
{
	char script[sizeof(PROBE_SCRIPT) + 24];
	struct probe_options named = *options;
	int failed;

	snprintf(script, sizeof(script), PROBE_SCRIPT, (long long)timing->plan->tokens);
	named.script = script;
	timing->probe = probe_open(&named, err);
	if (!timing->probe)
		return -1;
	failed = probe_load(timing->probe, err);
	timing->started = clock_elapsed(); /* importing is not measured */
	if (!failed)
		failed = time(timing, err);
	probe_close(timing->probe);
	return failed;
}

/* As many rounds as it takes. */
static int time_well(struct timing *timing, struct error *err)
{
	return plan_rounds(timing, err) < 0 ? -1 : time_rounds(timing, err);
}

/* The first round, which is what validators take. */
static int time_start(struct timing *timing, struct error *err)
{
	struct probe_times times;

	if (time_batch(timing, 0, timing->plan->warmups, timing->calls, 1, &times, err) < 0)
		return -1;
	add_times(timing, &times);
	return 0;
}

/* Whether it may matter that validators take the first round of a process, and can be looked at. */
static bool is_unsteady(const struct timing *timing)
{
	struct sample_summary summary;

	if (!timing->plan->settle || timing->result->shortened)
		return false;
	summary = sample_summarise(&timing->sample);
	return fmax(summary.spread, timing->sample.seconds[0] / summary.median - 1) > UNSTEADY;
}

/* The first round of new processes, in place of what was timed before. */
static int time_starts(struct timing *timing, const struct probe_options *options, struct error *err)
{
	int failed = 0;

	sample_free(&timing->sample);
	timing->result->runs = 0;
	timing->result->processes = STARTS;
	timing->planned = STARTS * timing->calls;
	tell_progress(timing);
	for (int i = 0; i < STARTS && !failed; i++)
		failed = in_session(timing, options, time_start, err);
	if (failed && err->status == STATUS_FAILED)
		error_context(err, "it ran in one process, but not in another one");
	return failed;
}

int timing_run(const struct probe_options *options, const struct measure_plan *plan,
	struct measurement *result, struct error *err)
{
	struct timing timing = {
		.plan = plan,
		.result = result,
		.planned = plan->runs,
		.rests = plan->settle && options->gpu >= 0,
	};
	int failed;

	*result = (struct measurement){.processes = 1};
	failed = in_session(&timing, options, time_well, err);
	if (!failed && is_unsteady(&timing))
		failed = time_starts(&timing, options, err);
	if (failed)
		sample_free(&timing.sample);
	else
		measure_conclude(plan, &timing.sample, result);
	return failed;
}
