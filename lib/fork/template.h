/* template: the fork that `quasar init` makes, and the package quasar_ops. */
#pragma once

#include <stddef.h>

#include "fork/fork.h"

/* A self-contained fork: the operation with its kernels, the layer, what they need of the rest of fla, a README. */
extern const struct fork_file template_fork[];
extern const size_t template_fork_count;

/* quasar_ops: other operations for PyTorch, with their kernels. */
extern const struct fork_file template_ops[];
extern const size_t template_ops_count;
