#include "probe/checks.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/number.h"
#include "layer/layer.h"
#include "measure/accuracy.h"
#include "probe/expected.h"
#include "tensor/compare.h"
#include "tensor/random.h"
#include "tensor/safetensors.h"

#define SHORT 512   /* tokens; where a fork is looked at closely, at little cost */
#define SHORTEST 64 /* for gradients, which are compared with dozens of references */

/* An honest fork rounds to bf16 at every step: a cosine of 0.99997 and a relative error of 0.8 % remain, of a token 0.998;
 * one that keeps more of its sums in bf16 stays well within these. */
#define LEAST_COSINE 0.999
#define LEAST_TOKEN_COSINE 0.95
#define MOST_RELATIVE_ERROR 0.05

#define MOST_UNPOISONED 1e30  /* outputs beyond it are the poison, not the layer's */
#define LEAST_CHANGE 1e-3     /* of an output, relative, when something that it depends on changes */
#define MOST_SPEEDUP 1.5      /* by a name, or by having seen an input: noise stays below */
#define CLOCKS_APART 0.03     /* of a measurement, between the process's clock and ours */
#define CLOCK_LATENCY 2e-3    /* seconds a round, on a busy machine */
#define TIMED_SECONDS 0.3     /* of a round that clocks are compared on */
#define MOST_OUTSIDE_MB 512.0 /* of a GPU: kernels, handles of libraries and the driver's own */
#define UNASKED_SECONDS 10.0  /* that a length may take which nobody asked for */
#define FP64_SHARE 0.1        /* of the budget, for one reference */
#define FRESH 4               /* inputs that were never seen before */
#define GRADIENT_STEP 1e-3    /* relative, of what a gradient is of */
#define GRADIENT_TOLERANCE 0.1

enum poison { POISON_NONE = 0, POISON_HUGE = 0x7f, POISON_NEGATIVE = 0xfe }; /* as bytes of any float */

struct inquiry {
	const struct checks_plan *plan;
	struct check_list *checks;
	struct checks_found *found;
	struct probe *probe;
	struct expected *expected;
	const char *weights;
	double started, seconds_per_token;
	float *x, *y;             /* of SHORT tokens: an input and its output */
	uint64_t stream;          /* of random numbers */
	enum semantics semantics; /* that it computes; only with found->function */
	/* found on the way, for checks that are made from several findings */
	char state_fault[200], timing_fault[300], lengths_fault[300];
	double worst_cosine;
	const char *compared_with;
};

/* --- small things ----------------------------------------------------------------------------------- */

static double time_left(const struct inquiry *it)
{
	return it->plan->budget - (clock_elapsed() - it->started);
}

static size_t numbers(int64_t tokens)
{
	return (size_t)tokens * LAYER_HIDDEN;
}

static float *allocate(int64_t tokens, struct error *err)
{
	float *memory = malloc(numbers(tokens) * sizeof(*memory));

	if (!memory)
		error_set(
			err, STATUS_ENVIRONMENT, "not enough memory to check %lld tokens", (long long)tokens);
	return memory;
}

/* New random numbers, never seen before. */
static void fill(struct inquiry *it, float *x, size_t count)
{
	random_normal(it->plan->seed, it->stream++, 1, x, count);
}

static bool agree(const struct inquiry *it, const struct comparison *pair)
{
	return pair->finite && pair->cosine >= it->plan->repeat_cosine &&
		pair->max_difference <= it->plan->repeat_difference;
}

static bool same(const struct inquiry *it, const float *a, const float *b, int64_t tokens)
{
	struct comparison pair = compare_float(a, b, numbers(tokens));

	return agree(it, &pair);
}

static void passed(struct inquiry *it, const char *name, const char *detail)
{
	check_add(it->checks, name, CHECK_OK, NULL, "%s", detail);
}

static void failed(struct inquiry *it, const char *name, const char *remedy, const char *detail)
{
	check_add(it->checks, name, CHECK_FAIL, remedy, "%s", detail);
}

/* Passed without a fault, which is text otherwise. */
static void conclude(
	struct inquiry *it, const char *name, const char *fault, const char *remedy, const char *detail)
{
	if (*fault)
		failed(it, name, remedy, fault);
	else
		passed(it, name, detail);
}

static int call(struct inquiry *it, const char *input, enum poison poison, float *out, struct error *err)
{
	return probe_call(it->probe, input, SHORT, (int)poison, out, err);
}

/* --- values and repetition -------------------------------------------------------------------------- */

static int check_finite(struct inquiry *it, struct error *err)
{
	size_t count = numbers(SHORT), bad = 0;
	char detail[120];

	(void)err;
	for (size_t i = 0; i < count; i++)
		bad += !isfinite(it->y[i]);
	snprintf(detail, sizeof(detail), "%zu of %zu outputs are NaN or infinite", bad, count);
	check_add(it->checks, "fork.finite", bad ? CHECK_FAIL : CHECK_OK,
		bad ? "Look for a division by zero or an overflow." : NULL, "%s", detail);
	return 0;
}

