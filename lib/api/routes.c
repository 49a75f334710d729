/* The routes of the API: what goes in, and what has to come out. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/call.h"
#include "api/http.h"
#include "api/message.h"
#include "api/version.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/memory.h"

/* --- fields ----------------------------------------------------------------------------------- */

/* Ids of the validator's database count from 1. An optional one that is absent stays 0. */
static int read_id(
	const cJSON *object, const char *name, enum json_need need, int64_t *out, struct error *err)
{
	if (json_integer(object, name, need, out, err) < 0)
		return -1;
	if (*out > 0 || (need == JSON_OPTIONAL && *out == 0))
		return 0;
	return error_set(
		err, STATUS_NETWORK, "field \"%s\" should be an id, but is %lld", name, (long long)*out);
}

static int read_count(const cJSON *object, const char *name, int64_t *out, struct error *err)
{
	if (json_integer(object, name, JSON_REQUIRED, out, err) < 0)
		return -1;
	if (*out >= 0)
		return 0;
	return error_set(err, STATUS_NETWORK, "field \"%s\" is negative: %lld", name, (long long)*out);
}

static int read_time(const cJSON *object, const char *name, double *out, struct error *err)
{
	const char *text = NULL;

	if (json_string(object, name, JSON_REQUIRED, &text, err) < 0)
		return -1;
	if (clock_parse(text, out) == 0)
		return 0;
	return error_set(err, STATUS_NETWORK, "field \"%s\" is not a time: \"%.40s\"", name, text);
}

/* A field that has to repeat what the request said. */
static int expect_text(const cJSON *object, const char *name, const char *expected, struct error *err)
{
	const char *text = NULL;

	if (json_string(object, name, JSON_REQUIRED, &text, err) < 0)
		return -1;
	if (!strcmp(text, expected))
		return 0;
	return error_set(err, STATUS_NETWORK,
		"the answer is about another %s: \"%.80s\" instead of \"%.80s\"", name, text, expected);
}

static int expect_id(const cJSON *object, const char *name, int64_t expected, struct error *err)
{
	int64_t value = 0;

	if (json_integer(object, name, JSON_REQUIRED, &value, err) < 0)
		return -1;
	if (value == expected)
		return 0;
	return error_set(err, STATUS_NETWORK, "the answer is about another %s: %lld instead of %lld", name,
		(long long)value, (long long)expected);
}

/* --- lists ------------------------------------------------------------------------------------ */

/* Makes the request for an answer with one list. */
static int call_list(struct api *api, const struct route *route, const char *query, struct list *list,
	enum json_need need, struct api_memory *memory, struct error *err)
{
	const cJSON *frame;
	int result = api_call_lists(api, route, query, list, 1, memory, err);

	memory->list = list->items;
	if (result < 0)
		return -1;
	return api_finish(api, route, json_array(memory->document, list->name, need, &frame, err), err);
}

/* For the versions that keep networks apart. */
static int add_network(struct api *api, cJSON *body, struct error *err)
{
	if (api_require_network(api, err) < 0)
		return -1;
	if (api_version(api)->networks)
		cJSON_AddStringToObject(body, "network", api_network(api));
	return 0;
}

/* The same for a query, which may have begun; who only reads need not tell. */
static void query_network(struct api *api, struct buffer *query)
{
	if (api_network(api) && api_learn_version(api)->networks)
		buffer_printf(query, "%cnetwork=%s", query->length ? '&' : '?', api_network(api));
}

/* --- health and registration ------------------------------------------------------------------ */

int api_health(struct api *api, struct error *err)
{
	static const struct route route = {.name = "GET /health"};
	struct api_memory memory;
	int result = api_call(api, &route, NULL, NULL, &memory, err);

	if (!result)
		result = api_finish(api, &route, expect_text(memory.document, "status", "ok", err), err);
	api_release(&memory);
	return result;
}

static int decode_registration(struct api_registration *out, const char *hotkey, const char *model_name,
	const char *league, struct error *err)
{
	const cJSON *document = out->memory.document;
	const char *status = NULL;

	out->hotkey = hotkey;
	out->model_name = model_name;
	out->league = league;
	out->current_score = NAN;
	if (json_string(document, "status", JSON_REQUIRED, &status, err) < 0 ||
		expect_text(document, "hotkey", hotkey, err) < 0 ||
		expect_text(document, "model_name", model_name, err) < 0 ||
		expect_text(document, "league", league, err) < 0 ||
		json_real(document, "current_score", JSON_OPTIONAL, &out->current_score, err) < 0)
		return -1;
	out->already = !strcmp(status, "already_registered");
	if (out->already || !strcmp(status, "registered"))
		return 0;
	return error_set(err, STATUS_NETWORK, "unknown status \"%.40s\"", status);
}

