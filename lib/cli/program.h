/* program: how the words of a command line are read, by the program and by completion. */
#pragma once

#include "cli/command.h"
#include "space/workspace.h"

/* The first word of a command line that a shell wants completed. */
#define COMPLETE_WORD "__complete"

/* What the global options said. */
struct globals {
	bool json, help;
	const char *workspace;
};

/* The option that a word names, "--name", "--name=value" or "-n", among the command's own and the global ones;
 * NULL: none. `value`, if not NULL, points behind the '=', or is NULL itself. */
const struct opt *program_find_opt(const struct command *command, const char *word, const char **value);

/* Whether the option may stand alone. A value is then behind "=", or the next word: one of its choices or, for
 * commands without other words, anything that is no option. */
bool program_opt_is_optional(const struct opt *opt);

/* Takes the option at words[*at] and the value behind it, if it has one. */
int program_read_option(struct invocation *invocation, struct globals *globals, char **words, int count,
	int *at, struct error *err);

/* The workspace that -C or $QUASAR_WORKSPACE names, or that the current directory is in. As workspace_find(). */
int program_find_workspace(const struct globals *globals, struct workspace_place *place, struct error *err);

/* Prints what the last word may become, a line each: the word, a tab, and what it is. Where files or directories may
 * stand, the last line is ":files" or ":directories", for the shell to find them. */
void program_complete(const struct command *program, char **words, int count);
