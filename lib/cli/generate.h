/* generate: documents made from the command table. All but the man pages go to stdout. */
#pragma once

#include "cli/command.h"

/* Writes DIRECTORY/quasar.1 and a page for each command below `command`, whose full name is `path`. */
int generate_man(const struct command *command, const char *path, const char *directory, struct error *err);
void generate_bash(const struct command *program);
void generate_zsh(const struct command *program);
void generate_fish(const struct command *program);
