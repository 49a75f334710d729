/* rows: walking through the rows of a head's sequence in memory. */
#pragma once

#include <stdbool.h>

#include "op/quasar/problem.h"

struct rows {
	const char *at; /* the next row */
	int64_t step;   /* bytes to the one after it within a token, or, causal, to the next token's */
	int64_t wrap;   /* bytes to add where a token's last head is passed */
	int head, heads;
	int64_t left;   /* rows still to come; zeros follow them */
	int64_t ahead;  /* bytes from a row to about the one a block later, for prefetching */
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

/* An output that no cache could hold is written past them: a row of one head is a few whole lines, which
 * otherwise would be read first, each from another page of memory. */
#define STREAMED_BYTES (16 << 20)

static inline bool output_is_streamed(const struct quasar_problem *problem)
{
	const struct tensor *o = &problem->o;
	int64_t size = (int64_t)dtype_size(o->dtype), line = 64 / size;

	return problem->batch * problem->tokens * problem->heads * problem->dim * size >= STREAMED_BYTES &&
	       (uintptr_t)o->data % 64 == 0 && o->stride[0] % line == 0 && o->stride[1] % line == 0 &&
	       o->stride[2] % line == 0 && o->stride[3] == 1;
}

/* Rows that the next block will load. Asked for all at once they would keep the core waiting, as it has only
 * a dozen or so requests to memory under way; so they are asked for a few at a time between the products. */
struct prefetch {
	const char *at[3]; /* of each tensor the next row to ask for */
	int64_t step[3];
	int bytes; /* of a row */
	int next;  /* tensor */
	int left;  /* rows */
};

static inline void prefetch_begin(struct prefetch *prefetch, int bytes)
{
	*prefetch = (struct prefetch){.bytes = bytes};
}

/* Adds the next `count` rows of a tensor; tensors take turns, so they all have as many. */
static inline void prefetch_add(struct prefetch *prefetch, int tensor, const struct rows *rows, int count)
{
	prefetch->at[tensor] = rows->at + rows->ahead;
	prefetch->step[tensor] = rows->wrap ? rows->step + rows->wrap / rows->heads : rows->step;
	prefetch->left += count;
}

static inline void prefetch_rows(struct prefetch *prefetch, int count)
{
	for (; count > 0 && prefetch->left > 0; count--, prefetch->left--) {
		int tensor = prefetch->next;

		for (int at = 0; at < prefetch->bytes; at += 64)
			__builtin_prefetch(prefetch->at[tensor] + at);
		prefetch->at[tensor] += prefetch->step[tensor];
		prefetch->next = tensor == 2 ? 0 : tensor + 1;
	}
}
