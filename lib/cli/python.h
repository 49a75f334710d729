/* python: the Python that runs the fork, as options and settings say. */
#pragma once

#include "cli/command.h"
#include "probe/python.h"

#define OPT_PYTHON                                                                                           \
	{                                                                                                    \
		"python", 0, "PATH", "QUASAR_PYTHON", NULL, NULL,                                            \
			"Python that runs the fork: a program, or a virtual environment."                    \
	}

/* Finds it for a command with OPT_PYTHON. `fork`: the miner's own, or NULL. Errors and freeing as with
 * python_find(). */
int command_python(
	const struct invocation *invocation, const char *fork, struct python *python, struct error *err);

/* The same where Python helps but is not needed: that there is none is no error unless one was named. Its path is
 * NULL then. */
int command_python_if_any(
	const struct invocation *invocation, const char *fork, struct python *python, struct error *err);
