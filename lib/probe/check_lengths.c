/* Timed calls at several lengths: whether they return what they should, in the time that they seem to take. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/number.h"
#include "measure/accuracy.h"
#include "probe/inquiry.h"

#define CLOCKS_APART 0.03    /* of a measurement, between the process's clock and ours */
#define CLOCK_LATENCY 2e-3   /* seconds a round, on a busy machine */
#define UNASKED_SECONDS 10.0 /* that a length may take which nobody asked for */
#define PASSING_SECONDS 0.3  /* for the calls at a length that is looked at in passing */
#define FRESH 4              /* inputs that were never seen before */

/* Whether the process counts less time than has passed, in every round: a busy machine may have kept us from reading a
 * clock in time in one or two. */
static bool counts_too_little(const struct probe_times *times)
{
	for (int i = 0; i < times->rounds; i++)
		if (times->process[i] >= times->own[i] * (1 - CLOCKS_APART) - CLOCK_LATENCY)
			return false;
	return true;
}

/* Has another look before it believes that the clocks disagree. */
static int compare_clocks(
	struct inquiry *it, struct probe_timing timing, struct probe_times times, struct error *err)
{
	timing.warmups = 0;
	timing.rounds = 1;
	timing.last = timing.drawn = NULL;
	for (int look = 0; look < 2 && counts_too_little(&times); look++)
		if (probe_time(it->probe, &timing, &times, err) < 0)
			return -1;
	if (counts_too_little(&times))
		inquiry_blame(it->timing_fault, sizeof(it->timing_fault),
			"at %lld tokens the process counts %.4g s, but until nothing ran any more it took %.4g s",
			(long long)timing.tokens, times.process[0], times.own[0]);
	return 0;
}

/* One output of the timed calls, held against what was expected. */
static void judge_output(struct inquiry *it, const char *which, const float *out, int64_t tokens,
	const struct expected_output *expected)
{
	struct closeness found = inquiry_hold_against(out, expected->numbers, tokens);

	if (!inquiry_is_close(&found))
		inquiry_blame(it->lengths_fault, sizeof(it->lengths_fault),
			"at %lld tokens %s of the timed calls does not return %s: cosine %.4f, relative error %.2g, "
			"worst token %.2f, against %s",
			(long long)tokens, which, it->found->function, found.all.cosine,
			found.all.relative_error, found.token_cosine, expected->from);
}

/* The outputs of timed calls, held against the function; xs: the inputs that took turns. */
static int judge_timed(struct inquiry *it, const struct probe_timing *timing, const struct probe_times *times,
	const float *const *xs, int count, struct error *err)
{
	int last = (timing->calls - 1) % count, drawn = times->drawn % count;
	struct expected_output expected;
	int result;

	if (!it->found->function)
		return 0;
	result = inquiry_expect(it, it->semantics, xs[last], timing->tokens, &expected, err);
	if (!result) {
		judge_output(it, "the last", timing->last, timing->tokens, &expected);
		if (drawn == last)
			judge_output(it, "one", timing->drawn, timing->tokens, &expected);
	}
	free(expected.numbers);
	if (result || drawn == last)
		return result;
	result = inquiry_expect(it, it->semantics, xs[drawn], timing->tokens, &expected, err);
	if (!result)
		judge_output(it, "one", timing->drawn, timing->tokens, &expected);
	free(expected.numbers);
	return result;
}

/* A round that is long enough for clocks to be compared. */
static int compare_clocks_longer(struct inquiry *it, int64_t tokens, double seconds, struct error *err)
{
	const struct probe_timing timing = {
		.tokens = tokens,
		.inputs = (const char *const[]){"x", NULL},
		.calls = (int)fmin(ceil(TIMED_SECONDS / seconds), 1000),
		.rounds = 1,
	};
	struct probe_times times;

	if (probe_time(it->probe, &timing, &times, err) < 0)
		return -1;
	return compare_clocks(it, timing, times, err);
}

