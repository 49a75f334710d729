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
 *     of x and y   rows g and g + 8, elements t K/4 … (t + 1) K/4 − 1
 *     of w, out    rows 2t, 2t + 1, 2t + 8, 2t + 9, elements g VALUE_TILE/8 … (g + 1) VALUE_TILE/8 − 1
 * Column 2t + i of the n-th 8 × 8 tile of a row of Y is element (2t + i) K/8 + n: any order does, as long as all
 * factors have the same. A thread copies to shared memory only what it reads itself, NUM_STAGES − 1 chunks ahead, so
 * that nobody waits for anybody.
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
		asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(address), "l"(source),
			     "n"(BYTES), "r"(valid ? BYTES : 0)
			     : "memory");
#else
	ELEMENT *to = (ELEMENT *)line_at<BYTES / 4>(address);

	UNROLL
	for (int i = 0; i < BYTES / (int)sizeof(ELEMENT); i++)
		to[i] = valid ? source[i * stride] : (ELEMENT)0;
#endif
}

/* A thread's pieces of COUNT elements of a row, each PIECE bytes long. The n-th of all threads lie side by side. */
template <int COUNT> struct pieces {
	static constexpr int BYTES = COUNT * (int)sizeof(ELEMENT);
	static constexpr int PIECE = BYTES < 16 ? BYTES : 16;

	static __device__ __forceinline__ void copy(unsigned address, const struct device_tensor &tensor,
		const ELEMENT *row, int number, int lane, bool valid)
	{
		UNROLL
		for (int n = 0; n < BYTES / PIECE; n++)
			copy_piece<PIECE>(address + ((number * (BYTES / PIECE) + n) * 32 + lane) * PIECE,
				row + n * (PIECE / (int)sizeof(ELEMENT)) * tensor.stride[3], tensor.stride[3],
				valid);
	}

	static __device__ __forceinline__ void load(
		unsigned (&words)[BYTES / 4], unsigned address, int number, int lane)
	{
		UNROLL
		for (int n = 0; n < BYTES / PIECE; n++) {
			const struct line<PIECE / 4> piece = *line_at<PIECE / 4>(
				address + ((number * (BYTES / PIECE) + n) * 32 + lane) * PIECE);

			UNROLL
			for (int i = 0; i < PIECE / 4; i++)
				words[n * (PIECE / 4) + i] = piece.word[i];
		}
	}
};

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

static __device__ __forceinline__ const ELEMENT *row_of(
	const struct device_tensor &tensor, const struct place &place, long long token, int element)
{
	return (const ELEMENT *)tensor.data + row_offset(tensor, place.batch, token, place.head) +
		element * tensor.stride[3];
}

static __device__ __forceinline__ void copy_rows(const struct linear_arguments &a,
	const struct device_tensor &tensor, const struct place &place, long long token, unsigned address)
{
	UNROLL
	for (int n = 0; n < 2; n++) {
		const long long row = token + place.group_row + n * 8;
		const bool valid = row < a.tokens;

		pieces<LANE_KEYS>::copy(address, tensor,
			row_of(tensor, place, valid ? row : 0, place.pair / 2 * LANE_KEYS), n, place.lane,
			valid);
	}
}

