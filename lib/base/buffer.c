#include "base/buffer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

static void reserve(struct buffer *buffer, size_t extra)
{
	size_t need = buffer->length + extra + 1;

	if (need <= buffer->capacity)
		return;
	buffer->capacity = need < 2 * buffer->capacity ? 2 * buffer->capacity : need + 64;
	buffer->data = xrealloc(buffer->data, buffer->capacity);
}

void buffer_append(struct buffer *buffer, const void *data, size_t length)
{
	reserve(buffer, length);
	if (length)
		memcpy(buffer->data + buffer->length, data, length);
	buffer->length += length;
	buffer->data[buffer->length] = '\0';
}

void buffer_text(struct buffer *buffer, const char *text)
{
	buffer_append(buffer, text, strlen(text));
}

void buffer_printf(struct buffer *buffer, const char *format, ...)
{
	va_list args, again;
	int length;

	va_start(args, format);
	va_copy(again, args);
	length = vsnprintf(NULL, 0, format, args);
	va_end(args);
	if (length > 0) {
		reserve(buffer, (size_t)length);
		vsnprintf(buffer->data + buffer->length, (size_t)length + 1, format, again);
		buffer->length += (size_t)length;
	}
	va_end(again);
}

void buffer_free(struct buffer *buffer)
{
	free(buffer->data);
	*buffer = (struct buffer){0};
}
