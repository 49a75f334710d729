/* The chunked operation on AMX, the matrix units of newer Xeons: bf16 products with fp32 sums.
 *
 * A unit multiplies two tiles of bf16 about fifteen times as fast as AVX-512 multiplies fp32, so fp32
 * numbers are worth splitting: x = high + low, both bf16, which keeps 16 bits of x. q, k and v are bf16 as
 * they come. A product of one of them and a split matrix takes two products of tiles, a product of two
 * split matrices three (low · low is left out); what is lost is below 2⁻¹⁶ of an operand, and the state
 * itself stays fp32.
 *
 * A block is 32 rows: one tile deep, and two by two tiles make a product of 32 × 32.
 *
 *   K S                        the state is split once a block
 *   [K; Q] Kᵀ                  exact but for its fp32 sums
 *   T = L⁻¹ D                  fp32, in AVX-512 registers; triangular, 32 × 32
 *   N = T (V − K S)
 *   O = Q S + tril(Q Kᵀ) N     in one accumulation
 *   S += Kᵀ N
 *
 * Anything but bf16 with contiguous rows and no gate goes to the AVX-512 kernel. */
#include "op/quasar/kernel.h"

#include <string.h>

#include "cpu/amx.h"
#include "op/quasar/gate.h"
#include "op/quasar/rows.h"

#define BLOCK 32
#define PAIRS (BLOCK / 2)

/* A right factor stands as pairs of rows: the 32 bits at [p][c] hold rows 2p (low) and 2p + 1 of column c. */
struct split {
	uint32_t high[64 * 128], low[64 * 128];
};

/* Rows of bf16, `stride` numbers apart: in the caller's tensor where they are evenly spaced there, else in a
 * copy. */
struct view {
	const uint16_t *data;
	int64_t stride;
};

struct block {
	struct view k, q, v;
	uint16_t copies[3][BLOCK * 128] ALIGNED;
	uint32_t k_pairs[64 * BLOCK] ALIGNED; /* Kᵀ [S, BLOCK] as a right factor */
	uint16_t kt[128 * BLOCK] ALIGNED;     /* Kᵀ as a left one */
	uint16_t t_high[BLOCK * BLOCK] ALIGNED, t_low[BLOCK * BLOCK] ALIGNED; /* T */
	uint16_t a_high[BLOCK * BLOCK] ALIGNED, a_low[BLOCK * BLOCK] ALIGNED; /* tril(Q Kᵀ) */
	struct prefetch prefetch;
};

/* --- products ------------------------------------------------------------------------------------- */

/* sum += A B, both split, 32 × 32 */
INLINE void sum_add_split(
	const uint16_t *a_high, const uint16_t *a_low, const struct split *b, int column, int stride)
{
	left_load(a_high, BLOCK);
	sum_add(b->high + column, stride);
	sum_add(b->low + column, stride);
	left_load(a_low, BLOCK);
	sum_add(b->high + column, stride);
}

/* sum += A B, with A [32, dim] in bf16, B [dim, dim] split; columns from `column` on */
INLINE void sum_add_rows(struct view a, const struct split *b, int column, int dim)
{
	for (int i = 0; i < dim; i += 32) {
		left_load(a.data + i, a.stride);
		sum_add(b->high + i / 2 * dim + column, dim);
		sum_add(b->low + i / 2 * dim + column, dim);
	}
}

/* --- splitting ------------------------------------------------------------------------------------ */

#define HIGH_HALF 0xffff0000

/* The bits of x rounded to bf16, in the upper half. A NaN stays one, unless all its upper bits are set. */
INLINE vector_bits rounded(vector x)
{
	return (vector_bits)x + 0x8000;
}

/* The upper halves of b, with those of a below them. */
INLINE vector_bits pair(vector_bits a, vector_bits b)
{
	return (b & HIGH_HALF) | a >> 16;
}

/* Rows 2p and 2p + 1 of a right factor, LANES columns. */
INLINE void split_pair(vector even, vector odd, uint32_t *high, uint32_t *low)
{
	vector_bits a = rounded(even), b = rounded(odd);
	vector_bits c = rounded(even - (vector)(a & HIGH_HALF)), d = rounded(odd - (vector)(b & HIGH_HALF));

	vector_store((float *)high, (vector)pair(a, b));
	vector_store((float *)low, (vector)pair(c, d));
}

