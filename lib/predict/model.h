/* model: how long a GPU that is not here would take, from its data sheet and the machine code. */
#pragma once

#include "gpu/models.h"
#include "op/config.h"
#include "predict/cubin.h"
#include "predict/occupancy.h"

struct model_time {
	double seconds;
	const char *
		bound; /* what most of it goes to: "memory", "tensor cores", "shared memory", "instructions", "latency" */
};

/* Of a launch of the kernel; its occupancy is at least one block. */
struct model_time model_launch(const struct gpu_model *gpu, const struct config_launch *launch,
	const struct cubin_kernel *kernel, const struct occupancy *occupancy);

/* How far the times of this GPU may be off, as a part of them: two standard deviations. NAN where they were never held
 * against measured ones. */
double model_error(const struct gpu_model *gpu);
