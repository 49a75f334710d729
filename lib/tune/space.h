/* space: the configurations that are worth trying for a problem on a GPU. */
#pragma once

#include "op/family.h"

enum { TUNE_REASONS = 24, TUNE_REASONS_TOLD = 5 };

struct tune_space {
	struct config *configs; /* the one that is used without tuning first */
	size_t count;
	size_t excluded; /* by constraints, which so many reasons tell */
	struct tune_reason {
		char what[200];
		size_t count;
	} reasons[TUNE_REASONS];
};

/* All combinations of the parameters' values that pass the family's check. STATUS_ENVIRONMENT when none does, with
 * the constraints that are to blame. Free with tune_space_free(), also when this fails. */
int tune_space_make(const struct family *family, const struct op_problem *problem,
	const struct gpu_properties *properties, struct tune_space *space, struct error *err);
void tune_space_free(struct tune_space *space);
