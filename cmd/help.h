/* help: everything that is made from the command table. */
#pragma once

#include <stdio.h>

#include "command.h"

/* `path` is the full name, "quasar wallet new". */
void help_usage(FILE *out, const char *path, const struct command *command);
void help_full(FILE *out, const char *path, const struct command *command);

/* Options that every command has; ends with an entry whose name is NULL. */
extern const struct opt global_opts[];

/* `quasar help [COMMAND…]` and `quasar generate man|bash|zsh|fish|env` (the latter for the build). */
extern const struct command cmd_help, cmd_generate;
