/* A pass of linear attention in fp32, by blocks of sixteen rows (the Makefile defines KERNEL):
 *
 *   causal          out = X S + tril(X Yᵀ) W, then S += Yᵀ W
 *   bidirectional   S += Yᵀ W over all blocks first, then out = X S
 *
 * Forward, z goes row by row in fp64: a vector beside S's matrix, so it costs little. */
#include "op/linear/kernel.h"

#include "cpu/block.h"

/* --- features ------------------------------------------------------------------------------------ */

static vector feature_of(enum linear_feature feature, vector x)
{
	vector zero = {0};

	switch (feature) {
	case LINEAR_ELU1:
		return vector_select(x > 0.0f, x, vector_expm1_negative(vector_select(x > 0.0f, zero, x))) +
			1.0f;
	case LINEAR_RELU:
		return vector_select(x < 0.0f, zero, x); /* a NaN stays one */
	case LINEAR_SQUARED_RELU:
		x = vector_select(x < 0.0f, zero, x);
		return x * x;
	case LINEAR_EXP:
		return vector_exp(vector_select(x > FEATURE_EXP_LIMIT, vector_of(FEATURE_EXP_LIMIT), x));
	default: /* LINEAR_IDENTITY */
		return x;
	}
}

/* Where there is none, at 0, that from the left. */
static vector derivative_of(enum linear_feature feature, vector x)
{
	vector zero = {0}, one = vector_of(1.0f);

	switch (feature) {
	case LINEAR_ELU1:
		return vector_select(x > 0.0f, one, vector_exp(vector_select(x > 0.0f, zero, x)));
	case LINEAR_RELU:
		return vector_select(x <= 0.0f, zero, vector_select(x > 0.0f, one, x));
	case LINEAR_SQUARED_RELU:
		return vector_select(x < 0.0f, zero, x * 2.0f);
	case LINEAR_EXP:
		return vector_select(x > FEATURE_EXP_LIMIT, zero,
			vector_exp(vector_select(x > FEATURE_EXP_LIMIT, zero, x)));
	default: /* LINEAR_IDENTITY */
		return one;
	}
}

static void map_row(enum linear_feature feature, int dim, float *x)
{
	for (int i = 0; i < dim; i += LANES)
		vector_store(x + i, feature_of(feature, vector_load(x + i)));
}

static void scale_row(float factor, int dim, float *x)
{
	for (int i = 0; i < dim; i += LANES)
		vector_store(x + i, factor * vector_load(x + i));
}

/* --- blocks -------------------------------------------------------------------------------------- */

/* Tokens of one head of one batch. */
struct stretch {
	const struct linear_pass *pass;
	int64_t batch, first, last;
	int head;
	const float *scales, *offsets; /* of the head */
};

struct block {
	float y[BLOCK * PITCH] ALIGNED, x[BLOCK * PITCH] ALIGNED;
	float w[BLOCK * 128] ALIGNED, out[BLOCK * 128] ALIGNED;
	float at[BLOCK * 128] ALIGNED;
	float transposed[PITCH * BLOCK] ALIGNED; /* Yᵀ */
	float scores[BLOCK * BLOCK] ALIGNED;
	struct prefetch prefetch; /* nothing: hardware follows these rows by itself */
};

static struct stretch stretch_of(
	const struct linear_pass *pass, int64_t batch, int head, int64_t first, int64_t last)
{
	int64_t before = (batch * pass->heads + head) * pass->tokens;

	return (struct stretch){pass, batch, first, last, head, pass->scales ? pass->scales + before : NULL,
		pass->offsets ? pass->offsets + before : NULL};
}

/* A block's rows of a tensor, `pitch` floats apart; zeros behind the last. */
static void load_block(
	const struct stretch *stretch, const struct tensor *tensor, int dim, int pitch, float *out)
{
	load_head_rows(
		tensor, stretch->batch, stretch->head, stretch->first, stretch->last, BLOCK, dim, pitch, out);
}

/* Rows of x or y: mapped, multiplied by r (`scaled`), with f or 1 as the element more. elu(0) + 1 is not 0: only rows
 * that there are. */
static void load_factor(const struct stretch *stretch, const struct tensor *tensor, bool scaled, float *x)
{
	const struct linear_pass *pass = stretch->pass;
	int dim = pass->key_dim;

	load_block(stretch, tensor, dim, PITCH, x);
	for (int64_t r = 0; r < BLOCK; r++, x += PITCH) {
		int64_t at = (stretch->first + r) * pass->row_step;
		bool valid = stretch->first + r < stretch->last;

		if (valid && !pass_is_augmented(pass))
			map_row(pass->feature, dim, x);
		if (valid && scaled)
			scale_row(stretch->scales[at], dim, x);
		if (pass_is_augmented(pass))
			x[dim] = !valid ? 0 : scaled ? stretch->offsets[at] : 1;
	}
}

static void load_queries(const struct stretch *stretch, struct block *block)
{
	load_factor(stretch, &stretch->pass->x, stretch->pass->kind == PASS_DQ, block->x);
}

