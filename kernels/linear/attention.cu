/* linear_sum, linear_scan, linear_output: linear attention over a whole sequence, parallel over the sequence, and the
 * passes of its gradient. linear/layout.h says what a pass computes; all of them are
 *
 *     out_i = x_i S_i,  S_i = S₀ + Σ y_jᵀ w_j
 *
 * over all j (bidirectional), or those up to i (causal).
 *
 *   1. linear_sum: each group of chunks adds up its own S.
 *   2. linear_scan: from these the state before each group, or, bidirectional, the state of all. In order, so that
 *      the same input gives the same bits.
 *   3. linear_output: each group goes through its chunks and writes out; causal with
 *          out = X S + tril(X Yᵀ) W,  then S += Yᵀ W
 *
 * K and V are read twice, Q and O once. A warp works for itself: it owns VALUE_TILE columns of S, transposed, in
 * registers, and takes sixteen tokens at a time. Which thread holds which element is chosen so that the result of one
 * product is a factor of the next as it lies in registers, and that threads load and store whole pieces of rows:
 * thread 4g + t of the warp (g = 0 … 7, t = 0 … 3) has
 *     of x and y   rows g and g + 8, of each every fourth piece from the t-th on
 *     of w, out    rows 2t, 2t + 1, 2t + 8, 2t + 9, of each every eighth piece from the g-th on
 * a piece being 16 bytes, so that threads side by side ask for bytes side by side. Column 2t + i of the n-th 8 × 8 tile
 * of a row of Y is the thread's element 2n + i: any order does, as long as all factors have the same. A thread copies to shared memory only what it reads itself, NUM_STAGES − 1 chunks ahead, so
 * that nobody waits for anybody; but for r and f of a gradient's rows, which a warp copies together.
 *
 * Products run in bf16 with fp32 sums. fp16 and fp32 are carried in two and three bf16 (LINEAR_PLANES), whose exponents
 * are as wide as fp32's: states that grow with the sequence overflow nowhere. The divisor φ(q) Σ φ(k) is fp32
 * throughout. No sum is longer than a group's share of the sequence: those of groups are added by linear_scan.
 *
 * Compile-time parameters, of the problem:
 *   PASS, FEATURE         see linear/layout.h
 *   KEY_DIM, VALUE_DIM    of x and y, of w and out: 32, 64 or 128
 *   CAUSAL, NORMALISED    1 or 0
 *   INPUT, VECTOR         see common/element.cuh
 * and tunables (lib/op/linear/config.c):
 *   VALUE_TILE   columns of S that a warp owns: 16, 32 or 64
 *   NUM_WARPS    of a block
 *   NUM_STAGES   chunks in shared memory: the one that is worked on, and those on their way
 *   MIN_BLOCKS   blocks that must fit a multiprocessor; bounds registers */
#include "common/element.cuh"
#include "common/tile.cuh"
#include "linear/arguments.h"
#include "linear/feature.cuh"
#include "linear/layout.h"

#define PLANES LINEAR_PLANES(INPUT)
#define THREADS (NUM_WARPS * 32)

#define KEY_FEATURE (PASS == PASS_FORWARD || PASS == PASS_DV ? FEATURE : FEATURE_IDENTITY)
#define VALUE_FEATURE (PASS == PASS_DQ || PASS == PASS_DK ? FEATURE : FEATURE_IDENTITY)
#define AUGMENTED (PASS == PASS_DQ || PASS == PASS_DK) /* x and y have an element more */

/* 8 × 8 tiles and k steps of 16 in a row of y; blocks of 16 columns of S */
#define KEY_N (KEY_DIM / 8)
#define KEY_K (KEY_DIM / 16)
#define VALUE_M (VALUE_TILE / 16)

/* Elements that a thread has of a row. */
#define LANE_KEYS (KEY_DIM / 4)
#define LANE_VALUES (VALUE_TILE / 8)

#define ROWS_BYTES LINEAR_ROWS_BYTES(INPUT, KEY_DIM)
#define COLUMNS_BYTES LINEAR_ROWS_BYTES(INPUT, VALUE_TILE)
#define RECORD ((long long)LINEAR_RECORD(KEY_DIM, VALUE_DIM, PASS))

#define TILES (VALUE_DIM / VALUE_TILE)

