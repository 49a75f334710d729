/* client: the validator's HTTP API, one function a route.
 *
 * Every function makes its request, checks the answer field by field and returns 0, or -1 with an error
 * that carries the validator's own words and what to do about them:
 *
 *	STATUS_NETWORK      no answer, 429, 5xx, or an answer that is not what the route promises, a refusal in
 *	                    words that are not known to be the validator's included
 *	STATUS_REFUSED      the validator said no (api/refusal.h), or a redirect must not be followed
 *	STATUS_EARLY        the reveal block is not reached
 *	STATUS_INTERRUPTED  the user stopped it
 *
 * Retries. Functions that read (GET), and those that may safely be repeated (registering, marking as
 * validated, recording a verification), try again by themselves on connection failures, 429 and 5xx until
 * the time is up. The others change state in a way that repeating would change again: they make ONE
 * attempt, and api_last() then tells whether the validator acted on it. On API_UNKNOWN look before sending
 * again: a commit is to be found in api_pending_reveals().
 *
 * Redirects are followed by hand, at most 5: to the same host, method, signature and body are kept; to
 * another host only a GET follows. From https to http nothing does.
 *
 * Strings in answers are free of control characters, whatever the server sent, and may be printed. */
#pragma once

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/refusal.h"
#include "base/error.h"

struct api_version;
struct keypair;
struct api;

/* `url`: http or https, with or without a path; anything else is STATUS_USAGE. `keypair` signs the
 * requests that need it, and may be NULL when none will be made; it must outlive the client. `timeout`:
 * seconds that one call of the functions below may take, retries included. NULL on error. */
struct api *api_open(const char *url, const struct keypair *keypair, double timeout, struct error *err);
void api_close(struct api *api);

/* The URL without what makes no difference: a slash at its end, the scheme's own port. */
const char *api_url(const struct api *api);

/* Whether the validator is on this machine: what is sent to it is a rehearsal. */
bool api_is_local(const struct api *api);

/* Another `timeout` from the next call on. */
void api_set_timeout(struct api *api, double timeout);

/* The time that calls take in vain counts for those after them: with a validator that is down, all of them together
 * fail within one `timeout`, from then on with the same error. */
void api_share_timeout(struct api *api);

/* What goes with the requests of versions that ask for it; the strings must outlive the client. `network`: "finney"
 * or "test"; NULL: not told. `key`: an API key for the dashboard; NULL: none. */
void api_set_network(struct api *api, const char *network);
/* As it was set. */
const char *api_network(const struct api *api);
void api_set_dashboard_key(struct api *api, const char *key);
/* The key that signs is an authorized validator's: it may read what miners may not. */
void api_set_validator(struct api *api);

/* --- the version of the validator (api/version.h) ------------------------------------------------ */

/* Without one of these, the oldest version is assumed.
 *
 * Has it found out when it is first needed, and anew whenever an answer contradicts it: it may change while this
 * client lives. `assumed`: what it was the last time; NULL: not known. Does nothing where one is forced. */
void api_follow_version(struct api *api, const struct api_version *assumed);
/* Holds to this version, whatever the answers say. */
void api_force_version(struct api *api, const struct api_version *version);

/* The version as far as it is known now; does not ask. */
const struct api_version *api_version(const struct api *api);
/* The same, but asks if none is known; where that is in vain, it is the oldest one. */
const struct api_version *api_learn_version(struct api *api);
/* Asks for the version now. -1, and what was known stays, when the answers do not tell. */
int api_find_version(struct api *api, struct error *err);
/* The version if the validator's answers have told it, or NULL. */
const struct api_version *api_version_if_found(const struct api *api);
/* Whether the lists of commitments, submissions, rounds and weights are shown to whoever asks here. May ask. */
bool api_shows_lists(struct api *api);
/* STATUS_USAGE where networks are kept apart and none was told. Whatever registers or submits asks this first: the
 * validator would take it for finney. May ask. */
