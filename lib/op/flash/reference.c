#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "op/flash/problem.h"

/* A head of a sequence of a tensor as doubles, [tokens, S]. */
static void read_head(const struct flash_problem *problem, const struct tensor *tensor,
	const struct flash_sequence *sequence, int head, double *out)
{
	for (int64_t t = 0; t < sequence->tokens; t++)
		for (int i = 0; i < problem->dim; i++)
			*out++ = (double)dtype_load(tensor->data, tensor->dtype,
				sequence->batch * tensor->stride[0] +
					(sequence->first + t) * tensor->stride[1] + head * tensor->stride[2] +
					i * tensor->stride[3]);
}

/* Row `token` of `head` of a contiguous result. */
static double *result_row(const struct flash_problem *problem, const struct flash_sequence *sequence,
	int heads, int head, int64_t token, double *result)
{
	return result +
		((sequence->batch * problem->tokens + sequence->first + token) * heads + head) * problem->dim;
}

static double dot(const double *a, const double *b, int count)
{
	double sum = 0;

#pragma omp simd reduction(+ : sum)
	for (int i = 0; i < count; i++)
		sum += a[i] * b[i];
	return sum;
}

/* to += factor · from */
static void add(double *to, double factor, const double *from, int count)
{
	for (int i = 0; i < count; i++)
		to[i] += factor * from[i];
}

static int64_t keys_of(
	const struct flash_problem *problem, const struct flash_sequence *sequence, int64_t query)
{
	return problem->causal ? query + 1 : sequence->tokens;
}

/* P's row of a query: softmax(scale · q Kᵀ); returns its log-sum-exp. */
static double softmax_row(
	const struct flash_problem *problem, const double *q, const double *k, int64_t keys, double *p)
{
	double most = -INFINITY, sum = 0;

	for (int64_t j = 0; j < keys; j++) {
		p[j] = (double)problem->scale * dot(q, k + j * problem->dim, problem->dim);
		most = fmax(most, p[j]);
	}
	for (int64_t j = 0; j < keys; j++)
		sum += p[j] = exp(p[j] - most);
	for (int64_t j = 0; j < keys; j++)
		p[j] /= sum;
	return most + log(sum);
}

/* A head's numbers: tensors of [tokens, S], then a row of P and one of dS. */
enum { Q, K, V, D_O, DK, DV, P, DS, PARTS };

static double *allocate(const struct flash_problem *problem)
{
	size_t longest = (size_t)flash_longest(problem);

	return malloc(longest * ((size_t)problem->dim * P + PARTS - P) * sizeof(double));
}

static void place(const struct flash_problem *problem, double *memory, double *at[PARTS])
{
	int64_t longest = flash_longest(problem);

	for (int i = 0; i < PARTS; i++) {
		at[i] = memory;
		memory += longest * (i < P ? problem->dim : 1);
	}
}

/* --- forward ---------------------------------------------------------------------------------------- */

static void forward_head(const struct flash_problem *problem, const struct flash_sequence *sequence, int head,
	double *memory, double *o, double *lse)
{
	int key_head = head / (problem->heads / problem->key_heads), dim = problem->dim;
	double *at[PARTS];

	place(problem, memory, at);
	read_head(problem, &problem->q, sequence, head, at[Q]);
	read_head(problem, &problem->k, sequence, key_head, at[K]);
	read_head(problem, &problem->v, sequence, key_head, at[V]);
	for (int64_t i = 0; i < sequence->tokens && !interrupted(); i++) {
		int64_t keys = keys_of(problem, sequence, i);
		double sum = softmax_row(problem, at[Q] + i * dim, at[K], keys, at[P]);

		if (lse)
			lse[flash_lse_index(problem, sequence->batch, head, sequence->first + i)] = sum;
		if (o) {
			double *row = result_row(problem, sequence, problem->heads, head, i, o);

			memset(row, 0, (size_t)dim * sizeof(*row));
			for (int64_t j = 0; j < keys; j++)
				add(row, at[P][j], at[V] + j * dim, dim);
		}
	}
}

static int conclude(bool out_of_memory, struct error *err)
{
	if (out_of_memory)
		return error_set(err, STATUS_ENVIRONMENT, "not enough memory for the fp64 reference");
	return interrupted() ? error_set(err, STATUS_INTERRUPTED, "interrupted") : 0;
}

