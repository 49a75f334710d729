/* The gradient in fp32, by chunks of 64 rows, compiled once for each instruction set (the Makefile defines KERNEL).
 *
 * A chunk with K, V, Q [64, S] takes the state M to M + Kᵀ N, where N = L⁻¹ D (V − K M), D = diag(α) and
 * L = I + tril(D K Kᵀ, −1). From the adjoint E of what comes out,
 *
 *     dN = K E,  Z = L⁻ᵀ dN,  dY = D Z,  B = tril(dY Nᵀ, −1)
 *     dV += dY,  dK += N Eᵀ − dY Mᵀ − (B + Bᵀ) K,  dα += rowsum(Z ∘ N) / α,  E ← E − Kᵀ dY
 *
 * Causal outputs O = Q M + tril(Q Kᵀ) N add tril(Q Kᵀ)ᵀ dO to dN and Qᵀ dO to E. Upstream a chunk is gone through twice,
 * and O = Q M″ with the state behind that: so the adjoint comes back through the second time, meets there that of the
 * next chunk's state, and goes through the first.
 *
 * The states before all chunks are made first, without outputs; then come the chunks, from the last one. */
#include "op/quasar_backward/kernel.h"

#include <stdlib.h>

#include "cpu/block.h"

#define ROWS UPSTREAM_CHUNK

struct chunk {
	float q[ROWS * 128] ALIGNED, k[ROWS * 128] ALIGNED, v[ROWS * 128] ALIGNED, d_o[ROWS * 128] ALIGNED;
	float lower[ROWS * ROWS] ALIGNED;  /* −tril(D K Kᵀ, −1) */
	float scores[ROWS * ROWS] ALIGNED; /* tril(Q Kᵀ) */
	struct quasar_alpha alpha[ROWS];
	float n[ROWS * 128] ALIGNED, d_n[ROWS * 128] ALIGNED, d_y[ROWS * 128] ALIGNED; /* d_y: −dY */
	float d_q[ROWS * 128] ALIGNED, d_k[ROWS * 128] ALIGNED, d_v[ROWS * 128] ALIGNED;
	double d_alpha[ROWS];
	/* in work */
	float turned[128 * ROWS] ALIGNED, turned_state[128 * 128] ALIGNED, pairs[ROWS * ROWS] ALIGNED;
};

/* --- products ---------------------------------------------------------------------------------------- */

/* C [ROWS, columns] = start + A B, with A [ROWS, inner]. */
static void multiply_by(float *c, const float *start, const float *a, const float *b, int inner, int columns)
{
	multiply_matrices(c, start, a, inner, 1, b, ROWS, inner, columns);
}

/* C [rows, columns] = start + Aᵀ B, with A [ROWS, rows]. */
static void multiply_turned(
	float *c, const float *start, const float *a, const float *b, int rows, int columns)
{
	multiply_matrices(c, start, a, 1, rows, b, rows, ROWS, columns);
}

/* X [ROWS, dim] ← L⁻¹ X, block by block of rows. */
static void solve(const float *lower, float *x, int dim)
{
	for (int first = 0; first < ROWS; first += BLOCK) {
		multiply_matrices(x + first * dim, x + first * dim, lower + first * ROWS, ROWS, 1, x, BLOCK,
			first, dim);
		for (int r = first; r < first + BLOCK; r++)
			for (int s = first; s < r; s++)
				for (int i = 0; i < dim; i++)
					x[r * dim + i] += lower[r * ROWS + s] * x[s * dim + i];
	}
}

/* X ← L⁻ᵀ X */
static void solve_turned(const float *lower, float *x, int dim)
{
	for (int first = ROWS - BLOCK; first >= 0; first -= BLOCK) {
		int behind = first + BLOCK;

		multiply_matrices(x + first * dim, x + first * dim, lower + behind * ROWS + first, 1, ROWS,
			x + behind * dim, BLOCK, ROWS - behind, dim);
		for (int r = behind - 1; r >= first; r--)
			for (int s = r + 1; s < behind; s++)
				for (int i = 0; i < dim; i++)
					x[r * dim + i] += lower[s * ROWS + r] * x[s * dim + i];
	}
}

