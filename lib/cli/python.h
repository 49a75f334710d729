/* python: the Python that runs the fork, as options and settings say, and what happens without it. */
#pragma once

#include "api/client.h"
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

/* Whether submitting there is a rehearsal in which quasar's own layer stands in for the fork: the validator is on this
 * machine, and there is no Python with PyTorch that could run the fork. */
bool command_rehearsal(const struct invocation *invocation, const struct api *api, const char *fork);
