#include "fork/template.h"

#include "base/embed.h"
#include "fork_files.h" /* FORK_FILES and OPS_FILES, made by the Makefile: Python, and the kernels that it runs */

#define TAKE_IN(symbol, path, source) EMBED(symbol, source);
#define ENTRY(symbol, path, source) {path, symbol},

FORK_FILES(TAKE_IN)
OPS_FILES(TAKE_IN)

const struct fork_file template_fork[] = {FORK_FILES(ENTRY)};
const size_t template_fork_count = sizeof(template_fork) / sizeof(template_fork[0]);

const struct fork_file template_ops[] = {OPS_FILES(ENTRY)};
const size_t template_ops_count = sizeof(template_ops) / sizeof(template_ops[0]);
