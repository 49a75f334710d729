/* stream: weights on their way from memory to the registers of a warp, some slices ahead. */
#pragma once

#include "common/element.cuh"
#include "model/plan.cuh"

#define SECTIONS (INPUT == INPUT_F32 ? 2 : 1) /* of 16 bytes, of a lane, of a row, of a slice */

template <int PRODUCT> struct stream {
	const ELEMENT *from; /* this lane's first numbers of the tile's first rows */
	bool there, other;   /* whether this lane's rows are: the first, and the one apart */
	uint4 ring[SHARE(PRODUCT).depth][2][SECTIONS];
};

static __device__ __forceinline__ constexpr int width_of(int slices)
{
	return slices * MODEL_SLICE;
}

/* What is behind the last row is not read. */
template <int PRODUCT>
static __device__ __forceinline__ void find_tile(
	struct stream<PRODUCT> &stream, const struct model_step_arguments &a, int layer, int round)
{
	constexpr struct sharing share = SHARE(PRODUCT);
	const int tile = tile_of<PRODUCT>(round), lane = THREAD % 32;
	const long long row = row_of<PRODUCT>(tile, lane);
	const int slice = slice_of<PRODUCT>(0) + piece_of_block<PRODUCT>() * share.piece;

	stream.there = tile < share.tiles && is_row<PRODUCT>(row);
	stream.other = stream.there && !share.half &&
		(share.paired || share.rows % 16 == 0 || is_row<PRODUCT>(row + rows_apart<PRODUCT>()));
	stream.from = of_layer(a, (const ELEMENT *)a.products[PRODUCT].weights, layer) +
		row * width_of(share.slices) + slice * MODEL_SLICE + lane % 4 * 8;
}

/* A slice into place `i` of the ring. */
template <int PRODUCT>
static __device__ __forceinline__ void read_unit(struct stream<PRODUCT> &stream, int i, int unit)
{
	constexpr struct sharing share = SHARE(PRODUCT);
	const bool there = is_slice<PRODUCT>(slice_of<PRODUCT>(unit));
	const ELEMENT *from = stream.from + unit * share.split * MODEL_SLICE;

#pragma unroll
	for (int n = 0; n < SECTIONS; n++) {
		if (there && stream.there)
			stream.ring[i][0][n] = __ldcs((const uint4 *)from + n);
		if (there && stream.other)
			stream.ring[i][1][n] = __ldcs(
				(const uint4 *)(from + rows_apart<PRODUCT>() * width_of(share.slices)) + n);
	}
}

template <int PRODUCT>
static __device__ __forceinline__ void start_stream(
	struct stream<PRODUCT> &stream, const struct model_step_arguments &a, int layer)
{
	find_tile(stream, a, layer, 0);
#pragma unroll
	for (int i = 0; i < SHARE(PRODUCT).depth; i++) {
#pragma unroll
		for (int n = 0; n < SECTIONS; n++)
			stream.ring[i][0][n] = stream.ring[i][1][n] = make_uint4(0, 0, 0, 0);
		read_unit(stream, i, i);
	}
}

/* Has the second-level cache get so many bytes, where one instruction does it. */
static __device__ __forceinline__ void fetch(const void *from, unsigned bytes)
{
#if __CUDA_ARCH__ >= 900
	asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes));
#endif
}

/* What a product needs beside its weights. */
template <int PRODUCT>
static __device__ __forceinline__ void fetch_vectors(const struct model_step_arguments &a, int layer)
{
	if (layer >= a.layer_count || blockIdx.x != BLOCKS - 1 || THREAD != MODEL_THREADS - 1)
		return;
	if (a.products[PRODUCT].norm)
		fetch(of_layer(a, a.products[PRODUCT].norm, layer), SHARE(PRODUCT).columns * 4 / 16 * 16);
	if (a.products[PRODUCT].bias)
		fetch(of_layer(a, a.products[PRODUCT].bias, layer), SHARE(PRODUCT).rows * 4 / 16 * 16);
}

/* Weights of a product that comes later, and what else it needs: so memory is read, too, while blocks wait, normalise or
 * attend. A thread a tile of this block's. */
template <int PRODUCT>
static __device__ __forceinline__ void fetch_product(const struct model_step_arguments &a, int layer)
{
	constexpr struct sharing share = SHARE(PRODUCT);
	constexpr int tile_rows = share.paired || share.half ? 8 : 16,
		      row_bytes = width_of(share.slices) * sizeof(ELEMENT);
	const int tile = THREAD * share.lanes + blockIdx.x / share.pieces, row = row_of<PRODUCT>(tile, 0);
	const char *weights = (const char *)of_layer(a, a.products[PRODUCT].weights, layer) +
		(long long)row * row_bytes;

	if (layer >= a.layer_count)
		return;
	if (tile < share.tiles && piece_of_block<PRODUCT>() == 0 &&
		row + (share.paired ? rows_apart<PRODUCT>() : 0) + tile_rows <= share.rows) {
		fetch(weights, tile_rows * row_bytes);
		if (share.paired)
			fetch(weights + rows_apart<PRODUCT>() * row_bytes, tile_rows * row_bytes);
	}
	fetch_vectors<PRODUCT>(a, layer);
}
