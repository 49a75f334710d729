/* tune: what was asked for, and the forms in which it is told. */
#pragma once

#include "cli/command.h"
#include "op/family.h"
#include "tune/row.h"

/* Of the operation that is tuned. */
struct tune_request {
	const struct invocation *invocation;
	const struct family *family;
	enum dtype dtype;
	int options[FAMILY_OPTIONS];
	struct op_shape shape;
	uint64_t seed;
	double budget; /* seconds */
};

/* {"device", "predicted", "kernels": […]}, the rows as they stand: the best one of a kernel first. Takes `more`, an
 * object whose fields are added (NULL: none). */
void tune_print_json(
	const char *device, bool predicted, const struct tune_row *rows, size_t count, cJSON *more);

/* The same as a table, of at most `most` rows. */
void tune_print_table(const struct tune_row *rows, size_t count, size_t most);

/* Predicts for a GPU that is not here, by its name, and prints what comes out. */
int tune_predict(const struct tune_request *request, const char *gpu, struct error *err);
