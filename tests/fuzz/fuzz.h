/* fuzz: what the fuzz targets share. A target is one function, in libFuzzer's form, that hands bytes to the
 * program's parsers and aborts when a promise of theirs does not hold. With libFuzzer it is given new inputs
 * (`make fuzz`); with main.c, each kept input once (`make check`). */
#pragma once

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Unlike assert, there with any compiler flags. */
#define REQUIRE(condition)                                                                                   \
	do {                                                                                                 \
		if (!(condition)) {                                                                          \
			fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition);       \
			abort();                                                                             \
		}                                                                                            \
	} while (0)

/* A copy of bytes as a string, in a block of its own, so that a read past its end is seen. */
static inline char *fuzz_string(const void *data, size_t size)
{
	char *text = malloc(size + 1);

	REQUIRE(text);
	if (size)
		memcpy(text, data, size);
	text[size] = '\0';
	return text;
}

/* Takes the first line off the text, without its end; "" when nothing is left. */
static inline char *fuzz_line(char **text)
{
	char *line = *text, *end = strchr(line, '\n');

	*text = end ? end + 1 : line + strlen(line);
	if (end)
		*end = '\0';
	return line;
}
