#include "api/refusal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/text.h"

/* {"loc": ["body", "tokens_per_sec"], "msg": "field required", …} as "tokens_per_sec: field required" */
static void violation_text(const cJSON *violation, struct buffer *out)
{
	const cJSON *place = cJSON_GetObjectItemCaseSensitive(violation, "loc"), *part;
	const char *message = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(violation, "msg"));
	const char *dot = "";

	if (!message)
		return;
	if (out->length)
		buffer_text(out, "; ");
	cJSON_ArrayForEach (part, place) {
		/* the first says where in the request, which is not the user's concern */
		if (part == place->child && part->next)
			continue;
		if (cJSON_IsString(part))
			buffer_printf(out, "%s%s", dot, part->valuestring);
		else if (cJSON_IsNumber(part))
			buffer_printf(out, "%s%d", dot, part->valueint);
		dot = ".";
	}
	buffer_printf(out, "%s%s", *dot ? ": " : "", message);
}

/* The validator's own words are JSON, in the form of its errors. */
enum words { WORDS_FOREIGN, WORDS_TEXT, WORDS_LIST };

static enum words read_words(const char *content_type, const struct buffer *body, struct buffer *words)
{
	bool is_json = strcasestr(content_type, "json");
	struct error ignored;
	cJSON *document = json_parse(body->data, body->length, &ignored);
	const cJSON *detail = cJSON_GetObjectItemCaseSensitive(document, "detail"), *violation;
	enum words kind = cJSON_IsString(detail) ? WORDS_TEXT
		: cJSON_IsArray(detail)          ? WORDS_LIST
						 : WORDS_FOREIGN;

	if (cJSON_IsString(detail))
		buffer_text(words, detail->valuestring);
	else if (cJSON_IsArray(detail))
		cJSON_ArrayForEach (violation, detail)
			violation_text(violation, words);
	else if (!document && !strncasecmp(content_type, "text/plain", 10))
		buffer_append(words, body->data, strcspn(body->data, "\r\n"));
	cJSON_Delete(document);
	return is_json ? kind : WORDS_FOREIGN;
}

/* What the validator says where, in any case of letters. */
static const struct known {
	enum refusal refusal;
	int http_status;
	const char *route; /* begins so */
	const char *words; /* occur in the detail; after "=": are all of it */
} known[] = {
	{REFUSAL_VALUE, 400, "POST /register_miner", "league"},
	{REFUSAL_MISMATCH, 400, "POST /reveal_submission", "hash mismatch"},
	{REFUSAL_VALUE, 400, "POST /finalize_round", "already finalized"},
	{REFUSAL_VALUE, 400, "POST /mark_validated", "submission_id required"},
	{REFUSAL_VALUE, 400, "POST /submit_kernel", "tokens_per_sec"},
	{REFUSAL_VALUE, 400, "POST /submit_kernel", "outside plausible range"},
	{REFUSAL_VALUE, 400, "POST /reveal_submission", "tokens_per_sec"},
	{REFUSAL_KEY, 401, "GET /dashboard/", ""},
	{REFUSAL_NOT_FOR_US, 401, "GET ", "missing hotkey or signature"},
	{REFUSAL_NOT_FOR_US, 403, "GET ", "not an authorized validator"},
	{REFUSAL_SIGNATURE, 401, "POST ", "missing hotkey or signature"},
	{REFUSAL_SIGNATURE, 401, "", "invalid signature"},
	{REFUSAL_EXPIRED, 401, "", "signature expired"},
	{REFUSAL_HOTKEY, 403, "POST ", "hotkey mismatch"},
	{REFUSAL_BANNED, 403, "POST ", "banned"},
	{REFUSAL_FLAGGED, 403, "POST ", "miner flagged"},
	{REFUSAL_SHARED, 403, "POST ", "github"},
	{REFUSAL_SHARED, 403, "POST ", "coldkey"},
	{REFUSAL_SHARED, 403, "POST ", "ip address"},
	{REFUSAL_SHARED, 403, "POST ", "another hotkey"},
	{REFUSAL_UNREGISTERED, 404, "POST ", "miner not registered"},
	{REFUSAL_UNKNOWN, 404, "POST /reveal_submission", "submission not found"},
	{REFUSAL_UNKNOWN, 404, "POST /mark_validated", "submission not found"},
	{REFUSAL_UNKNOWN, 404, "POST /record_verification", "submission not found"},
	{REFUSAL_UNKNOWN, 404, "POST /create_round", "submission not found"},
	{REFUSAL_UNKNOWN, 404, "POST /finalize_round", "round not found"},
	{REFUSAL_UNKNOWN, 404, "GET /dashboard/miner", "miner not found"},
	{REFUSAL_NO_ROUTE, 404, "", "=not found"},
	{REFUSAL_NO_ROUTE, 405, "", "=method not allowed"},
	{REFUSAL_EXISTS, 409, "POST /commit_submission", "already exists"},
	{REFUSAL_REVEALED, 409, "POST /reveal_submission", "already revealed"},
	{REFUSAL_EARLY, 425, "POST /reveal_submission", "cannot reveal yet"},
	{REFUSAL_COOLDOWN, 429, "POST ", "please wait"},
};

