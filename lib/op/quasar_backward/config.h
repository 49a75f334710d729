/* config: how quasar/gradient.cu goes through sequences. Nothing here asks a driver: properties may be those of a GPU that
 * is elsewhere. */
#pragma once

#include "gpu/gpu.h"
#include "op/config.h"
#include "op/quasar_backward/problem.h"

enum { GRADIENT_PART_CHUNKS, GRADIENT_CHUNKS_PER_GROUP }; /* in struct config */

#define QUASAR_GRADIENT_KERNEL "quasar_gradient" /* what configurations are stored under */
#define QUASAR_GRADIENT_SOURCE "quasar/gradient.cu"

/* Their names; ends with an entry whose name is NULL. */
extern const struct parameter quasar_gradient_parameters[];

/* Why a GPU cannot run a problem in a configuration: STATUS_USAGE for what no GPU can do, STATUS_ENVIRONMENT where its
 * shared memory does not suffice. 0: it can. The problem is one that quasar_gradient_check() accepts. */
int quasar_gradient_config_check(const struct quasar_gradient *gradient,
	const struct gpu_properties *properties, const struct config *config, struct error *err);

struct config quasar_gradient_config_default(
	const struct quasar_gradient *gradient, const struct gpu_properties *properties);

/* One that was tuned for another length, fitted to this one. */
struct config quasar_gradient_config_adopt(const struct quasar_gradient *gradient,
	const struct gpu_properties *properties, const struct config *tuned);

/* Values worth trying: of parts the usual one, which memory bounds; of groups in those of `config`, from a quarter of the
 * usual length to four times that. Ends with 0. */
void quasar_gradient_values(const struct quasar_gradient *gradient, const struct gpu_properties *properties,
	const struct config *config, int parameter, int values[CONFIG_VALUES]);

/* Chunks of each head. */
int quasar_gradient_chunks(const struct quasar_gradient *gradient);

/* The kernels for a part of so many chunks, in the order of their launches: for the state behind it, or for the
 * gradients. Returns how many. */
enum gradient_purpose { PURPOSE_STATE, PURPOSE_GRADIENTS };
int quasar_gradient_launches(const struct quasar_gradient *gradient, const struct config *config, int chunks,
	enum gradient_purpose purpose, struct config_launch launches[CONFIG_LAUNCHES]);
