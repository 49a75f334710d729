/* plan: the products of a step, and which warps multiply which rows of weights. */
#pragma once

#include "model/arguments.h"

#define DEPTH MODEL_DEPTH(INPUT)

enum product {
	QKV,     /* queries, keys and values of the normalised x */
	OUTPUT,  /* x += of what was attended to */
	GATE_UP, /* silu(gate) · up of the normalised x */
	DOWN,    /* x += of that */
	LOGITS,  /* of the normalised x of the rows that predict */
};

/* A product of a layer; products of a step are counted through. */
struct part {
	enum product product;
	int layer;
};

static __device__ __forceinline__ int count_parts(const struct model_step_arguments &a)
{
	return a.layer_count * LOGITS + (a.output_count > 0);
}

static __device__ __forceinline__ struct part part_of(const struct model_step_arguments &a, int number)
{
	const int layer = number / LOGITS;

	return {layer < a.layer_count ? (enum product)(number % LOGITS) : LOGITS, layer};
}

/* How the blocks share a product. A tile is multiplied by `split` warps, each every split-th slice. */
struct plan {
	struct part part;
	struct model_matrix matrix;
	int tokens, slices;
	int tiles, split, rounds; /* rounds: tiles of a warp */
	int units;                /* slices of a warp, of a tile, and nothing to fill whole DEPTHs */
	int staged;               /* units whose activations are in shared memory at a time */
	bool half;                /* tiles of eight rows, for there are so few */
};

static __device__ __forceinline__ int divide_up(int a, int b)
{
	return (a + b - 1) / b;
}

static __device__ __forceinline__ struct model_matrix matrix_of(
	const struct model_step_arguments &a, struct part part)
{
	switch (part.product) {
	case QKV:
		return a.layers[part.layer].qkv;
	case OUTPUT:
		return a.layers[part.layer].output;
	case GATE_UP:
		return a.layers[part.layer].gate_up;
	case DOWN:
		return a.layers[part.layer].down;
	default:
		return a.output;
	}
}

/* Whether the halves of a tile are those of pairs. */
static __device__ __forceinline__ bool is_paired(enum product product)
{
	return product == QKV || product == GATE_UP;
}

static __device__ __forceinline__ struct plan make_plan(
	const struct model_step_arguments &a, struct part part)
{
	struct plan plan;
	int units;

	plan.part = part;
	plan.matrix = matrix_of(a, part);
	plan.tokens = part.product == LOGITS ? a.output_count : a.row_count;
	plan.slices = divide_up(plan.matrix.columns, MODEL_SLICE);
	plan.half = TILES == 1 && !is_paired(part.product) && divide_up(plan.matrix.rows, 16) < gridDim.x;
	plan.tiles = divide_up(plan.matrix.rows, plan.half ? 8 : 16);
	plan.split = MODEL_WARPS;
	while (plan.split > 1 && MODEL_WARPS / plan.split * gridDim.x < plan.tiles)
		plan.split /= 2;
	while (plan.split > 1 && plan.slices > STAGE && plan.split * DEPTH > STAGE)
		plan.split /= 2;
	plan.rounds = divide_up(plan.tiles, MODEL_WARPS / plan.split * gridDim.x);
	units = divide_up(plan.slices, plan.split);
	plan.units = divide_up(units, DEPTH) * DEPTH;
	plan.staged = plan.slices > STAGE ? STAGE / (plan.split * DEPTH) * DEPTH : plan.units;
	return plan;
}

/* The two rows of a tile that lane `lane` has to do with. */
struct tile_rows {
	int low, high;
	bool there;
};

static __device__ __forceinline__ struct tile_rows rows_of(const struct plan &plan, int tile, int lane)
{
	const int half_rows = plan.matrix.rows / 2,
		  row = tile * (is_paired(plan.part.product) || plan.half ? 8 : 16) + lane / 4;
	struct tile_rows rows;

	if (plan.part.product == QKV) {
		const int low = row / (HEAD_DIM / 2) * HEAD_DIM + row % (HEAD_DIM / 2);

		rows = {low, low + HEAD_DIM / 2, row < half_rows};
	} else if (plan.part.product == GATE_UP) {
		rows = {row, half_rows + row, row < half_rows};
	} else {
		rows = {row, row + 8, row < plan.matrix.rows};
	}
	return rows;
}
