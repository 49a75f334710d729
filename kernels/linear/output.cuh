/* output: a chunk's rows of out: X S + tril(X Yᵀ) W, divided or times a derivative, and their way to memory. */
#pragma once

#include "linear/state.cuh"

/* tril(X Yᵀ)ᵀ, packed as a right factor; adds its columns up in `sums`. */
static __device__ __forceinline__ void make_scores(const struct place &place, int left, unsigned numbers,
	const rows &x, const rows &y, unsigned (&scores)[PLANES][4], float (&sums)[2])
{
	float c[2][4];

	clear(c);
	UNROLL
	for (int n = 0; n < 2; n++) {
		UNROLL
		for (int k = 0; k < KEY_K; k++)
			multiply_rows(c[n], &y.at[0][k], KEY_K, x, k, n);
		UNROLL
		for (int i = 0; i < 4; i++) {
			const int row = n * 8 + place.pair + i % 2, column = place.group_row + i / 2 * 8;

			if (AUGMENTED)
				c[n][i] += extra_of_x(numbers, row) * extra_of_y(numbers, column, left);
			if (column > row)
				c[n][i] = 0.0f;
		}
		UNROLL
		for (int half = 0; half < 2; half++) {
			unsigned pair[PLANES];

			split_bf16<PLANES>(pair, c[n][half * 2], c[n][half * 2 + 1]);
			UNROLL
			for (int p = 0; p < PLANES; p++) {
				pair[p] = transpose_matrix(pair[p]);
				sums[n] += bf16_low(pair[p]) + bf16_high(pair[p]);
				scores[p][register_of<false>(n, half)] = pair[p];
			}
		}
	}
}

/* X S + tril(X Yᵀ) W. */
static __device__ __forceinline__ void attend(const struct state &state, unsigned numbers,
	const struct place &place, const rows &x, const unsigned (&scores)[PLANES][4], const columns &w,
	float (&out)[4][LANE_VALUES])
{
	float c[VALUE_M][2][4];

	UNROLL
	for (int m = 0; m < VALUE_M; m++)
		clear(c[m]);
	UNROLL
	for (int k = 0; k < KEY_K;
		k++) { /* sums of several products at a time: none waits for its own last one */
		UNROLL
		for (int m = 0; m < VALUE_M; m++) {
			const float(&part)[2][4] = *(const float(*)[2][4]) & state.matrix[m][2 * k];
			unsigned left[PLANES][1][4];

			pack_rows<PLANES>(left, part);
			UNROLL
			for (int n = 0; n < 2; n++)
				multiply_rows(c[m][n], left[0], 1, x, k, n);
		}
	}
	UNROLL
	for (int m = 0; m < VALUE_M; m++) {
		UNROLL
		for (int n = 0; n < 2; n++) {
			if (CAUSAL) {
				unsigned b[2][PLANES];

				UNROLL
				for (int p = 0; p < PLANES; p++) {
					b[0][p] = scores[p][register_of<false>(n, 0)];
					b[1][p] = scores[p][register_of<false>(n, 1)];
				}
				multiply_planes(c[m][n], &w.at[0][m], VALUE_M, b[0], b[1]);
			}
			UNROLL
			for (int i = 0; i < 4; i++)
				out[2 * n + i % 2][2 * m + i / 2] = c[m][n][i];
		}
	}
	UNROLL
	for (int n = 0; n < 4 && AUGMENTED; n++) {
		const float extra = extra_of_x(numbers, column_row(place, n));

		UNROLL
		for (int i = 0; i < LANE_VALUES; i++)
			out[n][i] += extra * state.sum[i];
	}
}

/* Adds up what the four threads of a row have. */
static __device__ __forceinline__ float sum_of_row(float part)
{
	part += __shfl_xor_sync(~0u, part, 1);
	return part + __shfl_xor_sync(~0u, part, 2);
}

/* Divides rows of out by their divisors, whose parts lie with the threads of a row of x. One that is zero, or too small to
 * divide by, makes zeros; a NaN stays one. */
static __device__ __forceinline__ void divide(const struct linear_arguments &a, const struct place &place,
	long long token, const float (&parts)[2], float (&out)[4][LANE_VALUES])
{
	float factor[2] = {1.0f, 1.0f};

	UNROLL
	for (int n = 0; n < 2; n++) {
		const long long row = token + place.group_row + n * 8;
		float divisor = 1.0f;

		if (NORMALISED) {
			divisor = sum_of_row(parts[n]);
			factor[n] = reciprocal(divisor);
		}
		if (a.divisors && place.pair == 0 && place.first_value == 0 && row < a.tokens)
			a.divisors[place.sequence * a.tokens + row] = divisor;
	}
	UNROLL
	for (int n = 0; n < 4; n++) {
		const float own = __shfl_sync(~0u, factor[n / 2], (place.pair + n % 2) * 4);

		UNROLL
		for (int i = 0; i < LANE_VALUES && NORMALISED; i++)
			out[n][i] *= own;
	}
}

static __device__ __forceinline__ unsigned pack_elements(const float *values)
{
#if INPUT == INPUT_F32
	return __float_as_uint(values[0]);
#else
	return element_pair(values[0], values[1]);
#endif
}

/* Puts a thread's elements of a row into a tile. */
static __device__ __forceinline__ void put_row(
	unsigned tile, const struct place &place, int row, const float (&values)[LANE_VALUES])
{
	const int count = value_columns::PIECE / 4, per_word = 4 / (int)sizeof(ELEMENT);

	UNROLL
	for (int n = 0; n < value_columns::NUMBER; n++) {
		struct line<count> piece;

		UNROLL
		for (int i = 0; i < count; i++)
			piece.word[i] = pack_elements(&values[(n * count + i) * per_word]);
		*value_columns::piece_at(tile, row, place.group_row, n) = piece;
	}
}

/* Through a tile, so that threads side by side write a whole row; it may be what derivatives are taken at. */
static __device__ __forceinline__ void store_out(const struct linear_arguments &a, const struct place &place,
	const struct cursor &to, int left, unsigned tile, const float (&out)[4][LANE_VALUES])
{
	__syncwarp(); /* all have read what was there */
	UNROLL
	for (int n = 0; n < 4; n++) {
		unsigned words[value_columns::BYTES / 4];
		float values[LANE_VALUES];

		if (AUGMENTED)
			value_columns::load(words, tile, column_row(place, n), place.group_row);
		UNROLL
		for (int i = 0; i < LANE_VALUES; i++)
			values[i] = out[n][i] *
				(AUGMENTED ? feature_derivative<FEATURE>(word_element(words, i)) : 1.0f);
		put_row(tile, place, column_row(place, n), values);
	}
	__syncwarp();
	UNROLL
	for (int n = 0; n < LINEAR_CHUNK; n += value_tile::ROWS_AT_ONCE) {
		const int row = n + place.lane / value_tile::SEGMENTS;
		const struct line<4> segment = *line_at<4>(
			value_tile::address(tile, row, place.lane % value_tile::SEGMENTS));
		ELEMENT *target = (ELEMENT *)to.row + n * to.stride;

		if (row < left) {
#if VECTOR
			*(struct line<4> *)target = segment;
#else
			UNROLL
			for (int i = 0; i < value_tile::ELEMENTS; i++)
				target[i * a.out.stride[3]] = ((const ELEMENT *)segment.word)[i];
#endif
		}
	}
}
