/* What the dashboard shows to whoever has a key. The leaderboard is in round.c. */
#include <math.h>

#include "base/json.h"
#include "net/fields.h"
#include "validator/state.h"

#define TOP_LIMIT 10
#define NEWEST 20 /* submissions of a miner */

int handle_overview(
	const struct server_request *request, struct server_reply *reply, void *context, struct error *err)
{
	static const char *const names[] = {"total_miners", "flagged_miners", "total_submissions",
		"unrevealed_submissions", "validated_submissions", "completed_rounds"};
	struct validator *validator = context;
	struct fields fields = fields_query(request, &validator->version->fields);
	const char *network = validator_network(validator, &fields);
	sqlite3_stmt *query;

	if (fields_refused(&fields, reply))
		return 0;
	if (database_row(validator->database, &query, err,
		    "WITH own AS (SELECT revealed, validated FROM submission JOIN round ON round.id = round_id"
		    "  WHERE network = ?1)"
		    " SELECT (SELECT count(*) FROM miner WHERE network = ?1),"
		    " (SELECT count(flag) FROM miner WHERE network = ?1), (SELECT count(*) FROM own),"
		    " (SELECT count(*) FROM own WHERE NOT revealed), (SELECT count(*) FROM own WHERE validated),"
		    " (SELECT count(*) FROM round WHERE network = ?1 AND status = 'completed')",
		    "s", network) < 0)
		return -1;
	reply->body = cJSON_CreateObject();
	cJSON_AddStringToObject(reply->body, "network", network);
	for (int i = 0; i < (int)(sizeof(names) / sizeof(*names)); i++)
		add_integer(reply->body, names[i], sqlite3_column_int64(query, i));
	sqlite3_reset(query);
	return 0;
}

int handle_top_miners(
	const struct server_request *request, struct server_reply *reply, void *context, struct error *err)
{
	struct validator *validator = context;
	struct fields fields = fields_query(request, &validator->version->fields);
	int64_t limit = fields_integer_or(&fields, "limit", TOP_LIMIT);
	const char *network = validator_network(validator, &fields);
	struct rows rows = {0};
	sqlite3_stmt *query;
	int row;

	if (fields_refused(&fields, reply))
		return 0;
	query = database_query(validator->database, err,
		"SELECT miner_hotkey, max(validated_tokens_per_sec) AS best, count(*)"
		" FROM submission JOIN round ON round.id = round_id"
		" WHERE network = ? AND logits_passed AND validated_tokens_per_sec IS NOT NULL"
		" GROUP BY miner_hotkey ORDER BY best DESC, miner_hotkey LIMIT ?",
		"si", network, limit);
	for (row = query ? 0 : -1; query && (row = database_step(validator->database, query, err)) > 0;) {
		cJSON *entry = cJSON_CreateObject();

		json_add_text(entry, "hotkey", database_text(query, 0));
		json_add_real(entry, "validated_tokens_per_sec", column_real(query, 1));
		add_integer(entry, "submissions", sqlite3_column_int64(query, 2));
		rows_add(validator, &rows, entry);
	}
	reply->body = cJSON_CreateObject();
	cJSON_AddStringToObject(reply->body, "network", network);
	rows_end(&rows, "top_miners", reply);
	return row;
}

static cJSON *submission_entry(sqlite3_stmt *query)
{
	cJSON *entry = cJSON_CreateObject();

	json_add_id(entry, "id", sqlite3_column_int64(query, 0));
	add_integer(entry, "round_id", sqlite3_column_int64(query, 1));
	add_integer(entry, "target_sequence_length", sqlite3_column_int64(query, 2));
	json_add_real(entry, "tokens_per_sec", column_real(query, 3));
	json_add_real(entry, "validated_tokens_per_sec", column_real(query, 4));
	json_add_real(entry, "score", column_real(query, 5));
	cJSON_AddBoolToObject(entry, "is_revealed", sqlite3_column_int(query, 6));
	cJSON_AddBoolToObject(entry, "validated", sqlite3_column_int(query, 7));
	json_add_naive_time(entry, "created_at", sqlite3_column_double(query, 8));
	return entry;
}

static int list_newest(struct validator *validator, const char *hotkey, const char *network,
	struct rows *rows, struct error *err)
{
	sqlite3_stmt *query = database_query(validator->database, err,
		"SELECT submission.id, round_id, target_sequence_length, tokens_per_sec,"
		" validated_tokens_per_sec, score, revealed, validated, created_at"
		" FROM submission JOIN round ON round.id = round_id WHERE miner_hotkey = ? AND network = ?"
		" ORDER BY created_at DESC, submission.id DESC LIMIT ?",
		"ssi", hotkey, network, (int64_t)NEWEST);
	int row = query ? 0 : -1;

	while (query && (row = database_step(validator->database, query, err)) > 0)
		rows_add(validator, rows, submission_entry(query));
	return row;
}

int handle_dashboard_miner(
	const struct server_request *request, struct server_reply *reply, void *context, struct error *err)
{
	struct validator *validator = context;
	struct fields path = fields_path(request, &validator->version->fields);
	struct fields fields = fields_query(request, &validator->version->fields);
	const char *hotkey = fields_string(&path, "hotkey");
	const char *network = validator_network(validator, &fields);
	struct rows rows = {0};
	sqlite3_stmt *query;
	int result;

	if (fields_refused(&path, reply) || fields_refused(&fields, reply))
		return 0;
	result = database_row(validator->database, &query, err,
		"SELECT uid, github_name, flag FROM miner WHERE hotkey = ? AND network = ?", "ss", hotkey,
		network);
	if (result == 0)
		server_refuse(reply, 404, "Miner not found");
	if (result <= 0)
		return result;
	reply->body = cJSON_CreateObject();
	cJSON_AddStringToObject(reply->body, "hotkey", hotkey);
	cJSON_AddStringToObject(reply->body, "network", network);
	add_integer(reply->body, "uid", sqlite3_column_int64(query, 0));
	json_add_text(reply->body, "github_username", database_text(query, 1));
	cJSON_AddBoolToObject(reply->body, "is_flagged", database_text(query, 2) != NULL);
	json_add_text(reply->body, "flag_reason", database_text(query, 2));
	sqlite3_reset(query);
	result = list_newest(validator, hotkey, network, &rows, err);
	rows_end(&rows, "submissions", reply);
	return result;
}
