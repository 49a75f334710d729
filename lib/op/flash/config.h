/* config: how the kernels of attention are built: candidates, what is wrong with one, and the choice among them.
 * Nothing here asks a driver: properties may be those of a GPU that is elsewhere. */
#pragma once

#include "gpu/gpu.h"
#include "op/config.h"
#include "op/flash/problem.h"

enum {
	FLASH_BLOCK_M,
	FLASH_BLOCK_N,
	FLASH_NUM_WARPS,
	FLASH_NUM_STAGES,
	FLASH_PRODUCT_WARPS
}; /* in struct config */

/* The operation, or both passes of its gradient: what configurations are stored under, and the file. */
struct flash_kernels {
	const char *tuned, *source;
	bool gradient;
	bool no_early_end, atomics, no_wgmma; /* of op/flash/ladder.h alone */
};
#define FLASH_FORWARD "flash_forward", "flash/forward.cu"
#define FLASH_BACKWARD "flash_backward", "flash/backward.cu"
extern const struct flash_kernels flash_forward_kernels, flash_backward_kernels;

/* Their names and values; ends with an entry whose name is NULL. */
extern const struct parameter flash_parameters[];

/* Why a GPU cannot run a problem in a configuration: STATUS_USAGE for a value that the kernels do not have, for a type
 * that the GPU does not compute in, and for sums that find no room in registers; STATUS_ENVIRONMENT where shared
 * memory does not suffice. */
int flash_config_check(const struct flash_kernels *kernels, const struct flash_problem *problem,
	const struct gpu_properties *properties, const struct config *config, struct error *err);

/* The one that is thought fastest of those that the GPU can run. */
struct config flash_config_default(const struct flash_kernels *kernels, const struct flash_problem *problem,
	const struct gpu_properties *properties);

/* One that tuning found for a problem of this shape class (op/tuned.h), or the default where it cannot be used. */
struct config flash_config_adopt(const struct flash_kernels *kernels, const struct flash_problem *problem,
	const struct gpu_properties *properties, const struct config *tuned);

/* The kernels of a call, in the order of their launches; returns how many. */
int flash_launches(const struct flash_kernels *kernels, const struct flash_problem *problem,
	const struct config *config, struct config_launch launches[CONFIG_LAUNCHES]);
