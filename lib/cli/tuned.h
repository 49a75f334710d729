/* tuned: what tuning found, for those commands that bring it into a fork. */
#pragma once

#include "base/buffer.h"
#include "base/error.h"

/* Appends the text of EXPORT_TUNED_PATH, and returns how many configurations it holds. 0: none was found for this
 * version's kernels, and nothing is appended. A store that cannot be read is said in the log, and counts as empty. */
size_t command_tuned_file(struct buffer *text);
