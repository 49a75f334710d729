/* arguments: what the host passes to the kernels of linear attention. Plain C, read by both sides. */
#pragma once

#include "common/arguments.h"

/* One pass of linear/layout.h. */
struct linear_arguments {
	struct device_tensor x, y, w, out;
	struct device_tensor at; /* PASS_DQ, PASS_DK: what the derivative of the feature map is taken at */
	struct device_tensor o;  /* PASS_DK: what f is made of */
	/* Of the first row, row_step (1 or −1) from one to the next, `tokens` from head to head: what it was divided by
	 * (forward: goes there; NULL: not wanted), and r and f, which PASS_DK makes and the other passes read */
	float *divisors, *scales, *offsets;
	long long row_step;
	const float *initial_state,
		*initial_sum;           /* [batch, heads, K, V], [batch, heads, key dimension]; NULL: zeros */
	float *final_state, *final_sum; /* NULL: not wanted; may be the initial ones */
	float *records;                 /* [batch * heads, groups]: of each its state, then its sum */
	long long tokens;
	int batch, heads;
	int groups;           /* of a head */
	int chunks_per_group; /* the last group of a head may have fewer */
};
