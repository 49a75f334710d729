/* The arithmetic of a model. Compiled once for each instruction set. */
#include "model/kernel.h"

#include <math.h>
#include <string.h>

#include "cpu/vector.h"
#include "model/config.h"

/* LANES numbers of fp16. */
INLINE vector vector_of_f16(const uint16_t *from)
{
#if defined(__AVX512F__)
	return (vector)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)from));
#elif defined(__F16C__)
	return (vector)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)from));
#else
	vector value;

	for (int i = 0; i < LANES; i++)
		value[i] = f16_to_float(from[i]);
	return value;
#endif
}

INLINE vector load(const void *from, enum dtype dtype, size_t index)
{
	if (dtype == DTYPE_F32)
		return vector_load((const float *)from + index);
	return dtype == DTYPE_BF16 ? vector_of_bf16((const uint16_t *)from + index)
				   : vector_of_f16((const uint16_t *)from + index);
}

INLINE float vector_sum(vector x)
{
	float sum = 0;

	UNROLL
	for (int i = 0; i < LANES; i++)
		sum += x[i];
	return sum;
}

/* Runs a function whose last argument is a constant. */
#define WITH_DTYPE(dtype, function, ...)                                                                     \
	do {                                                                                                 \
		if ((dtype) == DTYPE_BF16)                                                                   \
			function(__VA_ARGS__, DTYPE_BF16);                                                   \
		else if ((dtype) == DTYPE_F16)                                                               \
			function(__VA_ARGS__, DTYPE_F16);                                                    \
		else                                                                                         \
			function(__VA_ARGS__, DTYPE_F32);                                                    \
	} while (0)

/* --- products ------------------------------------------------------------------------------------ */

/* Rows that are multiplied together: each number of an input is loaded once for all of them. */
#define ROWS (REGISTERS == 32 ? KERNEL_ROWS : KERNEL_ROWS / 2)

/* Registers for the sums of a row with an input: so many that multiply-adds need not wait for each other. */
#define SUMS(inputs) ((inputs) == 1 ? 4 : (inputs) == 2 ? 2 : 1)

/* y[n · y_stride + r] = row r · x[n], for `rows` rows. Asks for the rows behind them: what the processor does by itself
 * ends with each page. */
INLINE void multiply_tile(const void *weights, int columns, const float *x, float *y, size_t y_stride,
	int rows, int inputs, enum dtype dtype)
{
	const int sums = SUMS(inputs), step = sums * LANES;
	vector sum[ROWS][KERNEL_INPUTS][4] = {0};
	int i = 0;

	for (; i + step <= columns; i += step) {
		UNROLL
		for (int r = 0; r < rows; r++) {
			const size_t at = (size_t)r * (size_t)columns + (size_t)i;
			const char *next = (const char *)weights +
				(at + (size_t)(rows * columns)) * dtype_size(dtype);

			UNROLL
			for (size_t byte = 0; byte < (size_t)step * dtype_size(dtype); byte += 64)
				__builtin_prefetch(next + byte, 0, 2);
			UNROLL
			for (int s = 0; s < sums; s++) {
				vector weight = load(weights, dtype, at + (size_t)(s * LANES));

				UNROLL
				for (int n = 0; n < inputs; n++)
					sum[r][n][s] += weight * vector_load(x + n * columns + i + s * LANES);
			}
		}
	}
	UNROLL
	for (int r = 0; r < rows; r++) {
		UNROLL
		for (int n = 0; n < inputs; n++) {
			vector all = sum[r][n][0];
			float rest = 0;

			UNROLL
			for (int s = 1; s < sums; s++)
				all += sum[r][n][s];
			for (int c = i; c < columns; c++)
				rest += dtype_load(weights, dtype, (int64_t)r * columns + c) *
					x[n * columns + c];
			y[(size_t)n * y_stride + (size_t)r] = vector_sum(all) + rest;
		}
	}
}

INLINE void multiply_inputs(const void *weights, int rows, int columns, const float *x, float *y,
	size_t y_stride, int inputs, enum dtype dtype)
{
	const char *at = weights;
	const size_t row_bytes = (size_t)columns * dtype_size(dtype);
	int row = 0;

	for (; row + ROWS <= rows; row += ROWS)
		multiply_tile(
			at + (size_t)row * row_bytes, columns, x, y + row, y_stride, ROWS, inputs, dtype);
	for (; row < rows; row++)
		multiply_tile(at + (size_t)row * row_bytes, columns, x, y + row, y_stride, 1, inputs, dtype);
}

INLINE void multiply_rows(const void *weights, int rows, int columns, const float *x, int inputs, float *y,
	size_t y_stride, enum dtype dtype)
{
	if (inputs == 1)
		multiply_inputs(weights, rows, columns, x, y, y_stride, 1, dtype);
	else if (inputs == 2)
		multiply_inputs(weights, rows, columns, x, y, y_stride, 2, dtype);
	else if (inputs == 3)
		multiply_inputs(weights, rows, columns, x, y, y_stride, 3, dtype);
	else
		multiply_inputs(weights, rows, columns, x, y, y_stride, 4, dtype);
}

static void multiply(const void *weights, enum dtype dtype, int rows, int columns, const float *x, int inputs,
	float *y, size_t y_stride)
{
	WITH_DTYPE(dtype, multiply_rows, weights, rows, columns, x, inputs, y, y_stride);
}

/* --- numbers by themselves ----------------------------------------------------------------------- */

