/* Rounds: when they run, who won them, what the winners get. */
#include <math.h>
#include <stdlib.h>

#include "base/json.h"
#include "base/memory.h"
#include "net/fields.h"
#include "score/score.h"
#include "validator/state.h"

/* A date beyond it, Python does not have. */
#define ROUND_HOURS_MOST ((int64_t)7000 * 8766)

/* Rows unless asked for more: of /get_completed_rounds, of /dashboard/leaderboard */
#define ROUNDS_LIMIT 10
#define LEADERBOARD_LIMIT 50

/* --- ranking ----------------------------------------------------------------------------------- */

/* The weighted score of a submission: 1, or 0 when there is none with that id. */
static int weighted_score(struct validator *validator, int64_t id, double *score, struct error *err)
{
	sqlite3_stmt *query;
	int found = database_row(validator->database, &query, err,
		"SELECT iif(?2, validated_tokens_per_sec, tokens_per_sec), target_sequence_length"
		" FROM submission WHERE id = ?1",
		"ii", id, (int64_t)validator->version->ranks_measurements);

	if (found > 0) {
		*score = score_weighted(sqlite3_column_double(query, 0), sqlite3_column_int64(query, 1));
		sqlite3_reset(query);
	}
	return found;
}

/* The validated submissions of a round in the order that they rank in. */
struct ranking {
	struct score_entry *entries;
	size_t entry_count; /* validated */
	size_t *order;
	size_t count; /* of them that rank */
};

static int load_entries(
	struct validator *validator, int64_t round, struct ranking *ranking, struct error *err)
{
	sqlite3_stmt *query = database_query(validator->database, err,
		"SELECT id, iif(?2, validated_tokens_per_sec, tokens_per_sec), target_sequence_length,"
		" created_at, revealed, logits_passed FROM submission WHERE round_id = ?1 AND validated"
		" AND (NOT ?2 OR (logits_passed AND validated_tokens_per_sec IS NOT NULL))"
		" AND miner_hotkey NOT IN (SELECT hotkey FROM miner WHERE flag IS NOT NULL)",
		"ii", round, (int64_t)validator->version->ranks_measurements);
	size_t capacity = 0;
	int row = query ? 0 : -1;

	while (query && (row = database_step(validator->database, query, err)) > 0) {
		if (ranking->entry_count == capacity) {
			capacity = 2 * capacity + 16;
			ranking->entries = xrealloc(ranking->entries, capacity * sizeof(*ranking->entries));
		}
		ranking->entries[ranking->entry_count++] = (struct score_entry){
			.id = sqlite3_column_int64(query, 0),
			.tokens_per_sec = sqlite3_column_double(query, 1),
			.target_sequence_length = sqlite3_column_int64(query, 2),
			.created_at = sqlite3_column_double(query, 3),
			.revealed = sqlite3_column_int(query, 4),
			.logits = sqlite3_column_type(query, 5) == SQLITE_NULL ? LOGITS_PENDING
				: sqlite3_column_int(query, 5)                 ? LOGITS_PASSED
									       : LOGITS_FAILED,
		};
	}
	return row;
}

/* What a round's submissions have to beat is its own baseline, or that of the round before: its winner, else
 * what had to be beaten in it. */
enum baseline { BASELINE_OWN, BASELINE_BEFORE };

/* As a weighted score. */
static int baseline_score(
	struct validator *validator, int64_t round, enum baseline which, double *score, struct error *err)
{
	int64_t baseline = 0;
	sqlite3_stmt *query;
	int found = database_row(validator->database, &query, err,
		"SELECT iif(?2, ifnull(previous.winner_submission_id, previous.baseline_submission_id),"
		"  round.baseline_submission_id)"
		" FROM round LEFT JOIN round AS previous ON previous.network = round.network"
		"  AND previous.round_number = round.round_number - 1"
		" WHERE round.id = ?1",
		"ii", round, (int64_t)(which == BASELINE_BEFORE));

