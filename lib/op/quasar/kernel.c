/* The chunked operation in fp32, compiled once for each instruction set (the Makefile defines KERNEL).
 *
 * Arithmetic. A token by itself reads and writes the whole S×S state for 3 S² multiply-adds, so it waits
 * for the cache. Sixteen rows at a time (a block) turn that into matrix products, in which a tile of
 * registers takes part in one multiply-add for each number loaded:
 *
 *   [K; Q] S        2 S² a row    one pass over the state for keys and queries together
 *   [K; Q] Kᵀ       2·16 S        what the rows of a block have to do with each other
 *   N = L⁻¹ D (V − K S)           forward substitution, 8 S: W and U are never formed
 *   O = Q S + tril(Q Kᵀ) N        8 S
 *   S += Kᵀ N       S²            the state is read and written once a block
 *
 * With a gate, let c_r = g_1 … g_r within the block: K Kᵀ and Q Kᵀ are multiplied by c_r / c_s, K S and Q S by c_r, and
 * the state becomes c_16 S + Kᵀ diag(c_16 / c_r) N.
 *
 * An upstream chunk of 64 rows is four such blocks, worked through twice (S → S⁺ → P S⁺ + R), and then
 * O = Q (P S⁺ + R) is one product: 5 S² a row, where forming P and R would take 6.5 S². */
#include "op/quasar/kernel.h"

#include <stdbool.h>

#include "cpu/block.h"
#include "op/quasar/gate.h"
#include "op/quasar/rows.h"

/* --- products ------------------------------------------------------------------------------------ */

INLINE void solve_wide(const float *a, const float *alpha, const float *v, float *x, int columns, int wide)
{
	for (int column = 0; column < columns; column += wide * LANES)
		for (int row = 0; row < BLOCK; row += STAIR) {
			const float *corner = a + row * BLOCK + row;
			int at = row * columns + column;
			vector sum[ACCUMULATORS], value[ACCUMULATORS];

			tile_load(sum, x + at, columns, STAIR, wide);
			tile_load(value, v ? v + at : NULL, columns, STAIR, wide);
			UNROLL
			for (int r = 0; r < STAIR; r++) {
				UNROLL
				for (int w = 0; w < wide; w++)
					sum[r * wide + w] = alpha[row + r] *
						(value[r * wide + w] - sum[r * wide + w]);
			}
			accumulate(
				sum, a + row * BLOCK, BLOCK, 1, x + column, columns, row, STAIR, wide, true);
			UNROLL
			for (int s = 0; s < STAIR; s++) {
				UNROLL
				for (int r = s + 1; r < STAIR; r++) {
					UNROLL
					for (int w = 0; w < wide; w++)
						sum[r * wide + w] -= corner[r * BLOCK + s] *
							sum[s * wide + w];
				}
			}
			tile_store(sum, x + at, columns, STAIR, wide);
		}
}

/* Solves (I + A) N = D (V − X) with A [BLOCK, BLOCK] strictly lower triangular and D = diag(alpha), N in
 * the place of X [BLOCK, columns]. Without `v`, V is zero. A's diagonal and above are not read. */
static void solve(const float *a, const float *alpha, const float *v, float *x, int columns)
{
	WITH_WIDTH(columns, solve_wide, a, alpha, v, x, columns);
}

/* --- rows ---------------------------------------------------------------------------------------- */

/* Rows first … first + BLOCK − 1 of a head's tensor number `which`, `pitch` floats apart; zeros from `last` on
 * and where upstream pads. */
static void load_rows(const struct quasar_problem *problem, int which, int64_t batch, int head, int64_t first,
	int64_t last, int pitch, float *out, struct prefetch *prefetch)
{
	const struct tensor *tensor = which == 0 ? &problem->k : which == 1 ? &problem->v : &problem->q;
	struct rows rows = rows_begin(problem, tensor, batch, head, first, last,
		problem->semantics == SEMANTICS_CAUSAL ? BLOCK : UPSTREAM_CHUNK);

	rows_prefetch(&rows, prefetch, which, BLOCK);
	for (int r = 0; r < BLOCK; r++, out += pitch) {
		const char *row = rows_next(&rows);

		if (!row) {
			memset(out, 0, (size_t)problem->dim * sizeof(*out));
			continue;
		}
		load_row(row, tensor->dtype, tensor->stride[3], problem->dim, out);
	}
}

static void store_rows(const struct quasar_problem *problem, int64_t batch, int head, int64_t first,
	int64_t last, const float *rows)
{
	const struct tensor *o = &problem->o;
	int dim = problem->dim;
	bool streamed = output_is_streamed(o, problem->batch * problem->tokens * problem->heads * dim);

	last = last < problem->tokens ? last : problem->tokens;
	for (int64_t row = first; row < first + BLOCK && row < last; row++, rows += dim)
		output_row(o, batch * o->stride[0] + row * o->stride[1] + head * o->stride[2], dim, rows,
			streamed);
}

