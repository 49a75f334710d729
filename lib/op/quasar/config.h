/* config: how quasar/chunk.cu is built and cut up: candidates, what is wrong with one, and the choice among
 * them. Nothing here asks a driver: properties may be those of a GPU that is elsewhere. */
#pragma once

#include "gpu/gpu.h"
#include "op/config.h"
#include "op/quasar/problem.h"

enum {
	QUASAR_CHUNK,
	QUASAR_NUM_STAGES,
	QUASAR_MIN_BLOCKS,
	QUASAR_PRODUCT_WARPS,
	QUASAR_NUM_LAUNCHES,
	QUASAR_GROUPS
}; /* in struct config */

#define QUASAR_TUNED_KERNEL "quasar_chunk" /* what configurations are stored under */

#define QUASAR_SOURCE "quasar/chunk.cu"

/* Their names and values; ends with an entry whose name is NULL. */
extern const struct parameter quasar_parameters[];

/* Why a GPU cannot run a problem in a configuration: STATUS_USAGE for a value that the kernel does not
 * have, for groups that the chunks of a head cannot be cut into, STATUS_ENVIRONMENT where its shared memory
 * does not suffice. 0: it can. The problem is one that quasar_check accepts. */
int quasar_config_check(const struct quasar_problem *problem, const struct gpu_properties *properties,
	const struct config *config, struct error *err);

/* Whether MIN_BLOCKS blocks have enough shared memory: where they do not, registers are left for blocks
 * that never come. STATUS_USAGE. */
int quasar_config_worthwhile(const struct quasar_problem *problem, const struct gpu_properties *properties,
	const struct config *config, struct error *err);

/* The one that is thought fastest. Where none can run, one that needs least; quasar_config_check() says
 * why. */
struct config quasar_config_default(
	const struct quasar_problem *problem, const struct gpu_properties *properties);

/* One that tuning found for a problem of this shape class (op/tuned.h), with the groups that this one can be cut into;
 * the default where it cannot be used. */
struct config quasar_config_adopt(const struct quasar_problem *problem,
	const struct gpu_properties *properties, const struct config *tuned);

/* Whether the rows of a tensor's [T, H] are evenly spaced. */
bool quasar_is_compact(const struct quasar_problem *problem, const struct tensor *tensor);

/* The kernels of a call in a configuration, in the order of their launches; returns how many. */
int quasar_launches(const struct quasar_problem *problem, const struct config *config,
	struct config_launch launches[CONFIG_LAUNCHES]);

/* Numbers of groups worth trying, with the other parameters as they are: as many as fill the
 * multiprocessors with 1 to 4 blocks each, half of these, and one. Ends with 0. */
void quasar_groups_values(const struct quasar_problem *problem, const struct gpu_properties *properties,
	const struct config *config, int values[CONFIG_VALUES]);

/* How many parts of so many tokens the heads' sequences are cut into, the last ones counted or not. Of packed sequences the
 * lengths are not known here: as many as there can be (find_share in kernels/quasar/share.cuh). */
int64_t quasar_parts(const struct quasar_problem *problem, int64_t tokens, bool last_too);

/* Chunks of a head, and how many of them the groups have; the last group may have fewer. */
int quasar_chunks(const struct quasar_problem *problem, const struct config *config);
int quasar_chunks_per_group(const struct quasar_problem *problem, const struct config *config);
