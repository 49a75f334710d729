#include "op/quasar/reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/dtype.h"

void quasar_read_row(
	const struct tensor *tensor, int64_t batch, struct quasar_source source, int dim, double *out)
{
	int64_t start = batch * tensor->stride[0] + source.token * tensor->stride[1] +
		source.head * tensor->stride[2];

	for (int i = 0; i < dim; i++)
		out[i] = source.token < 0
			? 0
			: dtype_load(tensor->data, tensor->dtype, start + i * tensor->stride[3]);
}

/* α = (1 − exp(−β λ)) / (λ + ε) with λ = ‖k‖² */
static double alpha_of(const double *k, int dim, double beta)
{
	double lambda = 0;

	for (int i = 0; i < dim; i++)
		lambda += k[i] * k[i];
	return -expm1(-beta * lambda) / (lambda + QUASAR_EPSILON);
}

/* S_t = g (I − α k kᵀ) S_{t−1} + α k vᵀ, o_t = q_t S_t, token by token. */
static void causal(
	const struct quasar_problem *problem, struct quasar_span span, int head, double *state, double *o)
{
	int dim = problem->dim;
	int64_t batch = span.batch;
	double q[dim], k[dim], v[dim], change[dim]; /* change = v − g k S */

	for (int64_t t = span.first; t < span.end; t++) {
		int64_t row = (batch * problem->tokens + t) * problem->heads + head;
		double *out = o + row * dim, alpha;
		double decay = problem->gated ? exp((double)problem->log_gate[row]) : 1;
		struct quasar_source source = {t, head};

		quasar_read_row(&problem->q, batch, source, dim, q);
		quasar_read_row(&problem->k, batch, source, dim, k);
		quasar_read_row(&problem->v, batch, source, dim, v);
		alpha = alpha_of(k, dim, (double)problem->beta[head]);
		memcpy(change, v, sizeof(change));
		for (int i = 0; i < dim; i++)
			for (int j = 0; j < dim; j++)
				change[j] -= k[i] * decay * state[i * dim + j];
		memset(out, 0, (size_t)dim * sizeof(*out));
		for (int i = 0; i < dim; i++) {
			for (int j = 0; j < dim; j++) {
				state[i * dim + j] = decay * state[i * dim + j] + alpha * k[i] * change[j];
				out[j] += q[i] * state[i * dim + j];
			}
		}
	}
}

/* out = start + sign · A B, with A [rows, inner] (or its transpose stored), B [inner, columns]. */
struct matrix {
	const double *data;
	int row_stride, column_stride;
};

static struct matrix plain(const double *data, int columns)
{
	return (struct matrix){data, columns, 1};
}

static struct matrix transposed(const double *data, int columns)
{
	return (struct matrix){data, 1, columns};
}

/* out [rows, columns] += sign · A [rows, inner] B [inner, columns] */
static void multiply_add(
	double *out, double sign, struct matrix a, struct matrix b, int rows, int inner, int columns)
{
	for (int r = 0; r < rows; r++)
		for (int n = 0; n < inner; n++) {
			double factor = sign * a.data[r * a.row_stride + n * a.column_stride];
			const double *line = b.data + n * b.row_stride;

			for (int c = 0; c < columns; c++)
				out[r * columns + c] += factor * line[c * b.column_stride];
		}
}

/* One chunk of C = 64 rows: K, V, Q [C, S]; W, U [C, S]; P, R, S⁺ and S⁺⁺ [S, S]. */
struct chunk {
	double k[UPSTREAM_CHUNK * 128], v[UPSTREAM_CHUNK * 128], q[UPSTREAM_CHUNK * 128];
	double w[UPSTREAM_CHUNK * 128], u[UPSTREAM_CHUNK * 128], o[UPSTREAM_CHUNK * 128];
	double alpha[UPSTREAM_CHUNK], kk[UPSTREAM_CHUNK * UPSTREAM_CHUNK];
	double p[128 * 128], r[128 * 128], after[128 * 128], twice[128 * 128];
};

