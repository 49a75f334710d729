#include "op/launch.h"

#include <limits.h>

int launches_build(struct gpu *gpu, const struct config_launch *launches, int count,
	struct gpu_kernel *kernels[], struct error *err)
{
	for (int i = 0; i < count; i++) {
		const struct config_launch *launch = &launches[i];

		if (launch->blocks > INT_MAX)
			return error_set(err, STATUS_USAGE, "the batch is too large for one call");
		kernels[i] = gpu_kernel(gpu, launch->source, launch->name, launch->parameters,
			launch->threads, launch->shared_bytes, err);
		if (!kernels[i])
			return -1;
	}
	return 0;
}

int launches_queue(struct gpu_kernel *const kernels[], const struct config_launch *launches, int count,
	const void *arguments, struct error *err)
{
	for (int i = 0; i < count; i++)
		if (gpu_launch(kernels[i], (unsigned)launches[i].blocks, 1, arguments, err) < 0)
			return -1;
	return 0;
}
