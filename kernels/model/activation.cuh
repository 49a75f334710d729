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

/* NULL: what comes in is not normalised. */
static __device__ __forceinline__ const float *norm_of(
	const struct model_step_arguments &a, const struct plan &plan)
{
	switch (plan.part.product) {
	case QKV:
		return a.layers[plan.part.layer].attention_norm;
	case GATE_UP:
		return a.layers[plan.part.layer].mlp_norm;
	case LOGITS:
		return a.norm;
	default:
		return NULL;
	}
}

/* 1 / √(mean of x² + ε), of every token, a warp each. */
static __device__ __forceinline__ void measure(
	const struct model_step_arguments &a, const struct plan &plan, struct product_memory &shared)
{
	for (int token = threadIdx.x / 32; token < plan.tokens; token += MODEL_WARPS) {
		const int row = plan.part.product == LOGITS ? a.outputs[token].row : token;
		float squares = 0;

		for (int i = threadIdx.x % 32; i < a.hidden / 4; i += 32) {
			const float4 four = __ldcg((const float4 *)(a.x + row * a.hidden) + i);

			squares += dot(four, four);
		}
		for (int other = 16; other; other /= 2)
			squares += __shfl_xor_sync(~0u, squares, other);
		if (threadIdx.x % 32 == 0)
			shared.scales[token] = 1 / sqrtf(squares / a.hidden + a.epsilon);
	}
}

/* Four numbers of what a product takes in. */
static __device__ __forceinline__ float4 activation(const struct model_step_arguments &a,
	const struct plan &plan, const float *norm, const struct product_memory &shared, int token,
	int column)
{
	const int row = plan.part.product == LOGITS ? a.outputs[token].row : token;
	float4 x, weight;
	float scale;

	if (plan.part.product == OUTPUT)
		return attended(a, row, column);
	if (plan.part.product == DOWN)
		return __ldcg((const float4 *)(a.activated + row * a.intermediate + column));
	x = __ldcg((const float4 *)(a.x + row * a.hidden + column));
	weight = *(const float4 *)(norm + column);
	scale = shared.scales[token];
	return make_float4(x.x * scale * weight.x, x.y * scale * weight.y, x.z * scale * weight.z,
		x.w * scale * weight.w);
}

/* `count` slices, from slice `first` on, into shared memory; zeros where there is no column or token. */
static __device__ __forceinline__ void stage(const struct model_step_arguments &a, const struct plan &plan,
	struct product_memory &shared, int first, int count)
{
	const float *norm = norm_of(a, plan);
	const int lane = threadIdx.x % 32, tiles = divide_up(plan.tokens, 8);

	for (int item = threadIdx.x / 32; item < count * tiles; item += MODEL_WARPS) {
		const int slice = item / tiles, tile = item % tiles, token = tile * 8 + lane / 4;
		unsigned pairs[4][PLANES];

#pragma unroll
		for (int half = 0; half < 2; half++) {
			const int column = (first + slice) * MODEL_SLICE + lane % 4 * 8 + half * 4;
			float4 x = make_float4(0, 0, 0, 0);

			if (token < plan.tokens && column < plan.matrix.columns)
				x = activation(a, plan, norm, shared, token, column);
			split_pair(pairs[half * 2], x.x / REDUCTION, x.y / REDUCTION);
			split_pair(pairs[half * 2 + 1], x.z / REDUCTION, x.w / REDUCTION);
		}
#pragma unroll
		for (int p = 0; p < PLANES; p++)
			shared.staged[slice][tile][p][lane] = make_uint4(
				pairs[0][p], pairs[1][p], pairs[2][p], pairs[3][p]);
	}
}
