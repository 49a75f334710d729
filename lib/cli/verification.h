/* verification: the checks of `quasar verify`, for all the commands that make them. */
#pragma once

#include "api/version.h"
#include "base/check.h"
#include "cli/command.h"
#include "measure/device.h"
#include "op/family.h"
#include "probe/checks.h"
#include "probe/python.h"

#define VERIFY_TOKENS 4096 /* the length that validators' local check uses */
#define VERIFY_SECONDS 300

struct verify_request {
	const char *fork_path;
	const char *fork_url;              /* what validators will clone; NULL: not known */
	const struct api_version *version; /* of the service that it is for */
	bool foreign;                      /* the fork may be a stranger's: no Python that is in it is run */
	bool strict;                       /* the seeds' import rule fails instead of warning */
	bool submitting;    /* what validators would not see, or run, fails instead of warning */
	bool static_only;   /* stop before anything is computed */
	bool rehearsal;     /* where the fork cannot be run, quasar's own layer may stand in for it */
	int64_t tokens;     /* length for the computed checks */
	const char *device; /* NULL: as the setting says */
	uint64_t seed;      /* of the tensors; 0: a new one */
	double budget;      /* seconds, for the fork */

	/* Of the fork. */
	const enum semantics *wanted; /* the function that it has to compute; NULL: either */
	int64_t target;               /* 0: none */
	bool target_required, more_lengths;
	double measured,
		claimed; /* tokens/s, for the check "claim" of verify_run(); claimed 0: no such check */

	/* Of quasar's own code. */
	const struct family *op;     /* this operation alone; NULL: the first one, and the layer around it */
	int options[FAMILY_OPTIONS]; /* which of its functions */
	const char *weights;         /* of the layer, a safetensors file; NULL: random ones */
};

/* Adds the checks in the order of `quasar verify`: files, imports, CUDA source, git, the fork's layer, the claim.
 * Checks that do not pass are no error; -1 is for what kept them from being made. A fork that cannot be run on
 * this machine fails "fork.run", but for a rehearsal, where quasar's own layer is checked in its place and says so. */
int verify_run(const struct invocation *invocation, const struct verify_request *request,
	struct check_list *checks, struct error *err);

/* The checks of a fork, from verify_open() to verify_close(). */
struct fork_verification {
	struct python python;
	struct error missing; /* why there is none */
	struct checks_plan plan;
	struct inquiry *inquiry; /* NULL: the layer is not run */
};

/* The parts of verify_run(). Finds the miner's Python, and has it begin to import PyTorch; with request->static_only it
 * does not, and `device` is not used. No Python is no error. To be closed also when this fails. */
int verify_open(const struct invocation *invocation, const struct verify_request *request,
	const struct device *device, struct fork_verification *verification, struct error *err);
void verify_close(struct fork_verification *verification);

/* Files, imports, CUDA source and git. */
int verify_static(const struct verify_request *request, const struct fork_verification *verification,
	struct check_list *checks, struct error *err);

/* The fork's layer. With request->static_only only what needs no PyTorch. */
int verify_fork(const struct verify_request *request, const struct fork_verification *verification,
	struct check_list *checks, struct checks_found *found, struct error *err);

/* quasar's own code: the operation, its gradient and, of the first family, the layer at one length. Beyond the first length,
 * `suffix` tells the checks apart. */
int verify_native(const struct invocation *invocation, const struct verify_request *request,
	const struct device *device, const char *suffix, struct check_list *checks, struct error *err);

/* The value of a setting that is a threshold. STATUS_USAGE. */
int verify_threshold(const struct invocation *invocation, const char *name, double *value, struct error *err);

/* The name of the reference model of logit verification: what --reference or REFERENCE_MODEL says, else
 * the version's. */
const char *verify_reference(const struct invocation *invocation, const struct api_version *version);

/* Would the validator find the claim kept, if it measured the same? Tokens/s. */
void verify_claim(double measured, double claimed, struct check_list *checks);