static float dot(const float *a, const float *b, int dim)
{
	vector products = {0};
	float sum = 0;

	for (int i = 0; i < dim; i += LANES)
		products += vector_load(a + i) * vector_load(b + i);
	for (int i = 0; i < LANES; i++)
		sum += products[i];
	return sum;
}

/* --- rows -------------------------------------------------------------------------------------------- */

static int64_t row_start(const struct tensor *tensor, int64_t batch, struct quasar_source source)
{
	return batch * tensor->stride[0] + source.token * tensor->stride[1] + source.head * tensor->stride[2];
}

static void read_row(
	const struct tensor *tensor, int64_t batch, struct quasar_source source, int dim, float *out)
{
	if (source.token < 0)
		memset(out, 0, (size_t)dim * sizeof(*out));
	else
		load_row((const char *)tensor->data +
				row_start(tensor, batch, source) * (int64_t)dtype_size(tensor->dtype),
			tensor->dtype, tensor->stride[3], dim, out);
}

static void write_row(
	const struct tensor *tensor, int64_t batch, struct quasar_source source, int dim, const float *row)
{
	store_row(tensor->data, tensor->dtype, row_start(tensor, batch, source), tensor->stride[3], dim, row);
}

/* What has to do with the state of a chunk: keys and values; L. */
static void read_keys(
	const struct quasar_problem *problem, int64_t batch, int head, int64_t first, struct chunk *chunk)
{
	int dim = problem->dim;

	for (int r = 0; r < ROWS; r++) {
		struct quasar_source source = quasar_rows_at(problem, head, first + r).input;

		read_row(&problem->k, batch, source, dim, chunk->k + r * dim);
		read_row(&problem->v, batch, source, dim, chunk->v + r * dim);
	}
	transpose(chunk->k, dim, ROWS, dim, chunk->turned);
	multiply_by(chunk->lower, NULL, chunk->k, chunk->turned, dim, ROWS);
	for (int r = 0; r < ROWS; r++) {
		float *row = chunk->lower + r * ROWS;

		chunk->alpha[r] = quasar_alpha((double)row[r], (double)problem->beta[head]);
		for (int s = 0; s < ROWS; s++)
			row[s] = s < r ? -(float)chunk->alpha[r].alpha * row[s] : 0;
	}
}

/* What has to do with its outputs; behind read_keys(). */
static void read_queries(
	const struct quasar_gradient *gradient, int64_t batch, int head, int64_t first, struct chunk *chunk)
{
	const struct quasar_problem *problem = &gradient->problem;
	int dim = problem->dim;

	for (int r = 0; r < ROWS; r++) {
		struct quasar_rows at = quasar_rows_at(problem, head, first + r);

		read_row(&problem->q, batch, at.input, dim, chunk->q + r * dim);
		read_row(&gradient->d_o, batch, at.output, dim, chunk->d_o + r * dim);
	}
	if (problem->semantics != SEMANTICS_CAUSAL)
		return;
	multiply_by(chunk->scores, NULL, chunk->q, chunk->turned, dim, ROWS);
	for (int r = 0; r < ROWS; r++)
		for (int s = r + 1; s < ROWS; s++)
			chunk->scores[r * ROWS + s] = 0;
}

/* What α passes on, and the rows to where they came from. */
static void write_gradients(const struct quasar_gradient *gradient, int64_t batch, int head, int64_t first,
	struct chunk *chunk, double *d_beta)
{
	int dim = gradient->problem.dim;