/* Two calls with different poisons in what memory they are given. */
static int check_written(struct inquiry *it, struct error *err)
{
	float *huge = allocate(2 * SHORT, err), *negative = huge ? huge + numbers(SHORT) : NULL;
	size_t count = numbers(SHORT), bad = 0;
	char detail[160];
	int result = -1;

	if (huge && call(it, "a", POISON_HUGE, huge, err) == 0 &&
		call(it, "a", POISON_NEGATIVE, negative, err) == 0) {
		for (size_t i = 0; i < count; i++)
			bad += !(fabsf(huge[i]) < MOST_UNPOISONED) ||
				!(fabsf(negative[i]) < MOST_UNPOISONED) ||
				fabsf(huge[i] - negative[i]) > (float)it->plan->repeat_difference;
		snprintf(detail, sizeof(detail), "%zu of %zu outputs depend on what was in memory before",
			bad, count);
		check_add(it->checks, "fork.written", bad ? CHECK_FAIL : CHECK_OK,
			bad ? "Every element of the output, and of what it is made of, must be written."
			    : NULL,
			"%s", detail);
		result = 0;
	}
	free(huge);
	return result;
}

static int check_repeat(struct inquiry *it, struct error *err)
{
	float *runs[3] = {it->y, allocate(2 * SHORT, err)};
	double cosine = INFINITY, difference = 0;
	bool good = true;
	char detail[160];
	int result = -1;

	runs[2] = runs[1] ? runs[1] + numbers(SHORT) : NULL;
	if (runs[1] && call(it, "a", POISON_NONE, runs[1], err) == 0 &&
		call(it, "a", POISON_NONE, runs[2], err) == 0) {
		for (int i = 0; i < 3; i++)
			for (int j = 0; j < i; j++) {
				struct comparison pair = compare_float(runs[i], runs[j], numbers(SHORT));

				good &= agree(it, &pair);
				cosine = fmin(cosine, pair.cosine);
				difference = fmax(difference, pair.max_difference);
			}
		snprintf(detail, sizeof(detail), "3 calls: cosine %.6f (min %g), difference %.3g (max %g)",
			cosine, it->plan->repeat_cosine, difference, it->plan->repeat_difference);
		check_add(it->checks, "fork.repeat", good ? CHECK_OK : CHECK_FAIL,
			good ? NULL
			     : "The same input must give the same output: look for a race or uninitialised "
			       "memory.",
			"%s", detail);
		result = 0;
	}
	free(runs[1]);
	return result;
}

/* --- what the output depends on ------------------------------------------------------------------------ */

/* Whether a token's outputs in b are other than in a. */
static bool token_changed(const float *a, const float *b, int64_t token)
{
	size_t at = numbers(token);

	return compare_float(a + at, b + at, LAYER_HIDDEN).relative_error > LEAST_CHANGE;
}

/* Other numbers at every other token, `first` or its neighbours: the outputs there must change. Counts those that do not, in
 * *ignored; *spread: whether tokens that did not change themselves had outputs that did. */
static int change_tokens(
	struct inquiry *it, int first, float *x, float *out, int *ignored, bool *spread, struct error *err)
{
	memcpy(x, it->x, numbers(SHORT) * sizeof(*x));
	for (int64_t token = first; token < SHORT; token += 2)
		fill(it, x + numbers(token), LAYER_HIDDEN);
	if (probe_input(it->probe, "b", x, SHORT, err) < 0 || call(it, "b", POISON_NONE, out, err) < 0)
		return -1;
	for (int64_t token = 0; token < SHORT; token++)
		if (token % 2 == first)
			*ignored += !token_changed(it->y, out, token);
		else
			*spread |= token_changed(it->y, out, token);
	return 0;
}

/* Which parameters do nothing, by their names; "" when all do. Negated and back is bit for bit what it was. */
static int find_idle(struct inquiry *it, float *out, struct buffer *idle, struct error *err)
{
	const char *name;
	size_t count;

	for (int i = 0; layer_parameter(expected_layer(it->expected), i, &name, &count); i++) {
		if (probe_negate(it->probe, name, err) < 0 || call(it, "a", POISON_NONE, out, err) < 0 ||
			probe_negate(it->probe, name, err) < 0)
			return -1;
		if (!(compare_float(it->y, out, numbers(SHORT)).relative_error > LEAST_CHANGE))
			buffer_printf(idle, "%s%s", idle->length ? ", " : "", name);
	}
	return 0;
}

static int check_inputs(struct inquiry *it, struct error *err)
{
	float *x = allocate(2 * SHORT, err), *out = x ? x + numbers(SHORT) : NULL;
	struct buffer idle = {0};
	int ignored = 0, result = -1;
	bool spread = false;
	char fault[300] = "";

	if (x && change_tokens(it, 0, x, out, &ignored, &spread, err) == 0 &&
		change_tokens(it, 1, x, out, &ignored, &spread, err) == 0 &&
		find_idle(it, out, &idle, err) == 0) {
		if (ignored)
			snprintf(fault, sizeof(fault), "the output does not change with x at %d of %d tokens",
				ignored, SHORT);
		else if (!spread)
			snprintf(fault, sizeof(fault), "an output depends on its own token only");
		else if (idle.length)
			snprintf(fault, sizeof(fault), "the output does not change with %s", idle.data);
		conclude(it, "fork.inputs", fault, "Every token and every parameter must have its effect.",
			"the output changes with x at every token, and with every parameter");
		result = 0;
	}
	buffer_free(&idle);
	free(x);
	return result;
}

