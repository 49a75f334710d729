/* arguments: what the host passes to the kernel of language models. Plain C, read by both sides. All addresses are the
 * device's. */
#pragma once

#include "model/layout.h"

/* [rows, columns] of weights, each row padded with zeros to whole slices. */
struct model_matrix {
	const void *data;
	const float *bias; /* [rows]; NULL: none */
	int rows, columns;
};

struct model_device_layer {
	const float *attention_norm, *mlp_norm; /* [hidden] */
	const float *q_norm, *k_norm;           /* [head_dim]; NULL: none */
	struct model_matrix qkv;                /* queries, keys and values, one below the other */
	struct model_matrix output;             /* of attention */
	struct model_matrix gate_up, down;      /* gate and up one below the other */
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
	const struct model_device_layer *layers;
	struct model_matrix embedding, output;
	const float *norm;        /* [hidden] */
	const float *frequencies; /* [head_dim / 2] */
	int layer_count, hidden, heads, kv_heads, intermediate;
	float epsilon;

	/* What a step works on. */
	float *x;      /* [MODEL_ROWS, hidden] */
	float *angles; /* [MODEL_ROWS, head_dim / 2, 2]: cosines and sines */
	float *heads_at; /* [MODEL_ROWS, heads + kv_heads, head_dim]: queries, and keys until they have been normalised */
	float *partial; /* [MODEL_ROWS, heads, MODEL_SPLITS, head_dim]: of attention, not yet divided by its sum */
	float *partial_of; /* [MODEL_ROWS, heads, MODEL_SPLITS, 2]: its largest score and its sum */
	float *activated;  /* [MODEL_ROWS, intermediate] */
	unsigned *barrier; /* [2], zeros between steps */

	int row_count, output_count;
	struct model_device_row rows[MODEL_ROWS];
	struct model_device_output outputs[MODEL_ROWS];
};
