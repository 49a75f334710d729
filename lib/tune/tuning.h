/* tuning: what is known of a kernel's configurations on a device, in the form in which it is shown. It comes from the
 * user's store, or from the JSON that `quasar tune` prints, which is written here, too. */
#pragma once

#include "op/config.h"
#include "tune/results.h"
#include "tune/row.h"

struct tuning {
	int64_t id; /* in the user's store; 0: it is not from there */
	char device[256], kernel[128];
	char class[160]; /* of shapes, as shape_class_format() writes it; "": not known */
	bool predicted;
	double usual_ms;              /* of a call without tuning; NAN: not known, as all below */
	double bytes, operations;     /* of a call, at least */
	double bandwidth_gbs, tflops; /* of the device, by its data sheet */
	struct tune_row *rows;        /* the fastest first; there is one at least */
	size_t count;
};

struct tuning_list {
	struct tuning *items;
	size_t count;
};

/* Releases all, and leaves an empty list. */
void tuning_list_free(struct tuning_list *list);

/* --- as JSON --------------------------------------------------------------------------------------- */

/* A row as an object. */
cJSON *tuning_row_json(const struct tune_row *row);

/* {"device", "predicted", …, "kernels": […]}: the rows as they stand, the best one of a kernel first. Takes `more`, an
 * object whose fields are added. Of these "class", "untuned_ms", "bytes" and "operations" are read again. */
cJSON *tuning_document(
	const char *device, bool predicted, const struct tune_row *rows, size_t count, cJSON *more);

/* Adds what a document holds that may come from anybody: one of the above, or a file of `quasar tune
 * --export`. Rows that make no sense are left out. STATUS_USAGE for what is neither. */
int tuning_read(const cJSON *document, struct tuning_list *list, struct error *err);

/* --- from the store -------------------------------------------------------------------------------- */

/* Adds a stored result, with what was tried for it on this machine. */
int tuning_load(struct tune_store *store, const struct tune_result *result, struct tuning_list *list,
	struct error *err);

/* Adds the newest of each key in the user's store, the newest first; without a store there are none. */
int tuning_load_current(struct tuning_list *list, struct error *err);

/* Bytes and operations of a call, at least. */
struct tuning_cost {
	double bytes, operations;
};
struct tuning_cost tuning_cost_of(const struct family *family, const struct op_shape *shape, enum dtype dtype,
	const int options[FAMILY_OPTIONS]);

/* --- in pictures ----------------------------------------------------------------------------------- */

enum { TUNING_VALUES = 16 }; /* of a parameter, in a grid */

/* The best time for each pair of values of two parameters, whatever the others are. */
struct tuning_grid {
	char names[2][64]; /* of what changes from row to row, and from column to column */
	char texts[2][TUNING_VALUES][12];
	const char *labels[2][TUNING_VALUES]; /* the values, as texts, in order */
	size_t counts[2];
	double ms[TUNING_VALUES * TUNING_VALUES]; /* row after row; NAN: not tried */
};

/* Over the two parameters of these names; NULL, and where one does not vary: the two that have the most values. False
 * when fewer than two vary. The grid points into itself. */
bool tuning_grid_make(
	const struct tuning *tuning, const char *first, const char *second, struct tuning_grid *grid);

enum { TUNING_BEST = 10 };

/* The fastest few in words that fit beside a bar: the values of those parameters in which they differ, "64
 * · 2 · 49". */
struct tuning_best {
	size_t count;
	char labels[TUNING_BEST][80];
	char names[256]; /* of these parameters, in the same form; "": there is only one configuration */
};
void tuning_best_make(const struct tuning *tuning, struct tuning_best *best);