/* --- against the reference -------------------------------------------------------------------------- */

struct closeness {
	struct comparison all;
	double token_cosine; /* the worst token's */
};

static struct closeness hold_against(const float *out, const double *reference, int64_t tokens)
{
	struct closeness found = {compare_float_double(out, reference, numbers(tokens)), 1};

	for (int64_t token = 0; token < tokens; token++)
		found.token_cosine = fmin(found.token_cosine,
			compare_float_double(out + numbers(token), reference + numbers(token), LAYER_HIDDEN)
				.cosine);
	return found;
}

static bool is_close(const struct closeness *found)
{
	return found->all.finite && found->all.cosine >= LEAST_COSINE &&
		found->all.relative_error <= MOST_RELATIVE_ERROR && found->token_cosine >= LEAST_TOKEN_COSINE;
}

/* How close an output is to what one of the functions gives for x. */
static int compare_with(struct inquiry *it, enum semantics semantics, const float *x, const float *out,
	int64_t tokens, struct closeness *found, const char **from, struct error *err)
{
	struct expected_output expected;
	int result = expected_find(
		it->expected, semantics, x, tokens, it->plan->budget * FP64_SHARE, &expected, err);

	if (!result)
		*found = hold_against(out, expected.numbers, tokens);
	*from = expected.from;
	free(expected.numbers);
	return result;
}

static int check_reference(struct inquiry *it, struct error *err)
{
	struct closeness found[2];
	const char *from;
	char detail[300];
	bool right;

	for (int i = 0; i < 2; i++) {
		if (compare_with(it, (enum semantics)i, it->x, it->y, SHORT, &found[i], &from, err) < 0)
			return -1;
		if (is_close(&found[i])) {
			it->semantics = (enum semantics)i;
			it->found->function = semantics_name(it->semantics);
			break;
		}
	}
	if (it->found->function)
		snprintf(detail, sizeof(detail),
			"computes %s: cosine %.5f, relative error %.2g, worst token %.4f, against %s at %d tokens",
			it->found->function, found[it->semantics].all.cosine,
			found[it->semantics].all.relative_error, found[it->semantics].token_cosine, from,
			SHORT);
	else
		snprintf(detail, sizeof(detail),
			"computes neither function: cosine %.4f to causal, %.4f to upstream, worst token %.2f and "
			"%.2f, against %s at %d tokens",
			found[SEMANTICS_CAUSAL].all.cosine, found[SEMANTICS_UPSTREAM].all.cosine,
			found[SEMANTICS_CAUSAL].token_cosine, found[SEMANTICS_UPSTREAM].token_cosine, from,
			SHORT);
	right = it->found->function && (!it->plan->wanted || *it->plan->wanted == it->semantics);
	conclude(it, "fork.reference", right ? "" : detail,
		it->found->function ? "It is right, but not the function that --semantics asks for."
				    : "docs/math.md has both functions.",
		detail);
	return 0;
}

/* --- other lengths, and timing ------------------------------------------------------------------------ */

__attribute__((format(printf, 3, 4))) static void blame(char *fault, size_t size, const char *format, ...)
{
	va_list arguments;

	if (*fault)
		return; /* the first one tells */
	va_start(arguments, format);
	vsnprintf(fault, size, format, arguments);
	va_end(arguments);
}

static double total(const double *seconds, int count)
{
	double sum = 0;

	for (int i = 0; i < count; i++)
		sum += seconds[i];
	return sum;
}

/* Seconds of a call in the fastest round, by our clock. */
static double fastest(const struct probe_times *times)
{
	double least = INFINITY;

	for (int i = 0; i < times->rounds; i++)
		least = fmin(least, times->own[i]);
	return least / times->calls;
}

static void compare_clocks(struct inquiry *it, const struct probe_times *times, int64_t tokens)
{
	double process = total(times->process, times->rounds), own = total(times->own, times->rounds);

	if (fabs(process - own) > CLOCKS_APART * own + CLOCK_LATENCY * times->rounds)
		blame(it->timing_fault, sizeof(it->timing_fault),
			"at %lld tokens the process counts %.4g s, but until nothing ran any more it took %.4g s",
			(long long)tokens, process, own);
	if (!times->settled)
		blame(it->timing_fault, sizeof(it->timing_fault),
			"at %lld tokens the output still changed after the clock had stopped",
			(long long)tokens);
}

