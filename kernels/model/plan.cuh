/* plan: the products of a step, and which warps multiply which rows of weights. */
#pragma once

#include "model/arguments.h"

#ifndef DEPTH
#define DEPTH MODEL_DEPTH(INPUT, TILES)
#endif

/* A product of a layer; those of a step are counted through. */
struct part {
	const struct model_device_product &of;
	enum model_product product;
	int layer, tokens;
};

static __device__ __forceinline__ int count_parts(const struct model_step_arguments &a)
{
	return a.layer_count * LOGITS + (a.output_count > 0);
}

static __device__ __forceinline__ struct part part_of(const struct model_step_arguments &a, int number)
{
	const bool last = number == a.layer_count * LOGITS;
	const int product = last ? LOGITS : number % LOGITS;

	return {a.products[product], (enum model_product)product, last ? 0 : number / LOGITS,
		last ? a.output_count : a.row_count};
}

static __device__ __forceinline__ int divide_up(int a, int b)
{
	return (a + b - 1) / b;
}

/* What is at the same place in another layer as `first` in the first one. */
template <typename T>
static __device__ __forceinline__ const T *of_layer(
	const struct model_step_arguments &a, const T *first, int layer)
{
	return first ? (const T *)((const char *)first + layer * a.layer_bytes) : NULL;
}

/* Whether the halves of a tile are those of pairs. */
static __device__ __forceinline__ bool is_paired(enum model_product product)
{
	return product == QKV || product == GATE_UP;
}

/* The two rows of a tile that lane `lane` has to do with. */
struct tile_rows {
	int low, high;
	bool there;
};

static __device__ __forceinline__ struct tile_rows rows_of(const struct part &part, int tile, int lane)
{
	const int half_rows = part.of.rows / 2,
		  row = tile * (is_paired(part.product) || part.of.half ? 8 : 16) + lane / 4;
	struct tile_rows rows;

	if (part.product == QKV) {
		const int low = row / (HEAD_DIM / 2) * HEAD_DIM + row % (HEAD_DIM / 2);

		rows = {low, low + HEAD_DIM / 2, row < half_rows};
	} else if (part.product == GATE_UP) {
		rows = {row, half_rows + row, row < half_rows};
	} else {
		rows = {row, row + 8, row < part.of.rows};
	}
	return rows;
}
