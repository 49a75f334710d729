#include "measure/accuracy.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "tensor/compare.h"
#include "layer/layer.h"
#include "tensor/random.h"

#define RUNS 3

/* A NaN that no arithmetic makes: where it is still found, nothing was written. */
#define POISON 0x7fa5

/* What the fp64 reference allows: bf16's own rounding leaves a cosine of 0.99999 and better for the
 * operation, and of 0.9999 for the layer, which rounds at every step. */
#define OP_COSINE 0.9999
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
			outputs->runs[i][n] = POISON;
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
	const char *what;
};

static void add(const struct report *report, const char *name, bool passed, const char *remedy,
	const char *detail)
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

			unwritten += value == POISON;
			infinite += value != POISON && (value & 0x7f80) == 0x7f80;
		}
	snprintf(detail, sizeof(detail), "%zu of %zu outputs are NaN or infinite", infinite, total);
	add(report, "finite", !infinite, "Look for a division by zero or an overflow.", detail);
	snprintf(detail, sizeof(detail), "%zu of %zu outputs were never written", unwritten, total);
	add(report, "written", !unwritten, "Every element of the output has to be computed.", detail);
}

static void judge_repeat(const struct outputs *outputs, const struct report *report)
{
	const struct accuracy_plan *plan = report->plan;
	double cosine = INFINITY, difference = 0;
	bool finite = true;
	char detail[160];

	for (int i = 0; i < RUNS; i++)
		for (int j = 0; j < i; j++) {
			struct comparison pair =
				compare_bf16(outputs->runs[i], outputs->runs[j], outputs->count);

			finite &= pair.finite;
			cosine = fmin(cosine, pair.cosine);
			difference = fmax(difference, pair.max_difference);
		}
	snprintf(detail, sizeof(detail), "%d runs: cosine %.6f (least %g), difference %.3g (most %g)", RUNS,
		cosine, plan->repeat_cosine, difference, plan->repeat_difference);
	add(report, "repeat",
		finite && cosine >= plan->repeat_cosine && difference <= plan->repeat_difference,
		"The same input has to give the same output: look for a race or unwritten memory.", detail);
}

static void judge_reference(const struct outputs *outputs, const struct report *report, double least_cosine)
{
	const struct accuracy_plan *plan = report->plan;
	struct comparison found =
		compare_bf16_double(outputs->runs[0], outputs->reference, outputs->count);
	char detail[200];

	snprintf(detail, sizeof(detail),
		"against fp64, %s, %lld tokens: cosine %.7f (least %g), relative error %.2g (most %g), "
		"difference %.3g",
		semantics_name(plan->semantics), (long long)plan->tokens, found.cosine, least_cosine,
		found.relative_error, REFERENCE_RELATIVE_ERROR, found.max_difference);
	add(report, "reference",
		found.finite && found.cosine >= least_cosine &&
			found.relative_error <= REFERENCE_RELATIVE_ERROR,
		"It computes another function than these semantics say, or loses precision.", detail);
}

static void judge(const struct outputs *outputs, const struct report *report, double least_cosine)
{
	judge_values(outputs, report);
	judge_repeat(outputs, report);
	judge_reference(outputs, report, least_cosine);
}

double accuracy_memory(int64_t tokens)
{
	/* x twice, an output, three of them, the reference, and inside of that x, a projection, o, q, k and v */
	double bytes = LAYER_HIDDEN * (2 * 4 + 2 + 3 * 2 + 8 + 3 * 8 + 3 * 4.0);

	return 64 + bytes * (double)tokens / (1 << 20);
}

/* The tensors of an operation on a device; freed with release_problem, also when this fails. */
static int prepare_problem(const struct device *device, const struct accuracy_plan *plan,
	struct quasar_problem *problem, struct error *err)
{
	size_t count = (size_t)plan->tokens * LAYER_HEADS * LAYER_DIM, bytes = count * sizeof(uint16_t);
	struct tensor *inputs[] = {&problem->q, &problem->k, &problem->v};
	float beta[LAYER_HEADS];
	uint16_t *values = malloc(bytes);
	int result = 0;

	if (!values)
		return error_set(err, STATUS_ENVIRONMENT, "not enough memory for %lld tokens",
			(long long)plan->tokens);
	for (uint64_t i = 0; i < 3 && !result; i++) {
		*inputs[i] = tensor_contiguous(device->allocate(bytes, err), DTYPE_BF16, plan->tokens,
			LAYER_HEADS, LAYER_DIM);
		random_normal_bf16(plan->seed, 200 + i, 1, values, count);
		result = inputs[i]->data ? device->upload(inputs[i]->data, values, bytes, err) : -1;
	}
	free(values);
	if (result)
		return -1;
	problem->o = tensor_contiguous(
		device->allocate(bytes, err), DTYPE_BF16, plan->tokens, LAYER_HEADS, LAYER_DIM);
	problem->beta = device->allocate(sizeof(beta), err);
	if (!problem->o.data || !problem->beta)
		return -1;
	random_uniform(plan->seed, 203, 0.7f, 2.8f, beta, LAYER_HEADS);
	return device->upload((void *)problem->beta, beta, sizeof(beta), err);
}