static bool fits(const struct known *entry, const char *route, int http_status, const char *detail)
{
	if (entry->http_status != http_status || strncmp(route, entry->route, strlen(entry->route)))
		return false;
	return entry->words[0] == '=' ? !strcasecmp(detail, entry->words + 1)
				      : strcasestr(detail, entry->words) != NULL;
}

enum refusal refusal_read(const char *route, int http_status, const char *content_type,
	const struct buffer *body, char *detail, size_t size)
{
	struct buffer words = {0};
	enum words kind = read_words(content_type, body, &words);

	snprintf(detail, size, "%s", words.data ? words.data : "");
	text_clean(detail); /* after it was cut, perhaps within a character */
	buffer_free(&words);
	for (size_t i = 0; kind == WORDS_TEXT && i < sizeof(known) / sizeof(known[0]); i++)
		if (fits(&known[i], route, http_status, detail))
			return known[i].refusal;
	if (kind == WORDS_LIST && http_status == 422)
		return REFUSAL_SCHEMA;
	if (http_status == 429)
		return REFUSAL_LIMIT;
	if (http_status == 500)
		return REFUSAL_INTERNAL;
	return http_status > 500 ? REFUSAL_DOWN : REFUSAL_UNCLEAR;
}

bool refusal_is_clear(enum refusal refusal)
{
	return refusal >= REFUSAL_EARLY;
}

/* N of "wait N UNIT…"; 0 without. */
static long long number_after_wait(const char *detail, const char *unit)
{
	const char *wait = strcasestr(detail, "wait ");
	char *end;
	long long number = wait ? strtoll(wait + strlen("wait "), &end, 10) : 0;

	return number > 0 && number < 1000000000 && !strncmp(end, unit, strlen(unit)) ? number : 0;
}

int64_t refusal_blocks(const char *detail)
{
	return number_after_wait(detail, " block");
}

double refusal_seconds(const char *detail)
{
	return (double)number_after_wait(detail, " second");
}

