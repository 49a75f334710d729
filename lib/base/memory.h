/* memory: small allocations that cannot fail. Running out of memory for a few hundred bytes ends the
 * process with a message; tensors and other large blocks are allocated where they are used, with an
 * error returned. Secrets use sodium_malloc, which locks and wipes. */
#pragma once

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

/* MiB that this process could still use without swapping; infinity when the system does not say. */
double memory_available(void);

void *xmalloc(size_t size);
void *xcalloc(size_t count, size_t size);
void *xrealloc(void *old, size_t size);
char *xstrdup(const char *text);
char *xprintf(const char *format, ...) __attribute__((format(printf, 1, 2)));
char *xvprintf(const char *format, va_list args) __attribute__((format(printf, 1, 0)));

/* open_memstream() and its fclose(), after which the text is complete and the caller's to free. */
FILE *xmemstream(char **text, size_t *length);
void xmemstream_close(FILE *stream);
