/* tune: what was asked for, and the forms in which it is told. */
#pragma once

#include "cli/command.h"
#include "gpu/models.h"
#include "op/family.h"
#include "tune/search.h"
#include "tune/tuning.h"

#define TUNE_WORKER "worker" /* `quasar tune worker` tries candidates, for the tuning that starts it */

enum { TUNE_MOST_DEVICES = 16 };

/* Two parameters that heat maps are drawn over; names NULL: those that have the most values. */
struct tune_axes {
	const char *names[2];
	char texts[2][64];
};

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
	struct tune_axes axes;
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

/* What --axes names. STATUS_USAGE. */
int tune_read_axes(const struct invocation *invocation, struct tune_axes *axes, struct error *err);

/* Takes a document of tuning_document(): prints it with --json, and makes a page of it with --report. */
int tune_publish(const struct tune_request *request, cJSON *document, struct error *err);

/* The page that --report wants, of these; nothing without. */
int tune_write_page(const struct tune_request *request, const struct tuning_list *tunings, struct error *err);

/* Rows as a table for each kernel, of at most `most` of them. */
void tune_print_table(const struct tune_row *rows, size_t count, size_t most);

/* A heat map and bars of the fastest. */
void tune_draw(const struct tuning *tuning, const char *const axes[2]);

/* Predicts for a GPU that is not here, by its name, and prints what comes out. */
int tune_predict(const struct tune_request *request, const char *gpu, struct error *err);
