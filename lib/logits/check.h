/* check: logit verification as validators do it, as a list of checks. */
#pragma once

#include "base/check.h"
#include "logits/challenge.h"

struct logits_plan {
	struct model *reference;
	const char *url; /* of the inference server that is challenged; NULL: `model` is */
	struct model *model;
	bool starting; /* the server may not listen yet */
	bool kinds[2]; /* of enum challenge_kind: which versions' challenges it gets */
	int count;     /* of each kind, 1 at least */
	uint64_t seed;
	struct challenge_limits limits;
	/* told while the reference works: tokens done, and how many there are; may be NULL */
	void (*progress)(void *context, int done, int total);
	void *context;
};

/* What validators report. */
struct logits_result {
	bool accepted;                                /* all challenges were */
	double cosine, difference, tokens_per_second; /* the worst of them; NAN: not known */
};

/* Adds the check "logits.health" for a server, then one for each challenge. One that is not passed is no
 * error; -1 is for what kept this machine from asking or judging: the reference's faults, STATUS_NETWORK
 * when nobody listens, STATUS_INTERRUPTED. */
int logits_check(const struct logits_plan *plan, struct check_list *checks, struct logits_result *result,
	struct error *err);
