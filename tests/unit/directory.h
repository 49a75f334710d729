/* directory: a fixture. Each test has a directory of its own, in *state, to put files into. After cmocka.h. */
#pragma once

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"

static int make_directory(void **state)
{
	char template[] = "/tmp/quasar-test-XXXXXX";

	*state = mkdtemp(template) ? xstrdup(template) : NULL;
	return *state ? 0 : -1;
}

static int remove_directory(void **state)
{
	struct error err;
	int result = directory_remove(*state, &err);

	free(*state);
	return result;
}

/* Its folders are made. */
static inline void put(const char *directory, const char *name, const void *data, size_t length)
{
	char *path = path_join(directory, name), *slash = strrchr(path, '/');
	struct error err;

	*slash = '\0';
	assert_int_equal(directory_make(path, 0700, &err), 0);
	*slash = '/';
	assert_int_equal(file_write(path, data, length, 0600, FILE_REPLACE, &err), 0);
	free(path);
}

static inline void put_text(const char *directory, const char *name, const char *text)
{
	put(directory, name, text, strlen(text));
}
