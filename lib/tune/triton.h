/* triton: the configurations of a fork's Triton kernel as candidates of a search: those that it declares,
 * and a wider space around them. What a kernel is comes from the fork's own process (lib/probe), and is
 * hostile. */
#pragma once

#include <cjson/cJSON.h>

#include "op/config.h"

#define TRITON_NAME 192

/* Registers of a thread without a bound: as many as there can be. */
#define TRITON_NO_BOUND 255

struct triton_kernel {
	char name[TRITON_NAME]; /* "fla/ops/quasar/chunk.py:kernel" */
	char parameter_names[CONFIG_PARAMETERS][32];
	struct parameter
		parameters[CONFIG_PARAMETERS + 1]; /* of its own first, then num_warps, num_stages, maxnreg */
	int own_count;
	int num_ctas; /* the same for all */
	struct config
		*configs; /* the one that was chosen first, then those that are declared, then the others */
	size_t count, declared;
	cJSON *builds; /* what its configurations are compiled from; NULL: that is not known */
};

/* Reads what probe_autotuners() tells of a kernel. STATUS_FAILED for one that cannot be tuned, with the
 * reason. Free with triton_kernel_free(), also when this fails. */
int triton_kernel_read(const cJSON *item, struct triton_kernel *kernel, struct error *err);
void triton_kernel_free(struct triton_kernel *kernel);

/* A configuration as probe_configure() and triton_source_rewrite() take it; the caller deletes it. */
cJSON *triton_config_json(const struct triton_kernel *kernel, const struct config *config);

/* The name's parts: the file within the fork, with its length, and the function. */
const char *triton_function(const struct triton_kernel *kernel, size_t *path_length);

/* The program that compiles configurations ahead, for Python's -c. */
extern const char *const triton_compiler;

/* What it is asked for a configuration; NULL: there is nothing that it could be compiled from. The caller
 * deletes it. */
cJSON *triton_build_request(const struct triton_kernel *kernel, const struct config *config);
