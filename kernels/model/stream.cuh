/* stream: weights on their way from memory to the registers of a warp, MODEL_DEPTH slices ahead. */
#pragma once

#include "common/element.cuh"
#include "model/plan.cuh"

#define SECTIONS (INPUT == INPUT_F32 ? 2 : 1) /* of 16 bytes, of a lane, of a row, of a slice */
#define SLICES_AHEAD 16                       /* of a tile, that are fetched into the second-level cache */

struct stream {
	const ELEMENT *low, *high; /* this lane's first numbers of the tile's rows */
	int round, unit;           /* that are read next */
	uint4 ring[DEPTH][2][SECTIONS];
};

static __device__ __forceinline__ int tile_of(const struct plan &plan, int round)
{
	const int groups = MODEL_WARPS / plan.split, group = threadIdx.x / 32 / plan.split;

	return (round * groups + group) * gridDim.x + blockIdx.x;
}

static __device__ __forceinline__ int slice_of(const struct plan &plan, int unit)
{
	return unit * plan.split + threadIdx.x / 32 % plan.split;
}

/* What is behind the last row is read as the last one, and dropped. */
static __device__ __forceinline__ void find_tile(struct stream &stream, const struct plan &plan)
{
	const int lane = threadIdx.x % 32, last = plan.matrix.rows - 1;
	const struct tile_rows rows = rows_of(plan, tile_of(plan, stream.round), lane);
	const long long width = plan.slices * MODEL_SLICE;
	const ELEMENT *first = (const ELEMENT *)plan.matrix.data + lane % 4 * 8;

	stream.low = first + min(rows.low, last) * width;
	stream.high = first + min(rows.high, last) * width;
}

static __device__ __forceinline__ void read_unit(
	struct stream &stream, const struct plan &plan, uint4 (&to)[2][SECTIONS])
{
	const int slice = slice_of(plan, stream.unit);

	if (stream.round < plan.rounds && slice < plan.slices) {
#pragma unroll
		for (int i = 0; i < SECTIONS; i++) {
			to[0][i] = __ldcs((const uint4 *)(stream.low + slice * MODEL_SLICE) + i);
			if (!plan.half)
				to[1][i] = __ldcs((const uint4 *)(stream.high + slice * MODEL_SLICE) + i);
		}
	}
	if (++stream.unit == plan.units) {
		stream.unit = 0;
		stream.round++;
		find_tile(stream, plan);
	}
}

static __device__ __forceinline__ void fetch(const void *address)
{
	asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

/* Has the second-level cache get the first slices of this warp from `unit` on. */
static __device__ __forceinline__ void fetch_units(
	const struct stream &stream, const struct plan &plan, int unit)
{
	const int end = min(plan.units, unit + SLICES_AHEAD);

	for (; unit < end && slice_of(plan, unit) < plan.slices; unit++) {
		fetch(stream.low + slice_of(plan, unit) * MODEL_SLICE);
		if (!plan.half)
			fetch(stream.high + slice_of(plan, unit) * MODEL_SLICE);
	}
}

static __device__ __forceinline__ struct stream start_stream(const struct plan &plan)
{
	struct stream stream = {};

	find_tile(stream, plan);
#pragma unroll
	for (int i = 0; i < DEPTH; i++)
		read_unit(stream, plan, stream.ring[i]);
	if (plan.rounds == 1)
		fetch_units(stream, plan, DEPTH);
	return stream;
}

/* Those of a product that comes later: so memory is read, too, while blocks wait, normalise or attend. */
static __device__ __forceinline__ void fetch_weights(const struct model_step_arguments &a, struct part part)
{
	const struct plan plan = make_plan(a, part);
	struct stream stream = {};

	find_tile(stream, plan);
	fetch_units(stream, plan, 0);
}