	*score = -INFINITY;
	if (found > 0) {
		baseline = sqlite3_column_int64(query, 0);
		sqlite3_reset(query);
	}
	if (baseline)
		found = weighted_score(validator, baseline, score, err);
	return found < 0 ? -1 : 0;
}

/* By what the version takes for the round's baseline. */
static enum baseline usual_baseline(const struct validator *validator)
{
	return validator->version->baseline_one_round ? BASELINE_BEFORE : BASELINE_OWN;
}

int validator_to_beat(struct validator *validator, int64_t round, double *score, struct error *err)
{
	if (baseline_score(validator, round, usual_baseline(validator), score, err) < 0)
		return -1;
	if (isinf(*score))
		*score = NAN;
	return 0;
}

static int rank(struct validator *validator, int64_t round, enum baseline which, struct ranking *ranking,
	struct error *err)
{
	double baseline;

	if (baseline_score(validator, round, which, &baseline, err) < 0 ||
		load_entries(validator, round, ranking, err) < 0)
		return -1;
	ranking->order = xcalloc(ranking->entry_count, sizeof(*ranking->order));
	ranking->count = score_rank(ranking->entries, ranking->entry_count, baseline, ranking->order);
	return 0;
}

static void ranking_free(struct ranking *ranking)
{
	free(ranking->entries);
	free(ranking->order);
}

/* --- the course of the rounds ------------------------------------------------------------------ */

/* The id of the round of a network that a query finds: 1, or 0 when it finds none. */
static int find_round(
	struct validator *validator, const char *sql, const char *network, int64_t *id, struct error *err)
{
	sqlite3_stmt *query;
	int found = database_row(validator->database, &query, err, sql, "s", network);

	if (found > 0) {
		*id = sqlite3_column_int64(query, 0);
		sqlite3_reset(query);
	}
	return found;
}

static const char active_round[] = "SELECT id FROM round WHERE network = ? AND status = 'active'"
				   " ORDER BY round_number DESC LIMIT 1";
static const char completed_round[] = "SELECT id FROM round WHERE network = ? AND status = 'completed'"
				      " ORDER BY round_number DESC LIMIT 1";

/* A new active round. What has to be beaten in it is `baseline` or, when that is 0, where the round knows
 * it, the last winner; a round that nobody won hands on its own baseline. */
static int start_round(struct validator *validator, const char *network, double seconds, int64_t baseline,
	int64_t *id, struct error *err)
{
	double now = validator_now(validator);

	if (database_run(validator->database, err,
		    "INSERT INTO round"
		    " (network, round_number, start_time, end_time, status, baseline_submission_id)"
		    " SELECT ?1, ifnull(max(round_number), 0) + 1, ?2, ?3, 'active', ifnull(nullif(?4, 0),"
		    "  (SELECT ifnull(winner_submission_id, baseline_submission_id)"
		    "   FROM round WHERE ?5 AND network = ?1 ORDER BY round_number DESC LIMIT 1))"
		    " FROM round WHERE network = ?1",
		    "srrii", network, now, now + seconds, baseline,
		    (int64_t)!validator->version->baseline_one_round) < 0)
		return -1;
	*id = database_last_id(validator->database);
	return 0;
}

/* Ends a round, or tells anew who won it. `ranking` is to be freed, in any case. */
static int conclude(struct validator *validator, int64_t round, struct ranking *ranking, struct error *err)
{
	enum baseline baseline = validator->version->finalizes_blindly ? BASELINE_OWN
								       : usual_baseline(validator);

	if (rank(validator, round, baseline, ranking, err) < 0)
		return -1;
	return database_run(validator->database, err,
		"UPDATE round SET status = 'completed', winner_submission_id = nullif(?1, 0),"
		" winner_hotkey = (SELECT miner_hotkey FROM submission WHERE id = ?1) WHERE id = ?2",
		"ii", ranking->count ? ranking->entries[ranking->order[0]].id : 0, round);
}

