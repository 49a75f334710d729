#include "op/quasar_backward/problem.h"

#include <stdlib.h>
#include <string.h>

#include "op/quasar/reference.h"

/* A row of a head's sequence: what it has, and what is added up of its gradient. */
struct row {
	struct quasar_rows at;
	double q[128], k[128], v[128], d_o[128];
	struct quasar_alpha alpha;
	double d_q[128], d_k[128], d_v[128], d_alpha;
};

/* A head. */
struct work {
	const struct quasar_gradient *gradient;
	const struct quasar_gradient_results *results;
	int64_t batch;
	int head;
	size_t square;   /* S·S */
	double *starts;  /* the state before each chunk */
	double *states;  /* the state before each step through the chunk in work, and behind the last one */
	double *adjoint; /* of the state behind the rows in work */
	double *twice;   /* upstream: of the state that queries meet */
	struct row rows[UPSTREAM_CHUNK];
	double d_beta;
};

/* --- a step ------------------------------------------------------------------------------------------ */

/* v − k S */
static void change_of(const struct row *row, int dim, const double *state, double *change)
{
	memcpy(change, row->v, (size_t)dim * sizeof(*change));
	for (int i = 0; i < dim; i++)
		for (int j = 0; j < dim; j++)
			change[j] -= row->k[i] * state[i * dim + j];
}

/* to = S + α kᵀ (v − k S), which may be S. */
static void step(const struct row *row, int dim, const double *state, double *to)
{
	double change[128];

	change_of(row, dim, state, change);
	for (int i = 0; i < dim; i++)
		for (int j = 0; j < dim; j++)
			to[i * dim + j] = state[i * dim + j] + row->alpha.alpha * row->k[i] * change[j];
}

/* From the adjoint E of what step() made of a state to that of the state. With n = v − k S, dn = α k E:
 *     dα += k E nᵀ,  dk += α n Eᵀ − dn Sᵀ,  dv += dn,  E ← E − kᵀ dn */
static void step_back(struct row *row, int dim, const double *state, double *adjoint)
{
	double change[128], d_change[128] = {0}, alpha = row->alpha.alpha;

	change_of(row, dim, state, change);
	for (int i = 0; i < dim; i++)
		for (int j = 0; j < dim; j++)
			d_change[j] += alpha * row->k[i] * adjoint[i * dim + j];
	for (int i = 0; i < dim; i++) {
		double ahead = 0, back = 0;

#pragma omp simd reduction(+ : ahead, back)
		for (int j = 0; j < dim; j++) {
			ahead += adjoint[i * dim + j] * change[j];
			back += state[i * dim + j] * d_change[j];
		}
		row->d_alpha += row->k[i] * ahead;
		row->d_k[i] += alpha * ahead - back;
		row->d_v[i] += d_change[i];
		for (int j = 0; j < dim; j++)
			adjoint[i * dim + j] -= row->k[i] * d_change[j];
	}
}

/* Of o = q S: dq = do Sᵀ, and to the adjoint of S comes qᵀ do. */
static void query_back(struct row *row, int dim, const double *state, double *adjoint)
{
	for (int i = 0; i < dim; i++) {
		double sum = 0;

#pragma omp simd reduction(+ : sum)
		for (int j = 0; j < dim; j++)
			sum += row->d_o[j] * state[i * dim + j];
		row->d_q[i] = sum;
		for (int j = 0; j < dim; j++)
			adjoint[i * dim + j] += row->q[i] * row->d_o[j];
	}
}

/* --- a chunk ----------------------------------------------------------------------------------------- */

static int64_t chunks_of(const struct quasar_problem *problem)
{
	return upstream_padded(problem->tokens) / UPSTREAM_CHUNK;
}

/* Its rows; those that pad the sequence are zeros, and change no state. */
static void read_chunk(struct work *work, int64_t chunk)
{
	const struct quasar_problem *problem = &work->gradient->problem;

	for (int r = 0; r < UPSTREAM_CHUNK; r++) {
		struct quasar_rows at = quasar_rows_at(problem, work->head, chunk * UPSTREAM_CHUNK + r);
		struct row *row = &work->rows[r];
		double lambda = 0;

		*row = (struct row){.at = at};
		quasar_read_row(&problem->q, work->batch, at.input, problem->dim, row->q);
		quasar_read_row(&problem->k, work->batch, at.input, problem->dim, row->k);
		quasar_read_row(&problem->v, work->batch, at.input, problem->dim, row->v);
		quasar_read_row(&work->gradient->d_o, work->batch, at.output, problem->dim, row->d_o);
		for (int i = 0; i < problem->dim; i++)
			lambda += row->k[i] * row->k[i];
		row->alpha = quasar_alpha(lambda, (double)problem->beta[work->head]);
	}
}

static double *state_at(const struct work *work, int step)
{
	return work->states + (size_t)step * work->square;
}

/* Each query meets the state behind its own token. */
static void causal_back(struct work *work)
{
	int dim = work->gradient->problem.dim;

	for (int r = 0; r < UPSTREAM_CHUNK; r++)
		step(&work->rows[r], dim, state_at(work, r), state_at(work, r + 1));
	for (int r = UPSTREAM_CHUNK - 1; r >= 0; r--) {
		query_back(&work->rows[r], dim, state_at(work, r + 1), work->adjoint);
		step_back(&work->rows[r], dim, state_at(work, r), work->adjoint);
	}
}

