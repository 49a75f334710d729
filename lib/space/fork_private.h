/* fork_private: what the files of the fork module share. */
#pragma once

#include "space/fork.h"

enum scheme { SCHEME_HTTPS, SCHEME_HTTP, SCHEME_SSH, SCHEME_FILE, SCHEME_PATH, SCHEME_UNKNOWN };

enum scheme url_scheme(const char *url);

/* Turns libgit2's last error into ours: "cannot ATTEMPT ON: reason". Returns -1. */
int git_failed(int code, const char *attempt, const char *on, struct error *err);

/* ".fork.unfinished" beside "fork": where a directory grows until it is whole. The caller frees. */
char *unfinished_name(const char *path);
