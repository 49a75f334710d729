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
	if (text.data)
		text_clean(text.data);
	snprintf(detail, size, "%s", text.data ? text.data : "");
	buffer_free(&text);
	cJSON_Delete(document);
}

static const char *status_text(int http_status)
{
	switch (http_status) {
	case 400: return "Bad Request";
	case 401: return "Unauthorized";
	case 403: return "Forbidden";
	case 404: return "Not Found";
	case 405: return "Method Not Allowed";
	case 409: return "Conflict";
	case 422: return "Unprocessable Entity";
	case 425: return "Too Early";
	case 429: return "Too Many Requests";
	case 500: return "Internal Server Error";
	case 502: return "Bad Gateway";
	case 503: return "Service Unavailable";
	case 504: return "Gateway Timeout";
	default: return "";
	}
}

/* The validator tells the hours left ("IP banned for 23.9 more hours"). */
static int ban_hint(const char *detail, double server_time, struct error *err)
{
	const char *number = strpbrk(detail, "0123456789");
	char *end = NULL, left[32], until[32];
	double hours = number ? strtod(number, &end) : 0;

	if (hours <= 0 || hours > 1000 || !strstr(end, "hour"))
		return error_hint(err, "Five failures (a claim 10%% too high, a wrong reveal) ban an address for "
				       "24 hours. Run `quasar verify` before the next submission.");
	clock_duration(hours * 3600, left);
	clock_format(server_time + hours * 3600, until);
	return error_hint(err, "The ban ends in %s, at about %.16s UTC. Five failures (a claim 10%% too high, a "
			       "wrong reveal) bring it about: run `quasar verify` before the next submission.",
		left, until);
}

static int hint(int http_status, const char *detail, double server_time, struct error *err)
{
	switch (http_status) {
	case 400:
		if (strstr(detail, "ommitment"))
			return error_hint(err, "Salt or fork URL are not those that were committed. This counts "
					       "as a failure: five ban the address. Do not repeat it as it is.");
		return -1;
	case 401:
		return error_hint(err, "The hotkey's signature was not accepted: is it an sr25519 key? See "
				       "`quasar wallet show`; WALLET_MINER_NAME and WALLET_HOTKEY choose it.");
	case 403:
		if (strcasestr(detail, "banned"))
			return ban_hint(detail, server_time, err);
		return error_hint(err, "The request was signed by another hotkey than it speaks for. Check "
				       "WALLET_MINER_NAME and WALLET_HOTKEY, or --wallet and --hotkey.");
	case 404:
		if (strcasestr(detail, "not registered"))
			return error_hint(err, "Register this hotkey once with `quasar register`.");
		if (strcasestr(detail, "submission"))
			return error_hint(err, "The validator knows no such submission of this hotkey; `quasar "
					       "status` lists those it knows.");
		return error_hint(err, "Is VALIDATOR_API_URL the address of a validator's API?");
	case 409:
		return error_hint(err, "The validator has this already; `quasar status` shows where it stands.");
	case 422:
		return error_hint(err, "The validator does not understand the request; it may be of another "
				       "version than this program.");
	case 425:
		return error_hint(err, "`quasar reveal --wait` waits and reveals when the block has come.");
	case 429:
		return error_hint(err, "A hotkey may make 10 requests in 60 s; wait a minute.");
	default:
		if (http_status >= 500)
			return error_hint(err, "The fault is the server's; try again later.");
		return error_hint(err, "Is VALIDATOR_API_URL the address of a validator's API?");
	}
}

int refusal_error(const char *route, int http_status, const char *detail, double server_time,
	struct error *err)
{
	const char *words = detail[0] ? detail : status_text(http_status);
	enum status status = http_status == 425 ? STATUS_EARLY
		: http_status == 429 || http_status < 400 || http_status >= 500 ? STATUS_NETWORK : STATUS_REFUSED;

	error_set(err, status, "%s: %s%sHTTP %d%s", route, words, words[0] ? " (" : "", http_status,
		words[0] ? ")" : "");
	return hint(http_status, detail, server_time, err);
}
