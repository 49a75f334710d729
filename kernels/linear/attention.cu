/* linear_sum, linear_scan, linear_output: linear attention over a whole sequence, parallel over the sequence, and the
 * passes of its gradient. linear/layout.h says what a pass computes; all of them are
 *
 *     out_i = x_i S_i,  S_i = S₀ + Σ y_jᵀ w_j
 *
 * over all j (bidirectional), or those up to i (causal).
 *
 *   1. linear_sum: each group of chunks adds up its own S. Passes that are alike but for a transpose share it
 *      (linear/layout.h): their features are all of w, which the warps of a group have to themselves.
 *   2. linear_scan: from these the state before each group, or, bidirectional, the state of all. In order, so that
 *      the same input gives the same bits.
 *   3. linear_output: each group goes through its chunks and writes out; causal with
 *          out = X S + tril(X Yᵀ) W,  then S += Yᵀ W
 *
 * K and V are read twice, Q and O once. A warp works for itself:
 * it owns VALUE_TILE columns of S, transposed, in registers, and takes sixteen tokens at a time. Which thread holds which
 * element is chosen so that the result of one product is a factor of the next as it lies in registers, and that threads
 * have whole pieces of rows: thread 4g + t of the warp (g = 0 … 7, t = 0 … 3) has
 *     as rows      rows g and g + 8, of each every fourth piece from the t-th on: x, and y where there are scores
 *     as columns   rows 2t, 2t + 1, 2t + 8, 2t + 9, of each every eighth piece from the g-th on: all others
 * a piece being 16 bytes. Which element stands where in a factor's tiles of 8 × 8 is whatever a thread has at hand: any
 * order does, as long as both factors have the same. Rows come from memory NUM_STAGES − 1 chunks ahead, and go back to it,
 * through a warp's own shared memory, so that eight threads side by side, which memory serves at a time, ask for a whole
 * row.
 *
 * Products run in bf16 with fp32 sums. fp16 and fp32 are carried in two and three bf16 (LINEAR_PLANES), whose exponents
 * are as wide as fp32's: states that grow with the sequence overflow nowhere. The divisor φ(q) Σ φ(k) is an fp32 sum of
 * the same φ(q) and φ(k) as the products'. No sum is longer than a group's share of the sequence: those of groups are
 * added by linear_scan.
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

/* --- from memory to the warp's own shared memory ------------------------------------------------------- */

static __device__ __forceinline__ unsigned shared_memory(void)
{
	extern __shared__ __align__(16) unsigned char memory[];

	return (unsigned)__cvta_generic_to_shared(memory);
}

template <int WORDS> struct __align__(WORDS * 4) line
{
	unsigned word[WORDS];
};

template <int WORDS> static __device__ __forceinline__ struct line<WORDS> *line_at(unsigned address) {
	return (struct line<WORDS> *)__cvta_shared_to_generic(address);
}

/* 16 rows of ROW elements in shared memory, in segments of 16 bytes. These are permuted within a row so that what threads
 * that read at a time read lies in different banks, be it of two rows or of every second one. */
template <int ROW>
struct tile {
	static constexpr int SEGMENTS = ROW * (int)sizeof(ELEMENT) / 16, ELEMENTS = 16 / (int)sizeof(ELEMENT);
	static constexpr int ROWS_AT_ONCE = 32 / SEGMENTS; /* that a warp copies, a segment a thread */

	static __device__ __forceinline__ unsigned address(unsigned tile, int row, int segment)
	{
		const int permuted = segment ^ (((row & 6) ^ (row & 1) << 2) & (SEGMENTS - 1));

		return tile + (row * SEGMENTS + permuted) * 16;
	}
};

/* COUNT elements of a row that LANES threads share, in pieces of up to 16 bytes that they take in turn. */
template <int COUNT, int LANES> struct pieces {
	typedef struct tile<COUNT * LANES> tile;
	static constexpr int BYTES = COUNT * (int)sizeof(ELEMENT);
	static constexpr int PIECE = BYTES < 16 ? BYTES : 16;
	static constexpr int NUMBER = BYTES / PIECE, ELEMENTS = PIECE / (int)sizeof(ELEMENT);

	/* Which element of the row a thread's i-th is. */
	static __device__ __forceinline__ int element(int thread, int i)
	{
		return (i / ELEMENTS * LANES + thread) * ELEMENTS + i % ELEMENTS;
	}

	static __device__ __forceinline__ struct line<PIECE / 4> *piece_at(
		unsigned tile, int row, int thread, int n) {
		const int byte = element(thread, n *ELEMENTS) * (int)sizeof(ELEMENT);

		return line_at<PIECE / 4>(pieces::tile::address(tile, row, byte / 16) + byte % 16);
	}

	static __device__ __forceinline__ void
	load(unsigned (&words)[BYTES / 4], unsigned tile, int row, int thread)
	{
		UNROLL
		for (int n = 0; n < NUMBER; n++) {
			const struct line<PIECE / 4> piece = *piece_at(tile, row, thread, n);

			UNROLL
			for (int i = 0; i < PIECE / 4; i++)
				words[n * (PIECE / 4) + i] = piece.word[i];
		}
	}
};

