/* activation: what goes into a product, in the order that lanes need it. An fp32 activation is the sum of PLANES 16-bit
 * numbers: that keeps 16 bits of it with bf16 weights, 22 with fp16 (but for tiny numbers), and 24 with fp32.
 *
 * With few tokens every block makes them itself. With more they are made once, and blocks copy them. */
#pragma once

#include "common/element.cuh"
#include "common/tile.cuh"
#include "model/attention.cuh"
#include "model/parcel.cuh"
#include "model/plan.cuh"

#define PLANES MODEL_PLANES(INPUT)
#define MADE_ONCE (TILES > 1)

/* fp16 has little room above: activations are made smaller, and sums larger again. */
#define REDUCTION (INPUT == INPUT_F16 ? 32.0f : 1.0f)

/* A slice of the activations of eight tokens, times TILES. A lane has eight columns of a token. */
struct staged_slice {
	uint4 of[TILES][PLANES][MODEL_SLICE_LANES(TOKENS)];
};

struct product_memory {
	float4 sums[MODEL_WARPS][TILES][32]; /* of each warp, in its registers' order */
	unsigned long long best[TILES * 8];  /* of each token, in this block's rows; see MODEL_TOKEN */
	float scales[TILES * 8];             /* of each token's norm */
	struct staged_slice staged[STAGE];
};
static_assert(
	sizeof(struct product_memory) == MODEL_PRODUCT_BYTES(TOKENS, STAGE, INPUT), "as the host counts");

/* Two numbers as N pairs of 16-bit ones, whose sums they are. */
template <int N>
static __device__ __forceinline__ void split_pair(unsigned (&pairs)[N], float low, float high)
{
#pragma unroll
	for (int i = 0; i < N; i++) {
#if INPUT == INPUT_F16
		pairs[i] = element_pair(low, high);
		low -= element_float((ELEMENT)pairs[i]), high -= element_float((ELEMENT)(pairs[i] >> 16));
#else
		pairs[i] = pack_bf16(low, high);
		low -= bf16_low(pairs[i]), high -= bf16_high(pairs[i]);
#endif
	}
}

/* Eight columns of a token, which are quarter `quarter` of a slice. */
static __device__ __forceinline__ void put_quarter(
	struct staged_slice &slice, int token, int quarter, const float4 (&x)[2])
{
	unsigned pairs[4][PLANES];

#pragma unroll
	for (int half = 0; half < 2; half++) {
		split_pair(pairs[half * 2], x[half].x / REDUCTION, x[half].y / REDUCTION);
		split_pair(pairs[half * 2 + 1], x[half].z / REDUCTION, x[half].w / REDUCTION);
	}
#pragma unroll
	for (int p = 0; p < PLANES; p++)
		slice.of[token / 8][p][token % 8 * 4 + quarter] = make_uint4(
			pairs[0][p], pairs[1][p], pairs[2][p], pairs[3][p]);
}

/* Four columns of a single token, which are eighth `eighth` of a slice. */
static __device__ __forceinline__ void put_eighth(struct staged_slice &slice, int eighth, float4 x)
{
	unsigned low[PLANES], high[PLANES];

	split_pair(low, x.x / REDUCTION, x.y / REDUCTION);
	split_pair(high, x.z / REDUCTION, x.w / REDUCTION);
#pragma unroll
	for (int p = 0; p < PLANES; p++)
		((uint2 *)slice.of[0][p])[eighth] = make_uint2(low[p], high[p]);
}

/* Where a number is, of the planes. */
static __device__ __forceinline__ unsigned short *place_of(
	struct staged_slice *slices, int token, int column, int plane)
{
	return (unsigned short *)&slices[column / MODEL_SLICE]
		       .of[token / 8][plane][token % 8 * 4 + column % MODEL_SLICE / 8] +
		column % 8;
}

