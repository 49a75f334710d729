/* One person, one hotkey: who is behind a miner, and who is flagged. */
#include <stdlib.h>
#include <string.h>

#include "base/address.h"
#include "base/json.h"
#include "base/memory.h"
#include "fork/fork.h"
#include "net/fields.h"
#include "validator/state.h"

int validator_check_flag(
	struct validator *validator, const char *hotkey, struct server_reply *reply, struct error *err)
{
	sqlite3_stmt *query;
	int found = database_row(validator->database, &query, err,
		"SELECT flag FROM miner WHERE hotkey = ? AND flag IS NOT NULL", "s", hotkey);

	if (found <= 0)
		return found < 0 ? -1 : 1;
	server_refuse(reply, 403, "Miner flagged: %s", database_text(query, 0));
	sqlite3_reset(query);
	return 0;
}

int validator_flag(struct validator *validator, const char *hotkey, const char *reason, struct error *err)
{
	return database_run(validator->database, err,
		"UPDATE miner SET flag = ? WHERE hotkey = ? AND flag IS NULL", "ss", reason, hotkey);
}

/* Whose row a query finds, which asks for ?1 and for others than the hotkey ?2. 1: nobody's; 0: another hotkey's,
 * and the reply is made. */
static int refuse_shared(struct validator *validator, const char *sql, const char *what, const char *value,
	const char *hotkey, struct server_reply *reply, struct error *err)
{
	sqlite3_stmt *query;
	int found = database_row(validator->database, &query, err, sql, "ss", value, hotkey);

	if (found <= 0)
		return found < 0 ? -1 : 1;
	sqlite3_reset(query);
	server_refuse(reply, 403, "%s %s belongs to another hotkey", what, value);
	return 0;
}

int validator_check_owner(struct validator *validator, const char *hotkey, const char *network,
	const char *fork_url, struct server_reply *reply, struct error *err)
{
	char *name = fork_url ? fork_url_owner(fork_url) : NULL;
	int result = 1;

	if (name)
		result = refuse_shared(validator, "SELECT 1 FROM miner WHERE github_name = ? AND hotkey != ?",
			"GitHub account", name, hotkey, reply, err);
	if (name && result > 0 &&
		database_run(validator->database, err,
			"UPDATE miner SET github_name = ? WHERE hotkey = ? AND network = ?", "sss", name,
			hotkey, network) < 0)
		result = -1;
	free(name);
	return result;
}

/* Noted before it is compared, so that of two that share it the earlier one is found out, too. */
static int check_address(struct validator *validator, const char *hotkey, const char *network,
	const char *address, struct server_reply *reply, struct error *err)
{
	if (!address || !address_text_is_public(address))
		return 1;
	if (database_run(validator->database, err,
		    "UPDATE miner SET address = ? WHERE hotkey = ? AND network = ?", "sss", address, hotkey,
		    network) < 0)
		return -1;
	return refuse_shared(validator, "SELECT 1 FROM miner WHERE address = ? AND hotkey != ?", "IP address",
		address, hotkey, reply, err);
}

static int check_coldkey(
	struct validator *validator, const char *hotkey, struct server_reply *reply, struct error *err)
{
	char *coldkey;
	sqlite3_stmt *query;
	int result = database_row(validator->database, &query, err,
		"SELECT coldkey FROM miner WHERE hotkey = ? AND coldkey IS NOT NULL", "s", hotkey);

	if (result <= 0)
		return result < 0 ? -1 : 1;
	coldkey = database_copy_text(query, 0);
	sqlite3_reset(query);
	result = refuse_shared(validator, "SELECT 1 FROM miner WHERE coldkey = ? AND hotkey != ?", "Coldkey",
		coldkey, hotkey, reply, err);
	free(coldkey);
	return result;
}

int validator_check_person(struct validator *validator, const char *hotkey, const char *network,
	const char *fork_url, const char *address, struct server_reply *reply, struct error *err)
{
	int result = validator_check_owner(validator, hotkey, network, fork_url, reply, err);

	if (result > 0)
		result = check_address(validator, hotkey, network, address, reply, err);
	if (result > 0)
		result = check_coldkey(validator, hotkey, reply, err);
	if (result == 0 &&
		validator_flag(validator, hotkey,
			cJSON_GetStringValue(cJSON_GetObjectItem(reply->body, "detail")), err) < 0)
		return -1;
	return result;
}