int flash_reference(const struct flash_problem *problem, double *o, double *lse, struct error *err)
{
	int64_t count = flash_sequences(problem) * problem->heads;
	int failed = 0;

	if (flash_check(problem, err) < 0)
		return -1;
#pragma omp parallel for schedule(dynamic) reduction(| : failed)
	for (int64_t i = 0; i < count; i++) {
		const struct flash_sequence sequence = flash_sequence(problem, i / problem->heads);
		double *memory = allocate(problem);

		if (memory)
			forward_head(problem, &sequence, (int)(i % problem->heads), memory, o, lse);
		failed |= !memory;
		free(memory);
	}
	return conclude(failed, err);
}

/* --- gradient --------------------------------------------------------------------------------------- */

/* dS's row from P's: dP = dO Vᵀ, D = P · dP (which is dO · O), dS = P ∘ (dP − D). */
static void score_gradients(
	const double *p, const double *d_o, const double *v, int64_t keys, int dim, double *ds)
{
	double d = 0;

	for (int64_t j = 0; j < keys; j++) {
		ds[j] = dot(d_o, v + j * dim, dim);
		d += p[j] * ds[j];
	}
	for (int64_t j = 0; j < keys; j++)
		ds[j] = p[j] * (ds[j] - d);
}

/* Adds what a head gives to its key head's dK and dV, and makes its dQ. */
static void gradient_head(const struct flash_problem *problem, const struct flash_sequence *sequence,
	int head, double *const at[PARTS], double *dq)
{
	double *p = at[P], *ds = at[DS], scale = (double)problem->scale;
	int dim = problem->dim;

	read_head(problem, &problem->q, sequence, head, at[Q]);
	read_head(problem, &problem->d_o, sequence, head, at[D_O]);
	for (int64_t i = 0; i < sequence->tokens && !interrupted(); i++) {
		const double *q = at[Q] + i * dim, *d_o = at[D_O] + i * dim;
		int64_t keys = keys_of(problem, sequence, i);
		double *row = dq ? result_row(problem, sequence, problem->heads, head, i, dq) : NULL;

		softmax_row(problem, q, at[K], keys, p);
		score_gradients(p, d_o, at[V], keys, dim, ds);
		if (row)
			memset(row, 0, (size_t)dim * sizeof(*row));
		for (int64_t j = 0; j < keys; j++) {
			if (row)
				add(row, scale * ds[j], at[K] + j * dim, dim);
			add(at[DK] + j * dim, scale * ds[j], q, dim);
			add(at[DV] + j * dim, p[j], d_o, dim);
		}
	}
}

static void gradient_key_head(const struct flash_problem *problem, const struct flash_sequence *sequence,
	int key_head, double *memory, double *dq, double *dk, double *dv)
{
	int group = problem->heads / problem->key_heads, dim = problem->dim;
	size_t row = (size_t)dim * sizeof(double), bytes = (size_t)sequence->tokens * row;
	double *at[PARTS];

	place(problem, memory, at);
	read_head(problem, &problem->k, sequence, key_head, at[K]);
	read_head(problem, &problem->v, sequence, key_head, at[V]);
	memset(at[DK], 0, bytes);
	memset(at[DV], 0, bytes);
	for (int head = key_head * group; head < (key_head + 1) * group; head++)
		gradient_head(problem, sequence, head, at, dq);
	for (int64_t j = 0; j < sequence->tokens; j++) {
		if (dk)
			memcpy(result_row(problem, sequence, problem->key_heads, key_head, j, dk),
				at[DK] + j * dim, row);
		if (dv)
			memcpy(result_row(problem, sequence, problem->key_heads, key_head, j, dv),
				at[DV] + j * dim, row);
	}
}

int flash_reference_gradient(
	const struct flash_problem *problem, double *dq, double *dk, double *dv, struct error *err)
{
	int64_t count = flash_sequences(problem) * problem->key_heads;
	int failed = 0;

	if (flash_check_gradient(problem, err) < 0)
		return -1;
#pragma omp parallel for schedule(dynamic) reduction(| : failed)
	for (int64_t i = 0; i < count; i++) {
		const struct flash_sequence sequence = flash_sequence(problem, i / problem->key_heads);
		double *memory = allocate(problem);

		if (memory)
			gradient_key_head(
				problem, &sequence, (int)(i % problem->key_heads), memory, dq, dk, dv);
		failed |= !memory;
		free(memory);
	}
	return conclude(failed, err);
}
