/* secret: what a person types, or a file holds, that nobody else may see. It lies in locked memory
 * (sodium_malloc), is followed by a zero byte, and is wiped by sodium_free. */
#pragma once

#include <stddef.h>

#include "base/error.h"

/* From now on this process leaves no core dump, and other processes of the user cannot look into its memory
 * or its environment. Called by whoever lets a secret in; again is no harm. */
void secret_guard_process(void);

/* Zeroed memory, in a process that is guarded then. Ends the process when there is none, like xmalloc. */
void *secret_alloc(size_t size);

/* Asks on the terminal itself, whatever stdin and stdout are, and reads a line without echo. Spaces around
 * the answer are dropped. NULL with STATUS_ENVIRONMENT when there is no terminal, STATUS_INTERRUPTED when
 * the user gave up. */
char *secret_ask(const char *prompt, struct error *err);

/* Reads `fd` to its end, at most `limit` bytes. `name` stands for it in errors. */
char *secret_read(int fd, const char *name, size_t limit, size_t *length, struct error *err);
