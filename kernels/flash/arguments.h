/* arguments: what the host passes to the kernels of attention. Plain C, read by both sides. */
#pragma once

#include "common/arguments.h"

/* For each query what the gradient's second pass wants to know of it. */
struct flash_statistics {
	float lse; /* times log₂ e */
	float d;   /* rowsum(dO ∘ O) */
};

struct flash_arguments {
	struct device_tensor q, k, v, o, d_o, dq, dk, dv;
	float *lse;                          /* [batch, heads, tokens]; forward: NULL: not wanted */
	struct flash_statistics *statistics; /* the same shape */
	float *dq_sums;                      /* [batch, heads, tokens, S], with ATOMICS */
	const int *cu_seqlens;               /* see struct flash_problem; NULL: each batch is a sequence */
	long long tokens;
	float scale;
	int sequences, heads, key_heads;
};
