/* Attention and its gradient in fp32, by blocks of 64 queries and 64 keys (the Makefile defines KERNEL). A call keeps
 * one block of rows and walks through the blocks that these attend to, or are attended by. */
#include "op/flash/kernel.h"

#include <math.h>

#include "cpu/block.h"

#define ROWS FLASH_BLOCK

/* --- tiles ------------------------------------------------------------------------------------------ */

/* The rows of a block of a tensor; zeros behind the sequence. */
static void load_block(const struct tensor *tensor, const struct flash_sequence *sequence, int head,
	int64_t row, int dim, int pitch, float *out)
{
	load_head_rows(tensor, sequence->batch, head, sequence->first + row,
		sequence->first + sequence->tokens, ROWS, dim, pitch, out);
}

/* The rows of a block of an output, each times `factor`. */
static void store_block(
	const struct tensor *tensor, const struct flash_block *block, int dim, float *rows, float factor)
{
	const struct flash_sequence *sequence = &block->sequence;

	for (int r = 0; r < ROWS && block->row + r < sequence->tokens; r++, rows += dim) {
		for (int i = 0; i < dim; i++)
			rows[i] *= factor;
		store_row(tensor->data, tensor->dtype,
			sequence->batch * tensor->stride[0] +
				(sequence->first + block->row + r) * tensor->stride[1] +
				block->head * tensor->stride[2],
			tensor->stride[3], dim, rows);
	}
}

/* The rows of a sequence that the queries of a block see end here; those that see a block of keys begin here. */
static int64_t keys_end(const struct flash_problem *problem, const struct flash_block *queries)
{
	int64_t end = queries->row + ROWS;

	return problem->causal && end < queries->sequence.tokens ? end : queries->sequence.tokens;
}

static int64_t queries_begin(const struct flash_problem *problem, const struct flash_block *keys)
{
	return problem->causal ? keys->row : 0;
}

/* Columns `begin` … `end` − 1 of a row of scores are pairs of a query and a key that it sees. */
struct range {
	int begin, end;
};

static struct range visible(const struct flash_problem *problem, const struct flash_block *kept, int r,
	int64_t walked, bool keys_kept)
{
	int64_t row = kept->row + r, end = kept->sequence.tokens - walked, begin = 0;

	if (problem->causal && keys_kept)
		begin = row - walked;
	else if (problem->causal && row + 1 - walked < end)
		end = row + 1 - walked;
	end = end < ROWS ? end : ROWS;
	begin = begin < 0 ? 0 : begin;
	return end > begin ? (struct range){(int)begin, (int)end} : (struct range){0, 0};
}

static void clear_outside(float *row, struct range range)
{
	memset(row, 0, (size_t)range.begin * sizeof(*row));
	memset(row + range.end, 0, (size_t)(ROWS - range.end) * sizeof(*row));
}

static int key_head_of(const struct flash_problem *problem, int head)
{
	return head / (problem->heads / problem->key_heads);
}

/* --- forward ---------------------------------------------------------------------------------------- */

struct forward {
	float q[ROWS * PITCH] ALIGNED, rows[ROWS * PITCH] ALIGNED;
	float k_transposed[128 * ROWS] ALIGNED, v[ROWS * 128] ALIGNED, o[ROWS * 128] ALIGNED;
	float scores[ROWS * ROWS] ALIGNED;
	float most[ROWS]; /* of a row's scores so far */
	double sum[ROWS]; /* of their exponentials, relative to that */
};

/* From scores to exp(scale · score − most); O so far is scaled to a new `most`. */
static void soften_row(const struct flash_problem *problem, struct forward *it, int r, struct range range)
{
	float *row = it->scores + r * ROWS, *o = it->o + r * problem->dim, most = it->most[r], factor;
	float sum = 0;

	for (int i = 0; i < range.end; i++) {
		row[i] *= problem->scale;
		most = row[i] > most ? row[i] : most; /* a NaN becomes visible in the sum */
	}
	for (int i = 0; i < ROWS; i += LANES)
		vector_store(row + i, vector_exp_negative(vector_load(row + i) - vector_of(most)));
	clear_outside(row, range);
	for (int i = 0; i < ROWS; i++)
		sum += row[i];
	factor = expf(it->most[r] - most);
	it->sum[r] = it->sum[r] * (double)factor + (double)sum;
	it->most[r] = most;
	for (int i = 0; i < problem->dim && factor != 1; i++)
		o[i] *= factor;
}

