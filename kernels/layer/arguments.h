/* arguments: what the host passes to the kernels of the layer. Plain C, read by both sides. */
#pragma once

/* bf16 tensors of a layer; WIDTH is heads · S. */
struct layer_narrow_arguments {
	const float *from;
	void *to;
	long long count; /* a multiple of 8 */
};

struct layer_convolve_arguments {
	const void *projected; /* [lead + rows, 3 WIDTH + S] */
	const float *weight;   /* [3, 4, WIDTH] */
	void *q, *k, *v;       /* [rows, WIDTH] */
	void *narrow;          /* [rows, S] */
	long long first;       /* row of the batch that the first one is; rows are batch · tokens */
	long long rows, tokens;
	int lead; /* rows in front that are only history */
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
