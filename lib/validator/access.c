/* Who may ask for what: signatures, registration, rate limits, bans. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/hex.h"
#include "key/keypair.h"
#include "net/fields.h"
#include "score/score.h"
#include "validator/state.h"

#define RATE_SECONDS 60.0
#define FAILURES_UNTIL_BAN 5
#define BAN_SECONDS (24 * 3600.0)

/* Whether it is the hotkey's signature of its own address. */
static bool is_signed(const struct validator *validator, const char *hotkey, const uint8_t *signature)
{
	char wrapped[128];

	if (signature_verify(hotkey, CRYPTO_SR25519, hotkey, strlen(hotkey), signature))
		return true;
	if (!validator->version->wrapped_signatures)
		return false;
	/* as browser wallets sign */
	snprintf(wrapped, sizeof(wrapped), "<Bytes>%s</Bytes>", hotkey);
	return signature_verify(hotkey, CRYPTO_SR25519, wrapped, strlen(wrapped), signature);
}

bool validator_authenticate(struct server_request *request, struct server_reply *reply, void *context)
{
	const char *hotkey = cJSON_GetStringValue(cJSON_GetObjectItem(request->headers, "Hotkey"));
	const char *hex = cJSON_GetStringValue(cJSON_GetObjectItem(request->headers, "Signature"));
	uint8_t signature[SIGNATURE_LENGTH];

	if (!hotkey || !*hotkey || !hex || !*hex)
		server_refuse(reply, 401, "Missing Hotkey or Signature header");
	else if (hex[strspn(hex, "0123456789abcdefABCDEF")])
		server_refuse(reply, 401, "Invalid signature: not hexadecimal digits (without 0x)");
	else if (strlen(hex) != 2 * SIGNATURE_LENGTH || hex_decode(hex, signature, SIGNATURE_LENGTH) < 0)
		server_refuse(reply, 401, "Invalid signature: not %d bytes", SIGNATURE_LENGTH);
	else if (!is_signed(context, hotkey, signature))
		server_refuse(reply, 401, "Invalid signature");
	else
		request->identity = hotkey;
	return request->identity != NULL;
}

/* 1: within the limit, and counted; 0: not, and the reply is made. */
static int check_rate(
	struct validator *validator, const char *hotkey, struct server_reply *reply, struct error *err)
{
	double now = validator_now(validator);
	int64_t limit = validator->options.rate_limit;
	sqlite3_stmt *query;

	if (!limit)
		return 1;
	if (database_run(validator->database, err, "DELETE FROM temp.recent WHERE at <= ?", "r",
		    now - RATE_SECONDS) < 0 ||
		database_row(validator->database, &query, err,
			"SELECT count(*), min(at) FROM temp.recent WHERE hotkey = ?", "s", hotkey) < 0)
		return -1;
	if (sqlite3_column_int64(query, 0) >= limit) {
		double wait = sqlite3_column_double(query, 1) + RATE_SECONDS - now;

		server_refuse(reply, 429,
			"Rate limit exceeded: %lld requests in %.0f seconds. Wait %.0f seconds.",
			(long long)limit, RATE_SECONDS, ceil(wait));
		reply->retry_after = wait;
		sqlite3_reset(query);
		return 0;
	}
	sqlite3_reset(query);
	return database_run(validator->database, err, "INSERT INTO temp.recent VALUES (?, ?)", "sr", hotkey,
		       now) < 0
		? -1
		: 1;
}

/* 1: not banned; 0: banned, and the reply is made. */
static int check_ban(
	struct validator *validator, const char *address, struct server_reply *reply, struct error *err)
{
	double now = validator_now(validator), until;
	char text[32];
	sqlite3_stmt *query;
	int found = database_row(validator->database, &query, err,
		"SELECT banned_until FROM address WHERE address = ? AND banned_until > ?", "sr", address,
		now);

	if (found <= 0)
		return found < 0 ? -1 : 1;
	until = sqlite3_column_double(query, 0);
	sqlite3_reset(query);
	clock_format(until, text);
	server_refuse(reply, 403, "IP address banned: IP banned for %.1f more hours, until %.19s UTC",
		(until - now) / 3600, text);
	return 0;
}

/* 1: registered, for whatever model and league; 0: not. */
static int is_registered(struct validator *validator, const char *hotkey, struct error *err)
{
	sqlite3_stmt *query;
	int found = database_row(
		validator->database, &query, err, "SELECT 1 FROM miner WHERE hotkey = ?", "s", hotkey);

	if (found > 0)
		sqlite3_reset(query);
	return found;
}

/* 1: registered; 0: not, and the reply is made. */
static int check_registered(
	struct validator *validator, const char *hotkey, struct server_reply *reply, struct error *err)
{
	int found = is_registered(validator, hotkey, err);

	if (found == 0)
		server_refuse(reply, 404, "Miner not registered");
	return found;
}

int validator_admit(struct validator *validator, const struct server_request *request, const char *hotkey,
	enum validator_admission admission, struct server_reply *reply, struct error *err)
{
	const struct validator_version *version = validator->version;
	bool checks_all = admission == ADMIT_TO_SUBMIT || !version->lax_reveals;
	int admitted = check_rate(validator, request->identity, reply, err);