	for (int r = 0; r < ROWS; r++) {
		struct quasar_source source = quasar_rows_at(&gradient->problem, head, first + r).input;
		float factor = (float)(2 * chunk->d_alpha[r] * chunk->alpha[r].by_lambda);

		if (source.token < 0)
			continue;
		for (int i = 0; i < dim; i++)
			chunk->d_k[r * dim + i] += factor * chunk->k[r * dim + i];
		*d_beta += chunk->d_alpha[r] * chunk->alpha[r].by_beta;
		write_row(&gradient->d_q, batch, source, dim, chunk->d_q + r * dim);
		write_row(&gradient->d_k, batch, source, dim, chunk->d_k + r * dim);
		write_row(&gradient->d_v, batch, source, dim, chunk->d_v + r * dim);
	}
}

/* --- states ------------------------------------------------------------------------------------------ */

/* N = L⁻¹ D (V − K M) */
static void find_changes(struct chunk *chunk, int dim, const float *state)
{
	multiply_by(chunk->n, NULL, chunk->k, state, dim, dim);
	for (int r = 0; r < ROWS; r++)
		for (int i = r * dim; i < (r + 1) * dim; i++)
			chunk->n[i] = (float)chunk->alpha[r].alpha * (chunk->v[i] - chunk->n[i]);
	solve(chunk->lower, chunk->n, dim);
}

/* to = M + Kᵀ N */
static void advance(struct chunk *chunk, int dim, const float *state, float *to)
{
	find_changes(chunk, dim, state);
	multiply_turned(to, state, chunk->k, chunk->n, dim, dim);
}

/* The adjoint of that at the state M: `adjoint`, that of the result, becomes M's. `d_n` is what N's has from elsewhere, or
 * NULL. Leaves Nᵀ in `turned`, and Mᵀ in `turned_state`. */
static void advance_back(struct chunk *chunk, int dim, const float *state, const float *d_n, float *adjoint)
{
	find_changes(chunk, dim, state);
	multiply_by(chunk->d_y, d_n, chunk->k, adjoint, dim, dim);
	solve_turned(chunk->lower, chunk->d_y, dim);
	for (int r = 0; r < ROWS; r++) {
		float alpha = (float)chunk->alpha[r].alpha, *d_y = chunk->d_y + r * dim;

		if (alpha != 0) /* else the key is 0, and takes nothing from alpha */
			chunk->d_alpha[r] += (double)(dot(d_y, chunk->n + r * dim, dim) / alpha);
		for (int i = 0; i < dim; i++) {
			d_y[i] *= -alpha;
			chunk->d_v[r * dim + i] -= d_y[i];
		}
	}
	transpose(adjoint, dim, dim, dim, chunk->turned_state);
	multiply_by(chunk->d_k, chunk->d_k, chunk->n, chunk->turned_state, dim, dim);
	multiply_turned(adjoint, adjoint, chunk->k, chunk->d_y, dim, dim);
	transpose(state, dim, dim, dim, chunk->turned_state);
	multiply_by(chunk->d_k, chunk->d_k, chunk->d_y, chunk->turned_state, dim, dim);
	transpose(chunk->n, dim, ROWS, dim, chunk->turned);
	multiply_by(chunk->pairs, NULL, chunk->d_y, chunk->turned, dim, ROWS);
	for (int r = 0; r < ROWS; r++) {
		chunk->pairs[r * ROWS + r] = 0;
		for (int s = 0; s < r; s++)
			chunk->pairs[s * ROWS + r] = chunk->pairs[r * ROWS + s];
	}
	multiply_by(chunk->d_k, chunk->d_k, chunk->pairs, chunk->k, ROWS, dim);
}

/* --- chunks ------------------------------------------------------------------------------------------ */