typedef pieces<LANE_KEYS, 4> key_pieces;    /* of rows */
typedef pieces<KEY_DIM / 8, 8> key_columns; /* of columns, as are all further ones */
typedef pieces<LANE_VALUES, 8> value_columns;
typedef tile<KEY_DIM> key_tile;
typedef tile<VALUE_TILE> value_tile;

static __device__ __forceinline__ float word_element(const unsigned *words, int i)
{
#if INPUT == INPUT_F32
	return __uint_as_float(words[i]);
#else
	return element_float((ELEMENT)(words[i / 2] >> i % 2 * 16));
#endif
}

/* The chunk row of a thread's n-th row of columns. */
static __device__ __forceinline__ int column_row(const struct place &place, int n)
{
	return n / 2 * 8 + place.pair + n % 2;
}

/* Where the thread's part of a chunk is. */
struct cursor {
	const ELEMENT *row; /* its first element in its first row */
	long long stride;   /* from row to row */

	__device__ __forceinline__ cursor(
		const struct device_tensor &tensor, const struct place &place, int first_row, int element)
	    : row((const ELEMENT *)tensor.data +
		      row_offset(tensor, place.batch, (long long)place.first * LINEAR_CHUNK + first_row,
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

/* Of a tile's columns from `first_element` on, for copy_tile(). */
template <typename TILE>
static __device__ __forceinline__ struct cursor tile_cursor(
	const struct device_tensor &tensor, const struct place &place, int first_element)
{
	return cursor(tensor, place, place.lane / TILE::SEGMENTS,
		first_element + place.lane % TILE::SEGMENTS * TILE::ELEMENTS);
}

/* Copies a tile, so that threads side by side ask for a whole row. `left`: tokens from the chunk's first to the sequence's
 * end, behind which zeros are. */
template <typename TILE>
static __device__ __forceinline__ void copy_tile(const struct cursor &from,
	const struct device_tensor &tensor, const struct place &place, int left, unsigned tile)
{
	UNROLL
	for (int n = 0; n < LINEAR_CHUNK; n += TILE::ROWS_AT_ONCE) {
		const int row = n + place.lane / TILE::SEGMENTS;
		const unsigned to = TILE::address(tile, row, place.lane % TILE::SEGMENTS);
		const ELEMENT *source = from.row + n * from.stride;

#if VECTOR
		copy_async(to, source, row < left);
#else
		UNROLL
		for (int i = 0; i < TILE::ELEMENTS; i++)
			((ELEMENT *)line_at<4>(to))[i] = row < left ? source[i * tensor.stride[3]]
								    : (ELEMENT)0;
#endif
	}
}

/* --- from there to registers ------------------------------------------------------------------------------- */

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

	copy_async_word(address + place.lane * 4,
		from + (long long)place.sequence * a.tokens + token * a.row_step, token < a.tokens);
}

/* Adds up what the eight threads of columns have of each of their four rows; a thread gets that of its row
 * group_row % 4. */
static __device__ __forceinline__ float sum_of_columns(const struct place &place, const float (&parts)[4])
{
	const bool odd = place.group_row & 1, high = place.group_row & 2;
	float rows[2], sum;

	UNROLL
	for (int n = 0; n < 2; n++) /* each step gives away half of what it has */
		rows[n] = (odd ? parts[2 * n + 1] : parts[2 * n]) +
			__shfl_xor_sync(~0u, odd ? parts[2 * n] : parts[2 * n + 1], 4);
	sum = (high ? rows[1] : rows[0]) + __shfl_xor_sync(~0u, high ? rows[0] : rows[1], 8);
	return sum + __shfl_xor_sync(~0u, sum, 16);
}

/* r and f of a chunk's rows, from their divisors, which stand in r's place: for the warp and for later. `o` and `d_o` are
 * the addresses of columns. Warps with other columns of the state make the same. */
static __device__ __forceinline__ void make_row_numbers(const struct linear_arguments &a,
	const struct place &place, long long token, unsigned d_o, unsigned o, unsigned numbers)
{
	const int row = column_row(place, place.group_row % 4);
	float scale = 1.0f, offset = 0.0f;

	if (NORMALISED) {
		float products[4] = {0.0f, 0.0f, 0.0f, 0.0f};

		UNROLL
		for (int n = 0; n < 4; n++) {
			unsigned words[2][key_columns::BYTES / 4];

			key_columns::load(words[0], d_o, column_row(place, n), place.group_row);
			key_columns::load(words[1], o, column_row(place, n), place.group_row);
			UNROLL
			for (int i = 0; i < KEY_DIM / 8; i++)
				products[n] += word_element(words[0], i) * word_element(words[1], i);
		}
		scale = reciprocal(row_number(numbers, SCALES, row));
		offset = -scale * sum_of_columns(place, products);
		__syncwarp(); /* all have read the divisors */
	}
	if (place.group_row < 4) {
		row_number(numbers, SCALES, row) = scale;
		row_number(numbers, OFFSETS, row) = offset;
	}
	if (place.group_row < 4 && token + row < a.tokens) {
		const long long at = (long long)place.sequence * a.tokens + (token + row) * a.row_step;

		a.scales[at] = scale;
		a.offsets[at] = offset;
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

/* --- the state --------------------------------------------------------------------------------------------- */

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

/* Of the element that x and y have more: x's is 1 and y's f, or the other way round. */
static __device__ __forceinline__ float extra_of_x(unsigned numbers, int row)
{
	return PASS == PASS_DQ ? row_number(numbers, OFFSETS, row) : 1.0f;
}

/* `left`: as copy_tile(). */
static __device__ __forceinline__ float extra_of_y(unsigned numbers, int row, int left)
{
	return PASS == PASS_DK ? row_number(numbers, OFFSETS, row) : row < left ? 1.0f : 0.0f;
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

/* --- outputs ----------------------------------------------------------------------------------------------- */

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
			     OUT = DERIVES ? AT
		: UPDATES                  ? W
					   : 0, /* when it has been read */
		NUMBERS = BYTES - LINEAR_NUMBERS_BYTES;

	/* of the next chunk to be copied; those that are not read cost nothing */
	struct cursor x, y, w, at, o;

	__device__ __forceinline__ stage(const struct linear_arguments &a, const struct place &place)
	    : x(tile_cursor<key_tile>(a.x, place, 0)), y(tile_cursor<key_tile>(a.y, place, 0)),
	      w(tile_cursor<value_tile>(a.w, place, place.first_value)),
	      at(tile_cursor<value_tile>(a.at, place, place.first_value)),
	      o(tile_cursor<key_tile>(a.o, place, 0))
	{
	}

	template <typename TILE>
	__device__ __forceinline__ void copy_next(struct cursor &from, const struct device_tensor &tensor,
		const struct place &place, int left, unsigned address)
	{
		copy_tile<TILE>(from, tensor, place, left, address);
		from.advance(place.step);
	}

	__device__ __forceinline__ void copy(
		const struct linear_arguments &a, const struct place &place, int chunk, unsigned address)
	{
		const int left = (int)(a.tokens - (long long)chunk * LINEAR_CHUNK);

		if (OUTPUT)
			copy_next<key_tile>(x, a.x, place, left, address);
		if (UPDATES) {
			copy_next<key_tile>(y, a.y, place, left, address + Y);
			copy_next<value_tile>(w, a.w, place, left, address + W);
		}
		if (DERIVES)
			copy_next<value_tile>(at, a.at, place, left, address + AT);
		if (READS_O) {
			copy_next<key_tile>(o, a.o, place, left, address + O);
			copy_numbers(a, a.divisors, a.divisors, place, chunk, address + NUMBERS);
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
	rows y;
	columns w;

	if (stage::MAKES_NUMBERS)
		make_row_numbers(a, place, token, address + stage::Y, address + stage::O, numbers);
	if (stage::UPDATES) {
		if (OUTPUT)
			load_rows<true, PASS == PASS_DK, false>(
				y, place, address + stage::Y, numbers, NULL, parts);
		else
			load_columns<key_columns, KEY_FEATURE, false, PASS == PASS_DK>(
				y, place, address + stage::Y, numbers);
		load_columns<value_columns, VALUE_FEATURE, true, PASS == PASS_DV>(
			w, place, address + stage::W, numbers);
	}
	if constexpr (OUTPUT) {
		float out[4][LANE_VALUES];
		unsigned scores[PLANES][4];
		rows x;

		load_rows<false, PASS == PASS_DQ, PASS == PASS_FORWARD && NORMALISED>(
			x, place, address, numbers, state.sum, parts);
		if (CAUSAL)
			make_scores(place, left, numbers, x, y, scores, parts);
		attend(state, numbers, place, x, scores, w, out);
		if (CAUSAL) /* before out is finished, whose shuffles are waited for */
			update<true>(state, place, left, numbers, y, w);
		if (PASS == PASS_FORWARD)
			divide(a, place, token, parts, out);
		store_out(a, place, to, left, address + stage::OUT, out);
	} else {
		update<false>(state, place, left, numbers, y, w);
	}
}

/* A warp's stages. */
template <bool OUTPUT> static __device__ __forceinline__ unsigned stages_of(const struct place &place)
{
	return shared_memory() + place.warp * NUM_STAGES * stage<OUTPUT>::BYTES;
}

/* Asks for the first chunks of a group. */
template <bool OUTPUT>
static __device__ __forceinline__ void begin_walk(
	const struct linear_arguments &a, struct stage<OUTPUT> &from, const struct place &place)
{
	for (int i = 0; i < NUM_STAGES - 1; i++) {
		if (place.first + i * place.step < place.end)
			from.copy(a, place, place.first + i * place.step,
				stages_of<OUTPUT>(place) + i * stage<OUTPUT>::BYTES);
		copy_async_commit();
	}
}

/* Goes through the chunks of a group. */
template <bool OUTPUT>
static __device__ __forceinline__ void walk(const struct linear_arguments &a, struct stage<OUTPUT> &from,
	struct state &state, const struct place &place)
{
	const int bytes = stage<OUTPUT>::BYTES, ahead = (NUM_STAGES - 1) * place.step;
	const unsigned own = stages_of<OUTPUT>(place);
	struct cursor to = tile_cursor<value_tile>(a.out, place, place.first_value);
	int slot = 0;

	for (int chunk = place.first; chunk < place.end; chunk += place.step) {
		const int free = slot == 0 ? NUM_STAGES - 1 : slot - 1;

		copy_async_wait_group<NUM_STAGES - 2>();
		__syncwarp(); /* what other threads copied is there, and they have read what is overwritten */
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

static __device__ __forceinline__ float *record_of(const struct linear_arguments &a, int sequence, int group)
{
	return a.records + ((long long)sequence * a.groups + group) * RECORD;
}

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
	linear_output(const __grid_constant__ struct linear_arguments a)
{
	const struct place place = find_place(a);
	struct state state;

	if (place.group >= a.groups)
		return;
	struct stage<true> from(a, place);

	begin_walk(a, from, place);
	const float *record = record_of(a, place.sequence, CAUSAL ? place.group : 0);

	if constexpr (AUGMENTED)
		load_state(record, state, place);
	else
		load_transposed(record, state, place);
	walk(a, from, state, place);
}

#if AUGMENTED /* the passes whose sums all passes start from */
extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
	linear_sum(const __grid_constant__ struct linear_arguments a)
{
	const struct place place = find_place(a);
	struct state state = {};

	if (place.group >= a.groups) /* causal only: no barriers follow */
		return;
	struct stage<false> from(a, place);

	begin_walk(a, from, place);
	walk(a, from, state, place);
	if (!CAUSAL)
		add_up_warps(state, place);
	if (CAUSAL || place.warp == 0)
		store_state(record_of(a, place.sequence, place.group), state, place);
}

/* A number of a sequence's records to each thread. */
extern "C" __global__ void __launch_bounds__(SCAN_THREADS)
	linear_scan(const __grid_constant__ struct linear_arguments a)
{
	const long long index = (long long)blockIdx.x * SCAN_THREADS + threadIdx.x;
	const int sequence = (int)(index / RECORD), number = (int)(index % RECORD);
	const int square = KEY_DIM * VALUE_DIM, sums = (int)RECORD - square;
	/* a record's matrix is [V, K], a state is [K, V] */
	const long long at = number < square
		? (long long)sequence * square + number % VALUE_DIM * KEY_DIM + number / VALUE_DIM
		: (long long)sequence * sums + number - square;
	const float *initial = number < square ? a.initial_state : a.initial_sum;
	float *final = number < square ? a.final_state : a.final_sum;

	if (sequence >= a.batch * a.heads)
		return;
	float *records = record_of(a, sequence, 0) + number, sum = initial ? initial[at] : 0.0f;

	for (int group = 0; group < a.groups; group += SCAN_AT_ONCE) {
		float own[SCAN_AT_ONCE];

		UNROLL
		for (int i = 0; i < SCAN_AT_ONCE; i++)
			own[i] = records[min(group + i, a.groups - 1) * RECORD]; /* none waits for a branch */
		UNROLL
		for (int i = 0; i < SCAN_AT_ONCE; i++) {
			if (CAUSAL && group + i < a.groups)
				records[(group + i) * RECORD] = sum;
			sum += group + i < a.groups ? own[i] : 0.0f;
		}
	}
	if (!CAUSAL)
		records[0] = sum;
	if (final)
		final[at] = sum;
}
#endif