static void release_problem(const struct device *device, struct quasar_problem *problem)
{
	device->release(problem->q.data);
	device->release(problem->k.data);
	device->release(problem->v.data);
	device->release(problem->o.data);
	device->release((void *)problem->beta);
}

int accuracy_op(const struct device *device, const struct accuracy_plan *plan, struct check_list *checks,
	struct error *err)
{
	size_t count = (size_t)plan->tokens * LAYER_HEADS * LAYER_DIM, bytes = count * sizeof(uint16_t);
	struct outputs outputs = {0};
	struct quasar_problem problem = {
		.semantics = plan->semantics,
		.batch = 1,
		.tokens = plan->tokens,
		.heads = LAYER_HEADS,
		.dim = LAYER_DIM,
	};
	int result = outputs_allocate(&outputs, count, err);

	result = result ? result : prepare_problem(device, plan, &problem, err);
	for (int run = 0; run < RUNS && !result; run++) {
		/* the poison that the runs were filled with */
		result = device->upload(problem.o.data, outputs.runs[run], bytes, err);
		result = result ? result : device->quasar(&problem, err);
		result = result ? result : device->download(outputs.runs[run], problem.o.data, bytes, err);
	}
	if (!result && interrupted())
		result = error_set(err, STATUS_INTERRUPTED, "interrupted");
	result = result ? result : device->reference(&problem, outputs.reference, err);
	if (!result)
		judge(&outputs, &(struct report){checks, plan, "op"}, OP_COSINE);
	outputs_free(&outputs);
	release_problem(device, &problem);
	return result;
}

/* A layer on a device, its input in both places. */
struct placed_layer {
	struct layer *layer;
	void *placed;
	float *host_x, *x;
	uint16_t *out;
	size_t count; /* numbers of x, and of out */
};

/* Freed with release_layer, also when this fails. */
static int prepare_layer(const struct device *device, const struct accuracy_plan *plan, struct placed_layer *it,
	struct error *err)
{
	size_t bytes;

	it->layer = plan->weights ? layer_load(plan->weights, err)
				  : layer_random(LAYER_HIDDEN, LAYER_HEADS, LAYER_DIM, plan->seed, err);
	it->placed = it->layer ? device->layer_place(it->layer, err) : NULL;
	if (!it->placed)
		return -1;
	it->count = (size_t)plan->tokens * (size_t)it->layer->hidden;
	bytes = it->count * sizeof(*it->x);
	it->host_x = malloc(bytes);
	if (!it->host_x)
		return error_set(err, STATUS_ENVIRONMENT, "not enough memory for %lld tokens",
			(long long)plan->tokens);
	random_normal(plan->seed, 202, 1, it->host_x, it->count);
	it->x = device->allocate(bytes, err);
	it->out = it->x ? device->allocate(it->count * sizeof(*it->out), err) : NULL;
	return it->out ? device->upload(it->x, it->host_x, bytes, err) : -1;
}

static void release_layer(const struct device *device, struct placed_layer *it)
{
	device->release(it->x);
	device->release(it->out);
	device->layer_remove(it->placed);
	layer_free(it->layer);
	free(it->host_x);
}

int accuracy_layer(const struct device *device, const struct accuracy_plan *plan, struct check_list *checks,
	struct error *err)
{
	struct placed_layer it = {0};
	struct outputs outputs = {0};
	struct layer_call call = {.semantics = plan->semantics, .batch = 1, .tokens = plan->tokens};
	int result = prepare_layer(device, plan, &it, err);
	size_t bytes = it.count * sizeof(*it.out);

	result = result ? result : outputs_allocate(&outputs, it.count, err);
	call.x = it.x;
	call.out = it.out;
	for (int run = 0; run < RUNS && !result; run++) {
		/* the poison that the runs were filled with */
		result = device->upload(it.out, outputs.runs[run], bytes, err);
		result = result ? result : device->layer(it.placed, &call, err);
		result = result ? result : device->download(outputs.runs[run], it.out, bytes, err);
	}
	call.x = it.host_x;
	result = result ? result : layer_reference(it.layer, &call, outputs.reference, err);
	if (!result)
		judge(&outputs, &(struct report){checks, plan, "layer"}, LAYER_COSINE);
	outputs_free(&outputs);
	release_layer(device, &it);
	return result;
}
