/* outputs: every output of an operation on a GPU against its fp64 reference. After cmocka.h. */
#pragma once

#include <stdlib.h>

#include "base/memory.h"
#include "measure/fixture.h"
#include "tensor/compare.h"
#include "tests/gpu/gpu.h"

/* What a tensor may be off by, by its norm. */
typedef double tolerance_function(const struct fixture_plan *plan, const char *tensor);

static inline void compare_output(const struct fixture *made, int tensor, const char *elements,
	const double *expected, tolerance_function *tolerance)
{
	const struct fixture_plan *plan = &made->plan;
	enum dtype dtype = made->problem.tensors[tensor].dtype;
	size_t count = made->count[tensor];
	float *values = xmalloc(count * sizeof(*values));
	struct comparison found;
	char function[64];

	for (size_t i = 0; i < count; i++)
		values[i] = dtype_load(elements, dtype, (int64_t)i);
	found = compare_float_double(values, expected, count);
	family_options_format(plan->family, plan->options, function, sizeof(function));
	if (!comparison_agrees(&found, 0, tolerance(plan, plan->family->tensors[tensor].name)))
		fail_msg(
			"%s of %s (%s), B%lld T%lld H%d K%d V%d %s layout %d: cosine %.7f, relative error %.2e%s",
			plan->family->tensors[tensor].name, plan->family->name, function,
			(long long)plan->shape.batch, (long long)plan->shape.tokens, plan->shape.heads,
			plan->shape.key_dim, plan->shape.value_dim, dtype_name(plan->dtype),
			(int)plan->layout, found.cosine, found.relative_error,
			found.finite ? "" : ", not finite");
	free(values);
}

/* Runs on outputs filled with NaN; `outputs` gets what came out. */
static inline void run_poisoned(
	const struct fixture *made, const struct config *config, char *outputs[FAMILY_TENSORS])
{
	const struct family *family = made->plan.family;
	struct error err;

	must(fixture_poison(made, &err), &err);
	must(device.operate(&device, family, &made->problem, config, &err), &err);
	for (int i = 0; family->tensors[i].name; i++) {
		size_t bytes = made->count[i] * dtype_size(made->problem.tensors[i].dtype);

		if (!tensor_is_output(&family->tensors[i]) || !made->memory[i])
			continue;
		outputs[i] = xmalloc(bytes);
		must(fixture_download(made, i, outputs[i], &err), &err);
	}
}

/* Every output in a configuration (NULL: the usual one), and that a second run gives the same bits. */
static inline void check_outputs(
	const struct fixture_plan *plan, const struct config *config, tolerance_function *tolerance)
{
	char *first[FAMILY_TENSORS] = {0}, *second[FAMILY_TENSORS] = {0};
	double *expected[FAMILY_TENSORS] = {0};
	struct fixture made;
	struct error err;

	must(fixture_make(&made, &device, plan, &err), &err);
	run_poisoned(&made, config, first);
	run_poisoned(&made, config, second);
	for (int i = 0; i < FAMILY_TENSORS; i++)
		if (first[i])
			expected[i] = xmalloc(made.count[i] * sizeof(double));
	must(device.reference(&device, plan->family, &made.problem, expected, &err), &err);
	for (int i = 0; i < FAMILY_TENSORS; i++) {
		if (!first[i])
			continue;
		compare_output(&made, i, first[i], expected[i], tolerance);
		assert_memory_equal(
			first[i], second[i], made.count[i] * dtype_size(made.problem.tensors[i].dtype));
		free(first[i]);
		free(second[i]);
		free(expected[i]);
	}
	fixture_free(&made);
}