int api_register_miner(struct api *api, const char *model_name, const char *league,
	struct api_registration *out, struct error *err)
{
	static const struct route route = {
		.name = "POST /register_miner", .is_signed = true, .final_fault = true};
	cJSON *body = cJSON_CreateObject();

	*out = (struct api_registration){0};
	/* without the uid that some versions take: they keep it only until a validator tells the chain's */
	cJSON_AddStringToObject(body, "hotkey", api_hotkey(api));
	cJSON_AddStringToObject(body, "model_name", model_name);
	cJSON_AddStringToObject(body, "league", league);
	if (add_network(api, body, err) < 0) {
		cJSON_Delete(body);
		return -1;
	}
	if (api_call(api, &route, NULL, body, &out->memory, err) < 0)
		return -1;
	return api_finish(
		api, &route, decode_registration(out, api_hotkey(api), model_name, league, err), err);
}

/* --- submissions ------------------------------------------------------------------------------ */

/* Adds the claim's fields and the signature over them. */
static int add_claim(
	struct api *api, const struct api_claim *claim, const char *repo_hash, cJSON *body, struct error *err)
{
	struct buffer text = {0};
	char signature[129];
	int result;

	message_submission_text(claim->fork_url, claim->commit_hash, claim->tokens_per_sec, claim->benchmarks,
		repo_hash, &text);
	result = api_sign(api, text.data, signature, err);
	buffer_free(&text);
	if (result < 0)
		return -1;
	cJSON_AddStringToObject(body, "miner_hotkey", api_hotkey(api));
	cJSON_AddStringToObject(body, "fork_url", claim->fork_url);
	cJSON_AddStringToObject(body, "commit_hash", claim->commit_hash);
	if (claim->docker_image)
		cJSON_AddStringToObject(body, "docker_image", claim->docker_image);
	cJSON_AddNumberToObject(body, "tokens_per_sec", claim->tokens_per_sec);
	if (!isnan(claim->vram_mb))
		cJSON_AddNumberToObject(body, "vram_mb", claim->vram_mb);
	if (claim->benchmarks)
		cJSON_AddItemToObject(body, "benchmarks", cJSON_Duplicate(claim->benchmarks, true));
	cJSON_AddStringToObject(body, "signature", signature);
	return 0;
}

/* What an answer about a submission has to repeat of the claim. */
static int expect_claim(
	const cJSON *document, const char *hotkey, const struct api_claim *claim, struct error *err)
{
	if (expect_text(document, "miner_hotkey", hotkey, err) < 0 ||
		expect_text(document, "fork_url", claim->fork_url, err) < 0 ||
		expect_text(document, "commit_hash", claim->commit_hash, err) < 0)
		return -1;
	return 0;
}

static int decode_kernel(const cJSON *document, const char *hotkey, const struct api_claim *claim,
	int64_t target_sequence_length, int64_t *submission_id, struct error *err)
{
	double tokens_per_sec = 0, created_at;

	if (read_id(document, "submission_id", JSON_REQUIRED, submission_id, err) < 0 ||
		expect_claim(document, hotkey, claim, err) < 0 ||
		expect_id(document, "target_sequence_length", target_sequence_length, err) < 0 ||
		json_real(document, "tokens_per_sec", JSON_REQUIRED, &tokens_per_sec, err) < 0 ||
		read_time(document, "created_at", &created_at, err) < 0)
		return -1;
	if (tokens_per_sec == claim->tokens_per_sec)
		return 0;
	return error_set(err, STATUS_NETWORK, "the answer is about another tokens_per_sec: %g instead of %g",
		tokens_per_sec, claim->tokens_per_sec);
}

int api_submit_kernel(struct api *api, const struct api_claim *claim, int64_t target_sequence_length,
	const char *repo_hash, int64_t *submission_id, struct error *err)
{
	static const struct route route = {.name = "POST /submit_kernel", .is_signed = true, .once = true};
	struct api_memory memory;
	cJSON *body = cJSON_CreateObject();
	int result;

	cJSON_AddNumberToObject(body, "target_sequence_length", (double)target_sequence_length);
	if (repo_hash)
		cJSON_AddStringToObject(body, "repo_hash", repo_hash);
	if (add_network(api, body, err) < 0 || add_claim(api, claim, repo_hash, body, err) < 0) {
		cJSON_Delete(body);
		return -1;
	}
	result = api_call(api, &route, NULL, body, &memory, err);
	if (!result)
		result = api_finish(api, &route,
			decode_kernel(memory.document, api_hotkey(api), claim, target_sequence_length,
				submission_id, err),
			err);
	api_release(&memory);
	return result;
}

