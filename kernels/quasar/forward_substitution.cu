/* forward_substitution: inverses of many unit lower triangular matrices, fp32, [count, SIZE, SIZE].
 *
 * Only what lies below the diagonals is read; the diagonal counts as ones and the rest as zeros. The
 * inverse is written whole. Reading and writing bound it: the substitution is SIZE³ / 6 multiply-adds.
 *
 * A block inverts one matrix at a time. It brings the matrix to shared memory; thread c then solves for
 * column c, x_i = δ_ic − Σ_{k<i} L_ik x_k, with x in registers and all lanes reading the same L_ik, four
 * at once, and writes row by row, which the lanes of a warp do together. For 64 columns the second warp
 * skips what multiplies with its 32 leading zeros.
 *
 * Compile-time parameter: SIZE 16, 32 or 64. */
#include "common/launch.cuh"
#include "common/tile.cuh"
#include "quasar/arguments.h"
#include "quasar/layout.h"

#define THREADS SUBSTITUTION_THREADS(SIZE)
#define HALF (SIZE > 32 ? 32 : 0)

/* Σ L_ik x_k over first ≤ k < end; `first` is a multiple of 4. */
static __device__ __forceinline__ float dot(
	const float (&lower)[SIZE][SIZE], const float (&x)[SIZE], int i, int first, int end)
{
	float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};

	UNROLL
	for (int k = first; k < end; k += 4) {
		float4 l = *(const float4 *)&lower[i][k];

		sum[0] += l.x * x[k];
		if (k + 1 < end)
			sum[1] += l.y * x[k + 1];
		if (k + 2 < end)
			sum[2] += l.z * x[k + 2];
		if (k + 3 < end)
			sum[3] += l.w * x[k + 3];
	}
	return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

extern "C" __global__ void __launch_bounds__(THREADS)
	forward_substitution(const __grid_constant__ struct forward_substitution_arguments a)
{
	wait_for_launch_before();
	__shared__ __align__(16) float lower[SIZE][SIZE];
	const unsigned tile = (unsigned)__cvta_generic_to_shared(&lower[0][0]);
	const float *source = a.lower + (long long)blockIdx.x * SIZE * SIZE;
	float *target = a.inverse + (long long)blockIdx.x * SIZE * SIZE + threadIdx.x;
	const bool leading = threadIdx.x < 32;
	float x[SIZE];

	UNROLL
	for (int i = 0; i < SIZE * SIZE / 4 / THREADS; i++)
		copy_async(tile + (i * THREADS + threadIdx.x) * 16, source + (i * THREADS + threadIdx.x) * 4,
			true);
	copy_async_wait();
	__syncthreads();
	if (SIZE < 32 && threadIdx.x >= SIZE)
		return;
	if (leading) {
		UNROLL
		for (int i = 0; i < (HALF ? HALF : SIZE); i++)
			x[i] = (i == threadIdx.x) - dot(lower, x, i, 0, i);
	} else {
		UNROLL
		for (int i = 0; i < HALF; i++)
			x[i] = 0.0f;
	}
	UNROLL
	for (int i = 0; i < (HALF ? HALF : SIZE); i++)
		__stcs(target + i * SIZE, x[i]);
	UNROLL
	for (int i = HALF ? HALF : SIZE; i < SIZE; i++) {
		float known = 0.0f;

		if (leading)
			known = dot(lower, x, i, 0, HALF);
		x[i] = (i == threadIdx.x) - known - dot(lower, x, i, HALF, i);
		__stcs(target + i * SIZE, x[i]);
	}
}
