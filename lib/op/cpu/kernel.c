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
 * An upstream chunk of 64 rows is four such blocks, worked through twice (S → S⁺ → P S⁺ + R), and then
 * O = Q (P S⁺ + R) is one product: 5 S² a row, where forming P and R would take 6.5 S². */
#include "op/cpu/kernel.h"

#include <stdbool.h>

#include "op/cpu/vector.h"

#define BLOCK 16

/* A register tile has `tall` rows of `wide` registers, ACCUMULATORS in all: enough of them to hide the
 * latency of a multiply-add, few enough to leave registers for the factors. */
#define ACCUMULATORS (REGISTERS / 2)
#define WIDEST (REGISTERS == 32 ? 4 : 2)
#define UNROLL _Pragma("GCC unroll 16")

/* --- products ------------------------------------------------------------------------------------ */

/* A matrix as the left factor: element (row, n) at data[row * row_stride + n * step]. */
struct factor {
	const float *data;
	int row_stride, step;
};

INLINE struct factor rows_from(struct factor a, int row)
{
	return (struct factor){a.data + row * a.row_stride, a.row_stride, a.step};
}

/* sum [tall, wide · LANES] += or -= A [tall, inner] B [inner, wide · LANES] */
INLINE void accumulate(vector sum[ACCUMULATORS], struct factor a, const float *b, int b_stride, int inner,
	int tall, int wide, bool negative)
{
	for (int n = 0; n < inner; n++) {
		vector line[WIDEST];

		UNROLL for (int w = 0; w < wide; w++)
			line[w] = vector_load(b + n * b_stride + w * LANES);
		UNROLL for (int r = 0; r < tall; r++) {
			float x = a.data[r * a.row_stride + n * a.step];

			UNROLL for (int w = 0; w < wide; w++)
				sum[r * wide + w] += (negative ? -x : x) * line[w];
		}
	}
}

INLINE void tile_load(vector sum[ACCUMULATORS], const float *c, int stride, int tall, int wide)
{
	UNROLL for (int r = 0; r < tall; r++)
		UNROLL for (int w = 0; w < wide; w++)
			sum[r * wide + w] = c ? vector_load(c + r * stride + w * LANES) : (vector){0};
}

INLINE void tile_store(const vector sum[ACCUMULATORS], float *c, int stride, int tall, int wide)
{
	UNROLL for (int r = 0; r < tall; r++)
		UNROLL for (int w = 0; w < wide; w++)
			vector_store(c + r * stride + w * LANES, sum[r * wide + w]);
}

INLINE void multiply_wide(struct factor a, const float *b, const float *start, float *c, int rows, int inner,
	int columns, int wide)
{
	const int tall = ACCUMULATORS / wide;

	for (int column = 0; column < columns; column += wide * LANES)
		for (int row = 0; row < rows; row += tall) {
			int at = row * columns + column;
			vector sum[ACCUMULATORS];

			tile_load(sum, start ? start + at : NULL, columns, tall, wide);
			accumulate(sum, rows_from(a, row), b + column, columns, inner, tall, wide, false);
			tile_store(sum, c + at, columns, tall, wide);
		}
}

/* C [rows, columns] = start + A [rows, inner] B [inner, columns]; `start` may be C, or NULL for zero. Rows
 * and columns are multiples of 16. */
static void multiply(struct factor a, const float *b, const float *start, float *c, int rows, int inner,
	int columns)
{
	if (columns % (WIDEST * LANES) == 0)
		multiply_wide(a, b, start, c, rows, inner, columns, WIDEST);
	else if (columns == 2 * LANES)
		multiply_wide(a, b, start, c, rows, inner, columns, 2);
	else
		multiply_wide(a, b, start, c, rows, inner, columns, 1);
}

/* Below the diagonal, tiles of four rows leave least to do twice. */
#define STAIR 4

INLINE void multiply_lower_wide(const float *a, const float *b, float *c, int columns, int wide)
{
	for (int column = 0; column < columns; column += wide * LANES)
		for (int row = 0; row < BLOCK; row += STAIR) {
			vector sum[ACCUMULATORS];

			tile_load(sum, c + row * columns + column, columns, STAIR, wide);
			accumulate(sum, (struct factor){a + row * BLOCK, BLOCK, 1}, b + column, columns,
				row + STAIR, STAIR, wide, false);
			tile_store(sum, c + row * columns + column, columns, STAIR, wide);
		}
}

/* C [BLOCK, columns] += A B, A [BLOCK, BLOCK] lower triangular with zeros above its diagonal. */
static void multiply_lower(const float *a, const float *b, float *c, int columns)
{
	if (columns % (WIDEST * LANES) == 0)
		multiply_lower_wide(a, b, c, columns, WIDEST);
	else
		multiply_lower_wide(a, b, c, columns, 2);
}

