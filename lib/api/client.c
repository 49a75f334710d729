#include "api/client.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "api/block.h"
#include "api/call.h"
#include "api/http.h"
#include "api/message.h"
#include "api/refusal.h"
#include "api/retry.h"
#include "api/version.h"
#include "base/clock.h"
#include "base/hex.h"
#include "base/json.h"
#include "base/json_rows.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "key/keypair.h"

/* One attempt of a request that may be repeated: short enough that a lost packet does not use up all the
 * time, long enough for a hosted service that has to wake up first. */
#define ATTEMPT_SECONDS 60.0

struct api {
	char *base;
	const struct keypair *keypair;
	double timeout, date_skew, told_time;
	bool distrusts_date; /* the validator judges signatures by another clock than its Date headers' */
	struct http *http;
	struct api_exchange last;
	bool shares_timeout;
	double wasted;        /* of it, in seconds */
	struct error failure; /* what it was wasted on */
	struct {
		char route[32];
		size_t skipped;
	} told[4]; /* rows that were left out, by the routes that have lists */
	const char *network, *dashboard_key;
	bool is_validator;
	struct {
		const struct api_version *known;
		enum { VERSION_DEFAULT, VERSION_ASSUMED, VERSION_FOUND, VERSION_FORCED } how;
		bool followed;
		double asked_in_vain; /* clock_elapsed(); 0: never */
	} version;
};

struct api *api_open(const char *url, const struct keypair *keypair, double timeout, struct error *err)
{
	struct api *api;
	bool plain = false;
	char *base = http_check_base(url, &plain, err);

	if (!base)
		return NULL;
	if (plain && keypair)
		log_warn("%s is not encrypted: anyone who can read the traffic can submit in this hotkey's "
			 "name",
			base);
	api = xcalloc(1, sizeof(*api));
	*api = (struct api){.base = base, .keypair = keypair, .timeout = timeout, .http = http_open()};
	api->version.known = api_version_oldest();
	return api;
}

void api_close(struct api *api)
{
	if (!api)
		return;
	http_close(api->http);
	free(api->base);
	free(api);
}

const char *api_url(const struct api *api)
{
	return api->base;
}

bool api_is_local(const struct api *api)
{
	return http_is_this_machine(api->base);
}

void api_set_timeout(struct api *api, double timeout)
{
	api->timeout = timeout;
}

void api_share_timeout(struct api *api)
{
	api->shares_timeout = true;
}

void api_set_network(struct api *api, const char *network)
{
	api->network = network;
}

const char *api_network(const struct api *api)
{
	return api->network;
}

void api_set_dashboard_key(struct api *api, const char *key)
{
	api->dashboard_key = key;
}

void api_set_validator(struct api *api)
{
	api->is_validator = true;
}

const struct api_exchange *api_last(const struct api *api)
{
	return &api->last;
}

double api_clock_skew(const struct api *api)
{
	return api->distrusts_date ? 0 : api->date_skew;
}

/* Further than this a Date header, cut to whole seconds, and the way of an answer cannot lead astray. */
#define CLOCK_DOUBT 5.0

double api_now(const struct api *api)
{
	double now = clock_now() + api_clock_skew(api);

	return api->told_time > now && api->told_time < now + CLOCK_DOUBT ? api->told_time : now;
}

void api_told_time(struct api *api, double time)
{
	api->told_time = time;
}

int64_t api_block(const struct api *api)
{
	return block_at(api_now(api));
}

void api_release(struct api_memory *memory)
{
	cJSON_Delete(memory->document);
	cJSON_Delete(memory->rows);
	free(memory->list);
	*memory = (struct api_memory){0};
}

/* --- signatures ------------------------------------------------------------------------------- */

const char *api_hotkey(const struct api *api)
{
	return keypair_address(api->keypair);
}

int api_sign(struct api *api, const char *text, char signature[129], struct error *err)
{
	uint8_t bytes[SIGNATURE_LENGTH];

	api->last = (struct api_exchange){0};
	if (keypair_sign(api->keypair, text, strlen(text), bytes, err) < 0)
		return -1;
	hex_encode(bytes, sizeof(bytes), signature);
	return 0;
}

/* The headers that prove who asks, or none. */
struct credentials {
	char lines[3][160];
	const char *headers[4]; /* the lines, then NULL */
};

