/* arguments: what the host passes to the kernel of language models. Plain C, read by both sides. All addresses are the
 * device's. */
#pragma once

#include "model/layout.h"

/* The products of a layer, and the last. */
enum model_product {
	QKV,     /* queries, keys and values of the normalised x: one below the other */
	OUTPUT,  /* x += of what was attended to */
	GATE_UP, /* silu(gate) · up of the normalised x: one below the other */
	DOWN,    /* x += of that */
	LOGITS,  /* of the normalised x of the rows that predict */
	PRODUCTS,
};

/* Of the first layer, where there is one in each. */
struct model_device_product {
	const void *weights; /* [rows, columns], each row padded with zeros to whole slices */
	const float *bias;   /* [rows]; NULL: none */
	const float *norm;   /* [columns]: of what comes in; NULL: that is not normalised */
};

/* A token that a session takes. */
struct model_device_row {
	float *cache; /* of its session: [keys or values][layers][kv_heads][capacity][head_dim] */
	int capacity;
	int token, position;
};

/* What is wanted of a row that predicts. */
struct model_device_output {
	unsigned long long *best; /* see MODEL_NOT_FINITE */
	float *logits;            /* [vocabulary]; NULL: not wanted */
	int row;
};

struct model_step_arguments {
	struct model_device_product products[PRODUCTS];
	const float *q_norm, *k_norm; /* [head_dim], of the first layer; NULL: none */
	long long layer_bytes;        /* from what belongs to a layer to the same of the next */
	const void *embedding;        /* [vocabulary, hidden], as weights are */
	const float *frequencies;     /* [head_dim / 2] */
	int layer_count;
	float epsilon;

	/* What a step works on. */
	float *x;       /* [MODEL_ROWS, hidden] */
	float *squares; /* [hidden / 8, MODEL_ROWS]: sums of x², of each tile of a product that changes x */
	float *angles;  /* [MODEL_ROWS, head_dim / 2, 2]: cosines and sines */
	float *heads_at; /* [MODEL_ROWS, heads + kv_heads, head_dim]: queries, and keys until they have been normalised */
	float *partial; /* [MODEL_ROWS, heads, MODEL_SPLITS, head_dim]: of attention, not yet divided by its sum */
	float *partial_of; /* [MODEL_ROWS, heads, MODEL_SPLITS, 2]: its largest score and its sum */
	float *activated;  /* [MODEL_ROWS, intermediate] */
	void *planes
		[2]; /* activations as they are staged (activation.cuh): what is hidden wide, and what is activated */
	void *pieces; /* sums of products that are done in pieces: MODEL_PIECES_BYTES */
	unsigned *
		finished; /* [tiles, eight tokens at a time]: pieces that are there; zeros between products */
	unsigned *barrier; /* [2], zeros between steps */
	void *parcels;     /* MODEL_PARCELS of 16 bytes (parcel.cuh): what is sent in a single token's step */
	unsigned number;   /* it and the next layer_count ones are this step's, and no other's */

	int row_count, output_count;
	int splits; /* parts that keep all blocks busy when each row is attended to in so many */
	struct model_device_row rows[MODEL_ROWS];
	struct model_device_output outputs[MODEL_ROWS];
};
