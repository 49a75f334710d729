/* decode: a function's statements to a kernel's instructions. */
#pragma once

#include "ptx.h"

/* Loads PTX: every entry becomes a kernel. STATUS_USAGE with the statement that is not understood. */
int module_load(const char *text, struct module **module, struct error *err);
void module_unload(struct module *module);
/* NULL for another name. */
struct kernel *module_kernel(const struct module *module, const char *name);