static void add_header(struct credentials *credentials, const char *name, const char *value)
{
	size_t i = 0;

	while (credentials->headers[i])
		i++;
	snprintf(credentials->lines[i], sizeof(credentials->lines[i]), "%s: %s", name, value);
	credentials->headers[i] = credentials->lines[i];
}

/* A signature that covers the time expires: each attempt needs its own. */
static int sign_request(struct api *api, struct credentials *credentials, struct error *err)
{
	const char *hotkey = api_hotkey(api);
	char time[32], signature[129], *identity;
	int result;

	snprintf(time, sizeof(time), "%.0f", floor(api_now(api)));
	identity = message_identity(hotkey, api->version.known->timestamps ? time : NULL);
	result = api_sign(api, identity, signature, err);
	free(identity);
	if (result < 0)
		return -1;
	add_header(credentials, "Hotkey", hotkey);
	add_header(credentials, "Signature", signature);
	if (api->version.known->timestamps)
		add_header(credentials, "Timestamp", time);
	return 0;
}

static bool needs_signature(const struct api *api, const struct route *route)
{
	return route->is_signed || (route->for_validators && api->is_validator && !api->version.known->lists);
}

static int credentials_make(
	struct api *api, const struct route *route, struct credentials *credentials, struct error *err)
{
	*credentials = (struct credentials){0};
	if (route->with_key && api->dashboard_key)
		add_header(credentials, "X-API-Key", api->dashboard_key);
	return needs_signature(api, route) ? sign_request(api, credentials, err) : 0;
}

/* --- the version ------------------------------------------------------------------------------ */

#define VERSION_SECONDS 10.0 /* for each answer that tells it */
#define VERSION_PAUSE 30.0   /* after it was asked for in vain */

void api_follow_version(struct api *api, const struct api_version *assumed)
{
	if (api->version.how == VERSION_FORCED)
		return;
	api->version.followed = true;
	if (!assumed)
		return;
	api->version.known = assumed;
	api->version.how = VERSION_ASSUMED;
}

void api_force_version(struct api *api, const struct api_version *version)
{
	api->version.known = version;
	api->version.how = VERSION_FORCED;
}

const struct api_version *api_version_if_found(const struct api *api)
{
	return api->version.how == VERSION_FOUND ? api->version.known : NULL;
}

/* By the routes that the validator describes. */
static const struct api_version *find_by_routes(struct api *api, struct error *err)
{
	static const struct route route = {
		.name = "GET /openapi.json", .once = true, .seconds = VERSION_SECONDS};
	const struct api_version *version = NULL;
	struct api_memory memory;

	if (api_call(api, &route, NULL, NULL, &memory, err) == 0) {
		version = api_version_described(memory.document);
		if (!version)
			error_set(err, STATUS_NETWORK, "%s: not a validator's routes", route.name);
	}
	api_release(&memory);
	return version;
}

/* By whom the round is shown to. */
static const struct api_version *find_by_round(struct api *api, struct error *err)
{
	static const struct route route = {
		.name = "GET /get_current_round", .once = true, .seconds = VERSION_SECONDS};
	const struct api_version *version = NULL;
	struct api_memory memory;
	int64_t number;

	if (api_call(api, &route, NULL, NULL, &memory, err) == 0) {
		if (json_integer(memory.document, "round_number", JSON_REQUIRED, &number, err) == 0)
			version = api_version_by_lists(true);
	} else if (api->last.refusal == REFUSAL_NOT_FOR_US) {
		version = api_version_by_lists(false);
	}
	api_release(&memory);
	return version;
}

int api_find_version(struct api *api, struct error *err)
{
	const struct api_exchange last = api->last;
	const struct api_version *version;

	if (!api->version.followed)
		return 0;
	version = find_by_routes(api, err);
	/* without a connection the next would only be waited for in vain, too */
	if (!version && api->last.http_status)
		version = find_by_round(api, err);
	api->last = last;
	if (!version) {
		api->version.asked_in_vain = clock_elapsed();
		return error_context(err, "cannot find out the validator's version");
	}
	api->version.known = version;
	api->version.how = VERSION_FOUND;
	return 0;
}

static void find_version_unless_in_vain(struct api *api)
{
	double asked = api->version.asked_in_vain;
	struct error ignored;

	if (!asked || clock_elapsed() - asked > VERSION_PAUSE)
		api_find_version(api, &ignored);
}