/* --- blocks -------------------------------------------------------------------------------------- */

/* Keys and queries stand in one matrix, so that they go through the state together. */
struct block {
	float kq[2 * BLOCK * PITCH] ALIGNED; /* K, then Q */
	float v[BLOCK * 128] ALIGNED;
	float transposed[128 * BLOCK] ALIGNED;     /* Kᵀ */
	float products[2 * BLOCK * BLOCK] ALIGNED; /* D K Kᵀ, then tril(Q Kᵀ) */
	float alpha[BLOCK] ALIGNED;
	/* with a gate: how much is left of the state before the block at each row, and of each row's part behind the last */
	float since_start[BLOCK] ALIGNED, until_end[BLOCK] ALIGNED;
	struct prefetch prefetch;
};

/* α of a block's rows; λ is the diagonal of K Kᵀ. */
static void gate(const float *kk, float beta, float *alpha)
{
	float lambda[BLOCK] ALIGNED;

	for (int r = 0; r < BLOCK; r++)
		lambda[r] = kk[r * BLOCK + r];
	for (int r = 0; r < BLOCK; r += LANES)
		vector_store(alpha + r, vector_gate(vector_load(lambda + r), beta));
}

/* --- the gate ------------------------------------------------------------------------------------ */

#define LEAST_LOG_GATE -60.0f /* what is left then is nothing to fp32 beside what comes */

/* to = e^(sign (x − from)), at most 1 */
INLINE void exp_differences(float sign, float x, const float *from, float *to)
{
	for (int i = 0; i < BLOCK; i += LANES) {
		vector exponent = sign * (x - vector_load(from + i));

		vector_store(
			to + i, vector_exp_negative(vector_select(exponent > 0.0f, (vector){0}, exponent)));
	}
}

/* Multiplies the rows of `count` matrices [BLOCK, columns] by factor[row]. */
static void scale_rows(float *rows, const float *factor, int count, int columns)
{
	for (int r = 0; r < count * BLOCK; r++)
		for (int i = 0; i < columns; i++)
			rows[r * columns + i] *= factor[r % BLOCK];
}

/* Gates of the rows first … first + BLOCK − 1, 1 from `last` on; and the products of rows with earlier ones decay by those
 * between them. */
static void decay(const struct quasar_problem *problem, int64_t batch, int head, int64_t first, int64_t last,
	int products, struct block *block)
{
	const float *gate = problem->log_gate + (batch * problem->tokens + first) * problem->heads + head;
	float sum[BLOCK] ALIGNED, between[BLOCK] ALIGNED;

	for (int r = 0; r < BLOCK; r++) {
		float log_gate = first + r < last ? gate[r * problem->heads] : 0;

		/* a NaN stays one */
		sum[r] = (r ? sum[r - 1] : 0) + (log_gate < LEAST_LOG_GATE ? LEAST_LOG_GATE : log_gate);
	}
	exp_differences(-1, 0, sum, block->since_start);
	exp_differences(1, sum[BLOCK - 1], sum, block->until_end);
	for (int r = 0; r < BLOCK; r++) {
		exp_differences(1, sum[r], sum, between);
		for (int p = 0; p < products; p++)
			for (int s = 0; s <= r; s++)
				block->products[(p * BLOCK + r) * BLOCK + s] *= between[s];
	}
}

/* Loads the rows and computes what does not depend on the state; Q Kᵀ is for causal queries alone. */
static void prepare(const struct quasar_problem *problem, int64_t batch, int head, int64_t first,
	int64_t last, bool with_queries, struct block *block)
{
	int dim = problem->dim;
	float *kk = block->products, *qk = block->products + BLOCK * BLOCK;
	struct prefetch *prefetch = &block->prefetch;
	bool with_products = with_queries && problem->semantics == SEMANTICS_CAUSAL;

	prefetch_begin(prefetch, dim * (int)dtype_size(problem->k.dtype));
	load_rows(problem, 0, batch, head, first, last, PITCH, block->kq, prefetch);
	load_rows(problem, 1, batch, head, first, last, dim, block->v, prefetch);
	if (with_queries)
		load_rows(problem, 2, batch, head, first, last, PITCH, block->kq + BLOCK * PITCH, prefetch);
	transpose(block->kq, PITCH, BLOCK, dim, block->transposed);
	multiply_rows(
		block->kq, block->transposed, kk, with_products ? 2 * BLOCK : BLOCK, dim, BLOCK, prefetch);
	gate(kk, problem->beta[head], block->alpha);
	if (problem->gated)
		decay(problem, batch, head, first, last, with_products ? 2 : 1, block);
	for (int r = 0; r < BLOCK; r++)
		for (int s = 0; s < BLOCK; s++)
			kk[r * BLOCK + s] *= block->alpha[r];
	/* what multiply_lower() reads above the diagonal */
	for (int r = 0; r < BLOCK && with_products; r++)
		for (int s = r + 1; s % STAIR; s++)
			qk[r * BLOCK + s] = 0;
}