static int decode_commitment(struct api_commitment *out, const char *commitment_hash, struct error *err)
{
	const cJSON *document = out->memory.document;

	out->commitment_hash = commitment_hash;
	if (read_id(document, "submission_id", JSON_REQUIRED, &out->submission_id, err) < 0 ||
		expect_text(document, "commitment_hash", commitment_hash, err) < 0 ||
		read_count(document, "reveal_block", &out->reveal_block, err) < 0 ||
		read_time(document, "estimated_reveal_time", &out->estimated_reveal_time, err) < 0 ||
		json_string(document, "message", JSON_REQUIRED, &out->message, err) < 0)
		return -1;
	return 0;
}

int api_commit_submission(struct api *api, const char *commitment_hash, int64_t target_sequence_length,
	struct api_commitment *out, struct error *err)
{
	static const struct route route = {
		.name = "POST /commit_submission", .is_signed = true, .once = true};
	char signature[129];
	cJSON *body;

	*out = (struct api_commitment){0};
	if (api_sign(api, commitment_hash, signature, err) < 0)
		return -1;
	body = cJSON_CreateObject();
	cJSON_AddStringToObject(body, "miner_hotkey", api_hotkey(api));
	cJSON_AddStringToObject(body, "commitment_hash", commitment_hash);
	cJSON_AddNumberToObject(body, "target_sequence_length", (double)target_sequence_length);
	cJSON_AddStringToObject(body, "signature", signature);
	if (add_network(api, body, err) < 0) {
		cJSON_Delete(body);
		return -1;
	}
	if (api_call(api, &route, NULL, body, &out->memory, err) < 0)
		return -1;
	return api_finish(api, &route, decode_commitment(out, commitment_hash, err), err);
}

static int decode_revelation(struct api_revelation *out, const char *hotkey, int64_t submission_id,
	const struct api_claim *claim, struct error *err)
{
	const cJSON *document = out->memory.document;
	bool is_revealed = false;

	out->submission_id = submission_id;
	if (expect_id(document, "submission_id", submission_id, err) < 0 ||
		expect_claim(document, hotkey, claim, err) < 0 ||
		json_bool(document, "is_revealed", JSON_REQUIRED, &is_revealed, err) < 0 ||
		json_string(document, "message", JSON_REQUIRED, &out->message, err) < 0)
		return -1;
	if (is_revealed)
		return 0;
	return error_set(err, STATUS_NETWORK, "the answer says that the submission is not revealed");
}

int api_reveal_submission(struct api *api, int64_t submission_id, const char *salt,
	const struct api_claim *claim, struct api_revelation *out, struct error *err)
{
	static const struct route route = {
		.name = "POST /reveal_submission", .is_signed = true, .once = true};
	cJSON *body = cJSON_CreateObject();

	*out = (struct api_revelation){0};
	cJSON_AddNumberToObject(body, "submission_id", (double)submission_id);
	cJSON_AddStringToObject(body, "commitment_salt", salt);
	if (add_claim(api, claim, NULL, body, err) < 0) {
		cJSON_Delete(body);
		return -1;
	}
	if (api_call(api, &route, NULL, body, &out->memory, err) < 0)
		return -1;
	return api_finish(
		api, &route, decode_revelation(out, api_hotkey(api), submission_id, claim, err), err);
}

/* --- pending reveals -------------------------------------------------------------------------- */

static int decode_pending_reveal(const cJSON *row, void *item, struct error *err)
{
	struct api_pending_reveal *reveal = item;

	reveal->can_reveal = true; /* where it is not told, the attempt will tell */
	if (read_id(row, "submission_id", JSON_REQUIRED, &reveal->submission_id, err) < 0 ||
		json_string(row, "miner_hotkey", JSON_REQUIRED, &reveal->miner_hotkey, err) < 0 ||
		json_string(row, "commitment_hash", JSON_REQUIRED, &reveal->commitment_hash, err) < 0 ||
		json_integer(row, "reveal_block", JSON_OPTIONAL, &reveal->reveal_block, err) < 0 ||
		json_bool(row, "can_reveal", JSON_OPTIONAL, &reveal->can_reveal, err) < 0)
		return -1;
	if (read_time(row, "created_at", &reveal->created_at, err) < 0)
		reveal->created_at = NAN; /* a commitment is worth more than its time */
	return reveal->reveal_block < 0 ? -1 : 0;
}

static bool pending_wanted(const void *item, const void *context)
{
	const struct api_pending_reveal *reveal = item;
	const struct api_pending_filter *filter = context;

	for (size_t i = 0; i < filter->id_count; i++)
		if (reveal->submission_id == filter->ids[i])
			return true;
	return !strcmp(reveal->miner_hotkey, filter->hotkey);
}