static const char *status_text(int http_status)
{
	static const struct {
		int http_status;
		const char *text;
	} texts[] = {
		{400, "Bad Request"},
		{401, "Unauthorized"},
		{403, "Forbidden"},
		{404, "Not Found"},
		{405, "Method Not Allowed"},
		{409, "Conflict"},
		{422, "Unprocessable Entity"},
		{425, "Too Early"},
		{429, "Too Many Requests"},
		{500, "Internal Server Error"},
		{502, "Bad Gateway"},
		{503, "Service Unavailable"},
		{504, "Gateway Timeout"},
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		if (texts[i].http_status == http_status)
			return texts[i].text;
	return "";
}

#define BAN_CAUSE "Five wrong reveals or failed validations in a day lead to a ban."

/* The validator tells the hours left ("IP banned for 23.9 more hours"). */
static int ban_hint(const char *detail, double server_time, struct error *err)
{
	const char *number = strpbrk(detail, "0123456789");
	char *end = NULL, left[32], until[32];
	double hours = number ? strtod(number, &end) : 0;

	if (hours <= 0 || hours > 1000 || !strstr(end, "hour"))
		return error_hint(err, "The ban ends after 24 hours. " BAN_CAUSE);
	clock_duration(hours * 3600, left);
	clock_format(server_time + hours * 3600, until);
	return error_hint(
		err, "The ban ends in %s, on %.10s at about %.5s UTC. " BAN_CAUSE, left, until, until + 11);
}

static const char *const hints[] = {
	[REFUSAL_NONE] = "",
	[REFUSAL_UNCLEAR] =
		"No known validator answers like this: it may come from a proxy, or from another version. "
		"Try again later. If it persists, check VALIDATOR_API_URL.",
	[REFUSAL_INTERNAL] = "This is a problem on the server; try again later.",
	[REFUSAL_DOWN] = "This is a problem on the server; try again later.",
	[REFUSAL_LIMIT] = "A hotkey may make 10 requests in 60 s. Wait a minute.",
	[REFUSAL_EARLY] = "`quasar reveal --wait` waits for the block and then reveals.",
	[REFUSAL_COOLDOWN] =
		"The validator takes one submission of a hotkey every few minutes. Nothing is lost.",
	[REFUSAL_SCHEMA] =
		"The validator does not understand the request: its version may not match this program.",
	[REFUSAL_VALUE] = "",
	[REFUSAL_SIGNATURE] =
		"The hotkey's signature was rejected: is it an sr25519 key? See `quasar wallet show`. "
		"WALLET_MINER_NAME and WALLET_HOTKEY select the hotkey.",
	[REFUSAL_EXPIRED] =
		"This machine's clock and the validator's disagree. Set it, for instance with `timedatectl "
		"set-ntp true`.",
	[REFUSAL_HOTKEY] = "The request was signed by a different hotkey than the one it is for. Check "
			   "WALLET_MINER_NAME and WALLET_HOTKEY, or --wallet and --hotkey.",
	[REFUSAL_BANNED] = "",
	[REFUSAL_FLAGGED] =
		"A flag shuts the hotkey out on every network until the validator's operator lifts it. Ask "
		"the operator; another hotkey from the same address, GitHub account or coldkey is flagged, "
		"too.",
	[REFUSAL_SHARED] =
		"The validator takes one hotkey for each GitHub account, public address and coldkey. Submit "
		"with the first one. `quasar doctor` shows the other workspaces on this machine.",
	[REFUSAL_UNREGISTERED] = "Register this hotkey once with `quasar register`.",
	[REFUSAL_EXISTS] = "The validator already has this; `quasar status` shows where it stands.",
	[REFUSAL_REVEALED] = "The validator already has this; `quasar status` shows where it stands.",
	[REFUSAL_MISMATCH] =
		"The salt or the fork URL differs from what was committed. This counts as a failure, and "
		"five failures ban the address. Do not repeat it unchanged.",
	[REFUSAL_UNKNOWN] = "",
	[REFUSAL_NOT_FOR_US] = "This version of the validator shows it to validators only.",
	[REFUSAL_KEY] = "Set DASHBOARD_API_KEY to an API key that the validator's operator gave you.",
	[REFUSAL_NO_ROUTE] = "Is VALIDATOR_API_URL the address of a validator API?",
};

static enum status exit_status(enum refusal refusal)
{
	if (refusal == REFUSAL_EARLY)
		return STATUS_EARLY;
	if (refusal == REFUSAL_COOLDOWN)
		return STATUS_NETWORK;
	return refusal_is_clear(refusal) ? STATUS_REFUSED : STATUS_NETWORK;
}

int refusal_hint(enum refusal refusal, struct error *err)
{
	return error_hint(err, "%s", hints[refusal]);
}

int refusal_error(const char *route, int http_status, enum refusal refusal, const char *detail,
	double server_time, struct error *err)
{
	const char *words = detail[0] ? detail : status_text(http_status);

	error_set(err, exit_status(refusal), "%s: %s%sHTTP %d%s", route, words, words[0] ? " (" : "",
		http_status, words[0] ? ")" : "");
	if (refusal == REFUSAL_BANNED)
		return ban_hint(detail, server_time, err);
	if (refusal == REFUSAL_SIGNATURE && strcasestr(detail, "missing"))
		return error_hint(err,
			"The authentication headers were lost; a proxy in between may be removing them.");
	return refusal_hint(refusal, err);
}
