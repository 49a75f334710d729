/* prefetch: rows asked for before they are needed, and outputs that no cache is to hold. */
#pragma once

#include <stdbool.h>

#include "tensor/tensor.h"

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

/* Adds `count` rows of a tensor, `step` bytes apart; tensors take turns, so they all have as many. */
static inline void prefetch_add(
	struct prefetch *prefetch, int tensor, const char *at, int64_t step, int count)
{
	prefetch->at[tensor] = at;
	prefetch->step[tensor] = step;
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

/* An output that no cache could hold is written past them: a row of one head is a few whole lines, which
 * otherwise would be read first, each from another page of memory. */
#define STREAMED_BYTES (16 << 20)

static inline bool output_is_streamed(const struct tensor *o, int64_t elements)
{
	int64_t size = (int64_t)dtype_size(o->dtype), line = 64 / size;

	return elements * size >= STREAMED_BYTES && (uintptr_t)o->data % 64 == 0 &&
		o->stride[0] % line == 0 && o->stride[1] % line == 0 && o->stride[2] % line == 0 &&
		o->stride[3] == 1;
}
