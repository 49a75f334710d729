/* launch: what the families' GPU versions have in common: their kernels built and queued, and tensors as these take them. */
#pragma once

#include "kernels/common/arguments.h"
#include "op/config.h"
#include "tensor/tensor.h"

static inline struct device_tensor device_tensor(const struct tensor *tensor)
{
	return (struct device_tensor){
		tensor->data, {tensor->stride[0], tensor->stride[1], tensor->stride[2], tensor->stride[3]}};
}

/* The kernels of launches, built or found. STATUS_USAGE for one of too many blocks; else as gpu_kernel(). */
int launches_build(struct gpu *gpu, const struct config_launch *launches, int count,
	struct gpu_kernel *kernels[], struct error *err);

/* Queues them in their order, all with the same arguments. */
int launches_queue(struct gpu_kernel *const kernels[], const struct config_launch *launches, int count,
	const void *arguments, struct error *err);