int api_pending_reveals(struct api *api, const struct api_pending_filter *filter,
	struct api_pending_reveals *out, struct error *err)
{
	static const struct route route = {.name = "GET /pending_reveals", .for_validators = true};
	struct list list = {.name = "pending_reveals",
		.decode = decode_pending_reveal,
		.wanted = pending_wanted,
		.context = filter,
		.size = sizeof(*out->reveals)};
	int result;

	*out = (struct api_pending_reveals){0};
	result = call_list(api, &route, NULL, &list, JSON_REQUIRED, &out->memory, err);
	if (!result)
		result = api_finish(api, &route,
			read_count(out->memory.document, "current_block", &out->current_block, err), err);
	out->reveals = list.items;
	out->count = list.count;
	out->skipped = list.skipped;
	return result;
}

bool api_pending_matches(
	const struct api_pending_reveal *reveal, const char *hotkey, const char *commitment_hash)
{
	return !strcmp(reveal->miner_hotkey, hotkey) && strlen(commitment_hash) == 64 &&
		!strncmp(reveal->commitment_hash, commitment_hash, 16) &&
		!strcmp(reveal->commitment_hash + 16, "...");
}

/* --- statistics ------------------------------------------------------------------------------- */

/* What both lists of /get_submission_stats tell. */
static int decode_top_performer(const cJSON *row, void *item, struct error *err)
{
	struct api_submission *submission = item;

	submission->vram_mb = NAN;
	if (read_id(row, "id", JSON_REQUIRED, &submission->id, err) < 0 ||
		json_string(row, "miner_hotkey", JSON_REQUIRED, &submission->miner_hotkey, err) < 0 ||
		json_integer(row, "target_sequence_length", JSON_REQUIRED,
			&submission->target_sequence_length, err) < 0 ||
		json_real(row, "tokens_per_sec", JSON_OPTIONAL, &submission->tokens_per_sec, err) < 0 ||
		read_time(row, "created_at", &submission->created_at, err) < 0)
		return -1;
	return 0;
}

static int decode_submission(const cJSON *row, void *item, struct error *err)
{
	struct api_submission *submission = item;

	if (decode_top_performer(row, item, err) < 0 ||
		json_string(row, "fork_url", JSON_OPTIONAL, &submission->fork_url, err) < 0 ||
		json_string(row, "commit_hash", JSON_OPTIONAL, &submission->commit_hash, err) < 0 ||
		json_string(row, "repo_hash", JSON_OPTIONAL, &submission->repo_hash, err) < 0 ||
		json_string(row, "docker_image", JSON_OPTIONAL, &submission->docker_image, err) < 0 ||
		json_real(row, "vram_mb", JSON_OPTIONAL, &submission->vram_mb, err) < 0 ||
		json_object(row, "benchmarks", JSON_OPTIONAL, &submission->benchmarks, err) < 0 ||
		json_bool(row, "validated", JSON_OPTIONAL, &submission->validated, err) < 0)
		return -1;
	/* whoever has shown the fork has claimed a speed */
	return submission->fork_url
		? json_real(row, "tokens_per_sec", JSON_REQUIRED, &submission->tokens_per_sec, err)
		: 0;
}

/* As decode_submission(), but benchmarks come as text, and ids perhaps by another name. What is no JSON is none. */
static int decode_pending(const cJSON *row, void *item, struct error *err)
{
	cJSON *own = (cJSON *)row; /* nobody else reads it */
	const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(row, "benchmarks"));
	cJSON *id = cJSON_GetObjectItemCaseSensitive(row, "submission_id");
	struct error ignored;
	int result;

	if (text) {
		cJSON *benchmarks = json_parse(text, strlen(text), &ignored);

		if (!cJSON_IsObject(benchmarks)) {
			cJSON_Delete(benchmarks);
			benchmarks = cJSON_CreateNull();
		}
		cJSON_ReplaceItemInObjectCaseSensitive(own, "benchmarks", benchmarks);
	}
	if (id && !cJSON_GetObjectItemCaseSensitive(row, "id"))
		cJSON_AddItemReferenceToObject(own, "id", id);
	result = decode_submission(row, item, err);
	if (!result &&
		!(((struct api_submission *)item)->fork_url && ((struct api_submission *)item)->commit_hash))
		result = error_set(err, STATUS_NETWORK, "there is no fork to judge");
	return result;
}

int api_pending_validations(
	struct api *api, int limit, struct api_pending_validations *out, struct error *err)
{
	static const struct route route = {.name = "GET /get_pending_validations", .for_validators = true};
	struct list list = {
		.name = "submissions", .decode = decode_pending, .size = sizeof(*out->submissions)};
	struct buffer query = {0};
	int result;