/* Fills inputs with numbers that were never seen before, and times a call on each. */
static int time_fresh(struct inquiry *it, struct probe_timing *timing, float *const *xs,
	struct probe_times *times, struct error *err)
{
	for (int i = 0; i < FRESH; i++) {
		inquiry_fill(it, xs[i], inquiry_numbers(timing->tokens));
		if (probe_input(it->probe, timing->inputs[i], xs[i], timing->tokens, err) < 0)
			return -1;
	}
	if (probe_time(it->probe, timing, times, err) < 0)
		return -1;
	return judge_timed(it, timing, times, (const float *const *)xs, FRESH, err);
}

/* Whether the input that was just timed is faster than new ones: then what was computed for it is remembered. New
 * tensors may be slow once, and so may a busy machine, so that there is more than one chance. */
static int compare_fresh(struct inquiry *it, int64_t tokens, double seen, struct error *err)
{
	static const char *const names[] = {"f0", "f1", "f2", "f3", NULL};
	float *memory = inquiry_allocate((FRESH + 2) * tokens, err), *xs[FRESH];
	struct probe_timing fresh = {.tokens = tokens, .inputs = names, .calls = FRESH, .rounds = 1};
	struct probe_timing again = {
		.tokens = tokens, .inputs = (const char *const[]){"x", NULL}, .calls = FRESH, .rounds = 1};
	struct probe_times times;
	int result = 0;

	if (!memory)
		return -1;
	for (int i = 0; i < FRESH; i++)
		xs[i] = memory + inquiry_numbers(tokens * i);
	fresh.last = memory + inquiry_numbers(tokens * FRESH);
	fresh.drawn = fresh.last + inquiry_numbers(tokens);
	for (int chance = 0; !result && chance < CHANCES; chance++) {
		result = time_fresh(it, &fresh, xs, &times, err);
		if (result || inquiry_fastest(&times) <= MOST_SPEEDUP * seen)
			break;
		if (chance == CHANCES - 1)
			inquiry_blame(it->state_fault, sizeof(it->state_fault),
				"an input that it has seen before takes %.3g s, a new one %.3g s: outputs are "
				"remembered",
				seen, inquiry_fastest(&times));
		result = probe_time(it->probe, &again, &times, err);
		seen = inquiry_fastest(&times);
	}
	free(memory);
	return result;
}

/* Seconds that the calls at a length may take. */
static double allowed(const struct inquiry *it, int64_t tokens)
{
	const struct checks_plan *plan = it->plan;

	if (tokens == plan->tokens || (tokens == plan->target && plan->target_required))
		return inquiry_time_left(it) / 2;
	return tokens == plan->target ? UNASKED_SECONDS : PASSING_SECONDS;
}

/* Warm-ups and calls of a validator where there is time for them; fewer otherwise. */
static void plan_calls(const struct inquiry *it, struct probe_timing *timing)
{
	double call = it->seconds_per_token * (double)timing->tokens;
	bool in_full = call * (MEASURE_WARMUPS + MEASURE_RUNS) <= allowed(it, timing->tokens);

	timing->warmups = in_full ? MEASURE_WARMUPS : 1;
	timing->calls = in_full ? MEASURE_RUNS : 2;
	timing->rounds = in_full ? 3 : 1;
	timing->seconds = fmin(1, allowed(it, timing->tokens));
}

static int look_at_length(struct inquiry *it, int64_t tokens, struct error *err)
{
	const bool most = tokens == it->plan->tokens;
	float *x = inquiry_allocate(3 * tokens, err);
	struct probe_timing timing = {.tokens = tokens, .inputs = (const char *const[]){"x", NULL}};
	struct checks_length *length = &it->found->lengths[it->found->length_count];
	char grouped[48];
	int result = -1;

	number_grouped((double)tokens, grouped);
	log_note("%s tokens …", grouped);
	probe_limit(it->probe, PROBE_SECONDS);
	*length = (struct checks_length){.tokens = tokens};
	plan_calls(it, &timing);
	if (x) {
		timing.last = x + inquiry_numbers(tokens);
		timing.drawn = timing.last + inquiry_numbers(tokens);
		inquiry_fill(it, x, inquiry_numbers(tokens));
		result = probe_input(it->probe, "x", x, tokens, err);
	}
	if (!result)
		result = probe_time(it->probe, &timing, &length->times, err);
	if (!result) {
		it->found->length_count++;
		it->seconds_per_token = inquiry_fastest(&length->times) / (double)tokens;
		result = judge_timed(it, &timing, &length->times, (const float *const[]){x}, 1, err);
	}
	if (!result)
		result = compare_clocks(it, timing, length->times, err);
	if (!result && most && length->times.own[0] < TIMED_SECONDS)
		result = compare_clocks_longer(it, tokens, inquiry_fastest(&length->times), err);
	if (!result && most)
		result = compare_fresh(it, tokens, inquiry_fastest(&length->times), err);
	free(x);
	return result;
}

