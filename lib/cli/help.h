/* help: usage and --help, from the command table, and what the other documents made from it share. */
#pragma once

#include <stdio.h>

#include "cli/command.h"

/* `path` is the full name, "quasar wallet new". */
void help_usage(FILE *out, const char *path, const struct command *command);
void help_full(FILE *out, const char *path, const struct command *command);
/* "quasar wallet new [OPTION]... NAME", without a newline. */
void help_synopsis(FILE *out, const char *path, const struct command *command);

/* Options that every command has; ends with an entry whose name is NULL. */
extern const struct opt global_opts[];

/* All exit codes; ends with an entry whose meaning is NULL. */
struct exit_code {
	enum status status;
	const char *meaning;
};
extern const struct exit_code help_exit_codes[];
bool help_may_end_with(const struct command *command, enum status status);

/* The value an option has when nothing sets it; NULL: none, or one that is not shown. */
const char *help_default(const struct opt *opt);
