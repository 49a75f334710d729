/* state: a warp's columns of S, transposed, in registers: their way to and from a group's record, and what a chunk adds. */
#pragma once

#include "linear/factor.cuh"

/* matrix[m][n][i] is S's element of the i % 2-th of the thread's keys of the n-th tile, and its value 2m + i / 2. `sum`
 * forward: Σ y, of the same keys; where x and y have an element more: Σ of y's times w, by values. */
struct state {
	float matrix[VALUE_M][KEY_N][4];
	float sum[AUGMENTED ? LANE_VALUES : LANE_KEYS];
};

static __device__ __forceinline__ int value_of(const struct place &place, int i)
{
	return place.first_value + value_columns::element(place.group_row, i);
}

/* Numbers that lie side by side in a record and in a thread. */
#define KEY_RUN 4
#define VALUE_RUN (value_columns::ELEMENTS < 4 ? value_columns::ELEMENTS : 4)

/* Calls work(number in a record, registers) for each run of values. A thread's i-th key of the n-th tile is
 * key_of(n, i). */
template <typename KEY, typename WORK>
static __device__ __forceinline__ void each_run(
	struct state &state, const struct place &place, KEY key_of, WORK work)
{
	UNROLL
	for (int n = 0; n < KEY_N; n++) {
		UNROLL
		for (int i = 0; i < 2; i++) {
			UNROLL
			for (int value = 0; value < LANE_VALUES; value += VALUE_RUN) {
				float *run[VALUE_RUN];

				UNROLL
				for (int j = 0; j < VALUE_RUN; j++)
					run[j] = &state.matrix[(value + j) / 2][n][(value + j) % 2 * 2 + i];
				work(key_of(n, i) * VALUE_DIM + value_of(place, value), run);
			}
		}
	}
}

static __device__ __forceinline__ void store_state(
	float *record, struct state &state, const struct place &place)
{
	each_run(
		state, place, [&](int n, int i) { return key_columns::element(place.pair + i, n); },
		[&](int number, float *(&run)[VALUE_RUN]) {
			struct line<VALUE_RUN> words;

			UNROLL
			for (int i = 0; i < VALUE_RUN; i++)
				words.word[i] = __float_as_uint(*run[i]);
			*(struct line<VALUE_RUN> *)(record + number) = words;
		});
	UNROLL
	for (int i = 0; i < LANE_VALUES; i++)
		record[KEY_DIM * VALUE_DIM + value_of(place, i)] = state.sum[i];
}

/* A record that this pass's own linear_sum made. */
static __device__ __forceinline__ void load_state(
	const float *record, struct state &state, const struct place &place)
{
	each_run(
		state, place, [&](int n, int i) { return key_pieces::element(place.pair / 2, 2 * n + i); },
		[&](int number, float *(&run)[VALUE_RUN]) {
			const struct line<VALUE_RUN> words = *(
				const struct line<VALUE_RUN> *)(record + number);

			UNROLL
			for (int i = 0; i < VALUE_RUN; i++)
				*run[i] = __uint_as_float(words.word[i]);
		});
	UNROLL
	for (int i = 0; i < LANE_VALUES; i++)
		state.sum[i] = record[KEY_DIM * VALUE_DIM + value_of(place, i)];
}

/* One that another pass's made, whose state is the transpose of this one's, and whose sum is by keys. */
static __device__ __forceinline__ void load_transposed(
	const float *record, struct state &state, const struct place &place)
{
	UNROLL
	for (int key = 0; key < LANE_KEYS; key += KEY_RUN) {
		const float *column = record + key_pieces::element(place.pair / 2, key);

		UNROLL
		for (int value = 0; value < LANE_VALUES; value++) {
			const struct line<KEY_RUN> words = *(
				const struct line<KEY_RUN> *)(column + value_of(place, value) * KEY_DIM);

			UNROLL
			for (int i = 0; i < KEY_RUN; i++)
				state.matrix[value / 2][(key + i) / 2][value % 2 * 2 + i % 2] =
					__uint_as_float(words.word[i]);
		}
		UNROLL
		for (int i = 0; i < KEY_RUN && PASS == PASS_FORWARD; i++)
			state.sum[key + i] = column[KEY_DIM * VALUE_DIM + i];
	}
}

/* Calls work(number of a register, register) for each that a thread holds. */
template <typename WORK> static __device__ __forceinline__ void each_register(struct state &state, WORK work)
{
	UNROLL
	for (int m = 0; m < VALUE_M; m++) {
		UNROLL
		for (int n = 0; n < KEY_N; n++) {
			UNROLL
			for (int i = 0; i < 4; i++)
				work((m * KEY_N + n) * 4 + i, state.matrix[m][n][i]);
		}
	}
	UNROLL
	for (int i = 0; i < (int)(sizeof(state.sum) / sizeof(*state.sum)); i++)
		work(VALUE_M * KEY_N * 4 + i, state.sum[i]);
}

/* S += Yᵀ W, and the sum. Where outputs are made, y is a left factor of rows, else a right one of columns. */
template <bool OUTPUT>
static __device__ __forceinline__ void update(struct state &state, const struct place &place, int left,
	unsigned numbers, const rows &y, const columns &w)
{
	unsigned ones[4]; /* of the rows of y that there are, as left factors' columns */

	UNROLL
	for (int i = 0; i < 4; i++)
		ones[i] = pack_bf16(column_row(place, i / 2 * 2) < left ? 1.0f : 0.0f,
			column_row(place, i / 2 * 2 + 1) < left ? 1.0f : 0.0f);
	UNROLL
	for (int n = 0; n < KEY_N; n++) {
		unsigned b[2][PLANES];

		UNROLL
		for (int p = 0; p < PLANES; p++) {
			UNROLL
			for (int half = 0; half < 2; half++)
				b[half][p] = OUTPUT
					? transpose_matrix(y.at[p][n / 2][register_of<true>(half, n % 2)])
					: y.at[p][n / 2][register_of<false>(n % 2, half)];
		}
		UNROLL
		for (int m = 0; m < VALUE_M; m++)
			multiply_planes(state.matrix[m][n], &w.at[0][m], VALUE_M, b[0], b[1]);
		if (PASS == PASS_FORWARD) { /* every row of the product is the sum of Y's */
			float rows[4] = {0.0f, 0.0f, 0.0f, 0.0f};

			UNROLL
			for (int p = 0; p < PLANES; p++)
				multiply_add(rows, ones, b[0][p], b[1][p]);
			state.sum[2 * n] += rows[0];
			state.sum[2 * n + 1] += rows[1];
		}
	}
	if constexpr (AUGMENTED) { /* every column of the product is W's rows, weighted and added */
		unsigned b[2][PLANES];

		UNROLL
		for (int half = 0; half < 2; half++)
			split_bf16<PLANES>(b[half], extra_of_y(numbers, column_row(place, half * 2), left),
				extra_of_y(numbers, column_row(place, half * 2 + 1), left));
		UNROLL
		for (int m = 0; m < VALUE_M; m++) {
			float columns[4] = {0.0f, 0.0f, 0.0f, 0.0f};

			multiply_planes(columns, &w.at[0][m], VALUE_M, b[0], b[1]);
			state.sum[2 * m] += columns[0];
			state.sum[2 * m + 1] += columns[2];
		}
	}
}
