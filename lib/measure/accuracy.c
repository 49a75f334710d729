#include "measure/accuracy.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "layer/layer.h"
#include "measure/fixture.h"
#include "tensor/compare.h"

#define RUNS 3

/* What the fp64 reference allows: bf16's own rounding leaves a cosine of 0.99999 and better for an operation, and of
 * 0.9999 for the layer, which rounds at every step. */
#define LAYER_COSINE 0.999
#define REFERENCE_RELATIVE_ERROR 0.02

struct outputs {
	uint16_t *runs[RUNS]; /* bf16 */
	double *reference;
	size_t count;
};

static int outputs_allocate(struct outputs *outputs, size_t count, struct error *err)
{
	outputs->count = count;
	outputs->reference = malloc(count * sizeof(*outputs->reference));
	for (int i = 0; i < RUNS; i++)
		outputs->runs[i] = malloc(count * sizeof(uint16_t));
	if (!outputs->reference || !outputs->runs[0] || !outputs->runs[1] || !outputs->runs[2])
		return error_set(err, STATUS_ENVIRONMENT, "not enough memory to check %zu numbers", count);
	for (int i = 0; i < RUNS; i++)
		for (size_t n = 0; n < count; n++)
			outputs->runs[i][n] = FIXTURE_POISON;
	return 0;
}

static void outputs_free(struct outputs *outputs)
{
	free(outputs->reference);
	for (int i = 0; i < RUNS; i++)
		free(outputs->runs[i]);
}

/* Where checks go: "op" or "layer" stands before their names, the suffix behind. */
struct report {
	struct check_list *checks;
	const struct accuracy_plan *plan;
	const char *what, *function; /* "op", "upstream" */
};

static void add(
	const struct report *report, const char *name, bool passed, const char *remedy, const char *detail)
{
	char *full = xprintf("%s.%s%s", report->what, name, report->plan->suffix);

	check_add(report->checks, full, passed ? CHECK_OK : CHECK_FAIL, passed ? NULL : remedy, "%s", detail);
	free(full);
}

static void judge_values(const struct outputs *outputs, const struct report *report)
{
	size_t infinite = 0, unwritten = 0, total = RUNS * outputs->count;
	char detail[160];

	for (int run = 0; run < RUNS; run++)
		for (size_t i = 0; i < outputs->count; i++) {
			uint16_t value = outputs->runs[run][i];

			unwritten += value == FIXTURE_POISON;
			infinite += value != FIXTURE_POISON && (value & 0x7f80) == 0x7f80;
		}
	snprintf(detail, sizeof(detail), "%zu of %zu outputs are NaN or infinite", infinite, total);
	add(report, "finite", !infinite, "Look for a division by zero or an overflow.", detail);
	snprintf(detail, sizeof(detail), "%zu of %zu outputs were never written", unwritten, total);
	add(report, "written", !unwritten, "Every element of the output must be written.", detail);
}

static void judge_repeat(const struct outputs *outputs, const struct report *report)
{
	const struct accuracy_plan *plan = report->plan;
	double cosine = INFINITY, difference = 0;
	bool finite = true;
	char detail[160];

	for (int i = 0; i < RUNS; i++)
		for (int j = 0; j < i; j++) {
			struct comparison pair = compare_bf16(
				outputs->runs[i], outputs->runs[j], outputs->count);

			finite &= pair.finite;
			cosine = fmin(cosine, pair.cosine);
			difference = fmax(difference, pair.max_difference);
		}
	snprintf(detail, sizeof(detail), "%d runs: cosine %.6f (min %g), difference %.3g (max %g)", RUNS,
		cosine, plan->repeat_cosine, difference, plan->repeat_difference);
	add(report, "repeat",
		finite && cosine >= plan->repeat_cosine && difference <= plan->repeat_difference,
		"The same input must give the same output: look for a race or uninitialised memory.", detail);
}

static void judge_reference(const struct outputs *outputs, const struct report *report, double least_cosine)
{
	const struct accuracy_plan *plan = report->plan;
	struct comparison found = compare_bf16_double(outputs->runs[0], outputs->reference, outputs->count);
	char detail[200];

	snprintf(detail, sizeof(detail),
		"against fp64, %s, %lld tokens: cosine %.7f (min %g), relative error %.2g (max %g), "
		"difference %.3g",
		report->function, (long long)plan->tokens, found.cosine, least_cosine, found.relative_error,
		REFERENCE_RELATIVE_ERROR, found.max_difference);
	add(report, "reference", comparison_agrees(&found, least_cosine, REFERENCE_RELATIVE_ERROR),
		"It computes a different function from these semantics, or loses precision.", detail);
}