static void forward(const struct flash_problem *problem, const struct flash_block *queries)
{
	const struct flash_sequence *sequence = &queries->sequence;
	int dim = problem->dim, key_head = key_head_of(problem, queries->head);
	struct forward it;

	load_block(&problem->q, sequence, queries->head, queries->row, dim, PITCH, it.q);
	memset(it.o, 0, sizeof(it.o));
	for (int r = 0; r < ROWS; r++) {
		it.most[r] = -INFINITY;
		it.sum[r] = 0;
	}
	for (int64_t key = 0; key < keys_end(problem, queries); key += ROWS) {
		load_block(&problem->k, sequence, key_head, key, dim, PITCH, it.rows);
		transpose(it.rows, PITCH, ROWS, dim, it.k_transposed);
		load_block(&problem->v, sequence, key_head, key, dim, dim, it.v);
		multiply_matrices(it.scores, NULL, it.q, PITCH, 1, it.k_transposed, ROWS, dim, ROWS);
		for (int r = 0; r < ROWS; r++)
			soften_row(problem, &it, r, visible(problem, queries, r, key, false));
		multiply_matrices(it.o, it.o, it.scores, ROWS, 1, it.v, ROWS, ROWS, dim);
	}
	for (int r = 0; r < ROWS && queries->row + r < sequence->tokens; r++) {
		for (int i = 0; i < dim; i++)
			it.o[r * dim + i] = (float)((double)it.o[r * dim + i] / it.sum[r]);
		if (problem->lse)
			problem->lse[flash_lse_index(problem, sequence->batch, queries->head,
				sequence->first + queries->row + r)] = (float)((double)it.most[r] +
				log(it.sum[r]));
	}
	store_block(&problem->o, queries, dim, it.o, 1);
}

/* --- gradient --------------------------------------------------------------------------------------- */

/* Both passes are the same but for what is kept: Q and dO, or K and V. Scores are kept rows by walked columns. */
struct gradient {
	float kept[2][ROWS * PITCH] ALIGNED;                    /* Q and dO, or K and V */
	float rows[ROWS * PITCH] ALIGNED;                       /* in work */
	float walked[2][ROWS * 128], transposed[2][128 * ROWS]; /* K and V, or Q and dO */
	float p[ROWS * ROWS] ALIGNED, ds[ROWS * ROWS] ALIGNED;  /* dP at first */
	float lse[ROWS] ALIGNED, d[ROWS] ALIGNED;               /* of the queries */
	float sums[2][ROWS * 128] ALIGNED;                      /* dQ, or dK and dV */
};

/* From scores to P = exp(scale · score − lse), and from dP to dS = P ∘ (dP − D). */
INLINE void differentiate_row(
	const struct flash_problem *problem, struct gradient *it, int r, struct range range, bool keys_kept)
{
	float *p = it->p + r * ROWS, *ds = it->ds + r * ROWS;

	for (int i = 0; i < ROWS; i += LANES) {
		vector lse = keys_kept ? vector_load(it->lse + i) : vector_of(it->lse[r]);
		vector d = keys_kept ? vector_load(it->d + i) : vector_of(it->d[r]);
		vector x = vector_exp_negative(problem->scale * vector_load(p + i) - lse);

		vector_store(p + i, x);
		vector_store(ds + i, x * (vector_load(ds + i) - d));
	}
	clear_outside(p, range);
	clear_outside(ds, range);
}