/* All queries meet the state that has gone through the chunk twice. The next chunk starts from what it was between. */
static void upstream_back(struct work *work)
{
	int dim = work->gradient->problem.dim;

	for (int i = 0; i < 2 * UPSTREAM_CHUNK; i++)
		step(&work->rows[i % UPSTREAM_CHUNK], dim, state_at(work, i), state_at(work, i + 1));
	memset(work->twice, 0, work->square * sizeof(*work->twice));
	for (int r = 0; r < UPSTREAM_CHUNK; r++)
		query_back(&work->rows[r], dim, state_at(work, 2 * UPSTREAM_CHUNK), work->twice);
	for (int r = UPSTREAM_CHUNK - 1; r >= 0; r--)
		step_back(&work->rows[r], dim, state_at(work, UPSTREAM_CHUNK + r), work->twice);
	for (size_t i = 0; i < work->square; i++)
		work->adjoint[i] += work->twice[i];
	for (int r = UPSTREAM_CHUNK - 1; r >= 0; r--)
		step_back(&work->rows[r], dim, state_at(work, r), work->adjoint);
}

/* What α passes on, and the rows to where they came from. */
static void write_chunk(struct work *work)
{
	const struct quasar_problem *problem = &work->gradient->problem;
	size_t bytes = (size_t)problem->dim * sizeof(double);

	for (int r = 0; r < UPSTREAM_CHUNK; r++) {
		struct row *row = &work->rows[r];
		struct quasar_source source = row->at.input;
		int64_t at = ((work->batch * problem->tokens + source.token) * problem->heads + source.head) *
			problem->dim;

		if (source.token < 0)
			continue;
		for (int i = 0; i < problem->dim; i++)
			row->d_k[i] += 2 * row->d_alpha * row->alpha.by_lambda * row->k[i];
		work->d_beta += row->d_alpha * row->alpha.by_beta;
		if (work->results->d_q)
			memcpy(work->results->d_q + at, row->d_q, bytes);
		if (work->results->d_k)
			memcpy(work->results->d_k + at, row->d_k, bytes);
		if (work->results->d_v)
			memcpy(work->results->d_v + at, row->d_v, bytes);
	}
}

/* --- a head ------------------------------------------------------------------------------------------ */

/* A state of the operation or its gradient, zeros where there is none. */
static void read_state(const struct work *work, const float *states, double *state)
{
	size_t at = (size_t)(work->batch * work->gradient->problem.heads + work->head) * work->square;

	for (size_t i = 0; i < work->square; i++)
		state[i] = states ? (double)states[at + i] : 0;
}

static void head_back(struct work *work)
{
	const struct quasar_gradient *gradient = work->gradient;
	const struct quasar_problem *problem = &gradient->problem;
	size_t bytes = work->square * sizeof(*work->states);
	int64_t chunks = chunks_of(problem);

	read_state(work, problem->initial_state, work->starts);
	for (int64_t chunk = 0; chunk + 1 < chunks; chunk++) {
		double *start = work->starts + (size_t)chunk * work->square, *next = start + work->square;

		read_chunk(work, chunk);
		memcpy(next, start, bytes);
		for (int r = 0; r < UPSTREAM_CHUNK; r++)
			step(&work->rows[r], problem->dim, next, next);
	}
	read_state(work, gradient->d_final_state, work->adjoint);
	for (int64_t chunk = chunks - 1; chunk >= 0; chunk--) {
		read_chunk(work, chunk);
		memcpy(work->states, work->starts + (size_t)chunk * work->square, bytes);
		if (problem->semantics == SEMANTICS_CAUSAL)
			causal_back(work);
		else
			upstream_back(work);
		write_chunk(work);
	}
	if (work->results->d_initial_state)
		memcpy(work->results->d_initial_state +
				(size_t)(work->batch * problem->heads + work->head) * work->square,
			work->adjoint, bytes);
}

int quasar_gradient_reference(const struct quasar_gradient *gradient,
	const struct quasar_gradient_results *results, struct error *err)
{
	const struct quasar_problem *problem = &gradient->problem;
	int heads = problem->heads, failed = 0;
	int64_t count = problem->batch * heads;
	size_t square = (size_t)(problem->dim * problem->dim), steps = 2 * UPSTREAM_CHUNK + 1;
	double *d_beta;

	if (quasar_gradient_check(gradient, err) < 0)
		return -1;
	d_beta = calloc((size_t)count, sizeof(*d_beta));
	if (!d_beta)
		return error_set(err, STATUS_ENVIRONMENT, "not enough memory for the fp64 reference");
#pragma omp parallel for schedule(dynamic, 1) reduction(| : failed)
	for (int64_t i = 0; i < count; i++) {
		struct work *work = malloc(sizeof(*work));
		size_t chunks = (size_t)chunks_of(problem);
		double *memory = malloc((chunks + steps + 2) * square * sizeof(*memory));

		if (work && memory) {
			*work = (struct work){.gradient = gradient,
				.results = results,
				.batch = i / heads,
				.head = (int)(i % heads),
				.square = square,
				.starts = memory,
				.states = memory + chunks * square,
				.adjoint = memory + (chunks + steps) * square,
				.twice = memory + (chunks + steps + 1) * square};
			head_back(work);
			d_beta[i] = work->d_beta;
		} else {
			failed = 1;
		}
		free(memory);
		free(work);
	}
	for (int head = 0; head < heads && results->d_beta; head++) {
		results->d_beta[head] = 0;
		for (int64_t i = head; i < count; i += heads)
			results->d_beta[head] += d_beta[i];
	}
	free(d_beta);
	return failed ? error_set(err, STATUS_ENVIRONMENT, "not enough memory for the fp64 reference") : 0;
}