/* Where a thread finds its share. */
struct place {
	int warp, lane;
	int group_row, pair;       /* g and 2t */
	int sequence, batch, head; /* the first is batch · heads + head */
	int group;                 /* of the sequence's chunks */
	int first_value;
	int first, end, step; /* chunks */
};

static __device__ __forceinline__ struct place find_place(const struct linear_arguments &a)
{
	const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
	/* causal: a warp has a group, bidirectional: a block, whose warps take every NUM_WARPS-th chunk */
	const int unit = CAUSAL ? blockIdx.x * NUM_WARPS + warp : blockIdx.x;
	const int sequences = a.batch * a.heads, chunks = (int)((a.tokens + LINEAR_CHUNK - 1) / LINEAR_CHUNK);
	const int sequence = unit / TILES % sequences;
	struct place place = {warp, lane, lane / 4, lane % 4 * 2, sequence, sequence / a.heads,
		sequence % a.heads, unit / TILES / sequences, unit % TILES * VALUE_TILE};

	place.first = place.group * a.chunks_per_group;
	place.end = min(place.first + a.chunks_per_group, chunks);
	place.first += CAUSAL ? 0 : warp;
	place.step = CAUSAL ? 1 : NUM_WARPS;
	return place;
}

/* --- from memory to the thread's own shared memory ------------------------------------------------------- */

static __device__ __forceinline__ unsigned shared_memory(void)
{
	extern __shared__ __align__(16) unsigned char memory[];

	return (unsigned)__cvta_generic_to_shared(memory);
}

template <int WORDS> struct __align__(WORDS * 4) line
{
	unsigned word[WORDS];
};

/* In shared memory; only its own thread reads and writes a word, but for those that meet at a barrier. */
template <int WORDS> static __device__ __forceinline__ struct line<WORDS> *line_at(unsigned address) {
	return (struct line<WORDS> *)__cvta_shared_to_generic(address);
}

/* Consecutive elements of a row, BYTES of them; zeros when the row is not valid. */
template <int BYTES>
static __device__ __forceinline__ void copy_piece(
	unsigned address, const ELEMENT *source, long long stride, bool valid)
{
#if VECTOR
	if (BYTES == 16)
		copy_async(address, source, valid);
	else
		copy_async_small<BYTES>(address, source, valid);
#else
	ELEMENT *to = (ELEMENT *)line_at<BYTES / 4>(address);

	UNROLL
	for (int i = 0; i < BYTES / (int)sizeof(ELEMENT); i++)
		to[i] = valid ? source[i * stride] : (ELEMENT)0;
#endif
}

/* COUNT elements of a row that LANES threads share, in pieces that they take in turn. In shared memory the n-th pieces of
 * all threads lie side by side. */
template <int COUNT, int LANES> struct pieces {
	static constexpr int BYTES = COUNT * (int)sizeof(ELEMENT);
	static constexpr int PIECE = BYTES < 16 ? BYTES : 16;
	static constexpr int NUMBER = BYTES / PIECE, ELEMENTS = PIECE / (int)sizeof(ELEMENT);

	/* Which element of the row a thread's i-th is. */
	static __device__ __forceinline__ int element(int thread, int i)
	{
		return (i / ELEMENTS * LANES + thread) * ELEMENTS + i % ELEMENTS;
	}

	/* `row` begins with the thread's first element. */
	static __device__ __forceinline__ void copy(
		unsigned address, const ELEMENT *row, long long stride, int number, int lane, bool valid)
	{
		UNROLL
		for (int n = 0; n < NUMBER; n++)
			copy_piece<PIECE>(address + ((number * NUMBER + n) * 32 + lane) * PIECE,
				row + n * LANES * ELEMENTS * (VECTOR ? 1 : stride), stride, valid);
	}

	static __device__ __forceinline__ void load(
		unsigned (&words)[BYTES / 4], unsigned address, int number, int lane)
	{
		UNROLL
		for (int n = 0; n < NUMBER; n++) {
			const struct line<PIECE / 4> piece = *line_at<PIECE / 4>(
				address + ((number * NUMBER + n) * 32 + lane) * PIECE);

			UNROLL
			for (int i = 0; i < PIECE / 4; i++)
				words[n * (PIECE / 4) + i] = piece.word[i];
		}
	}
};

