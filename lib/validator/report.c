/* What anybody may read: lists and statistics. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/json.h"
#include "net/fields.h"
#include "validator/state.h"

#define LIMIT_MOST 1000
#define TOP_PERFORMERS 10
#define PENDING_LIMIT 10
#define PENDING_MOST 100

int handle_pending_reveals(
	const struct server_request *request, struct server_reply *reply, void *context, struct error *err)
{
	struct validator *validator = context;
	int64_t block = validator_block(validator);
	sqlite3_stmt *query = database_query(validator->database, err,
		"SELECT id, miner_hotkey, substr(commitment_hash, 1, 16) || '...', reveal_block, created_at"
		" FROM submission WHERE NOT revealed ORDER BY id",
		"");
	struct rows rows = {0};
	bool more = true;
	int row = query ? 0 : -1;

	(void)request;
	while (query && more && (row = database_step(validator->database, query, err)) > 0) {
		int64_t left = sqlite3_column_int64(query, 3) - block;
		cJSON *entry = cJSON_CreateObject();

		json_add_id(entry, "submission_id", sqlite3_column_int64(query, 0));
		json_add_text(entry, "miner_hotkey", database_text(query, 1));
		json_add_text(entry, "commitment_hash", database_text(query, 2));
		cJSON_AddNumberToObject(entry, "reveal_block", sqlite3_column_double(query, 3));
		cJSON_AddNumberToObject(entry, "blocks_remaining", left > 0 ? (double)left : 0);
		cJSON_AddBoolToObject(entry, "can_reveal", left <= 0);
		json_add_naive_time(entry, "created_at", sqlite3_column_double(query, 4));
		more = rows_add(validator, &rows, entry);
	}
	if (!more)
		sqlite3_reset(query);
	reply->body = cJSON_CreateObject();
	cJSON_AddNumberToObject(reply->body, "current_block", (double)block);
	rows_end(&rows, "pending_reveals", reply);
	return row < 0 ? -1 : 0;
}

static cJSON *submission_entry(const struct validator *validator, sqlite3_stmt *query)
{
	const char *hidden = validator->version->hides_forks ? "[HIDDEN]" : NULL;
	const char *benchmarks = database_text(query, 8);
	cJSON *entry = cJSON_CreateObject();

	json_add_id(entry, "id", sqlite3_column_int64(query, 0));
	json_add_text(entry, "miner_hotkey", database_text(query, 1));
	json_add_text(entry, "fork_url", hidden ? hidden : database_text(query, 2));
	json_add_text(entry, "commit_hash", hidden ? hidden : database_text(query, 3));
	json_add_text(entry, "repo_hash", database_text(query, 4));
	add_integer(entry, "target_sequence_length", sqlite3_column_int64(query, 5));
	cJSON_AddNumberToObject(entry, "tokens_per_sec", sqlite3_column_double(query, 6));
	json_add_real(entry, "vram_mb", column_real(query, 7));
	cJSON_AddItemToObject(
		entry, "benchmarks", benchmarks ? cJSON_CreateRaw(benchmarks) : cJSON_CreateNull());
	cJSON_AddBoolToObject(entry, "validated", sqlite3_column_int(query, 9));
	json_add_naive_time(entry, "created_at", sqlite3_column_double(query, 10));
	return entry;
}

/* Of the listed submissions' tokens/s. */
struct speeds {
	double sum, most, least;
	int64_t count;
};

static int list_recent(struct validator *validator, int64_t limit, struct rows *rows, struct speeds *speeds,
	struct error *err)
{
	sqlite3_stmt *query = database_query(validator->database, err,
		"SELECT id, miner_hotkey, fork_url, commit_hash, repo_hash, target_sequence_length,"
		" tokens_per_sec, vram_mb, benchmarks, validated, created_at"
		" FROM submission WHERE NOT validated ORDER BY created_at DESC LIMIT ?",
		"i", limit);
	int row = query ? 0 : -1;
	bool more = true;

	while (query && more && (row = database_step(validator->database, query, err)) > 0) {
		double speed = sqlite3_column_double(query, 6);

		speeds->sum += speed;
		speeds->most = !speeds->count || speed > speeds->most ? speed : speeds->most;
		speeds->least = !speeds->count || speed < speeds->least ? speed : speeds->least;
		speeds->count++;
		more = rows_add(validator, rows, submission_entry(validator, query));
	}
	if (!more)
		sqlite3_reset(query);
	return row < 0 ? -1 : 0;
}