/* 1 / √(mean of x² + ε), by a warp whose lanes have parts of the sum. */
static __device__ __forceinline__ float scale_of_squares(const struct model_step_arguments &a, float squares)
{
#pragma unroll
	for (int other = 16; other; other /= 2)
		squares += __shfl_xor_sync(~0u, squares, other);
	return rsqrtf(squares * (1.0f / HIDDEN) + a.epsilon);
}

/* The same of sums that product BEFORE, or look_up(), has left. */
template <int BEFORE>
static __device__ __forceinline__ float scale_of(const struct model_step_arguments &a, int row)
{
	constexpr int tiles = SHARE(BEFORE).tiles;
	float squares = 0;

#pragma unroll
	for (int i = 0; i < tiles; i += 32)
		if (i + 32 <= tiles || i + THREAD % 32 < tiles)
			squares += __ldcg(a.squares + (i + THREAD % 32) * MODEL_ROWS + row);
	return scale_of_squares(a, squares);
}

template <int PRODUCT> static __device__ __forceinline__ constexpr int product_before(void)
{
	return PRODUCT == GATE_UP ? OUTPUT : DOWN;
}

template <int PRODUCT> static __device__ __forceinline__ constexpr bool is_normalised(void)
{
	return PRODUCT == QKV || PRODUCT == GATE_UP || PRODUCT == LOGITS;
}

/* Eight columns of what a product takes in, but for its norm; zeros where there is none. */
template <int PRODUCT>
static __device__ __forceinline__ void read_quarter(
	const struct model_step_arguments &a, int layer, int row, int column, float4 (&x)[2])
{
#pragma unroll
	for (int half = 0; half < 2; half++, column += 4) {
		x[half] = make_float4(0, 0, 0, 0);
		if (column >= SHARE(PRODUCT).columns)
			continue;
		if (PRODUCT == OUTPUT)
			x[half] = attended(a, layer, row, column);
		else if (PRODUCT == DOWN)
			x[half] = __ldcg((const float4 *)(a.activated + row * INTERMEDIATE + column));
		else
			x[half] = __ldcg((const float4 *)(a.x + row * HIDDEN + column));
	}
}

static __device__ __forceinline__ void read_norm(const float *norm, int column, float4 (&weights)[2])
{
#pragma unroll
	for (int half = 0; half < 2; half++, column += 4)
		weights[half] = column < HIDDEN ? *(const float4 *)(norm + column) : make_float4(0, 0, 0, 0);
}

static __device__ __forceinline__ void normalise(float4 (&x)[2], const float4 (&weights)[2], float scale)
{
#pragma unroll
	for (int half = 0; half < 2; half++) {
		x[half].x *= scale * weights[half].x, x[half].y *= scale * weights[half].y;
		x[half].z *= scale * weights[half].z, x[half].w *= scale * weights[half].w;
	}
}

template <int PRODUCT>
static __device__ __forceinline__ int row_of_token(const struct model_step_arguments &a, int token)
{
	return PRODUCT == LOGITS ? a.outputs[token].row : token;
}

#if MADE_ONCE

/* The planes of what a product takes in, by all blocks: a warp eight slices of a token. */
template <int PRODUCT>
static __device__ __forceinline__ void make_planes(
	const struct model_step_arguments &a, int layer, int tokens)
{
	constexpr int parts = divide_up(SHARE(PRODUCT).slices, 8);
	const float *norm = of_layer(a, a.products[PRODUCT].norm, layer);
	const int lane = THREAD % 32;

	for (int item = THREAD / 32 * BLOCKS + blockIdx.x; item < tokens * parts;
		item += BLOCKS * MODEL_WARPS) {
		const int token = item / parts, row = row_of_token<PRODUCT>(a, token);
		const int slice = item % parts * 8 + lane / 4, column = slice * MODEL_SLICE + lane % 4 * 8;
		float4 x[2], weights[2];

		read_quarter<PRODUCT>(a, layer, row, column, x);
		if (is_normalised<PRODUCT>()) {
			read_norm(norm, column, weights);
			normalise(x, weights, scale_of<product_before<PRODUCT>()>(a, row));
		}
		if (slice < SHARE(PRODUCT).slices)
			put_quarter(((struct staged_slice *)a.planes[0])[slice], token, lane % 4, x);
	}
}

