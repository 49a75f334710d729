/* Who may ask for what: signatures, registration, rate limits, bans. */
#include <math.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "api/message.h"
#include "base/clock.h"
#include "base/hex.h"
#include "base/memory.h"
#include "base/number.h"
#include "key/keypair.h"
#include "net/fields.h"
#include "score/score.h"
#include "validator/state.h"

#define RATE_SECONDS 60.0
#define FAILURES_UNTIL_BAN 5
#define BAN_SECONDS (24 * 3600.0)

static const char *header(const struct server_request *request, const char *name)
{
	const char *value = cJSON_GetStringValue(cJSON_GetObjectItem(request->headers, name));

	return value ? value : "";
}

/* The time that the signature covers, too, as sent; NULL: none. */
static const char *timestamp(const struct server_request *request, const struct validator_version *version)
{
	const char *time = header(request, "Timestamp");

	return version->timed_requests && *time ? time : NULL;
}

/* Whether it is the hotkey's signature of what says who asks. */
static bool is_signed(const struct validator_version *version, const char *hotkey, const char *time,
	const uint8_t *signature)
{
	char *text = message_identity(hotkey, time), *wrapped = xprintf("<Bytes>%s</Bytes>", text);
	bool valid = signature_verify(hotkey, CRYPTO_SR25519, text, strlen(text), signature);

	if (!valid && version->wrapped_signatures) /* as browser wallets sign */
		valid = signature_verify(hotkey, CRYPTO_SR25519, wrapped, strlen(wrapped), signature);
	free(text);
	free(wrapped);
	return valid;
}

/* False: the time is none, or too far from now, and the reply is made. */
static bool check_time(const struct validator *validator, const char *time, struct server_reply *reply)
{
	char *end;
	double age = fabs(floor(validator_now(validator)) - (double)strtoll(time, &end, 10));

	if (end == time || *end)
		server_refuse(reply, 401, "Invalid Timestamp header: not Unix seconds");
	else if (age > MESSAGE_SECONDS)
		server_refuse(reply, 401, "Signature expired (%.0fs old, max %ds)", age, MESSAGE_SECONDS);
	else
		return true;
	return false;
}

bool validator_authenticate(struct server_request *request, struct server_reply *reply, void *context)
{
	const struct validator *validator = context;
	const struct validator_version *version = validator->version;
	const char *hotkey = header(request, "Hotkey"), *hex = header(request, "Signature");
	const char *time = timestamp(request, version);
	uint8_t signature[SIGNATURE_LENGTH];

	if (!*hotkey || !*hex) {
		server_refuse(reply, 401, "Missing Hotkey or Signature headers");
		return false;
	}
	if (version->prefixed_signatures && !strncmp(hex, "0x", 2))
		hex += 2;
	if (hex[strspn(hex, "0123456789abcdefABCDEF")])
		server_refuse(reply, 401, "Invalid signature: not hexadecimal digits%s",
			version->prefixed_signatures ? "" : " (without 0x)");
	else if (strlen(hex) != 2 * SIGNATURE_LENGTH || hex_decode(hex, signature, SIGNATURE_LENGTH) < 0)
		server_refuse(reply, 401, "Invalid signature: not %d bytes", SIGNATURE_LENGTH);
	else if (time && !check_time(validator, time, reply))
		;
	else if (!is_signed(version, hotkey, time, signature))
		server_refuse(reply, 401, "Invalid signature");
	else
		request->identity = hotkey;
	return request->identity != NULL;
}

/* Whether one of the list, up to a colon, is this. In the same time wherever they differ. */
static bool is_listed(const char *list, const char *item)
{
	size_t length = strlen(item);

	for (; list && *list; list += strspn(list, ", ")) {
		size_t end = strcspn(list, ", "), name = strcspn(list, ":, ");

		if (name && name == length && sodium_memcmp(list, item, length) == 0)
			return true;
		list += end;
	}
	return false;
}

bool validator_authorize(struct server_request *request, struct server_reply *reply, void *context)
{
	const struct validator *validator = context;
	const char *hotkeys = validator->options.validator_hotkeys;

	if (!validator_authenticate(request, reply, context))
		return false;
	if (is_listed(hotkeys, request->identity))
		return true;
	if (hotkeys && *hotkeys)
		server_refuse(reply, 403,
			"Hotkey is not an authorized validator. VALIDATOR_HOTKEYS names those that are.");
	else
		server_refuse(reply, 503, "No validator is authorized: VALIDATOR_HOTKEYS is empty");
	return false;
}

