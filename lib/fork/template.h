/* template: the fork that `quasar init` makes. */
#pragma once

#include <stddef.h>

#include "fork/fork.h"

/* A self-contained fork: the five target files, a layer that runs in PyTorch, a .cu, a README. */
extern const struct fork_file template_fork[];
extern const size_t template_fork_count;

/* The .cu of that fork, for a fork that has none. */
extern const struct fork_file template_cuda;
