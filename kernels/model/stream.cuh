/* stream: weights on their way from memory to the registers of a warp, MODEL_DEPTH slices ahead. */
#pragma once

#include "common/element.cuh"
#include "model/plan.cuh"

#define SECTIONS (INPUT == INPUT_F32 ? 2 : 1) /* of 16 bytes, of a lane, of a row, of a slice */
#define SLICES_AHEAD 16                       /* of a tile, that are fetched into the second-level cache */

struct stream {
	const ELEMENT *low; /* this lane's first numbers of the tile's low rows */
	int apart;          /* from there to the high rows' */
	int round, unit;    /* that are read next, a depth at a time */
	bool there;         /* whether this warp has a tile in the round */
	uint4 ring[DEPTH][2][SECTIONS];
};

/* A warp that is in no group has none. */
static __device__ __forceinline__ int tile_of(const struct part &part, int round)
{
	const int group = threadIdx.x / 32 / part.of.split;

	return group < part.of.groups ? (round * part.of.groups + group) * gridDim.x + blockIdx.x : part.of.tiles;
}

static __device__ __forceinline__ int slice_of(const struct part &part, int unit)
{
	return unit * part.of.split + threadIdx.x / 32 % part.of.split;
}

/* What is behind the last row is read as the last one, and dropped. */
static __device__ __forceinline__ void find_tile(struct stream &stream,
	const struct model_step_arguments &a, const struct part &part)
{
	const int lane = threadIdx.x % 32, last = part.of.rows - 1, tile = tile_of(part, stream.round);
	const struct tile_rows rows = rows_of(part, tile, lane);
	const long long width = part.of.slices * MODEL_SLICE;
	const ELEMENT *first = of_layer(a, (const ELEMENT *)part.of.weights, part.layer) + lane % 4 * 8;

	stream.there = stream.round < part.of.rounds && tile < part.of.tiles;
	stream.low = first + min(rows.low, last) * width;
	stream.apart = (min(rows.high, last) - min(rows.low, last)) * (int)width;
}

/* Unit `i` of the depth that is read next. */
static __device__ __forceinline__ void read_unit(struct stream &stream, const struct part &part, int i)
{
	const int slice = slice_of(part, stream.unit + i);

	if (!stream.there || slice >= part.of.slices)
		return;
#pragma unroll
	for (int n = 0; n < SECTIONS; n++) {
		stream.ring[i][0][n] = __ldcs((const uint4 *)(stream.low + slice * MODEL_SLICE) + n);
		if (!part.of.half)
			stream.ring[i][1][n] = __ldcs((const uint4 *)(stream.low + stream.apart + slice * MODEL_SLICE) + n);
	}
}

/* To the next depth. */
static __device__ __forceinline__ void advance(struct stream &stream,
	const struct model_step_arguments &a, const struct part &part)
{
	stream.unit += DEPTH;
	if (stream.unit < part.of.units)
		return;
	stream.unit = 0;
	stream.round++;
	find_tile(stream, a, part);
}

static __device__ __forceinline__ void fetch(const void *address)
{
	asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

/* Has the second-level cache get the first slices of this warp from `unit` on. */
static __device__ __forceinline__ void fetch_units(
	const struct stream &stream, const struct part &part, int unit)
{
	const int end = min(part.of.units, unit + SLICES_AHEAD);

	for (; stream.there && unit < end && slice_of(part, unit) < part.of.slices; unit++) {
		fetch(stream.low + slice_of(part, unit) * MODEL_SLICE);
		if (!part.of.half)
			fetch(stream.low + stream.apart + slice_of(part, unit) * MODEL_SLICE);
	}
}

static __device__ __forceinline__ struct stream start_stream(
	const struct model_step_arguments &a, const struct part &part)
{
	struct stream stream = {};

	find_tile(stream, a, part);
#pragma unroll
	for (int i = 0; i < DEPTH; i++)
		read_unit(stream, part, i);
	advance(stream, a, part);
	if (part.of.rounds == 1)
		fetch_units(stream, part, DEPTH);
	return stream;
}

/* Those of a product that comes later: so memory is read, too, while blocks wait, normalise or attend. */
static __device__ __forceinline__ void fetch_weights(const struct model_step_arguments &a, const struct part &part)
{
	const float *norm = of_layer(a, part.of.norm, part.layer),
		    *bias = of_layer(a, part.of.bias, part.layer);
	const int thread = blockIdx.x * MODEL_THREADS + threadIdx.x;
	struct stream stream = {};

	find_tile(stream, a, part);
	fetch_units(stream, part, 0);
	if (norm && thread * 32 < part.of.columns)
		fetch(norm + thread * 32);
	if (bias && thread * 32 < part.of.rows)
		fetch(bias + thread * 32);
}