/* S += Kᵀ N, which is what N is for. */
static void update(struct block *block, bool gated, float *n, int dim, float *state)
{
	if (gated) {
		scale_rows(n, block->until_end, 1, dim);
		for (int i = 0; i < dim * dim; i++)
			state[i] *= block->since_start[BLOCK - 1];
	}
	add_transposed(block->kq, n, state, dim, dim, &block->prefetch);
}

/* The state behind a block: N = L⁻¹ D (V − K S), S += Kᵀ N. Without `v`, V is zero. */
static void step(struct block *block, bool gated, const float *v, int dim, float *state)
{
	float n[BLOCK * 128] ALIGNED;

	multiply_rows(block->kq, state, n, BLOCK, dim, dim, &block->prefetch);
	if (gated)
		scale_rows(n, block->since_start, 1, dim);
	solve(block->products, block->alpha, v, n, dim);
	update(block, gated, n, dim, state);
}

static void causal(const struct quasar_problem *problem, int64_t batch, int head, int64_t first, int64_t last,
	float *state)
{
	int dim = problem->dim;
	struct block block;
	float no[2 * BLOCK * 128] ALIGNED; /* K S and then N; Q S and then O */
	float *n = no, *o = no + BLOCK * dim;

	for (; first < last; first += BLOCK) {
		prepare(problem, batch, head, first, last, true, &block);
		multiply_rows(block.kq, state, no, 2 * BLOCK, dim, dim, &block.prefetch);
		if (problem->gated)
			scale_rows(no, block.since_start, 2, dim);
		solve(block.products, block.alpha, block.v, n, dim);
		multiply_lower(block.products + BLOCK * BLOCK, n, o, dim);
		update(&block, problem->gated, n, dim, state);
		store_rows(problem, batch, head, first, last, o);
	}
}

static void upstream(const struct quasar_problem *problem, int64_t batch, int head, int64_t first,
	int64_t last, float *state)
{
	enum { BLOCKS = UPSTREAM_CHUNK / BLOCK };
	int dim = problem->dim;
	struct block block[BLOCKS];
	float twice[128 * 128] ALIGNED; /* P S⁺ + R */
	float o[BLOCK * 128] ALIGNED;

	for (; first < last; first += UPSTREAM_CHUNK) {
		for (int i = 0; i < BLOCKS; i++) {
			prepare(problem, batch, head, first + i * BLOCK, last, true, &block[i]);
			step(&block[i], false, block[i].v, dim, state);
		}
		memcpy(twice, state, (size_t)(dim * dim) * sizeof(*state));
		for (int i = 0; i < BLOCKS; i++)
			step(&block[i], false, block[i].v, dim, twice);
		for (int i = 0; i < BLOCKS; i++) {
			multiply_rows(
				block[i].kq + BLOCK * PITCH, twice, o, BLOCK, dim, dim, &block[i].prefetch);
			store_rows(problem, batch, head, first + i * BLOCK, last, o);
		}
	}
}

static void forward(const struct quasar_problem *problem, int64_t batch, int head, int64_t first,
	int64_t last, float *state)
{
	if (problem->semantics == SEMANTICS_CAUSAL)
		causal(problem, batch, head, first, last, state);
	else
		upstream(problem, batch, head, first, last, state);
	stream_fence();
}

static void advance(const struct quasar_problem *problem, int64_t batch, int head, int64_t first,
	int64_t last, float *state, float *transition)
{
	struct block block;

	for (; first < last; first += BLOCK) {
		prepare(problem, batch, head, first, last, false, &block);
		step(&block, problem->gated, block.v, problem->dim, state);
		step(&block, problem->gated, NULL, problem->dim, transition);
	}
}

static void apply(int dim, const float *p, const float *r, const float *from, float *to)
{
	memcpy(to, r, (size_t)(dim * dim) * sizeof(*to));
	for (int i = 0; i < dim; i++)
		for (int n = 0; n < dim; n++)
			for (int j = 0; j < dim; j++)
				to[i * dim + j] += p[i * dim + n] * from[n * dim + j];
}

const struct quasar_kernel VARIANT(quasar_kernel) = {forward, advance, apply};
