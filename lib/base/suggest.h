/* suggest: the name that somebody meant. */
#pragma once

#include <stddef.h>

/* Zero-initialised but for `word`; then the nearest of what was offered. */
struct suggestion {
	const char *word; /* as it was written */
	const char *name; /* NULL: nothing offered is like it */
	size_t distance;
};

/* Considers a name: it is like the word when few letters are wrong, missing, too many or swapped, or when
 * the one begins with the other. `name` stays the caller's. */
void suggestion_offer(struct suggestion *suggestion, const char *name);
