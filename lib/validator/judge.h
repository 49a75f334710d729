/* judge: what a validator makes of a submission: clone, import check, benchmark, score. */
#pragma once

#include <stdbool.h>

#include "api/client.h"
#include "base/check.h"
#include "fork/fork.h"
#include "measure/measure.h"

#define JUDGE_LENGTHS 16

struct judge {
	struct device device;
	bool local_forks; /* clone file:// and plain paths, too */
	enum fork_reach reach;
	double budget;        /* seconds for a submission's benchmark */
	check_report *report; /* called with every check as it is made; NULL: nothing is */
	/* measure_run, or what also shows its progress */
	int (*measure)(const struct device *device, const struct measure_plan *plan,
		struct measurement *measurement, struct error *err);
};

struct verdict {
	/* "clone"; those of inspect_fork; "benchmark"; "claim"; it ends with the first that fails */
	struct check_list checks;
	struct {
		int64_t tokens;
		struct measurement measurement;
	} benchmarks[JUDGE_LENGTHS];
	int benchmark_count;
	bool invalid;       /* the fork is not what a fork has to be: nothing was measured */
	const char *reason; /* why the score is 0, else NULL; belongs to `checks` */
	double score;
};

/* What a validator is told of a verdict: the score within 0 … 1. */
double verdict_normalised(const struct verdict *verdict);

/* Judges a revealed submission. A bad submission is no error: it gets the score 0 and a reason. -1 is for
 * what kept this machine from judging. The clone lies in a temporary directory and is gone on return. */
int judge_submission(const struct judge *judge, const struct api_submission *submission,
	struct verdict *verdict, struct error *err);

void verdict_free(struct verdict *verdict);
