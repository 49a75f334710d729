/* Is what a call returns all there, the right numbers, and made of all that it should be made of? */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layer/layer.h"
#include "probe/inquiry.h"

#define MOST_UNPOISONED 1e30 /* outputs beyond it are the poison, not the layer's */
#define LEAST_CHANGE 1e-3    /* of an output, relative, when something that it depends on changes */

/* --- values and repetition -------------------------------------------------------------------------- */

int check_finite(struct inquiry *it, struct error *err)
{
	size_t count = inquiry_numbers(SHORT), bad = 0;
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
int check_written(struct inquiry *it, struct error *err)
{
	float *huge = inquiry_allocate(2 * SHORT, err),
	      *negative = huge ? huge + inquiry_numbers(SHORT) : NULL;
	size_t count = inquiry_numbers(SHORT), bad = 0;
	char detail[160];
	int result = -1;

	if (huge && inquiry_call(it, "a", POISON_HUGE, huge, err) == 0 &&
		inquiry_call(it, "a", POISON_NEGATIVE, negative, err) == 0) {
		for (size_t i = 0; i < count; i++)
			bad += fabsf(huge[i] - negative[i]) > (float)it->plan->repeat_difference ||
				(isfinite(it->y[i]) && !(fabsf(huge[i]) < MOST_UNPOISONED));
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

int check_repeat(struct inquiry *it, struct error *err)
{
	float *runs[3] = {it->y, inquiry_allocate(2 * SHORT, err)};
	double cosine = INFINITY, difference = 0;
	bool good = true;
	char detail[160];
	int result = -1;

	runs[2] = runs[1] ? runs[1] + inquiry_numbers(SHORT) : NULL;
	if (runs[1] && inquiry_call(it, "a", POISON_NONE, runs[1], err) == 0 &&
		inquiry_call(it, "a", POISON_NONE, runs[2], err) == 0) {
		for (int i = 0; i < 3; i++)
			for (int j = 0; j < i; j++) {
				struct comparison pair = compare_float(
					runs[i], runs[j], inquiry_numbers(SHORT));

				good &= inquiry_agree(it, &pair);
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
	size_t at = inquiry_numbers(token);

	return compare_float(a + at, b + at, LAYER_HIDDEN).relative_error > LEAST_CHANGE;
}

/* The output for x, of SHORTEST tokens. */
static int call_short(struct inquiry *it, const float *x, float *out, struct error *err)
{
	if (probe_input(it->probe, "short", x, SHORTEST, err) < 0)
		return -1;
	return probe_call(it->probe, "short", SHORTEST, POISON_NONE, out, err);
}

/* Changes x at one token at a time, of SHORTEST. Counts the tokens whose own outputs do not change with them.
 * *spread: whether any other token's did. */
static int change_tokens(struct inquiry *it, int *ignored, bool *spread, struct error *err)
{
	float *x = inquiry_allocate(3 * SHORTEST, err), *before, *after;
	int result;

	if (!x)
		return -1;
	before = x + inquiry_numbers(SHORTEST);
	after = before + inquiry_numbers(SHORTEST);
	inquiry_fill(it, x, inquiry_numbers(SHORTEST));
	result = call_short(it, x, before, err);
	for (int64_t token = 0; !result && token < SHORTEST; token++) {
		inquiry_fill(it, x + inquiry_numbers(token), LAYER_HIDDEN);
		result = call_short(it, x, after, err);
		if (result)
			break;
		*ignored += !token_changed(before, after, token);
		for (int64_t other = 0; other < SHORTEST && !*spread; other++)
			*spread = other != token && token_changed(before, after, other);
		memcpy(before, after, inquiry_numbers(SHORTEST) * sizeof(*before));
	}
	free(x);
	return result;
}

/* Which parameters do nothing, by their names; "" when all do. Negated and back is bit for bit what it was. */
static int find_idle(struct inquiry *it, struct buffer *idle, struct error *err)
{
	float *out = inquiry_allocate(SHORT, err);
	const char *name;
	size_t count;
	int result = out ? 0 : -1;

	for (int i = 0; !result && layer_parameter(expected_layer(it->expected), i, &name, &count); i++) {
		result = probe_negate(it->probe, name, err);
		if (!result)
			result = inquiry_call(it, "a", POISON_NONE, out, err);
		if (!result)
			result = probe_negate(it->probe, name, err);
		if (!result &&
			!(compare_float(it->y, out, inquiry_numbers(SHORT)).relative_error > LEAST_CHANGE))
			buffer_printf(idle, "%s%s", idle->length ? ", " : "", name);
	}
	free(out);
	return result;
}

int check_inputs(struct inquiry *it, struct error *err)
{
	struct buffer idle = {0};
	int ignored = 0, result;
	bool spread = false;
	char fault[300] = "";

	result = change_tokens(it, &ignored, &spread, err);
	if (!result && it->expected) /* else its parameters are others */
		result = find_idle(it, &idle, err);
	if (ignored)
		inquiry_blame(fault, sizeof(fault), "the output does not change with x at %d of %d tokens",
			ignored, SHORTEST);
	if (!spread)
		inquiry_blame(fault, sizeof(fault), "an output depends on its own token only");
	if (idle.length)
		inquiry_blame(fault, sizeof(fault), "the output does not change with %s", idle.data);
	if (!result)
		inquiry_conclude(it, "fork.inputs", fault,
			"Every token and every parameter must have its effect.",
			"the output changes with x at every token, and with every parameter");
	buffer_free(&idle);
	return result;
}

/* --- against the reference -------------------------------------------------------------------------- */

int check_reference(struct inquiry *it, struct error *err)
{
	struct expected_output expected;
	struct closeness found[2];
	char detail[300];
	bool right;

	it->expected = expected_open(it->weights, it->plan->device, err);
	if (!it->expected)
		return -1;
	for (int i = 0; i < 2; i++) {
		int result = inquiry_expect(it, (enum semantics)i, it->x, SHORT, &expected, err);

		if (!result)
			found[i] = inquiry_hold_against(it->y, expected.numbers, SHORT);
		free(expected.numbers);
		if (result)
			return -1;
		if (inquiry_is_close(&found[i])) {
			it->semantics = (enum semantics)i;
			it->found->function = semantics_name(it->semantics);
			break;
		}
	}
	if (it->found->function)
		snprintf(detail, sizeof(detail),
			"computes %s: cosine %.5f, relative error %.2g, worst token %.4f, against %s at %d tokens",
			it->found->function, found[it->semantics].all.cosine,
			found[it->semantics].all.relative_error, found[it->semantics].token_cosine,
			expected.from, SHORT);
	else
		snprintf(detail, sizeof(detail),
			"computes neither function: cosine %.4f to causal, %.4f to upstream, worst token %.2f and "
			"%.2f, against %s at %d tokens",
			found[SEMANTICS_CAUSAL].all.cosine, found[SEMANTICS_UPSTREAM].all.cosine,
			found[SEMANTICS_CAUSAL].token_cosine, found[SEMANTICS_UPSTREAM].token_cosine,
			expected.from, SHORT);
	right = it->found->function && (!it->plan->wanted || *it->plan->wanted == it->semantics);
	inquiry_conclude(it, "fork.reference", right ? "" : detail,
		it->found->function ? "It is right, but not the function that --semantics asks for."
				    : "docs/math.md has both functions.",
		detail);
	return 0;
}