int api_require_network(struct api *api, struct error *err);
/* Whether there is a dashboard, and a key for it. May ask. */
bool api_has_dashboard(struct api *api);

/* --- what the last call came to --------------------------------------------------------------- */

enum api_delivery {
	API_NOT_SENT, /* it did not reach the validator: no connection, no name, no TLS, refused redirect */
	API_UNKNOWN, /* it was sent, but the answer was lost, unusable or unclear: it may have been acted upon */
	API_REFUSED, /* the validator said no: nothing was changed */
	API_DONE,    /* the validator did it, and the answer is complete */
};

struct api_exchange {
	enum api_delivery delivery;
	int http_status; /* 0: no answer */
	enum refusal refusal;
	int64_t blocks_left; /* with REFUSAL_EARLY: until the reveal; 0: not told */
	double retry_after;  /* seconds that the server asked to wait; 0: none */
	bool transient;      /* failed for a reason that may pass: connection, 429, 5xx */
	char detail[512];    /* the validator's own words on a refusal; may be empty */
};

/* Belongs to the client, until its next call. */
const struct api_exchange *api_last(const struct api *api);

/* Seconds that the validator's clock is ahead of this machine's, from its Date headers; 0 while not known
 * or within what the header's resolution and the round trip can tell. */
double api_clock_skew(const struct api *api);

/* The Unix time by the validator's clock, as near as its Date headers tell; not before the beginning of the round
 * that it named last, so that what is handed in after that answer is never dated before that round. */
double api_now(const struct api *api);

/* The block by the validator's clock. The current_block of api_pending_reveals() is better still. */
int64_t api_block(const struct api *api);

/* --- answers ---------------------------------------------------------------------------------- */

/* Lists are read as they come, however long they are: what is kept of them is bounded. A row that makes no sense
 * (wrong types, numbers or sizes that cannot be) is left out and counted in `skipped`, so that it hides no other;
 * a note on stderr says so, too. */

/* What an answer's strings and lists live in; zero-initialised by the call that fills it. */
struct api_memory {
	cJSON *document; /* the answer, without its lists */
	cJSON *rows;     /* what was kept of those */
	void *list;
};

/* Releases an answer, also after a failed call: api_release(&answer.memory). */
void api_release(struct api_memory *memory);

struct api_registration {
	struct api_memory memory;
	bool already; /* it was registered before */
	const char *hotkey, *model_name, *league;
	double current_score; /* NAN: not told */
};

struct api_commitment {
	struct api_memory memory;
	int64_t submission_id, reveal_block;
	const char *commitment_hash, *message;
	double estimated_reveal_time; /* Unix time */
};

struct api_revelation {
	struct api_memory memory;
	int64_t submission_id;
	const char *message;
};

struct api_pending_reveal {
	int64_t submission_id;
	int64_t reveal_block; /* 0: not told */
	const char *miner_hotkey;
	const char *commitment_hash; /* its first 16 digits and "..." */
	bool can_reveal;
	double created_at; /* Unix time; NAN: not told */
};

/* Whose rows of the list are wanted. */
struct api_pending_filter {
	const char *hotkey;
	const int64_t *ids; /* also the rows with these submission ids, whoever's they are */
	size_t id_count;
};

struct api_pending_reveals {
	struct api_memory memory;
	int64_t current_block;
	const struct api_pending_reveal *reveals;
	size_t count, skipped;
};

/* True when `reveal` is the commitment with this hash by this hotkey. */
bool api_pending_matches(
	const struct api_pending_reveal *reveal, const char *hotkey, const char *commitment_hash);

struct api_submission {
	int64_t id, target_sequence_length;
	const char *miner_hotkey;
	const char *fork_url, *commit_hash, *repo_hash; /* NULL while unrevealed, and in top_performers */
	const char *docker_image;                       /* NULL: none, or not told */
	double tokens_per_sec;                          /* 0 while unrevealed */
	double vram_mb;                                 /* NAN: not told */
	const cJSON *benchmarks;                        /* an object, or NULL */
	bool validated;
	double created_at;
};

