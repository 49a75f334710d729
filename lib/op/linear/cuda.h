/* linear_cuda: linear attention and its gradient on a GPU. Tensors and sums are in the GPU's memory. Work is queued:
 * gpu_synchronize waits for it. kernels/linear explains itself. */
#pragma once

#include "gpu/gpu.h"
#include "op/config.h"
#include "op/linear/problem.h"

/* Any problem that linear_check() accepts, in exactly this configuration, with q, k, v and o of one type. STATUS_USAGE
 * for what no GPU can do, STATUS_ENVIRONMENT for what this one cannot. Nothing is launched then. The workspace holds a
 * state for each group of chunks: 17 MB for 8 heads of 64 of a long causal sequence on an H200. */
int linear_cuda(struct gpu *gpu, struct gpu_workspace *workspace, const struct linear_problem *problem,
	const struct config *config, struct error *err);

/* The same for a gradient; all tensors of one type. The workspace also holds two numbers for each row. */
int linear_gradient_cuda(struct gpu *gpu, struct gpu_workspace *workspace,
	const struct linear_gradient *gradient, const struct config *config, struct error *err);