INLINE void solve_lower_wide(const float *a, float *x, int columns, int wide)
{
	for (int column = 0; column < columns; column += wide * LANES)
		for (int row = 0; row < BLOCK; row += STAIR) {
			const float *corner = a + row * BLOCK + row;
			float *rows = x + row * columns + column;
			vector sum[ACCUMULATORS];

			tile_load(sum, rows, columns, STAIR, wide);
			accumulate(sum, (struct factor){a + row * BLOCK, BLOCK, 1}, x + column, columns, row,
				STAIR, wide, true);
			UNROLL for (int s = 0; s < STAIR; s++)
				UNROLL for (int r = s + 1; r < STAIR; r++)
					UNROLL for (int w = 0; w < wide; w++)
						sum[r * wide + w] -= corner[r * BLOCK + s] * sum[s * wide + w];
			tile_store(sum, rows, columns, STAIR, wide);
		}
}

/* Solves (I + A) X = B in place, A [BLOCK, BLOCK] strictly lower triangular, B and X [BLOCK, columns]; what
 * stands on A's diagonal and above is not read. */
static void solve_lower(const float *a, float *x, int columns)
{
	if (columns % (WIDEST * LANES) == 0)
		solve_lower_wide(a, x, columns, WIDEST);
	else
		solve_lower_wide(a, x, columns, 2);
}

/* --- rows ---------------------------------------------------------------------------------------- */

static void load_row(const void *data, enum dtype dtype, int64_t start, int64_t step, int dim, float *out)
{
	const uint16_t *halves = (const uint16_t *)data + start;

	if (step != 1)
		for (int i = 0; i < dim; i++)
			out[i] = dtype_load(data, dtype, start + i * step);
	else if (dtype == DTYPE_F32)
		memcpy(out, (const float *)data + start, (size_t)dim * sizeof(*out));
	else if (dtype == DTYPE_BF16)
		for (int i = 0; i < dim; i++)
			out[i] = bf16_to_float(halves[i]);
	else
		for (int i = 0; i < dim; i++)
			out[i] = f16_to_float(halves[i]);
}

static void store_row(void *data, enum dtype dtype, int64_t start, int64_t step, int dim, const float *row)
{
	uint16_t *halves = (uint16_t *)data + start;

	if (step != 1)
		for (int i = 0; i < dim; i++)
			dtype_store(data, dtype, start + i * step, row[i]);
	else if (dtype == DTYPE_F32)
		memcpy((float *)data + start, row, (size_t)dim * sizeof(*row));
	else if (dtype == DTYPE_BF16)
		for (int i = 0; i < dim; i++)
			halves[i] = bf16_of_float(row[i]);
	else
		for (int i = 0; i < dim; i++)
			halves[i] = f16_of_float(row[i]);
}

/* Rows first … first + BLOCK − 1 of a head; zeros from `last` on and where upstream pads. */
static void load_rows(const struct quasar_problem *problem, const struct tensor *tensor, int64_t batch,
	int head, int64_t first, int64_t last, float *out)
{
	int dim = problem->dim;
	for (int r = 0; r < BLOCK; r++, out += dim) {
		struct quasar_source source = quasar_source(problem, head, first + r);

		if (first + r >= last || source.token < 0)
			memset(out, 0, (size_t)dim * sizeof(*out));
		else
			load_row(tensor->data, tensor->dtype,
				batch * tensor->stride[0] + source.token * tensor->stride[1] +
					source.head * tensor->stride[2],
				tensor->stride[3], dim, out);
	}
}

static void store_rows(const struct quasar_problem *problem, int64_t batch, int head, int64_t first,
	int64_t last, const float *rows)
{
	int dim = problem->dim;
	const struct tensor *o = &problem->o;

	last = last < problem->tokens ? last : problem->tokens;
	for (int64_t row = first; row < first + BLOCK && row < last; row++, rows += dim)
		store_row(o->data, o->dtype,
			batch * o->stride[0] + row * o->stride[1] + head * o->stride[2], o->stride[3], dim, rows);
}

/* --- blocks -------------------------------------------------------------------------------------- */

/* Keys and queries stand in one matrix, so that they go through the state together. */
struct block {
	float kq[2 * BLOCK * 128] ALIGNED; /* K, then Q */
	float v[BLOCK * 128] ALIGNED;
	float transposed[128 * BLOCK] ALIGNED;   /* Kᵀ */
	float products[2 * BLOCK * BLOCK] ALIGNED; /* D K Kᵀ, then tril(Q Kᵀ) */
	float alpha[BLOCK] ALIGNED;
};

/* α = (1 − exp(−β λ)) / (λ + ε) for a block's rows; λ is the diagonal of K Kᵀ. */
static void gate(const float *kk, float beta, float *alpha)
{
	float lambda[BLOCK] ALIGNED;

	for (int r = 0; r < BLOCK; r++)
		lambda[r] = kk[r * BLOCK + r];
	for (int r = 0; r < BLOCK; r += LANES) {
		vector length = vector_load(lambda + r);

		vector_store(alpha + r,
			-vector_expm1_negative(-beta * length) / (length + (float)QUASAR_EPSILON));
	}
}