/* What a walked block of `head` adds to the sums. Its rows begin at `row`; it->lse and it->d are known. */
INLINE void add_block(const struct flash_problem *problem, struct gradient *it,
	const struct flash_block *kept, int head, int64_t row, bool keys_kept)
{
	const struct tensor *tensors[] = {
		keys_kept ? &problem->q : &problem->k, keys_kept ? &problem->d_o : &problem->v};
	int dim = problem->dim;

	for (int i = 0; i < 2; i++) {
		load_block(tensors[i], &kept->sequence, head, row, dim, PITCH, it->rows);
		transpose(it->rows, PITCH, ROWS, dim, it->transposed[i]);
		for (int r = 0; r < ROWS; r++)
			memcpy(it->walked[i] + r * dim, it->rows + r * PITCH,
				(size_t)dim * sizeof(*it->rows));
		multiply_matrices(
			i ? it->ds : it->p, NULL, it->kept[i], PITCH, 1, it->transposed[i], ROWS, dim, ROWS);
	}
	for (int r = 0; r < ROWS; r++)
		differentiate_row(problem, it, r, visible(problem, kept, r, row, keys_kept), keys_kept);
	multiply_matrices(it->sums[0], it->sums[0], it->ds, ROWS, 1, it->walked[0], ROWS, ROWS, dim);
	if (keys_kept)
		multiply_matrices(it->sums[1], it->sums[1], it->p, ROWS, 1, it->walked[1], ROWS, ROWS, dim);
}

/* The queries' lse, and `d` where it is known already; zeros behind the sequence. */
static void load_statistics(const struct flash_problem *problem, struct gradient *it,
	const struct flash_sequence *sequence, int head, int64_t row, const float *d)
{
	int64_t at = flash_lse_index(problem, sequence->batch, head, sequence->first + row);

	for (int r = 0; r < ROWS; r++) {
		bool there = row + r < sequence->tokens;

		it->lse[r] = there ? problem->lse[at + r] : 0;
		it->d[r] = there && d ? d[at + r] : 0;
	}
}

/* D = rowsum(dO ∘ O) of the kept queries. */
static void make_d(
	const struct flash_problem *problem, struct gradient *it, const struct flash_block *queries, float *d)
{
	const struct flash_sequence *sequence = &queries->sequence;
	int64_t at = flash_lse_index(problem, sequence->batch, queries->head, sequence->first + queries->row);

	load_block(&problem->o, sequence, queries->head, queries->row, problem->dim, PITCH, it->rows);
	for (int r = 0; r < ROWS && queries->row + r < sequence->tokens; r++) {
		const float *o = it->rows + r * PITCH, *d_o = it->kept[1] + r * PITCH;
		double sum = 0;

#pragma omp simd reduction(+ : sum)
		for (int i = 0; i < problem->dim; i++)
			sum += (double)o[i] * (double)d_o[i];
		d[at + r] = it->d[r] = (float)sum;
	}
}

static void query_gradient(const struct flash_problem *problem, const struct flash_block *queries, float *d)
{
	const struct flash_sequence *sequence = &queries->sequence;
	int dim = problem->dim;
	struct gradient it;

	load_block(&problem->q, sequence, queries->head, queries->row, dim, PITCH, it.kept[0]);
	load_block(&problem->d_o, sequence, queries->head, queries->row, dim, PITCH, it.kept[1]);
	load_statistics(problem, &it, sequence, queries->head, queries->row, NULL);
	make_d(problem, &it, queries, d);
	memset(it.sums[0], 0, sizeof(it.sums[0]));
	for (int64_t key = 0; key < keys_end(problem, queries); key += ROWS)
		add_block(problem, &it, queries, key_head_of(problem, queries->head), key, false);
	store_block(&problem->dq, queries, dim, it.sums[0], problem->scale);
}

static void key_gradient(const struct flash_problem *problem, const struct flash_block *keys, const float *d)
{
	const struct flash_sequence *sequence = &keys->sequence;
	int dim = problem->dim, group = problem->heads / problem->key_heads;
	struct gradient it;

	load_block(&problem->k, sequence, keys->head, keys->row, dim, PITCH, it.kept[0]);
	load_block(&problem->v, sequence, keys->head, keys->row, dim, PITCH, it.kept[1]);
	memset(it.sums, 0, sizeof(it.sums));
	for (int head = keys->head * group; head < (keys->head + 1) * group; head++)
		for (int64_t query = queries_begin(problem, keys); query < sequence->tokens; query += ROWS) {
			load_statistics(problem, &it, sequence, head, query, d);
			add_block(problem, &it, keys, head, query, true);
		}
	store_block(&problem->dk, keys, dim, it.sums[0], problem->scale);
	store_block(&problem->dv, keys, dim, it.sums[1], 1);
}

const struct flash_kernel VARIANT(flash_kernel) = {forward, query_gradient, key_gradient};