static int list_top(struct validator *validator, struct rows *rows, struct error *err)
{
	sqlite3_stmt *query = database_query(validator->database, err,
		"SELECT id, miner_hotkey, tokens_per_sec, target_sequence_length, created_at"
		" FROM submission ORDER BY tokens_per_sec DESC LIMIT ?",
		"i", (int64_t)TOP_PERFORMERS);
	int row = query ? 0 : -1;

	while (query && (row = database_step(validator->database, query, err)) > 0) {
		cJSON *entry = cJSON_CreateObject();
		double speed = sqlite3_column_double(query, 2);

		json_add_id(entry, "id", sqlite3_column_int64(query, 0));
		json_add_text(entry, "miner_hotkey", database_text(query, 1));
		json_add_real(entry, "tokens_per_sec", speed > -INFINITY ? speed : NAN); /* it was NaN */
		add_integer(entry, "target_sequence_length", sqlite3_column_int64(query, 3));
		json_add_naive_time(entry, "created_at", sqlite3_column_double(query, 4));
		rows_add(validator, rows, entry);
	}
	return row;
}

static int count_submissions(struct validator *validator, double since, int64_t *count, struct error *err)
{
	sqlite3_stmt *query;

	if (database_row(validator->database, &query, err,
		    "SELECT count(*) FROM submission WHERE created_at >= ?", "r", since) < 0)
		return -1;
	*count = sqlite3_column_int64(query, 0);
	sqlite3_reset(query);
	return 0;
}

static double two_digits(double value)
{
	char text[352];

	snprintf(text, sizeof(text), "%.2f", value);
	return strtod(text, NULL);
}

int handle_submission_stats(
	const struct server_request *request, struct server_reply *reply, void *context, struct error *err)
{
	struct validator *validator = context;
	struct fields fields = fields_query(request, &validator->version->fields);
	int64_t limit = fields_integer_or(&fields, "limit", 50), total = 0;
	struct rows recent = {0}, top = {0};
	struct speeds speeds = {0};
	int result;
	cJSON *stats;

	if (fields_refused(&fields, reply))
		return 0;
	if (!validator->version->all_rows && (limit < 0 || limit > LIMIT_MOST))
		limit = LIMIT_MOST;
	result = count_submissions(validator, 0, &total, err);
	if (!result)
		result = list_recent(validator, limit, &recent, &speeds, err);
	if (!result)
		result = list_top(validator, &top, err);
	reply->body = cJSON_CreateObject();
	cJSON_AddNumberToObject(reply->body, "total_submissions", (double)total);
	stats = cJSON_AddObjectToObject(reply->body, "stats");
	cJSON_AddNumberToObject(stats, "avg_tokens_per_sec",
		speeds.count ? two_digits(speeds.sum / (double)speeds.count) : 0);
	cJSON_AddNumberToObject(stats, "max_tokens_per_sec", two_digits(speeds.most));
	cJSON_AddNumberToObject(stats, "min_tokens_per_sec", two_digits(speeds.least));
	cJSON_AddNumberToObject(stats, "total_submissions", (double)total);
	rows_end(&recent, "recent_submissions", reply);
	rows_end(&top, "top_performers", reply);
	return result;
}

int handle_submission_rate(
	const struct server_request *request, struct server_reply *reply, void *context, struct error *err)
{
	struct validator *validator = context;
	struct fields fields = fields_query(request, &validator->version->fields);
	int64_t minutes = fields_integer_or(&fields, "window_minutes", 10), count;

	if (fields_refused(&fields, reply))
		return 0;
	if (count_submissions(validator, validator_now(validator) - (double)minutes * 60, &count, err) < 0)
		return -1;
	reply->body = cJSON_CreateObject();
	cJSON_AddNumberToObject(reply->body, "submissions_per_minute",
		minutes > 0 ? two_digits((double)count / (double)minutes) : 0);
	cJSON_AddNumberToObject(reply->body, "recent_submissions", (double)count);
	cJSON_AddNumberToObject(reply->body, "window_minutes", (double)minutes);
	return 0;
}

