/* product: rows of weights times the activations of a few tokens, on the tensor cores.
 *
 * A warp multiplies tiles: 16 rows of weights, as the left factor, with eight tokens at a time, slice by slice of 32
 * columns. Which columns of a slice are which terms of an mma is free, as long as both factors agree: a lane has eight
 * in a row, so that it reads 16 bytes of weights at a time, from memory straight into the registers of the mma. It reads
 * them some slices ahead (stream.cuh), the first ones already before the blocks have waited for each other, for weights
 * do not change. The two halves of a tile are any eight rows each: where two numbers of a product go together (the halves
 * of a pair that turns; gate and up), they are in one lane. */
#pragma once

#include "model/activation.cuh"
#include "model/barrier.cuh"
#include "model/result.cuh"
#include "model/stream.cuh"

#define WEIGHT_PLANES (INPUT == INPUT_F32 ? PLANES : 1)
#define CHAINS (TILES == 1 ? 4 : 1) /* sums that do not wait for each other, of a tile */
#define PARTS_AHEAD 2 /* from a product to the one whose weights are fetched meanwhile */

static __device__ __forceinline__ void multiply_add_tile(
	float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1)
{
#if INPUT == INPUT_F16
	asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
	    "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
		: "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
		: "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
	multiply_add(c, a, b0, b1);
#endif
}

/* The left factors of both mma of a slice: [plane][mma][register]. */
static __device__ __forceinline__ void unpack(
	unsigned (&w)[WEIGHT_PLANES][2][4], const uint4 (&read)[2][SECTIONS])
{
#pragma unroll
	for (int half = 0; half < 2; half++) {
#if INPUT == INPUT_F32
#pragma unroll
		for (int i = 0; i < 4; i++) {
			const uint4 four = read[half][i / 2];
			unsigned pairs[WEIGHT_PLANES];

			split_pair(pairs, __uint_as_float(i % 2 ? four.z : four.x),
				__uint_as_float(i % 2 ? four.w : four.y));
#pragma unroll
			for (int p = 0; p < WEIGHT_PLANES; p++)
				w[p][i / 2][i % 2 * 2 + half] = pairs[p];
		}
#else
		w[0][0][half] = read[half][0].x, w[0][0][2 + half] = read[half][0].y;
		w[0][1][half] = read[half][0].z, w[0][1][2 + half] = read[half][0].w;
#endif
	}
}

/* c += a slice of weights · that of the activations. Products of two small parts are left out. */
static __device__ __forceinline__ void multiply_slice(float (&c)[CHAINS][TILES][4],
	const uint4 (&read)[2][SECTIONS], const uint4 (&staged)[TILES][PLANES][32])
{
	unsigned w[WEIGHT_PLANES][2][4];

	unpack(w, read);
#pragma unroll
	for (int p = PLANES; p-- > 0;) {
		uint4 b[TILES];

#pragma unroll
		for (int tile = 0; tile < TILES; tile++)
			b[tile] = staged[tile][p][threadIdx.x % 32];
#pragma unroll
		for (int q = 0; q < WEIGHT_PLANES && q + p < PLANES; q++) {
#pragma unroll
			for (int tile = 0; tile < TILES; tile++)
				multiply_add_tile(c[p * 2 % CHAINS][tile], w[q][0], b[tile].x, b[tile].y);
#pragma unroll
			for (int tile = 0; tile < TILES; tile++)
				multiply_add_tile(c[(p * 2 + 1) % CHAINS][tile], w[q][1], b[tile].z, b[tile].w);
		}
	}
}

/* Waits for the warps that have the same tile. */
static __device__ __forceinline__ void meet_group(const struct part &part)
{
	asm volatile("bar.sync %0, %1;" ::"r"(1 + threadIdx.x / 32 / part.of.split), "r"(part.of.split * 32)
		     : "memory");
}

/* Adds up what the warps of a tile have, who then share its tokens. */
static __device__ __forceinline__ void finish_tile(const struct model_step_arguments &a,
	const struct part &part, int tile, const float (&c)[CHAINS][TILES][4], struct product_memory &shared)
{
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, first = warp / part.of.split * part.of.split;

#pragma unroll
	for (int i = 0; i < TILES; i++) {
		float4 sums = make_float4(0, 0, 0, 0);

#pragma unroll
		for (int n = 0; n < CHAINS; n++)
			sums.x += c[n][i][0], sums.y += c[n][i][1], sums.z += c[n][i][2], sums.w += c[n][i][3];
		shared.sums[warp][i][lane] = sums;
	}
	if (part.of.split > 1)
		meet_group(part);
	for (int i = warp - first; i * 8 < part.tokens; i += part.of.split) {
		float4 total = shared.sums[first][i][lane];

#pragma unroll 8
		for (int other = first + 1; other < first + part.of.split; other++) {
			const float4 more = shared.sums[other][i][lane];

			total.x += more.x, total.y += more.y, total.z += more.z, total.w += more.w;
		}
		finish(a, part, tile, i * 8, total, shared);
	}
	if (part.of.split > 1)
		meet_group(part);
}

/* A product, by all blocks, once all have come here. */
static __device__ __forceinline__ void multiply(
	const struct model_step_arguments &a, int number, struct barrier &barrier)
{
	struct product_memory &shared = *(struct product_memory *)memory;
	const struct part part = part_of(a, number);
	struct stream stream;

	arrive(barrier);
	if (threadIdx.x < TILES * 8)
		shared.best[threadIdx.x] = 0;
	stream = start_stream(a, part);
	if (number + PARTS_AHEAD < count_parts(a))
		fetch_weights(a, part_of(a, number + PARTS_AHEAD));
	wait(barrier);
	for (int round = 0; round < part.of.rounds; round++) {
		const int tile = tile_of(part, round);
		float c[CHAINS][TILES][4] = {};

		for (int unit = 0; unit < part.of.units; unit += DEPTH) {
			const int first = unit / part.of.staged * part.of.staged * part.of.split;

			if (unit * part.of.split == first && (round == 0 || part.of.staged < part.of.units)) {
				__syncthreads();
				stage(a, part, shared, first,
					min(part.of.staged * part.of.split, part.of.slices - first));
				__syncthreads();
			}
#pragma unroll
			for (int i = 0; i < DEPTH; i++) {
				const int slice = slice_of(part, unit + i);

				if (tile < part.of.tiles && slice < part.of.slices)
					multiply_slice(c, stream.ring[i], shared.staged[slice - first]);
				read_unit(stream, part, i);
			}
			advance(stream, a, part);
		}
		if (tile < part.of.tiles)
			finish_tile(a, part, tile, c, shared);
	}
	__syncthreads();
	if (part.product == LOGITS && threadIdx.x < part.tokens)
		atomicMax(a.outputs[threadIdx.x].best, shared.best[threadIdx.x]);
}