struct api_submission_stats {
	struct api_memory memory;
	int64_t total_submissions; /* -1: not told */
	size_t skipped;
	const struct api_submission *recent; /* not yet validated, newest first */
	size_t recent_count;
	const struct api_submission *top; /* highest tokens/s, at most 10 */
	size_t top_count;
};

struct api_pending_validations {
	struct api_memory memory;
	const struct api_submission *submissions; /* revealed and not yet validated, oldest first */
	size_t count, skipped;
	int64_t total; /* these, and those that still come after them */
};

/* What a validator found. */
struct api_judgement {
	int64_t submission_id;
	double score;          /* 0 … 1 */
	double tokens_per_sec; /* measured, and normalised by the GPU; NAN: nothing was */
	bool verified;
	const char *reason; /* why it is not; NULL: left out */
	/* of its logits; NAN: not known */
	double cosine_similarity, max_abs_diff, throughput;
};

/* A submission of the own hotkey, as the dashboard has it. */
struct api_own_submission {
	int64_t id, target_sequence_length;
	double tokens_per_sec;           /* the claim; NAN: not told */
	double validated_tokens_per_sec; /* as measured and normalised; NAN: not yet */
	double score;                    /* NAN: none yet */
	bool is_revealed;
	double created_at;
};

struct api_miner {
	struct api_memory memory;
	const char *flag_reason;                      /* NULL: not flagged */
	const struct api_own_submission *submissions; /* the newest, newest first */
	size_t count, skipped;
};

struct api_leader {
	int64_t submission_id; /* 0: not told */
	const char *miner_hotkey;
	double tokens_per_sec; /* NAN: not told */
	int64_t target_sequence_length;
};

struct api_leaderboard {
	struct api_memory memory;
	const struct api_leader *leaders;
	size_t count, skipped;
};

struct api_round {
	struct api_memory memory;
	int64_t id, round_number, time_remaining_seconds, total_submissions;
	int64_t baseline_submission_id; /* 0: none */
	const char *status;             /* "active", "evaluating", "completed" */
	const char *winner_hotkey;      /* NULL: none yet */
	double start_time, end_time;
};

struct api_ranking {
	int64_t submission_id;    /* 0: not told */
	const char *miner_hotkey; /* NULL: not told */
	double weighted_score;    /* NAN: not told */
};

struct api_round_result {
	struct api_memory memory;
	const char *status, *winner; /* winner NULL: nobody ranked */
	const struct api_ranking *rankings;
	size_t count, skipped;
};

struct api_weight {
	int64_t uid;
	const char *hotkey;
	double weight;
};

struct api_weights {
	struct api_memory memory;
	int64_t epoch;
	int64_t round_id;                 /* 0: not told */
	const struct api_weight *weights; /* best first */
	size_t count, skipped;
};

struct api_submission_rate {
	double submissions_per_minute;
	int64_t recent_submissions;
};

/* --- routes ----------------------------------------------------------------------------------- */

/* GET /health */
int api_health(struct api *api, struct error *err);

/* POST /register_miner, signed. Repeats, but not after a 500: that is how a hotkey is refused that is registered
 * for another league already. */
int api_register_miner(struct api *api, const char *model_name, const char *league,
	struct api_registration *out, struct error *err);

/* What /submit_kernel and /reveal_submission take in common. */
struct api_claim {
	const char *fork_url, *commit_hash;
	const char *docker_image; /* NULL: left out */
	double tokens_per_sec;
	double vram_mb;          /* NAN: left out */
	const cJSON *benchmarks; /* {"4096": {"tokens_per_sec": …, "vram_mb": …}, …}; NULL: left out */
};

