/* watch: looks at what runs in a sandbox, fifty times a second, and ends it all when it takes too much. */
#pragma once

#include <sys/types.h>

#include "base/error.h"

struct watch_bounds {
	double memory_mb; /* MiB of all its processes together; files in /tmp are bounded by its size */
	long tasks;       /* processes and threads */
};

struct watch;

/* Watches the bubblewrap that runs as `process`, a child of the caller's, and tells in the file `info` which process
 * is the sandbox's first. NULL with STATUS_ENVIRONMENT. */
struct watch *watch_start(pid_t process, int info, const struct watch_bounds *bounds, struct error *err);

/* Ends the watch when the process has ended, waits for the rest of the sandbox, and frees it. -1 when it
 * had to end what it watched: STATUS_FAILED for too many tasks or too much memory; STATUS_ENVIRONMENT when
 * this machine ran out of memory all the same, or the watch could not see. */
int watch_end(struct watch *watch, struct error *err);
