/* result: what becomes of the numbers of a product. */
#pragma once

#include "model/activation.cuh"

static __device__ __forceinline__ void turn_by(float2 angle, float &low, float &high)
{
	const float x = low;

	low = x * angle.x - high * angle.y;
	high = high * angle.x + x * angle.y;
}

/* Where the two halves of a pair of a head turn to, at a row's position. */
static __device__ __forceinline__ void turn(
	const struct model_step_arguments &a, int row, int index, float &low, float &high)
{
	turn_by(__ldcg((const float2 *)a.angles + row * (HEAD_DIM / 2) + index), low, high);
}

/* Puts a pair where attention looks for it: a query's to the others of the step, a key's or value's to the session. */
static __device__ __forceinline__ void put(
	const struct model_step_arguments &a, int layer, int row, int head, int index, float low, float high)
{
	float *to = head < HEADS ? a.heads_at + (row * (HEADS + KV_HEADS) + head) * HEAD_DIM
				 : cached(a, layer, row, head - HEADS, a.rows[row].position);

	to[index] = low;
	to[index + HEAD_DIM / 2] = high;
}

static __device__ __forceinline__ void finish_heads(
	const struct model_step_arguments &a, int layer, int row, int first, float low, float high)
{
	const int head = first / HEAD_DIM, index = first % HEAD_DIM;

	if (head < HEADS + KV_HEADS) {
#if HEAD_NORMS
		float *to = a.heads_at + (row * (HEADS + KV_HEADS) + head) * HEAD_DIM + index;

		to[0] = low, to[HEAD_DIM / 2] = high;
		return;
#else
		turn(a, row, index, low, high);
#endif
	}
	put(a, layer, row, head, index, low, high);
}

static __device__ __forceinline__ float activate(float gate, float up)
{
	return __fdividef(gate, 1 + __expf(-gate)) * up;
}

static __device__ __forceinline__ void finish_activated(
	const struct model_step_arguments &a, int row, int column, float gate, float up)
{
	const float x = activate(gate, up);

#if MADE_ONCE
	unsigned pair[PLANES];

	split_pair(pair, x / REDUCTION, 0);
#pragma unroll
	for (int p = 0; p < PLANES; p++)
		*place_of((struct staged_slice *)a.planes[1], row, column, p) = (unsigned short)pair[p];
#else
	a.activated[row * INTERMEDIATE + column] = x;
#endif
}

/* Largest first; among equals, the lowest token; before all, what is not finite. */
static __device__ __forceinline__ unsigned long long rank_of(float logit, int token)
{
	const unsigned bits = __float_as_uint(logit + 0.0f); /* −0 is 0 */
	const unsigned order = bits & 0x80000000u ? ~bits : bits | 0x80000000u;

	if ((bits & 0x7f800000u) == 0x7f800000u)
		return MODEL_NOT_FINITE;
	return (unsigned long long)order << 32 | (unsigned)~token;
}

/* The best of eight tokens' ranks in a tile: a lane has those of two. */
static __device__ __forceinline__ void note_best(unsigned long long (&ranks)[2], unsigned long long *best)
{
#pragma unroll
	for (int i = 0; i < 2; i++) {
		for (int other = 4; other < 32; other *= 2)
			ranks[i] = max(ranks[i], __shfl_xor_sync(~0u, ranks[i], other));
		if (THREAD % 32 < 4)
			atomicMax(best + THREAD % 4 * 2 + i, ranks[i]);
	}
}

/* The sum of squares of a tile, of eight tokens: a lane has those of two. */
static __device__ __forceinline__ void note_squares(
	const struct model_step_arguments &a, int tile, int first_token, float (&squares)[2])
{
#pragma unroll
	for (int i = 0; i < 2; i++) {
		for (int other = 4; other < 32; other *= 2)
			squares[i] += __shfl_xor_sync(~0u, squares[i], other);
		if (THREAD % 32 < 4)
			a.squares[tile * MODEL_ROWS + first_token + THREAD % 4 * 2 + i] = squares[i];
	}
}

