/* verification: the checks of `quasar verify`, for all the commands that make them. */
#pragma once

#include "base/check.h"
#include "cli/command.h"
#include "measure/device.h"
#include "op/family.h"

#define VERIFY_TOKENS 4096 /* the length that validators' local check uses */

struct verify_request {
	const char *fork_path;
	const char *fork_url;        /* what validators will clone; NULL: not known */
	const char *python;          /* path of the Python that reads the fork's syntax; NULL: none */
	bool strict;                 /* the seeds' import rule fails instead of warning */
	bool submitting;             /* what validators would not see fails instead of warning */
	bool static_only;            /* stop before anything is computed */
	const struct family *op;     /* this operation alone; NULL: the first one, and the layer around it */
	int options[FAMILY_OPTIONS]; /* which of its functions */
	int64_t tokens;              /* length for the computed checks */
	const char *device;          /* NULL: as the setting says */
	uint64_t seed;               /* of the tensors; 0: a new one */
	const char *weights;         /* of the layer, a safetensors file; NULL: random ones */
	double measured, claimed;    /* tokens/s, for the check "claim"; claimed 0: no such check */
};

/* Adds the checks in the order of `quasar verify`: files, imports, CUDA source, git, the operation, the
 * layer, the claim. Checks that do not pass are no error; -1 is for what kept them from being made. */
int verify_run(const struct invocation *invocation, const struct verify_request *request,
	struct check_list *checks, struct error *err);

/* Its parts: files, imports, CUDA source and git. */
int verify_static(const struct verify_request *request, struct check_list *checks, struct error *err);

/* The operation and, of the first family, the layer at one length. Beyond the first length, `suffix` tells
 * the checks apart. */
int verify_computed(const struct invocation *invocation, const struct verify_request *request,
	const struct device *device, const char *suffix, struct check_list *checks, struct error *err);

/* Would the validator find the claim kept, if it measured the same? Tokens/s. */
void verify_claim(double measured, double claimed, struct check_list *checks);