static void load_keys(const struct stretch *stretch, struct block *block)
{
	const struct linear_pass *pass = stretch->pass;
	int dim = pass->value_dim;

	load_factor(stretch, &pass->y, pass->kind == PASS_DK, block->y);
	load_block(stretch, &pass->w, dim, dim, block->w);
	for (int64_t r = 0; r < BLOCK && stretch->first + r < stretch->last; r++) {
		float *row = block->w + r * dim;

		if (pass_is_augmented(pass))
			map_row(pass->feature, dim, row);
		if (pass->kind == PASS_DV)
			scale_row(stretch->scales[(stretch->first + r) * pass->row_step], dim, row);
	}
}

/* S += Yᵀ W */
static void add_block(const struct linear_pass *pass, struct block *block, float *state)
{
	add_transposed(block->y, block->w, state, pass_rows(pass), pass->value_dim, &block->prefetch);
}

/* z's share of a row. */
static void add_row(const struct linear_pass *pass, const float *y, double *sum)
{
	for (int i = 0; i < pass->key_dim && pass->kind == PASS_FORWARD; i++)
		sum[i] += (double)y[i];
}

static void accumulate_all(const struct linear_pass *pass, int64_t batch, int head, int64_t first,
	int64_t last, float *state, double *sum)
{
	struct stretch stretch = stretch_of(pass, batch, head, first, last);
	struct block block = {0};

	for (; stretch.first < last; stretch.first += BLOCK) {
		load_keys(&stretch, &block);
		add_block(pass, &block, state);
		for (int r = 0; r < BLOCK; r++)
			add_row(pass, block.y + r * PITCH, sum);
	}
}

/* --- outputs ------------------------------------------------------------------------------------- */

/* out += tril(X Yᵀ) W */
static void add_within(const struct linear_pass *pass, struct block *block)
{
	int rows = pass_rows(pass);

	transpose(block->y, PITCH, BLOCK, rows, block->transposed);
	multiply_rows(block->x, block->transposed, block->scores, BLOCK, rows, BLOCK, &block->prefetch);
	for (int r = 0; r < BLOCK; r++) /* what multiply_lower() reads above the diagonal */
		for (int s = r + 1; s % STAIR; s++)
			block->scores[r * BLOCK + s] = 0;
	multiply_lower(block->scores, block->w, block->out, pass->value_dim);
}

/* Divides row r of the output by φ(q) · z. */
static void normalise_row(
	const struct linear_pass *pass, struct block *block, int r, const double *sum, float *kept)
{
	const float *q = block->x + r * PITCH;
	float *o = block->out + r * pass->value_dim;
	double divisor = 0, factor;

#pragma omp simd reduction(+ : divisor)
	for (int i = 0; i < pass->key_dim; i++)
		divisor += (double)q[i] * sum[i];
	factor = divisor == 0 ? 0 : 1 / divisor;
	for (int j = 0; j < pass->value_dim; j++)
		o[j] = (float)((double)o[j] * factor);
	if (kept)
		*kept = (float)divisor;
}

/* Multiplies the rows of the output with φ'. */
static void derive_rows(const struct stretch *stretch, struct block *block)
{
	const struct linear_pass *pass = stretch->pass;
	int dim = pass->value_dim;

	load_block(stretch, &pass->at, dim, dim, block->at);
	for (int i = 0; i < BLOCK * dim; i += LANES)
		vector_store(block->out + i,
			vector_load(block->out + i) *
				derivative_of(pass->feature, vector_load(block->at + i)));
}

/* Forward: row r's divisor, and what it does. */
static void finish_row(const struct stretch *stretch, struct block *block, int r, const double *sum)
{
	const struct linear_pass *pass = stretch->pass;
	float *kept = pass->divisor ? pass->divisor +
			(stretch->batch * pass->heads + stretch->head) * pass->tokens + stretch->first + r
				    : NULL;

	if (pass->normalised)
		normalise_row(pass, block, r, sum, kept);
	else if (kept)
		*kept = 1;
}

static void forward(const struct linear_pass *pass, int64_t batch, int head, int64_t first, int64_t last,
	float *state, double *sum)
{
	const struct tensor *out = &pass->out;
	int values = pass->value_dim;
	bool streamed = output_is_streamed(out, pass->batch * pass->tokens * pass->heads * values);
	struct stretch stretch = stretch_of(pass, batch, head, first, last);
	struct block block = {0};

	for (; stretch.first < last; stretch.first += BLOCK) {
		load_queries(&stretch, &block);
		multiply_rows(block.x, state, block.out, BLOCK, pass_rows(pass), values, &block.prefetch);
		if (pass->causal) {
			load_keys(&stretch, &block);
			add_within(pass, &block);
			add_block(pass, &block, state);
		}
		if (pass_is_augmented(pass))
			derive_rows(&stretch, &block);
		for (int r = 0; r < BLOCK && stretch.first + r < last; r++) {
			if (pass->causal)
				add_row(pass, block.y + r * PITCH, sum);
			if (pass->kind == PASS_FORWARD)
				finish_row(&stretch, &block, r, sum);
			output_row(out,
				batch * out->stride[0] + (stretch.first + r) * out->stride[1] +
					head * out->stride[2],
				values, block.out + r * values, streamed);
		}
	}
	stream_fence();
}

const struct linear_kernel VARIANT(linear_kernel) = {accumulate_all, forward};