int handle_verification_stats(
	const struct server_request *request, struct server_reply *reply, void *context, struct error *err)
{
	struct validator *validator = context;
	struct fields fields = fields_query(request, &validator->version->fields);
	int64_t round = fields_integer_or(&fields, "round_id", 0);
	double passed, failed;
	sqlite3_stmt *query;

	if (fields_refused(&fields, reply))
		return 0;
	if (database_row(validator->database, &query, err,
		    "SELECT count(*), ifnull(sum(logits_passed), 0), ifnull(sum(NOT logits_passed), 0),"
		    " avg(cosine_similarity), avg(max_abs_diff)"
		    " FROM submission WHERE revealed AND (?1 = 0 OR round_id = ?1)",
		    "i", round) < 0)
		return -1;
	passed = sqlite3_column_double(query, 1);
	failed = sqlite3_column_double(query, 2);
	reply->body = cJSON_CreateObject();
	cJSON_AddNumberToObject(reply->body, "total_submissions", sqlite3_column_double(query, 0));
	cJSON_AddNumberToObject(reply->body, "verified_passed", passed);
	cJSON_AddNumberToObject(reply->body, "verified_failed", failed);
	cJSON_AddNumberToObject(
		reply->body, "pending_verification", sqlite3_column_double(query, 0) - passed - failed);
	json_add_real(reply->body, "pass_rate", passed + failed > 0 ? passed / (passed + failed) : NAN);
	json_add_real(reply->body, "avg_cosine_similarity", column_real(query, 3));
	json_add_real(reply->body, "avg_max_abs_diff", column_real(query, 4));
	sqlite3_reset(query);
	return 0;
}

#define PENDING                                                                                              \
	" FROM submission JOIN round ON round.id = round_id"                                                 \
	" WHERE NOT validated AND revealed AND network = ?"                                                  \
	" AND miner_hotkey NOT IN (SELECT hotkey FROM miner WHERE flag IS NOT NULL)"

static int count_pending(struct validator *validator, const char *network, double *count, struct error *err)
{
	sqlite3_stmt *query;

	if (database_row(validator->database, &query, err, "SELECT count(*)" PENDING, "s", network) < 0)
		return -1;
	*count = sqlite3_column_double(query, 0);
	sqlite3_reset(query);
	return 0;
}

/* What validators need to judge it: without the client's address. */
static cJSON *pending_entry(sqlite3_stmt *query)
{
	cJSON *entry = cJSON_CreateObject();

	json_add_id(entry, "id", sqlite3_column_int64(query, 0));
	json_add_text(entry, "miner_hotkey", database_text(query, 1));
	json_add_text(entry, "fork_url", database_text(query, 2));
	json_add_text(entry, "commit_hash", database_text(query, 3));
	json_add_text(entry, "repo_hash", database_text(query, 4));
	json_add_text(entry, "docker_image", database_text(query, 5));
	add_integer(entry, "target_sequence_length", sqlite3_column_int64(query, 6));
	cJSON_AddNumberToObject(entry, "tokens_per_sec", sqlite3_column_double(query, 7));
	json_add_real(entry, "vram_mb", column_real(query, 8));
	json_add_text(entry, "benchmarks", database_text(query, 9)); /* as text, not as a document */
	add_integer(entry, "round_id", sqlite3_column_int64(query, 10));
	json_add_naive_time(entry, "created_at", sqlite3_column_double(query, 11));
	return entry;
}

int handle_pending_validations(
	const struct server_request *request, struct server_reply *reply, void *context, struct error *err)
{
	static const struct field_bound bounds[] = {{"limit", 1, PENDING_MOST}, {0}};
	static const struct field_rules rules = {.bounds = bounds, .any_number = true};
	struct validator *validator = context;
	struct fields fields = fields_query(request, &rules);
	int64_t limit = fields_integer_or(&fields, "limit", PENDING_LIMIT);
	const char *network = validator_network(validator, &fields);
	struct rows rows = {0};
	sqlite3_stmt *query;
	double total = 0;
	int row, count = 0;

	if (fields_refused(&fields, reply))
		return 0;
	row = count_pending(validator, network, &total, err);
	query = row ? NULL
		    : database_query(validator->database, err,
			      "SELECT submission.id, miner_hotkey, fork_url, commit_hash, repo_hash,"
			      " docker_image, target_sequence_length, tokens_per_sec, vram_mb, benchmarks,"
			      " round_id, created_at" PENDING " ORDER BY created_at, submission.id LIMIT ?",
			      "si", network, limit);
	for (row = query ? 0 : -1; query && (row = database_step(validator->database, query, err)) > 0;
		count++)
		rows_add(validator, &rows, pending_entry(query));
	reply->body = cJSON_CreateObject();
	cJSON_AddNumberToObject(reply->body, "pending_count", count);
	cJSON_AddNumberToObject(reply->body, "total_pending", total);
	rows_end(&rows, "submissions", reply);
	return row;
}
