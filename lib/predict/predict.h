/* predict: how fast the configurations of a kernel would be on a GPU that is not here: compiled for it, looked at, and
 * put through the model. */
#pragma once

#include "op/family.h"
#include "predict/model.h"

struct prediction {
	struct config config;
	double seconds; /* of a call */
	/* Of the launch that takes longest: */
	const char *bound;
	struct occupancy occupancy;
	int registers, shared_bytes, spilled_bytes;
};

struct predict_request {
	const struct family *family; /* that has configurations */
	const struct op_problem *problem;
	const struct gpu_model *gpu;
	const struct config *configs; /* each passes the family's check */
	size_t count;
	/* Called as configurations are compiled, by one thread at a time; may be NULL. */
	void (*progress)(void *context, size_t done, size_t total);
	void *context;
};

/* Predicts them all, on all cores, and writes those that the GPU can run into `predictions` (room for
 * `count`), the fastest first. Returns how many they are, at least one; -1 with STATUS_ENVIRONMENT without
 * a compiler that knows the GPU, or when the GPU can run none; with STATUS_INTERRUPTED when the user asked
 * to stop. What was compiled stays in the cache. */
int predict_run(const struct predict_request *request, struct prediction *predictions, struct error *err);
