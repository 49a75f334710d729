/* quasar_gradient_cuda: the gradient on a GPU. Tensors, beta and states are in the GPU's memory. Work is queued:
 * gpu_synchronize waits for it. kernels/quasar/gradient.cu explains itself. */
#pragma once

#include "gpu/gpu.h"
#include "op/config.h"
#include "op/quasar_backward/problem.h"

/* Any problem that quasar_gradient_check() accepts, in exactly this configuration, with all tensors in bf16. STATUS_USAGE
 * for what no GPU can do, STATUS_ENVIRONMENT for what this one cannot. Nothing is launched then. The workspace holds about
 * 32 KiB for each chunk at S = 64, and of long sequences parts that keep to 1 GiB. */
int quasar_gradient_cuda(struct gpu *gpu, struct gpu_workspace *workspace,
	const struct quasar_gradient *gradient, const struct config *config, struct error *err);