/* Ends the rounds of a network whose time is up. */
static int conclude_due(struct validator *validator, const char *network, struct error *err)
{
	struct ranking ranking = {0};
	int64_t round;
	sqlite3_stmt *query;
	int found = database_row(validator->database, &query, err,
		"SELECT id FROM round WHERE network = ? AND status = 'active' AND end_time <= ?", "sr",
		network, validator_now(validator));

	if (found <= 0)
		return found;
	round = sqlite3_column_int64(query, 0);
	sqlite3_reset(query);
	found = conclude(validator, round, &ranking, err);
	ranking_free(&ranking);
	return found;
}

/* The id of the active round of a network, which is made if there is none. */
static int need_active_round(struct validator *validator, const char *network, int64_t *id, struct error *err)
{
	int found;

	if (validator->version->timed_rounds && conclude_due(validator, network, err) < 0)
		return -1;
	found = find_round(validator, active_round, network, id, err);
	if (!found)
		found = start_round(validator, network, validator->options.round_seconds, 0, id, err);
	return found < 0 ? -1 : 0;
}

int validator_submission_round(struct validator *validator, const char *network, int64_t *id,
	struct server_reply *reply, struct error *err)
{
	int found;

	if (validator->version->waits_for_round) {
		found = find_round(validator, active_round, network, id, err);
		if (!found && find_round(validator, completed_round, network, id, err) > 0) {
			server_refuse(reply, 500,
				"(sqlite3.IntegrityError) UNIQUE constraint failed:"
				" competition_rounds.round_number");
			return 0;
		}
	}
	return need_active_round(validator, network, id, err) < 0 ? -1 : 1;
}

/* --- what is asked for ------------------------------------------------------------------------- */

#define ROUND_COLUMNS                                                                                        \
	"SELECT id, round_number, start_time, end_time, status, baseline_submission_id, winner_hotkey,"      \
	" (SELECT count(*) FROM submission WHERE round_id = round.id) FROM round"

static cJSON *round_entry(const struct validator *validator, sqlite3_stmt *query)
{
	double left = sqlite3_column_double(query, 3) - validator_now(validator);
	cJSON *entry = cJSON_CreateObject();

	json_add_id(entry, "id", sqlite3_column_int64(query, 0));
	cJSON_AddNumberToObject(entry, "round_number", sqlite3_column_double(query, 1));
	json_add_naive_time(entry, "start_time", sqlite3_column_double(query, 2));
	json_add_naive_time(entry, "end_time", sqlite3_column_double(query, 3));
	json_add_text(entry, "status", database_text(query, 4));
	cJSON_AddNumberToObject(entry, "time_remaining_seconds", left > 0 ? floor(left) : 0);
	json_add_id(entry, "baseline_submission_id", sqlite3_column_int64(query, 5));
	json_add_text(entry, "winner_hotkey", database_text(query, 6));
	cJSON_AddNumberToObject(entry, "total_submissions", sqlite3_column_double(query, 7));
	return entry;
}

static int answer_round(
	struct validator *validator, int64_t id, struct server_reply *reply, struct error *err)
{
	sqlite3_stmt *query;

	if (database_row(validator->database, &query, err, ROUND_COLUMNS " WHERE id = ?", "i", id) < 0)
		return -1;
	reply->body = round_entry(validator, query);
	sqlite3_reset(query);
	return 0;
}

int handle_current_round(
	const struct server_request *request, struct server_reply *reply, void *context, struct error *err)
{
	struct validator *validator = context;
	struct fields fields = fields_query(request, &validator->version->fields);
	const char *network = validator_network(validator, &fields);
	int64_t id;

	if (fields_refused(&fields, reply))
		return 0;
	if (need_active_round(validator, network, &id, err) < 0)
		return -1;
	return answer_round(validator, id, reply, err);
}

