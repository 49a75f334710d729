/* template: the fork that `quasar init` makes. */
#pragma once

#include <stddef.h>

#include "fork/fork.h"

/* A self-contained fork: the operation with its kernels, the layer, what they need of the rest of fla, a README. */
extern const struct fork_file template_fork[];
extern const size_t template_fork_count;