/* Loads the rows and computes what does not depend on the state. */
static void prepare(const struct quasar_problem *problem, int64_t batch, int head, int64_t first, int64_t last,
	bool with_queries, struct block *block)
{
	int dim = problem->dim;
	float *kk = block->products, *qk = block->products + BLOCK * BLOCK;

	load_rows(problem, &problem->k, batch, head, first, last, block->kq);
	load_rows(problem, &problem->v, batch, head, first, last, block->v);
	if (with_queries)
		load_rows(problem, &problem->q, batch, head, first, last, block->kq + BLOCK * dim);
	for (int i = 0; i < dim; i++)
		for (int r = 0; r < BLOCK; r++)
			block->transposed[i * BLOCK + r] = block->kq[r * dim + i];
	multiply((struct factor){block->kq, dim, 1}, block->transposed, NULL, kk,
		with_queries ? 2 * BLOCK : BLOCK, dim, BLOCK);
	gate(kk, problem->beta[head], block->alpha);
	for (int r = 0; r < BLOCK; r++)
		for (int s = 0; s < BLOCK; s++) {
			kk[r * BLOCK + s] *= block->alpha[r];
			if (with_queries && s > r)
				qk[r * BLOCK + s] = 0;
		}
}

/* N = L⁻¹ D (V − K S), given K S in `n`; without `v`, L⁻¹ D (−K S). */
static void differences(const struct block *block, const float *v, int dim, float *n)
{
	for (int r = 0; r < BLOCK; r++)
		for (int i = 0; i < dim; i++)
			n[r * dim + i] = block->alpha[r] * ((v ? v[r * dim + i] : 0.0f) - n[r * dim + i]);
	solve_lower(block->products, n, dim);
}

/* S += Kᵀ N */
static void update(const struct block *block, int dim, const float *n, float *state)
{
	multiply((struct factor){block->kq, 1, dim}, n, state, state, dim, BLOCK, dim);
}

/* The state behind a block. */
static void step(const struct block *block, const float *v, int dim, float *state)
{
	float n[BLOCK * 128] ALIGNED;

	multiply((struct factor){block->kq, dim, 1}, state, NULL, n, BLOCK, dim, dim);
	differences(block, v, dim, n);
	update(block, dim, n, state);
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
		multiply((struct factor){block.kq, dim, 1}, state, NULL, no, 2 * BLOCK, dim, dim);
		differences(&block, block.v, dim, n);
		multiply_lower(block.products + BLOCK * BLOCK, n, o, dim);
		update(&block, dim, n, state);
		store_rows(problem, batch, head, first, last, o);
	}
}

static void upstream(const struct quasar_problem *problem, int64_t batch, int head, int64_t first,
	int64_t last, float *state)
{
	int dim = problem->dim;
	enum { BLOCKS = UPSTREAM_CHUNK / BLOCK };
	struct block block[BLOCKS];
	float twice[128 * 128] ALIGNED; /* P S⁺ + R */
	float rows[BLOCK * 128] ALIGNED;

	for (; first < last; first += UPSTREAM_CHUNK) {
		for (int i = 0; i < BLOCKS; i++) {
			prepare(problem, batch, head, first + i * BLOCK, last, false, &block[i]);
			step(&block[i], block[i].v, dim, state);
		}
		memcpy(twice, state, (size_t)(dim * dim) * sizeof(*state));
		for (int i = 0; i < BLOCKS; i++)
			step(&block[i], block[i].v, dim, twice);
		for (int i = 0; i < BLOCKS; i++) {
			float *o = block[i].v;

			load_rows(problem, &problem->q, batch, head, first + i * BLOCK, last, rows);
			multiply((struct factor){rows, dim, 1}, twice, NULL, o, BLOCK, dim, dim);
			store_rows(problem, batch, head, first + i * BLOCK, last, o);
		}
	}
}

static void advance(const struct quasar_problem *problem, int64_t batch, int head, int64_t first,
	int64_t last, float *state, float *transition)
{
	int dim = problem->dim;
	struct block block;

	for (; first < last; first += BLOCK) {
		prepare(problem, batch, head, first, last, false, &block);
		step(&block, block.v, dim, state);
		if (transition)
			step(&block, NULL, dim, transition);
	}
}

static void forward(const struct quasar_problem *problem, int64_t batch, int head, int64_t first,
	int64_t last, float *state)
{
	if (problem->semantics == SEMANTICS_CAUSAL)
		causal(problem, batch, head, first, last, state);
	else
		upstream(problem, batch, head, first, last, state);
}

static void apply(int dim, const float *p, const float *r, const float *from, float *to)
{
	multiply((struct factor){p, dim, 1}, from, r, to, dim, dim, dim);
}

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)

const struct cpu_kernel JOIN(cpu_kernel_, KERNEL) = {
	.name = TEXT(KERNEL),
	.forward = forward,
	.advance = advance,
	.apply = apply,
	.round = POINTWISE(round),
	.narrow = POINTWISE(narrow),
	.convolve = POINTWISE(convolve),
	.gate = POINTWISE(gate),
};