/* Slices `first` to `end` of this block's piece, into shared memory. */
template <int PRODUCT>
static __device__ __forceinline__ void stage(const struct model_step_arguments &a, int layer, int tokens,
	struct product_memory &shared, int first, int end)
{
	const uint4 *from = (const uint4 *)((const struct staged_slice *)a.planes[PRODUCT == DOWN] +
		piece_of_block<PRODUCT>() * SHARE(PRODUCT).piece + first);
	const unsigned to = (unsigned)__cvta_generic_to_shared(shared.staged);

#pragma unroll 4
	for (int i = THREAD; i < (end - first) * (int)(sizeof(struct staged_slice) / 16); i += MODEL_THREADS)
		copy_async(to + i * 16, from + i, true);
	copy_async_wait();
}

#elif STREAMED

/* The normalised x of a single token. */
template <int PRODUCT>
static __device__ __forceinline__ void stage_x(
	const struct model_step_arguments &a, int layer, unsigned number, struct product_memory &shared)
{
	constexpr struct sharing share = SHARE(PRODUCT);
	constexpr int quarters = share.slices * 4, octets = OCTETS(HIDDEN),
		      warps = min_of(divide_up(quarters, 32), MODEL_WARPS),
		      rounds = divide_up(quarters, warps * 32), tiles = SHARE(DOWN).tiles,
		      tile_octets = SHARE(DOWN).half ? 1 : 2;
	const float *norm = of_layer(a, a.products[PRODUCT].norm, layer);
	const int from = (PRODUCT == GATE_UP ? X_AT : NEXT_X_AT);
	float *squares_of = (float *)shared.sums, squares = 0;
	float4 weights[rounds][2], x[rounds][2];

	static_assert(tiles * sizeof(float) <= sizeof(shared.sums), "room for the squares of tiles");
	if (THREAD >= warps * 32)
		return;
#pragma unroll
	for (int i = 0; i < rounds; i++)
		read_norm(norm, (i * warps * 32 + THREAD) * 8, weights[i]);
#pragma unroll
	for (int i = 0; i < rounds; i++) {
		const int octet = i * warps * 32 + THREAD;
		uint4 parcels[X_PARCELS] = {};

		if (octet < octets) {
			receive(a, parcels, X_PARCELS, number,
				[=](int n) { return from + n * octets + octet; });
			if (octet % tile_octets == 0)
				squares_of[octet / tile_octets] = __uint_as_float(parcels[2].z);
		}
		x[i][0] = make_float4(__uint_as_float(parcels[0].x), __uint_as_float(parcels[0].y),
			__uint_as_float(parcels[0].z), __uint_as_float(parcels[1].x));
		x[i][1] = make_float4(__uint_as_float(parcels[1].y), __uint_as_float(parcels[1].z),
			__uint_as_float(parcels[2].x), __uint_as_float(parcels[2].y));
	}
	asm volatile("bar.sync 15, %0;" ::"n"(warps * 32) : "memory");
#pragma unroll
	for (int i = 0; i < tiles; i += 32)
		if (i + 32 <= tiles || i + THREAD % 32 < tiles)
			squares += squares_of[i + THREAD % 32];
	const float scale = scale_of_squares(a, squares);
#pragma unroll
	for (int i = 0; i < rounds; i++) {
		const int quarter = i * warps * 32 + THREAD;

		if (quarter >= quarters)
			continue;
		normalise(x[i], weights[i], scale);
		put_quarter(shared.staged[quarter / 4], 0, quarter % 4, x[i]);
	}
}

