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
#include "op/quasar/kernel.h"

#include <stdbool.h>

#include "cpu/vector.h"
#include "op/quasar/gate.h"
#include "op/quasar/rows.h"

#define BLOCK 16

/* Floats from a row of K or Q to the next, whatever the head dimension: with a constant the compiler can
 * address a tile's rows from one register. Not a power of two, which would crowd rows into few cache sets. */
#define PITCH 144

/* A register tile has `tall` rows of `wide` registers, ACCUMULATORS in all: enough of them to hide the
 * latency of a multiply-add, few enough to leave registers for the factors. */
#define ACCUMULATORS (REGISTERS == 32 ? 16 : 12)
#define WIDEST (REGISTERS == 32 ? 4 : 2)

/* --- products ------------------------------------------------------------------------------------ */

/* sum [tall, wide · LANES] += or -= A [tall, inner] B [inner, wide · LANES], with A's element (r, n) at
 * a[r * a_row + n * a_step]. */
INLINE void accumulate(vector sum[ACCUMULATORS], const float *a, int a_row, int a_step, const float *b,
	int b_row, int inner, int tall, int wide, bool negative)
{
	for (int n = 0; n < inner; n++) {
		vector line[WIDEST];

		UNROLL for (int w = 0; w < wide; w++)
			line[w] = vector_load(b + n * b_row + w * LANES);
		UNROLL for (int r = 0; r < tall; r++) {
			float x = a[r * a_row + n * a_step];

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

/* C [rows, columns] = start + A B, `start` being C or NULL for zero. */
INLINE void multiply_tile(const float *a, int a_row, int a_step, const float *b, const float *start, float *c,
	int inner, int columns, int tall, int wide)
{
	vector sum[ACCUMULATORS];

	tile_load(sum, start, columns, tall, wide);
	accumulate(sum, a, a_row, a_step, b, columns, inner, tall, wide, false);
	tile_store(sum, c, columns, tall, wide);
}

/* C [rows, columns] = start + A B, `start` being C or NULL for zero. With 16 registers tiles are 6 rows tall, and
 * 4 where that is what is left. Asks for some of the next block's rows after each tile. */
INLINE void multiply(const float *a, int a_row, int a_step, const float *b, const float *start, float *c,
	int rows, int inner, int columns, struct prefetch *prefetch, int wide)
{
	const int tall = ACCUMULATORS / wide, shorter = REGISTERS == 32 ? tall : 4;

	for (int column = 0; column < columns; column += wide * LANES)
		for (int row = 0; row < rows;) {
			const float *from = start ? start + row * columns + column : NULL;
			float *to = c + row * columns + column;

			if ((rows - row) % tall == 0) {
				multiply_tile(a + row * a_row, a_row, a_step, b + column, from, to, inner,
					columns, tall, wide);
				row += tall;
			} else {
				multiply_tile(a + row * a_row, a_row, a_step, b + column, from, to, inner,
					columns, shorter, wide);
				row += shorter;
			}
			prefetch_rows(prefetch, 1 + 96 / columns);
		}
}

/* Calls a function whose last argument is a constant: the registers side by side in a tile. */
#define WITH_WIDTH(columns, function, ...)                                                                 \
	do {                                                                                               \
		if ((columns) % (WIDEST * LANES) == 0)                                                     \
			function(__VA_ARGS__, WIDEST);                                                     \
		else if ((columns) == 2 * LANES)                                                           \
			function(__VA_ARGS__, 2);                                                          \
		else                                                                                       \
			function(__VA_ARGS__, 1);                                                          \
	} while (0)

/* C [rows, columns] = A B, with A [rows, inner] in rows of PITCH; all sizes are multiples of 16. */
static void multiply_rows(const float *a, const float *b, float *c, int rows, int inner, int columns,
	struct prefetch *prefetch)
{
	WITH_WIDTH(columns, multiply, a, PITCH, 1, b, NULL, c, rows, inner, columns, prefetch);
}

/* C [rows, columns] += Aᵀ B, with A [BLOCK, rows] in rows of PITCH, B [BLOCK, columns]. */
static void add_transposed(const float *a, const float *b, float *c, int rows, int columns,
	struct prefetch *prefetch)
{
	WITH_WIDTH(columns, multiply, a, 1, PITCH, b, c, c, rows, BLOCK, columns, prefetch);
}

/* Below the diagonal, tiles of four rows leave least to do twice. */
#define STAIR 4

INLINE void multiply_lower_wide(const float *a, const float *b, float *c, int columns, int wide)
{
	for (int column = 0; column < columns; column += wide * LANES)
		for (int row = 0; row < BLOCK; row += STAIR) {
			vector sum[ACCUMULATORS];

			tile_load(sum, c + row * columns + column, columns, STAIR, wide);
			accumulate(sum, a + row * BLOCK, BLOCK, 1, b + column, columns, row + STAIR, STAIR,
				wide, false);
			tile_store(sum, c + row * columns + column, columns, STAIR, wide);
		}
}

/* C [BLOCK, columns] += A B, with a lower triangular A [BLOCK, BLOCK] that has zeros above its diagonal. */
static void multiply_lower(const float *a, const float *b, float *c, int columns)
{
	WITH_WIDTH(columns, multiply_lower_wide, a, b, c, columns);
}

INLINE void solve_wide(const float *a, const float *alpha, const float *v, float *x, int columns, int wide)
{
	for (int column = 0; column < columns; column += wide * LANES)
		for (int row = 0; row < BLOCK; row += STAIR) {
			const float *corner = a + row * BLOCK + row;
			int at = row * columns + column;
			vector sum[ACCUMULATORS], value[ACCUMULATORS];

			tile_load(sum, x + at, columns, STAIR, wide);
			tile_load(value, v ? v + at : NULL, columns, STAIR, wide);
			UNROLL for (int r = 0; r < STAIR; r++)
				UNROLL for (int w = 0; w < wide; w++)
					sum[r * wide + w] =
						alpha[row + r] * (value[r * wide + w] - sum[r * wide + w]);
			accumulate(sum, a + row * BLOCK, BLOCK, 1, x + column, columns, row, STAIR, wide, true);
			UNROLL for (int s = 0; s < STAIR; s++)
				UNROLL for (int r = s + 1; r < STAIR; r++)
					UNROLL for (int w = 0; w < wide; w++)
						sum[r * wide + w] -= corner[r * BLOCK + s] * sum[s * wide + w];
			tile_store(sum, x + at, columns, STAIR, wide);
		}
}

/* Solves (I + A) N = D (V − X) with A [BLOCK, BLOCK] strictly lower triangular and D = diag(alpha), N in
 * the place of X [BLOCK, columns]. Without `v`, V is zero. A's diagonal and above are not read. */
static void solve(const float *a, const float *alpha, const float *v, float *x, int columns)
{
	WITH_WIDTH(columns, solve_wide, a, alpha, v, x, columns);
}

/* to [columns, BLOCK] = from [BLOCK, columns]ᵀ, `from` in rows of PITCH */
static void transpose(const float *from, int columns, float *to)
{
	for (int row = 0; row < BLOCK; row += LANES)
		for (int column = 0; column < columns; column += LANES)
			transpose_square(from + row * PITCH + column, PITCH * sizeof(float),
				to + column * BLOCK + row, BLOCK * sizeof(float));
}

/* --- rows ---------------------------------------------------------------------------------------- */

static void load_row(const void *row, enum dtype dtype, int64_t step, int dim, float *out)
{
	const uint16_t *halves = row;

	if (step != 1)
		for (int i = 0; i < dim; i++)
			out[i] = dtype_load(row, dtype, i * step);
	else if (dtype == DTYPE_F32)
		memcpy(out, row, (size_t)dim * sizeof(*out));
	else if (dtype == DTYPE_BF16)
		for (int i = 0; i < dim; i += LANES)
			vector_store(out + i, vector_of_bf16(halves + i));
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
		for (int i = 0; i < dim; i += LANES)
			vector_store_bf16(halves + i, vector_load(row + i));
	else
		for (int i = 0; i < dim; i++)
			halves[i] = f16_of_float(row[i]);
}

/* Rows first … first + BLOCK − 1 of a head's tensor number `which`, `pitch` floats apart; zeros from `last` on
 * and where upstream pads. */
static void load_rows(const struct quasar_problem *problem, int which, int64_t batch, int head, int64_t first,
	int64_t last, int pitch, float *out, struct prefetch *prefetch)
{
	const struct tensor *tensor = which == 0 ? &problem->k : which == 1 ? &problem->v : &problem->q;
	struct rows rows = rows_begin(problem, tensor, batch, head, first, last,
		problem->semantics == SEMANTICS_CAUSAL ? BLOCK : UPSTREAM_CHUNK);

	prefetch_add(prefetch, which, &rows, BLOCK);
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
	int dim = problem->dim, size = (int)dtype_size(o->dtype);
	bool streamed = output_is_streamed(problem);
	char line[128 * sizeof(float)] ALIGNED;

	last = last < problem->tokens ? last : problem->tokens;
	for (int64_t row = first; row < first + BLOCK && row < last; row++, rows += dim) {
		int64_t start = batch * o->stride[0] + row * o->stride[1] + head * o->stride[2];

		if (streamed) {
			store_row(line, o->dtype, 0, 1, dim, rows);
			stream_vectors((char *)o->data + start * size, line, dim * size / (int)sizeof(vector));
		} else {
			store_row(o->data, o->dtype, start, o->stride[3], dim, rows);
		}
	}
}

/* --- blocks -------------------------------------------------------------------------------------- */

/* Keys and queries stand in one matrix, so that they go through the state together. */
struct block {
	float kq[2 * BLOCK * PITCH] ALIGNED; /* K, then Q */
	float v[BLOCK * 128] ALIGNED;
	float transposed[128 * BLOCK] ALIGNED;     /* Kᵀ */
	float products[2 * BLOCK * BLOCK] ALIGNED; /* D K Kᵀ, then tril(Q Kᵀ) */
	float alpha[BLOCK] ALIGNED;
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

/* Loads the rows and computes what does not depend on the state; Q Kᵀ is for causal queries alone. */
static void prepare(const struct quasar_problem *problem, int64_t batch, int head, int64_t first, int64_t last,
	bool with_queries, struct block *block)
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
	transpose(block->kq, dim, block->transposed);
	multiply_rows(block->kq, block->transposed, kk, with_products ? 2 * BLOCK : BLOCK, dim, BLOCK, prefetch);
	gate(kk, problem->beta[head], block->alpha);
	for (int r = 0; r < BLOCK; r++)
		for (int s = 0; s < BLOCK; s++)
			kk[r * BLOCK + s] *= block->alpha[r];
	/* what multiply_lower() reads above the diagonal */
	for (int r = 0; r < BLOCK && with_products; r++)
		for (int s = r + 1; s % STAIR; s++)
			qk[r * BLOCK + s] = 0;
}

/* The state behind a block: N = L⁻¹ D (V − K S), S += Kᵀ N. Without `v`, V is zero. */
static void step(struct block *block, const float *v, int dim, float *state)
{
	float n[BLOCK * 128] ALIGNED;

	multiply_rows(block->kq, state, n, BLOCK, dim, dim, &block->prefetch);
	solve(block->products, block->alpha, v, n, dim);
	add_transposed(block->kq, n, state, dim, dim, &block->prefetch);
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
		solve(block.products, block.alpha, block.v, n, dim);
		multiply_lower(block.products + BLOCK * BLOCK, n, o, dim);
		add_transposed(block.kq, n, state, dim, dim, &block.prefetch);
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
			step(&block[i], block[i].v, dim, state);
		}
		memcpy(twice, state, (size_t)(dim * dim) * sizeof(*state));
		for (int i = 0; i < BLOCKS; i++)
			step(&block[i], block[i].v, dim, twice);
		for (int i = 0; i < BLOCKS; i++) {
			multiply_rows(block[i].kq + BLOCK * PITCH, twice, o, BLOCK, dim, dim,
				&block[i].prefetch);
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
		step(&block, block.v, problem->dim, state);
		step(&block, NULL, problem->dim, transition);
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
