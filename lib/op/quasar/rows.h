/* rows: walking through the rows of a head's sequence in memory. */
#pragma once

#include <stdbool.h>

#include "cpu/prefetch.h"
#include "op/quasar/problem.h"

struct rows {
	const char *at; /* the next row */
	int64_t step;   /* bytes to the one after it within a token, or, causal, to the next token's */
	int64_t wrap;   /* bytes to add where a token's last head is passed */
	int head, heads;
	int64_t left;  /* rows still to come; zeros follow them */
	int64_t ahead; /* bytes from a row to about the one a block later, for prefetching */
};

/* Rows from `first` on; those from `last` on, and those that pad an upstream sequence, are zero. `block` is how
 * many rows the caller takes at a time. */
static inline struct rows rows_begin(const struct quasar_problem *problem, const struct tensor *tensor,
	int64_t batch, int head, int64_t first, int64_t last, int block)
{
	struct quasar_source source = quasar_source(problem, head, first);
	int64_t size = (int64_t)dtype_size(tensor->dtype), token = tensor->stride[1] * size;
	struct rows rows = {.left = last - first, .heads = problem->heads, .head = source.head};

	if (source.token < 0)
		return (struct rows){0};
	rows.at = (const char *)tensor->data + source.token * token +
		(batch * tensor->stride[0] + source.head * tensor->stride[2]) * size;
	if (problem->semantics == SEMANTICS_CAUSAL) {
		rows.step = token;
		rows.ahead = token * block;
	} else {
		int64_t known = (problem->tokens - source.token) * problem->heads - source.head;

		rows.step = tensor->stride[2] * size;
		rows.wrap = token - rows.step * problem->heads;
		rows.ahead = token * block / problem->heads;
		if (!problem->first_row && rows.left > known)
			rows.left = known;
	}
	return rows;
}

/* True when the next `count` rows are all there, each `step` bytes behind the one before. */
static inline bool rows_are_even(const struct rows *rows, int count)
{
	return rows->left >= count && !rows->wrap;
}

/* The next row, or NULL for zeros. */
static inline const void *rows_next(struct rows *rows)
{
	const char *row = rows->at;

	if (rows->left <= 0)
		return NULL;
	rows->left--;
	rows->at += rows->step;
	if (rows->wrap && ++rows->head == rows->heads) {
		rows->head = 0;
		rows->at += rows->wrap;
	}
	return row;
}

/* Asks for the `count` rows of a tensor that the next block will load. */
static inline void rows_prefetch(const struct rows *rows, struct prefetch *prefetch, int tensor, int count)
{
	prefetch_add(prefetch, tensor, rows->at + rows->ahead,
		rows->wrap ? rows->step + rows->wrap / rows->heads : rows->step, count);
}