/* What a single token's GATE_UP has made: planes already. A thread looks for two octets at a time. */
static __device__ __forceinline__ void stage_activated(
	const struct model_step_arguments &a, unsigned number, struct product_memory &shared)
{
	constexpr int quarters = SHARE(DOWN).slices * 4, octets = OCTETS(INTERMEDIATE);

#pragma unroll 1
	for (int first = THREAD; first < quarters; first += 2 * MODEL_THREADS) {
		uint4 parcels[2 * PLANE_PARCELS] = {};

		const int wanted = first + MODEL_THREADS < octets ? 2 : first < octets;

		receive(a, parcels, wanted * PLANE_PARCELS, number, [=](int n) {
			return ACTIVATED_AT + n % PLANE_PARCELS * octets + n / PLANE_PARCELS * MODEL_THREADS +
				first;
		});
#pragma unroll
		for (int n = 0; n < 2; n++) {
			const int quarter = first + n * MODEL_THREADS;
			unsigned words[PLANE_PARCELS * 3];

			if (quarter >= quarters)
				break;
#pragma unroll
			for (int i = 0; i < PLANE_PARCELS; i++) {
				const uint4 parcel = parcels[n * PLANE_PARCELS + i];

				words[i * 3] = parcel.x, words[i * 3 + 1] = parcel.y,
					  words[i * 3 + 2] = parcel.z;
			}
#pragma unroll
			for (int p = 0; p < PLANES; p++)
				shared.staged[quarter / 4].of[0][p][quarter % 4] = make_uint4(
					words[p * 4], words[p * 4 + 1], words[p * 4 + 2], words[p * 4 + 3]);
		}
	}
}

/* What a single token's heads attended to. */
static __device__ __forceinline__ void stage_attended(
	const struct model_step_arguments &a, int layer, struct product_memory &shared)
{
	constexpr int eighths = SHARE(OUTPUT).slices * 8;

#pragma unroll 1
	for (int eighth = THREAD; eighth < eighths; eighth += MODEL_THREADS)
		put_eighth(shared.staged[eighth / 8], eighth % 8,
			eighth * 4 < HEADS * HEAD_DIM ? attended(a, layer, 0, eighth * 4)
						      : make_float4(0, 0, 0, 0));
}

/* What a product takes in, of a single token. */
template <int PRODUCT>
static __device__ __forceinline__ void stage(
	const struct model_step_arguments &a, int layer, struct product_memory &shared)
{
	if constexpr (PRODUCT == OUTPUT)
		stage_attended(a, layer, shared);
	else if constexpr (PRODUCT == DOWN)
		stage_activated(a, a.number + layer, shared);
	else
		stage_x<PRODUCT>(a, layer, a.number + (PRODUCT == LOGITS ? a.layer_count : layer), shared);
}

#else

/* Where there is no token, nothing is staged: its products are dropped. */
template <int PRODUCT>
static __device__ __forceinline__ void stage(const struct model_step_arguments &a, int layer, int tokens,
	struct product_memory &shared, int first, int end)
{
	const float *norm = of_layer(a, a.products[PRODUCT].norm, layer);
	const int quarters = (end - first) * 4;

	for (int item = THREAD; item - (int)THREAD < quarters * tokens; item += MODEL_THREADS) {
		const int token = item / quarters, quarter = item % quarters;
		const int column = first * MODEL_SLICE + quarter * 8;
		const bool there = item < quarters * tokens;
		float4 x[2], weights[2];

		if (there) {
			read_quarter<PRODUCT>(a, layer, row_of_token<PRODUCT>(a, token), column, x);
			if (is_normalised<PRODUCT>())
				read_norm(norm, column, weights);
		}
		if (is_normalised<PRODUCT>() && item == THREAD) {
			if (THREAD / 32 < tokens)
				shared.scales[THREAD / 32] = scale_of<product_before<PRODUCT>()>(
					a, row_of_token<PRODUCT>(a, THREAD / 32));
			meet_block();
		}
		if (!there)
			break;
		if (is_normalised<PRODUCT>())
			normalise(x, weights, shared.scales[token]);
		put_quarter(shared.staged[quarter / 4], token, quarter % 4, x);
	}
}

#endif
