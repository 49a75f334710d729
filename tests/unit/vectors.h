/* vectors: the files of tests/vectors/, read from the root of the source tree. Include after cmocka.h. */
#pragma once

#include "base/file.h"
#include "base/json.h"

#define VECTORS "tests/vectors/"

/* The document in a vector file; the test fails when it cannot be read. */
static inline cJSON *read_vectors(const char *path)
{
	struct buffer text = {0};
	struct error err = {0};
	cJSON *document;

	assert_int_equal(file_read(path, 1 << 20, &text, &err), 0);
	document = json_parse(text.data, text.length, &err);
	assert_non_null(document);
	buffer_free(&text);
	return document;
}