	*out = (struct api_pending_validations){0};
	buffer_printf(&query, "?limit=%d", limit);
	query_network(api, &query);
	result = call_list(api, &route, query.data, &list, JSON_REQUIRED, &out->memory, err);
	buffer_free(&query);
	out->submissions = list.items;
	out->count = list.count;
	out->skipped = list.skipped;
	out->total = (int64_t)(list.count + list.skipped);
	if (result < 0)
		return -1;
	return api_finish(api, &route,
		json_integer(out->memory.document, "total_pending", JSON_OPTIONAL, &out->total, err), err);
}

/* One array of both: the recent ones, then the fastest. */
static void join_submissions(struct api_submission_stats *out, struct list *recent, struct list *top)
{
	size_t size = sizeof(*out->recent);
	struct api_submission *all = xcalloc(recent->count + top->count + 1, size);

	if (recent->count)
		memcpy(all, recent->items, recent->count * size);
	if (top->count)
		memcpy(all + recent->count, top->items, top->count * size);
	free(recent->items);
	free(top->items);
	out->memory.list = all;
	out->recent = all;
	out->recent_count = recent->count;
	out->top = all + recent->count;
	out->top_count = top->count;
	out->skipped = recent->skipped + top->skipped;
}

int api_submission_stats(struct api *api, int limit, struct api_submission_stats *out, struct error *err)
{
	static const struct route route = {.name = "GET /get_submission_stats", .for_validators = true};
	struct list lists[] = {
		{.name = "recent_submissions", .decode = decode_submission, .size = sizeof(*out->recent)},
		{.name = "top_performers", .decode = decode_top_performer, .size = sizeof(*out->top)},
	};
	const cJSON *document, *frame;
	char query[32];
	int result;

	*out = (struct api_submission_stats){.total_submissions = -1};
	snprintf(query, sizeof(query), "?limit=%d", limit);
	result = api_call_lists(api, &route, query, lists, 2, &out->memory, err);
	join_submissions(out, &lists[0], &lists[1]);
	if (result < 0)
		return -1;
	document = out->memory.document;
	if (json_array(document, "recent_submissions", JSON_REQUIRED, &frame, err) < 0 ||
		json_array(document, "top_performers", JSON_OPTIONAL, &frame, err) < 0 ||
		json_integer(document, "total_submissions", JSON_OPTIONAL, &out->total_submissions, err) < 0)
		result = -1;
	return api_finish(api, &route, result, err);
}

int api_submission_rate(
	struct api *api, int64_t window_minutes, struct api_submission_rate *out, struct error *err)
{
	static const struct route route = {.name = "GET /get_submission_rate", .for_validators = true};
	struct api_memory memory;
	char query[48];
	int result;

	*out = (struct api_submission_rate){0};
	snprintf(query, sizeof(query), "?window_minutes=%lld", (long long)window_minutes);
	result = api_call(api, &route, query, NULL, &memory, err);
	if (!result) {
		result = json_real(memory.document, "submissions_per_minute", JSON_REQUIRED,
			&out->submissions_per_minute, err);
		if (!result)
			result = read_count(
				memory.document, "recent_submissions", &out->recent_submissions, err);
		if (!result)
			result = expect_id(memory.document, "window_minutes", window_minutes, err);
		result = api_finish(api, &route, result, err);
	}
	api_release(&memory);
	return result;
}

/* --- the dashboard ---------------------------------------------------------------------------- */

static int decode_own_submission(const cJSON *row, void *item, struct error *err)
{
	struct api_own_submission *submission = item;

	submission->tokens_per_sec = submission->validated_tokens_per_sec = submission->score = NAN;
	if (read_id(row, "id", JSON_REQUIRED, &submission->id, err) < 0 ||
		json_integer(row, "target_sequence_length", JSON_REQUIRED,
			&submission->target_sequence_length, err) < 0 ||
		json_real(row, "tokens_per_sec", JSON_OPTIONAL, &submission->tokens_per_sec, err) < 0 ||
		json_real(row, "validated_tokens_per_sec", JSON_OPTIONAL,
			&submission->validated_tokens_per_sec, err) < 0 ||
		json_real(row, "score", JSON_OPTIONAL, &submission->score, err) < 0 ||
		json_bool(row, "is_revealed", JSON_OPTIONAL, &submission->is_revealed, err) < 0 ||
		read_time(row, "created_at", &submission->created_at, err) < 0)
		return -1;
	return 0;
}

