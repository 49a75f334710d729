/* layer_gate: what stands between the operation and the output projection: RMSNorm of each head's o, times its
 * weight, times sigmoid(g), with g = narrow W2ᵀ + b2.
 *
 * A block keeps one head's rows of W2 in shared memory and goes through all tokens, 16 to a warp, with g on the
 * tensor cores. The order of columns and of terms in that product is chosen so that a lane's share of a row of
 * narrow, o and y is whole segments of 16 bytes, and four lanes have 64 bytes in a row. Bound by memory.
 * Compile-time parameters: HEAD_DIM, INPUT (1: bf16). */
#include "common/element.cuh"
#include "common/tile.cuh"
#include "layer/arguments.h"
#include "layer/layout.h"

#define THREADS LAYER_THREADS
#define ROWS LAYER_GATE_ROWS
#define SEGMENTS (HEAD_DIM / 32) /* of 16 bytes, of a lane, of a row */
#define N (HEAD_DIM / 8)
#define K (HEAD_DIM / 16)

/* Number `index` of what lane `quad` of four has of a row. */
static __device__ __forceinline__ int place(int quad, int index)
{
	return index / 8 * 32 + quad * 8 + index % 8;
}

/* W2's rows of this head, as the right factor: column 8 n + 2 quad + e of the product is place(quad, 2 n + e), and
 * its term 16 k + 8 half + 2 quad + e is place(quad, 4 k + 2 half + e). */
static __device__ void load_weights(unsigned tile, const ELEMENT *weight)
{
	for (int i = threadIdx.x; i < HEAD_DIM * HEAD_DIM / 2; i += THREADS) {
		const int column = i / (HEAD_DIM / 2), term = i % (HEAD_DIM / 2) * 2;
		const int row = place(column % 8 / 2, column / 8 * 2 + column % 2);
		const int from = place(term % 8 / 2, term / 16 * 4 + term % 16 / 8 * 2);

		store_shared(tile + tile_offset<HEAD_DIM>(column, term / 8) + term % 8 * 2,
			*(const unsigned *)(weight + row * HEAD_DIM + from));
	}
}

static __device__ __forceinline__ void load_row(
	uint4 (&to)[SEGMENTS], const void *from, long long row, long long stride, long long column)
{
#pragma unroll
	for (int s = 0; s < SEGMENTS; s++)
		to[s] = *(const uint4 *)((const ELEMENT *)from + row * stride + column + s * 32);
}

static __device__ __forceinline__ unsigned pair_of(const uint4 (&segments)[SEGMENTS], int index)
{
	const uint4 segment = segments[index / 8];
	const unsigned pairs[4] = {segment.x, segment.y, segment.z, segment.w};

	return pairs[index % 8 / 2];
}

/* y of a row into `o`; `g` is this lane's part of the products of both its rows, `half` tells which. */
static __device__ __forceinline__ void gate_row(uint4 (&o)[SEGMENTS], const float (&g)[N][4], int half,
	const float (&norm)[N][2], const float (&bias)[N][2], float epsilon)
{
	float squares = 0.0f, scale;

#pragma unroll
	for (int n = 0; n < N; n++) {
		const unsigned pair = pair_of(o, 2 * n);

		squares += bf16_low(pair) * bf16_low(pair) + bf16_high(pair) * bf16_high(pair);
	}
	squares += __shfl_xor_sync(~0u, squares, 1);
	squares += __shfl_xor_sync(~0u, squares, 2);
	scale = rsqrtf(squares / HEAD_DIM + epsilon);
#pragma unroll
	for (int s = 0; s < SEGMENTS; s++) {
		unsigned y[4];

#pragma unroll
		for (int i = 0; i < 4; i++) {
			const int n = s * 4 + i;
			const unsigned pair = pair_of(o, 2 * n);
			const float low = g[n][half * 2] + bias[n][0], high = g[n][half * 2 + 1] + bias[n][1];

			y[i] = pack_bf16(__fdividef(scale * bf16_low(pair) * norm[n][0], 1.0f + __expf(-low)),
				__fdividef(scale * bf16_high(pair) * norm[n][1], 1.0f + __expf(-high)));
		}
		o[s] = make_uint4(y[0], y[1], y[2], y[3]);
	}
}

static __device__ __forceinline__ void gate_rows(const struct layer_gate_arguments &a)
{
	__shared__ __align__(128) ELEMENT weight[HEAD_DIM * HEAD_DIM];
	const unsigned tile = (unsigned)__cvta_generic_to_shared(weight);
	const int head = blockIdx.y, quad = threadIdx.x % 4, width = a.heads * HEAD_DIM;
	const int column = head * HEAD_DIM + quad * 8;
	float norm[N][2], bias[N][2];

	load_weights(tile, (const ELEMENT *)a.weight + head * HEAD_DIM * HEAD_DIM);
#pragma unroll
	for (int n = 0; n < N; n++)
#pragma unroll
		for (int e = 0; e < 2; e++) {
			const int at = place(quad, 2 * n + e);

			norm[n][e] = a.norm[at];
			bias[n][e] = element_float(((const ELEMENT *)a.bias)[head * HEAD_DIM + at]);
		}
	__syncthreads();
	for (long long row = blockIdx.x * (long long)ROWS + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
		row - threadIdx.x % 32 / 4 < a.rows; row += gridDim.x * (long long)ROWS) {
		const long long rows[2] = {min(row, a.rows - 1), min(row + 8, a.rows - 1)};
		uint4 narrow[2][SEGMENTS], o[2][SEGMENTS];
		unsigned left[1][K][4];
		float g[N][4];

#pragma unroll
		for (int half = 0; half < 2; half++) {
			load_row(narrow[half], a.narrow, rows[half], HEAD_DIM, quad * 8);
			load_row(o[half], a.o, rows[half], a.o_row, head * a.o_head + quad * 8);
		}
#pragma unroll
		for (int k = 0; k < K; k++)
#pragma unroll
			for (int i = 0; i < 4; i++)
				left[0][k][i] = pair_of(narrow[i % 2], 4 * k + i / 2 * 2);
		clear(g);
		multiply<1, HEAD_DIM, false, FULL>(g, left, tile, 0);
#pragma unroll
		for (int half = 0; half < 2; half++) {
			gate_row(o[half], g, half, norm, bias, a.epsilon);
			if (row + half * 8 < a.rows)
#pragma unroll
				for (int s = 0; s < SEGMENTS; s++)
					*(uint4 *)((ELEMENT *)a.y + rows[half] * width + column +
						s * 32) = o[half][s];
		}
	}
}

#ifndef FLAT_ENTRY
extern "C" __global__ void __launch_bounds__(THREADS)
	layer_gate(const __grid_constant__ struct layer_gate_arguments a)
{
	wait_for_launch_before();
	gate_rows(a);
}
#endif
