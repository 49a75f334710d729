/* factor: a chunk's rows in registers, as factors of products on the tensor cores: along the rows or over them, as features, in
 * PLANES of bf16; and these products. */
#pragma once

#include "linear/feature.cuh"
#include "linear/numbers.cuh"

/* Sixteen rows, as a factor of products. Four registers that lie side by side are 16 × 16 elements: of a right factor first
 * both with which one result's columns are summed up, then both of the next; of a left one the other way round. */
template <int BLOCKS> struct factor {
	unsigned at[PLANES][BLOCKS][4];
};
typedef struct factor<KEY_K> rows;
typedef struct factor<VALUE_M> columns;

/* Which of the four is for these eight results and these eight summands. */
template <bool LEFT> static __device__ __forceinline__ constexpr int register_of(int results, int summands)
{
	return LEFT ? summands * 2 + results : results * 2 + summands;
}

/* Elements 2i and 2i + 1 of a row's as factors of a product; SCALED: times `scale`. */
template <int FUNCTION, bool SCALED>
static __device__ __forceinline__ void make_pair(
	unsigned (&pair)[PLANES], const unsigned *words, int i, float scale)
{
#if INPUT == INPUT_BF16
	pair[0] = feature_pair<FUNCTION>(words[i]);
	if (SCALED)
		pair[0] = pack_bf16(scale * bf16_low(pair[0]), scale * bf16_high(pair[0]));
#else
	const float x = feature<FUNCTION>(word_element(words, 2 * i)),
		    y = feature<FUNCTION>(word_element(words, 2 * i + 1));

	split_bf16<PLANES>(pair, SCALED ? scale * x : x, SCALED ? scale * y : y);
#endif
}

/* SCALED: rows are multiplied with their r. WITH_PRODUCTS: `products` are those of both rows with the thread's elements of
 * `sum`. */
template <bool LEFT, bool SCALED, bool WITH_PRODUCTS>
static __device__ __forceinline__ void load_rows(rows &rows, const struct place &place, unsigned address,
	unsigned numbers, const float *sum, float (&products)[2])
{
	UNROLL
	for (int n = 0; n < 2; n++) {
		const float scale = SCALED ? row_number(numbers, SCALES, place.group_row + n * 8) : 1.0f;
		unsigned words[key_pieces::BYTES / 4];

		key_pieces::load(words, address, place.group_row + n * 8, place.pair / 2);
		products[n] = 0.0f;
		UNROLL
		for (int i = 0; i < KEY_N; i++) {
			unsigned pair[PLANES];

			make_pair<KEY_FEATURE, SCALED>(pair, words, i, scale);
			UNROLL
			for (int p = 0; p < PLANES; p++) {
				rows.at[p][i / 2][register_of<LEFT>(n, i % 2)] = pair[p];
				if (WITH_PRODUCTS) {
					products[n] += bf16_low(pair[p]) * sum[2 * i];
					products[n] += bf16_high(pair[p]) * sum[2 * i + 1];
				}
			}
		}
	}
}

/* Summed over rows, instead of along them. */
template <typename PIECES, int FUNCTION, bool LEFT, bool SCALED, int BLOCKS>
static __device__ __forceinline__ void load_columns(
	struct factor<BLOCKS> &columns, const struct place &place, unsigned address, unsigned numbers)
{
	unsigned pairs[4][BLOCKS][PLANES];

	UNROLL
	for (int n = 0; n < 4; n++) {
		const float scale = SCALED ? row_number(numbers, SCALES, column_row(place, n)) : 1.0f;
		unsigned words[PIECES::BYTES / 4];

		PIECES::load(words, address, column_row(place, n), place.group_row);
		UNROLL
		for (int m = 0; m < BLOCKS; m++)
			make_pair<FUNCTION, SCALED>(pairs[n][m], words, m, scale);
	}
	UNROLL
	for (int m = 0; m < BLOCKS; m++) { /* two elements of a row become one of two rows */
		UNROLL
		for (int p = 0; p < PLANES; p++) {
			UNROLL
			for (int i = 0; i < 4; i++)
				columns.at[p][m][register_of<LEFT>(i % 2, i / 2)] = __byte_perm(
					pairs[i / 2 * 2][m][p], pairs[i / 2 * 2 + 1][m][p],
					i % 2 ? 0x7632 : 0x5410);
		}
	}
}

/* c += A B, of all planes that matter. Where there are several, the small products come first, and their sum is added by
 * itself: rounded, not cut off as in the tensor cores' own sums. */
static __device__ __forceinline__ void multiply_planes(float (&c)[4], const unsigned (*a)[4], int a_plane,
	const unsigned (&b0)[PLANES], const unsigned (&b1)[PLANES])
{
	float product[4] = {0.0f, 0.0f, 0.0f, 0.0f};

	if (PLANES == 1) {
		multiply_add(c, a[0], b0[0], b1[0]);
		return;
	}
	UNROLL
	for (int order = PLANES - 1; order >= 0; order--) {
		UNROLL
		for (int left = 0; left <= order; left++)
			multiply_add(product, a[left * a_plane], b0[order - left], b1[order - left]);
	}
	UNROLL
	for (int i = 0; i < 4; i++)
		c[i] += product[i];
}

/* c += A X, of a k step and the n-th eight rows of X. */
static __device__ __forceinline__ void multiply_rows(
	float (&c)[4], const unsigned (*a)[4], int a_plane, const rows &x, int k, int n)
{
	unsigned b[2][PLANES];

	UNROLL
	for (int p = 0; p < PLANES; p++) {
		b[0][p] = x.at[p][k][register_of<false>(n, 0)];
		b[1][p] = x.at[p][k][register_of<false>(n, 1)];
	}
	multiply_planes(c, a, a_plane, b[0], b[1]);
}