/* The outputs of timed calls, held against the function; xs: the inputs that took turns. */
static int judge_timed(struct inquiry *it, const struct probe_timing *timing, const struct probe_times *times,
	const float *const *xs, int count, struct error *err)
{
	const struct {
		const float *out, *x;
		const char *what;
	} outputs[] = {{timing->drawn, xs[times->drawn % count], "one of the timed calls"},
		{timing->last, xs[(timing->calls - 1) % count], "the last timed call"}};
	struct closeness found;

	for (int i = 0; i < 2; i++) {
		if (compare_with(it, it->semantics, outputs[i].x, outputs[i].out, timing->tokens, &found,
			    &it->compared_with, err) < 0)
			return -1;
		it->worst_cosine = fmin(it->worst_cosine, found.all.cosine);
		if (!is_close(&found))
			blame(it->lengths_fault, sizeof(it->lengths_fault),
				"at %lld tokens %s is not %s: cosine %.4f, relative error %.2g, worst token %.2f, "
				"against %s",
				(long long)timing->tokens, outputs[i].what, it->found->function,
				found.all.cosine, found.all.relative_error, found.token_cosine,
				it->compared_with);
	}
	return 0;
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
	compare_clocks(it, &times, tokens);
	return 0;
}

/* Whether an input that was seen before, which took so many seconds, is faster than new ones: then what was
 * computed for it is remembered. What is new to a fork's caches may be slow once, so that it gets more chances. */
static int compare_fresh(struct inquiry *it, int64_t tokens, double seen, struct error *err)
{
	static const char *const names[] = {"f0", "f1", "f2", "f3", NULL};
	float *memory = allocate((FRESH + 2) * tokens, err), *xs[FRESH];
	struct probe_timing timing = {.tokens = tokens, .inputs = names, .calls = FRESH, .rounds = 1};
	struct probe_times times;
	double fresh = INFINITY;
	int result = memory ? 0 : -1;

	for (int i = 0; i < FRESH; i++)
		xs[i] = memory + numbers(tokens * i);
	timing.last = xs[FRESH - 1] + numbers(tokens);
	timing.drawn = timing.last + numbers(tokens);
	for (int attempt = 0; !result && attempt < 3 && fresh > MOST_SPEEDUP * seen; attempt++) {
		for (int i = 0; !result && i < FRESH; i++) {
			fill(it, xs[i], numbers(tokens));
			result = probe_input(it->probe, names[i], xs[i], tokens, err);
		}
		if (!result)
			result = probe_time(it->probe, &timing, &times, err);
		if (!result)
			result = judge_timed(it, &timing, &times, (const float *const *)xs, FRESH, err);
		if (!result)
			fresh = fmin(fresh, fastest(&times));
	}
	if (!result && fresh > MOST_SPEEDUP * seen)
		blame(it->state_fault, sizeof(it->state_fault),
			"an input that it has seen before takes %.3g s, a new one %.3g s: outputs are remembered",
			seen, fresh);
	free(memory);
	return result;
}

/* Warm-ups and calls of a validator where there is time for them; fewer otherwise. */
static void plan_calls(const struct inquiry *it, double seconds, bool important, struct probe_timing *timing)
{
	double allowed = important ? time_left(it) / 2 : 1;

	timing->warmups = 3;
	timing->calls = 10;
	timing->rounds = 3;
	timing->seconds = 1;
	if (seconds * (timing->warmups + timing->calls) > allowed) {
		timing->warmups = 1;
		timing->calls = 2;
		timing->rounds = 1;
	}
}

static int look_at_length(struct inquiry *it, int64_t tokens, struct error *err)
{
	const bool main = tokens == it->plan->tokens;
	float *x = allocate(3 * tokens, err);
	struct probe_timing timing = {.tokens = tokens, .inputs = (const char *const[]){"x", NULL}};
	struct checks_length *length = &it->found->lengths[it->found->length_count];
	int result = -1;

	log_note("%lld tokens …", (long long)tokens);
	probe_limit(it->probe, PROBE_SECONDS);
	*length = (struct checks_length){.tokens = tokens};
	plan_calls(it, it->seconds_per_token * (double)tokens, main || tokens == it->plan->target, &timing);
	if (x) {
		timing.last = x + numbers(tokens);
		timing.drawn = timing.last + numbers(tokens);
		fill(it, x, numbers(tokens));
		result = probe_input(it->probe, "x", x, tokens, err);
	}
	if (!result)
		result = probe_time(it->probe, &timing, &length->times, err);
	if (!result) {
		it->found->length_count++;
		it->seconds_per_token = fastest(&length->times) / (double)tokens;
		compare_clocks(it, &length->times, tokens);
		result = judge_timed(it, &timing, &length->times, (const float *const[]){x}, 1, err);
	}
	if (!result && main && length->times.own[0] < TIMED_SECONDS)
		result = compare_clocks_longer(it, tokens, fastest(&length->times), err);
	if (!result && main)
		result = compare_fresh(it, tokens, fastest(&length->times), err);
	free(x);
	return result;
}

/* Seconds that a length will take, about. */
static double length_seconds(const struct inquiry *it, int64_t tokens)
{
	return it->seconds_per_token * (double)tokens * 3 +
		2 * expected_seconds(it->expected, tokens, it->plan->budget * FP64_SHARE);
}

