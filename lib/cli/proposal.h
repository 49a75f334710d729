/* proposal: what `quasar commit` and `quasar submit` are about to send, read from the fork and its benchmarks, and
 * put through every check that a validator runs. */
#pragma once

#include "base/check.h"
#include "cli/python.h"
#include "cli/session.h"
#include "fork/fork.h"
#include "space/claim.h"

struct proposal {
	struct plan plan; /* points into the rest */
	struct fork_state fork;
	const struct api_version *version; /* of the validator that it is for */
	const char *network;               /* NULL: the version does not keep them apart */
	char *docker_image;                /* NULL: none, or the version does not ask for one */
	bool by_hand;                      /* the claim is what the miner said */
	double margin;                     /* of the claim below what was measured, at least */
	bool rehearsal;                    /* command_rehearsal() */
	struct claim
		claim; /* what its benchmarks allow; the plan's is another one when it was made by hand */
};

/* Where to compete and what to claim: options of every command that submits. */
#define OPTS_CLAIM                                                                                           \
	{"seq", 's', "N", "TARGET_SEQUENCE_LENGTH", NULL, NULL,                                              \
		"Sequence length to compete at, in tokens."},                                                \
	{                                                                                                    \
		"margin", 0, "PERCENT", "CLAIM_MARGIN", NULL, NULL,                                          \
			"How far below the measured median to claim at least."                               \
	}

/* What those options say. STATUS_USAGE when it cannot be meant. */
int proposal_options(const struct invocation *invocation, int64_t *tokens, double *margin, struct error *err);

/* Fills `proposal`, for a command with OPTS_CLAIM, as the validator's version asks for, which is found out. `claim`:
 * tokens/s; 0: what was measured, less the margin, or less where claims do not rank. STATUS_ENVIRONMENT when there is
 * no fork, no URL or no benchmark of this commit, STATUS_USAGE when the validator does not take such a claim or the
 * image is none. */
int proposal_read(const struct invocation *invocation, struct session *session, double claim,
	struct proposal *proposal, struct error *err);

/* Runs the checks, those that need computing only with `compute`, and makes sure that validators can fetch the
 * commit. `report` is called with each check; may be NULL. STATUS_FAILED, with the first reason, when some fail. */
int proposal_verify(const struct invocation *invocation, const struct session *session,
	const struct proposal *proposal, bool compute, check_report *report, struct error *err);

/* Tells what may keep it from being ranked, or worse, although it can be sent. */
void proposal_concerns(const struct proposal *proposal,
	void (*tell)(const struct error *concern, void *context), void *context);

/* Fork, league and claim, for people. */
void proposal_print(const struct proposal *proposal);
void proposal_free(struct proposal *proposal);
