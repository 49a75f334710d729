/* What the parts of the validator service share. Functions that return int give -1 for a fault of the
 * database, with the error; a refusal of the request is a reply, and no error. */
#pragma once

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/database.h"
#include "base/error.h"
#include "net/server.h"
#include "validator/validator.h"

struct validator {
	struct validator_options options;
	const struct validator_version *version;
	struct database *database;
};

double validator_now(const struct validator *validator);

/* --- who may do what (access.c) ------------------------------------------------------ */

/* The `check` of signed routes: 401, or sets the request's identity to the hotkey that signed. */
bool validator_authenticate(struct server_request *request, struct server_reply *reply, void *context);
/* The `check` of what is for validators: also 403, or 503 while no validator is named. */
bool validator_authorize(struct server_request *request, struct server_reply *reply, void *context);
/* The `check` of what is for whoever has an API key, and for validators: 401. */
bool validator_authorize_reader(struct server_request *request, struct server_reply *reply, void *context);

/* The address that a request comes from, as far as the version believes it. The caller frees. */
char *validator_address(const struct validator *validator, const struct server_request *request);

/* The network that a request is about. */
const char *validator_network(const struct validator *validator, struct fields *fields);

enum validator_admission { ADMIT_TO_REGISTER, ADMIT_TO_SUBMIT, ADMIT_TO_REVEAL };

/* What a signed request passes before its own rules: rate limit (429), the hotkey it names is the one that
 * signed (403), flag (403), registration (404), ban of its address (403), cooldown (429). 1: go on; 0: refused,
 * the reply is made. */
int validator_admit(struct validator *validator, const struct server_request *request, const char *hotkey,
	const char *network, enum validator_admission admission, struct server_reply *reply,
	struct error *err);

/* Whether a version that looks at speeds takes this one, of the field `name`, for possible. False: not, and the reply
 * is made. */
bool validator_check_plausible(
	const struct validator *validator, const char *name, double speed, struct server_reply *reply);

/* Makes the hotkey a miner of the network, unless it is. */
int validator_enroll(
	struct validator *validator, const char *hotkey, const char *network, int64_t uid, struct error *err);

/* Counts a failure of an address; the fifth bans it for 24 hours. */
int validator_count_failure(struct validator *validator, const char *address, struct error *err);
/* A success: failures so far no longer count. A ban stays. */
int validator_forgive(struct validator *validator, const char *address, struct error *err);

/* --- flags (flag.c) ---------------------------------------------------------------------------- */

/* 1: the hotkey is not flagged, in any network; 0: it is, and the reply is made. */
int validator_check_flag(
	struct validator *validator, const char *hotkey, struct server_reply *reply, struct error *err);

/* Flags a hotkey wherever it is a miner, unless it is flagged already. */
int validator_flag(struct validator *validator, const char *hotkey, const char *reason, struct error *err);

/* Whether the person behind a submission has no other hotkey, by what is known of them; `fork_url` and
 * `address` are NULL where they do not tell. 1: so it is, and noted; 0: another hotkey was there before, which
 * the reply says, and this one is flagged. A miner must be enrolled. */
int validator_check_person(struct validator *validator, const char *hotkey, const char *network,
	const char *fork_url, const char *address, struct server_reply *reply, struct error *err);
/* The same at a reveal, where only the fork tells, and nobody is flagged. */
int validator_check_owner(struct validator *validator, const char *hotkey, const char *network,
	const char *fork_url, struct server_reply *reply, struct error *err);

/* --- rounds (round.c) -------------------------------------------------------------------------- */

/* The id of the round that a submission belongs to. 1: found; 0: there is none, and the reply is made. */
int validator_submission_round(struct validator *validator, const char *network, int64_t *id,
	struct server_reply *reply, struct error *err);

/* The weighted score that a round's submissions have to exceed; NAN: any will do. */
int validator_to_beat(struct validator *validator, int64_t round, double *score, struct error *err);
/* Adds the weights of the latest completed round to the list; none while there is no such round. */
int validator_latest_weights(
	struct validator *validator, const char *network, cJSON *list, struct error *err);

/* A column, NAN when it is NULL. */
double column_real(sqlite3_stmt *query, int column);

/* --- answers (validator.c) --------------------------------------------------------------------- */

/* Adds a whole number of up to 64 bits, which a double may not hold. */
void add_integer(cJSON *object, const char *name, int64_t value);

/* A list of an answer, kept as text: a list has no end, and cJSON takes many times the room. */
struct rows {
	struct buffer text;
	bool fault; /* a row cannot be written as JSON */
};

/* Adds a row, and frees it. False when the list is too long by now. */
bool rows_add(const struct validator *validator, struct rows *rows, cJSON *row);
/* Adds the list to an answer and frees it; when that cannot be, the answer is a fault. */
void rows_end(struct rows *rows, const char *name, struct server_reply *reply);

/* --- handlers, by file ------------------------------------------------------------------------- */

typedef int validator_handler(
	const struct server_request *request, struct server_reply *reply, void *context, struct error *err);

/* access.c */
validator_handler handle_register_miner, handle_record_failure;
/* submission.c */
validator_handler handle_submit_kernel, handle_commit_submission, handle_reveal_submission;
/* judgement.c */
validator_handler handle_mark_validated, handle_mark_verified, handle_record_verification;
/* report.c */
validator_handler handle_pending_reveals, handle_submission_stats, handle_submission_rate,
	handle_pending_validations, handle_verification_stats;
/* round.c */
validator_handler handle_current_round, handle_completed_rounds, handle_create_round, handle_finalize_round,
	handle_refinalize_round, handle_weights;
/* flag.c */
validator_handler handle_sync_uids, handle_flagged_miners, handle_flag_miner;
/* dashboard.c */
validator_handler handle_overview, handle_leaderboard, handle_top_miners, handle_dashboard_miner;

/* page.c, with the `check` of who may see it */
#define VALIDATOR_PAGE "/" /* for people, and no part of the API */
validator_handler handle_page;
bool validator_check_page(struct server_request *request, struct server_reply *reply, void *context);

/* openapi.c: the `check` of /openapi.json, which makes the reply. */
bool validator_describe(struct server_request *request, struct server_reply *reply, void *context);

/* --- the block clock (validator.c) ------------------------------------------------------------- */

/* (Unix time - that of block 0) div the block time. */
int64_t validator_block(const struct validator *validator);
/* Unix time at which a block begins. */
double validator_block_begins(const struct validator *validator, int64_t block);