int handle_completed_rounds(
	const struct server_request *request, struct server_reply *reply, void *context, struct error *err)
{
	struct validator *validator = context;
	struct fields fields = fields_query(request, &validator->version->fields);
	int64_t limit = fields_integer_or(&fields, "limit", ROUNDS_LIMIT);
	const char *network = validator_network(validator, &fields);
	sqlite3_stmt *query;
	cJSON *list;
	int row;

	if (fields_refused(&fields, reply))
		return 0;
	query = database_query(validator->database, err,
		ROUND_COLUMNS
		" WHERE network = ? AND status = 'completed' ORDER BY round_number DESC LIMIT ?",
		"si", network, limit);
	reply->body = cJSON_CreateObject();
	list = cJSON_AddArrayToObject(reply->body, "rounds");
	row = query ? 0 : -1;
	while (query && (row = database_step(validator->database, query, err)) > 0)
		cJSON_AddItemToArray(list, round_entry(validator, query));
	return row;
}

/* 1: the baseline of a new round may be this; 0: not, and the reply is made. */
static int check_baseline(
	struct validator *validator, int64_t baseline, struct server_reply *reply, struct error *err)
{
	double score;
	int found = baseline ? weighted_score(validator, baseline, &score, err) : 1;

	if (found == 0 && validator->version->creation_faults)
		server_fault(reply);
	else if (found == 0)
		server_refuse(reply, 404, "Submission not found");
	return found;
}

int handle_create_round(
	const struct server_request *request, struct server_reply *reply, void *context, struct error *err)
{
	struct validator *validator = context;
	struct fields fields = fields_body(request, &validator->version->fields);
	const char *network = validator_network(validator, &fields);
	int64_t hours = fields_integer_or(&fields, "duration_hours", 0);
	double seconds = fields_raw(&fields, "duration_hours") ? (double)hours * 3600
							       : validator->options.round_seconds;
	int64_t baseline = fields_integer_or(&fields, "baseline_submission_id", 0), id;
	int found;

	if (fields_refused(&fields, reply))
		return 0;
	found = check_baseline(validator, baseline, reply, err);
	if (found <= 0)
		return found;
	if (database_run(validator->database, err,
		    "UPDATE round SET status = 'completed' WHERE network = ? AND status = 'active'", "s",
		    network) < 0)
		return -1;
	if (llabs(hours) > ROUND_HOURS_MOST) {
		server_fault(reply);
		return 0;
	}
	if (start_round(validator, network, seconds, baseline, &id, err) < 0)
		return -1;
	if (!validator->version->creation_faults)
		return answer_round(validator, id, reply, err);
	server_fault(reply);
	return 0;
}

static void add_ranked(cJSON *list, const struct score_entry *entry, size_t place, sqlite3_stmt *query)
{
	const struct league *league = league_for(entry->target_sequence_length);
	cJSON *item = cJSON_CreateObject();

	cJSON_AddNumberToObject(item, "rank", (double)place + 1);
	json_add_id(item, "submission_id", entry->id);
	json_add_text(item, "miner_hotkey", database_text(query, 0));
	cJSON_AddNumberToObject(item, "tokens_per_sec", entry->tokens_per_sec);
	add_integer(item, "target_sequence_length", entry->target_sequence_length);
	cJSON_AddStringToObject(item, "league", league->name);
	cJSON_AddNumberToObject(item, "multiplier", league->multiplier);
	cJSON_AddNumberToObject(
		item, "weighted_score", score_weighted(entry->tokens_per_sec, entry->target_sequence_length));
	json_add_naive_time(item, "created_at", entry->created_at);
	json_add_text(item, "solution_hash", database_text(query, 1));
	cJSON_AddItemToObject(item, "logit_verification_passed",
		entry->logits == LOGITS_PENDING ? cJSON_CreateNull()
						: cJSON_CreateBool(entry->logits == LOGITS_PASSED));
	json_add_real(item, "cosine_similarity", column_real(query, 2));
	json_add_real(item, "max_abs_diff", column_real(query, 3));
	json_add_real(item, "throughput_verified", column_real(query, 4));
	cJSON_AddItemToArray(list, item);
}