const struct api_version *api_version(const struct api *api)
{
	return api->version.known;
}

const struct api_version *api_learn_version(struct api *api)
{
	if (api->version.how == VERSION_DEFAULT)
		find_version_unless_in_vain(api);
	return api->version.known;
}

bool api_shows_lists(struct api *api)
{
	/* that one may not ask is not to be believed of an earlier version */
	if (!api->version.known->lists && !api->is_validator && api->version.how < VERSION_FOUND)
		find_version_unless_in_vain(api);
	return api->version.known->lists || api->is_validator;
}

int api_require_network(struct api *api, struct error *err)
{
	if (!api_learn_version(api)->networks || api->network)
		return 0;
	api->last = (struct api_exchange){.delivery = API_NOT_SENT};
	error_set(err, STATUS_USAGE,
		"SUBTENSOR_NETWORK says neither finney nor test, and this validator keeps them apart");
	return error_hint(err, "Say in .env on which of them you compete.");
}

bool api_has_dashboard(struct api *api)
{
	return api->dashboard_key && api_learn_version(api)->dashboard;
}

/* Does the answer look like another version's? */
static bool contradicts_version(const struct api *api, const struct route *route)
{
	const struct api_version *known = api->version.known;

	switch (api->last.refusal) {
	case REFUSAL_NOT_FOR_US:
		return route->for_validators && known->lists;
	case REFUSAL_SIGNATURE:
		return needs_signature(api, route) && known->timestamps;
	case REFUSAL_NO_ROUTE:
		return route->with_key;
	default:
		return false;
	}
}

/* Reasons to make a refused request anew; each counts once. */
struct renewals {
	bool clock, other_clock, version;
};

/* A Date may be a proxy's that stands before the validator, and either clock may be wrong: then the other one is tried. */
static bool try_another_clock(struct api *api, struct renewals *renewals)
{
	if (!renewals->clock)
		return renewals->clock = true; /* by the Date that came just now */
	if (renewals->other_clock || !api->date_skew)
		return false;
	api->distrusts_date = !api->distrusts_date;
	return renewals->other_clock = true;
}

/* Nothing was done yet, and signed by the validator's clock, or as its version has it, it may be taken. */
static bool worth_renewing(struct api *api, const struct route *route, struct renewals *renewals)
{
	const struct api_version *before = api->version.known;
	struct error ignored;

	if (api->last.refusal == REFUSAL_EXPIRED)
		return try_another_clock(api, renewals);
	if (!api->version.followed || renewals->version || !contradicts_version(api, route))
		return false;
	renewals->version = true;
	return api_find_version(api, &ignored) == 0 && api->version.known != before &&
		needs_signature(api, route);
}

/* --- lists ------------------------------------------------------------------------------------ */

static void clean_strings(cJSON *item)
{
	for (; item; item = item->next) {
		if (item->string)
			text_clean(item->string);
		if (cJSON_IsString(item))
			text_clean(item->valuestring);
		clean_strings(item->child);
	}
}

/* The lists of an answer that is being read. */
struct reading {
	struct json_rows rows;
	struct list *lists;
	size_t count;
	cJSON *kept;
};

static cJSON *parse_row(const char *text, size_t length)
{
	struct error ignored;
	cJSON *row = NULL;

	/* a zero within a string would hide what follows it */
	if (text && !memmem(text, length, "\\u0000", 6))
		row = json_parse(text, length, &ignored);
	if (row)
		clean_strings(row);
	return row;
}

/* Takes over the row, which is NULL when it could not be read. */
static void add_row(struct list *list, cJSON *row, cJSON *kept)
{
	struct error ignored;
	char *item;

	if (row && list->count < LIST_LIMIT) {
		list->items = xrealloc(list->items, (list->count + 1) * list->size);
		item = (char *)list->items + list->count * list->size;
		memset(item, 0, list->size);
		if (list->decode(row, item, &ignored) == 0) {
			if (list->wanted && !list->wanted(item, list->context)) {
				cJSON_Delete(row);
			} else {
				cJSON_AddItemToArray(kept, row);
				list->count++;
			}
			return;
		}
	}
	cJSON_Delete(row);
	list->skipped++;
}

static void take_row(void *context, const char *name, const char *text, size_t length)
{
	struct reading *reading = context;

	for (size_t i = 0; i < reading->count; i++)
		if (!strcmp(reading->lists[i].name, name))
			add_row(&reading->lists[i], parse_row(text, length), reading->kept);
}

