/* cache: compiled kernels on disk, under $XDG_CACHE_HOME/quasar/kernels (~/.cache without it).
 *
 * An entry is a file named by its key. It carries its length and a hash of its content, and appears whole
 * or not at all, so processes share the folder without locks, and an entry that was torn or tampered with
 * counts as missing. When the folder outgrows its bound, the entries unused longest go. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/buffer.h"
#include "base/error.h"

#define CACHE_KEY 65 /* 64 hexadecimal digits and the zero */

/* The folder. The caller frees. */
char *cache_directory(void);

/* Makes a key of texts; ends with NULL. Where one text ends and the next begins matters. */
void cache_key(char key[CACHE_KEY], const char *const *texts);

/* Appends the entry's content to `out`; false when there is none. */
bool cache_get(const char *directory, const char *key, struct buffer *out);

/* Stores an entry, then deletes old ones until the folder holds at most `limit` bytes. Failing to is no
 * harm beyond compiling again, but is reported: STATUS_ENVIRONMENT. */
int cache_put(const char *directory, const char *key, const void *data, size_t length, size_t limit,
	struct error *err);
