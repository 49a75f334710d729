#include "probe/inquiry.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "layer/layer.h"
#include "tensor/random.h"

/* An honest fork rounds to bf16 at every step: a cosine of 0.99997 and a relative error of 0.8 % remain, of a token 0.998;
 * one that keeps more of its sums in bf16 stays well within these. */
#define LEAST_COSINE 0.999
#define LEAST_TOKEN_COSINE 0.95
#define MOST_RELATIVE_ERROR 0.05

#define FP64_SHARE 0.1 /* of the budget, for one reference */

double inquiry_time_left(const struct inquiry *it)
{
	return it->plan->budget - (clock_elapsed() - it->started);
}

size_t inquiry_numbers(int64_t tokens)
{
	return (size_t)tokens * LAYER_HIDDEN;
}

float *inquiry_allocate(int64_t tokens, struct error *err)
{
	float *memory = malloc(inquiry_numbers(tokens) * sizeof(*memory));

	if (!memory)
		error_set(
			err, STATUS_ENVIRONMENT, "not enough memory to check %lld tokens", (long long)tokens);
	return memory;
}

void inquiry_fill(struct inquiry *it, float *x, size_t count)
{
	random_normal(it->plan->seed, it->stream++, 1, x, count);
}

bool inquiry_agree(const struct inquiry *it, const struct comparison *pair)
{
	return pair->finite && pair->cosine >= it->plan->repeat_cosine &&
		pair->max_difference <= it->plan->repeat_difference;
}

bool inquiry_same(const struct inquiry *it, const float *a, const float *b, int64_t tokens)
{
	struct comparison pair = compare_float(a, b, inquiry_numbers(tokens));

	return inquiry_agree(it, &pair);
}

void inquiry_passed(struct inquiry *it, const char *name, const char *detail)
{
	check_add(it->checks, name, CHECK_OK, NULL, "%s", detail);
}

void inquiry_failed(struct inquiry *it, const char *name, const char *remedy, const char *detail)
{
	check_add(it->checks, name, CHECK_FAIL, remedy, "%s", detail);
}

void inquiry_conclude(
	struct inquiry *it, const char *name, const char *fault, const char *remedy, const char *detail)
{
	if (*fault)
		inquiry_failed(it, name, remedy, fault);
	else
		inquiry_passed(it, name, detail);
}

void inquiry_blame(char *fault, size_t size, const char *format, ...)
{
	va_list arguments;

	if (*fault)
		return;
	va_start(arguments, format);
	vsnprintf(fault, size, format, arguments);
	va_end(arguments);
}

int inquiry_call(struct inquiry *it, const char *input, enum poison poison, float *out, struct error *err)
{
	return probe_call(it->probe, input, SHORT, (int)poison, out, err);
}

double inquiry_fastest(const struct probe_times *times)
{
	double least = INFINITY;

	for (int i = 0; i < times->rounds; i++)
		least = fmin(least, fmax(times->process[i], times->own[i]));
	return least / times->calls;
}

struct closeness inquiry_hold_against(const float *out, const double *reference, int64_t tokens)
{
	double worst = 1;

#pragma omp parallel for reduction(min : worst)
	for (int64_t token = 0; token < tokens; token++)
		worst = fmin(worst,
			compare_float_double(out + inquiry_numbers(token), reference + inquiry_numbers(token),
				LAYER_HIDDEN)
				.cosine);
	return (struct closeness){compare_float_double(out, reference, inquiry_numbers(tokens)), worst};
}

bool inquiry_is_close(const struct closeness *found)
{
	return found->all.finite && found->all.cosine >= LEAST_COSINE &&
		found->all.relative_error <= MOST_RELATIVE_ERROR && found->token_cosine >= LEAST_TOKEN_COSINE;
}

int inquiry_expect(struct inquiry *it, enum semantics semantics, const float *x, int64_t tokens,
	struct expected_output *expected, struct error *err)
{
	return expected_find(
		it->expected, semantics, x, tokens, it->plan->budget * FP64_SHARE, expected, err);
}

double inquiry_expect_seconds(const struct inquiry *it, int64_t tokens)
{
	return expected_seconds(it->expected, tokens, it->plan->budget * FP64_SHARE);
}

static struct probe *open_as(const struct inquiry *it, const char *script, bool elsewhere, struct error *err)
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

struct probe *inquiry_open_probe(const struct inquiry *it, const char *script, struct error *err)
{
	return open_as(it, script, false, err);
}

struct probe *inquiry_open_probe_elsewhere(const struct inquiry *it, struct error *err)
{
	char script[32];

	snprintf(script, sizeof(script), "layer_%llx.py", (unsigned long long)it->plan->seed & 0xffffff);
	return open_as(it, script, true, err);
}

struct probe *inquiry_load_elsewhere(struct inquiry *it, struct error *err)
{
	if (it->loaded_elsewhere)
		return it->elsewhere;
	if (!it->elsewhere && !(it->elsewhere = inquiry_open_probe_elsewhere(it, err)))
		return NULL;
	probe_limit(it->elsewhere, PROBE_SECONDS);
	if (probe_load(it->elsewhere, err) < 0 ||
		(it->weights && probe_load_weights(it->elsewhere, it->weights, err) < 0))
		return NULL;
	it->loaded_elsewhere = true;
	return it->elsewhere;
}
