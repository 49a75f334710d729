/* container: a miner's image at work, as validators run it. */
#pragma once

#include <stdbool.h>

#include "base/error.h"

struct container {
	const char *tool;
	char *name; /* that it has with the tool; NULL: none runs */
	char *url;  /* of the server in it, "http://127.0.0.1:40123" */
};

/* Starts the image with what validators grant it: port 8000, 16 GB, a root that it cannot write, a /tmp in memory,
 * DEVICE in its environment, and with `gpu` one GPU. It can be reached from this machine alone. STATUS_FAILED with the
 * tool's words. */
int container_start(
	const char *tool, const char *reference, bool gpu, struct container *container, struct error *err);

/* The last line that it has said; "" when there is none. The caller frees. */
char *container_last_words(const struct container *container);

/* Ends and removes it. Does nothing when there is none. */
void container_end(struct container *container);
