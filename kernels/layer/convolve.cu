/* layer_convolve: what stands between the layer's projections and the operation: a depthwise causal
 * convolution of four taps and SiLU, for q, k and v at once. The first, narrow half of the gate comes out of
 * the same product and is only copied.
 *
 * A thread has four channels and goes down a strip of rows with the last three in registers, so that a row is
 * read once, and three more for each strip. It asks for AHEAD rows while it works on as many: with 8 bytes a
 * row, that is what keeps enough of them on their way. Bound by memory. Compile-time parameters: WIDTH
 * (heads · S), HEAD_DIM, INPUT. */
#include "common/element.cuh"
#include "layer/layout.h"
#include "layer/segment.cuh"
#include "layer/silu.cuh"

#define THREADS LAYER_THREADS
#define AHEAD 4
#define COLUMNS (3 * WIDTH + HEAD_DIM)
#define GROUPS (COLUMNS / STRIP_CHANNELS)

static __device__ __forceinline__ void unpack(float (&x)[4], uint2 pairs)
{
	x[0] = element_float((ELEMENT)pairs.x);
	x[1] = element_float((ELEMENT)(pairs.x >> 16));
	x[2] = element_float((ELEMENT)pairs.y);
	x[3] = element_float((ELEMENT)(pairs.y >> 16));
}

/* One row: `x` is the row and the three before it, oldest first. */
static __device__ __forceinline__ void convolve(ELEMENT *to, const float (&weight)[4][4], const float (&a)[4],
	const float (&b)[4], const float (&c)[4], const float (&d)[4])
{
	float y[4];

#pragma unroll
	for (int i = 0; i < 4; i++)
		y[i] = silu_of_twice(weight[0][i] * a[i] + weight[1][i] * b[i] + weight[2][i] * c[i] +
			weight[3][i] * d[i]);
	*(uint2 *)to = make_uint2(element_pair(y[0], y[1]), element_pair(y[2], y[3]));
}

/* The next rows of a strip of which `left` are left; zeros behind its end. */
static __device__ __forceinline__ void load_ahead(uint2 (&coming)[AHEAD], const ELEMENT *from, long long left)
{
#pragma unroll
	for (int i = 0; i < AHEAD; i++)
		coming[i] = i < left ? *(const uint2 *)(from + i * COLUMNS) : make_uint2(0, 0);
}

static __device__ void copy_strip(ELEMENT *to, const ELEMENT *from, long long token, long long end)
{
	for (; token < end; token++, to += HEAD_DIM, from += COLUMNS)
		*(uint2 *)to = *(const uint2 *)from;
}

/* Rows from `token` to `end` of one stretch; those behind the sequence's `tokens` become zeros. */
static __device__ void convolve_strip(const float *weights, ELEMENT *to, const ELEMENT *from, long long token,
	long long end, long long tokens)
{
	float weight[4][4], x[LAYER_HISTORY + AHEAD][4];
	uint2 coming[AHEAD];

#pragma unroll
	for (int tap = 0; tap < 4; tap++) {
		const float4 w = *(const float4 *)(weights + tap * WIDTH);

		weight[tap][0] = w.x / 2, weight[tap][1] = w.y / 2, weight[tap][2] = w.z / 2,
		weight[tap][3] = w.w / 2;
	}
#pragma unroll
	for (int back = 1; back <= LAYER_HISTORY; back++)
		unpack(x[LAYER_HISTORY - back], *(const uint2 *)(from - back * COLUMNS));
	load_ahead(coming, from, end - token);
	for (; token < end; token += AHEAD) {
#pragma unroll
		for (int i = 0; i < AHEAD; i++)
			unpack(x[LAYER_HISTORY + i], coming[i]);
		from += AHEAD * COLUMNS;
		load_ahead(coming, from, end - token - AHEAD);
#pragma unroll
		for (int i = 0; i < AHEAD; i++) {
			if (token + i < tokens && token + i < end)
				convolve(to + i * WIDTH, weight, x[i], x[i + 1], x[i + 2], x[i + 3]);
			else if (token + i < end)
				*(uint2 *)(to + i * WIDTH) = make_uint2(0, 0);
		}
#pragma unroll
		for (int n = 0; n < LAYER_HISTORY; n++)
#pragma unroll
			for (int i = 0; i < 4; i++)
				x[n][i] = x[AHEAD + n][i];
		to += AHEAD * WIDTH;
	}
}

static __device__ __forceinline__ void convolve_stretch(const struct layer_convolve_arguments &a)
{
	const unsigned id = blockIdx.x * THREADS + threadIdx.x;
	const int row = id / GROUPS * a.strip, end = min(row + a.strip, a.segment.length);
	const int column = id % GROUPS * 4, which = column / WIDTH, channel = column % WIDTH;
	const long long start = first_token(a.segment, blockIdx.y), tokens = a.segment.tokens;
	const ELEMENT *from = (const ELEMENT *)a.projected + column +
		(blockIdx.y * (long long)(LAYER_HISTORY + a.segment.length) + LAYER_HISTORY + row) * COLUMNS;

	if (row >= a.segment.length)
		return;
	if (which < 3)
		convolve_strip(a.weight + which * 4 * WIDTH + channel,
			(ELEMENT *)(which == 0       ? a.q
					: which == 1 ? a.k
						     : a.v) +
				channel + (blockIdx.y * (long long)a.held + row) * WIDTH,
			from, start + row, start + end, tokens);
	else
		copy_strip((ELEMENT *)a.narrow + channel +
				(first_row(a.segment, blockIdx.y) + start + row) * HEAD_DIM,
			from, start + row, min(start + end, tokens));
}

#ifndef FLAT_ENTRY
extern "C" __global__ void __launch_bounds__(THREADS)
	layer_convolve(const __grid_constant__ struct layer_convolve_arguments a)
{
	wait_for_launch_before();
	convolve_stretch(a);
}
#endif