/* Why a length is not looked at; false: it is. */
static bool leave_out(const struct inquiry *it, int64_t tokens, char *why, size_t size)
{
	const struct checks_plan *plan = it->plan;
	double seconds = length_seconds(it, tokens), mib = accuracy_memory(tokens);
	bool asked = tokens == plan->tokens || plan->more_lengths ||
		(tokens == plan->target && plan->target_required);
	char count[48];

	number_grouped((double)tokens, count);
	if (mib > memory_available())
		snprintf(why, size, "; %s tokens need %.0f MiB of memory", count, mib);
	else if (seconds > time_left(it))
		snprintf(why, size, "; %s tokens take about %.0f s, which --budget does not leave", count,
			seconds);
	else if (tokens > 4 * SHORT && !asked && seconds > UNASKED_SECONDS)
		snprintf(why, size, "; %s tokens would take about %.0f s: --full looks at them, too", count,
			seconds);
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

static int check_lengths(struct inquiry *it, struct error *err)
{
	int64_t lengths[CHECKS_LENGTHS];
	int count = list_lengths(it->plan, lengths);
	struct buffer said = {0}, left_out = {0};
	char words[160];

	if (!it->found->function) {
		check_add(it->checks, "fork.lengths", CHECK_SKIP, NULL,
			"there is nothing to hold its outputs against: see fork.reference");
		return 0;
	}
	buffer_text(&left_out, "");
	for (int i = 0; i < count; i++) {
		if (leave_out(it, lengths[i], words, sizeof(words))) {
			buffer_text(&left_out, words);
			continue;
		}
		if (look_at_length(it, lengths[i], err) < 0) {
			if (err->status == STATUS_FAILED)
				error_context(err, "at %lld tokens", (long long)lengths[i]);
			buffer_free(&said);
			buffer_free(&left_out);
			return -1;
		}
		number_grouped((double)lengths[i], words);
		buffer_printf(&said, "%s%s", said.length ? ", " : "", words);
	}
	check_add(it->checks, "fork.lengths", *it->lengths_fault ? CHECK_FAIL : CHECK_OK,
		*it->lengths_fault ? "It must be the same function at every length and in every call." : NULL,
		"%s%s%s", *it->lengths_fault ? it->lengths_fault : "", *it->lengths_fault ? "" : said.data,
		*it->lengths_fault ? "" : left_out.data);
	buffer_free(&said);
	buffer_free(&left_out);
	return 0;
}

/* --- state ------------------------------------------------------------------------------------------------ */

/* Another input, the first one again, and the other's numbers in the first one's place. */
static int check_state(struct inquiry *it, struct error *err)
{
	float *x = allocate(3 * SHORT, err), *other, *again;
	int result = -1;

	if (!x)
		return -1;
	other = x + numbers(SHORT);
	again = other + numbers(SHORT);
	fill(it, x, numbers(SHORT));
	if (probe_input(it->probe, "a", it->x, SHORT, err) < 0 ||
		probe_input(it->probe, "b", x, SHORT, err) < 0 ||
		call(it, "b", POISON_NONE, other, err) < 0 || call(it, "a", POISON_NONE, again, err) < 0)
		goto done;
	if (same(it, it->y, other, SHORT))
		blame(it->state_fault, sizeof(it->state_fault), "the same output comes back for another x");
	else if (!same(it, it->y, again, SHORT))
		blame(it->state_fault, sizeof(it->state_fault),
			"the output depends on the calls before it: another one comes back for the same x");
	if (probe_input(it->probe, "a", x, SHORT, err) < 0 || call(it, "a", POISON_NONE, again, err) < 0)
		goto done;
	if (!same(it, other, again, SHORT))
		blame(it->state_fault, sizeof(it->state_fault),
			same(it, it->y, again, SHORT)
				? "the output of the numbers that x held before comes back: it is remembered"
				: "the output depends on where x lies in memory");
	conclude(it, "fork.state", it->state_fault, "Every call must compute what it returns.",
		"the output depends on x and the parameters alone, whatever was called before");
	result = 0;
done:
	free(x);
	return result;
}

/* --- another name ----------------------------------------------------------------------------------------- */

static struct probe *open_probe(
	const struct inquiry *it, const char *script, bool elsewhere, struct error *err)
{
	const struct probe_options options = {
		.fork = it->plan->fork,
		.python = it->plan->python,
		.environment = it->plan->environment,
		.script = script,
		.gpu = it->plan->device->index,
		.seconds = PROBE_SECONDS,
		.elsewhere = elsewhere,
	};

	return probe_open(&options, err);
}

/* Under a name, in a place and with an environment that no validator has; up to its first output. */
static struct probe *open_elsewhere(struct inquiry *it, float *out, struct error *err)
{
	char script[32];
	struct probe *probe;

	snprintf(script, sizeof(script), "layer_%llx.py", (unsigned long long)it->plan->seed & 0xffffff);
	probe = open_probe(it, script, true, err);
	if (probe && probe_load(probe, err) == 0 &&
		(!it->weights || probe_load_weights(probe, it->weights, err) == 0) &&
		probe_input(probe, "a", it->x, SHORT, err) == 0 &&
		probe_call(probe, "a", SHORT, POISON_NONE, out, err) == 0)
		return probe;
	probe_close(probe);
	return NULL;
}

/* A call's seconds in each of two sessions, one after the other, so that neither has the machine to itself. */
static int compare_speed(struct inquiry *it, struct probe *elsewhere, double seconds[2], struct error *err)
{
	struct probe_timing timing = {.tokens = it->plan->tokens,
		.inputs = (const char *const[]){"a", NULL},
		.warmups = 1,
		.rounds = 3};
	struct probe *const probes[] = {it->probe, elsewhere};
	struct probe_times times;
	double ratio = INFINITY;

	timing.tokens = SHORT;
	timing.seconds = TIMED_SECONDS;
	timing.calls = it->plan->device->index < 0 ? 2 : 10;
	seconds[0] = seconds[1] = INFINITY;
	for (int attempt = 0; attempt < 3 && !(ratio < MOST_SPEEDUP); attempt++) {
		for (int i = 0; i < 2; i++) {
			if (probe_time(probes[i], &timing, &times, err) < 0)
				return -1;
			seconds[i] = fmin(seconds[i], fastest(&times));
		}
		ratio = fmax(seconds[0] / seconds[1], seconds[1] / seconds[0]);
	}
	return 0;
}

static int check_name(struct inquiry *it, struct error *err)
{
	float *out = allocate(SHORT, err);
	struct probe *elsewhere = out ? open_elsewhere(it, out, err) : NULL;
	char fault[200] = "";
	double seconds[2];
	int result = -1;

	if (elsewhere && compare_speed(it, elsewhere, seconds, err) == 0) {
		if (!same(it, it->y, out, SHORT))
			blame(fault, sizeof(fault),
				"under another name and in another place the output is another one");
		else if (seconds[0] > MOST_SPEEDUP * seconds[1] || seconds[1] > MOST_SPEEDUP * seconds[0])
			blame(fault, sizeof(fault),
				"a call takes %.3g s as a validator runs it, and %.3g s under another name and in "
				"another place",
				seconds[0], seconds[1]);
		conclude(it, "fork.name", fault, "Nothing may depend on who calls.",
			"the same under another name, in another place and without a validator's environment");
		result = 0;
	}
	probe_close(elsewhere);
	free(out);
	return result;
}

/* A fork that fails for a validator, and runs elsewhere, goes by the name. */
static int try_elsewhere(struct inquiry *it)
{
	struct error ignored;
	float *out = allocate(SHORT, &ignored);
	struct probe *probe = out ? open_elsewhere(it, out, &ignored) : NULL;

	if (probe)
		failed(it, "fork.name", "Nothing may depend on who calls.",
			"it runs under another name and in another place");
	probe_close(probe);
	free(out);
	return 0;
}

/* --- memory, gradients, and the clock --------------------------------------------------------------------- */

static int check_memory(struct inquiry *it, struct error *err)
{
	double outside;
	bool reset;
	char fault[200] = "", detail[160];

	if (it->plan->device->index < 0) {
		check_add(it->checks, "fork.memory", CHECK_SKIP, NULL,
			"PyTorch counts a GPU's memory only: look at it on a GPU");
		return 0;
	}
	if (probe_memory(it->probe, "a", &outside, &reset, err) < 0)
		return -1;
	snprintf(detail, sizeof(detail), "%.0f MiB of the GPU were taken past PyTorch's count (max %.0f)",
		outside, MOST_OUTSIDE_MB);
	if (outside > MOST_OUTSIDE_MB)
		blame(fault, sizeof(fault), "%s", detail);
	if (reset)
		blame(fault, sizeof(fault), "a call takes back the peak of PyTorch's count");
	conclude(it, "fork.memory", fault, "Validators read torch.cuda.max_memory_allocated().", detail);
	return 0;
}

/* The output's product with a direction, in fp64; NAN when memory runs out. */
static double product(struct inquiry *it, const float *x, const float *direction)
{
	const struct layer_call call = {.semantics = it->semantics, .batch = 1, .tokens = SHORTEST, .x = x};
	double *out = malloc(numbers(SHORTEST) * sizeof(*out)), sum = 0;
	struct error ignored;

	if (!out || layer_reference(expected_layer(it->expected), &call, out, &ignored) < 0)
		sum = NAN;
	for (size_t i = 0; isfinite(sum) && i < numbers(SHORTEST); i++)
		sum += out[i] * (double)direction[i];
	free(out);
	return sum;
}

/* Whether `gradient`, of `variable` which it moves, is how fast the product changes along it. */
static bool gradient_is_right(struct inquiry *it, float *variable, const float *gradient, size_t count,
	const float *x, const float *direction)
{
	float *before = malloc(count * sizeof(*before));
	double squares = 0, sizes = 0, step, slope = NAN;

	for (size_t i = 0; i < count; i++) {
		squares += (double)gradient[i] * (double)gradient[i];
		sizes += (double)variable[i] * (double)variable[i];
	}
	step = GRADIENT_STEP * sqrt(sizes / squares);
	if (before && squares > 0 && isfinite(squares)) {
		double values[2];

		memcpy(before, variable, count * sizeof(*before));
		for (int side = 0; side < 2; side++) {
			for (size_t i = 0; i < count; i++)
				variable[i] = before[i] +
					(float)((side ? step : -step) * (double)gradient[i]);
			values[side] = product(it, x, direction);
		}
		memcpy(variable, before, count * sizeof(*before));
		slope = (values[1] - values[0]) / (2 * step);
	}
	free(before);
	return fabs(slope - squares) <= GRADIENT_TOLERANCE * squares;
}

/* One of a file's gradients; false also when it is not there. */
static bool check_one_gradient(struct inquiry *it, const struct safetensors *file, const char *name,
	float *variable, size_t count, const float *x, const float *direction)
{
	float *gradient = malloc(count * sizeof(*gradient));
	struct error ignored;
	bool right = gradient && safetensors_read(file, name, gradient, count, &ignored) == 0 &&
		gradient_is_right(it, variable, gradient, count, x, direction);

	free(gradient);
	return right;
}

/* The gradients that are not there or wrong, by their names. */
static void find_wrong_gradients(struct inquiry *it, const struct safetensors *file, float *x,
	const float *direction, struct buffer *wrong)
{
	const char *name;
	size_t count;
	float *variable;

	for (int i = 0; (variable = layer_parameter(expected_layer(it->expected), i, &name, &count)); i++)
		if (!check_one_gradient(it, file, name, variable, count, x, direction))
			buffer_printf(wrong, "%s%s", wrong->length ? ", " : "", name);
	if (!check_one_gradient(it, file, "x", x, numbers(SHORTEST), x, direction))
		buffer_printf(wrong, "%sx", wrong->length ? ", " : "");
}

static int check_gradient(struct inquiry *it, struct error *err)
{
	float *x = allocate(2 * SHORTEST, err), *direction = x ? x + numbers(SHORTEST) : NULL;
	struct buffer wrong = {0};
	struct safetensors *file = NULL;
	const char *path;
	int result = -1;

	if (!it->found->function) {
		free(x);
		return 0; /* of what? */
	}
	if (x) {
		fill(it, x, 2 * numbers(SHORTEST));
		result = probe_input(it->probe, "short", x, SHORTEST, err);
	}
	if (!result)
		result = probe_gradients(it->probe, "short", SHORTEST, direction, &path, err);
	if (!result && !(file = safetensors_open(path, err)))
		result = error_set(err, STATUS_FAILED, "its process did not write the gradients");
	if (!result) {
		find_wrong_gradients(it, file, x, direction, &wrong);
		check_add(it->checks, "fork.gradient", wrong.length ? CHECK_WARN : CHECK_OK,
			wrong.length ? "Validators do not look at gradients; whoever trains with it does."
				     : NULL,
			wrong.length ? "zero or wrong: %s" : "those of x and of all parameters are right%s",
			wrong.length ? wrong.data : "");
	} else if (err->status == STATUS_FAILED) {
		check_add(it->checks, "fork.gradient", CHECK_WARN,
			"Validators do not look at gradients; whoever trains with it does.", "%s",
			err->message);
		result = 0;
	}
	safetensors_close(file);
	buffer_free(&wrong);
	free(x);
	return result;
}

/* What the rounds have shown, and what else would deceive a validator's clock. The session ends here. */
static int check_timing(struct inquiry *it, struct error *err)
{
	char *what;

	if (probe_replaced(it->probe, &what, err) < 0)
		return -1;
	if (*what)
		blame(it->timing_fault, sizeof(it->timing_fault), "it replaces %s", what);
	free(what);
	if (strcmp(probe_output_type(it->probe), "Tensor"))
		blame(it->timing_fault, sizeof(it->timing_fault),
			"it returns a %s, not a tensor: what is computed when that is read is not timed",
			probe_output_type(it->probe));
	if (probe_prints_results(it->probe))
		blame(it->timing_fault, sizeof(it->timing_fault),
			"it prints \"RESULT:\" itself, which validators take for what was measured");
	conclude(it, "fork.timing", it->timing_fault,
		"What is timed must be all of the work, and the clock must be left alone.",
		"the clocks agree, and nothing runs when they stop");
	return 0;
}

/* --- all of it ------------------------------------------------------------------------------------------ */

static int check_compile(struct inquiry *it, struct error *err)
{
	if (probe_compile(it->probe, err) < 0)
		return -1;
	passed(it, "fork.compile", "the layer and fla/ops/quasar/ are valid Python");
	return 0;
}

static int check_import(struct inquiry *it, struct error *err)
{
	if (probe_import(it->probe, err) < 0)
		return -1;
	passed(it, "fork.import", "fla.layers.quasar has a QuasarAttention");
	return 0;
}

static int check_construct(struct inquiry *it, struct error *err)
{
	if (probe_construct(it->probe, err) < 0)
		return -1;
	passed(it, "fork.construct", "it takes the arguments that validators give");
	return 0;
}

static int check_call(struct inquiry *it, struct error *err)
{
	struct probe_timing timing = {
		.tokens = SHORT, .inputs = (const char *const[]){"a", NULL}, .calls = 1, .rounds = 1};
	struct probe_times times;

	fill(it, it->x, numbers(SHORT));
	if (probe_save_weights(it->probe, &it->weights, err) < 0 ||
		probe_input(it->probe, "a", it->x, SHORT, err) < 0 ||
		call(it, "a", POISON_NONE, it->y, err) < 0 || probe_time(it->probe, &timing, &times, err) < 0)
		return -1;
	it->found->ran = true;
	it->seconds_per_token = fastest(&times) / SHORT;
	passed(it, "fork.call", "it returns a tensor of x's shape");
	return 0;
}

static int open_expected(struct inquiry *it, struct error *err)
{
	it->expected = expected_open(it->weights, it->plan->device, err);
	return it->expected ? check_reference(it, err) : -1;
}

struct step {
	const char *name;
	int (*run)(struct inquiry *it, struct error *err);
	bool essential; /* nothing comes of the others when this fails */
};

/* Runs them in their order. What fails in the fork fails the check. -1 for what is not the fork's fault. */
static int take_steps(struct inquiry *it, const struct step *steps, size_t count, struct error *err)
{
	for (size_t i = 0; i < count && probe_alive(it->probe); i++) {
		size_t failures = check_count(it->checks, CHECK_FAIL);

		if (steps[i].run(it, err) < 0) {
			if (err->status != STATUS_FAILED)
				return -1;
			if (!it->found->ran && probe_needs_gpu(it->probe)) {
				snprintf(it->found->why_not, sizeof(it->found->why_not),
					"it needs a GPU (%.200s)", err->message);
				check_add(it->checks, steps[i].name, CHECK_SKIP,
					"Run it on a machine with a GPU: --device cuda", "%s",
					it->found->why_not);
				return 0;
			}
			failed(it, steps[i].name,
				err->hint[0] ? err->hint : "Validators run it the same way.", err->message);
		}
		if (steps[i].essential && check_count(it->checks, CHECK_FAIL) > failures)
			return it->found->ran ? 0 : try_elsewhere(it);
	}
	return 0;
}

static const struct step steps[] = {
	{"fork.import", check_import, true},
	{"fork.construct", check_construct, true},
	{"fork.call", check_call, true},
	{"fork.finite", check_finite, true},
	{"fork.written", check_written, false},
	{"fork.repeat", check_repeat, false},
	{"fork.reference", open_expected, false},
	{"fork.inputs", check_inputs, false},
	{"fork.lengths", check_lengths, false},
	{"fork.state", check_state, false},
	{"fork.name", check_name, false},
	{"fork.memory", check_memory, false},
	{"fork.gradient", check_gradient, false},
	{"fork.timing", check_timing, true},
};

/* Opens the session; fork.compile. 1 when there is no Python, which is a check, too. */
static int begin(struct inquiry *it, const char *script, struct error *err)
{
	it->started = clock_elapsed();
	it->probe = open_probe(it, script, false, err);
	if (it->probe)
		return take_steps(it, &(const struct step){"fork.compile", check_compile, true}, 1, err);
	if (err->status != STATUS_ENVIRONMENT)
		return -1;
	snprintf(it->found->why_not, sizeof(it->found->why_not), "%.250s", err->message);
	check_problem(it->checks, "fork.compile", CHECK_SKIP, err);
	return 1;
}

int checks_compile(const struct checks_plan *plan, struct check_list *checks, struct error *err)
{
	struct checks_found found = {0};
	struct inquiry it = {.plan = plan, .checks = checks, .found = &found};
	int result = begin(&it, "compile.py", err);

	probe_close(it.probe);
	return result < 0 ? -1 : 0;
}

/* All that needs PyTorch. */
static int run_layer(struct inquiry *it, struct error *err)
{
	if (probe_start_torch(it->probe, err) < 0) {
		if (err->status != STATUS_ENVIRONMENT)
			return -1;
		snprintf(it->found->why_not, sizeof(it->found->why_not), "%.250s", err->message);
		check_problem(it->checks, "fork.import", CHECK_SKIP, err);
		return 0;
	}
	snprintf(it->found->torch, sizeof(it->found->torch), "%s", probe_torch(it->probe));
	return take_steps(it, steps, sizeof(steps) / sizeof(*steps), err);
}

int checks_run(const struct checks_plan *plan, struct check_list *checks, struct checks_found *found,
	struct error *err)
{
	struct inquiry it = {.plan = plan, .checks = checks, .found = found, .worst_cosine = 1};
	size_t failures = check_count(checks, CHECK_FAIL);
	char script[64];
	int result;

	*found = (struct checks_found){0};
	snprintf(script, sizeof(script), PROBE_SCRIPT, (long long)plan->tokens);
	it.x = allocate(2 * SHORT, err);
	if (!it.x)
		return -1;
	it.y = it.x + numbers(SHORT);
	result = begin(&it, script, err);
	if (!result && check_count(checks, CHECK_FAIL) == failures)
		result = run_layer(&it, err);
	expected_close(it.expected);
	probe_close(it.probe);
	free(it.x);
	return result < 0 ? -1 : 0;
}
