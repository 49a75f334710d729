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
	char *fork_url; /* setting FORK_URL, else the fork's remote "origin", without credentials; NULL: none */
};

/* Where a command works. */
struct workspace_place {
	char *directory; /* absolute; NULL: in no workspace. The caller frees */
	bool above;      /* nobody named it: it was found above the current directory */
	struct settings *settings;
};

/* Finds the workspace: the directory `named`, else the current one or the nearest above it that is one, and
 * reads its settings. Where nobody named it, it is not trusted blindly: STATUS_ENVIRONMENT when
 * workspace_check() objects, or when the way up leads out of a git clone that is not its fork. Else errors as
 * with settings_load(). */
int workspace_find(const char *named, struct workspace_place *place, struct error *err);

/* Whether the settings and the state in `directory`, as far as they exist, are the user's own or root's: those of
 * others could have their hotkey sign for somebody else's validator. STATUS_ENVIRONMENT when they belong to
 * another user, another user can write them, or they came with a git repository. */
int workspace_check(const char *directory, struct error *err);

/* True when `directory` holds a state store or, where that is gone, what else `quasar init` makes. */
bool workspace_exists(const char *directory);

/* Opens the workspace in `directory`. STATUS_ENVIRONMENT when it is none, or its store is damaged. A fork
 * that is missing is no error here. */
int workspace_open(const char *directory, const struct settings *settings, struct workspace *workspace,
	struct error *err);
void workspace_close(struct workspace *workspace);

/* The path of the fork alone, for commands that need no store. The caller frees. */
char *workspace_fork_path(const char *directory, const struct settings *settings);

/* The image of the miner's inference server: MINER_DOCKER_IMAGE, or the usual name under DOCKER_USERNAME; NULL:
 * neither is set. The caller frees. */
char *workspace_docker_image(const struct settings *settings);

/* Makes this process the only one that holds the workspace, until `*lock` is closed or the process ends;
 * needs DIRECTORY/.quasar. STATUS_ENVIRONMENT, naming the process, when another one does. */
int workspace_lock(const char *directory, int *lock, struct error *err);

/* Makes this process the only one that submits from the workspace, until `*lock` is closed or the process
 * ends: what looks for an earlier submission and then makes another one must not run twice at a time.
 * Waits up to `patience` seconds for its turn. 1: it is still another's; STATUS_ENVIRONMENT, naming the process. */
int workspace_turn(const char *directory, double patience, int *lock, struct error *err);
