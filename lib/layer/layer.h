/* layer: the QuasarAttention layer, as a model calls it and a validator times it.
 *
 * x [B, T, hidden] → q, k, v = x Wqᵀ, x Wkᵀ, x Wvᵀ → each a depthwise causal convolution of width 4 and
 * SiLU → the operation with β = softplus(beta_log) → RMSNorm over the head dimension × sigmoid(g), with
 * g = (x W1ᵀ) W2ᵀ + b2 → Woᵀ. Rounded to bf16 where the autocast path of the fork has bf16 tensors:
 * docs/math.md lists the places. */
#pragma once

#include "layer/product.h"
#include "op/quasar/problem.h"

#define LAYER_CONVOLUTION 4
/* Of the norm. */
#define LAYER_EPSILON 1e-5f

/* The shape that validators time. */
#define LAYER_HIDDEN 512
#define LAYER_HEADS 8
#define LAYER_DIM 64

/* fp32, contiguous, each in the shape that its name has in a state dict. */
struct layer {
	int hidden, heads, dim;
	float *q_proj, *k_proj, *v_proj;       /* [heads · dim, hidden], one behind the other */
	float *q_conv1d, *k_conv1d, *v_conv1d; /* [heads · dim, 1, 4] */
	float *beta_log;                       /* [heads] */
	float *g_proj_0;                       /* [dim, hidden] */
	float *g_proj_1, *g_proj_1_bias;       /* [heads · dim, dim], [heads · dim] */
	float *o_norm;                         /* [dim] */
	float *o_proj;                         /* [hidden, heads · dim] */

	/* What layer_cpu() multiplies with, made from the above by layer_prepare(). */
	struct product qkv, narrow_gate, wide_gate, output;
	float *convolution; /* [3, 4, heads · dim] */
	float *beta;        /* [heads] */
};

/* The parameters one by one: number `index`, with its name in a state dict and how many numbers it has. NULL behind the
 * last one. */
float *layer_parameter(struct layer *layer, int index, const char **name, size_t *count);

/* To be called when weights were changed by hand. STATUS_ENVIRONMENT without memory. */
int layer_prepare(struct layer *layer, struct error *err);

/* Random weights, distributed as the fork initialises them; the same seed gives the same weights. `hidden`
 * is a multiple of 16. NULL: STATUS_ENVIRONMENT without memory. Free with layer_free(). */
struct layer *layer_random(int hidden, int heads, int dim, uint64_t seed, struct error *err);

/* Weights from a safetensors file (fp32, bf16 or fp16) with the fork's parameter names; they tell the
 * layer's sizes. NULL on error, STATUS_ENVIRONMENT. */
struct layer *layer_load(const char *path, struct error *err);
void layer_free(struct layer *layer);

/* What one call leaves behind for the next. Zeros before the first call. */
struct layer_cache {
	float *convolution; /* [B, 3, 3, heads · dim]: of q, k and v the inputs of the last 3 tokens */
	float *state;       /* [B, heads, dim, dim] */
};

struct layer_call {
	enum semantics semantics;
	int64_t batch, tokens;
	const float *x;            /* [B, T, hidden] */
	uint16_t *out;             /* [B, T, hidden], bf16 */
	struct layer_cache *cache; /* read and written; NULL: neither */
};

/* On the CPU. Memory beyond x and out is bounded, whatever T: the sequence is worked off in segments.
 * STATUS_ENVIRONMENT without memory or OpenBLAS, STATUS_INTERRUPTED when the user asked to stop. */
int layer_cpu(const struct layer *layer, const struct layer_call *call, struct error *err);

/* In double precision, nothing rounded but q, k and v, to fp32. `out`: [B, T, hidden]; `call->out` is not
 * used, `call->cache` has to be NULL. */
int layer_reference(const struct layer *layer, const struct layer_call *call, double *out, struct error *err);
