/* longest: the longest sequence that a GPU's memory holds. */
#pragma once

#include <stdint.h>

#include "gpu/models.h"

/* Tokens of the fork's layer as validators time it, batch 1; 0: not even a short one. From what it took on an H200. */
int64_t longest_sequence(const struct gpu_model *gpu);
