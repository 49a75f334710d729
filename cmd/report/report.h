/* What the parts of `quasar report` share. */
#pragma once

#include "space/claim.h"
#include "space/store.h"
#include "tune/tuning.h"
#include "web/board.h"
#include "web/part.h"

/* Everything that is reported on, read once. */
struct facts {
	const char *directory; /* the workspace's */
	const char *api_url;
	char commit[41];                    /* HEAD of the fork; "": there is none */
	int64_t tokens;                     /* target length */
	struct benchmark_list benchmarks;   /* newest first */
	struct submission_list submissions; /* oldest first, those of this validator and hotkey */
	struct journal *journals;           /* of the last of them, REPORT_WAYS at most */
	struct claim claim;
	bool asked, answered; /* the validator, and it did */
	struct board board;
	char *problem; /* why it did not; NULL: it did */
	struct tuning_list tunings;
};

/* Submissions whose steps are drawn. */
#define REPORT_WAYS 8

/* In the order of the page. */
enum report_part {
	REPORT_BENCHMARKS,
	REPORT_LENGTHS,
	REPORT_CLAIM,
	REPORT_SUBMISSIONS,
	REPORT_LEADERBOARD,
	REPORT_TUNING,
	REPORT_PARTS,
};

/* Makes one; free it with part_free. */
void report_part(const struct facts *facts, enum report_part which, struct part *part);
/* What it is asked for by: the name of the part. */
extern const char *const report_part_names[REPORT_PARTS];
