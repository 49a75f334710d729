/* pass: what linear attention and its gradient are made of. kernels/linear/layout.h defines the passes:
 *
 *     out_i = x_i S_i,  S_i = S₀ + Σ y_jᵀ w_j
 *
 * over all j, or causal those up to i. A gradient that is over the rows from i on is one of the sequence from its end:
 * its tensors begin there and have negative strides. */
#pragma once

#include "op/linear/problem.h"

struct linear_pass {
	int kind; /* PASS_FORWARD … */
	bool causal, normalised;
	enum linear_feature feature;
	int64_t batch, tokens;
	int heads, key_dim, value_dim; /* of x and y; of w and out */
	struct tensor x, y, w, out;
	struct tensor at; /* PASS_DQ, PASS_DK: what the derivative of the feature map is taken at */
	struct tensor o;  /* PASS_DK */
	/* Of the first row, those of the next row_step further, those of the next head `tokens` further: what it
	 * was divided by (PASS_FORWARD: goes there; NULL: not wanted), and of a gradient r and f. */
	float *divisor, *scales, *offsets;
	int64_t row_step;
	/* As the operation's, [B, H, K, V] and [B, H, K], whatever the pass */
	const float *initial_state, *initial_sum;
	float *final_state, *final_sum;
};

/* Whether x and y have an element more than key_dim: δ and ν. The sum of a state is then Σ of y's times w. */
static inline bool pass_is_augmented(const struct linear_pass *pass)
{
	return pass->kind == PASS_DQ || pass->kind == PASS_DK;
}

/* The elements of a sequence's sum. */
static inline int pass_sums(const struct linear_pass *pass)
{
	return pass_is_augmented(pass) ? pass->value_dim : pass->kind == PASS_FORWARD ? pass->key_dim : 0;
}

/* The pass whose linear_sum makes the states that this one starts from: itself, or the one that has their
 * transposes. */
struct linear_pass linear_sum_pass(const struct linear_pass *pass);

/* The operation as the one pass that it is. */
struct linear_pass linear_forward_pass(const struct linear_problem *problem);

/* In which order they are made. */
extern const int linear_gradient_order[LINEAR_GRADIENT_PASSES];

/* `scales` and `offsets`, r and f: [B, H, T]. The final sums are PASS_DK's. */
struct linear_pass linear_gradient_pass(
	const struct linear_gradient *gradient, int kind, float *scales, float *offsets);
