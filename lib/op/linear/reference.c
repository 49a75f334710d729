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
	case LINEAR_EXP:
		return exp(x > (double)FEATURE_EXP_LIMIT ? (double)FEATURE_EXP_LIMIT : x);
	default: /* LINEAR_IDENTITY */
		return x;
	}
}

/* Where there is none, at 0, that from the left. */
static double derivative_of(enum linear_feature feature, double x)
{
	switch (feature) {
	case LINEAR_ELU1:
		return x > 0 ? 1 : exp(x);
	case LINEAR_RELU:
		return x <= 0 ? 0 : 1;
	case LINEAR_SQUARED_RELU:
		return x < 0 ? 0 : 2 * x;
	case LINEAR_EXP:
		return x > (double)FEATURE_EXP_LIMIT ? 0 : exp(x);
	default: /* LINEAR_IDENTITY */
		return 1;
	}
}

/* A row of a tensor as doubles. */
static void read_row(
	const struct tensor *tensor, int64_t batch, int64_t token, int head, int dim, double *row)
{
	int64_t start = batch * tensor->stride[0] + token * tensor->stride[1] + head * tensor->stride[2];

	for (int i = 0; i < dim; i++)
		row[i] = (double)dtype_load(tensor->data, tensor->dtype, start + i * tensor->stride[3]);
}

/* φ of a row of q or k. */
static void read_features(const struct linear_problem *problem, const struct tensor *tensor, int64_t batch,
	int64_t token, int head, double *row)
{
	read_row(tensor, batch, token, head, problem->key_dim, row);
	for (int i = 0; i < problem->key_dim; i++)
		row[i] = feature_of(problem->feature, row[i]);
}

/* S += φ(k)ᵀ v, z += φ(k) */
static void add_token(const struct linear_problem *problem, int64_t batch, int64_t token, int head,
	double *state, double *sum)
{
	int keys = problem->key_dim, values = problem->value_dim;
	double k[keys], v[values];

	read_features(problem, &problem->k, batch, token, head, k);
	read_row(&problem->v, batch, token, head, values, v);
	for (int i = 0; i < keys; i++) {
		sum[i] += k[i];
		for (int j = 0; j < values; j++)
			state[i * values + j] += k[i] * v[j];
	}
}

/* The divisor of a row: φ(q) · z; 1 unnormalised. */
static double divisor_of(const struct linear_problem *problem, const double *q, const double *sum)
{
	double divisor = 0;

	if (!problem->normalised)
		return 1;
	for (int i = 0; i < problem->key_dim; i++)
		divisor += q[i] * sum[i];
	return divisor;
}

/* o = φ(q) S, divided by the divisor, which it returns. */
static double read_token(const struct linear_problem *problem, int64_t batch, int64_t token, int head,
	const double *state, const double *sum, double *o)
{
	int keys = problem->key_dim, values = problem->value_dim;
	double q[keys], divisor;

	read_features(problem, &problem->q, batch, token, head, q);
	divisor = divisor_of(problem, q, sum);
	memset(o, 0, (size_t)values * sizeof(*o));
	for (int i = 0; i < keys; i++)
		for (int j = 0; j < values; j++)
			o[j] += q[i] * state[i * values + j];
	for (int j = 0; j < values; j++)
		o[j] = divisor == 0 ? 0 : o[j] / divisor;
	return divisor;
}

/* A head's sums, before its first token. */
static void start(const struct linear_problem *problem, const float *initial_state, const float *initial_sum,
	int64_t head, double *state, double *sum)
{
	size_t keys = (size_t)problem->key_dim, square = keys * (size_t)problem->value_dim;

	for (size_t n = 0; n < square; n++)
		state[n] = initial_state ? (double)initial_state[(size_t)head * square + n] : 0;
	for (size_t n = 0; n < keys; n++)
		sum[n] = initial_sum ? (double)initial_sum[(size_t)head * keys + n] : 0;
}

