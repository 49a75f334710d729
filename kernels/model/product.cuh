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
static __device__ __forceinline__ void multiply_slice(float (&c)[TILES][4], const uint4 (&read)[2][SECTIONS],
	const uint4 (&staged)[TILES][PLANES][32], int tokens)
{
	unsigned w[WEIGHT_PLANES][2][4];

	unpack(w, read);
#pragma unroll
	for (int tile = 0; tile < TILES; tile++) {
		if (tile * 8 >= tokens)
			break;
#pragma unroll
		for (int p = PLANES; p-- > 0;) {
			const uint4 b = staged[tile][p][threadIdx.x % 32];

#pragma unroll
			for (int q = 0; q < WEIGHT_PLANES && q + p < PLANES; q++) {
				multiply_add_tile(c[tile], w[q][0], b.x, b.y);
				multiply_add_tile(c[tile], w[q][1], b.z, b.w);
			}
		}
	}
}

/* Waits for the warps that have the same tile. */
static __device__ __forceinline__ void meet_group(const struct plan &plan)
{
	asm volatile("bar.sync %0, %1;" ::"r"(1 + threadIdx.x / 32 / plan.split), "r"(plan.split * 32)
		     : "memory");
}

/* Adds up what the warps of a tile have, who then share its tokens. */
static __device__ __forceinline__ void finish_tile(const struct model_step_arguments &a,
	const struct plan &plan, int tile, const float (&c)[TILES][4], struct product_memory &shared)
{
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, first = warp / plan.split * plan.split;

#pragma unroll
	for (int i = 0; i < TILES; i++)
		shared.sums[warp][i][lane] = make_float4(c[i][0], c[i][1], c[i][2], c[i][3]);
	if (plan.split > 1)
		meet_group(plan);
	for (int i = warp - first; i * 8 < plan.tokens; i += plan.split) {
		float4 total = shared.sums[first][i][lane];

		for (int other = first + 1; other < first + plan.split; other++) {
			const float4 more = shared.sums[other][i][lane];

			total.x += more.x, total.y += more.y, total.z += more.z, total.w += more.w;
		}
		finish(a, plan, tile, i * 8, total, shared);
	}
	if (plan.split > 1)
		meet_group(plan);
}

/* A product, by all blocks, once all have come here. */
static __device__ __forceinline__ void multiply(
	const struct model_step_arguments &a, int number, struct barrier &barrier)
{
	struct product_memory &shared = *(struct product_memory *)memory;
	const struct plan plan = make_plan(a, part_of(a, number));
	struct stream stream;

	arrive(barrier);
	if (threadIdx.x < TILES * 8)
		shared.best[threadIdx.x] = 0;
	stream = start_stream(plan);
	if (number + PARTS_AHEAD < count_parts(a))
		fetch_weights(a, part_of(a, number + PARTS_AHEAD));
	wait(barrier);
	if (norm_of(a, plan))
		measure(a, plan, shared);
	for (int round = 0; round < plan.rounds; round++) {
		const int tile = tile_of(plan, round);
		float c[TILES][4] = {};

		for (int unit = 0; unit < plan.units; unit += DEPTH) {
			const int first = unit / plan.staged * plan.staged * plan.split;

			if (unit * plan.split == first && (round == 0 || plan.staged < plan.units)) {
				__syncthreads();
				stage(a, plan, shared, first,
					min(plan.staged * plan.split, plan.slices - first));
				__syncthreads();
			}
#pragma unroll
			for (int i = 0; i < DEPTH; i++) {
				const int slice = slice_of(plan, unit + i);

				if (slice < plan.slices)
					multiply_slice(
						c, stream.ring[i], shared.staged[slice - first], plan.tokens);
				read_unit(stream, plan, stream.ring[i]);
			}
		}
		if (tile < plan.tiles)
			finish_tile(a, plan, tile, c, shared);
	}
	__syncthreads();
	if (plan.part.product == LOGITS && threadIdx.x < plan.tokens)
		atomicMax(a.outputs[threadIdx.x].best, shared.best[threadIdx.x]);
}
