/* verification: the logits of submissions' images, which are run here, or of a server that stands in for them. */
#pragma once

#include "cli/command.h"
#include "logits/check.h"
#include "validator/docket.h"

struct verification {
	struct logits_plan plan;
	const struct invocation *invocation;
	const char *device; /* where the reference model runs */
	char *url;          /* of the server that stands in for images; NULL: they are run */
};

/* By the options --inference and --reference. With a server, the reference model is opened at once, else when the first
 * image is to be verified. `device` must outlive it. To be closed in any case. */
int verification_open(const struct invocation *invocation, const char *device,
	struct verification *verification, struct error *err);
void verification_close(struct verification *verification);

/* Pulls and starts the submission's image, cut off from all networks, unless a server stands in for it; challenges it,
 * and adds the checks to the verdict: one that fails makes its score 0. -1: what kept this machine from judging. */
int verification_run(struct verification *verification, const struct api_submission *submission,
	struct verdict *verdict, struct docket_logits *logits, struct error *err);
