/* arguments: what the host passes to the kernels. Plain C, read by both sides. */
#pragma once

/* A [B, T, H, S] tensor on the device; strides count elements. */
struct device_tensor {
	void *data;
	long long stride[4]; /* of batch, token, head, dimension */
};

struct quasar_chunk_arguments {
	struct device_tensor q, k, v, o;
	const float *beta;          /* [heads] */
	const float *initial_state; /* [batch, heads, S, S], row = key; NULL: zeros */
	float *final_state;         /* the same shape; NULL: not wanted; may be initial_state */
	const long long *first_row; /* [heads]: see struct quasar_problem; NULL: the whole sequence */
	/* Between the passes: for each head and group, the group's transition (see quasar_chunk.cu) */
	void *transitions;
	int *forgotten; /* [batch * heads, groups]: 1 when a group's P vanished */
	long long tokens;
	int batch, heads;
	int chunks;           /* of a head */
	int chunks_per_group; /* the last group of a head may have fewer */
	int groups;           /* of a head */
};

struct quasar_reference_arguments {
	struct device_tensor q, k, v;
	double *o; /* [batch, tokens, heads, S] */
	const float *beta, *initial_state;
	double *final_state; /* [batch, heads, S, S]; NULL: not wanted */
	long long tokens;
	int batch, heads;
	int chunks; /* of 64 rows, of a head */
};

struct quasar_recurrent_arguments {
	struct device_tensor q, k, v, o;
	const float *beta, *initial_state;
	float *final_state;
	long long tokens;
	int batch, heads;
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

struct delay_arguments {
	unsigned long long nanoseconds;
};

/* bf16 tensors of a layer; WIDTH is heads · S.
 *
 * A layer goes through its sequence in segments. Under upstream semantics the operation's heads are the equal
 * parts of the flattened (token, head) rows, so that a segment is one stretch of tokens for each head; under
 * causal semantics it is one stretch. Stretch s of a sequence begins at token (s · padded + first) / stretches
 * and has `length` tokens; some may lie behind the sequence's end. */
struct layer_segment {
	long long tokens, padded; /* of the sequence; padded to whole chunks */
	long long first;          /* row of a head's rows, a multiple of the chunk */
	int stretches, length;
};

#define LAYER_HISTORY 3 /* tokens before a stretch that the convolutions look back at */

struct layer_gather_arguments {
	const void *from; /* [batch, tokens, hidden] */
	void *to;         /* [batch · stretches, LAYER_HISTORY + length, hidden]; zeros where there is no token */
	struct layer_segment segment;
	int hidden; /* a multiple of 8 */
};

struct layer_convolve_arguments {
	const void *projected; /* [batch · stretches, LAYER_HISTORY + length, 3 WIDTH + S] */
	const float *weight;   /* [3, 4, WIDTH], oldest tap first */
	void *q, *k, *v;       /* [batch · stretches, length, WIDTH]; zeros behind the sequence's end */
	void *narrow;          /* [batch, tokens, S] */
	struct layer_segment segment;
};

struct layer_gate_arguments {
	const void *o;             /* [rows, heads · S] */
	void *y;                   /* the same shape */
	const void *narrow;        /* [rows, S] */
	const void *weight, *bias; /* [heads · S, S], [heads · S] */
	const float *norm;         /* [S] */
	long long rows;
	int heads;
};
