/* fork_text: the text of a file in a stranger's fork. */
#pragma once

#include <stdbool.h>

#include "base/buffer.h"

struct fork_text {
	struct buffer text; /* the caller frees; empty with a fault */
	const char *fault;  /* why it cannot be read: "is missing"; NULL: it can */
	bool not_utf8;      /* which is one of the faults */
};

/* Reads a regular file of bounded size, without following links out of the fork. `root` is a real path, `path`
 * relative to it. */
void fork_text_read(const char *root, const char *path, struct fork_text *out);