static int take_part(void *context, const char *data, size_t length)
{
	return json_rows_feed(&((struct reading *)context)->rows, data, length);
}

/* Forgets what an attempt before left. */
static void reading_begin(struct reading *reading)
{
	json_rows_reset(&reading->rows);
	cJSON_Delete(reading->kept);
	reading->kept = cJSON_CreateArray();
	for (size_t i = 0; i < reading->count; i++)
		reading->lists[i].count = reading->lists[i].skipped = 0;
}

static void tell_skipped(struct api *api, const struct route *route, const struct reading *reading)
{
	size_t skipped = 0, i = 0;

	for (size_t list = 0; list < reading->count; list++)
		skipped += reading->lists[list].skipped;
	while (i < sizeof(api->told) / sizeof(api->told[0]) - 1 && api->told[i].route[0] &&
		strcmp(api->told[i].route, route->name))
		i++;
	if (skipped && (skipped != api->told[i].skipped || strcmp(api->told[i].route, route->name)))
		log_note("%s: skipped %zu row%s that make%s no sense, or %s too large", route->name, skipped,
			skipped == 1 ? "" : "s", skipped == 1 ? "s" : "", skipped == 1 ? "is" : "are");
	snprintf(api->told[i].route, sizeof(api->told[i].route), "%s", route->name);
	api->told[i].skipped = skipped;
}

/* --- one attempt ------------------------------------------------------------------------------ */

static cJSON *parse_answer(const struct buffer *body, const struct http_answer *answer, struct error *err)
{
	cJSON *document = json_parse(body->data ? body->data : "", body->length, err);

	if (document && cJSON_IsObject(document)) {
		clean_strings(document);
		return document;
	}
	if (document)
		error_set(err, STATUS_NETWORK, "the answer should be a JSON object");
	else if (!strcasestr(answer->content_type, "json"))
		error_set(err, STATUS_NETWORK, "the answer is not JSON but \"%s\"", answer->content_type);
	cJSON_Delete(document);
	return NULL;
}

static int mistaken_answer(const struct route *route, struct error *err)
{
	error_context(err, "%s", route->name);
	return error_hint(err, "This does not look like a validator API: is VALIDATOR_API_URL right?");
}

/* Sends the request once and sorts out what came of it: fills in api->last. */
static int attempt(struct api *api, const struct route *route, const struct http_request *request,
	struct reading *reading, struct api_memory *memory, struct error *err)
{
	struct api_exchange *last = &api->last;
	struct http_answer answer;
	int result = http_exchange(api->http, request, &answer, err);

	*last = (struct api_exchange){.delivery = answer.sent ? API_UNKNOWN : API_NOT_SENT};
	if (result < 0) {
		last->transient = answer.transient;
		error_context(err, "%s", route->name);
		goto done;
	}
	last->http_status = answer.status;
	last->retry_after = answer.retry_after;
	if (!isnan(answer.clock_skew))
		api->date_skew = answer.clock_skew;
	if (answer.status >= 200 && answer.status < 300) {
		memory->document = parse_answer(
			reading->count ? &reading->rows.frame : &answer.body, &answer, err);
		result = memory->document ? 0 : mistaken_answer(route, err);
		if (!result)
			last->delivery = API_DONE;
		goto done;
	}
	last->refusal = refusal_read(route->name, answer.status, answer.content_type, &answer.body,
		last->detail, sizeof(last->detail));
	if (last->refusal == REFUSAL_COOLDOWN)
		last->retry_after = refusal_seconds(last->detail);
	last->transient = last->refusal == REFUSAL_LIMIT || last->refusal == REFUSAL_COOLDOWN ||
		last->refusal == REFUSAL_DOWN || (last->refusal == REFUSAL_INTERNAL && !route->final_fault);
	if (refusal_is_clear(last->refusal))
		last->delivery = API_REFUSED;
	if (last->refusal == REFUSAL_EARLY)
		last->blocks_left = refusal_blocks(last->detail);
	result = refusal_error(route->name, answer.status, last->refusal, last->detail, api_now(api), err);
done:
	buffer_free(&answer.body);
	return result;
}