/* Calls visit() with each token and the sums that its output is made from. */
static void each_token(const struct linear_problem *problem, int64_t batch, int head, double *state,
	double *sum, void (*visit)(void *context, int64_t token), void *context)
{
	bool causal = problem->mask == LINEAR_CAUSAL;

	start(problem, problem->initial_state, problem->initial_sum, batch * problem->heads + head, state,
		sum);
	for (int64_t t = 0; t < problem->tokens && !causal; t++)
		add_token(problem, batch, t, head, state, sum);
	for (int64_t t = 0; t < problem->tokens; t++) {
		if (causal)
			add_token(problem, batch, t, head, state, sum);
		visit(context, t);
	}
}

/* --- the operation ---------------------------------------------------------------------------------- */

struct forward {
	const struct linear_problem *problem;
	int64_t batch;
	int head;
	double *state, *sum;
	double *o, *divisor; /* of all heads; the latter may be NULL */
};

static void write_token(void *context, int64_t token)
{
	const struct forward *it = context;
	const struct linear_problem *problem = it->problem;
	double *o = it->o +
		((it->batch * problem->tokens + token) * problem->heads + it->head) * problem->value_dim;
	double divisor = read_token(problem, it->batch, token, it->head, it->state, it->sum, o);

	if (it->divisor)
		it->divisor[(it->batch * problem->heads + it->head) * problem->tokens + token] = divisor;
}

int linear_reference(const struct linear_problem *problem, double *o, double *final_state, double *final_sum,
	double *divisor, struct error *err)
{
	size_t keys = (size_t)problem->key_dim, square = keys * (size_t)problem->value_dim;
	int failed = 0;

	if (linear_check(problem, err) < 0)
		return -1;
#pragma omp parallel for schedule(dynamic) reduction(| : failed)
	for (int64_t i = 0; i < problem->batch * problem->heads; i++) {
		double *state = malloc((square + keys) * sizeof(*state)), *sum = state + square;
		struct forward forward = {
			problem, i / problem->heads, (int)(i % problem->heads), state, sum, o, divisor};

		if (!state) {
			failed = 1;
			continue;
		}
		each_token(problem, forward.batch, forward.head, state, sum, write_token, &forward);
		if (final_state)
			memcpy(final_state + (size_t)i * square, state, square * sizeof(*state));
		if (final_sum)
			memcpy(final_sum + (size_t)i * keys, sum, keys * sizeof(*sum));
		free(state);
	}
	return failed ? error_set(err, STATUS_ENVIRONMENT, "not enough memory for the fp64 reference") : 0;
}

/* --- its gradient ------------------------------------------------------------------------------------ */

/* With n = φ(q) S, d = φ(q) · z and o = n / d: dn = do / d, dd = −do · o / d, and from these
 *     dφ(q) = S dn + z dd
 *     G = Σ φ(q)ᵀ dn, g = Σ φ(q) dd   over the tokens that see a key and its value
 *     dφ(k) = G v + g,  dv = φ(k) G */
struct backward {
	const struct linear_gradient *gradient;
	const struct linear_gradient_results *results;
	int64_t batch;
	int head;
	double *state, *sum; /* S and z, then G and g */
	double *d_n;         /* [T, V] */
	double *d_d;         /* [T] */
};

/* Where row `token` of a gradient of q, k or v begins. */
static size_t row_at(const struct backward *it, int64_t token, int dim)
{
	const struct linear_problem *problem = &it->gradient->problem;

	return (size_t)((it->batch * problem->tokens + token) * problem->heads + it->head) * (size_t)dim;
}

static void derive_token(void *context, int64_t token)
{
	struct backward *it = context;
	const struct linear_problem *problem = &it->gradient->problem;
	int keys = problem->key_dim, values = problem->value_dim;
	double *d_n = it->d_n + token * values, q[keys], o[values], d_o[values];
	double divisor = read_token(problem, it->batch, token, it->head, it->state, it->sum, o);
	double factor = divisor == 0 ? 0 : 1 / divisor, product = 0;

	read_row(&problem->q, it->batch, token, it->head, keys, q);
	read_row(&it->gradient->d_o, it->batch, token, it->head, values, d_o);
	for (int j = 0; j < values; j++) {
		d_n[j] = factor * d_o[j];
		product += d_o[j] * o[j];
	}
	it->d_d[token] = problem->normalised ? -factor * product : 0;
	for (int i = 0; i < keys && it->results->d_q; i++) {
		double sum = it->sum[i] * it->d_d[token];

		for (int j = 0; j < values; j++)
			sum += it->state[i * values + j] * d_n[j];
		it->results->d_q[row_at(it, token, keys) + (size_t)i] = sum *
			derivative_of(problem->feature, q[i]);
	}
}