static void causal_back(struct chunk *chunk, int dim, const float *state, float *adjoint)
{
	multiply_turned(chunk->d_n, NULL, chunk->scores, chunk->d_o, ROWS, dim);
	advance_back(chunk, dim, state, chunk->d_n, adjoint);
	multiply_turned(adjoint, adjoint, chunk->q, chunk->d_o, dim, dim);
	multiply_by(chunk->d_q, NULL, chunk->d_o, chunk->turned_state, dim, dim);
	multiply_by(chunk->pairs, NULL, chunk->d_o, chunk->turned, dim, ROWS);
	for (int r = 0; r < ROWS; r++)
		for (int s = r + 1; s < ROWS; s++)
			chunk->pairs[r * ROWS + s] = 0;
	multiply_by(chunk->d_q, chunk->d_q, chunk->pairs, chunk->k, ROWS, dim);
	multiply_turned(chunk->d_k, chunk->d_k, chunk->pairs, chunk->q, ROWS, dim);
}

/* `next`: the state that the next chunk starts from. */
static void upstream_back(struct chunk *chunk, int dim, const float *state, const float *next, float *adjoint)
{
	float twice[128 * 128] ALIGNED, d_twice[128 * 128] ALIGNED;

	advance(chunk, dim, next, twice);
	transpose(twice, dim, dim, dim, chunk->turned_state);
	multiply_by(chunk->d_q, NULL, chunk->d_o, chunk->turned_state, dim, dim);
	multiply_turned(d_twice, NULL, chunk->q, chunk->d_o, dim, dim);
	advance_back(chunk, dim, next, NULL, d_twice);
	for (int i = 0; i < dim * dim; i++)
		adjoint[i] += d_twice[i];
	advance_back(chunk, dim, state, NULL, adjoint);
}

static void chunk_back(const struct quasar_gradient *gradient, int64_t batch, int head, int64_t first,
	struct chunk *chunk, const float *state, float *adjoint, double *d_beta)
{
	const struct quasar_problem *problem = &gradient->problem;
	int dim = problem->dim;

	read_keys(problem, batch, head, first, chunk);
	read_queries(gradient, batch, head, first, chunk);
	memset(chunk->d_k, 0, sizeof(chunk->d_k));
	memset(chunk->d_v, 0, sizeof(chunk->d_v));
	memset(chunk->d_alpha, 0, sizeof(chunk->d_alpha));
	if (problem->semantics == SEMANTICS_CAUSAL)
		causal_back(chunk, dim, state, adjoint);
	else
		upstream_back(chunk, dim, state, state + dim * dim, adjoint);
	write_gradients(gradient, batch, head, first, chunk, d_beta);
}

/* A head's state of a tensor of states, zeros where there is none. */
static void read_state(const float *states, size_t head, size_t square, float *state)
{
	if (states)
		memcpy(state, states + head * square, square * sizeof(*state));
	else
		memset(state, 0, square * sizeof(*state));
}

bool VARIANT(quasar_gradient_kernel)(
	const struct quasar_gradient *gradient, int64_t batch, int head, double *d_beta)
{
	const struct quasar_problem *problem = &gradient->problem;
	int64_t rows = upstream_padded(problem->tokens), last = rows / ROWS;
	size_t square = (size_t)(problem->dim * problem->dim);
	size_t number = (size_t)(batch * problem->heads + head);
	struct chunk *chunk = aligned_alloc(64, sizeof(*chunk));
	/* before each chunk, behind the last one, and an adjoint */
	float *states = aligned_alloc(64, (size_t)(last + 2) * square * sizeof(*states));
	float *adjoint = states + (size_t)(last + 1) * square;
	bool made = chunk && states;

	if (made) {
		read_state(problem->initial_state, number, square, states);
		for (int64_t i = 0; i < last; i++) {
			float *state = states + (size_t)i * square;

			read_keys(problem, batch, head, i * ROWS, chunk);
			advance(chunk, problem->dim, state, state + square);
		}
		read_state(gradient->d_final_state, number, square, adjoint);
		for (int64_t i = last - 1; i >= 0; i--)
			chunk_back(gradient, batch, head, i * ROWS, chunk, states + (size_t)i * square,
				adjoint, d_beta);
		if (gradient->d_initial_state)
			memcpy(gradient->d_initial_state + number * square, adjoint,
				square * sizeof(*adjoint));
	}
	free(states);
	free(chunk);
	return made;
}
