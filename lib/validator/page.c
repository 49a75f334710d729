/* The page at `/`: the standings of the active round and the rounds so far. It looks, and changes nothing: a round
 * whose time is up is ended by whoever asks for it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "net/fields.h"
#include "validator/state.h"
#include "web/board.h"
#include "web/html.h"

#define ROUNDS_SHOWN 20

bool validator_check_page(struct server_request *request, struct server_reply *reply, void *context)
{
	const struct validator *validator = context;

	/* where anybody is shown the lists, the page shows nothing more */
	if (!validator->version->networks || server_is_local(request))
		return true;
	server_refuse(reply, 403, "This page is for the user of the machine that the validator runs on");
	return false;
}

static int read_rounds(struct validator *validator, const char *network, struct board *board, int64_t *active,
	struct error *err)
{
	sqlite3_stmt *query = database_query(validator->database, err,
		"SELECT id, round_number, status, start_time, end_time, winner_hotkey,"
		" (SELECT count(*) FROM submission WHERE round_id = round.id)"
		" FROM round WHERE network = ? ORDER BY round_number DESC LIMIT ?",
		"si", network, (int64_t)ROUNDS_SHOWN);
	int row = query ? 0 : -1;

	while (query && (row = database_step(validator->database, query, err)) > 0) {
		struct board_round *round = board_round(board);

		*round = (struct board_round){
			.number = sqlite3_column_int64(query, 1),
			.status = database_copy_text(query, 2),
			.start = sqlite3_column_double(query, 3),
			.end = sqlite3_column_double(query, 4),
			.winner = database_copy_text(query, 5),
			.submissions = sqlite3_column_int64(query, 6),
		};
		if (board->round_count == 1 && !strcmp(round->status, "active")) {
			*active = sqlite3_column_int64(query, 0);
			board->has_round = true;
		}
	}
	return row;
}

/* The revealed submissions of a round, in no order. */
static int read_entries(struct validator *validator, int64_t round, struct board *board, struct error *err)
{
	static const char *const states[] = {"waiting", "validated", "verification failed", "flagged"};
	sqlite3_stmt *query = database_query(validator->database, err,
		"SELECT id, miner_hotkey, target_sequence_length, iif(?2, validated_tokens_per_sec, tokens_per_sec),"
		" created_at, CASE WHEN miner_hotkey IN (SELECT hotkey FROM miner WHERE flag IS NOT NULL) THEN 3"
		"  WHEN logits_passed = 0 THEN 2 ELSE validated != 0 END"
		" FROM submission WHERE round_id = ?1 AND revealed",
		"ii", round, (int64_t)validator->version->ranks_measurements);
	int row = query ? 0 : -1;

	while (query && (row = database_step(validator->database, query, err)) > 0) {
		int state = sqlite3_column_int(query, 5);

		*board_entry(board) = (struct board_entry){
			.id = sqlite3_column_int64(query, 0),
			.hotkey = database_copy_text(query, 1),
			.tokens = sqlite3_column_int64(query, 2),
			.speed = column_real(query, 3),
			.created_at = sqlite3_column_double(query, 4),
			.state = states[state],
			.excluded = state > 1,
		};
	}
	return row;
}

static int count_unrevealed(
	struct validator *validator, int64_t round, struct board *board, struct error *err)
{
	sqlite3_stmt *query;
	int found = database_row(validator->database, &query, err,
		"SELECT count(*) FROM submission WHERE round_id = ? AND NOT revealed", "i", round);

	if (found > 0) {
		board->unrevealed = sqlite3_column_int64(query, 0);
		sqlite3_reset(query);
	}
	return found < 0 ? -1 : 0;
}

static int read_rewards(
	struct validator *validator, const char *network, struct board *board, struct error *err)
{
	cJSON *weights = cJSON_CreateArray();
	const cJSON *weight;
	int result = validator_latest_weights(validator, network, weights, err);

	cJSON_ArrayForEach (weight, weights)
		*board_share(board) = (struct board_share){
			.hotkey = xstrdup(cJSON_GetStringValue(cJSON_GetObjectItem(weight, "hotkey"))),
			.weight = cJSON_GetNumberValue(cJSON_GetObjectItem(weight, "weight")),
		};
	cJSON_Delete(weights);
	return result;
}

static int read_page(struct validator *validator, const char *network, struct board *board, struct error *err)
{
	int64_t active = 0;

	*board = (struct board){
		.name = xprintf("quasar localnet, like %s%s%s", validator->version->name,
			validator->version->networks ? ", network " : "",
			validator->version->networks ? network : ""),
		.now = validator_now(validator),
		.to_beat = NAN,
		.measured = validator->version->ranks_measurements,
	};
	if (read_rounds(validator, network, board, &active, err) < 0)
		return -1;
	if (active &&
		(validator_to_beat(validator, active, &board->to_beat, err) < 0 ||
			read_entries(validator, active, board, err) < 0 ||
			count_unrevealed(validator, active, board, err) < 0))
		return -1;
	board_rank(board);
	return read_rewards(validator, network, board, err);
}

int handle_page(
	const struct server_request *request, struct server_reply *reply, void *context, struct error *err)
{
	static const struct field_rules any;
	struct validator *validator = context;
	struct fields fields = fields_query(request, &any);
	const char *network = validator_network(validator, &fields);
	int64_t page = fields_integer_or(&fields, "page", 1);
	struct buffer html = {0};
	struct board board;
	int result;

	if (fields_refused(&fields, reply))
		return 0;
	result = read_page(validator, network, &board, err);
	if (!result) {
		board_html(&board, page > 1 ? (size_t)page : 1,
			strcmp(network, "test") ? "" : "network=test&", &html);
		reply->page = html.data;
		reply->policy = html_policy();
	}
	board_free(&board);
	return result;
}
