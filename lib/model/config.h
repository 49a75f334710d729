/* config: what a model's config.json says of it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

/* The kinds of models that are known; they differ in little. */
enum model_type { MODEL_QWEN2, MODEL_QWEN3, MODEL_LLAMA };

/* How positions become angles: pair i of n turns by theta^(−i / n) at each token, scaled. */
struct model_rope {
	enum { ROPE_PLAIN, ROPE_LINEAR, ROPE_LLAMA3 } kind;
	double theta;
	double factor; /* ROPE_LINEAR, ROPE_LLAMA3: slower by that */
	double low_freq,
		high_freq; /* ROPE_LLAMA3: turns within `original` tokens below which a pair is slowed, */
	double original;   /* and above which it is left alone */
};

struct model_config {
	enum model_type type;
	int vocabulary, hidden, layers, heads, kv_heads, head_dim, intermediate, context;
	bool tied;             /* the output matrix is the embedding */
	bool qkv_bias, o_bias; /* of attention's matrices */
	bool mlp_bias;         /* of the other three */
	bool head_norms;       /* queries and keys are normalised, head by head */
	float epsilon;         /* of all norms */
	struct model_rope rope;
};

/* The largest head. */
#define MODEL_HEAD_DIM 256

/* "qwen2" */
const char *model_type_name(enum model_type type);

/* Reads a config.json of `length` bytes, somebody else's. STATUS_ENVIRONMENT for what is malformed, is another
 * architecture, or asks for something that is not computed here (sliding windows, quantised weights, …). */
int model_config_parse(const char *text, size_t length, struct model_config *config, struct error *err);

/* What pair `index` of head_dim / 2 turns by at each token. */
double model_config_frequency(const struct model_config *config, int index);