INLINE void widen_all(const void *from, size_t count, float *to, enum dtype dtype)
{
	size_t i = 0;

	for (; i + LANES <= count; i += LANES)
		vector_store(to + i, load(from, dtype, i));
	for (; i < count; i++)
		to[i] = dtype_load(from, dtype, (int64_t)i);
}

static void widen(const void *from, enum dtype dtype, size_t count, float *to)
{
	WITH_DTYPE(dtype, widen_all, from, count, to);
}

/* Infinity and NaN are what has all bits of the exponent set. */
static bool all_finite(const void *from, enum dtype dtype, size_t count)
{
	const uint16_t *half = from, mask = dtype == DTYPE_BF16 ? 0x7f80 : 0x7c00;
	const uint32_t *single = from;
	uint32_t found = 0;

	if (dtype == DTYPE_F32)
		for (size_t i = 0; i < count; i++)
			found |= (single[i] & 0x7f800000) == 0x7f800000;
	else
		for (size_t i = 0; i < count; i++)
			found |= (half[i] & mask) == mask;
	return !found;
}

static void normalise(const float *x, const float *weight, float epsilon, int count, float *out)
{
	vector squares = {0};
	float sum = 0, scale;
	int i = 0;

	for (; i + LANES <= count; i += LANES)
		squares += vector_load(x + i) * vector_load(x + i);
	for (; i < count; i++)
		sum += x[i] * x[i];
	scale = 1 / sqrtf((vector_sum(squares) + sum) / (float)count + epsilon);
	for (i = 0; i + LANES <= count; i += LANES)
		vector_store(out + i, vector_load(weight + i) * (vector_load(x + i) * scale));
	for (; i < count; i++)
		out[i] = weight[i] * (x[i] * scale);
}

static void activate(float *gate, const float *up, int count)
{
	int i = 0;

	for (; i + LANES <= count; i += LANES) {
		vector x = vector_load(gate + i);

		vector_store(gate + i, x * vector_sigmoid(x) * vector_load(up + i));
	}
	for (; i < count; i++)
		gate[i] = gate[i] / (1 + expf(-gate[i])) * up[i];
}

static int largest(const float *x, int count)
{
	int best = 0;

	if (!all_finite(x, DTYPE_F32, (size_t)count))
		return -1;
	for (int i = 1; i < count; i++)
		if (x[i] > x[best])
			best = i;
	return best;
}

/* --- attention ----------------------------------------------------------------------------------- */

#define BLOCK_VECTORS (KERNEL_BLOCK / LANES)

/* scores = query · a block of keys */
INLINE void score_block(const float *query, const float *keys, int dim, vector scores[BLOCK_VECTORS])
{
	vector even[BLOCK_VECTORS] = {0}, odd[BLOCK_VECTORS] = {0};

	for (int d = 0; d < dim; d += 2) {
		UNROLL
		for (int v = 0; v < BLOCK_VECTORS; v++) {
			even[v] += query[d] * vector_load(keys + d * KERNEL_BLOCK + v * LANES);
			odd[v] += query[d + 1] * vector_load(keys + (d + 1) * KERNEL_BLOCK + v * LANES);
		}
	}
	UNROLL
	for (int v = 0; v < BLOCK_VECTORS; v++)
		scores[v] = even[v] + odd[v];
}

/* out = out · keep + the block's values, each times its weight */
INLINE void add_values(float *out, float keep, const float *weights, const float *values, int tokens, int dim)
{
	int d = 0;

	for (; d + LANES <= dim; d += LANES) {
		vector sum = vector_load(out + d) * keep;

		for (int t = 0; t < tokens; t++)
			sum += weights[t] * vector_load(values + t * dim + d);
		vector_store(out + d, sum);
	}
	for (; d < dim; d++) {
		out[d] *= keep;
		for (int t = 0; t < tokens; t++)
			out[d] += weights[t] * values[t * dim + d];
	}
}

/* Block by block: what was summed so far is made smaller whenever a larger score is met. */
static void attend(const float *query, const float *keys, const float *values, int tokens, int dim,
	float scale, float *out)
{
	float scaled[MODEL_HEAD_DIM], scores[KERNEL_BLOCK], most = -INFINITY, sum = 0;

	for (int d = 0; d < dim; d++) {
		scaled[d] = query[d] * scale;
		out[d] = 0;
	}
	for (int first = 0; first < tokens; first += KERNEL_BLOCK) {
		int count = tokens - first < KERNEL_BLOCK ? tokens - first : KERNEL_BLOCK;
		vector block[BLOCK_VECTORS];
		float highest = most, keep;

		score_block(scaled, keys + (size_t)first * (size_t)dim, dim, block);
		memcpy(scores, block, sizeof(scores));
		for (int t = 0; t < count; t++)
			highest = scores[t] > highest ? scores[t] : highest;
		keep = first ? expf(most - highest) : 0;
		sum *= keep;
		UNROLL
		for (int v = 0; v < BLOCK_VECTORS; v++)
			vector_store(scores + v * LANES, vector_exp_negative(block[v] - highest));
		for (int t = 0; t < count; t++)
			sum += scores[t];
		add_values(out, keep, scores, values + (size_t)first * (size_t)dim, count, dim);
		most = highest;
	}
	for (int d = 0; d < dim; d++)
		out[d] /= sum;
}

const struct model_kernel VARIANT(model_kernel) = {
	multiply, widen, all_finite, normalise, activate, attend, largest};
