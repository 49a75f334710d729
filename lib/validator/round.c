/* Rounds: when they run, who won them, what the winners get. */
#include <math.h>
#include <stdlib.h>

#include "base/json.h"
#include "base/memory.h"
#include "net/fields.h"
#include "score/score.h"
#include "validator/state.h"

#define ROUND_HOURS 48
/* A date beyond it, Python does not have. */
#define ROUND_HOURS_MOST ((int64_t)7000 * 8766)

/* The id of the round that a query finds: 1, or 0 when it finds none. */
static int find_round(struct validator *validator, const char *sql, int64_t *id, struct error *err)
{
	sqlite3_stmt *query;
	int found = database_row(validator->database, &query, err, sql, "");

	if (found > 0) {
		*id = sqlite3_column_int64(query, 0);
		sqlite3_reset(query);
	}
	return found;
}

/* A new active round. What has to be beaten in it is `baseline` or, when that is 0, where the round knows
 * it, the last winner; a round that nobody won hands on its own baseline. */
static int start_round(
	struct validator *validator, double hours, int64_t baseline, int64_t *id, struct error *err)
{
	double now = validator_now(validator);

	if (database_run(validator->database, err,
		    "INSERT INTO round (round_number, start_time, end_time, status, baseline_submission_id)"
		    " SELECT ifnull(max(round_number), 0) + 1, ?1, ?2, 'active', ifnull(nullif(?3, 0),"
		    "  (SELECT ifnull(winner_submission_id, baseline_submission_id)"
		    "   FROM round WHERE ?4 ORDER BY round_number DESC LIMIT 1))"
		    " FROM round",
		    "rrii", now, now + hours * 3600, baseline,
		    (int64_t)!validator->version->baseline_one_round) < 0)
		return -1;
	*id = database_last_id(validator->database);
	return 0;
}

static const char active_round[] =
	"SELECT id FROM round WHERE status = 'active' ORDER BY round_number DESC LIMIT 1";

int validator_active_round(struct validator *validator, int64_t *id, struct error *err)
{
	int found = find_round(validator, active_round, id, err);

	return found ? (found < 0 ? -1 : 0) : start_round(validator, ROUND_HOURS, 0, id, err);
}

int validator_submission_round(
	struct validator *validator, int64_t *id, struct server_reply *reply, struct error *err)
{
	int found;

	if (validator->version->waits_for_round) {
		found = find_round(validator, active_round, id, err);
		if (!found && find_round(validator, "SELECT id FROM round LIMIT 1", id, err) > 0) {
			server_refuse(reply, 500,
				"(sqlite3.IntegrityError) UNIQUE constraint failed:"
				" competition_rounds.round_number");
			return 0;
		}
	}
	return validator_active_round(validator, id, err) < 0 ? -1 : 1;
}

static int answer_round(
	struct validator *validator, int64_t id, struct server_reply *reply, struct error *err)
{
	double left;
	sqlite3_stmt *query;

	if (database_row(validator->database, &query, err,
		    "SELECT round_number, start_time, end_time, status, baseline_submission_id, winner_hotkey,"
		    " (SELECT count(*) FROM submission WHERE round_id = round.id) FROM round WHERE id = ?",
		    "i", id) < 0)
		return -1;
	left = sqlite3_column_double(query, 2) - validator_now(validator);
	reply->body = cJSON_CreateObject();
	json_add_id(reply->body, "id", id);
	cJSON_AddNumberToObject(reply->body, "round_number", sqlite3_column_double(query, 0));
	json_add_time(reply->body, "start_time", sqlite3_column_double(query, 1));
	json_add_time(reply->body, "end_time", sqlite3_column_double(query, 2));
	json_add_text(reply->body, "status", database_text(query, 3));
	cJSON_AddNumberToObject(reply->body, "time_remaining_seconds", left > 0 ? floor(left) : 0);
	json_add_id(reply->body, "baseline_submission_id", sqlite3_column_int64(query, 4));
	json_add_text(reply->body, "winner_hotkey", database_text(query, 5));
	cJSON_AddNumberToObject(reply->body, "total_submissions", sqlite3_column_double(query, 6));
	sqlite3_reset(query);
	return 0;
}

int handle_current_round(
	const struct server_request *request, struct server_reply *reply, void *context, struct error *err)
{
	int64_t id;

	(void)request;
	if (validator_active_round(context, &id, err) < 0)
		return -1;
	return answer_round(context, id, reply, err);
}