	if (admitted > 0 && strcmp(hotkey, request->identity) &&
		!(admission == ADMIT_TO_REGISTER && version->registers_signer)) {
		server_refuse(reply, 403, "Hotkey mismatch");
		return 0;
	}
	if (admitted > 0 && admission != ADMIT_TO_REGISTER && checks_all)
		admitted = check_registered(validator, hotkey, reply, err);
	if (admitted > 0 && checks_all)
		admitted = check_ban(validator, request->client, reply, err);
	return admitted;
}

int validator_count_failure(struct validator *validator, const char *address, struct error *err)
{
	double now = validator_now(validator), banned_until = NAN;
	int64_t failures = 0;
	sqlite3_stmt *query;
	int found = database_row(validator->database, &query, err,
		"SELECT failures, banned_until FROM address WHERE address = ?", "s", address);

	if (found < 0)
		return -1;
	if (found) {
		failures = sqlite3_column_int64(query, 0);
		banned_until = column_real(query, 1);
		sqlite3_reset(query);
	}
	if (banned_until <= now) { /* served: count anew */
		failures = 0;
		banned_until = NAN;
	}
	if (++failures >= FAILURES_UNTIL_BAN)
		banned_until = now + BAN_SECONDS;
	return database_run(validator->database, err, "INSERT OR REPLACE INTO address VALUES (?, ?, ?)",
		"sir", address, failures, banned_until);
}

int validator_forgive(struct validator *validator, const char *address, struct error *err)
{
	return database_run(validator->database, err,
		"UPDATE address SET failures = 0 WHERE address = ? AND failures > 0", "s", address);
}

int handle_record_failure(
	const struct server_request *request, struct server_reply *reply, void *context, struct error *err)
{
	struct validator *validator = context;
	struct fields fields = fields_object(request, &validator->version->fields);
	const cJSON *raw = fields_raw(&fields, "ip_address");
	const char *address = NULL;

	if (validator->version->loose_objects && (cJSON_IsArray(raw) || cJSON_IsObject(raw))) {
		server_fault(reply);
		return 0;
	}
	if (!validator->version->loose_objects || cJSON_IsString(raw))
		address = fields_optional_string(&fields, "ip_address");
	if (fields_refused(&fields, reply))
		return 0;
	if (address && *address && validator_count_failure(context, address, err) < 0)
		return -1;
	reply->body = cJSON_CreateObject();
	cJSON_AddStringToObject(reply->body, "status", "ok");
	if (address && *address)
		cJSON_AddStringToObject(reply->body, "ip_address", address);
	cJSON_AddStringToObject(
		reply->body, "message", address && *address ? "Failure recorded" : "No IP address provided");
	return 0;
}

/* The score of a registration: 1 and the score, 0 when there is none. */
static int find_registration(struct validator *validator, const char *hotkey, const char *model,
	const char *league, double *score, struct error *err)
{
	sqlite3_stmt *query;
	int found = database_row(validator->database, &query, err,
		"SELECT score FROM registration WHERE hotkey = ? AND model_name = ? AND league = ?", "sss",
		hotkey, model, league);

	if (found > 0) {
		*score = sqlite3_column_double(query, 0);
		sqlite3_reset(query);
	}
	return found;
}

static int add_registration(struct validator *validator, const char *hotkey, const char *model,
	const char *league, struct error *err)
{
	if (database_run(validator->database, err,
		    "INSERT OR IGNORE INTO miner (hotkey, registered_at) VALUES (?, ?)", "sr", hotkey,
		    validator_now(validator)) < 0)
		return -1;
	return database_run(validator->database, err,
		"INSERT INTO registration (hotkey, model_name, league) VALUES (?, ?, ?)", "sss", hotkey,
		model, league);
}

int handle_register_miner(
	const struct server_request *request, struct server_reply *reply, void *context, struct error *err)
{
	struct validator *validator = context;
	const struct validator_version *version = validator->version;
	struct fields fields = fields_body(request, &version->fields);
	const char *hotkey = fields_string(&fields, "hotkey");
	const char *model = fields_string(&fields, "model_name");
	const char *league = fields_string(&fields, "league");
	int admitted, found;
	double score;

	if (fields_refused(&fields, reply))
		return 0;
	admitted = validator_admit(validator, request, hotkey, ADMIT_TO_REGISTER, reply, err);
	if (admitted <= 0)
		return admitted;
	if (!league_by_name(league)) {
		server_refuse(reply, 400, "Invalid league: it is one of 100k, 200k, ... 900k, 1M");
		return 0;
	}
	hotkey = request->identity;
	found = find_registration(validator, hotkey, model, league, &score, err);
	if (!found && version->registers_once) {
		int registered = is_registered(validator, hotkey, err);

		if (registered > 0)
			server_fault(reply);
		if (registered)
			return registered < 0 ? -1 : 0;
	}
	if (found < 0 || (!found && add_registration(validator, hotkey, model, league, err) < 0))
		return -1;
	reply->body = cJSON_CreateObject();
	cJSON_AddStringToObject(reply->body, "status", found ? "already_registered" : "registered");
	cJSON_AddStringToObject(reply->body, "hotkey", hotkey);
	cJSON_AddStringToObject(reply->body, "model_name", model);
	cJSON_AddStringToObject(reply->body, "league", league);
	if (found)
		cJSON_AddNumberToObject(reply->body, "current_score", score);
	return 0;
}
