/* layout: what host and kernels of linear attention both have to know. Plain C, read by both sides; sizes are in
 * bytes but where it says otherwise. */
#pragma once

#include "common/dtype.h"

/* Feature maps. */
#define FEATURE_ELU1 0
#define FEATURE_RELU 1
#define FEATURE_SQUARED_RELU 2
#define FEATURE_EXP 3
#define FEATURE_IDENTITY 4

/* eˣ is constant from here on: sums of products of e³⁰ over any sequence are finite in fp32. */
#define FEATURE_EXP_LIMIT 30.0f

/* What a pass computes, out_i = x_i Σ y_jᵀ w_j, with K elements in x and y, V in w and out. The operation is one pass. Its
 * gradient is three: with o = n / d, n = φ(q) S, d = φ(q) · z (1 unnormalised)
 *     dn = r do,  dd = f = −r (do · o) (0 unnormalised),  r = 1 / d
 * and δ_i = [r_i do_i, f_i], ν_j = [v_j, 1],
 *
 *                     x     y     w        over j
 *     PASS_FORWARD    φ(q)  φ(k)  v        j ≤ i
 *     PASS_DQ         δ     ν     φ(k)     j ≤ i; times φ'(q)
 *     PASS_DK         ν     δ     φ(q)     j ≥ i; times φ'(k)
 *     PASS_DV         φ(k)  φ(q)  r do     j ≥ i
 *
 * The states of PASS_FORWARD and PASS_DV are the transposes of PASS_DQ's and PASS_DK's, whose sums they start from.
 * Bidirectional ones are over all j; causal ones from i on take the sequence from its end (lib/op/linear/pass.h). */
#define PASS_FORWARD 0
#define PASS_DQ 1
#define PASS_DK 2
#define PASS_DV 3

/* The pass whose linear_sum makes the states that a pass starts from: itself, or the one that has their transposes. */
#define LINEAR_SUM_PASS(pass) ((pass) == PASS_FORWARD ? PASS_DQ : (pass) == PASS_DV ? PASS_DK : (pass))

/* In which order a gradient's passes are made: r and f are PASS_DK's to make, and its state is PASS_DV's, too. */
#define LINEAR_GRADIENT_PASSES 3
#define LINEAR_GRADIENT_ORDER                                                                                \
	{                                                                                                    \
		PASS_DK, PASS_DV, PASS_DQ                                                                    \
	}

#define LINEAR_CHUNK 16 /* tokens that a warp works on at a time: the rows of an mma */

#define ELEMENT_BYTES(input) ((input) == INPUT_F32 ? 4 : 2)

/* bf16 that carry a value, as exactly as it is given. */
#define LINEAR_PLANES(input) ((input) == INPUT_BF16 ? 1 : (input) == INPUT_F16 ? 2 : 3)

/* Shared memory: for each warp its stages, of x, y and w, o, what the derivative is taken at, and
 * r and f. */
#define LINEAR_ROWS_BYTES(input, columns) (LINEAR_CHUNK * (columns)*ELEMENT_BYTES(input))
#define LINEAR_UPDATE_BYTES(input, key_dim, value_tile)                                                      \
	(LINEAR_ROWS_BYTES(input, key_dim) + LINEAR_ROWS_BYTES(input, value_tile))
#define LINEAR_NUMBERS_BYTES (2 * LINEAR_CHUNK * 4) /* r and f */
#define LINEAR_SUM_STAGE(input, key_dim, value_tile, pass, normalised)                                       \
	(LINEAR_UPDATE_BYTES(input, key_dim, value_tile) +                                                   \
		((pass) == PASS_DK && (normalised) ? LINEAR_ROWS_BYTES(input, key_dim) : 0) +                \
		((pass) == PASS_DK ? LINEAR_NUMBERS_BYTES : 0))
#define LINEAR_OUTPUT_NUMBERS(causal, pass) ((pass) == PASS_DQ || ((causal) && (pass) != PASS_FORWARD))
/* What x has room for; where there is nothing else, out passes through it. */
#define LINEAR_X_COLUMNS(key_dim, value_tile, causal, pass)                                                  \
	((causal) || (pass) == PASS_DQ || (pass) == PASS_DK || (key_dim) > (value_tile) ? (key_dim)          \
											: (value_tile))
#define LINEAR_OUTPUT_STAGE(input, key_dim, value_tile, causal, pass)                                        \
	(LINEAR_ROWS_BYTES(input, LINEAR_X_COLUMNS(key_dim, value_tile, causal, pass)) +                     \
		((causal) ? LINEAR_UPDATE_BYTES(input, key_dim, value_tile) : 0) +                           \
		((pass) == PASS_DQ || (pass) == PASS_DK ? LINEAR_ROWS_BYTES(input, value_tile) : 0) +        \
		(LINEAR_OUTPUT_NUMBERS(causal, pass) ? LINEAR_NUMBERS_BYTES : 0))

/* A warp's state, when the warps of a bidirectional block add theirs up: the matrix, then a sum for each thread. */
#define LINEAR_EXCHANGE_BYTES(key_dim, value_tile) ((key_dim) * (value_tile)*4 + 16 * (value_tile))

/* Numbers of a group's record: its state, then its sum, which is always of features. */
#define LINEAR_RECORD(key_dim, value_dim, pass)                                                              \
	((key_dim) * (value_dim) + ((pass) == PASS_FORWARD || (pass) == PASS_DV ? (key_dim) : (value_dim)))

/* Divisors below it, fp32's smallest normal number, count as zero. */
#define SMALLEST_DIVISOR 1.17549435e-38f

#define SCAN_THREADS 128
#define SCAN_AT_ONCE 32 /* loads of a thread under way */
