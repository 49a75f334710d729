#include "base/memory.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *must(void *memory)
{
	if (!memory) {
		fputs("quasar: out of memory\n", stderr);
		abort();
	}
	return memory;
}

double memory_available(void)
{
	FILE *file = fopen("/proc/meminfo", "re");
	char line[256];
	double kib = INFINITY;

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "MemAvailable: %lf", &kib) == 1)
			break;
	if (file)
		fclose(file);
	return kib / 1024;
}

void *xmalloc(size_t size)
{
	return must(malloc(size ? size : 1));
}

void *xcalloc(size_t count, size_t size)
{
	return must(calloc(count ? count : 1, size ? size : 1));
}

void *xrealloc(void *old, size_t size)
{
	return must(realloc(old, size ? size : 1));
}

char *xstrdup(const char *text)
{
	return must(strdup(text));
}

char *xvprintf(const char *format, va_list args)
{
	char *text = NULL;

	return must(vasprintf(&text, format, args) < 0 ? NULL : text);
}

char *xprintf(const char *format, ...)
{
	char *text;
	va_list args;

	va_start(args, format);
	text = xvprintf(format, args);
	va_end(args);
	return text;
}

FILE *xmemstream(char **text, size_t *length)
{
	return must(open_memstream(text, length));
}

void xmemstream_close(FILE *stream)
{
	if (fclose(stream) < 0)
		must(NULL);
}
