/* slope: whether the fp64 reference of a gradient is the slope of its operation's, by finite differences. Include after
 * cmocka.h. */
#pragma once

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "measure/fixture.h"

/* A gradient's fixture, and the loss that it is of: Σ do · o + Σ dS · S + Σ dz · z over the outputs. */
struct loss {
	const struct family *gradient, *operation;
	struct fixture fixture;
	struct op_problem forward;
	double *results[FAMILY_TENSORS]; /* of the operation */
	size_t count[FAMILY_TENSORS];
	float *unused[FAMILY_TENSORS]; /* outputs that it has to have memory for */
};

static inline const struct tensor *tensor_named(const struct loss *loss, const char *prefix, const char *name)
{
	char full[32];
	int number;

	snprintf(full, sizeof(full), "%s%s", prefix, name);
	number = family_tensor_find(loss->gradient, full);
	return number < 0 ? NULL : &loss->fixture.problem.tensors[number];
}

static inline void loss_open(struct loss *loss, const struct device *cpu, const struct fixture_plan *plan)
{
	struct error err = {0};

	*loss = (struct loss){.gradient = plan->family, .operation = plan->family->gradient_of};
	assert_int_equal(fixture_make(&loss->fixture, cpu, plan, &err), 0);
	loss->forward = family_problem(loss->operation, &plan->shape, plan->dtype, plan->options);
	for (int i = 0; loss->operation->tensors[i].name; i++) {
		const struct family_tensor *tensor = &loss->operation->tensors[i];
		const struct tensor *here = tensor_named(loss, "", tensor->name);
		int64_t size[4];

		if (here)
			loss->forward.tensors[i] = *here;
		loss->count[i] = (size_t)family_tensor_size(tensor, &plan->shape, size);
		if (tensor->role == TENSOR_OUTPUT && !here)
			loss->forward.tensors[i].data = loss->unused[i] = xmalloc(
				loss->count[i] * sizeof(float));
		if (tensor_named(loss, "d", tensor->name) && tensor_is_output(tensor))
			loss->results[i] = xmalloc(loss->count[i] * sizeof(double));
	}
}

static inline void loss_close(struct loss *loss)
{
	fixture_free(&loss->fixture);
	for (int i = 0; i < FAMILY_TENSORS; i++) {
		free(loss->results[i]);
		free(loss->unused[i]);
	}
}

static inline double loss_value(struct loss *loss)
{
	struct error err = {0};
	double sum = 0;

	assert_int_equal(loss->operation->reference(&loss->forward, loss->results, &err), 0);
	for (int i = 0; loss->operation->tensors[i].name; i++) {
		const float *weights;

		if (!loss->results[i])
			continue;
		weights = tensor_named(loss, "d", loss->operation->tensors[i].name)->data;
		for (size_t n = 0; n < loss->count[i]; n++)
			sum += (double)weights[n] * loss->results[i][n];
	}
	return sum;
}

/* The derivative of the loss by one number, by differences over two distances whose errors of the third order cancel. */
static inline double slope(struct loss *loss, float *number)
{
	const float before = *number, step = 0x1p-7f;
	double value[4];

	for (int i = 0; i < 4; i++) {
		static const float steps[] = {-2, -1, 1, 2};

		*number = before + steps[i] * step;
		value[i] = loss_value(loss);
	}
	*number = before;
	return (8 * (value[2] - value[1]) - (value[3] - value[0])) / (12 * (double)step);
}

/* A dozen numbers of a tensor, but for those at which the operation `bends`. */
static inline void compare_slopes(struct loss *loss, const char *name, const double *gradient,
	bool (*bends)(const char *name, float number))
{
	const int number = family_tensor_find(loss->gradient, name);
	const size_t count = loss->fixture.count[number], every = count / 12 | 1;
	float *numbers = loss->fixture.problem.tensors[number].data;
	char function[64];
	double norm = 0;

	for (size_t i = 0; i < count; i++)
		norm += gradient[i] * gradient[i];
	norm = sqrt(norm / (double)count);
	for (size_t i = every / 2; i < count; i += every) {
		double expected;

		if (bends && bends(name, numbers[i]))
			continue;
		expected = slope(loss, &numbers[i]);
		family_options_format(loss->gradient, loss->fixture.plan.options, function, sizeof(function));
		if (fabs(gradient[i] - expected) > 1e-4 * (fabs(expected) + norm))
			fail_msg("d%s[%zu] of %s is %.9g, by differences %.9g (%s)", name, i,
				loss->gradient->name, gradient[i], expected, function);
	}
}

/* Every gradient that the reference of plan->family has, at contiguous fp32 tensors. */
static inline void assert_slopes(const struct device *cpu, const struct fixture_plan *plan,
	bool (*bends)(const char *name, float number))
{
	const struct family_tensor *tensors = plan->family->tensors;
	double *results[FAMILY_TENSORS] = {0};
	struct loss loss;
	struct error err = {0};

	loss_open(&loss, cpu, plan);
	for (int i = 0; tensors[i].name; i++)
		if (tensor_is_output(&tensors[i]))
			results[i] = xmalloc(loss.fixture.count[i] * sizeof(double));
	assert_int_equal(plan->family->reference(&loss.fixture.problem, results, &err), 0);
	for (int i = 0; tensors[i].name; i++)
		if (results[i])
			compare_slopes(&loss, tensors[i].name + 1, results[i], bends); /* behind the d */
	for (int i = 0; i < FAMILY_TENSORS; i++)
		free(results[i]);
	loss_close(&loss);
}
