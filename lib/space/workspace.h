/* workspace: the directory a miner works in: .env, .quasar/ with the state store, and the fork. */
#pragma once

#include <stdbool.h>

#include "base/error.h"
#include "space/settings.h"
#include "space/store.h"

struct workspace {
	char *directory;
	struct store *store;
	char *fork_path; /* setting FORK_PATH, relative to the workspace; may not exist */
	char *fork_url;  /* setting FORK_URL, else the fork's remote "origin", without credentials; NULL: none */
};

/* True when `directory` holds a state store or, where that is gone, what else `quasar init` makes. */
bool workspace_exists(const char *directory);

/* Opens the workspace in `directory`. STATUS_ENVIRONMENT when it is none, or its store is damaged. A fork
 * that is missing is no error here. */
int workspace_open(const char *directory, const struct settings *settings, struct workspace *workspace,
	struct error *err);
void workspace_close(struct workspace *workspace);

/* The path of the fork alone, for commands that need no store. The caller frees. */
char *workspace_fork_path(const char *directory, const struct settings *settings);

/* Makes this process the only one that holds the workspace, until `*lock` is closed or the process ends;
 * needs DIRECTORY/.quasar. STATUS_ENVIRONMENT, naming the process, when another one does. */
int workspace_lock(const char *directory, int *lock, struct error *err);

/* Makes this process the only one that submits from the workspace, until `*lock` is closed or the process
 * ends: what looks for an earlier submission and then makes another one must not run twice at a time.
 * Waits up to `patience` seconds for its turn; then STATUS_ENVIRONMENT, naming the process. */
int workspace_turn(const char *directory, double patience, int *lock, struct error *err);
