/* generate: documents made from the command table. */
#pragma once

#include "cli/command.h"

/* Writes DIRECTORY/quasar.1 and a page for each command below `command`, whose full name is `path`. */
int generate_man(const struct command *command, const char *path, const char *directory, struct error *err);

/* What makes a shell ("bash", "zsh", "fish") ask for completions; NULL: not known. */
const char *generate_completion(const char *shell);
