/* problem: linear attention and its gradient: what is asked for.
 *
 * With a feature map φ, S = Σ φ(k_j)ᵀ v_j and z = Σ φ(k_j), over all tokens j (bidirectional) or those up
 * to i (causal):
 *     o_i = φ(q_i) S                    unnormalised
 *     o_i = φ(q_i) S / (φ(q_i) · z)     normalised; zeros where the divisor is 0
 * Katharopoulos et al., "Transformers are RNNs" (2020), equations 4 to 9 for the causal and the
 * bidirectional form and elu(x) + 1; there is no 1/√K scale. Sums that a sequence starts from, S₀ and z₀,
 * are added to both.
 *
 * q, k: [B, T, H, K]; v, o: [B, T, H, V]; S: [B, H, K, V], z: [B, H, K], what rows are divided by: [B, H, T]; these
 * are fp32, contiguous. */
#pragma once

#include <stdbool.h>

#include "kernels/linear/layout.h"
#include "tensor/tensor.h"

enum linear_mask { LINEAR_BIDIRECTIONAL, LINEAR_CAUSAL };
enum linear_feature {
	LINEAR_ELU1 = FEATURE_ELU1,                 /* elu(x) + 1: x + 1 above 0, eˣ below */
	LINEAR_RELU = FEATURE_RELU,                 /* max(x, 0) */
	LINEAR_SQUARED_RELU = FEATURE_SQUARED_RELU, /* max(x, 0)² */
	LINEAR_EXP = FEATURE_EXP,           /* eˣ up to x = FEATURE_EXP_LIMIT, constant from there on */
	LINEAR_IDENTITY = FEATURE_IDENTITY, /* x */
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
	float *divisor;                 /* what each row was divided by, 1 unnormalised; NULL: not wanted */
};

/* The gradient of a loss with respect to q, k, v, S₀ and z₀, from that with respect to o and the final sums. */
struct linear_gradient {
	struct linear_problem problem; /* o and divisor as it made them; its final sums are not used */
	struct tensor d_o;             /* [B, T, H, V] */
	const float *d_final_state, *d_final_sum; /* NULL: zeros */
	struct tensor d_q, d_k, d_v;              /* as q, k and v */
	float *d_initial_state, *d_initial_sum;   /* NULL: not wanted */
};

/* Says what is wrong with a problem, if anything: sizes, missing pointers, an output whose elements overlap
 * each other or an input. Every implementation calls it first. STATUS_USAGE. */
int linear_check(const struct linear_problem *problem, struct error *err);
int linear_check_shape(
	const struct linear_problem *problem, struct error *err); /* whatever its tensors are */
int linear_gradient_check(const struct linear_gradient *gradient, struct error *err);

/* In double precision, written as the formulas stand; o and final_* of the problem are not touched. `o`:
 * [B, T, H, V], `final_state`: [B, H, K, V] or NULL, `final_sum`: [B, H, K] or NULL; contiguous, the host's
 * memory. `divisor`: [B, H, T] or NULL. STATUS_ENVIRONMENT without memory. */
int linear_reference(const struct linear_problem *problem, double *o, double *final_state, double *final_sum,
	double *divisor, struct error *err);

/* The same for a gradient, from q, k and v alone: o and divisor are not read. Any result may be NULL. */
struct linear_gradient_results {
	double *d_q, *d_k, *d_v, *d_initial_state, *d_initial_sum;
};
int linear_gradient_reference(const struct linear_gradient *gradient,
	const struct linear_gradient_results *results, struct error *err);

/* On the CPU, by blocks of rows, all cores; fp32, z in fp64 (what it is divided by may nearly cancel).
 * STATUS_ENVIRONMENT without memory. */
int linear_cpu(const struct linear_problem *problem, struct error *err);
int linear_gradient_cpu(const struct linear_gradient *gradient, struct error *err);
