/* block: sixteen rows of fp32 at a time, and products of them: what the kernels of operations have in
 * common. For files that are compiled once for each instruction set. */
#pragma once

#include <stdbool.h>

#include "cpu/prefetch.h"
#include "cpu/vector.h"
#include "tensor/tensor.h"

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

		UNROLL
		for (int w = 0; w < wide; w++)
			line[w] = vector_load(b + n * b_row + w * LANES);
		UNROLL
		for (int r = 0; r < tall; r++) {
			float x = a[r * a_row + n * a_step];

			UNROLL
			for (int w = 0; w < wide; w++)
				sum[r * wide + w] += (negative ? -x : x) * line[w];
		}
	}
}

INLINE void tile_load(vector sum[ACCUMULATORS], const float *c, int stride, int tall, int wide)
{
	UNROLL
	for (int r = 0; r < tall; r++) {
		UNROLL
		for (int w = 0; w < wide; w++)
			sum[r * wide + w] = c ? vector_load(c + r * stride + w * LANES) : (vector){0};
	}
}

INLINE void tile_store(const vector sum[ACCUMULATORS], float *c, int stride, int tall, int wide)
{
	UNROLL
	for (int r = 0; r < tall; r++) {
		UNROLL
		for (int w = 0; w < wide; w++)
			vector_store(c + r * stride + w * LANES, sum[r * wide + w]);
	}
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

/* C [rows, columns] = start + A B, `start` being C or NULL for zero. With 16 registers tiles are 6 rows
 * tall, and 4 where that is what is left. Asks for some of the next block's rows after each tile. */
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
#define WITH_WIDTH(columns, function, ...)                                                                   \
	do {                                                                                                 \
		if ((columns) % (WIDEST * LANES) == 0)                                                       \
			function(__VA_ARGS__, WIDEST);                                                       \
		else if ((columns) == 2 * LANES)                                                             \
			function(__VA_ARGS__, 2);                                                            \
		else                                                                                         \
			function(__VA_ARGS__, 1);                                                            \
	} while (0)

/* C [rows, columns] = A B, with A [rows, inner] in rows of PITCH; all sizes are multiples of 16. */
static inline void multiply_rows(
	const float *a, const float *b, float *c, int rows, int inner, int columns, struct prefetch *prefetch)
{
	WITH_WIDTH(columns, multiply, a, PITCH, 1, b, NULL, c, rows, inner, columns, prefetch);
}

/* C [rows, columns] += Aᵀ B, with A [BLOCK, rows] in rows of PITCH, B [BLOCK, columns]. */
static inline void add_transposed(
	const float *a, const float *b, float *c, int rows, int columns, struct prefetch *prefetch)
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
static inline void multiply_lower(const float *a, const float *b, float *c, int columns)
{
	WITH_WIDTH(columns, multiply_lower_wide, a, b, c, columns);
}

/* C [rows, columns] = start + A B, `start` being C or NULL for zero, with A's element (r, n) at a[r * a_row + n * a_step];
 * all sizes are multiples of 16. For what is in a cache, or followed by hardware: nothing is prefetched. */
static inline void multiply_matrices(float *c, const float *start, const float *a, int a_row, int a_step,
	const float *b, int rows, int inner, int columns)
{
	struct prefetch nothing = {0};

	WITH_WIDTH(columns, multiply, a, a_row, a_step, b, start, c, rows, inner, columns, &nothing);
}

/* to [columns, rows] = from [rows, columns]ᵀ, `from` in rows of `pitch` */
static inline void transpose(const float *from, int pitch, int rows, int columns, float *to)
{
	for (int row = 0; row < rows; row += LANES)
		for (int column = 0; column < columns; column += LANES)
			transpose_square(from + row * pitch + column, pitch * (int)sizeof(float),
				to + column * rows + row, rows * (int)sizeof(float));
}

/* --- rows ---------------------------------------------------------------------------------------- */

static inline void load_row(const void *row, enum dtype dtype, int64_t step, int dim, float *out)
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

/* `count` rows of a head of a tensor from token `first` on, `pitch` floats apart; zeros from `last` on. */
static inline void load_head_rows(const struct tensor *tensor, int64_t batch, int head, int64_t first,
	int64_t last, int count, int dim, int pitch, float *out)
{
	int64_t start = batch * tensor->stride[0] + head * tensor->stride[2];
	int64_t size = (int64_t)dtype_size(tensor->dtype);

	for (int64_t row = first; row < first + count; row++, out += pitch)
		if (row < last)
			load_row((const char *)tensor->data + (start + row * tensor->stride[1]) * size,
				tensor->dtype, tensor->stride[3], dim, out);
		else
			memset(out, 0, (size_t)dim * sizeof(*out));
}

static inline void store_row(
	void *data, enum dtype dtype, int64_t start, int64_t step, int dim, const float *row)
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

/* A row of an output, from element `start` of its tensor on. */
static inline void output_row(const struct tensor *o, int64_t start, int dim, const float *row, bool streamed)
{
	char line[128 * sizeof(float)] ALIGNED;
	int size = (int)dtype_size(o->dtype);

	if (!streamed) {
		store_row(o->data, o->dtype, start, o->stride[3], dim, row);
		return;
	}
	store_row(line, o->dtype, 0, 1, dim, row);
	stream_vectors((char *)o->data + start * size, line, dim * size / (int)sizeof(vector));
}
