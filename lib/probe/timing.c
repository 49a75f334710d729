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

static void add_times(struct timing *timing, const struct probe_times *times)
{
	const struct measure_plan *plan = timing->plan;
	int planned = plan->warmups + plan->runs, done;

	for (int i = 0; i < times->rounds; i++)
		sample_add(&timing->sample, times->process[i] / times->calls);
	timing->result->runs += times->rounds * times->calls;
	done = plan->warmups + timing->result->runs;
	if (plan->progress)
		plan->progress(done, planned, plan->context);
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

/* A session with the layer in it; NULL on error. */
static struct probe *open_session(
	const struct probe_options *options, const struct measure_plan *plan, struct error *err)
{
	char script[sizeof(PROBE_SCRIPT) + 24];
	struct probe_options named = *options;
	struct probe *probe;

	snprintf(script, sizeof(script), PROBE_SCRIPT, (long long)plan->tokens);
	named.script = script;
	probe = probe_open(&named, err);
	if (!probe || probe_load(probe, err) == 0)
		return probe;
	probe_close(probe);
	return NULL;
}

/* Rounds of the first session. */
static int time_session(struct timing *timing, const struct probe_options *options, struct error *err)
{
	int failed;

	timing->probe = open_session(options, timing->plan, err);
	if (!timing->probe)
		return -1;
	timing->started = clock_elapsed(); /* importing is not measured */
	failed = plan_rounds(timing, err);
	if (!failed)
		failed = time_rounds(timing, err);
	probe_close(timing->probe);
	timing->result->processes = 1;
	return failed;
}

/* Whether it may matter that validators take the first round of a process, and can be looked at. */
static bool is_unsteady(const struct timing *timing)
{
	const struct measure_plan *plan = timing->plan;
	struct sample_summary summary;

	if (!plan->settle || timing->calls < plan->runs)
		return false;
	summary = sample_summarise(&timing->sample);
	return fmax(summary.spread, timing->sample.seconds[0] / summary.median - 1) > UNSTEADY;
}

/* The first round of new processes, in place of what was timed before. */
static int time_starts(struct timing *timing, const struct probe_options *options, struct error *err)
{
	struct probe_times times;
	int failed = 0;

	sample_free(&timing->sample);
	timing->result->runs = 0;
	for (int i = 0; i < STARTS && !failed; i++) {
		timing->probe = open_session(options, timing->plan, err);
		timing->started = clock_elapsed();
		failed = timing->probe
			? time_batch(timing, 0, timing->plan->warmups, timing->calls, 1, &times, err)
			: -1;
		if (!failed)
			add_times(timing, &times);
		probe_close(timing->probe);
	}
	timing->result->processes = STARTS;
	return failed;
}

int timing_run(const struct probe_options *options, const struct measure_plan *plan,
	struct measurement *result, struct error *err)
{
	struct timing timing = {.plan = plan, .result = result, .rests = plan->settle && options->gpu >= 0};
	int failed;

	*result = (struct measurement){0};
	failed = time_session(&timing, options, err);
	if (!failed && is_unsteady(&timing))
		failed = time_starts(&timing, options, err);
	if (failed)
		sample_free(&timing.sample);
	else
		measure_conclude(plan, &timing.sample, result);
	return failed;
}