/* Seconds that a length will take, about. */
static double length_seconds(const struct inquiry *it, int64_t tokens)
{
	return it->seconds_per_token * (double)tokens * 3 + 2 * inquiry_expect_seconds(it, tokens);
}

/* Why a length is not looked at; false: it is. */
static bool leave_out(const struct inquiry *it, int64_t tokens, char *why, size_t size)
{
	const struct checks_plan *plan = it->plan;
	double seconds = length_seconds(it, tokens), mib = accuracy_memory(tokens);
	bool asked = tokens == plan->tokens || plan->more_lengths ||
		(tokens == plan->target && plan->target_required);
	char count[48], time[32];

	number_grouped((double)tokens, count);
	clock_duration(seconds, time);
	if (mib > memory_available())
		snprintf(why, size, "; %s tokens need %.0f MiB of memory", count, mib);
	else if (seconds > inquiry_time_left(it))
		snprintf(why, size, "; %s tokens take about %s, which --budget does not leave", count, time);
	else if (tokens > 4 * SHORT && !asked && seconds > UNASKED_SECONDS)
		snprintf(
			why, size, "; %s tokens would take about %s: --full looks at them, too", count, time);
	else
		return false;
	return true;
}

static int by_value(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

/* Ascending, none twice. A ragged one is no multiple of anything. */
static int list_lengths(const struct checks_plan *plan, int64_t *lengths)
{
	const int64_t wanted[] = {512, 1024, 2048, 521 + (int64_t)(plan->seed % 750) * 2, plan->tokens,
		plan->target, 4096 * plan->more_lengths, 16384 * plan->more_lengths,
		65536 * plan->more_lengths, 262144 * plan->more_lengths};
	int count = 0, kept = 0;

	for (size_t i = 0; i < sizeof(wanted) / sizeof(*wanted); i++)
		if (wanted[i])
			lengths[count++] = wanted[i];
	qsort(lengths, (size_t)count, sizeof(*lengths), by_value);
	for (int i = 0; i < count; i++)
		if (!kept || lengths[kept - 1] != lengths[i])
			lengths[kept++] = lengths[i];
	return kept;
}

/* Looks at all lengths that there is time for; says which in `seen`, and why not at others. */
static int look_at_lengths(struct inquiry *it, struct buffer *seen, struct error *err)
{
	int64_t lengths[CHECKS_LENGTHS];
	int count = list_lengths(it->plan, lengths);
	struct buffer left_out = {0};
	int result = 0;
	char words[160];

	buffer_text(&left_out, "");
	for (int i = 0; i < count && !result; i++) {
		if (leave_out(it, lengths[i], words, sizeof(words))) {
			buffer_text(&left_out, words);
			continue;
		}
		number_grouped((double)lengths[i], words);
		buffer_printf(seen, "%s%s", seen->length ? ", " : "", words);
		result = look_at_length(it, lengths[i], err);
		if (result && err->status == STATUS_FAILED)
			error_context(err, "at %s tokens", words);
	}
	buffer_printf(seen, " tokens%s", left_out.data);
	buffer_free(&left_out);
	return result;
}

int check_lengths(struct inquiry *it, struct error *err)
{
	struct buffer seen = {0};
	int result;

	if (it->found->function) {
		result = look_at_lengths(it, &seen, err);
		if (!result)
			inquiry_conclude(it, "fork.lengths", it->lengths_fault,
				"It must be the same function at every length and in every call.", seen.data);
		buffer_free(&seen);
		return result;
	}
	/* nothing to hold outputs against; clocks are compared nevertheless */
	result = look_at_length(it, it->plan->tokens, err);
	if (!result)
		check_add(it->checks, "fork.lengths", CHECK_SKIP, NULL,
			"a function that is neither at %d tokens is not looked for at others", SHORT);
	return result;
}
