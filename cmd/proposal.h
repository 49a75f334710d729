/* proposal: what `quasar commit` and `quasar submit` are about to send, read from the fork and the latest
 * benchmark, and held against everything that a validator would object to. */
#pragma once

#include "session.h"
#include "space/fork.h"

struct proposal {
	struct plan plan; /* points into the rest */
	struct fork_state fork;
	cJSON *benchmarks;
	double measured, margin; /* the claim is measured · (1 − margin); `measured` 0: claimed by hand */
};

/* The options both commands have besides OPTS_WALLET and OPTS_API. */
#define OPTS_PROPOSAL                                                                                      \
	{"seq", 0, "N", "TARGET_SEQUENCE_LENGTH", NULL, NULL, "Tokens to compete at."},                    \
		{"claim", 0, "N", NULL, NULL, NULL,                                                        \
			"Tokens/s to claim, instead of the benchmark's median less the margin."},          \
		{"margin", 0, "PERCENT", "CLAIM_MARGIN", NULL, NULL,                                       \
			"What the claim stays below the measured median."},                                \
		{"no-verify", 0, NULL, NULL, NULL, NULL,                                                   \
			"Send even what the checks refuse, and leave out those that compute. A failed "    \
			"validation scores zero, and five ban the address."},                                               \
	{                                                                                                  \
		"again", 0, NULL, NULL, NULL, NULL, "Send although this commit was submitted before."      \
	}

/* Fills `proposal`. STATUS_ENVIRONMENT when there is no fork, no URL or no benchmark of this commit. */
int proposal_read(const struct invocation *invocation, struct session *session, struct proposal *proposal,
	struct error *err);

/* Runs the checks, prints those that do not pass to stderr, and makes sure that validators can fetch the
 * commit. STATUS_FAILED when a check fails; with --no-verify the failures are warnings,
 * and nothing is computed. */
int proposal_verify(const struct invocation *invocation, const struct session *session,
	const struct proposal *proposal, struct error *err);

/* Fork, league and claim, for people. */
void proposal_print(const struct proposal *proposal);
void proposal_free(struct proposal *proposal);
