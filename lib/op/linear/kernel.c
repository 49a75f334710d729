/* Linear attention in fp32, by blocks of sixteen rows (the Makefile defines KERNEL):
 *
 *   causal          O = φ(Q) S + tril(φ(Q) φ(K)ᵀ) V, then S += φ(K)ᵀ V
 *   bidirectional   S += φ(K)ᵀ V over all blocks first, then O = φ(Q) S
 *
 * z goes row by row in fp64: a vector beside S's matrix, so it costs little. */
#include "op/linear/kernel.h"

#include "cpu/block.h"

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
	default: /* LINEAR_IDENTITY */
		return x;
	}
}

/* φ of the rows that there are: elu(0) + 1 is not 0. */
static void map_rows(const struct linear_problem *problem, int64_t rows, float *x)
{
	for (int64_t r = 0; r < BLOCK && r < rows; r++, x += PITCH)
		for (int i = 0; i < problem->key_dim; i += LANES)
			vector_store(x + i, feature_of(problem->feature, vector_load(x + i)));
}

struct block {
	float k[BLOCK * PITCH] ALIGNED, q[BLOCK * PITCH] ALIGNED;
	float v[BLOCK * 128] ALIGNED, o[BLOCK * 128] ALIGNED;
	float transposed[128 * BLOCK] ALIGNED; /* φ(K)ᵀ */
	float scores[BLOCK * BLOCK] ALIGNED;
	struct prefetch prefetch; /* nothing: hardware follows these rows by itself */
};

static void load_keys(const struct linear_problem *problem, int64_t batch, int head, int64_t first,
	int64_t last, struct block *block)
{
	load_head_rows(&problem->k, batch, head, first, last, BLOCK, problem->key_dim, PITCH, block->k);
	load_head_rows(&problem->v, batch, head, first, last, BLOCK, problem->value_dim, problem->value_dim,
		block->v);
	map_rows(problem, last - first, block->k);
}

static void add_row(const float *k, int dim, double *sum)
{
	for (int i = 0; i < dim; i++)
		sum[i] += (double)k[i];
}

static void accumulate_all(const struct linear_problem *problem, int64_t batch, int head, int64_t first,
	int64_t last, float *state, double *sum)
{
	struct block block = {0};

	for (; first < last; first += BLOCK) {
		load_keys(problem, batch, head, first, last, &block);
		add_transposed(
			block.k, block.v, state, problem->key_dim, problem->value_dim, &block.prefetch);
		for (int r = 0; r < BLOCK; r++)
			add_row(block.k + r * PITCH, problem->key_dim, sum);
	}
}

/* O += tril(φ(Q) φ(K)ᵀ) V */
static void add_within(const struct linear_problem *problem, struct block *block)
{
	transpose(block->k, problem->key_dim, block->transposed);
	multiply_rows(
		block->q, block->transposed, block->scores, BLOCK, problem->key_dim, BLOCK, &block->prefetch);
	for (int r = 0; r < BLOCK; r++) /* what multiply_lower() reads above the diagonal */
		for (int s = r + 1; s % STAIR; s++)
			block->scores[r * BLOCK + s] = 0;
	multiply_lower(block->scores, block->v, block->o, problem->value_dim);
}

/* Divides row r of O by φ(q) · z. */
static void normalise_row(const struct linear_problem *problem, struct block *block, int r, const double *sum)
{
	const float *q = block->q + r * PITCH;
	float *o = block->o + r * problem->value_dim;
	double divisor = 0, factor;

#pragma omp simd reduction(+ : divisor)
	for (int i = 0; i < problem->key_dim; i++)
		divisor += (double)q[i] * sum[i];
	factor = divisor == 0 ? 0 : 1 / divisor;
	for (int j = 0; j < problem->value_dim; j++)
		o[j] = (float)((double)o[j] * factor);
}

static void forward(const struct linear_problem *problem, int64_t batch, int head, int64_t first,
	int64_t last, float *state, double *sum)
{
	const struct tensor *o = &problem->o;
	int keys = problem->key_dim, values = problem->value_dim;
	bool causal = problem->mask == LINEAR_CAUSAL;
	bool streamed = output_is_streamed(o, problem->batch * problem->tokens * problem->heads * values);
	struct block block = {0};

	for (; first < last; first += BLOCK) {
		load_head_rows(&problem->q, batch, head, first, last, BLOCK, keys, PITCH, block.q);
		map_rows(problem, last - first, block.q);
		multiply_rows(block.q, state, block.o, BLOCK, keys, values, &block.prefetch);
		if (causal) {
			load_keys(problem, batch, head, first, last, &block);
			add_within(problem, &block);
			add_transposed(block.k, block.v, state, keys, values, &block.prefetch);
		}
		for (int r = 0; r < BLOCK && first + r < last; r++) {
			if (causal)
				add_row(block.k + r * PITCH, keys, sum);
			if (problem->normalised)
				normalise_row(problem, &block, r, sum);
			output_row(o, batch * o->stride[0] + (first + r) * o->stride[1] + head * o->stride[2],
				values, block.o + r * values, streamed);
		}
	}
	stream_fence();
}

const struct linear_kernel VARIANT(linear_kernel) = {accumulate_all, forward};
