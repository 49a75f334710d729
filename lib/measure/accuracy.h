/* accuracy: is what a device computes right? On random tensors (measure/fixture.h), against the fp64
 * reference.
 *
 * These checks exercise quasar's own implementation of the operation, not the Python of a fork. */
#pragma once

#include "base/check.h"
#include "measure/device.h"

struct accuracy_plan {
	enum semantics semantics;    /* of the layer */
	const struct family *family; /* the operation, and which of its functions */
	int options[FAMILY_OPTIONS];
	int64_t tokens;
	uint64_t seed;
	const char *weights;                     /* of the layer, a safetensors file; NULL: random ones */
	double repeat_cosine, repeat_difference; /* between runs: at least, at most */
	const char *suffix;                      /* of the checks' names: "" or ".65536" */
};

/* MiB that the checks take at a length, mostly for the fp64 reference of the layer. */
double accuracy_memory(int64_t tokens);

/* Add the checks op.finite, op.written, op.repeat and op.reference, or with another family's name for `op`
 * (and an output's, where it has several: flash-backward.dq.finite), and the same for `layer.`. Not
 * passing is no error; -1 is for what kept the checks from being made (memory, no OpenBLAS, interrupted). */
int accuracy_op(const struct device *device, const struct accuracy_plan *plan, struct check_list *checks,
	struct error *err);
int accuracy_layer(const struct device *device, const struct accuracy_plan *plan, struct check_list *checks,
	struct error *err);