static int decode_miner(struct api_miner *out, struct error *err)
{
	const cJSON *document = out->memory.document;
	bool is_flagged = false;

	if (json_bool(document, "is_flagged", JSON_OPTIONAL, &is_flagged, err) < 0 ||
		json_string(document, "flag_reason", JSON_OPTIONAL, &out->flag_reason, err) < 0)
		return -1;
	if (is_flagged && !out->flag_reason)
		out->flag_reason = "no reason told";
	return 0;
}

int api_dashboard_miner(struct api *api, const char *hotkey, struct api_miner *out, struct error *err)
{
	char name[96], query[32] = "";
	const struct route route = {.name = name, .with_key = true};
	struct list list = {
		.name = "submissions", .decode = decode_own_submission, .size = sizeof(*out->submissions)};
	int result;

	*out = (struct api_miner){0};
	snprintf(name, sizeof(name), "GET /dashboard/miner/%s", hotkey);
	if (api_network(api))
		snprintf(query, sizeof(query), "?network=%s", api_network(api));
	result = call_list(api, &route, query, &list, JSON_REQUIRED, &out->memory, err);
	out->submissions = list.items;
	out->count = list.count;
	out->skipped = list.skipped;
	if (result < 0)
		return -1;
	return api_finish(api, &route, decode_miner(out, err), err);
}

static int decode_leader(const cJSON *row, void *item, struct error *err)
{
	struct api_leader *leader = item;

	leader->tokens_per_sec = NAN;
	if (read_id(row, "submission_id", JSON_OPTIONAL, &leader->submission_id, err) < 0 ||
		json_string(row, "miner_hotkey", JSON_REQUIRED, &leader->miner_hotkey, err) < 0 ||
		json_real(row, "tokens_per_sec", JSON_OPTIONAL, &leader->tokens_per_sec, err) < 0 ||
		json_integer(row, "target_sequence_length", JSON_REQUIRED, &leader->target_sequence_length,
			err) < 0)
		return -1;
	return 0;
}

int api_dashboard_leaderboard(struct api *api, int limit, struct api_leaderboard *out, struct error *err)
{
	static const struct route route = {.name = "GET /dashboard/leaderboard", .with_key = true};
	struct list list = {.name = "leaderboard", .decode = decode_leader, .size = sizeof(*out->leaders)};
	char query[64];
	int result;

	*out = (struct api_leaderboard){0};
	snprintf(query, sizeof(query), "?limit=%d%s%s", limit, api_network(api) ? "&network=" : "",
		api_network(api) ? api_network(api) : "");
	result = call_list(api, &route, query, &list, JSON_REQUIRED, &out->memory, err);
	out->leaders = list.items;
	out->count = list.count;
	out->skipped = list.skipped;
	return result;
}

/* --- rounds ----------------------------------------------------------------------------------- */

static int decode_round(struct api_round *out, struct error *err)
{
	const cJSON *document = out->memory.document;

	if (read_id(document, "id", JSON_REQUIRED, &out->id, err) < 0 ||
		read_count(document, "round_number", &out->round_number, err) < 0 ||
		read_time(document, "start_time", &out->start_time, err) < 0 ||
		read_time(document, "end_time", &out->end_time, err) < 0 ||
		json_string(document, "status", JSON_REQUIRED, &out->status, err) < 0 ||
		json_integer(document, "time_remaining_seconds", JSON_REQUIRED, &out->time_remaining_seconds,
			err) < 0 ||
		read_id(document, "baseline_submission_id", JSON_OPTIONAL, &out->baseline_submission_id,
			err) < 0 ||
		json_string(document, "winner_hotkey", JSON_OPTIONAL, &out->winner_hotkey, err) < 0 ||
		read_count(document, "total_submissions", &out->total_submissions, err) < 0)
		return -1;
	return 0;
}

int api_current_round(struct api *api, struct api_round *out, struct error *err)
{
	static const struct route route = {.name = "GET /get_current_round", .for_validators = true};

	struct buffer query = {0};
	int result;

	*out = (struct api_round){0};
	query_network(api, &query);
	result = api_call(api, &route, query.data, NULL, &out->memory, err);
	buffer_free(&query);
	if (result < 0 || api_finish(api, &route, decode_round(out, err), err) < 0)
		return -1;
	api_told_time(api, out->start_time);
	return 0;
}

int api_wake_round(struct api *api, struct error *err)
{
	static const struct route route = {
		.name = "GET /get_current_round", .for_validators = true, .once = true, .seconds = 10};
	struct api_round round = {0};
	struct error ignored;
	int result = api_call(api, &route, NULL, NULL, &round.memory, err);

	if (!result && decode_round(&round, &ignored) == 0)
		api_told_time(api, round.start_time);
	api_release(&round.memory);
	return result < 0 && err->status == STATUS_INTERRUPTED ? -1 : 0;
}