bool validator_authorize_reader(struct server_request *request, struct server_reply *reply, void *context)
{
	static const char bearer[] = "Bearer ";
	const char *keys = ((struct validator *)context)->options.api_keys;
	const char *authorization = header(request, "Authorization");

	if (is_listed(keys, header(request, "X-API-Key")) ||
		(!strncasecmp(authorization, bearer, strlen(bearer)) &&
			is_listed(keys, authorization + strlen(bearer))) ||
		validator_authorize(request, reply, context))
		return true;
	server_refuse(reply, 401, "Neither an API key nor the signature of an authorized validator");
	return false;
}

char *validator_address(const struct validator *validator, const struct server_request *request)
{
	const char *forwarded = header(request, "X-Forwarded-For"), *real = header(request, "X-Real-IP");
	size_t length = strcspn(forwarded, ", ");

	if (validator->version->forwarded_addresses && length)
		return xprintf("%.*s", (int)length, forwarded);
	return xstrdup(validator->version->forwarded_addresses && *real ? real : request->client);
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
static int check_ban(struct validator *validator, const struct server_request *request,
	struct server_reply *reply, struct error *err)
{
	char *address = validator_address(validator, request);
	double now = validator_now(validator), until;
	char text[32];
	sqlite3_stmt *query;
	int found = database_row(validator->database, &query, err,
		"SELECT banned_until FROM address WHERE address = ? AND banned_until > ?", "sr", address,
		now);

	free(address);
	if (found <= 0)
		return found < 0 ? -1 : 1;
	until = sqlite3_column_double(query, 0);
	sqlite3_reset(query);
	clock_format(until, text);
	server_refuse(reply, 403, "IP address banned: IP banned for %.1f more hours, until %.19s UTC",
		(until - now) / 3600, text);
	return 0;
}

/* 1: there is a miner of that hotkey; 0: not. */
static int is_registered(
	struct validator *validator, const char *hotkey, const char *network, struct error *err)
{
	sqlite3_stmt *query;
	int found = database_row(validator->database, &query, err,
		"SELECT 1 FROM miner WHERE hotkey = ? AND network = ?", "ss", hotkey, network);

	if (found > 0)
		sqlite3_reset(query);
	return found;
}

/* 1: registered; 0: not, and the reply is made. */
static int check_registered(struct validator *validator, const char *hotkey, const char *network,
	struct server_reply *reply, struct error *err)
{
	int found = is_registered(validator, hotkey, network, err);

	if (found == 0)
		server_refuse(reply, 404, "Miner not registered");
	return found;
}

/* 1: its latest submission is long enough ago; 0: not, and the reply is made. */
static int check_cooldown(struct validator *validator, const char *hotkey, const char *network,
	struct server_reply *reply, struct error *err)
{
	double wait;
	sqlite3_stmt *query;

	if (!validator->options.cooldown)
		return 1;
	if (database_row(validator->database, &query, err,
		    "SELECT max(created_at) FROM submission JOIN round ON round.id = round_id"
		    " WHERE miner_hotkey = ? AND network = ?",
		    "ss", hotkey, network) < 0)
		return -1;
	wait = column_real(query, 0) + validator->options.cooldown - validator_now(validator);
	sqlite3_reset(query);
	if (!(wait > 0))
		return 1;
	server_refuse(reply, 429, "Rate limit exceeded. Please wait %.0f seconds before submitting again.",
		ceil(wait));
	return 0;
}

int validator_admit(struct validator *validator, const struct server_request *request, const char *hotkey,
	const char *network, enum validator_admission admission, struct server_reply *reply,
	struct error *err)
{
	const struct validator_version *version = validator->version;
	bool checks_all = admission == ADMIT_TO_SUBMIT || !version->lax_reveals;
	int admitted = check_rate(validator, request->identity, reply, err);

	if (admitted > 0 && strcmp(hotkey, request->identity) &&
		!(admission == ADMIT_TO_REGISTER && version->registers_signer)) {
		server_refuse(reply, 403, "Hotkey mismatch");
		return 0;
	}
	if (admitted > 0 && version->flags && admission != ADMIT_TO_REVEAL)
		admitted = validator_check_flag(validator, request->identity, reply, err);
	if (admitted > 0 && admission != ADMIT_TO_REGISTER && checks_all && !version->registers_submitters)
		admitted = check_registered(validator, hotkey, network, reply, err);
	if (admitted > 0 && checks_all)
		admitted = check_ban(validator, request, reply, err);
	if (admitted > 0 && admission == ADMIT_TO_SUBMIT)
		admitted = check_cooldown(validator, hotkey, network, reply, err);
	return admitted;
}

bool validator_check_plausible(
	const struct validator *validator, const char *name, double speed, struct server_reply *reply)
{
	double least = validator->version->least_claim, most = validator->version->most_claim;
	char text[32];

	if (!most || (speed >= least && speed <= most))
		return true;
	number_repr(speed, text);
	server_refuse(reply, 400, "%s %s outside plausible range (%.0f to %.0f).", name, text, least, most);
	return false;
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
static int find_registration(struct validator *validator, const char *hotkey, const char *network,
	const char *model, const char *league, double *score, struct error *err)
{
	sqlite3_stmt *query;
	int found = database_row(validator->database, &query, err,
		"SELECT score FROM registration"
		" WHERE hotkey = ? AND network = ? AND model_name = ? AND league = ?",
		"ssss", hotkey, network, model, league);

	if (found > 0) {
		*score = sqlite3_column_double(query, 0);
		sqlite3_reset(query);
	}
	return found;
}

int validator_enroll(
	struct validator *validator, const char *hotkey, const char *network, int64_t uid, struct error *err)
{
	return database_run(validator->database, err,
		"INSERT OR IGNORE INTO miner (hotkey, network, uid, registered_at) VALUES (?, ?, ?, ?)",
		"ssir", hotkey, network, uid, validator_now(validator));
}

static int add_registration(struct validator *validator, const char *hotkey, const char *network, int64_t uid,
	const char *model, const char *league, struct error *err)
{
	if (validator_enroll(validator, hotkey, network, uid, err) < 0)
		return -1;
	return database_run(validator->database, err,
		"INSERT INTO registration (hotkey, network, model_name, league) VALUES (?, ?, ?, ?)", "ssss",
		hotkey, network, model, league);
}

/* Of versions with networks: where it is registered, and as what. */
static int tell_miner(
	struct validator *validator, const char *hotkey, const char *network, cJSON *body, struct error *err)
{
	sqlite3_stmt *query;

	if (database_row(validator->database, &query, err,
		    "SELECT uid FROM miner WHERE hotkey = ? AND network = ?", "ss", hotkey, network) < 0)
		return -1;
	cJSON_AddStringToObject(body, "network", network);
	add_integer(body, "uid", sqlite3_column_int64(query, 0));
	sqlite3_reset(query);
	return 0;
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
	const char *network = validator_network(validator, &fields);
	int64_t uid = version->networks ? fields_integer_or(&fields, "uid", 0) : 0;
	int admitted, found;
	double score;

	if (fields_refused(&fields, reply))
		return 0;
	admitted = validator_admit(validator, request, hotkey, network, ADMIT_TO_REGISTER, reply, err);
	if (admitted <= 0)
		return admitted;
	if (!league_by_name(league)) {
		server_refuse(reply, 400, "Invalid league: it is one of 100k, 200k, ... 900k, 1M");
		return 0;
	}
	hotkey = request->identity;
	found = find_registration(validator, hotkey, network, model, league, &score, err);
	if (!found && version->registers_once) {
		int registered = is_registered(validator, hotkey, network, err);

		if (registered > 0)
			server_fault(reply);
		if (registered)
			return registered < 0 ? -1 : 0;
	}
	if (found < 0 ||
		(!found && add_registration(validator, hotkey, network, uid, model, league, err) < 0))
		return -1;
	reply->body = cJSON_CreateObject();
	cJSON_AddStringToObject(reply->body, "status", found ? "already_registered" : "registered");
	cJSON_AddStringToObject(reply->body, "hotkey", hotkey);
	cJSON_AddStringToObject(reply->body, "model_name", model);
	cJSON_AddStringToObject(reply->body, "league", league);
	if (found)
		cJSON_AddNumberToObject(reply->body, "current_score", score);
	return version->networks ? tell_miner(validator, hotkey, network, reply->body, err) : 0;
}
