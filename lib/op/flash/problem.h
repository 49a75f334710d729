/* problem: softmax attention and its gradient, computed as FlashAttention-2 does: what is asked for.
 *
 *     S = scale · Q Kᵀ, and where causal −∞ for keys behind the query      P = softmax of S's rows
 *     O = P V        lse = log Σ exp of S's rows
 *     D = rowsum(dO ∘ O)      dS = P ∘ (dO Vᵀ − D)
 *     dQ = scale · dS K       dK = scale · dSᵀ Q       dV = Pᵀ dO
 * Dao, "FlashAttention-2" (2023), section 2.1 and 2.3: P is never stored, but made again from lse.
 *
 * q, o, dO, dQ: [B, T, H, S]; k, v, dK, dV: [B, T, G, S], where each of G key heads serves H / G heads in a row;
 * lse: [B, H, T], fp32, contiguous. */
#pragma once

#include <stdbool.h>

#include "tensor/tensor.h"

struct flash_problem {
	bool causal;
	float scale; /* positive; usually 1 / √S */
	int64_t batch, tokens;
	int heads, key_heads, dim; /* heads a multiple of key_heads; dim (S): 32, 64 or 128 */
	struct tensor q, k, v, o;  /* any strides, each of any type */
	float *lse;                /* of the forward: NULL: not wanted */
	/* Packed sequences: sequence i of batch 0 (the only one) is tokens cu_seqlens[i] … cu_seqlens[i + 1] − 1, and
	 * sees nothing of the others. [sequences + 1], in the host's memory; who only asks how it would be computed may
	 * leave it out. */
	const int32_t *cu_seqlens;
	int sequences;                 /* 0: each batch is one */
	struct tensor d_o, dq, dk, dv; /* of the gradient, which reads o and lse too */
};

/* Tokens that attend to each other. */
struct flash_sequence {
	int64_t batch, first, tokens;
};
int64_t flash_sequences(const struct flash_problem *problem);
struct flash_sequence flash_sequence(const struct flash_problem *problem, int64_t number);
/* Of the longest one. */
int64_t flash_longest(const struct flash_problem *problem);

/* Where the numbers of a head and token are in lse. */
static inline int64_t flash_lse_index(
	const struct flash_problem *problem, int64_t batch, int head, int64_t token)
{
	return (batch * problem->heads + head) * problem->tokens + token;
}

/* Pairs of a query and a key that it sees, of all sequences and one head. */
double flash_pairs(const struct flash_problem *problem);

/* Say what is wrong with a problem, if anything: sizes, missing pointers, an output whose elements overlap each other
 * or another tensor. Every implementation calls its own first. STATUS_USAGE. */
int flash_check(const struct flash_problem *problem, struct error *err);
int flash_check_gradient(const struct flash_problem *problem, struct error *err);
/* The part of both that looks at no memory. */
int flash_check_shape(const struct flash_problem *problem, struct error *err);

/* In double precision, written as the formulas stand; no tensor of the problem is written. Results are contiguous, in
 * the host's memory; NULL: not wanted. STATUS_ENVIRONMENT without memory. The gradient is that of the exact O, which
 * is computed again: o and lse of the problem are not read. STATUS_INTERRUPTED when the user asked to stop. */
int flash_reference(const struct flash_problem *problem, double *o, double *lse, struct error *err);
int flash_reference_gradient(
	const struct flash_problem *problem, double *dq, double *dk, double *dv, struct error *err);

/* On the CPU, by blocks of 64 queries and 64 keys, all cores, in fp32; the same bits for any number of threads.
 * STATUS_ENVIRONMENT without memory, STATUS_INTERRUPTED when the user asked to stop. */
int flash_cpu(const struct flash_problem *problem, struct error *err);
int flash_cpu_gradient(const struct flash_problem *problem, struct error *err);