static __device__ __forceinline__ void copy_columns(const struct linear_arguments &a,
	const struct device_tensor &tensor, const struct place &place, long long token, unsigned address)
{
	UNROLL
	for (int n = 0; n < 4; n++) {
		const long long row = token + column_row(place, n);
		const bool valid = row < a.tokens;

		pieces<LANE_VALUES>::copy(address, tensor,
			row_of(tensor, place, valid ? row : 0,
				place.first_value + place.group_row * LANE_VALUES),
			n, place.lane, valid);
	}
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

/* This row's number; 0 behind the end. */
static __device__ __forceinline__ float row_number(
	const struct linear_arguments &a, const float *numbers, const struct place &place, long long row)
{
	return row < a.tokens ? numbers[place.sequence * a.tokens + row * a.row_step] : 0.0f;
}

static __device__ __forceinline__ float reciprocal(float divisor)
{
	return fabsf(divisor) < SMALLEST_DIVISOR ? 0.0f : 1.0f / divisor;
}

/* Adds up what the four threads of a row have. */
static __device__ __forceinline__ float sum_of_row(float part)
{
	part += __shfl_xor_sync(~0u, part, 1);
	return part + __shfl_xor_sync(~0u, part, 2);
}

/* r and f of a chunk's rows, for the threads of the warp and for later; `o` and `d_o` are the rows' addresses. Warps
 * with other columns of the state write the same. */
static __device__ __forceinline__ void make_row_numbers(const struct linear_arguments &a,
	const struct place &place, long long token, unsigned d_o, unsigned o)
{
	UNROLL
	for (int n = 0; n < 2; n++) {
		const long long row = token + place.group_row + n * 8;
		const long long at = place.sequence * a.tokens + row * a.row_step;
		float scale = 1.0f, offset = 0.0f;

		if (NORMALISED) {
			unsigned words[2][pieces<LANE_KEYS>::BYTES / 4];

			pieces<LANE_KEYS>::load(words[0], d_o, n, place.lane);
			pieces<LANE_KEYS>::load(words[1], o, n, place.lane);
			UNROLL
			for (int i = 0; i < LANE_KEYS; i++)
				offset += word_element(words[0], i) * word_element(words[1], i);
			scale = reciprocal(row_number(a, a.divisors, place, row));
			offset = -scale * sum_of_row(offset);
		}
		if (place.pair == 0 && row < a.tokens) {
			a.scales[at] = scale;
			a.offsets[at] = offset;
		}
	}
	__syncwarp();
}

/* What rows are multiplied with; behind the end with zero. */
template <bool SCALED>
static __device__ __forceinline__ float row_scale(
	const struct linear_arguments &a, const struct place &place, long long row)
{
	return SCALED ? row_number(a, a.scales, place, row) : row < a.tokens ? 1.0f : 0.0f;
}

/* `products`: of both rows with the thread's elements of `sum`; only if WITH_PRODUCTS. */
template <bool SCALED, bool WITH_PRODUCTS>
static __device__ __forceinline__ void load_factor(const struct linear_arguments &a, struct rows &rows,
	const struct place &place, long long token, unsigned address, const float *sum, float (&products)[2])
{
	UNROLL
	for (int n = 0; n < 2; n++) {
		const float scale = row_scale<SCALED>(a, place, token + place.group_row + n * 8);
		unsigned words[pieces<LANE_KEYS>::BYTES / 4];
		float x[LANE_KEYS];

		pieces<LANE_KEYS>::load(words, address, n, place.lane);
		products[n] = 0.0f;
		UNROLL
		for (int i = 0; i < LANE_KEYS; i++) {
			x[i] = scale * feature<KEY_FEATURE>(word_element(words, i));
			if (WITH_PRODUCTS)
				products[n] += x[i] * sum[i];
		}
		UNROLL
		for (int k = 0; k < KEY_K; k++) {
			UNROLL
			for (int half = 0; half < 2; half++) {
				unsigned pair[PLANES];

				split_bf16<PLANES>(pair, x[2 * k + half], x[KEY_N + 2 * k + half]);
				UNROLL
				for (int p = 0; p < PLANES; p++)
					rows.at[p][k][2 * half + n] = pair[p];
			}
		}
	}
}

static __device__ __forceinline__ void load_weights(const struct linear_arguments &a, struct columns &columns,
	const struct place &place, long long token, unsigned address)
{
	unsigned words[4][pieces<LANE_VALUES>::BYTES / 4];

	UNROLL
	for (int n = 0; n < 4; n++)
		pieces<LANE_VALUES>::load(words[n], address, n, place.lane);
#if INPUT == INPUT_BF16 && PASS == PASS_FORWARD /* as they are */
	UNROLL
	for (int m = 0; m < VALUE_M; m++) {
		UNROLL
		for (int i = 0; i < 4; i++)
			columns.at[0][m][i] = __byte_perm(
				words[i / 2 * 2][m], words[i / 2 * 2 + 1][m], i % 2 ? 0x7632 : 0x5410);
	}
#else
	float scale[4];

	UNROLL
	for (int n = 0; n < 4; n++)
		scale[n] = row_scale<PASS == PASS_DV>(a, place, token + column_row(place, n));
	UNROLL
	for (int m = 0; m < VALUE_M; m++) {
		UNROLL
		for (int i = 0; i < 4; i++) {
			const int n = i / 2 * 2, element = 2 * m + i % 2;
			unsigned pair[PLANES];

			split_bf16<PLANES>(pair,
				scale[n] * feature<VALUE_FEATURE>(word_element(words[n], element)),
				scale[n + 1] * feature<VALUE_FEATURE>(word_element(words[n + 1], element)));
			UNROLL
			for (int p = 0; p < PLANES; p++)
				columns.at[p][m][i] = pair[p];
		}
	}
#endif
}

/* --- the state --------------------------------------------------------------------------------------------- */

/* matrix[m][n][i] of thread 4g + t is S's element of key (2t + i % 2) K/8 + n and value
 * g VALUE_TILE/8 + 2m + i / 2. `sum` forward: Σ y, this thread's elements of it, as of x; where x and y have
 * an element more: Σ of y's times w, by values. */
struct state {
	float matrix[VALUE_M][KEY_N][4];
	float sum[AUGMENTED ? LANE_VALUES : LANE_KEYS];
};

/* Calls work(number in a record, register) for each number of the thread's. */
template <typename WORK>
static __device__ __forceinline__ void each_number(struct state &state, const struct place &place, WORK work)
{
	UNROLL
	for (int n = 0; n < KEY_N; n++) {
		UNROLL
		for (int i = 0; i < 2; i++) {
			const int row = ((place.pair + i) * KEY_N + n) * VALUE_DIM + place.first_value +
				place.group_row * LANE_VALUES;

			UNROLL
			for (int value = 0; value < LANE_VALUES; value++)
				work(row + value, state.matrix[value / 2][n][value % 2 * 2 + i]);
		}
	}
	UNROLL
	for (int i = 0; i < (AUGMENTED ? LANE_VALUES : LANE_KEYS); i++)
		work(KEY_DIM * VALUE_DIM +
				(AUGMENTED ? place.first_value + place.group_row * LANE_VALUES
					   : place.pair / 2 * LANE_KEYS) +
				i,
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
static __device__ __forceinline__ float extra_of_x(
	const struct linear_arguments &a, const struct place &place, long long row)
{
	return PASS == PASS_DQ ? row_number(a, a.offsets, place, row) : 1.0f;
}

static __device__ __forceinline__ float extra_of_y(
	const struct linear_arguments &a, const struct place &place, long long row)
{
	return PASS == PASS_DK ? row_number(a, a.offsets, place, row) : row < a.tokens ? 1.0f : 0.0f;
}

/* S += Yᵀ W, and the sum; `y` is used up. */
static __device__ __forceinline__ void update(const struct linear_arguments &a, struct state &state,
	const struct place &place, long long token, struct rows &y, const struct columns &w)
{
	const unsigned ones[1][4] = {{0x3f803f80u, 0x3f803f80u, 0x3f803f80u, 0x3f803f80u}};

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
				multiply_add(rows, ones[0], b[0][p], b[1][p]);
			state.sum[n] += rows[0];
			state.sum[KEY_N + n] += rows[1];
		}
	}
	if constexpr (AUGMENTED) { /* every column of the product is W's rows, weighted and added */
		unsigned b[2][PLANES];

		UNROLL
		for (int half = 0; half < 2; half++)
			split_bf16<PLANES>(b[half], extra_of_y(a, place, token + column_row(place, half * 2)),
				extra_of_y(a, place, token + column_row(place, half * 2 + 1)));
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
static __device__ __forceinline__ void make_scores(const struct linear_arguments &a, struct place place,
	long long token, const struct rows &x, const struct rows &y, unsigned (&scores)[PLANES][1][4],
	float (&sums)[2])
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
				c[n][i] += extra_of_x(a, place, token + row) *
					extra_of_y(a, place, token + column);
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
	float divisor[2] = {1.0f, 1.0f};

	UNROLL
	for (int n = 0; n < 2; n++) {
		const long long row = token + place.group_row + n * 8;

		if (NORMALISED)
			divisor[n] = sum_of_row(parts[n]);
		if (a.divisors && place.pair == 0 && place.first_value == 0 && row < a.tokens)
			a.divisors[place.sequence * a.tokens + row] = divisor[n];
	}
	UNROLL
	for (int n = 0; n < 4; n++) {
		const float d = __shfl_sync(~0u, divisor[n / 2], (place.pair + n % 2) * 4);

		factors[n] = NORMALISED ? reciprocal(d) : 1.0f;
	}
}

/* Stores a thread's elements of a row. */
static __device__ __forceinline__ void store_row(
	ELEMENT *row, long long stride, const float (&values)[LANE_VALUES])
{
#if VECTOR
	const int count = pieces<LANE_VALUES>::PIECE / 4;

	UNROLL
	for (int n = 0; n < pieces<LANE_VALUES>::BYTES / pieces<LANE_VALUES>::PIECE; n++) {
		struct line<count> piece;

		UNROLL
		for (int i = 0; i < count; i++)
#if INPUT == INPUT_F32
			piece.word[i] = __float_as_uint(values[n * count + i]);
#else
			piece.word[i] = element_pair(
				values[(n * count + i) * 2], values[(n * count + i) * 2 + 1]);
#endif
		((struct line<count> *)row)[n] = piece;
	}
#else
	UNROLL
	for (int i = 0; i < LANE_VALUES; i++)
		row[i * stride] = float_element(values[i]);
#endif
}

static __device__ __forceinline__ void store_out(const struct linear_arguments &a, const struct place &place,
	long long token, unsigned derivatives, const float (&out)[4][LANE_VALUES])
{
	UNROLL
	for (int n = 0; n < 4; n++) {
		const long long row = token + column_row(place, n);
		unsigned words[pieces<LANE_VALUES>::BYTES / 4];
		float values[LANE_VALUES];

		if (AUGMENTED)
			pieces<LANE_VALUES>::load(words, derivatives, n, place.lane);
		UNROLL
		for (int i = 0; i < LANE_VALUES; i++)
			values[i] = out[n][i] *
				(AUGMENTED ? feature_derivative<FEATURE>(word_element(words, i)) : 1.0f);
		if (row < a.tokens)
			store_row((ELEMENT *)row_of(a.out, place, row,
					  place.first_value + place.group_row * LANE_VALUES),
				a.out.stride[3], values);
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
 * w, then o, where r and f are made. */
template <bool OUTPUT> struct stage {
	static constexpr bool UPDATES = !OUTPUT || CAUSAL;
	static constexpr int BYTES = OUTPUT ? LINEAR_OUTPUT_STAGE(INPUT, KEY_DIM, VALUE_TILE, CAUSAL, PASS)
					    : LINEAR_SUM_STAGE(INPUT, KEY_DIM, VALUE_TILE, PASS, NORMALISED);
	static constexpr int Y = OUTPUT ? ROWS_BYTES : 0, W = Y + ROWS_BYTES,
			     AT = UPDATES ? W + COLUMNS_BYTES : ROWS_BYTES, O = AT;

	static __device__ __forceinline__ void copy(
		const struct linear_arguments &a, const struct place &place, int chunk, unsigned address)
	{
		const long long token = (long long)chunk * LINEAR_CHUNK;

		if (OUTPUT)
			copy_rows(a, a.x, place, token, address);
		if (UPDATES) {
			copy_rows(a, a.y, place, token, address + Y);
			copy_columns(a, a.w, place, token, address + W);
		}
		if (OUTPUT && AUGMENTED)
			copy_columns(a, a.at, place, token, address + AT);
		if (!OUTPUT && PASS == PASS_DK && NORMALISED)
			copy_rows(a, a.o, place, token, address + O);
	}
};

template <bool OUTPUT>
static __device__ __forceinline__ void step(const struct linear_arguments &a, struct state &state,
	const struct place &place, long long token, unsigned address)
{
	float parts[2];
	struct rows y;
	struct columns w;

	if (!OUTPUT && PASS == PASS_DK)
		make_row_numbers(a, place, token, address + stage<OUTPUT>::Y, address + stage<OUTPUT>::O);
	if (stage<OUTPUT>::UPDATES) {
		load_factor<PASS == PASS_DK, false>(
			a, y, place, token, address + stage<OUTPUT>::Y, NULL, parts);
		load_weights(a, w, place, token, address + stage<OUTPUT>::W);
	}
	if constexpr (OUTPUT) {
		float out[4][LANE_VALUES], factors[4];
		unsigned scores[PLANES][1][4];
		struct rows x;

		load_factor<PASS == PASS_DQ, PASS == PASS_FORWARD && NORMALISED>(
			a, x, place, token, address, state.sum, parts);
		if (CAUSAL)
			make_scores(a, place, token, x, y, scores, parts);
		attend(state, x, scores, w, out);
		if (PASS == PASS_FORWARD)
			make_factors(a, place, token, parts, factors);
		UNROLL
		for (int n = 0; n < 4; n++) {
			const float extra = AUGMENTED ? extra_of_x(a, place, token + column_row(place, n))
						      : 0.0f;

			UNROLL
			for (int i = 0; i < LANE_VALUES; i++) {
				if (AUGMENTED)
					out[n][i] += extra * state.sum[i];
				if (PASS == PASS_FORWARD)
					out[n][i] *= factors[n];
			}
		}
		store_out(a, place, token, address + stage<OUTPUT>::AT, out);
	}
	if (stage<OUTPUT>::UPDATES)
		update(a, state, place, token, y, w);
}

/* Goes through the chunks of a group. */
template <bool OUTPUT>
static __device__ __forceinline__ void walk(
	const struct linear_arguments &a, struct state &state, const struct place &place)
{
	const int bytes = stage<OUTPUT>::BYTES, ahead = (NUM_STAGES - 1) * place.step;
	const unsigned own = shared_memory() + place.warp * NUM_STAGES * bytes;
	int slot = 0;

	for (int i = 0; i < NUM_STAGES - 1; i++) {
		if (place.first + i * place.step < place.end)
			stage<OUTPUT>::copy(a, place, place.first + i * place.step, own + i * bytes);
		copy_async_commit();
	}
	for (int chunk = place.first; chunk < place.end; chunk += place.step) {
		const int free = slot == 0 ? NUM_STAGES - 1 : slot - 1;

		copy_async_wait_group<NUM_STAGES - 2>();
		if (chunk + ahead < place.end)
			stage<OUTPUT>::copy(a, place, chunk + ahead, own + free * bytes);
		copy_async_commit();
		step<OUTPUT>(a, state, place, (long long)chunk * LINEAR_CHUNK, own + slot * bytes);
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