int api_create_round(struct api *api, int64_t duration_hours, int64_t baseline_submission_id,
	struct api_round *out, struct error *err)
{
	static const struct route route = {
		.name = "POST /create_round", .once = true, .for_validators = true};
	cJSON *body = cJSON_CreateObject();

	*out = (struct api_round){0};
	cJSON_AddNumberToObject(body, "duration_hours", (double)duration_hours);
	if (baseline_submission_id)
		cJSON_AddNumberToObject(body, "baseline_submission_id", (double)baseline_submission_id);
	if (add_network(api, body, err) < 0) {
		cJSON_Delete(body);
		return -1;
	}
	if (api_call(api, &route, NULL, body, &out->memory, err) < 0)
		return -1;
	return api_finish(api, &route, decode_round(out, err), err);
}

static int decode_ranking(const cJSON *item, void *out, struct error *err)
{
	struct api_ranking *ranking = out;

	ranking->weighted_score = NAN;
	if (read_id(item, "submission_id", JSON_OPTIONAL, &ranking->submission_id, err) < 0 ||
		json_string(item, "miner_hotkey", JSON_OPTIONAL, &ranking->miner_hotkey, err) < 0 ||
		json_real(item, "weighted_score", JSON_OPTIONAL, &ranking->weighted_score, err) < 0)
		return -1;
	return 0;
}

static int decode_round_result(struct api_round_result *out, int64_t round_id, struct error *err)
{
	const cJSON *document = out->memory.document;
	int64_t id = round_id;

	if (json_string(document, "status", JSON_REQUIRED, &out->status, err) < 0 ||
		json_integer(document, "round_id", JSON_OPTIONAL, &id, err) < 0 ||
		json_string(document, "winner", JSON_OPTIONAL, &out->winner, err) < 0)
		return -1;
	if (id == round_id)
		return 0;
	return error_set(err, STATUS_NETWORK, "the answer is about another round: %lld instead of %lld",
		(long long)id, (long long)round_id);
}

static int finalize(
	struct api *api, const char *path, int64_t round_id, struct api_round_result *out, struct error *err)
{
	char name[64];
	const struct route route = {.name = name, .once = true, .for_validators = true};
	/* a round without validated submissions ends without */
	struct list list = {.name = "rankings", .decode = decode_ranking, .size = sizeof(*out->rankings)};
	int result;

	*out = (struct api_round_result){0};
	snprintf(name, sizeof(name), "POST %s/%lld", path, (long long)round_id);
	result = call_list(api, &route, NULL, &list, JSON_OPTIONAL, &out->memory, err);
	out->rankings = list.items;
	out->count = list.count;
	out->skipped = list.skipped;
	if (result < 0)
		return -1;
	return api_finish(api, &route, decode_round_result(out, round_id, err), err);
}

int api_finalize_round(struct api *api, int64_t round_id, struct api_round_result *out, struct error *err)
{
	return finalize(api, "/finalize_round", round_id, out, err);
}

int api_refinalize_round(struct api *api, int64_t round_id, struct api_round_result *out, struct error *err)
{
	return finalize(api, "/refinalize_round", round_id, out, err);
}

static int decode_weight(const cJSON *item, void *out, struct error *err)
{
	struct api_weight *weight = out;

	if (json_integer(item, "uid", JSON_REQUIRED, &weight->uid, err) < 0 ||
		json_string(item, "hotkey", JSON_REQUIRED, &weight->hotkey, err) < 0 ||
		json_real(item, "weight", JSON_REQUIRED, &weight->weight, err) < 0)
		return -1;
	return 0;
}

static int decode_weights(struct api_weights *out, struct error *err)
{
	if (json_integer(out->memory.document, "epoch", JSON_OPTIONAL, &out->epoch, err) < 0)
		return -1;
	return read_id(out->memory.document, "round_id", JSON_OPTIONAL, &out->round_id, err);
}

int api_weights(struct api *api, int64_t round_id, struct api_weights *out, struct error *err)
{
	static const struct route route = {.name = "GET /get_weights", .for_validators = true};
	struct list list = {.name = "weights", .decode = decode_weight, .size = sizeof(*out->weights)};
	struct buffer query = {0};
	int result;

	*out = (struct api_weights){0};
	if (round_id)
		buffer_printf(&query, "?round_id=%lld", (long long)round_id);
	else if (api_learn_version(api)->docket) /* else also those of a round that still runs */
		buffer_text(&query, "?completed_only=true");
	query_network(api, &query);
	result = call_list(api, &route, query.data, &list, JSON_REQUIRED, &out->memory, err);
	buffer_free(&query);
	if (!result)
		result = api_finish(api, &route, decode_weights(out, err), err);
	out->weights = list.items;
	out->count = list.count;
	out->skipped = list.skipped;
	return result;
}

