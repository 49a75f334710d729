/* container: a miner's image at work, as validators run it. */
#pragma once

#include <stdbool.h>

#include "base/error.h"

struct container {
	const char *tool;
	char *name;          /* that it has with the tool; NULL: none runs */
	char *url;           /* of the server in it, "http://127.0.0.1:40123" */
	struct relay *relay; /* to one without network; else NULL */
};

enum container_rights {
	CONTAINER_GPU = 1, /* one GPU */
	/* A stranger's: it has no network, gains no rights, and starts 512 processes at most. Needs root. */
	CONTAINER_APART = 2,
};

/* Starts the image with what validators grant it: port 8000, 16 GB, a root that it cannot write, a /tmp in memory,
 * DEVICE in its environment. It can be reached from this machine alone. STATUS_FAILED with the tool's words when the
 * image does not start, STATUS_ENVIRONMENT when the tool cannot make such a container. */
int container_start(
	const char *tool, const char *reference, int rights, struct container *container, struct error *err);

/* The last line that it has said; "" when there is none. The caller frees. */
char *container_last_words(const struct container *container);

/* Ends and removes it. Does nothing when there is none. */
void container_end(struct container *container);
