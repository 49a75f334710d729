/* triton_source: the configurations of Triton's kernels in a fork's Python. */
#pragma once

#include <cjson/cJSON.h>

#include "base/error.h"

/* The text of a Python file with one configuration, {"kwargs", "num_warps", "num_stages", "num_ctas",
 * "maxnreg"}, in the place of those that a kernel chooses from; nothing else changes. `python`: a path.
 * The caller frees. NULL: STATUS_FAILED, with what stands in the way; STATUS_ENVIRONMENT when Python does
 * not run; STATUS_INTERRUPTED. */
char *triton_source_rewrite(
	const char *python, const char *text, const char *kernel, const cJSON *config, struct error *err);

/* What changes a file from one text to another, as `git diff` shows it; "" when nothing does. The caller frees. */
char *triton_source_diff(const char *path, const char *before, const char *after, struct error *err);
