/* verification: the logits of submissions, by a server that stands in for their images. */
#pragma once

#include "cli/command.h"
#include "logits/check.h"
#include "validator/docket.h"

struct verification {
	struct logits_plan plan;
	char *url; /* NULL: there is no such server */
};

/* By the options --inference and --reference, with the reference on `device`. To be closed in any case. */
int verification_open(const struct invocation *invocation, const char *device,
	struct verification *verification, struct error *err);
void verification_close(struct verification *verification);

/* Challenges the server, and adds the checks to the verdict: one that fails makes its score 0. -1: what kept this machine
 * from judging. */
int verification_run(const struct verification *verification, struct verdict *verdict,
	struct docket_logits *logits, struct error *err);
