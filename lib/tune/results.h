/* results: what tuning found, per user, in $XDG_CACHE_HOME/quasar/tuning.db (~/.cache without it), beside the compiled
 * kernels.
 *
 * A result belongs to a GPU by name, its driver and architecture, the kernel's source and a class of shapes; of several
 * for the same the newest one counts. Everything is durable as soon as it is known: what a full disk or an end by force
 * leaves behind can be used, and gone on with. */
#pragma once

#include <cjson/cJSON.h>

#include "base/buffer.h"
#include "op/tuned.h"
#include "tune/row.h"
#include "tune/search.h"

struct tune_key {
	char device[256]; /* as the driver names it */
	char driver[64];
	int capability; /* 90 is compute capability 9.0 */
	char kernel[128];
	char source[65]; /* hash of its source; "" in a filter: any */
	struct shape_class class;
};

struct tune_result {
	int64_t id;
	double when; /* Unix time */
	struct tune_key key;
	char parameters[256];     /* as config_format() writes them; "": nothing was found yet */
	double ms, noise;         /* of a call; how far that may be off, as a part of it; NAN: not known */
	double usual_ms;          /* of a call without tuning, taken in turns with it */
	double bytes, operations; /* of a call, at least; NAN: not known */
	int registers, shared_bytes, spills; /* as in struct tune_build */
	double occupancy;
	char limited_by[24]; /* "": not known */
	int tried, failed;   /* configurations */
	bool complete;       /* there was time for all that the strategy wanted */
	bool imported;
	bool shipped;     /* with this program: not in the store */
	char version[32]; /* of this program, that found it */
};

struct tune_result_list {
	struct tune_result *items;
	size_t count;
};

struct tune_store;

/* Opens the user's store, or makes it. A file in its place that is damaged or not ours is moved aside, and the log says
 * so. `path`: another one than the user's own; NULL: that. NULL with STATUS_ENVIRONMENT. */
struct tune_store *tune_store_open(const char *path, struct error *err);
/* Opens the user's store where there is one; else `*store` is NULL, and none is made. */
int tune_store_find(struct tune_store **store, struct error *err);
void tune_store_close(struct tune_store *store); /* NULL is fine */

/* Begins a tuning: result->key and what else is known. The id goes into result->id. */
int tune_store_begin(struct tune_store *store, struct tune_result *result, struct error *err);
/* A candidate of a tuning, over what is stored of it. */
int tune_store_trial(struct tune_store *store, int64_t id, const char *parameters,
	const struct tune_candidate *candidate, struct error *err);
/* The result as it is now, over what is stored under its id. */
int tune_store_update(struct tune_store *store, const struct tune_result *result, struct error *err);

/* The newest tuning of this key, if it is not complete; 1: there is one, 0: there is none, and `result` as it was. */
int tune_store_unfinished(
	struct tune_store *store, const struct tune_key *key, struct tune_result *result, struct error *err);
/* Hands over trials: those of a tuning (0: of none) and, whoever tried them, what has failed under this key. */
typedef void tune_trial_visit(void *context, const char *parameters, const struct tune_candidate *candidate);
int tune_store_trials(struct tune_store *store, const struct tune_key *key, int64_t id,
	tune_trial_visit *visit, void *context, struct error *err);

/* Those that found something, the newest first. `current`: only the newest of each key. */
int tune_store_list(struct tune_store *store, bool current, struct tune_result_list *list, struct error *err);
void tune_result_list_free(struct tune_result_list *list);

/* Its configuration as a row, whose texts are the result's. */
struct tune_row tune_result_row(const struct tune_result *result);

/* Forgets a tuning, or all (id 0). Returns how many, or -1. */
int64_t tune_store_forget(struct tune_store *store, int64_t id, struct error *err);

/* --- in other hands -------------------------------------------------------------------------------- */

#define TUNE_FILE_BYTES ((size_t)16 << 20)

/* The results as a file for others. */
void tune_results_write(const struct tune_result_list *list, struct buffer *out);
/* Reads such a file (NULL: it is no JSON at all), which may come from anybody. Items that are wrong are
 * left out, and `skipped` says how many; the first problem is in `problem`. STATUS_USAGE for what is no
 * such file. Free the list in any case. */
int tune_results_read(const cJSON *document, struct tune_result_list *list, size_t *skipped,
	struct error *problem, struct error *err);
/* Whether a parameter can have that name: letters, digits and "_". */
bool tune_is_name(const char *text);
/* Stores them, but for those that are there already. Returns how many were added, or -1: then none was. */
int64_t tune_store_import(struct tune_store *store, const struct tune_result_list *list, struct error *err);

/* --- in use ---------------------------------------------------------------------------------------- */

/* What identifies a family's kernels on a GPU; the class is left alone. */
void tune_key_of(const struct gpu_properties *properties, const struct family *family, struct tune_key *key);

/* Those that come with this program, from lib/tune/shipped.json, as `quasar tune --export` wrote it: for
 * the kernels as they are now, whichever driver they were found with. Free the list. */
void tune_results_shipped(struct tune_result_list *list);

/* The newest of each key in the user's store, which is not made for that, and then those that are shipped.
 * Free the list in any case; on error it has the latter. */
int tune_results_current(struct tune_result_list *list, struct error *err);

/* From now on operations on such a GPU run in the configurations that the user's store has for it, or else
 * this program. What is wrong with the store is said in the log. */
void tune_use_results(const struct gpu_properties *properties);

/* Appends the file of a fork that holds its tuned configurations: `header` up to the line "KERNELS = …",
 * then a hash of the fork's kernels and what was found for this version of ours. Returns how many; none: nothing is
 * appended. */
size_t tune_fork_file(const struct tune_result_list *list, const char *header, const char *kernels_hash,
	struct buffer *out);