/* The first `most` places. */
static int list_ranked(struct validator *validator, const struct ranking *ranking, size_t most, cJSON *list,
	struct error *err)
{
	for (size_t place = 0; place < ranking->count && place < most; place++) {
		const struct score_entry *entry = &ranking->entries[ranking->order[place]];
		sqlite3_stmt *query;

		if (database_row(validator->database, &query, err,
			    "SELECT miner_hotkey, solution_hash, cosine_similarity, max_abs_diff, throughput"
			    " FROM submission WHERE id = ?",
			    "i", entry->id) < 0)
			return -1;
		add_ranked(list, entry, place, query);
		sqlite3_reset(query);
	}
	return 0;
}

static int finalize(struct validator *validator, int64_t round, struct server_reply *reply, struct error *err)
{
	struct ranking ranking = {0};
	cJSON *list = cJSON_CreateArray(), *winner;
	int result = conclude(validator, round, &ranking, err);

	if (!result)
		result = list_ranked(validator, &ranking, REWARD_RANKS, list, err);
	winner = cJSON_GetObjectItem(cJSON_GetArrayItem(list, 0), "miner_hotkey");
	reply->body = cJSON_CreateObject();
	cJSON_AddStringToObject(reply->body, "status", "completed");
	if (!ranking.entry_count && validator->version->bare_results) {
		cJSON_AddItemToObject(reply->body, "winners", list);
	} else {
		json_add_id(reply->body, "round_id", round);
		json_add_text(reply->body, "winner", cJSON_GetStringValue(winner));
		cJSON_AddItemToObject(reply->body, "rankings", list);
	}
	ranking_free(&ranking);
	return result;
}

/* What there is to know of a round before it is finalized; 0: there is none, and the reply is made. */
static int find_state(struct validator *validator, int64_t round, bool *active, bool *due,
	struct server_reply *reply, struct error *err)
{
	sqlite3_stmt *query;
	int found = database_row(validator->database, &query, err,
		"SELECT status = 'active', end_time <= ? FROM round WHERE id = ?", "ri",
		validator_now(validator), round);

	if (found == 0)
		server_refuse(reply, 404, "Round not found");
	if (found <= 0)
		return found;
	*active = sqlite3_column_int(query, 0);
	*due = sqlite3_column_int(query, 1);
	sqlite3_reset(query);
	return 1;
}

/* Finalizes the round that the path names or, `again`, one that has been. */
static int handle_finalizing(const struct server_request *request, struct server_reply *reply,
	struct validator *validator, bool again, struct error *err)
{
	struct fields fields = fields_path(request, &validator->version->fields);
	int64_t round = fields_integer(&fields, "round_id");
	bool active, due;
	int found;

	if (fields_refused(&fields, reply))
		return 0;
	found = find_state(validator, round, &active, &due, reply, err);
	if (found <= 0)
		return found;
	if (active == again)
		server_refuse(reply, 400, again ? "Round is not finalized yet" : "Round already finalized");
	else if (active && validator->version->timed_rounds && !due)
		server_refuse(reply, 400, "Round has not ended yet");
	else
		return finalize(validator, round, reply, err);
	return 0;
}

int handle_finalize_round(
	const struct server_request *request, struct server_reply *reply, void *context, struct error *err)
{
	return handle_finalizing(request, reply, context, false, err);
}

int handle_refinalize_round(
	const struct server_request *request, struct server_reply *reply, void *context, struct error *err)
{
	return handle_finalizing(request, reply, context, true, err);
}

static int add_weight(struct validator *validator, const struct score_entry *ranked, size_t place,
	cJSON *list, struct error *err)
{
	cJSON *entry = cJSON_CreateObject();
	sqlite3_stmt *query;

	cJSON_AddItemToArray(list, entry);
	if (database_row(validator->database, &query, err,
		    "SELECT ifnull(uid, 0), miner_hotkey, github_name"
		    " FROM submission JOIN round ON round.id = round_id"
		    " LEFT JOIN miner ON hotkey = miner_hotkey AND miner.network = round.network"
		    " WHERE submission.id = ?",
		    "i", ranked->id) < 0)
		return -1;
	cJSON_AddNumberToObject(entry, "uid", sqlite3_column_double(query, 0));
	json_add_text(entry, "hotkey", database_text(query, 1));
	cJSON_AddNumberToObject(entry, "weight", reward_shares[place]);
	if (validator->version->ranks_measurements) {
		cJSON_AddNumberToObject(entry, "tokens_per_sec", ranked->tokens_per_sec);
		json_add_text(entry, "github_username", database_text(query, 2));
	}
	sqlite3_reset(query);
	return 0;
}

