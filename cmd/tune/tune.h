/* tune: what was asked for, and the forms in which it is told. */
#pragma once

#include "cli/command.h"
#include "gpu/models.h"
#include "op/family.h"
#include "tune/row.h"
#include "tune/search.h"

#define TUNE_WORKER "worker" /* `quasar tune worker` tries candidates, for the tuning that starts it */

enum { TUNE_MOST_DEVICES = 16 };

/* Of the operation that is tuned. */
struct tune_request {
	const struct invocation *invocation;
	const struct family *family;
	enum dtype dtype;
	int options[FAMILY_OPTIONS];
	struct op_shape shape;
	uint64_t seed;
	double budget; /* seconds */
	enum tune_strategy strategy;
	int devices[TUNE_MOST_DEVICES], device_count; /* GPUs */
};

/* Tunes the operation on the GPUs, and tells and stores what came of it. */
int tune_measure(const struct tune_request *request, struct error *err);

/* Tunes the Triton kernels of the fork. */
int tune_triton(const struct tune_request *request, struct error *err);

/* Does what is asked about stored results, if anything. */
int tune_stored(const struct tune_request *request, bool *done, struct error *err);

/* --explain: why a configuration of the operation leads on a GPU (NULL: one that is not known); as text, and as fields. */
void tune_explain(
	const struct tune_request *request, const struct gpu_model *model, const struct tune_row *best);
void tune_explain_json(const struct tune_request *request, const struct gpu_model *model,
	const struct tune_row *best, cJSON *object);

/* The fork that --fork names, else the workspace's; the caller frees. NULL: there is none. */
char *tune_fork_path(const struct invocation *invocation, struct error *err);

/* Writes what is stored for these kernels into the fork. */
int tune_apply(const struct tune_request *request, struct error *err);

/* The worker: answers until it is told no more. */
void tune_work(void);

/* A row as an object. */
cJSON *tune_row_json(const struct tune_row *row);

/* {"device", "predicted", "kernels": […]}, the rows as they stand: the best one of a kernel first. Takes `more`, an
 * object whose fields are added (NULL: none). */
void tune_print_json(
	const char *device, bool predicted, const struct tune_row *rows, size_t count, cJSON *more);

/* The same as a table, of at most `most` rows. */
void tune_print_table(const struct tune_row *rows, size_t count, size_t most);

/* Predicts for a GPU that is not here, by its name, and prints what comes out. */
int tune_predict(const struct tune_request *request, const char *gpu, struct error *err);
