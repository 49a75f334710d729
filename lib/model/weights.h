/* weights: the tensors of a model, in the places that its config.json gives them. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "model/config.h"
#include "tensor/safetensors.h"

/* [rows, columns], in the file's memory. */
struct matrix {
	const void *data;
	enum dtype dtype;
	int rows, columns;
};

/* y = W x + b */
struct linear {
	struct matrix weight;
	const float *bias; /* NULL: none */
};

struct model_layer {
	const float *attention_norm, *mlp_norm; /* [hidden] */
	const float *q_norm, *k_norm;           /* [head_dim]; NULL: none */
	struct linear q, k, v, o, gate, up, down;
};

struct model_weights {
	struct matrix embedding, output; /* [vocabulary, hidden]; the same where they are tied */
	const float *norm;               /* [hidden] */
	struct model_layer *layers;
	int64_t parameters;
	size_t bytes;

	struct weights_file *files;
	size_t file_count;
	float **vectors; /* what stands above as floats */
	size_t vector_count;
};

/* Opens model.safetensors of a folder, or the files that its model.safetensors.index.json lists, and takes from
 * them what the configuration says: each tensor with its shape, its numbers all finite. -1: STATUS_ENVIRONMENT,
 * naming file and tensor; STATUS_INTERRUPTED. To be freed in either case. */
int model_weights_open(const char *folder, const struct model_config *config, struct model_weights *weights,
	struct error *err);
void model_weights_free(struct model_weights *weights);
