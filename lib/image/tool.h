/* tool: the program that keeps containers and their images: podman, docker or buildah, whichever is here. */
#pragma once

#include <stdbool.h>

#include "base/error.h"

enum tool_task { TOOL_BUILDS, TOOL_RUNS }; /* buildah does not run servers */

/* The name of the tool to use: the one that is wanted, or, with NULL, the first that is here and works. STATUS_USAGE,
 * STATUS_ENVIRONMENT with what to do. */
const char *tool_find(const char *wanted, enum tool_task task, struct error *err);

/* Runs argv, whose first is a tool, with the user's settings and logins for such tools in its environment. What it
 * says is the caller's to free; NULL: as process_ask(). */
char *tool_ask(const char *const *argv, double seconds, struct error *err);

/* Has a tool do away with something ("image rm" is the task for an image), within so many seconds, even if the user has
 * asked to stop. Whether it could is not known. */
void tool_clear(const char *tool, const char *task, const char *what, double seconds);