/* The weighted score of a submission: 1, or 0 when there is none with that id. */
static int weighted_score(struct validator *validator, int64_t id, double *score, struct error *err)
{
	sqlite3_stmt *query;
	int found = database_row(validator->database, &query, err,
		"SELECT tokens_per_sec, target_sequence_length FROM submission WHERE id = ?", "i", id);

	if (found > 0) {
		*score = score_weighted(sqlite3_column_double(query, 0), sqlite3_column_int64(query, 1));
		sqlite3_reset(query);
	}
	return found;
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
	int64_t hours = fields_integer_or(&fields, "duration_hours", ROUND_HOURS);
	int64_t baseline = fields_integer_or(&fields, "baseline_submission_id", 0), id;
	int found;

	if (fields_refused(&fields, reply))
		return 0;
	found = check_baseline(validator, baseline, reply, err);
	if (found <= 0)
		return found;
	if (database_run(validator->database, err,
		    "UPDATE round SET status = 'completed' WHERE status = 'active'", "") < 0)
		return -1;
	if (llabs(hours) > ROUND_HOURS_MOST) {
		server_fault(reply);
		return 0;
	}
	if (start_round(validator, (double)hours, baseline, &id, err) < 0)
		return -1;
	if (!validator->version->creation_faults)
		return answer_round(validator, id, reply, err);
	server_fault(reply);
	return 0;
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
		"SELECT id, tokens_per_sec, target_sequence_length, created_at, revealed, logits_passed"
		" FROM submission WHERE round_id = ? AND validated",
		"i", round);
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
		" FROM round LEFT JOIN round AS previous ON previous.round_number = round.round_number - 1"
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
	json_add_time(item, "created_at", entry->created_at);
	json_add_text(item, "solution_hash", database_text(query, 1));
	cJSON_AddItemToObject(item, "logit_verification_passed",
		entry->logits == LOGITS_PENDING ? cJSON_CreateNull()
						: cJSON_CreateBool(entry->logits == LOGITS_PASSED));
	json_add_real(item, "cosine_similarity", column_real(query, 2));
	json_add_real(item, "max_abs_diff", column_real(query, 3));
	json_add_real(item, "throughput_verified", column_real(query, 4));
	cJSON_AddItemToArray(list, item);
}

static int list_ranked(
	struct validator *validator, const struct ranking *ranking, cJSON *list, struct error *err)
{
	for (size_t place = 0; place < ranking->count && place < REWARD_RANKS; place++) {
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
	cJSON *list = cJSON_CreateArray(), *first;
	const char *winner;
	int result = rank(validator, round, BASELINE_OWN, &ranking, err);

	if (!result)
		result = list_ranked(validator, &ranking, list, err);
	first = cJSON_GetArrayItem(list, 0);
	winner = cJSON_GetStringValue(cJSON_GetObjectItem(first, "miner_hotkey"));
	if (!result)
		result = database_run(validator->database, err,
			"UPDATE round SET status = 'completed', winner_submission_id = nullif(?, 0),"
			" winner_hotkey = ? WHERE id = ?",
			"isi", ranking.count ? ranking.entries[ranking.order[0]].id : 0, winner, round);
	reply->body = cJSON_CreateObject();
	cJSON_AddStringToObject(reply->body, "status", "completed");
	if (!ranking.entry_count && validator->version->bare_results) {
		cJSON_AddItemToObject(reply->body, "winners", list);
	} else {
		json_add_id(reply->body, "round_id", round);
		json_add_text(reply->body, "winner", winner);
		cJSON_AddItemToObject(reply->body, "rankings", list);
	}
	ranking_free(&ranking);
	return result;
}

int handle_finalize_round(
	const struct server_request *request, struct server_reply *reply, void *context, struct error *err)
{
	struct validator *validator = context;
	struct fields fields = fields_path(request, &validator->version->fields);
	int64_t round = fields_integer(&fields, "round_id");
	bool active;
	sqlite3_stmt *query;
	int found;

	if (fields_refused(&fields, reply))
		return 0;
	found = database_row(validator->database, &query, err,
		"SELECT status = 'active' FROM round WHERE id = ?", "i", round);
	if (found == 0)
		server_refuse(reply, 404, "Round not found");
	if (found <= 0)
		return found;
	active = sqlite3_column_int(query, 0);
	sqlite3_reset(query);
	if (active)
		return finalize(validator, round, reply, err);
	server_refuse(reply, 400, "Round already finalized");
	return 0;
}

static int add_weight(
	struct validator *validator, int64_t submission, size_t place, cJSON *list, struct error *err)
{
	cJSON *entry = cJSON_CreateObject();
	sqlite3_stmt *query;

	cJSON_AddItemToArray(list, entry);
	if (database_row(validator->database, &query, err,
		    "SELECT uid, hotkey FROM submission JOIN miner ON hotkey = miner_hotkey WHERE id = ?",
		    "i", submission) < 0)
		return -1;
	cJSON_AddNumberToObject(entry, "uid", sqlite3_column_double(query, 0));
	json_add_text(entry, "hotkey", database_text(query, 1));
	cJSON_AddNumberToObject(entry, "weight", reward_shares[place]);
	sqlite3_reset(query);
	return 0;
}

static int list_weights(struct validator *validator, int64_t round, cJSON *list, struct error *err)
{
	struct ranking ranking = {0};
	int result = rank(validator, round,
		validator->version->baseline_one_round ? BASELINE_BEFORE : BASELINE_OWN, &ranking, err);

	for (size_t place = 0; !result && place < ranking.count && place < REWARD_RANKS; place++)
		result = add_weight(validator, ranking.entries[ranking.order[place]].id, place, list, err);
	ranking_free(&ranking);
	return result;
}

int handle_weights(
	const struct server_request *request, struct server_reply *reply, void *context, struct error *err)
{
	struct validator *validator = context;
	struct fields fields = fields_query(request, &validator->version->fields);
	int64_t round = fields_integer_or(&fields, "round_id", 0);
	cJSON *list;

	if (fields_refused(&fields, reply))
		return 0;
	if (!round &&
		find_round(validator,
			"SELECT id FROM round WHERE status = 'completed' ORDER BY round_number DESC LIMIT 1",
			&round, err) < 0)
		return -1;
	reply->body = cJSON_CreateObject();
	cJSON_AddNumberToObject(reply->body, "epoch", floor(validator_now(validator)));
	list = cJSON_AddArrayToObject(reply->body, "weights");
	return round ? list_weights(validator, round, list, err) : 0;
}
