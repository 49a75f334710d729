/* arguments: what the host passes to the kernels of the layer. Plain C, read by both sides. */
#pragma once

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
	void *to; /* [batch · stretches, LAYER_HISTORY + length, hidden]; zeros where there is no token */
	struct layer_segment segment;
	int hidden; /* a multiple of 8 */
};

struct layer_convolve_arguments {
	const void *projected; /* [batch · stretches, LAYER_HISTORY + length, 3 WIDTH + S] */
	const float *weight;   /* [3, 4, WIDTH], oldest tap first */
	void *q, *k, *v;       /* [batch · stretches, held, WIDTH]; zeros behind the sequence's end */
	void *narrow;          /* [batch, tokens, S] */
	struct layer_segment segment;
	int held;  /* rows of q, k and v from a stretch to the next: it may be made in pieces */
	int strip; /* rows of a thread */
};

struct layer_tile_arguments {
	const void *from; /* [3 WIDTH + S, hidden] */
	void *to;         /* as layer_project wants it */
};

struct layer_project_arguments {
	const void *x;      /* [batch, tokens, hidden] */
	const void *weight; /* made by layer_tile */
	const float *taps;  /* [3, 4, WIDTH], oldest first */
	void *q, *k, *v;    /* [sequences, length, WIDTH]; zeros behind the sequence's end */
	void *narrow;       /* [batch, tokens, S] */
	struct layer_segment segment;
	int sequences; /* batch · stretches */
};

struct layer_gate_arguments {
	const void *o; /* S elements for each row and head, so many apart: */
	long long o_row, o_head;
	void *y;                   /* [rows, heads · S] */
	const void *narrow;        /* [rows, S] */
	const void *weight, *bias; /* [heads · S, S], [heads · S] */
	const float *norm;         /* [S] */
	long long rows;
	int heads;
	float epsilon; /* of the norm */
};