/* --- validation ------------------------------------------------------------------------------- */

static void query_number(struct buffer *query, const char *name, double value)
{
	if (!isnan(value))
		buffer_printf(query, "&%s=%.17g", name, value);
}

static int expect_bool(const cJSON *object, const char *name, bool expected, struct error *err)
{
	bool value = !expected;

	if (json_bool(object, name, JSON_REQUIRED, &value, err) < 0)
		return -1;
	if (value == expected)
		return 0;
	return error_set(err, STATUS_NETWORK, "the answer's \"%s\" is not what was sent", name);
}

int api_record_verification(struct api *api, int64_t submission_id, bool verified, double cosine_similarity,
	double max_abs_diff, double throughput, const char *reason, struct error *err)
{
	static const struct route route = {.name = "POST /record_verification", .for_validators = true};
	struct api_memory memory;
	struct buffer query = {0};
	int result;

	buffer_printf(&query, "?submission_id=%lld&verified=%s", (long long)submission_id,
		verified ? "true" : "false");
	query_number(&query, "cosine_similarity", cosine_similarity);
	query_number(&query, "max_abs_diff", max_abs_diff);
	query_number(&query, "throughput", throughput);
	if (reason) {
		char *escaped = http_escape(reason);

		buffer_printf(&query, "&reason=%s", escaped);
		free(escaped);
	}
	result = api_call(api, &route, query.data, NULL, &memory, err);
	if (!result)
		result = api_finish(
			api, &route, expect_bool(memory.document, "verified", verified, err), err);
	buffer_free(&query);
	api_release(&memory);
	return result;
}

int api_verification_stats(struct api *api, int64_t round_id, struct api_memory *out, struct error *err)
{
	static const struct route route = {.name = "GET /verification_stats", .for_validators = true};
	char query[48] = "";

	if (round_id)
		snprintf(query, sizeof(query), "?round_id=%lld", (long long)round_id);
	return api_call(api, &route, query, NULL, out, err);
}

int api_mark_validated(struct api *api, int64_t submission_id, double score, struct error *err)
{
	static const struct route route = {.name = "POST /mark_validated", .for_validators = true};
	struct api_memory memory;
	cJSON *body = cJSON_CreateObject();
	int result;

	cJSON_AddNumberToObject(body, "submission_id", (double)submission_id);
	cJSON_AddNumberToObject(body, "score", score);
	result = api_call(api, &route, NULL, body, &memory, err);
	if (!result)
		result = api_finish(
			api, &route, expect_id(memory.document, "submission_id", submission_id, err), err);
	api_release(&memory);
	return result;
}

int api_mark_verified(struct api *api, const struct api_judgement *judgement, struct error *err)
{
	static const struct route route = {
		.name = "POST /mark_validated_with_verification", .for_validators = true};
	struct api_memory memory;
	cJSON *body = cJSON_CreateObject();
	int result;

	cJSON_AddNumberToObject(body, "submission_id", (double)judgement->submission_id);
	cJSON_AddNumberToObject(body, "score", judgement->score);
	cJSON_AddBoolToObject(body, "verified", judgement->verified);
	if (!isnan(judgement->tokens_per_sec))
		cJSON_AddNumberToObject(body, "actual_tokens_per_sec", judgement->tokens_per_sec);
	if (!isnan(judgement->cosine_similarity))
		cJSON_AddNumberToObject(body, "cosine_similarity", judgement->cosine_similarity);
	if (!isnan(judgement->max_abs_diff))
		cJSON_AddNumberToObject(body, "max_abs_diff", judgement->max_abs_diff);
	if (!isnan(judgement->throughput))
		cJSON_AddNumberToObject(body, "throughput", judgement->throughput);
	if (judgement->reason)
		cJSON_AddStringToObject(body, "reason", judgement->reason);
	result = api_call(api, &route, NULL, body, &memory, err);
	if (!result)
		result = api_finish(api, &route,
			expect_id(memory.document, "submission_id", judgement->submission_id, err), err);
	api_release(&memory);
	return result;
}

int api_record_failure(struct api *api, const char *ip_address, struct error *err)
{
	static const struct route route = {
		.name = "POST /record_failure", .once = true, .for_validators = true};
	struct api_memory memory;
	cJSON *body = cJSON_CreateObject();
	int result;

	cJSON_AddStringToObject(body, "ip_address", ip_address);
	result = api_call(api, &route, NULL, body, &memory, err);
	api_release(&memory);
	return result;
}
