/* python: which Python is the miner's, and what it has.
 *
 * The first of these: the one that was named, the virtual environment that is active (VIRTUAL_ENV), the .venv of the
 * workspace, the .venv of the fork, python3 in the PATH. One that was named, or whose environment is active, and
 * that does not work is an error: another one in its place would not be the one that was meant. */
#pragma once

#include <stdbool.h>

#include "base/error.h"

struct python_search {
	const char *named; /* a path, a name in the PATH or the folder of a virtual environment; NULL: none */
	const char *named_by;  /* what named it, for people: "--python" */
	const char *workspace; /* NULL: none */
	const char *fork;      /* NULL: none, or a stranger's, whose .venv is not the miner's */
};

struct python {
	char *path;          /* absolute */
	char *found_by;      /* for people: "--python", "VIRTUAL_ENV", "the workspace's .venv", …, "PATH" */
	char *version;       /* "3.11.7" */
	char *torch;         /* PyTorch's version; NULL: it has none */
	char *cuda;          /* that this PyTorch was built for; NULL: none, it runs on the CPU only */
	char **places;       /* the folders that it needs to run, absolute; ends with NULL */
	char *install;       /* the command that installs packages for it, to be followed by their names */
	char *install_torch; /* how the fork gets a Python with PyTorch, beginning with a command */
};

/* Finds it and asks it, which takes a tenth of a second. STATUS_ENVIRONMENT when there is none, or the one that
 * should be used does not run. Free with python_free, also when this fails. */
int python_find(const struct python_search *search, struct python *python, struct error *err);

/* STATUS_ENVIRONMENT, with the command that installs it, when this Python has no PyTorch. */
int python_require_torch(const struct python *python, struct error *err);

/* Whether it imports the fork's layer, which takes the seconds that PyTorch does: 0, or STATUS_ENVIRONMENT with
 * where in the fork it fails and why, and what to install if that is it. */
int python_import_layer(const struct python *python, const char *fork, struct error *err);

void python_free(struct python *python);