/* G += φ(q)ᵀ dn, g += φ(q) dd */
static void collect_token(struct backward *it, int64_t token)
{
	const struct linear_problem *problem = &it->gradient->problem;
	int keys = problem->key_dim, values = problem->value_dim;
	const double *d_n = it->d_n + token * values;
	double q[keys];

	read_features(problem, &problem->q, it->batch, token, it->head, q);
	for (int i = 0; i < keys; i++) {
		it->sum[i] += q[i] * it->d_d[token];
		for (int j = 0; j < values; j++)
			it->state[i * values + j] += q[i] * d_n[j];
	}
}

static void derive_key(struct backward *it, int64_t token)
{
	const struct linear_problem *problem = &it->gradient->problem;
	int keys = problem->key_dim, values = problem->value_dim;
	double k[keys], v[values], d_v[values];

	read_row(&problem->k, it->batch, token, it->head, keys, k);
	read_row(&problem->v, it->batch, token, it->head, values, v);
	memset(d_v, 0, sizeof(d_v));
	for (int i = 0; i < keys; i++) {
		double feature = feature_of(problem->feature, k[i]), sum = it->sum[i];

		for (int j = 0; j < values; j++) {
			sum += it->state[i * values + j] * v[j];
			d_v[j] += feature * it->state[i * values + j];
		}
		if (it->results->d_k)
			it->results->d_k[row_at(it, token, keys) + (size_t)i] = sum *
				derivative_of(problem->feature, k[i]);
	}
	if (it->results->d_v)
		memcpy(it->results->d_v + row_at(it, token, values), d_v, sizeof(d_v));
}

static void one_head_back(struct backward *it)
{
	const struct linear_gradient *gradient = it->gradient;
	const struct linear_problem *problem = &gradient->problem;
	int64_t head = it->batch * problem->heads + it->head;
	size_t keys = (size_t)problem->key_dim, square = keys * (size_t)problem->value_dim;
	bool causal = problem->mask == LINEAR_CAUSAL;

	each_token(problem, it->batch, it->head, it->state, it->sum, derive_token, it);
	start(problem, gradient->d_final_state, gradient->d_final_sum, head, it->state, it->sum);
	for (int64_t t = problem->tokens - 1; t >= 0 && !causal; t--)
		collect_token(it, t);
	for (int64_t t = problem->tokens - 1; t >= 0; t--) {
		if (causal)
			collect_token(it, t);
		derive_key(it, t);
	}
	if (it->results->d_initial_state)
		memcpy(it->results->d_initial_state + (size_t)head * square, it->state,
			square * sizeof(*it->state));
	if (it->results->d_initial_sum)
		memcpy(it->results->d_initial_sum + (size_t)head * keys, it->sum, keys * sizeof(*it->sum));
}

int linear_gradient_reference(const struct linear_gradient *gradient,
	const struct linear_gradient_results *results, struct error *err)
{
	const struct linear_problem *problem = &gradient->problem;
	size_t keys = (size_t)problem->key_dim, values = (size_t)problem->value_dim;
	size_t tokens = (size_t)problem->tokens;
	int failed = 0;

	if (linear_gradient_check(gradient, err) < 0)
		return -1;
#pragma omp parallel for schedule(dynamic) reduction(| : failed)
	for (int64_t i = 0; i < problem->batch * problem->heads; i++) {
		double *memory = malloc((keys * values + keys + tokens * (values + 1)) * sizeof(*memory));
		struct backward backward = {gradient, results, i / problem->heads, (int)(i % problem->heads),
			memory, memory + keys * values, memory + keys * values + keys,
			memory + keys * values + keys + tokens * values};

		if (!memory) {
			failed = 1;
			continue;
		}
		one_head_back(&backward);
		free(memory);
	}
	return failed ? error_set(err, STATUS_ENVIRONMENT, "not enough memory for the fp64 reference") : 0;
}