/* W = L⁻¹ D K and U = L⁻¹ D V, with D = diag(α) and L = I + tril(D K Kᵀ, −1): forward substitution. */
static void solve(struct chunk *chunk, int dim)
{
	memset(chunk->kk, 0, sizeof(chunk->kk));
	multiply_add(chunk->kk, 1, plain(chunk->k, dim), transposed(chunk->k, dim), UPSTREAM_CHUNK, dim,
		UPSTREAM_CHUNK);
	for (int r = 0; r < UPSTREAM_CHUNK; r++)
		for (int i = 0; i < dim; i++) {
			double w = chunk->k[r * dim + i], u = chunk->v[r * dim + i];

			for (int s = 0; s < r; s++) {
				w -= chunk->kk[r * UPSTREAM_CHUNK + s] * chunk->w[s * dim + i];
				u -= chunk->kk[r * UPSTREAM_CHUNK + s] * chunk->u[s * dim + i];
			}
			chunk->w[r * dim + i] = chunk->alpha[r] * w;
			chunk->u[r * dim + i] = chunk->alpha[r] * u;
		}
}

/* S⁺ = P S + R, o = Q (P S⁺ + R), with P = I − Kᵀ W and R = Kᵀ U, chunk by chunk. */
static void upstream_chunk(struct chunk *chunk, int dim, double *state)
{
	size_t square = (size_t)(dim * dim) * sizeof(double);

	solve(chunk, dim);
	memset(chunk->p, 0, square);
	for (int i = 0; i < dim; i++)
		chunk->p[i * dim + i] = 1;
	multiply_add(chunk->p, -1, transposed(chunk->k, dim), plain(chunk->w, dim), dim, UPSTREAM_CHUNK, dim);
	memset(chunk->r, 0, square);
	multiply_add(chunk->r, 1, transposed(chunk->k, dim), plain(chunk->u, dim), dim, UPSTREAM_CHUNK, dim);
	memcpy(chunk->after, chunk->r, square);
	multiply_add(chunk->after, 1, plain(chunk->p, dim), plain(state, dim), dim, dim, dim);
	memcpy(chunk->twice, chunk->r, square);
	multiply_add(chunk->twice, 1, plain(chunk->p, dim), plain(chunk->after, dim), dim, dim, dim);
	memset(chunk->o, 0, sizeof(chunk->o));
	multiply_add(chunk->o, 1, plain(chunk->q, dim), plain(chunk->twice, dim), UPSTREAM_CHUNK, dim, dim);
	memcpy(state, chunk->after, square);
}

static void upstream(const struct quasar_problem *problem, struct chunk *chunk, int64_t batch, int head,
	double *state, double *o)
{
	int dim = problem->dim;

	for (int64_t first = 0; first < quasar_rows(problem); first += UPSTREAM_CHUNK) {
		for (int r = 0; r < UPSTREAM_CHUNK; r++) {
			struct quasar_source source = quasar_source(problem, head, first + r);

			quasar_read_row(&problem->q, batch, source, dim, chunk->q + r * dim);
			quasar_read_row(&problem->k, batch, source, dim, chunk->k + r * dim);
			quasar_read_row(&problem->v, batch, source, dim, chunk->v + r * dim);
			chunk->alpha[r] = alpha_of(chunk->k + r * dim, dim, (double)problem->beta[head]);
		}
		upstream_chunk(chunk, dim, state);
		for (int r = 0; r < UPSTREAM_CHUNK && first + r < problem->tokens; r++)
			memcpy(o + ((batch * problem->tokens + first + r) * problem->heads + head) * dim,
				chunk->o + r * dim, (size_t)dim * sizeof(*o));
	}
}

int quasar_reference(const struct quasar_problem *problem, double *o, double *final_state, struct error *err)
{
	int64_t streams;
	size_t square;
	int failed = 0;

	if (quasar_check(problem, err) < 0 || quasar_check_starts(problem, err) < 0)
		return -1;
	streams = quasar_sequences(problem) * problem->heads;
	square = (size_t)(problem->dim * problem->dim);
#pragma omp parallel for schedule(dynamic) reduction(| : failed)
	for (int64_t i = 0; i < streams; i++) {
		double *state = calloc(square, sizeof(*state));
		struct chunk *chunk = malloc(sizeof(*chunk));
		struct quasar_span span = quasar_span(problem, i / problem->heads);
		int head = (int)(i % problem->heads);

		if (state && chunk) {
			for (size_t n = 0; problem->initial_state && n < square; n++)
				state[n] = (double)problem->initial_state[(size_t)i * square + n];
			if (problem->semantics == SEMANTICS_CAUSAL)
				causal(problem, span, head, state, o);
			else
				upstream(problem, chunk, span.batch, head, state, o);
			if (final_state)
				memcpy(final_state + (size_t)i * square, state, square * sizeof(*state));
		} else {
			failed = 1;
		}
		free(chunk);
		free(state);
	}
	return failed ? error_set(err, STATUS_ENVIRONMENT, "not enough memory for the fp64 reference") : 0;
}
