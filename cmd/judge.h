/* judge: what a validator makes of a submission: clone, import check, benchmark, score. */
#pragma once

#include <cjson/cJSON.h>
#include <stdbool.h>

#include "api/client.h"
#include "base/check.h"
#include "measure/measure.h"
#include "space/fork.h"

#define JUDGE_LENGTHS 16

struct judge {
	struct device device;
	bool local_forks; /* clone file:// and plain paths, too */
	enum fork_reach reach;
	double budget;    /* seconds for a submission's benchmark */
	bool verbose;     /* every check is printed on stdout as it is made */
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

cJSON *verdict_json(const struct api_submission *submission, const struct verdict *verdict);
void verdict_free(struct verdict *verdict);
