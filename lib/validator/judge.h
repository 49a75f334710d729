/* judge: what a validator makes of a submission: clone, import check, benchmark of the fork's own layer, score. */
#pragma once

#include <stdbool.h>

#include "api/client.h"
#include "base/check.h"
#include "fork/fork.h"
#include "fork/inspect.h"
#include "measure/measure.h"
#include "probe/python.h"

#define JUDGE_LENGTHS 16

struct judge {
	const struct python
		*python;      /* runs the forks; NULL: quasar's own layer stands in for them, on `device` */
	struct device device; /* else only its index counts */
	bool sandboxed;
	int share;        /* how many judge side by side on this machine; 1 at least */
	bool local_forks; /* clone file:// and plain paths, too */
	enum fork_reach reach;
	enum inspect_rules rules;
	const char *
		reader; /* path of a Python that reads the syntax of forks, and runs nothing of them; NULL: none */
	double seconds; /* for a length; validators give 300 */
	/* What ranks is the speed that is measured, divided by the GPU's factor; else the claim, which it
	 * must bear out. */
	bool ranks_measured;
	double gpu_factor;
	check_report *report; /* called with every check as it is made; NULL: nothing is */
	/* measure_run, or what also shows its progress; without a Python */
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
	bool invalid; /* the fork is not what a fork has to be, or does not run at the target's length */
	const char *reason;       /* why the score is 0, else NULL; belongs to `checks` */
	double score, told_score; /* by the rule; as validators tell it, 0 … 1 */
	double tokens_per_second; /* where that ranks: as validators tell it; NAN: nothing was measured */
	char *place;              /* a temporary directory with the clone; NULL: none */
};

/* Judges a revealed submission, in two steps: clone and static checks; benchmark and score. A bad
 * submission is no error: it gets the score 0 and a reason, and the second step leaves it alone. -1 is for
 * what kept this machine from judging. The verdict is to be freed in any case, and the clone with it. The
 * second step may run in a thread of its own. */
int judge_examine(const struct judge *judge, const struct api_submission *submission, struct verdict *verdict,
	struct error *err);
int judge_measure(const struct judge *judge, const struct api_submission *submission, struct verdict *verdict,
	struct error *err);

void verdict_free(struct verdict *verdict);
