/* problem: the QuasarAttention operation, forward: what is asked for.
 *
 * q, k, v, o: [B, T, H, S]; beta: [H], fp32, positive; states: [B, H, S, S], fp32, row = key dimension,
 * column = value dimension, contiguous. The formulas and where they come from are in docs/math.md.
 *
 * Two different functions share these shapes:
 *   causal    the published recurrence, o_t = q_t S_t
 *   upstream  what the reference fork's chunk.py computes, interleaved chunks of 64 rows and all
 *
 * Causal semantics may have a gate, with which the state decays before each token:
 *     S_t = g_t (I − α_t k_tᵀ k_t) S_{t−1} + α_t k_tᵀ v_t
 * (the gated delta rule: Yang, Kautz and Hatamizadeh, Gated Delta Networks, 2024, equation 10, with this operation's α
 * for their β), and sequences that are packed one behind the other. */
#pragma once

#include <stdbool.h>

#include "kernels/quasar/layout.h" /* UPSTREAM_CHUNK, QUASAR_EPSILON */
#include "tensor/tensor.h"

enum semantics { SEMANTICS_UPSTREAM, SEMANTICS_CAUSAL };

struct quasar_problem {
	enum semantics semantics;
	int64_t batch, tokens;
	int heads, dim; /* dim (S): 32, 64 or 128 */
	struct tensor q, k, v, o;
	const float *beta;          /* [heads] */
	const float *initial_state; /* NULL: zeros */
	float *final_state;         /* NULL: not wanted; may be the same memory as initial_state */
	/* Upstream only, for a stretch of a longer sequence: [heads], the row of the flattened (token,
	 * head) rows of q, k and v at which a head's rows begin. The inputs then hold more tokens than
	 * `tokens`, all of which are readable. NULL: the whole sequence, head · padded tokens. */
	const int64_t *first_row;
	/* Causal only: log g, [B, T, H], fp32, contiguous, where the other tensors are; at most 0, −∞ forgets all.
	 * Looked at if `gated`. */
	bool gated;
	const float *log_gate;
	/* Causal only: how many sequences are packed into a batch of 1; 0: each of the batch is one, and
	 * whole. Sequence n has the tokens starts[n] … starts[n + 1] − 1, perhaps none: [sequences + 1],
	 * rising from 0 to `tokens`, where the other tensors are. The states are then [sequences, H, S,
	 * S]. */
	int64_t sequences;
	const int64_t *starts;
};

/* What there are of functions, as the table of families numbers and names them. */
enum quasar_function {
	QUASAR_UPSTREAM,
	QUASAR_CAUSAL,
	QUASAR_GATED,
	QUASAR_PACKED,
	QUASAR_PACKED_GATED,
};
#define QUASAR_DIFFERENTIABLE_FUNCTIONS "upstream", "causal"
#define QUASAR_FUNCTIONS QUASAR_DIFFERENTIABLE_FUNCTIONS, "gated", "packed", "packed-gated"

/* The name of the one that a problem asks for. */
const char *quasar_function_name(const struct quasar_problem *problem);

const char *semantics_name(enum semantics semantics); /* "upstream", "causal" */

/* Tokens rounded up to whole upstream chunks. */
int64_t upstream_padded(int64_t tokens);

/* Says what is wrong with a problem, if anything: sizes, missing pointers, an output whose elements
 * overlap each other or an input. Every implementation calls it first. STATUS_USAGE. It does not look at
 * numbers, which may be in a GPU's memory. */
int quasar_check(const struct quasar_problem *problem, struct error *err);
/* The same for an implementation that reads a chunk's rows of q before it writes those of o: o may lie where q does, if
 * each chunk's rows of both are at one place. Under causal semantics it has q's strides; under upstream semantics q is
 * whole chunks, contiguous, and in o a head's rows are one behind the other. */
int quasar_check_in_place(const struct quasar_problem *problem, struct error *err);
/* The part of it that looks at no memory: semantics and sizes. */
int quasar_check_shape(const struct quasar_problem *problem, struct error *err);

/* Where row `row` of a head's sequence is read from. Causal: token `row` of that head. Upstream: rows run
 * through the flattened (token, head) rows, so head and token both change from row to row. The token is
 * -1 for the zero rows that pad an upstream sequence. Outputs go to token `row` of `head` in both. */
struct quasar_source {
	int64_t token;
	int head;
};
struct quasar_source quasar_source(const struct quasar_problem *problem, int head, int64_t row);

/* Rows of a head's sequence: the tokens, with upstream's padding. */
int64_t quasar_rows(const struct quasar_problem *problem);

/* How many sequences there are, each with a state for each head. */
int64_t quasar_sequences(const struct quasar_problem *problem);

/* Of sequence `number`: its tokens first … end − 1 in `batch` of the tensors. Of packed ones it looks at `starts`. */
struct quasar_span {
	int64_t batch, first, end;
};
struct quasar_span quasar_span(const struct quasar_problem *problem, int64_t number);

/* Says whether `starts`, in the host's memory, are bounds of sequences. STATUS_USAGE. */
int quasar_check_starts(const struct quasar_problem *problem, struct error *err);
