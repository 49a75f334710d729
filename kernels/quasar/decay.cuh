/* decay: what gates leave of a state, and of the products of a chunk's rows.
 *
 * Each warp holds Σ log₂ g of a chunk's tokens, from the first one to each: lane l that of the tokens 2l and 2l + 1. All
 * lanes of a warp call these functions together. Matrices are the results of products (common/tile.cuh). */
#pragma once

#include "common/tile.cuh"

#define LEAST_LOG2_GATE -150.0f /* 2 to this is 0 */

struct decay {
	float sum[2], total;
};

static __device__ __forceinline__ float power_of_two(float x)
{
	float power;

	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
	return power;
}

/* log₂ g from log g; a NaN stays one. */
static __device__ __forceinline__ float log2_gate(float log_gate)
{
	const float x = log_gate * 1.44269504f;

	return x < LEAST_LOG2_GATE ? LEAST_LOG2_GATE : x;
}

/* From log₂ g of this lane's two tokens. */
static __device__ __forceinline__ struct decay decay_of(const float (&gate)[2])
{
	const int lane = threadIdx.x & 31;
	float sum = gate[0] + gate[1], before;

	UNROLL
	for (int distance = 1; distance < 32; distance *= 2) {
		const float other = __shfl_up_sync(~0u, sum, distance);

		sum += lane < distance ? 0.0f : other;
	}
	before = __shfl_up_sync(~0u, sum, 1);
	return {{(lane ? before : 0.0f) + gate[0], sum}, __shfl_sync(~0u, sum, 31)};
}

/* The sums at two neighbouring tokens, the first one of an even number. */
static __device__ __forceinline__ float2 decay_at(const struct decay &decay, int token)
{
	return make_float2(
		__shfl_sync(~0u, decay.sum[0], token / 2), __shfl_sync(~0u, decay.sum[1], token / 2));
}

/* Products of rows 16 row … 16 row + 15 with those from 8 first on decay by the gates between them. What lies above the
 * diagonal then has no meaning. */
template <int N>
static __device__ __forceinline__ void decay_products(
	float (&c)[N][4], const struct decay &decay, int row, int first)
{
	const int lane = threadIdx.x & 31, group = lane >> 2, pair = (lane & 3) * 2;
	float at[2];

	UNROLL
	for (int half = 0; half < 2; half++) {
		const float2 sums = decay_at(decay, (row * 16 + group + half * 8) & ~1);

		at[half] = group & 1 ? sums.y : sums.x;
	}
	UNROLL
	for (int n = 0; n < N; n++) {
		const float2 from = decay_at(decay, (first + n) * 8 + pair);

		UNROLL
		for (int half = 0; half < 2; half++) {
			c[n][half * 2] *= power_of_two(at[half] - from.x);
			c[n][half * 2 + 1] *= power_of_two(at[half] - from.y);
		}
	}
}

/* Columns, one for each token of the chunk, decay by the gates from the start to the token, its own among them
 * (SINCE_START), or by those behind it, to the chunk's end. */
template <bool SINCE_START, int N>
static __device__ __forceinline__ void decay_columns(float (&c)[N][4], const struct decay &decay)
{
	UNROLL
	for (int n = 0; n < N; n++) {
		const float2 sums = decay_at(decay, n * 8 + (threadIdx.x & 3) * 2);
		const float even = power_of_two(SINCE_START ? sums.x : decay.total - sums.x);
		const float odd = power_of_two(SINCE_START ? sums.y : decay.total - sums.y);

		c[n][0] *= even, c[n][1] *= odd;
		c[n][2] *= even, c[n][3] *= odd;
	}
}

/* A state decays by all gates of the chunk. */
template <int N>
static __device__ __forceinline__ void decay_whole(float (&c)[N][4], const struct decay &decay)
{
	const float all = power_of_two(decay.total);

	UNROLL
	for (int n = 0; n < N; n++) {
		UNROLL
		for (int i = 0; i < 4; i++)
			c[n][i] *= all;
	}
}