/* Of a tile and eight tokens: sums.x and .y are the first row's of two tokens, .z and .w the other one's. */
template <int PRODUCT>
static __device__ __forceinline__ void finish(const struct model_step_arguments &a, int layer, int tokens,
	int tile, int first_token, const float4 &sums, struct product_memory &shared)
{
	constexpr struct sharing share = SHARE(PRODUCT);
	constexpr int apart = rows_apart<PRODUCT>();
	const int lane = THREAD % 32, row = row_of<PRODUCT>(tile, lane);
	const bool there = is_row<PRODUCT>(row),
		   other = there && !share.half &&
		(share.paired || share.rows % 16 == 0 || is_row<PRODUCT>(row + apart));
	const float *bias = of_layer(a, a.products[PRODUCT].bias, layer),
		    c[4] = {sums.x, sums.y, sums.z, sums.w};
	const float bias_low = bias && there ? bias[row] : 0,
		    bias_high = bias && other ? bias[row + apart] : 0;
	unsigned long long ranks[2] = {};
	float squares[2] = {};

#pragma unroll
	for (int i = 0; i < 2; i++) {
		const int token = first_token + lane % 4 * 2 + i;
		float low = c[i] * REDUCTION + bias_low, high = c[2 + i] * REDUCTION + bias_high;

		if (!there || token >= tokens)
			continue;
		if (PRODUCT == QKV) {
			finish_heads(a, layer, token, row, low, high);
		} else if (PRODUCT == GATE_UP) {
			finish_activated(a, token, row, low, high);
		} else if (PRODUCT == LOGITS) {
			float *logits = a.outputs[token].logits;

			ranks[i] = rank_of(low, row);
			if (other)
				ranks[i] = max(ranks[i], rank_of(high, row + apart));
			if (logits)
				logits[row] = low;
			if (logits && other)
				logits[row + apart] = high;
		} else {
			float *x = a.x + token * HIDDEN + row;

			low += __ldcg(x);
			x[0] = low;
			squares[i] = low * low;
			if (other) {
				high += __ldcg(x + apart);
				x[apart] = high;
				squares[i] += high * high;
			}
		}
	}
	if (PRODUCT == LOGITS)
		note_best(ranks, shared.best + first_token);
	if (PRODUCT == OUTPUT || PRODUCT == DOWN)
		note_squares(a, tile, first_token, squares);
}

#if STREAMED

/* What a lane adds to its two numbers of a single token's tile, or turns them by: asked for before it is needed. */
struct addend {
	float bias[2];
	float2 more; /* x; or how far a pair turns */
};

template <int PRODUCT>
static __device__ __forceinline__ struct addend addend_of(
	const struct model_step_arguments &a, int layer, int tile)
{
	constexpr struct sharing share = SHARE(PRODUCT);
	constexpr int apart = rows_apart<PRODUCT>();
	const int lane = THREAD % 32, row = row_of<PRODUCT>(tile, lane);
	const bool there = tile < share.tiles && lane % 4 == 0 && is_row<PRODUCT>(row),
		   other = there && !share.half &&
		(share.paired || share.rows % 16 == 0 || is_row<PRODUCT>(row + apart));
	const float *bias = of_layer(a, a.products[PRODUCT].bias, layer);
	struct addend addend = {};

	if (bias && there)
		addend.bias[0] = __ldg(bias + row);
	if (bias && other)
		addend.bias[1] = __ldg(bias + row + apart);
	if (PRODUCT == QKV && !HEAD_NORMS && there && row / HEAD_DIM < HEADS + KV_HEADS)
		addend.more = __ldcg((const float2 *)a.angles + row % HEAD_DIM);
	if ((PRODUCT == OUTPUT || PRODUCT == DOWN) && there)
		addend.more.x = __ldcg(a.x + row);
	if ((PRODUCT == OUTPUT || PRODUCT == DOWN) && other)
		addend.more.y = __ldcg(a.x + row + apart);
	return addend;
}

/* Sends eight columns of x, and their tile's squares, by a warp: column i is in lane first + i · apart. */
static __device__ __forceinline__ void send_octet(const struct model_step_arguments &a, int to, int octet,
	float x, int first, int apart, float squares, unsigned number)
{
	const int lane = THREAD % 32;
	float words[3];

#pragma unroll
	for (int i = 0; i < 3; i++)
		words[i] = __shfl_sync(~0u, x, first + (lane * 3 + i) % 8 * apart);
	if (lane == 2)
		words[2] = squares;
	if (lane < X_PARCELS)
		send(a, to + lane * OCTETS(HIDDEN) + octet, words[0], words[1], words[2], number);
}

