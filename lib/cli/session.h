/* session: what the commands that submit have in common: the workspace, the hotkey, the validator's API. */
#pragma once

#include "cli/command.h"
#include "key/keypair.h"
#include "space/workflow.h"
#include "space/workspace.h"

struct session {
	struct workspace workspace;
	struct keypair *keypair;
	struct api *api;
	struct workflow workflow;
};

/* For commands that have OPTS_WALLET and OPTS_API. On an error nothing is left open. */
int session_open(const struct invocation *invocation, struct session *session, struct error *err);
/* The same with a hotkey that is open already, and is the session's from then on, unless this fails. */
int session_open_as(const struct invocation *invocation, struct keypair *keypair, struct session *session,
	struct error *err);
void session_close(struct session *session);

/* Stores the validator's version if it was found to be another one than before, and returns it then; else NULL.
 * session_close() does, too. */
const struct api_version *session_remember_version(struct session *session);

/* Settles what earlier runs of `commit` or `submit` left prepared, and says so on stderr. `settled`
 * receives how many. */
int session_settle(struct session *session, enum submission_kind kind, size_t *settled, struct error *err);

/* Commitments of the workspace that wait for their reveal at another validator or under another hotkey are
 * not this session's: nothing reveals them until they are asked for. -1 with STATUS_ENVIRONMENT, the first
 * of them and how to reveal it, if there is one. */
int session_check_elsewhere(const struct session *session, struct error *err);

/* After an outage: adds to the hint what the workspace, if there is one, has of submissions to that validator. `hotkey`
 * NULL: anybody's. Returns -1, as error_hint(). */
int session_hint_stored(
	const struct invocation *invocation, struct api *api, const char *hotkey, struct error *err);

/* The submission as JSON, without its salt. */
cJSON *submission_json(const struct submission *submission);
/* "#3 (server id 17)" for messages and tables. Valid until the next call. */
const char *submission_label(const struct submission *submission);
