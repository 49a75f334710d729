/* cuda: attention and its gradient on a GPU of compute capability 8.0 or later, in bf16 or fp16. */
#pragma once

#include "gpu/gpu.h"
#include "op/config.h"
#include "op/flash/problem.h"

/* Queue it, in a configuration (NULL: the usual one). Tensors and lse lie in the GPU's
 * memory and are of one type. The same input gives the same bits. STATUS_USAGE for a problem that is none, or none
 * for a GPU. */
int flash_cuda(struct gpu *gpu, struct gpu_workspace *workspace, const struct flash_problem *problem,
	const struct config *config, struct error *err);
int flash_cuda_gradient(struct gpu *gpu, struct gpu_workspace *workspace, const struct flash_problem *problem,
	const struct config *config, struct error *err);