/* A right factor [rows, columns], whose rows are `stride` numbers apart. */
INLINE void split_right(const float *from, int rows, int columns, int stride, uint32_t *high, uint32_t *low)
{
	for (int p = 0; p < rows / 2; p++)
		for (int c = 0; c < columns; c += LANES)
			split_pair(vector_load(from + 2 * p * stride + c),
				vector_load(from + (2 * p + 1) * stride + c), high + p * stride + c,
				low + p * stride + c);
}

/* The 32 × 32 numbers of the state from number `at` on. */
INLINE void split_square(const float *state, int at, int dim, struct split *to)
{
	int pairs = at / dim / 2 * dim + at % dim;

	split_right(state + at, 32, 32, dim, to->high + pairs, to->low + pairs);
}

/* A left factor [BLOCK, BLOCK], of which only the lower triangle counts. */
static void split_left(const float *from, uint16_t *high, uint16_t *low)
{
	for (int r = 0; r < BLOCK; r++) {
		__mmask32 below = (__mmask32)(0xffffffffu >> (31 - r));
		__m512 a = _mm512_maskz_loadu_ps((__mmask16)below, from + r * BLOCK);
		__m512 b = _mm512_maskz_loadu_ps((__mmask16)(below >> 16), from + r * BLOCK + 16);

		_mm512_store_si512(high + r * BLOCK, amx_narrow(a, b));
		a -= (__m512)vector_of_bf16(high + r * BLOCK);
		b -= (__m512)vector_of_bf16(high + r * BLOCK + 16);
		_mm512_store_si512(low + r * BLOCK, amx_narrow(a, b));
	}
}

/* After each product of 32 × 32: then all have been asked for when the block is done. */
#define PREFETCH_ROWS(dim) (768 / (dim))

/* --- blocks --------------------------------------------------------------------------------------- */

/* Rows first … first + BLOCK − 1 of tensor number `which`; zeros from `last` on. */
static struct view load_rows(const struct quasar_problem *problem, int which, int64_t batch, int head,
	int64_t first, int64_t last, struct block *block)
{
	const struct tensor *tensor = which == 0 ? &problem->k : which == 1 ? &problem->v : &problem->q;
	struct rows rows = rows_begin(problem, tensor, batch, head, first, last,
		problem->semantics == SEMANTICS_CAUSAL ? BLOCK : UPSTREAM_CHUNK);
	uint16_t *copy = block->copies[which];

	rows_prefetch(&rows, &block->prefetch, which, BLOCK);
	if (rows_are_even(&rows, BLOCK))
		return (struct view){(const uint16_t *)rows.at, rows.step / 2};
	for (int r = 0; r < BLOCK; r++) {
		const uint16_t *row = rows_next(&rows);

		for (int i = 0; i < problem->dim; i += 32)
			_mm512_store_si512(copy + r * problem->dim + i,
				row ? _mm512_loadu_si512(row + i) : _mm512_setzero_si512());
	}
	return (struct view){copy, problem->dim};
}

static void store_rows(const struct quasar_problem *problem, int64_t batch, int head, int64_t first,
	int64_t last, const float *rows)
{
	const struct tensor *o = &problem->o;
	uint16_t *to = (uint16_t *)o->data + batch * o->stride[0] + head * o->stride[2];
	bool streamed = output_is_streamed(
		o, problem->batch * problem->tokens * problem->heads * problem->dim);

	last = last < problem->tokens ? last : problem->tokens;
	for (int64_t row = first; row < first + BLOCK && row < last; row++, rows += problem->dim)
		for (int i = 0; i < problem->dim; i += 32) {
			uint16_t *at = to + row * o->stride[1] + i;
			__m512i line = amx_narrow(_mm512_load_ps(rows + i), _mm512_load_ps(rows + i + 16));

			if (streamed)
				_mm512_stream_si512((__m512i *)at, line);
			else
				_mm512_storeu_si512(at, line);
		}
}