/* Sends what a warp's tile has of x, in every fourth lane. */
template <int PRODUCT>
static __device__ __forceinline__ void send_x(
	const struct model_step_arguments &a, int layer, int tile, float low, float high, float squares)
{
	const int to = PRODUCT == DOWN ? NEXT_X_AT : X_AT, octet = tile * (SHARE(PRODUCT).half ? 1 : 2);
	const unsigned number = a.number + layer + (PRODUCT == DOWN);

	for (int other = 4; other < 32; other *= 2)
		squares += __shfl_xor_sync(~0u, squares, other);
	squares = __shfl_sync(~0u, squares, 0);
	send_octet(a, to, octet, low, 0, 4, squares, number);
	if (!SHARE(PRODUCT).half && octet + 1 < OCTETS(HIDDEN))
		send_octet(a, to, octet + 1, high, 0, 4, 0, number);
}

/* Sends eight columns of a warp's tile, in every fourth lane, as the planes of what comes next. */
static __device__ __forceinline__ void send_activated(
	const struct model_step_arguments &a, int layer, int tile, float x)
{
	const int lane = THREAD % 32;
	unsigned pairs[PLANES], words[3] = {};

	split_pair(pairs, __shfl_sync(~0u, x, lane % 4 * 8) / REDUCTION,
		__shfl_sync(~0u, x, lane % 4 * 8 + 4) / REDUCTION);
#pragma unroll
	for (int i = 0; i < 3; i++)
#pragma unroll
		for (int p = 0; p < PLANES; p++) {
			const unsigned word = __shfl_sync(~0u, pairs[p], (lane * 3 + i) % 4);

			if ((lane * 3 + i) / 4 == p)
				words[i] = word;
		}
	if (lane < PLANE_PARCELS)
		send(a, ACTIVATED_AT + lane * OCTETS(INTERMEDIATE) + tile, words[0], words[1], words[2],
			a.number + layer);
}

/* What becomes of a single token's numbers of a tile, which are in every fourth lane: the first row's and the other one's. */
template <int PRODUCT>
static __device__ __forceinline__ void finish_single(const struct model_step_arguments &a, int layer,
	int tile, float2 sums, const struct addend &addend, struct product_memory &shared)
{
	constexpr struct sharing share = SHARE(PRODUCT);
	constexpr int apart = rows_apart<PRODUCT>();
	const int lane = THREAD % 32, row = row_of<PRODUCT>(tile, lane);
	const bool there = lane % 4 == 0 && is_row<PRODUCT>(row),
		   other = there && !share.half &&
		(share.paired || share.rows % 16 == 0 || is_row<PRODUCT>(row + apart));
	float low = sums.x * REDUCTION + addend.bias[0], high = sums.y * REDUCTION + addend.bias[1];

	if (PRODUCT == QKV && !SENDS_HEADS) {
		if (there)
			finish_heads(a, layer, 0, row, low, high);
	} else if (PRODUCT == QKV) {
		const int head = row / HEAD_DIM, index = row % HEAD_DIM;

		if (head < HEADS + KV_HEADS)
			turn_by(addend.more, low, high);
		if (there)
			send(a, HEADS_AT + head * (HEAD_DIM / 2) + index, low, high, 0.0f, a.number + layer);
		if (there && head >= HEADS)
			put(a, layer, 0, head, index, low, high);
	} else if (PRODUCT == GATE_UP) {
		send_activated(a, layer, tile, there ? activate(low, high) : 0);
	} else if (PRODUCT == LOGITS) {
		unsigned long long ranks[2] = {};
		float *logits = a.outputs[0].logits;

		if (there)
			ranks[0] = rank_of(low, row);
		if (other)
			ranks[0] = max(ranks[0], rank_of(high, row + apart));
		if (logits && there)
			logits[row] = low;
		if (logits && other)
			logits[row + apart] = high;
		note_best(ranks, shared.best);
	} else {
		low = there ? low + addend.more.x : 0;
		high = other ? high + addend.more.y : 0;
		send_x<PRODUCT>(a, layer, tile, low, high, low * low + high * high);
		if (there)
			a.x[row] = low;
		if (other)
			a.x[row + apart] = high;
	}
}

#endif
