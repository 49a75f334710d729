/* kernel: the part of attention that is compiled once for each instruction set. */
#pragma once

#include "op/flash/problem.h"

#define FLASH_BLOCK 64 /* queries, and keys, of a block */

/* FLASH_BLOCK rows of a head's sequence, fewer at its end, from `row` on. */
struct flash_block {
	struct flash_sequence sequence;
	int head; /* of the keys, where the rows are keys */
	int64_t row;
};

/* Each writes what belongs to the rows of its block, and nothing else. `d`: D, in the order of lse. */
struct flash_kernel {
	void (*forward)(const struct flash_problem *problem, const struct flash_block *queries);
	/* dQ, and `d` for the next. */
	void (*query_gradient)(
		const struct flash_problem *problem, const struct flash_block *queries, float *d);
	/* dK and dV. Reads `d` of all the sequence's queries. */
	void (*key_gradient)(
		const struct flash_problem *problem, const struct flash_block *keys, const float *d);
};

extern const struct flash_kernel flash_kernel_baseline;
#ifdef __x86_64__
extern const struct flash_kernel flash_kernel_x86_64_v3, flash_kernel_x86_64_v4;
#endif
