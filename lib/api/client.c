#include "api/client.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "api/block.h"
#include "api/call.h"
#include "api/http.h"
#include "api/refusal.h"
#include "api/retry.h"
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
	double timeout, skew;
	struct http *http;
	struct api_exchange last;
	struct {
		char route[32];
		size_t skipped;
	} told[4]; /* rows that were left out, by the routes that have lists */
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

const struct api_exchange *api_last(const struct api *api)
{
	return &api->last;
}

double api_clock_skew(const struct api *api)
{
	return api->skew;
}

int64_t api_block(const struct api *api)
{
	return block_at(clock_now() + api->skew);
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

/* The two headers that prove who asks, or none. */
struct credentials {
	char hotkey[96], signature[160];
	const char *headers[3];
};

static int credentials_make(struct api *api, struct credentials *credentials, struct error *err)
{
	char signature[129];

	if (api_sign(api, api_hotkey(api), signature, err) < 0)
		return -1;
	snprintf(credentials->hotkey, sizeof(credentials->hotkey), "Hotkey: %s", api_hotkey(api));
	snprintf(credentials->signature, sizeof(credentials->signature), "Signature: %s", signature);
	credentials->headers[0] = credentials->hotkey;
	credentials->headers[1] = credentials->signature;
	return 0;
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
		api->skew = answer.clock_skew;
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
	last->transient = last->refusal == REFUSAL_LIMIT || last->refusal == REFUSAL_DOWN ||
		(last->refusal == REFUSAL_INTERNAL && !route->final_fault);
	if (refusal_is_clear(last->refusal))
		last->delivery = API_REFUSED;
	if (last->refusal == REFUSAL_EARLY)
		last->blocks_left = refusal_blocks(last->detail);
	result = refusal_error(
		route->name, answer.status, last->refusal, last->detail, clock_now() + api->skew, err);
done:
	buffer_free(&answer.body);
	return result;
}

/* Takes over the body. */
static int call(struct api *api, const struct route *route, const char *query, cJSON *body,
	struct reading *reading, struct api_memory *memory, struct error *err)
{
	bool is_post = route->name[0] == 'P';
	char *url = xprintf("%s%s%s", api->base, strchr(route->name, '/'), query ? query : "");
	char *text = !is_post ? NULL : body ? cJSON_PrintUnformatted(body) : xstrdup("");
	struct credentials credentials = {0};
	struct retry retry;
	int result = -1;

	retry_begin(&retry, api->timeout);
	*memory = (struct api_memory){0};
	api->last = (struct api_exchange){0};
	if (!route->is_signed || credentials_make(api, &credentials, err) == 0) {
		do {
			double left = retry_left(&retry);
			double longest = route->seconds > 0 ? route->seconds
				: route->once               ? left
							    : ATTEMPT_SECONDS;
			struct http_request request = {
				.url = url,
				.body = text,
				.headers = credentials.headers,
				.timeout = fmin(left, longest),
				.take = reading->count ? take_part : NULL,
				.context = reading,
				.once = route->once,
			};

			log_debug("%s %s", route->name, url);
			reading_begin(reading);
			result = attempt(api, route, &request, reading, memory, err);
		} while (result < 0 && api->last.transient && !route->once &&
			retry_wait(&retry, api->last.retry_after, err) == 0);
	}
	cJSON_Delete(body);
	free(text);
	free(url);
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