/* --- what validators say ----------------------------------------------------------------------- */

int handle_sync_uids(
	const struct server_request *request, struct server_reply *reply, void *context, struct error *err)
{
	struct validator *validator = context;
	struct fields fields = fields_body(request, &validator->version->fields);
	const char *network = validator_network(validator, &fields);
	const cJSON *uids = fields_integers(&fields, "uid_map", true);
	const cJSON *coldkeys = fields_strings(&fields, "coldkey_map", false);
	char *uid_text, *coldkey_text;
	int64_t updated = 0, deleted = 0;
	int result;

	if (fields_refused(&fields, reply))
		return 0;
	uid_text = cJSON_PrintUnformatted(uids);
	coldkey_text = coldkeys ? cJSON_PrintUnformatted(coldkeys) : xstrdup("{}");
	result = database_run(validator->database, err,
		"INSERT INTO miner (hotkey, network, uid, registered_at, coldkey)"
		" SELECT uids.key, ?1, uids.value, ?2, coldkeys.value FROM json_each(?3) AS uids"
		" LEFT JOIN json_each(?4) AS coldkeys ON coldkeys.key = uids.key WHERE true"
		" ON CONFLICT DO UPDATE SET uid = excluded.uid, coldkey = ifnull(excluded.coldkey, coldkey)",
		"srss", network, validator_now(validator), uid_text, coldkey_text);
	updated = database_changes(validator->database);
	if (!result)
		result = database_run(validator->database, err,
			"DELETE FROM miner WHERE network = ? AND hotkey NOT IN (SELECT key FROM json_each(?))",
			"ss", network, uid_text);
	deleted = database_changes(validator->database);
	free(uid_text);
	free(coldkey_text);
	reply->body = cJSON_CreateObject();
	cJSON_AddStringToObject(reply->body, "status", "ok");
	cJSON_AddStringToObject(reply->body, "network", network);
	add_integer(reply->body, "updated", updated);
	add_integer(reply->body, "deleted", deleted);
	return result;
}

int handle_flagged_miners(
	const struct server_request *request, struct server_reply *reply, void *context, struct error *err)
{
	struct validator *validator = context;
	sqlite3_stmt *query = database_query(validator->database, err,
		"SELECT hotkey, network, uid, github_name, flag FROM miner WHERE flag IS NOT NULL"
		" ORDER BY hotkey, network",
		"");
	struct rows rows = {0};
	int row = query ? 0 : -1, count = 0;

	(void)request;
	for (; query && (row = database_step(validator->database, query, err)) > 0; count++) {
		cJSON *entry = cJSON_CreateObject();

		json_add_text(entry, "hotkey", database_text(query, 0));
		json_add_text(entry, "network", database_text(query, 1));
		add_integer(entry, "uid", sqlite3_column_int64(query, 2));
		json_add_text(entry, "github_username", database_text(query, 3));
		json_add_text(entry, "reason", database_text(query, 4));
		rows_add(validator, &rows, entry);
	}
	reply->body = cJSON_CreateObject();
	cJSON_AddNumberToObject(reply->body, "count", count);
	rows_end(&rows, "flagged_miners", reply);
	return row;
}

int handle_flag_miner(
	const struct server_request *request, struct server_reply *reply, void *context, struct error *err)
{
	struct validator *validator = context;
	struct fields fields = fields_body(request, &validator->version->fields);
	const char *hotkey = fields_string(&fields, "hotkey");
	const char *reason = fields_optional_string(&fields, "reason");
	bool flag = fields_bool_or(&fields, "flag", true);

	if (fields_refused(&fields, reply))
		return 0;
	if (database_run(validator->database, err, "UPDATE miner SET flag = ? WHERE hotkey = ?", "ss",
		    flag ? (reason ? reason : "by a validator") : NULL, hotkey) < 0)
		return -1;
	if (!database_changes(validator->database)) {
		server_refuse(reply, 404, "Miner not found");
		return 0;
	}
	reply->body = cJSON_CreateObject();
	cJSON_AddStringToObject(reply->body, "status", "ok");
	cJSON_AddStringToObject(reply->body, "hotkey", hotkey);
	cJSON_AddBoolToObject(reply->body, "flagged", flag);
	return 0;
}
