/* activation: what goes into a product, in shared memory, in the order that lanes need it. An fp32 activation is the sum
 * of PLANES 16-bit numbers: that keeps 16 bits of it with bf16 weights, 22 with fp16 (but for tiny numbers), and 24 with
 * fp32. */
#pragma once

#include "common/element.cuh"
#include "common/tile.cuh"
#include "model/attention.cuh"
#include "model/plan.cuh"

#define PLANES MODEL_PLANES(INPUT)

/* fp16 has little room above: activations are made smaller, and sums larger again. */
#define REDUCTION (INPUT == INPUT_F16 ? 32.0f : 1.0f)

struct product_memory {
	float4 sums[MODEL_WARPS][TILES][32]; /* of each warp, in its registers' order */
	unsigned long long best[TILES * 8];  /* of each token, in this block's rows; see MODEL_TOKEN */
	float scales[TILES * 8];             /* of each token's norm */
	uint4 staged[STAGE][TILES][PLANES][32];
};
static_assert(
	sizeof(struct product_memory) == MODEL_PRODUCT_BYTES(TILES, STAGE, INPUT), "as the host counts");

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

/* 1 / √(mean of x² + ε), of every token, a warp each. */
static __device__ __forceinline__ void measure(
	const struct model_step_arguments &a, const struct part &part, struct product_memory &shared)
{
	for (int token = threadIdx.x / 32; token < part.tokens; token += MODEL_WARPS) {
		const int row = part.product == LOGITS ? a.outputs[token].row : token;
		float squares = 0;

#pragma unroll 4
		for (int i = threadIdx.x % 32; i < a.products[DOWN].tiles; i += 32)
			squares += __ldcg(a.squares + i * MODEL_ROWS + row);
		for (int other = 16; other; other /= 2)
			squares += __shfl_xor_sync(~0u, squares, other);
		if (threadIdx.x % 32 == 0)
			shared.scales[token] = 1 / sqrtf(squares / a.hidden + a.epsilon);
	}
}

enum source {
	NORMALISED, /* x */
	ATTENDED,
	ACTIVATED,
};

/* Four numbers of what a product takes in, but for its norm. */
template <enum source SOURCE>
static __device__ __forceinline__ float4 activation(
	const struct model_step_arguments &a, const struct part &part, int token, int column)
{
	if (SOURCE == ATTENDED)
		return attended(a, token, column);
	if (SOURCE == ACTIVATED)
		return __ldcg((const float4 *)(a.activated + token * a.intermediate + column));
	return __ldcg((const float4 *)(a.x +
		(part.product == LOGITS ? a.outputs[token].row : token) * a.hidden + column));
}

/* `count` slices, from slice `first` on, into shared memory; zeros where there is no column. Where there is no token,
 * nothing: its products are dropped. Eight columns of a token at a time are a lane's share of a slice. AT_ONCE: what a
 * thread reads before it goes on with it. */
template <enum source SOURCE, int AT_ONCE>
static __device__ __forceinline__ void stage_from(const struct model_step_arguments &a, const struct part &part,
	struct product_memory &shared, int first, int count)
{
	const float *norm = of_layer(a, part.of.norm, part.layer);
	const unsigned quarters = count * 4, items = quarters * part.tokens;
	bool measured = SOURCE != NORMALISED;

	for (unsigned item = threadIdx.x; item - threadIdx.x < items; item += AT_ONCE * MODEL_THREADS) {
		float4 x[AT_ONCE][2];

#pragma unroll
		for (int i = 0; i < AT_ONCE; i++) {
			const unsigned at = item + i * MODEL_THREADS, token = at / quarters;
			const int column = first * MODEL_SLICE + at % quarters * 8;

#pragma unroll
			for (int half = 0; half < 2; half++)
				x[i][half] = at < items && column + half * 4 < part.of.columns
					? activation<SOURCE>(a, part, token, column + half * 4)
					: make_float4(0, 0, 0, 0);
		}
		if (!measured) {
			measure(a, part, shared);
			__syncthreads();
			measured = true;
		}
#pragma unroll
		for (int i = 0; i < AT_ONCE; i++) {
			const unsigned at = item + i * MODEL_THREADS, token = at / quarters, quarter = at % quarters;
			unsigned pairs[4][PLANES];

			if (at >= items)
				break;
#pragma unroll
			for (int half = 0; half < 2; half++) {
				const int column = first * MODEL_SLICE + quarter * 8 + half * 4;
				float4 four = x[i][half];

				if (SOURCE == NORMALISED && column < part.of.columns) {
					const float4 weight = *(const float4 *)(norm + column);
					const float scale = shared.scales[token];

					four = make_float4(four.x * scale * weight.x, four.y * scale * weight.y,
						four.z * scale * weight.z, four.w * scale * weight.w);
				}
				split_pair(pairs[half * 2], four.x / REDUCTION, four.y / REDUCTION);
				split_pair(pairs[half * 2 + 1], four.z / REDUCTION, four.w / REDUCTION);
			}
#pragma unroll
			for (int p = 0; p < PLANES; p++)
				shared.staged[quarter / 4][token / 8][p][token % 8 * 4 + quarter % 4] = make_uint4(
					pairs[0][p], pairs[1][p], pairs[2][p], pairs[3][p]);
		}
	}
}

static __device__ __forceinline__ void stage(const struct model_step_arguments &a, const struct part &part,
	struct product_memory &shared, int first, int count)
{
	if (part.product == OUTPUT)
		stage_from<ATTENDED, 1>(a, part, shared, first, count);
	else if (part.product == DOWN)
		stage_from<ACTIVATED, 2>(a, part, shared, first, count);
	else
		stage_from<NORMALISED, TILES == 1 ? 1 : 2>(a, part, shared, first, count);
}