/* Kᵀ as a right factor, which is K's pairs of columns transposed, and as a left one. */
static void transpose_keys(struct block *block, int dim)
{
	const __m512i evens = _mm512_set_epi16(62, 60, 58, 56, 54, 52, 50, 48, 46, 44, 42, 40, 38, 36, 34, 32,
		30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
	const __m512i odds = _mm512_add_epi16(evens, _mm512_set1_epi16(1));

	for (int row = 0; row < BLOCK; row += 16)
		for (int p = 0; p < dim / 2; p += 16)
			transpose_square(block->k.data + row * block->k.stride + 2 * p, block->k.stride * 2,
				block->k_pairs + p * BLOCK + row, BLOCK * 4);
	for (int p = 0; p < dim / 2; p++) {
		__m512i a = _mm512_load_si512(block->k_pairs + p * BLOCK);
		__m512i b = _mm512_load_si512(block->k_pairs + p * BLOCK + 16);

		_mm512_store_si512(block->kt + 2 * p * BLOCK, _mm512_permutex2var_epi16(a, evens, b));
		_mm512_store_si512(block->kt + (2 * p + 1) * BLOCK, _mm512_permutex2var_epi16(a, odds, b));
	}
}

/* products [BLOCK, BLOCK] = A Kᵀ */
static void multiply_keys(struct view a, const struct block *block, int dim, float *products)
{
	sum_zero();
	for (int i = 0; i < dim; i += 32) {
		left_load(a.data + i, a.stride);
		sum_add(block->k_pairs + i / 2 * BLOCK, BLOCK);
	}
	sum_store(products, BLOCK);
}

/* Sixteen rows of X = L⁻¹ D, `wide` registers each, of which the last holds the diagonal: with the rows of
 * D K Kᵀ in `kk`, subtracts each finished row's share from those below it. */
INLINE void substitute(const float *kk, const float *alpha, float *x, int wide)
{
	static const vector_int lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
	vector row[16][2];

	UNROLL
	for (int r = 0; r < 16; r++) {
		if (wide == 2)
			row[r][0] = vector_load(x + r * BLOCK);
		row[r][wide - 1] = vector_select(lane == r, vector_load(alpha), (vector){0});
	}
	UNROLL
	for (int s = 0; s < 16; s++) {
		UNROLL
		for (int r = s + 1; r < 16; r++) {
			UNROLL
			for (int w = 0; w < wide; w++)
				row[r][w] -= kk[r * BLOCK + s] * row[s][w];
		}
	}
	UNROLL
	for (int r = 0; r < 16; r++) {
		UNROLL
		for (int w = 0; w < wide; w++)
			vector_store(x + r * BLOCK + w * LANES, row[r][w]);
	}
}

/* T = L⁻¹ D with L = I + tril(D K Kᵀ, −1) */
static void invert(float *kk, float beta, struct block *block)
{
	float t[BLOCK * BLOCK] ALIGNED, alpha[BLOCK] ALIGNED;

	for (int r = 0; r < BLOCK; r++)
		alpha[r] = kk[r * BLOCK + r];
	for (int r = 0; r < BLOCK; r += LANES)
		vector_store(alpha + r, vector_gate(vector_load(alpha + r), beta));
	for (int r = 0; r < BLOCK; r++)
		for (int s = 0; s < BLOCK; s += LANES)
			vector_store(kk + r * BLOCK + s, alpha[r] * vector_load(kk + r * BLOCK + s));
	substitute(kk, alpha, t, 1);
	for (int r = 16; r < BLOCK; r += 8) {
		vector sum[8] = {{0}};

		for (int s = 0; s < 16; s++) {
			UNROLL
			for (int i = 0; i < 8; i++)
				sum[i] -= kk[(r + i) * BLOCK + s] * vector_load(t + s * BLOCK);
		}
		UNROLL
		for (int i = 0; i < 8; i++)
			vector_store(t + (r + i) * BLOCK, sum[i]);
	}
	substitute(kk + 16 * BLOCK + 16, alpha + 16, t + 16 * BLOCK, 2);
	split_left(t, block->t_high, block->t_low);
}

/* Tile loads wait until what they read has left the store buffer. So each product is kept apart from the
 * stores of its factors by work on something else, which explains the order of the steps below. */

static void load_block(const struct quasar_problem *problem, int64_t batch, int head, int64_t first,
	int64_t last, struct block *block)
{
	prefetch_begin(&block->prefetch, problem->dim * 2);
	block->k = load_rows(problem, 0, batch, head, first, last, block);
	block->v = load_rows(problem, 1, batch, head, first, last, block);
	block->q = load_rows(problem, 2, batch, head, first, last, block);
	transpose_keys(block, problem->dim);
}

/* x [BLOCK, dim] = K S */
static void multiply_state(struct block *block, const struct split *state, int dim, float *x)
{
	for (int c = 0; c < dim; c += 32) {
		sum_zero();
		sum_add_rows(block->k, state, c, dim);
		sum_store(x + c, dim);
		prefetch_rows(&block->prefetch, PREFETCH_ROWS(dim));
	}
}

/* V − X as a right factor; V is zero without data. */
static void subtract(struct view v, const float *x, int dim, struct split *to)
{
	for (int p = 0; p < PAIRS; p++)
		for (int c = 0; c < dim; c += LANES) {
			int even = 2 * p * dim + c, odd = even + dim;
			vector a = -vector_load(x + even), b = -vector_load(x + odd);

			if (v.data) {
				a += vector_of_bf16(v.data + 2 * p * v.stride + c);
				b += vector_of_bf16(v.data + (2 * p + 1) * v.stride + c);
			}
			split_pair(a, b, to->high + p * dim + c, to->low + p * dim + c);
		}
}

/* N = T right, split */
static void differences(struct block *block, const struct split *right, int dim, struct split *n)
{
	float x[BLOCK * 128] ALIGNED;

	for (int c = 0; c < dim; c += 32) {
		sum_zero();
		sum_add_split(block->t_high, block->t_low, right, c, dim);
		sum_store(x + c, dim);
		prefetch_rows(&block->prefetch, PREFETCH_ROWS(dim));
	}
	split_right(x, BLOCK, dim, dim, n->high, n->low);
}

/* S += Kᵀ N, and the new state split: each square of it while the next one is multiplied */
static void update(struct block *block, const struct split *n, int dim, float *state, struct split *split)
{
	int done = -1; /* where the square before this one stands in the state */

	for (int i = 0; i < dim; i += 32)
		for (int c = 0; c < dim; c += 32) {
			sum_load(state + i * dim + c, dim);
			left_load(block->kt + i * BLOCK, BLOCK);
			sum_add(n->high + c, dim);
			sum_add(n->low + c, dim);
			sum_store(state + i * dim + c, dim);
			prefetch_rows(&block->prefetch, PREFETCH_ROWS(dim));
			if (done >= 0)
				split_square(state, done, dim, split);
			done = i * dim + c;
		}
	split_square(state, done, dim, split);
}

/* The state behind a block, from X = K S on. */
static void step(
	struct block *block, struct view v, const float *x, int dim, float *state, struct split *split)
{
	struct split right ALIGNED, n ALIGNED;

	subtract(v, x, dim, &right);
	differences(block, &right, dim, &n);
	update(block, &n, dim, state, split);
}

static void causal(const struct quasar_problem *problem, int64_t batch, int head, int64_t first, int64_t last,
	float *state)
{
	int dim = problem->dim;
	struct block blocks[2]; /* this one and the next */
	struct split split ALIGNED, right ALIGNED, n ALIGNED;
	float x[BLOCK * 128] ALIGNED, kk[BLOCK * BLOCK] ALIGNED, qk[BLOCK * BLOCK] ALIGNED;

	split_right(state, dim, dim, dim, split.high, split.low);
	load_block(problem, batch, head, first, last, &blocks[0]);
	for (int turn = 0; first < last; first += BLOCK, turn ^= 1) {
		struct block *block = &blocks[turn];

		multiply_keys(block->k, block, dim, kk);
		multiply_state(block, &split, dim, x);
		multiply_keys(block->q, block, dim, qk);
		invert(kk, problem->beta[head], block);
		subtract(block->v, x, dim, &right);
		split_left(qk, block->a_high, block->a_low);
		if (first + BLOCK < last)
			load_block(problem, batch, head, first + BLOCK, last, &blocks[turn ^ 1]);
		differences(block, &right, dim, &n);
		for (int c = 0; c < dim; c += 32) {
			sum_zero();
			sum_add_rows(block->q, &split, c, dim);
			sum_add_split(block->a_high, block->a_low, &n, c, dim);
			sum_store(x + c, dim);
			prefetch_rows(&block->prefetch, PREFETCH_ROWS(dim));
		}
		update(block, &n, dim, state, &split);
		store_rows(problem, batch, head, first, last, x);
	}
}

static void upstream(const struct quasar_problem *problem, int64_t batch, int head, int64_t first,
	int64_t last, float *state)
{
	enum { BLOCKS = UPSTREAM_CHUNK / BLOCK };
	int dim = problem->dim;
	struct block blocks[BLOCKS];
	struct split split ALIGNED, twice_split ALIGNED;
	float twice[128 * 128] ALIGNED, x[BLOCK * 128] ALIGNED, kk[BLOCKS][BLOCK * BLOCK] ALIGNED;

	split_right(state, dim, dim, dim, split.high, split.low);
	for (; first < last; first += UPSTREAM_CHUNK) {
		for (int i = 0; i < BLOCKS; i++)
			load_block(problem, batch, head, first + i * BLOCK, last, &blocks[i]);
		for (int i = 0; i < BLOCKS; i++)
			multiply_keys(blocks[i].k, &blocks[i], dim, kk[i]);
		for (int i = 0; i < BLOCKS; i++) {
			multiply_state(&blocks[i], &split, dim, x);
			invert(kk[i], problem->beta[head], &blocks[i]);
			step(&blocks[i], blocks[i].v, x, dim, state, &split);
		}
		memcpy(twice, state, (size_t)(dim * dim) * sizeof(*state));
		for (int i = 0; i < BLOCKS; i++) {
			multiply_state(&blocks[i], i ? &twice_split : &split, dim, x);
			step(&blocks[i], blocks[i].v, x, dim, twice, &twice_split);
		}
		for (int i = 0; i < BLOCKS; i++) {
			for (int c = 0; c < dim; c += 32) {
				sum_zero();
				sum_add_rows(blocks[i].q, &twice_split, c, dim);
				sum_store(x + c, dim);
			}
			store_rows(problem, batch, head, first + i * BLOCK, last, x);
		}
	}
}

/* --- the kernel ------------------------------------------------------------------------------------- */

static bool contiguous_bf16(const struct tensor *tensor)
{
	return tensor->dtype == DTYPE_BF16 && tensor->stride[3] == 1;
}

static bool suits(const struct quasar_problem *problem)
{
	return !problem->gated && contiguous_bf16(&problem->q) && contiguous_bf16(&problem->k) &&
		contiguous_bf16(&problem->v) && contiguous_bf16(&problem->o);
}

static void forward(const struct quasar_problem *problem, int64_t batch, int head, int64_t first,
	int64_t last, float *state)
{
	if (!suits(problem)) {
		quasar_kernel_x86_64_v4.forward(problem, batch, head, first, last, state);
		return;
	}
	tiles_begin();
	if (problem->semantics == SEMANTICS_CAUSAL)
		causal(problem, batch, head, first, last, state);
	else
		upstream(problem, batch, head, first, last, state);
	stream_fence();
	_tile_release();
}

static void advance(const struct quasar_problem *problem, int64_t batch, int head, int64_t first,
	int64_t last, float *state, float *transition)
{
	int dim = problem->dim;
	struct block block;
	struct split state_split ALIGNED, transition_split ALIGNED;
	float x[BLOCK * 128] ALIGNED, kk[BLOCK * BLOCK] ALIGNED;

	if (!suits(problem)) {
		quasar_kernel_x86_64_v4.advance(problem, batch, head, first, last, state, transition);
		return;
	}
	tiles_begin();
	split_right(state, dim, dim, dim, state_split.high, state_split.low);
	split_right(transition, dim, dim, dim, transition_split.high, transition_split.low);
	for (; first < last; first += BLOCK) {
		load_block(problem, batch, head, first, last, &block);
		multiply_keys(block.k, &block, dim, kk);
		invert(kk, problem->beta[head], &block);
		multiply_state(&block, &state_split, dim, x);
		step(&block, block.v, x, dim, state, &state_split);
		multiply_state(&block, &transition_split, dim, x);
		step(&block, (struct view){0}, x, dim, transition, &transition_split);
	}
	_tile_release();
}

static void apply(int dim, const float *p, const float *r, const float *from, float *to)
{
	quasar_kernel_x86_64_v4.apply(dim, p, r, from, to);
}

const struct quasar_kernel quasar_kernel_x86_64_amx = {forward, advance, apply};
