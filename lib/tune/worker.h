/* worker: a process in which candidates run, so that one that hangs or crashes takes nothing with it. It is talked with in
 * lines of JSON:
 *   {"do": "open", …}                              what the caller says, once, before all else
 *   {"do": "time", "parameters": "A=1 B=2", "runs": 10}     answer: {"seconds": [ten times], "mhz": clock; null: not known}
 *   {"do": "verify", "parameters": "A=1 B=2"}
 * and whatever else the caller asks. Any answer may be {"error": …, "status": a process's exit code, "hint": …} instead. A worker that has failed in any
 * way is ended, and another one started for the next candidate. */
#pragma once

#include <cjson/cJSON.h>

#include "base/error.h"

struct tune_worker;

struct tune_worker_options {
	const char *const *argv;               /* of the process; must outlive the worker */
	char *const *environment;              /* as process_start() takes it; may be NULL */
	const cJSON *opening;                  /* what "open" says besides; must outlive the worker */
	double opening_seconds, trial_seconds; /* after which it counts as hanging */
};

/* Nothing is started before the first request, or before it is asked for: then it opens by itself, and the
 * first request waits for that. */
struct tune_worker *tune_worker_make(const struct tune_worker_options *options);
int tune_worker_start(struct tune_worker *worker, struct error *err);
void tune_worker_free(struct tune_worker *worker); /* NULL is fine */

/* Both as struct tune_work has them: STATUS_FAILED is the candidate's fault, and the message says what
 * happened. `mhz`: the device's clock; NAN: not known. */
int tune_worker_time(struct tune_worker *worker, const char *parameters, int runs, double *seconds,
	double *mhz, struct error *err);
int tune_worker_verify(struct tune_worker *worker, const char *parameters, struct error *err);

/* Takes a request of another kind. The answer is the caller's; NULL: as above. */
cJSON *tune_worker_ask(struct tune_worker *worker, cJSON *request, struct error *err);

/* --- in the worker ------------------------------------------------------------------------------------ */

struct tune_server {
	void *context;
	int (*open)(void *context, const cJSON *opening, struct error *err);
	int (*time)(void *context, const char *parameters, int runs, double *seconds, double *mhz,
		struct error *err);
	int (*verify)(void *context, const char *parameters, struct error *err);
};

enum { TUNE_MOST_RUNS = 1000 };

/* Answers requests on stdin with lines on stdout until there are no more. */
void tune_serve(const struct tune_server *server);
