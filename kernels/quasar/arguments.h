/* arguments: what the host passes to the kernels of the operation. Plain C, read by both sides. */
#pragma once

#include "common/arguments.h"

struct quasar_chunk_arguments {
	struct device_tensor q, k, v, o;
	const float *beta;          /* [heads] */
	const float *initial_state; /* [batch, heads, S, S], row = key; NULL: zeros */
	float *final_state;         /* the same shape; NULL: not wanted; may be initial_state */
	const long long *first_row; /* [heads]: see struct quasar_problem; NULL: the whole sequence */
	/* Between the passes: for each head and group, the group's transition (see block.cuh) */
	void *inverses; /* with three launches: [batch * heads, chunks], T of each, as a tile */
	void *transitions;
	int *forgotten; /* [batch * heads, groups]: 1 when a group's P vanished */
	long long tokens;
	int batch, heads;
	int chunks;            /* of a head */
	int chunks_per_group;  /* the last group of a head may have fewer */
	int groups;            /* of a head */
	const float *log_gate; /* GATED: [batch, tokens, heads] */
	const long long *
		starts; /* PACKED: [sequences + 1]; chunks and groups then are those of one sequence of all tokens */
	int sequences;
};

/* Of a part of each head's chunks, and the gradient of what these did. */
struct quasar_gradient_arguments {
	/* The operation: its q, k, v, beta, first_row, tokens, batch, heads and chunks; chunks_per_group and groups are of
	 * the part; initial_state is the state before the part. final_state, the one behind it, is asked for where states are
	 * all that is made, and nowhere else. The rest is not read. */
	struct quasar_chunk_arguments of;
	struct device_tensor output_gradient, q_gradient, k_gradient, v_gradient;
	const float *final_gradient; /* of the state behind the part, [batch, heads, S, S]; NULL: zeros */
	float *initial_gradient;     /* of the state before it; NULL: not wanted */
	float *beta_terms;           /* [batch * heads, of.chunks], which sum up to it */
	float *beta_gradient;        /* [heads] */
	void *working; /* GRADIENT_WORKING_BYTES() of the part's chunks and groups of all heads */
	int first_chunk, part_chunks;
};

struct quasar_reference_arguments {
	struct device_tensor q, k, v;
	double *o; /* [batch, tokens, heads, S] */
	const float *beta, *initial_state;
	double *final_state; /* [batch, heads, S, S]; NULL: not wanted */
	long long tokens;
	int batch, heads;
	int chunks; /* of 64 rows, of a head */
	const float *log_gate;
	const long long *starts; /* PACKED; and so the states are of each sequence */
};

struct quasar_recurrent_arguments {
	struct device_tensor q, k, v, o;
	const float *beta, *initial_state;
	float *final_state;
	long long tokens;
	int batch, heads;
	const float *log_gate;
	const long long *starts;
	/* CACHED: see struct quasar_cache; its states are both the initial and the final ones */
	const int *slots, *accepted;
	int width;
};

struct quasar_gate_arguments {
	struct device_tensor k;
	const float *beta;
	float *alpha; /* [batch, tokens, heads] */
	long long tokens;
	int batch, heads;
};

struct forward_substitution_arguments {
	const float *lower;
	float *inverse; /* both [count, SIZE, SIZE] */
};
