#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "op/linear/problem.h"

static double feature_of(enum linear_feature feature, double x)
{
	switch (feature) {
	case LINEAR_ELU1:
		return x > 0 ? x + 1 : exp(x);
	case LINEAR_RELU:
		return x < 0 ? 0 : x;
	case LINEAR_SQUARED_RELU:
		return x < 0 ? 0 : x * x;
	default: /* LINEAR_IDENTITY */
		return x;
	}
}

static double element(const struct tensor *tensor, int64_t batch, int64_t token, int head, int i)
{
	return (double)dtype_load(tensor->data, tensor->dtype,
		batch * tensor->stride[0] + token * tensor->stride[1] + head * tensor->stride[2] +
			i * tensor->stride[3]);
}

/* S += φ(k)ᵀ v, z += φ(k) */
static void add_token(const struct linear_problem *problem, int64_t batch, int64_t token, int head,
	double *state, double *sum)
{
	for (int i = 0; i < problem->key_dim; i++) {
		double k = feature_of(problem->feature, element(&problem->k, batch, token, head, i));

		sum[i] += k;
		for (int j = 0; j < problem->value_dim; j++)
			state[i * problem->value_dim + j] += k * element(&problem->v, batch, token, head, j);
	}
}

/* o = φ(q) S, divided by φ(q) · z if normalised */
static void read_token(const struct linear_problem *problem, int64_t batch, int64_t token, int head,
	const double *state, const double *sum, double *o)
{
	double divisor = 0;

	memset(o, 0, (size_t)problem->value_dim * sizeof(*o));
	for (int i = 0; i < problem->key_dim; i++) {
		double q = feature_of(problem->feature, element(&problem->q, batch, token, head, i));

		divisor += q * sum[i];
		for (int j = 0; j < problem->value_dim; j++)
			o[j] += q * state[i * problem->value_dim + j];
	}
	for (int j = 0; j < problem->value_dim && problem->normalised; j++)
		o[j] = divisor == 0 ? 0 : o[j] / divisor;
}

static void one_head(
	const struct linear_problem *problem, int64_t batch, int head, double *state, double *sum, double *o)
{
	bool causal = problem->mask == LINEAR_CAUSAL;

	for (int64_t t = 0; t < problem->tokens && !causal; t++)
		add_token(problem, batch, t, head, state, sum);
	for (int64_t t = 0; t < problem->tokens; t++) {
		if (causal)
			add_token(problem, batch, t, head, state, sum);
		read_token(problem, batch, t, head, state, sum,
			o + ((batch * problem->tokens + t) * problem->heads + head) * problem->value_dim);
	}
}

int linear_reference(const struct linear_problem *problem, double *o, double *final_state, double *final_sum,
	struct error *err)
{
	size_t keys = (size_t)problem->key_dim, square = keys * (size_t)problem->value_dim;
	int failed = 0;

	if (linear_check(problem, err) < 0)
		return -1;
#pragma omp parallel for schedule(dynamic) reduction(| : failed)
	for (int64_t i = 0; i < problem->batch * problem->heads; i++) {
		double *state = calloc(square + keys, sizeof(*state)), *sum = state + square;

		if (!state) {
			failed = 1;
			continue;
		}
		for (size_t n = 0; problem->initial_state && n < square; n++)
			state[n] = (double)problem->initial_state[(size_t)i * square + n];
		for (size_t n = 0; problem->initial_sum && n < keys; n++)
			sum[n] = (double)problem->initial_sum[(size_t)i * keys + n];
		one_head(problem, i / problem->heads, (int)(i % problem->heads), state, sum, o);
		if (final_state)
			memcpy(final_state + (size_t)i * square, state, square * sizeof(*state));
		if (final_sum)
			memcpy(final_sum + (size_t)i * keys, sum, keys * sizeof(*sum));
		free(state);
	}
	return failed ? error_set(err, STATUS_ENVIRONMENT, "not enough memory for the fp64 reference") : 0;
}
