/* bench: what was asked for, what came of it, and the forms in which it is told. */
#pragma once

#include "cli/device.h"
#include "cli/python.h"
#include "cli/table.h"
#include "fork/fork.h"
#include "space/benchmarks.h"
#include "space/workspace.h"

#define MOST_LENGTHS 32

enum format { FORMAT_TEXT, FORMAT_JSON, FORMAT_CSV, FORMAT_MARKDOWN };

struct result {
	struct measurement measurement;
	struct sample sample;          /* seconds of a call: in each run or, of the fork, in each round */
	struct benchmark benchmark;    /* what is stored of it */
	struct benchmark_list earlier; /* with --compare: the same on this device, the newest first */
};

struct run {
	struct invocation *invocation;
	enum format format;
	bool of_fork;             /* else the plan's workload, which is quasar's own */
	struct measure_plan plan; /* for each length anew, but for its tokens */
	struct device device;
	char workload[32];  /* "fork", "layer", "op", or for another family "op.linear" */
	char semantics[64]; /* "": the fork's affair */

	struct workspace workspace; /* store NULL: outside of a workspace, or another fork than its own */
	const char *fork_path;      /* NULL: there is none */
	struct fork_state fork;     /* as it was in the beginning; commit "": there is none */
	struct python python;       /* that runs the fork */

	int64_t lengths[MOST_LENGTHS];
	struct result results[MOST_LENGTHS];
	int count, done;
	struct table table; /* of the text */
};

/* What stands above the text, each result as it comes, and what stands below. */
void bench_print_heading(struct run *run);
void bench_print_result(struct run *run, const struct result *result);
void bench_print_end(const struct run *run);

/* bench --leaderboard. STATUS_ENVIRONMENT without a GPU. */
int bench_leaderboard(struct run *run, struct error *err);

/* bench --sweep. */
int bench_sweep(struct run *run, struct error *err);

/* All results, in another form than text. */
void bench_print_all(const struct run *run);
