#include "fork/template.h"

#include "base/embed.h"
#include "fork_files.h" /* FORK_FILES, made by the Makefile: fork/ and the kernels that it runs */

#define TAKE_IN(symbol, path, source) EMBED(symbol, source);
#define ENTRY(symbol, path, source) {path, symbol},

FORK_FILES(TAKE_IN)
EMBED(gate, "templates/gate.cu");

const struct fork_file template_fork[] = {FORK_FILES(ENTRY)};
const size_t template_fork_count = sizeof(template_fork) / sizeof(template_fork[0]);

const struct fork_file template_cuda = {"fla/ops/quasar/gate.cu", gate};
