/* result: what becomes of the numbers of a product. */
#pragma once

#include "model/activation.cuh"

/* Where the two halves of a pair of a head turn to, at a row's position. */
static __device__ __forceinline__ void turn(
	const struct model_step_arguments &a, int row, int index, float &low, float &high)
{
	const float2 angle = __ldcg((const float2 *)a.angles + row * (HEAD_DIM / 2) + index);
	const float x = low;

	low = x * angle.x - high * angle.y;
	high = high * angle.x + x * angle.y;
}

/* Puts a pair where attention looks for it: a query's to the others of the step, a key's or value's to the session. */
static __device__ __forceinline__ void put(
	const struct model_step_arguments &a, int layer, int row, int head, int index, float low, float high)
{
	float *to = head < a.heads ? a.heads_at + (row * (a.heads + a.kv_heads) + head) * HEAD_DIM
				   : cached(a, layer, row, head - a.heads, a.rows[row].position);

	to[index] = low;
	to[index + HEAD_DIM / 2] = high;
}

static __device__ __forceinline__ void finish_heads(
	const struct model_step_arguments &a, int layer, int row, int first, float low, float high)
{
	const int head = first / HEAD_DIM, index = first % HEAD_DIM;

	if (head < a.heads + a.kv_heads) {
#if HEAD_NORMS
		float *to = a.heads_at + (row * (a.heads + a.kv_heads) + head) * HEAD_DIM + index;

		to[0] = low, to[HEAD_DIM / 2] = high;
		return;
#else
		turn(a, row, index, low, high);
#endif
	}
	put(a, layer, row, head, index, low, high);
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
		if (threadIdx.x % 32 < 4)
			atomicMax(best + threadIdx.x % 4 * 2 + i, ranks[i]);
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
		if (threadIdx.x % 32 < 4)
			a.squares[tile * MODEL_ROWS + first_token + threadIdx.x % 4 * 2 + i] = squares[i];
	}
}

/* Of a tile and eight tokens: c[0] and c[1] are the low row's of two tokens, c[2] and c[3] the high one's. */
static __device__ __forceinline__ void finish(const struct model_step_arguments &a, const struct part &part,
	int tile, int first_token, const float4 &sums, struct product_memory &shared)
{
	const int lane = threadIdx.x % 32;
	const struct tile_rows rows = rows_of(part, tile, lane);
	const bool two = !part.of.half && rows.high < part.of.rows;
	const float *bias = of_layer(a, part.of.bias, part.layer), c[4] = {sums.x, sums.y, sums.z, sums.w};
	unsigned long long ranks[2] = {};
	float squares[2] = {};

#pragma unroll
	for (int i = 0; i < 2; i++) {
		const int token = first_token + lane % 4 * 2 + i;
		float low = c[i] * REDUCTION, high = c[2 + i] * REDUCTION;

		if (!rows.there || token >= part.tokens)
			continue;
		low += bias ? bias[rows.low] : 0;
		high += bias && two ? bias[rows.high] : 0;
		if (part.product == QKV) {
			finish_heads(a, part.layer, token, rows.low, low, high);
		} else if (part.product == GATE_UP) {
			a.activated[token * a.intermediate + rows.low] = low / (1 + expf(-low)) * high;
		} else if (part.product == LOGITS) {
			float *logits = a.outputs[token].logits;

			ranks[i] = rank_of(low, rows.low);
			if (two)
				ranks[i] = max(ranks[i], rank_of(high, rows.high));
			if (logits)
				logits[rows.low] = low;
			if (logits && two)
				logits[rows.high] = high;
		} else {
			float *x = a.x + token * a.hidden;

			low += __ldcg(x + rows.low);
			x[rows.low] = low;
			squares[i] = low * low;
			if (two) {
				high += __ldcg(x + rows.high);
				x[rows.high] = high;
				squares[i] += high * high;
			}
		}
	}
	if (part.product == LOGITS)
		note_best(ranks, shared.best + first_token);
	if (part.product == OUTPUT || part.product == DOWN)
		note_squares(a, tile, first_token, squares);
}