static void judge(const struct outputs *outputs, const struct report *report, double least_cosine)
{
	judge_values(outputs, report);
	judge_repeat(outputs, report);
	judge_reference(outputs, report, least_cosine);
}

/* The outputs of an operation, each under a name of its own if there are several. */
static void judge_each(const struct fixture *fixture, const struct outputs *all,
	const struct accuracy_plan *plan, struct check_list *checks)
{
	const struct family *family = plan->family;
	const char *name = family == families[0] ? "op" : family->name;
	char function[64];
	size_t at = 0;

	family_options_format(family, plan->options, function, sizeof(function));
	for (int i = 0; family->tensors[i].name; i++) {
		struct outputs one = {.reference = all->reference + at, .count = fixture->count[i]};
		char *what;

		if (family->tensors[i].role != TENSOR_OUTPUT)
			continue;
		for (int run = 0; run < RUNS; run++)
			one.runs[run] = all->runs[run] + at;
		what = one.count == all->count ? xstrdup(name)
					       : xprintf("%s.%s", name, family->tensors[i].name);
		judge(&one, &(struct report){checks, plan, what, function}, family->least_cosine);
		free(what);
		at += one.count;
	}
}

double accuracy_memory(int64_t tokens)
{
	/* x twice, an output, three of them, the reference, and inside of that x, a projection, o, q, k and v */
	double bytes = LAYER_HIDDEN * (2 * 4 + 2 + 3 * 2 + 8 + 3 * 8 + 3 * 4.0);

	return 64 + bytes * (double)tokens / (1 << 20);
}

int accuracy_op(const struct device *device, const struct accuracy_plan *plan, struct check_list *checks,
	struct error *err)
{
	const struct family *family = plan->family;
	struct fixture_plan wanted = {
		.family = family,
		.shape = fixture_shape(plan->tokens),
		.dtype = DTYPE_BF16,
		.seed = plan->seed,
	};
	struct outputs outputs = {0};
	struct fixture fixture;
	double *results[FAMILY_TENSORS] = {0};
	int result;

	memcpy(wanted.options, plan->options, sizeof(wanted.options));
	result = fixture_make(&fixture, device, &wanted, err);
	if (!result)
		result = outputs_allocate(&outputs, fixture_outputs(&fixture), err);
	for (int run = 0; run < RUNS && !result; run++) {
		result = fixture_poison(&fixture, err);
		if (!result)
			result = device->operate(device, family, &fixture.problem, NULL, err);
		if (!result)
			result = fixture_download_outputs(&fixture, outputs.runs[run], err);
	}
	if (!result && interrupted())
		result = error_set(err, STATUS_INTERRUPTED, "interrupted");
	fixture_place_results(&fixture, outputs.reference, results);
	if (!result)
		result = device->reference(device, family, &fixture.problem, results, err);
	if (!result)
		judge_each(&fixture, &outputs, plan, checks);
	outputs_free(&outputs);
	fixture_free(&fixture);
	return result;
}

int accuracy_layer(const struct device *device, const struct accuracy_plan *plan, struct check_list *checks,
	struct error *err)
{
	struct layer_fixture it;
	struct outputs outputs = {0};
	struct layer_call call = {.semantics = plan->semantics, .batch = 1, .tokens = plan->tokens};
	int result = layer_fixture_make(&it, device, plan->weights, plan->seed, plan->tokens, err);
	size_t bytes = it.count * sizeof(*it.out);
	float *x = NULL;

	if (!result)
		result = outputs_allocate(&outputs, it.count, err);
	call.x = it.x;
	call.out = it.out;
	for (int run = 0; run < RUNS && !result; run++) {
		/* the poison that the runs were filled with */
		result = device->upload(device, it.out, outputs.runs[run], bytes, err);
		if (!result)
			result = device->layer(device, it.placed, &call, err);
		if (!result)
			result = device->download(device, outputs.runs[run], it.out, bytes, err);
	}
	if (!result) {
		x = malloc(it.count * sizeof(*x));
		result = x ? device->download(device, x, it.x, it.count * sizeof(*x), err)
			   : error_set(err, STATUS_ENVIRONMENT, "not enough memory for %lld tokens",
				     (long long)plan->tokens);
	}
	call.x = x;
	if (!result)
		result = layer_reference(it.layer, &call, outputs.reference, err);
	if (!result)
		judge(&outputs, &(struct report){checks, plan, "layer", semantics_name(plan->semantics)},
			LAYER_COSINE);
	outputs_free(&outputs);
	free(x);
	layer_fixture_free(&it);
	return result;
}
