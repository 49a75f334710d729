/* arguments: what the host passes to the kernels of linear attention. Plain C, read by both sides. */
#pragma once

#include "common/arguments.h"

/* One pass: out_i = x_i Σ y_jᵀ w_j. The forward operation is one with x = φ(q), y = φ(k), w = v; its gradient is
 * three of them (linear/layout.h). K and V are the pass's: of x and y, and of w and out. */
struct linear_arguments {
	struct device_tensor x, y, w, out;
	struct device_tensor at; /* dq and dk: q, or k, at which the feature map's derivative is taken */
	float *divisors; /* [batch, heads, tokens], forward only; NULL: not wanted */
	/* gradients: r and f of the first row, row_step (1 or −1) from one to the next, `tokens` from head to head */
	const float *scales, *offsets;
	long long row_step;
	const float *initial_state, *initial_sum; /* [batch, heads, K, V], [batch, heads, key dimension]; NULL: zeros */
	float *final_state, *final_sum;           /* NULL: not wanted; may be the initial ones */
	float *records; /* [batch * heads, groups]: of each its state, then its sum */
	long long tokens;
	int batch, heads;
	int groups;           /* of a head */
	int chunks_per_group; /* the last group of a head may have fewer */
};

/* For each row of a gradient, as linear/rows.cu explains. */
struct linear_rows_arguments {
	struct device_tensor o, d_o;
	const float *divisors; /* [batch, heads, tokens] */
	float *scales, *offsets;
	long long tokens;
	int batch, heads;
};
