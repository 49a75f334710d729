/* directory: a fixture. Each test has a directory of its own, in *state. */
#pragma once

#include <stdlib.h>

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
