/* picture: what a command draws, in a file that the option --svg names. */
#pragma once

#include "cli/command.h"
#include "web/part.h"

#define OPT_SVG(what)                                                                                        \
	{                                                                                                    \
		"svg", 0, "FILE", NULL, NULL, NULL,                                                          \
			"Draw " what " in a file, too: SVG, in light or dark colours."                       \
	}

/* Writes the pictures of a part to that file, if it is named. STATUS_ENVIRONMENT. */
int command_picture(const struct invocation *invocation, const struct part *part, struct error *err);
