/* arguments: what the host passes to the kernels of attention. Plain C, read by both sides. */
#pragma once

#include "common/arguments.h"

/* For each query what the gradient's second pass wants to know of it. */
struct flash_statistics {
	float lse; /* times log₂ e */
	float d;   /* rowsum(dO ∘ O) */
};

struct flash_arguments {
	/* With PRODUCT_WARPS = 4, of tensors that tiles are loaded from: five dimensions, innermost first: 64 columns; rows of a
	 * sequence; parts of 64 columns; heads; batches. With cu_seqlens there are as many rows as a box has, and the last
	 * dimension says where they are: the row before them by that many, so that a box with some rows outside ends where the
	 * sequence does. */
	struct tensor_map q_map, k_map, v_map, d_o_map;
	struct device_tensor q, k, v, o, d_o, dq, dk, dv;
	float *lse;                          /* [batch, heads, tokens]; forward: NULL: not wanted */
	struct flash_statistics *statistics; /* the same shape */
	float *dq_sums;                      /* [batch, heads, tokens, S], with ATOMICS */
	const int *cu_seqlens;               /* see struct flash_problem; NULL: each batch is a sequence */
	long long tokens;
	float scale;
	int sequences, heads, key_heads;
};
