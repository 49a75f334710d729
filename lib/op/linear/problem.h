/* problem: linear attention, forward: what is asked for.
 *
 * With a feature map φ, S = Σ φ(k_j)ᵀ v_j and z = Σ φ(k_j), over all tokens j (bidirectional) or those up
 * to i (causal):
 *     o_i = φ(q_i) S                    unnormalised
 *     o_i = φ(q_i) S / (φ(q_i) · z)     normalised; zeros where the divisor is 0
 * Katharopoulos et al., "Transformers are RNNs" (2020), equations 4 to 9 for the causal and the
 * bidirectional form and elu(x) + 1; there is no 1/√K scale. Sums that a sequence starts from, S₀ and z₀,
 * are added to both.
 *
 * q, k: [B, T, H, K]; v, o: [B, T, H, V]; S: [B, H, K, V], z: [B, H, K], fp32, contiguous. */
#pragma once

#include <stdbool.h>

#include "tensor/tensor.h"

enum linear_mask { LINEAR_BIDIRECTIONAL, LINEAR_CAUSAL };
enum linear_feature {
	LINEAR_ELU1,         /* elu(x) + 1: x + 1 above 0, eˣ below */
	LINEAR_RELU,         /* max(x, 0) */
	LINEAR_SQUARED_RELU, /* max(x, 0)² */
	LINEAR_IDENTITY,     /* x */
};

struct linear_problem {
	enum linear_mask mask;
	enum linear_feature feature;
	bool normalised;
	int64_t batch, tokens;
	int heads, key_dim, value_dim;            /* each 32, 64 or 128 */
	struct tensor q, k, v, o;                 /* any strides, each of any type */
	const float *initial_state, *initial_sum; /* S₀, z₀; NULL: zeros; both or neither where normalised */
	float *final_state, *final_sum; /* NULL: not wanted; may be the same memory as the initial ones */
};

/* Says what is wrong with a problem, if anything: sizes, missing pointers, an output whose elements overlap
 * each other or an input. Every implementation calls it first. STATUS_USAGE. */
int linear_check(const struct linear_problem *problem, struct error *err);

/* In double precision, written as the formulas stand; o and final_* of the problem are not touched. `o`:
 * [B, T, H, V], `final_state`: [B, H, K, V] or NULL, `final_sum`: [B, H, K] or NULL; contiguous, the host's
 * memory. STATUS_ENVIRONMENT without memory. */
int linear_reference(const struct linear_problem *problem, double *o, double *final_state, double *final_sum,
	struct error *err);

/* On the CPU, by blocks of rows, all cores; fp32, z in fp64 (what it is divided by may nearly cancel).
 * STATUS_ENVIRONMENT without memory. */
int linear_cpu(const struct linear_problem *problem, struct error *err);
