/* buffer: bytes that grow. Always followed by a zero byte, so that `data` reads as a string. */
#pragma once

#include <stddef.h>

struct buffer {
	char *data; /* NULL until something is added */
	size_t length, capacity;
};

void buffer_append(struct buffer *buffer, const void *data, size_t length);
void buffer_text(struct buffer *buffer, const char *text);
void buffer_printf(struct buffer *buffer, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Frees the bytes and leaves an empty buffer that can be used again. */
void buffer_free(struct buffer *buffer);