/* What the version shows to validators only is not even asked for. */
static int not_shown(struct api *api, const struct route *route, struct error *err)
{
	api->last = (struct api_exchange){.refusal = REFUSAL_NOT_FOR_US};
	error_set(err, STATUS_REFUSED, "%s: not shown to miners", route->name);
	return refusal_hint(REFUSAL_NOT_FOR_US, err);
}

/* The validator is down as it was a moment ago, and all the time for that is up. */
static int still_down(struct api *api, struct error *err)
{
	api->last = (struct api_exchange){0};
	*err = api->failure;
	return -1;
}

static double time_allowed(const struct api *api)
{
	return api->shares_timeout ? fmax(0, api->timeout - api->wasted) : api->timeout;
}

/* Takes note of the seconds that a call took. */
static void count_wasted(struct api *api, int result, double seconds, const struct error *err)
{
	if (!result) {
		api->wasted = 0;
	} else if (err->status == STATUS_NETWORK) {
		api->wasted += seconds;
		api->failure = *err;
	}
}

/* Attempts it, again and again where that may help. */
static int exchange(struct api *api, const struct route *route, const char *url, const char *text,
	struct renewals *renewals, struct reading *reading, struct api_memory *memory, struct error *err)
{
	struct retry retry;
	bool again;
	int result = -1;

	retry_begin(&retry, time_allowed(api));
	api->last = (struct api_exchange){0};
	do {
		double left = retry_left(&retry);
		double longest = route->seconds > 0 ? route->seconds : route->once ? left : ATTEMPT_SECONDS;
		struct credentials credentials;
		struct http_request request = {
			.url = url,
			.body = text,
			.headers = credentials.headers,
			.timeout = fmin(left, longest),
			.take = reading->count ? take_part : NULL,
			.context = reading,
			.once = route->once,
		};

		if (credentials_make(api, route, &credentials, err) < 0)
			break;
		log_debug("%s %s", route->name, url);
		reading_begin(reading);
		result = attempt(api, route, &request, reading, memory, err);
		again = result < 0 && worth_renewing(api, route, renewals);
	} while (again ||
		(result < 0 && api->last.transient && !route->once &&
			retry_wait(&retry, api->last.retry_after, err) == 0));
	count_wasted(api, result, clock_elapsed() - retry.began, err);
	log_passing_end();
	return result;
}

/* Takes over the body. */
static int call(struct api *api, const struct route *route, const char *query, cJSON *body,
	struct reading *reading, struct api_memory *memory, struct error *err)
{
	bool is_post = route->name[0] == 'P';
	char *url = xprintf("%s%s%s", api->base, strchr(route->name, '/'), query ? query : "");
	char *text = !is_post ? NULL : body ? cJSON_PrintUnformatted(body) : xstrdup("");
	struct renewals renewals = {0};
	int result;

	cJSON_Delete(body);
	*memory = (struct api_memory){0};
	if ((route->for_validators && !api_shows_lists(api)) ||
		(route->with_key && !api_has_dashboard(api))) {
		result = not_shown(api, route, err);
	} else {
		if (route->is_signed)
			api_learn_version(api);
		result = api->wasted && !time_allowed(api)
			? still_down(api, err)
			: exchange(api, route, url, text, &renewals, reading, memory, err);
	}
	free(text);
	free(url);
	/* it was found out only now that they are not for miners */
	if (result < 0 && renewals.version && route->for_validators && !api_shows_lists(api))
		return not_shown(api, route, err);
	return result;
}

int api_call(struct api *api, const struct route *route, const char *query, cJSON *body,
	struct api_memory *memory, struct error *err)
{
	struct reading reading = {0};
	int result = call(api, route, query, body, &reading, memory, err);

	cJSON_Delete(reading.kept);
	return result;
}

int api_call_lists(struct api *api, const struct route *route, const char *query, struct list *lists,
	size_t list_count, struct api_memory *memory, struct error *err)
{
	struct reading reading = {.rows.take = take_row, .lists = lists, .count = list_count};
	int result;

	reading.rows.context = &reading;
	result = call(api, route, query, NULL, &reading, memory, err);
	memory->rows = reading.kept;
	json_rows_free(&reading.rows);
	if (!result)
		tell_skipped(api, route, &reading);
	return result;
}

int api_finish(struct api *api, const struct route *route, int result, struct error *err)
{
	if (result == 0)
		return 0;
	api->last.delivery = API_UNKNOWN;
	return mistaken_answer(route, err);
}