typedef pieces<LANE_KEYS, 4> key_pieces;
typedef pieces<LANE_VALUES, 8> value_pieces;

static __device__ __forceinline__ float word_element(const unsigned *words, int i)
{
#if INPUT == INPUT_F32
	return __uint_as_float(words[i]);
#else
	return element_float((ELEMENT)(words[i / 2] >> i % 2 * 16));
#endif
}

/* The chunk row of a thread's n-th row of w and out. */
static __device__ __forceinline__ int column_row(const struct place &place, int n)
{
	return n / 2 * 8 + place.pair + n % 2;
}

/* A thread's rows in a chunk: of x and y every eighth, of w and out two and, eight further, two. */
struct cursor {
	const ELEMENT *row; /* the thread's first element of its first */
	long long stride;   /* from row to row */

	__device__ __forceinline__ cursor(const struct device_tensor &tensor, const struct place &place,
		int chunk, int first_row, int element)
		: row((const ELEMENT *)tensor.data +
			  row_offset(tensor, place.batch, (long long)chunk * LINEAR_CHUNK + first_row,
				  place.head) +
			  element * tensor.stride[3]),
		  stride(tensor.stride[1])
	{
	}

	__device__ __forceinline__ void advance(int chunks)
	{
		row += chunks * LINEAR_CHUNK * stride;
	}
};

static __device__ __forceinline__ struct cursor row_cursor(
	const struct device_tensor &tensor, const struct place &place, int chunk)
{
	return cursor(tensor, place, chunk, place.group_row, key_pieces::element(place.pair / 2, 0));
}

static __device__ __forceinline__ struct cursor column_cursor(
	const struct device_tensor &tensor, const struct place &place, int chunk)
{
	return cursor(tensor, place, chunk, place.pair,
		place.first_value + value_pieces::element(place.group_row, 0));
}

/* `left`: tokens from the chunk's first to the sequence's end. */
static __device__ __forceinline__ void copy_rows(const struct cursor &from,
	const struct device_tensor &tensor, const struct place &place, int left, unsigned address)
{
	UNROLL
	for (int n = 0; n < 2; n++)
		key_pieces::copy(address, from.row + n * 8 * from.stride, tensor.stride[3], n, place.lane,
			place.group_row + n * 8 < left);
}

static __device__ __forceinline__ void copy_columns(const struct cursor &from,
	const struct device_tensor &tensor, const struct place &place, int left, unsigned address)
{
	UNROLL
	for (int n = 0; n < 4; n++)
		value_pieces::copy(address, from.row + (n / 2 * 8 + n % 2) * from.stride, tensor.stride[3], n,
			place.lane, column_row(place, n) < left);
}

/* --- from there to registers ------------------------------------------------------------------------------- */

/* Sixteen rows of x or y. As a left factor [16 rows, K] the four registers of a k step are its fragment; as a right
 * factor [K, 16 rows] registers 0 and 2 are that of the first eight rows, 1 and 3 that of the others. */
struct rows {
	unsigned at[PLANES][KEY_K][4];
};

/* Sixteen rows of w: left factors [16 columns, 16 rows]. */
struct columns {
	unsigned at[PLANES][VALUE_M][4];
};

static __device__ __forceinline__ float reciprocal(float divisor)
{
	float inverse;

	asm("rcp.approx.f32 %0, %1;" : "=f"(inverse) : "f"(divisor));
	return fabsf(divisor) < SMALLEST_DIVISOR ? 0.0f : inverse;
}

/* Adds up what the four threads of a row have. */
static __device__ __forceinline__ float sum_of_row(float part)
{
	part += __shfl_xor_sync(~0u, part, 1);
	return part + __shfl_xor_sync(~0u, part, 2);
}

/* r and f of a chunk's rows, one behind the other in shared memory; zeros behind the sequence's end. */
enum { SCALES, OFFSETS };

static __device__ __forceinline__ float &row_number(unsigned numbers, int which, int row)
{
	return *(float *)__cvta_shared_to_generic(numbers + (which * LINEAR_CHUNK + row) * 4);
}

