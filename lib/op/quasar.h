/* quasar: the QuasarAttention operation, forward.
 *
 * q, k, v, o: [B, T, H, S]; beta: [H], fp32, positive; states: [B, H, S, S], fp32, row = key dimension,
 * column = value dimension, contiguous. The formulas and where they come from are in docs/math.md.
 *
 * Two different functions share these shapes:
 *   causal    the published recurrence, o_t = q_t S_t
 *   upstream  what the reference fork's chunk.py computes, interleaved chunks of 64 rows and all */
#pragma once

#include <stdint.h>

#include "base/error.h"

enum semantics { SEMANTICS_UPSTREAM, SEMANTICS_CAUSAL };
enum dtype { DTYPE_F32, DTYPE_BF16, DTYPE_F16 };

/* A [B, T, H, S] tensor in memory; strides count elements and may be anything that keeps distinct
 * elements apart (an output) or not even that (an input). */
struct tensor {
	void *data;
	enum dtype dtype;
	int64_t stride[4]; /* of batch, token, head, dimension */
};

struct quasar_problem {
	enum semantics semantics;
	int64_t batch, tokens;
	int heads, dim; /* dim (S): 32, 64 or 128 */
	struct tensor q, k, v, o;
	const float *beta;          /* [heads] */
	const float *initial_state; /* NULL: zeros */
	float *final_state;         /* NULL: not wanted */
};
