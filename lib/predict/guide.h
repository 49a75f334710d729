/* guide: what the miners' guide recommends for Triton kernels, for want of something better. */
#pragma once

#include "gpu/models.h"

enum { GUIDE_CONFIGS = 3 };

/* Its configurations for this GPU or the kin of it that the guide names, "BLOCK_M=128 … num_warps=8". */
const char *const *guide_configs(const struct gpu_model *gpu);