static int list_weights(struct validator *validator, int64_t round, cJSON *list, struct error *err)
{
	struct ranking ranking = {0};
	int result = rank(validator, round, usual_baseline(validator), &ranking, err);

	for (size_t place = 0; !result && place < ranking.count && place < REWARD_RANKS; place++)
		result = add_weight(validator, &ranking.entries[ranking.order[place]], place, list, err);
	ranking_free(&ranking);
	return result;
}

int validator_latest_weights(struct validator *validator, const char *network, cJSON *list, struct error *err)
{
	int64_t round;
	int found = find_round(validator, completed_round, network, &round, err);

	return found > 0 ? list_weights(validator, round, list, err) : found;
}

/* Which round the weights are of. */
static int tell_round(struct validator *validator, int64_t round, cJSON *body, struct error *err)
{
	sqlite3_stmt *query;
	int found = database_row(validator->database, &query, err,
		"SELECT round_number, status, winner_hotkey FROM round WHERE id = ?", "i", round);

	if (found < 0)
		return -1;
	json_add_id(body, "round_id", found ? round : 0);
	json_add_id(body, "round_number", found ? sqlite3_column_int64(query, 0) : 0);
	json_add_text(body, "round_status", found ? database_text(query, 1) : NULL);
	json_add_text(body, "winner_hotkey", found ? database_text(query, 2) : NULL);
	if (found)
		sqlite3_reset(query);
	return 0;
}

int handle_weights(
	const struct server_request *request, struct server_reply *reply, void *context, struct error *err)
{
	struct validator *validator = context;
	struct fields fields = fields_query(request, &validator->version->fields);
	int64_t round = fields_integer_or(&fields, "round_id", 0);
	const char *network = validator_network(validator, &fields);
	bool tells = validator->version->tells_rounds;
	bool interim = tells && !fields_bool_or(&fields, "completed_only", false);
	cJSON *list;
	int found = 1;

	if (fields_refused(&fields, reply))
		return 0;
	if (!round)
		found = find_round(validator, completed_round, network, &round, err);
	if (!found && interim)
		found = find_round(validator, active_round, network, &round, err);
	reply->body = cJSON_CreateObject();
	cJSON_AddNumberToObject(reply->body, "epoch", floor(validator_now(validator)));
	if (found >= 0 && tells)
		found = tell_round(validator, round, reply->body, err);
	list = cJSON_AddArrayToObject(reply->body, "weights");
	if (found < 0)
		return -1;
	return round ? list_weights(validator, round, list, err) : 0;
}

int handle_leaderboard(
	const struct server_request *request, struct server_reply *reply, void *context, struct error *err)
{
	struct validator *validator = context;
	struct fields fields = fields_query(request, &validator->version->fields);
	int64_t limit = fields_integer_or(&fields, "limit", LEADERBOARD_LIMIT), round;
	const char *network = validator_network(validator, &fields);
	struct ranking ranking = {0};
	cJSON *list;
	int result;

	if (fields_refused(&fields, reply))
		return 0;
	result = need_active_round(validator, network, &round, err);
	if (!result)
		result = rank(validator, round, usual_baseline(validator), &ranking, err);
	reply->body = cJSON_CreateObject();
	cJSON_AddStringToObject(reply->body, "network", network);
	json_add_id(reply->body, "round_id", result ? 0 : round);
	list = cJSON_AddArrayToObject(reply->body, "leaderboard");
	if (!result)
		result = list_ranked(validator, &ranking, (size_t)limit, list, err);
	ranking_free(&ranking);
	return result;
}