/* POST /submit_kernel, signed, one attempt: a submission without commit-reveal. `repo_hash` may be NULL. */
int api_submit_kernel(struct api *api, const struct api_claim *claim, int64_t target_sequence_length,
	const char *repo_hash, int64_t *submission_id, struct error *err);

/* POST /commit_submission, signed, one attempt. The salt must be durable before this is called. */
int api_commit_submission(struct api *api, const char *commitment_hash, int64_t target_sequence_length,
	struct api_commitment *out, struct error *err);

/* POST /reveal_submission, signed, one attempt. The image goes with the claim only if it is what was committed to. */
int api_reveal_submission(struct api *api, int64_t submission_id, const char *salt,
	const struct api_claim *claim, struct api_revelation *out, struct error *err);

/* GET /pending_reveals: the rows that pass the filter. */
int api_pending_reveals(struct api *api, const struct api_pending_filter *filter,
	struct api_pending_reveals *out, struct error *err);

/* GET /get_submission_stats?limit= */
int api_submission_stats(struct api *api, int limit, struct api_submission_stats *out, struct error *err);

/* GET /dashboard/miner/HOTKEY, with the API key. REFUSAL_UNKNOWN: it has sent nothing yet. */
int api_dashboard_miner(struct api *api, const char *hotkey, struct api_miner *out, struct error *err);

/* GET /get_pending_validations?limit=, which is 100 at most. Of versions with a docket. */
int api_pending_validations(
	struct api *api, int limit, struct api_pending_validations *out, struct error *err);

/* GET /dashboard/leaderboard?limit=, with the API key: what the active round would rank now, best first, by what was
 * measured and normalised. */
int api_dashboard_leaderboard(struct api *api, int limit, struct api_leaderboard *out, struct error *err);

/* GET /get_current_round: makes a 48-hour round when none is active. */
int api_current_round(struct api *api, struct api_round *out, struct error *err);

/* The same, one short attempt, whose answer does not matter: after a round was finalized, some validators take
 * submissions only when somebody has asked for the next one. -1 only when the user interrupted. */
int api_wake_round(struct api *api, struct error *err);

/* POST /create_round, one attempt. `baseline_submission_id` 0: none. */
int api_create_round(struct api *api, int64_t duration_hours, int64_t baseline_submission_id,
	struct api_round *out, struct error *err);

/* POST /finalize_round/{id}, one attempt. */
int api_finalize_round(struct api *api, int64_t round_id, struct api_round_result *out, struct error *err);

/* POST /refinalize_round/{id}, one attempt: the ranking of a completed round, with what was validated since. Of
 * versions with a docket. */
int api_refinalize_round(struct api *api, int64_t round_id, struct api_round_result *out, struct error *err);

/* GET /get_weights?round_id=; 0: the latest completed round. */
int api_weights(struct api *api, int64_t round_id, struct api_weights *out, struct error *err);

/* GET /get_submission_rate?window_minutes= */
int api_submission_rate(
	struct api *api, int64_t window_minutes, struct api_submission_rate *out, struct error *err);

/* POST /record_verification. NAN numbers and a NULL reason are left out. Repeats. */
int api_record_verification(struct api *api, int64_t submission_id, bool verified, double cosine_similarity,
	double max_abs_diff, double throughput, const char *reason, struct error *err);

/* GET /verification_stats?round_id=; 0: all rounds. The page does not fix the names of the fields: the
 * document is the answer. */
int api_verification_stats(struct api *api, int64_t round_id, struct api_memory *out, struct error *err);

/* POST /mark_validated. Repeats. */
int api_mark_validated(struct api *api, int64_t submission_id, double score, struct error *err);

/* POST /mark_validated_with_verification. Repeats. Of versions with a docket. */
int api_mark_verified(struct api *api, const struct api_judgement *judgement, struct error *err);

/* POST /record_failure, one attempt: it counts against the address. */
int api_record_failure(struct api *api, const char *ip_address, struct error *err);
