/* verify: the checks of `quasar verify`, for the commands that submit. */
#pragma once

#include "base/check.h"
#include "command.h"
#include "op/family.h"

#define VERIFY_TOKENS 4096 /* the length that validators' local check uses */

struct verify_request {
	const char *fork_path;
	const char *fork_url;     /* what validators will clone; NULL: not known */
	bool strict;              /* the seeds' import rule fails instead of warning */
	bool submitting;          /* what validators would not see fails instead of warning */
	bool static_only;         /* stop before anything is computed */
	const struct family *op;  /* this operation alone; NULL: the first one, and the layer around it */
	int options[FAMILY_OPTIONS]; /* which of its functions */
	int64_t tokens;           /* length for the computed checks */
	const char *device;       /* NULL: as the setting says */
	uint64_t seed;            /* of the tensors; 0: a new one */
	const char *weights;      /* of the layer, a safetensors file; NULL: random ones */
	double measured, claimed; /* tokens/s, for the check "claim"; claimed 0: no such check */
};

/* Adds the checks in the order of `quasar verify`: files, imports, CUDA source, git, the operation, the
 * layer, the claim. Checks that do not pass are no error; -1 is for what kept them from being made. */
int verify_run(const struct invocation *invocation, const struct verify_request *request,
	struct check_list *checks, struct error *err);

/* For check_list.report: a line a check on stdout; or, for commands whose output is something else, on
 * stderr and only for those that do not pass. */
check_report verify_report, verify_report_problem;