/* A number to each thread: of the first half `scales`, of the second `offsets`. */
static __device__ __forceinline__ void copy_numbers(const struct linear_arguments &a, const float *scales,
	const float *offsets, const struct place &place, int chunk, unsigned address)
{
	const int row = place.lane % LINEAR_CHUNK;
	const float *from = place.lane < LINEAR_CHUNK ? scales : offsets;
	const long long token = (long long)chunk * LINEAR_CHUNK + row;

	copy_async_small<4>(address + place.lane * 4,
		from + (long long)place.sequence * a.tokens + token * a.row_step, token < a.tokens);
}

/* r and f of a chunk's rows, from their divisors, which stand in r's place: for the warp and for later. `o` and `d_o` are
 * the rows' addresses. Warps with other columns of the state make the same. */
static __device__ __forceinline__ void make_row_numbers(const struct linear_arguments &a,
	const struct place &place, long long token, unsigned d_o, unsigned o, unsigned numbers)
{
	UNROLL
	for (int n = 0; n < 2; n++) {
		const int row = place.group_row + n * 8;
		const long long at = (long long)place.sequence * a.tokens + (token + row) * a.row_step;
		float scale = 1.0f, offset = 0.0f;

		if (NORMALISED) {
			unsigned words[2][key_pieces::BYTES / 4];

			key_pieces::load(words[0], d_o, n, place.lane);
			key_pieces::load(words[1], o, n, place.lane);
			UNROLL
			for (int i = 0; i < LANE_KEYS; i++)
				offset += word_element(words[0], i) * word_element(words[1], i);
			offset = sum_of_row(offset);
		}
		if (place.pair == 0) {
			if (NORMALISED)
				scale = reciprocal(row_number(numbers, SCALES, row));
			offset *= -scale;
			row_number(numbers, SCALES, row) = scale;
			row_number(numbers, OFFSETS, row) = offset;
			if (token + row < a.tokens) {
				a.scales[at] = scale;
				a.offsets[at] = offset;
			}
		}
	}
	__syncwarp();
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
template <bool SCALED, bool WITH_PRODUCTS>
static __device__ __forceinline__ void load_factor(struct rows &rows, const struct place &place,
	unsigned address, unsigned numbers, const float *sum, float (&products)[2])
{
	UNROLL
	for (int n = 0; n < 2; n++) {
		const float scale = SCALED ? row_number(numbers, SCALES, place.group_row + n * 8) : 1.0f;
		unsigned words[key_pieces::BYTES / 4];

		key_pieces::load(words, address, n, place.lane);
		products[n] = 0.0f;
		UNROLL
		for (int i = 0; i < KEY_N; i++) {
			unsigned pair[PLANES];

			make_pair<KEY_FEATURE, SCALED>(pair, words, i, scale);
			UNROLL
			for (int p = 0; p < PLANES; p++) {
				rows.at[p][i / 2][i % 2 * 2 + n] = pair[p];
				if (WITH_PRODUCTS) {
					products[n] += bf16_low(pair[p]) * sum[2 * i];
					products[n] += bf16_high(pair[p]) * sum[2 * i + 1];
				}
			}
		}
	}
}

static __device__ __forceinline__ void load_weights(
	struct columns &columns, const struct place &place, unsigned address, unsigned numbers)
{
	unsigned pairs[4][VALUE_M][PLANES];

	UNROLL
	for (int n = 0; n < 4; n++) {
		const bool scaled = PASS == PASS_DV;
		const float scale = scaled ? row_number(numbers, SCALES, column_row(place, n)) : 1.0f;
		unsigned words[value_pieces::BYTES / 4];

		value_pieces::load(words, address, n, place.lane);
		UNROLL
		for (int m = 0; m < VALUE_M; m++)
			make_pair<VALUE_FEATURE, scaled>(pairs[n][m], words, m, scale);
	}
	UNROLL
	for (int m = 0; m < VALUE_M; m++) { /* two elements of a row become one of two rows */
		UNROLL
		for (int p = 0; p < PLANES; p++) {
			UNROLL
			for (int i = 0; i < 4; i++)
				columns.at[p][m][i] = __byte_perm(pairs[i / 2 * 2][m][p],
					pairs[i / 2 * 2 + 1][m][p], i % 2 ? 0x7632 : 0x5410);
		}
	}
}

/* --- the state --------------------------------------------------------------------------------------------- */

/* matrix[m][n][i] is S's element of the thread's key 2n + i % 2 and its value 2m + i / 2. `sum` forward: Σ y, this thread's elements of it, as of x; where x and y have
 * an element more: Σ of y's times w, by values. */
struct state {
	float matrix[VALUE_M][KEY_N][4];
	float sum[AUGMENTED ? LANE_VALUES : LANE_KEYS];
};

/* Which column of S a thread's i-th is. */
static __device__ __forceinline__ int value_of(const struct place &place, int i)
{
	return place.first_value + value_pieces::element(place.group_row, i);
}

/* Calls work(number in a record, register) for each number of the thread's. */
template <typename WORK>
static __device__ __forceinline__ void each_number(struct state &state, const struct place &place, WORK work)
{
	UNROLL
	for (int n = 0; n < KEY_N; n++) {
		UNROLL
		for (int i = 0; i < 2; i++) {
			const int key = key_pieces::element(place.pair / 2, 2 * n + i);

			UNROLL
			for (int value = 0; value < LANE_VALUES; value++)
				work(key * VALUE_DIM + value_of(place, value),
					state.matrix[value / 2][n][value % 2 * 2 + i]);
		}
	}
	UNROLL
	for (int i = 0; i < (AUGMENTED ? LANE_VALUES : LANE_KEYS); i++)
		work(KEY_DIM * VALUE_DIM +
				(AUGMENTED ? value_of(place, i) : key_pieces::element(place.pair / 2, i)),
			state.sum[i]);
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

/* Of the element that x and y have more: x's is 1 and y's f, or the other way round. */
static __device__ __forceinline__ float extra_of_x(unsigned numbers, int row)
{
	return PASS == PASS_DQ ? row_number(numbers, OFFSETS, row) : 1.0f;
}

/* `left`: as copy_rows(). */
static __device__ __forceinline__ float extra_of_y(unsigned numbers, int row, int left)
{
	return PASS == PASS_DK ? row_number(numbers, OFFSETS, row) : row < left ? 1.0f : 0.0f;
}

/* S += Yᵀ W, and the sum. */
static __device__ __forceinline__ void update(struct state &state, const struct place &place, int left,
	unsigned numbers, const struct rows &y, const struct columns &w)
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
				b[half][p] = transpose_matrix(y.at[p][n / 2][n % 2 * 2 + half]);
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

/* --- outputs ----------------------------------------------------------------------------------------------- */

/* tril(X Yᵀ), packed as a right factor; adds its rows up in `sums`. */
static __device__ __forceinline__ void make_scores(const struct place &place, int left, unsigned numbers,
	const struct rows &x, const struct rows &y, unsigned (&scores)[PLANES][1][4], float (&sums)[2])
{
	float c[2][4];

	clear(c);
	UNROLL
	for (int n = 0; n < 2; n++) {
		UNROLL
		for (int k = 0; k < KEY_K; k++) {
			unsigned b[2][PLANES];

			UNROLL
			for (int p = 0; p < PLANES; p++) {
				b[0][p] = y.at[p][k][n];
				b[1][p] = y.at[p][k][2 + n];
			}
			multiply_planes(c[n], &x.at[0][k], KEY_K, b[0], b[1]);
		}
		UNROLL
		for (int i = 0; i < 4; i++) {
			const int row = place.group_row + i / 2 * 8, column = n * 8 + place.pair + i % 2;

			if (AUGMENTED)
				c[n][i] += extra_of_x(numbers, row) * extra_of_y(numbers, column, left);
			if (column > row)
				c[n][i] = 0.0f;
			sums[i / 2] += c[n][i];
		}
	}
	pack_rows<PLANES>(scores, c);
}

/* What each of the thread's rows of out is multiplied with: 1 over the divisor of its row, whose parts lie with the
 * threads of a row of x. A divisor that is zero, or too small to divide by, makes zeros; a NaN stays one. */
static __device__ __forceinline__ void make_factors(const struct linear_arguments &a,
	const struct place &place, long long token, const float (&parts)[2], float (&factors)[4])
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
	for (int n = 0; n < 4; n++)
		factors[n] = NORMALISED ? __shfl_sync(~0u, factor[n / 2], (place.pair + n % 2) * 4) : 1.0f;
}

/* Stores a thread's elements of a row, of which `row` is the first. */
static __device__ __forceinline__ void store_row(
	ELEMENT *row, long long stride, const float (&values)[LANE_VALUES])
{
#if VECTOR
	const int count = value_pieces::PIECE / 4;

	UNROLL
	for (int n = 0; n < value_pieces::NUMBER; n++) {
		struct line<count> piece;

		UNROLL
		for (int i = 0; i < count; i++)
#if INPUT == INPUT_F32
			piece.word[i] = __float_as_uint(values[n * count + i]);
#else
			piece.word[i] = element_pair(
				values[(n * count + i) * 2], values[(n * count + i) * 2 + 1]);
#endif
		((struct line<count> *)row)[n * 8] = piece;
	}
#else
	UNROLL
	for (int i = 0; i < LANE_VALUES; i++)
		row[value_pieces::element(0, i) * stride] = float_element(values[i]);
#endif
}

static __device__ __forceinline__ void store_out(const struct linear_arguments &a, const struct place &place,
	const struct cursor &to, int left, unsigned derivatives, const float (&out)[4][LANE_VALUES])
{
	UNROLL
	for (int n = 0; n < 4; n++) {
		unsigned words[value_pieces::BYTES / 4];
		float values[LANE_VALUES];

		if (AUGMENTED)
			value_pieces::load(words, derivatives, n, place.lane);
		UNROLL
		for (int i = 0; i < LANE_VALUES; i++)
			values[i] = out[n][i] *
				(AUGMENTED ? feature_derivative<FEATURE>(word_element(words, i)) : 1.0f);
		if (column_row(place, n) < left)
			store_row((ELEMENT *)to.row + (n / 2 * 8 + n % 2) * to.stride, a.out.stride[3], values);
	}
}

/* X S + tril(X Yᵀ) W, before factors and derivatives. */
static __device__ __forceinline__ void attend(const struct state &state, const struct rows &x,
	const unsigned (&scores)[PLANES][1][4], const struct columns &w, float (&out)[4][LANE_VALUES])
{
	UNROLL
	for (int m = 0; m < VALUE_M; m++) {
		unsigned left[PLANES][KEY_K][4];
		float c[2][4];

		pack_rows<PLANES>(left, state.matrix[m]);
		clear(c);
		UNROLL
		for (int n = 0; n < 2; n++) {
			unsigned b[2][PLANES];

			UNROLL
			for (int k = 0; k < KEY_K; k++) {
				UNROLL
				for (int p = 0; p < PLANES; p++) {
					b[0][p] = x.at[p][k][n];
					b[1][p] = x.at[p][k][2 + n];
				}
				multiply_planes(c[n], &left[0][k], KEY_K, b[0], b[1]);
			}
			if (CAUSAL) {
				UNROLL
				for (int p = 0; p < PLANES; p++) {
					b[0][p] = scores[p][0][n];
					b[1][p] = scores[p][0][2 + n];
				}
				multiply_planes(c[n], &w.at[0][m], VALUE_M, b[0], b[1]);
			}
			UNROLL
			for (int i = 0; i < 4; i++)
				out[2 * n + i % 2][2 * m + i / 2] = c[n][i];
		}
	}
}

/* --- a group ----------------------------------------------------------------------------------------------- */

/* A stage of the output has x first; then, causal, y and w; then what the derivative is taken at. One of the sum has y and
 * w, then o, where r and f are made. Both end with r and f where they are read. */
template <bool OUTPUT> struct stage {
	static constexpr bool UPDATES = !OUTPUT || CAUSAL, DERIVES = OUTPUT && AUGMENTED,
			      MAKES_NUMBERS = !OUTPUT && PASS == PASS_DK,
			      READS_O = MAKES_NUMBERS && NORMALISED,
			      READS_NUMBERS = OUTPUT && LINEAR_OUTPUT_NUMBERS(CAUSAL, PASS);
	static constexpr int BYTES = OUTPUT ? LINEAR_OUTPUT_STAGE(INPUT, KEY_DIM, VALUE_TILE, CAUSAL, PASS)
					    : LINEAR_SUM_STAGE(INPUT, KEY_DIM, VALUE_TILE, PASS, NORMALISED);
	static constexpr int Y = OUTPUT ? ROWS_BYTES : 0, W = Y + ROWS_BYTES,
			     AT = UPDATES ? W + COLUMNS_BYTES : ROWS_BYTES, O = AT,
			     NUMBERS = BYTES - LINEAR_NUMBERS_BYTES;

	/* of the next chunk to be copied; those that are not read cost nothing */
	struct cursor x, y, w, at, o;

	__device__ __forceinline__ stage(const struct linear_arguments &a, const struct place &place)
		: x(row_cursor(a.x, place, place.first)), y(row_cursor(a.y, place, place.first)),
		  w(column_cursor(a.w, place, place.first)), at(column_cursor(a.at, place, place.first)),
		  o(row_cursor(a.o, place, place.first))
	{
	}

	__device__ __forceinline__ void copy(
		const struct linear_arguments &a, const struct place &place, int chunk, unsigned address)
	{
		const int left = (int)(a.tokens - (long long)chunk * LINEAR_CHUNK);

		if (OUTPUT) {
			copy_rows(x, a.x, place, left, address);
			x.advance(place.step);
		}
		if (UPDATES) {
			copy_rows(y, a.y, place, left, address + Y);
			copy_columns(w, a.w, place, left, address + W);
			y.advance(place.step);
			w.advance(place.step);
		}
		if (DERIVES) {
			copy_columns(at, a.at, place, left, address + AT);
			at.advance(place.step);
		}
		if (READS_O) {
			copy_rows(o, a.o, place, left, address + O);
			copy_numbers(a, a.divisors, a.divisors, place, chunk, address + NUMBERS);
			o.advance(place.step);
		}
		if (READS_NUMBERS)
			copy_numbers(a, a.scales, a.offsets, place, chunk, address + NUMBERS);
	}
};

template <bool OUTPUT>
static __device__ __forceinline__ void step(const struct linear_arguments &a, struct state &state,
	const struct place &place, const struct cursor &to, int chunk, unsigned address)
{
	typedef struct stage<OUTPUT> stage;
	const long long token = (long long)chunk * LINEAR_CHUNK;
	const unsigned numbers = address + stage::NUMBERS;
	const int left = (int)(a.tokens - token);
	float parts[2];
	struct rows y;
	struct columns w;

	if (stage::MAKES_NUMBERS)
		make_row_numbers(a, place, token, address + stage::Y, address + stage::O, numbers);
	if (stage::UPDATES) {
		load_factor<PASS == PASS_DK, false>(y, place, address + stage::Y, numbers, NULL, parts);
		load_weights(w, place, address + stage::W, numbers);
	}
	if constexpr (OUTPUT) {
		float out[4][LANE_VALUES], factors[4];
		unsigned scores[PLANES][1][4];
		struct rows x;

		load_factor<PASS == PASS_DQ, PASS == PASS_FORWARD && NORMALISED>(
			x, place, address, numbers, state.sum, parts);
		if (CAUSAL)
			make_scores(place, left, numbers, x, y, scores, parts);
		attend(state, x, scores, w, out);
		if (PASS == PASS_FORWARD)
			make_factors(a, place, token, parts, factors);
		UNROLL
		for (int n = 0; n < 4; n++) {
			const float extra = AUGMENTED ? extra_of_x(numbers, column_row(place, n)) : 0.0f;

			UNROLL
			for (int i = 0; i < LANE_VALUES; i++) {
				if (AUGMENTED)
					out[n][i] += extra * state.sum[i];
				if (PASS == PASS_FORWARD)
					out[n][i] *= factors[n];
			}
		}
		store_out(a, place, to, left, address + stage::AT, out);
	}
	if (stage::UPDATES)
		update(state, place, left, numbers, y, w);
}

/* Goes through the chunks of a group. */
template <bool OUTPUT>
static __device__ __forceinline__ void walk(
	const struct linear_arguments &a, struct state &state, const struct place &place)
{
	const int bytes = stage<OUTPUT>::BYTES, ahead = (NUM_STAGES - 1) * place.step;
	const unsigned own = shared_memory() + place.warp * NUM_STAGES * bytes;
	struct stage<OUTPUT> from(a, place);
	struct cursor to = column_cursor(a.out, place, place.first);
	int slot = 0;

	for (int i = 0; i < NUM_STAGES - 1; i++) {
		if (place.first + i * place.step < place.end)
			from.copy(a, place, place.first + i * place.step, own + i * bytes);
		copy_async_commit();
	}
	for (int chunk = place.first; chunk < place.end; chunk += place.step) {
		const int free = slot == 0 ? NUM_STAGES - 1 : slot - 1;

		copy_async_wait_group<NUM_STAGES - 2>();
		if (from.READS_NUMBERS || from.READS_O) /* which other lanes copied */
			__syncwarp();
		if (chunk + ahead < place.end)
			from.copy(a, place, chunk + ahead, own + free * bytes);
		copy_async_commit();
		step<OUTPUT>(a, state, place, to, chunk, own + slot * bytes);
		to.advance(place.step);
		slot = slot == NUM_STAGES - 1 ? 0 : slot + 1;
	}
}

/* The first warp's state becomes the sum of all, in order. */
static __device__ __forceinline__ void add_up_warps(struct state &state, const struct place &place)
{
	const unsigned own = shared_memory() + place.lane * 4;

	for (int from = NUM_WARPS - 1; from > 0; from--) {
		__syncthreads();
		if (place.warp == from)
			each_register(state, [&](int number, float &value) {
				line_at<1>(own + number * 128)->word[0] = __float_as_uint(value);
			});
		__syncthreads();
		if (place.warp == from - 1)
			each_register(state, [&](int number, float &value) {
				value += __uint_as_float(line_at<1>(own + number * 128)->word[0]);
			});
	}
}

/* The place of a number of a matrix [KEY_DIM, VALUE_DIM] in its transpose. */
static __device__ __forceinline__ int transposed(int number)
{
	return number % VALUE_DIM * KEY_DIM + number / VALUE_DIM;
}

static __device__ __forceinline__ float *record_of(const struct linear_arguments &a, int sequence, int group)
{
	return a.records + ((long long)sequence * a.groups + group) * RECORD;
}

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
	linear_sum(const __grid_constant__ struct linear_arguments a)
{
	const struct place place = find_place(a);
	struct state state = {};

	if (place.group >= a.groups) /* causal only: no barriers follow */
		return;
	walk<false>(a, state, place);
	if (!CAUSAL)
		add_up_warps(state, place);
	if (CAUSAL || place.warp == 0) {
		float *record = record_of(a, place.sequence, place.group);

		each_number(state, place, [&](int number, float &value) { record[number] = value; });
	}
}

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
	linear_output(const __grid_constant__ struct linear_arguments a)
{
	const struct place place = find_place(a);
	struct state state;

	if (place.group >= a.groups)
		return;
	const float *record = record_of(a, place.sequence, CAUSAL ? place.group : 0);

	each_number(state, place, [&](int number, float &value) {
		value = record[PASS == PASS_DV && number < KEY_DIM * VALUE_DIM ? transposed(number) : number];
	});
	walk<true>(a, state, place);
}

/* --- between them ------------------------------------------------------------------------------------------- */

#define AT_ONCE 8 /* loads under way */

/* A number of a sequence's records to each thread. */
extern "C" __global__ void __launch_bounds__(SCAN_THREADS)
	linear_scan(const __grid_constant__ struct linear_arguments a)
{
	const long long index = (long long)blockIdx.x * SCAN_THREADS + threadIdx.x;
	const int sequence = (int)(index / RECORD), number = (int)(index % RECORD);
	const int square = KEY_DIM * VALUE_DIM, sums = (int)RECORD - square;
	/* the gradient's states are the transposes of the operation's */
	const long long at = number < square
		? (long long)sequence * square + (AUGMENTED ? transposed(number) : number)
		: (long long)sequence * sums + number - square;
	const float *initial = number < square ? a.initial_state : a.initial_sum;
	float *final = number < square ? a.final_state : a.final_sum;

	if (sequence >= a.batch * a.heads)
		return;
	float *records = record_of(a, sequence, 0) + number, sum = initial ? initial[at] : 0.0f;

	for (int group = 0; group < a.groups; group += AT_ONCE) {
		float own[AT_ONCE];

		UNROLL
		for (int i = 0; i < AT_ONCE; i++)
			own[i] = group + i < a.groups ? records[(group + i) * RECORD] : 0.0f;
		UNROLL
		for (int i = 0; i < AT_ONCE; i++) {
			if (CAUSAL && group + i < a.groups)
				records[(group + i) * RECORD] = sum;
			sum += own[i];
		}
	}
	if (!CAUSAL)
		records[0] = sum;
	if (final)
		final[at] = sum;
}
