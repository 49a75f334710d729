/* config: how kernels/linear/attention.cu is built and launched. The `count` passes of a gradient share a
 * configuration; forward there is one. */
#pragma once

#include "gpu/gpu.h"
#include "op/config.h"
#include "op/linear/pass.h"

/* in struct config */
enum { LINEAR_VALUE_TILE, LINEAR_NUM_WARPS, LINEAR_NUM_STAGES, LINEAR_MIN_BLOCKS, LINEAR_GROUPS };

/* Their names and values; ends with an entry whose name is NULL. */
extern const struct parameter linear_parameters[];

/* Whether passes can run in a configuration on such a GPU: STATUS_USAGE for what no GPU can do, STATUS_ENVIRONMENT for
 * what this one cannot. */
int linear_config_check(const struct linear_pass *passes, int count, const struct gpu_properties *properties,
	const struct config *config, struct error *err);

/* The one that is chosen where nothing was measured. */
struct config linear_config_default(
	const struct linear_pass *passes, int count, const struct gpu_properties *properties);

/* `wanted`, its groups fitted to a pass. */
struct config linear_config_fit(const struct linear_pass *pass, const struct config *wanted);

/* Numbers of groups worth trying; ends with 0. */
void linear_groups_values(const struct linear_pass *pass, const struct gpu_properties *properties,
	const struct config *config, int values[CONFIG_VALUES]);

/* Chunks of a group; the last group may have fewer. */
int linear_chunks_per_group(const struct linear_pass *pass, const struct config *config);

enum { LINEAR_PASS_LAUNCHES = 3 }; /* at most */

/* The kernels of a pass, in the order of their launches; returns how many. */
int linear_launches(const struct linear_pass *pass, const struct config *config,
	struct config_launch launches[LINEAR_PASS_LAUNCHES]);
