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
	const char *message =
		cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(violation, "msg"));
	const char *dot = "";

	if (!message)
		return;
	if (out->length)
		buffer_text(out, "; ");
	cJSON_ArrayForEach(part, place)
	{
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

void refusal_detail(const struct buffer *body, const char *content_type, char *detail, size_t size)
{
	struct error ignored;
	cJSON *document = json_parse(body->data, body->length, &ignored);
	const cJSON *words = cJSON_GetObjectItemCaseSensitive(document, "detail"), *violation;
	struct buffer text = {0};

	if (cJSON_IsString(words))
		buffer_text(&text, words->valuestring);
	else if (cJSON_IsArray(words))
		cJSON_ArrayForEach(violation, words) violation_text(violation, &text);
	else if (!document && !strncasecmp(content_type, "text/plain", 10))
		buffer_append(&text, body->data, strcspn(body->data, "\r\n"));
	snprintf(detail, size, "%s", text.data ? text.data : "");
	text_clean(detail); /* after it was cut, perhaps within a character */
	buffer_free(&text);
	cJSON_Delete(document);
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

/* The validator tells the hours left ("IP banned for 23.9 more hours"). */
static int ban_hint(const char *detail, double server_time, struct error *err)
{
	const char *number = strpbrk(detail, "0123456789");
	char *end = NULL, left[32], until[32];
	double hours = number ? strtod(number, &end) : 0;

	if (hours <= 0 || hours > 1000 || !strstr(end, "hour"))
		return error_hint(err,
			"Five failures (a claim 10%% too high, a wrong reveal) ban an address for "
			"24 hours. Run `quasar verify` before the next submission.");
	clock_duration(hours * 3600, left);
	clock_format(server_time + hours * 3600, until);
	return error_hint(err,
		"The ban ends in %s, at about %.16s UTC. Five failures (a claim 10%% too high, a "
		"wrong reveal) bring it about: run `quasar verify` before the next submission.",
		left, until);
}

/* The first entry that fits says what to do. */
static const struct {
	int http_status;
	const char *words; /* occur in the detail, in any case; "": always */
	const char *hint;
} hints[] = {
	{400, "commitment",
		"Salt or fork URL are not those that were committed. This counts as a failure: five ban "
		"the address. Do not repeat it as it is."},
	{400, "", ""},
	{401, "",
		"The hotkey's signature was not accepted: is it an sr25519 key? See `quasar wallet show`; "
		"WALLET_MINER_NAME and WALLET_HOTKEY choose it."},
	{403, "",
		"The request was signed by another hotkey than it speaks for. Check WALLET_MINER_NAME and "
		"WALLET_HOTKEY, or --wallet and --hotkey."},
	{404, "not registered", "Register this hotkey once with `quasar register`."},
	{404, "submission not found",
		"The validator knows no such submission of this hotkey; `quasar status` lists those it "
		"knows."},
	{404, "round not found", ""},
	{409, "", "The validator has this already; `quasar status` shows where it stands."},
	{422, "",
		"The validator does not understand the request; it may be of another version than this "
		"program."},
	{425, "", "`quasar reveal --wait` waits and reveals when the block has come."},
	{429, "", "A hotkey may make 10 requests in 60 s; wait a minute."},
	{500, "", "The fault is the server's; try again later."},
	{502, "", "The fault is the server's; try again later."},
	{503, "", "The fault is the server's; try again later."},
	{504, "", "The fault is the server's; try again later."},
};

static int hint(int http_status, const char *detail, double server_time, struct error *err)
{
	if (http_status == 403 && strcasestr(detail, "banned"))
		return ban_hint(detail, server_time, err);
	for (size_t i = 0; i < sizeof(hints) / sizeof(hints[0]); i++)
		if (hints[i].http_status == http_status && strcasestr(detail, hints[i].words))
			return error_hint(err, "%s", hints[i].hint);
	return error_hint(err, "Is VALIDATOR_API_URL the address of a validator's API?");
}

static enum status exit_status(int http_status)
{
	if (http_status == 425)
		return STATUS_EARLY;
	if (http_status >= 400 && http_status < 500 && http_status != 429)
		return STATUS_REFUSED;
	return STATUS_NETWORK;
}

int refusal_error(const char *route, int http_status, const char *detail, double server_time,
	struct error *err)
{
	const char *words = detail[0] ? detail : status_text(http_status);

	error_set(err, exit_status(http_status), "%s: %s%sHTTP %d%s", route, words,
		words[0] ? " (" : "", http_status, words[0] ? ")" : "");
	return hint(http_status, detail, server_time, err);
}
