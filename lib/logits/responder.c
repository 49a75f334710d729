#include "logits/responder.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "api/http.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/text.h"

#define HEALTH_TIMEOUT 10 /* seconds, for one answer */
#define HEALTH_PAUSE 0.5

/* Of an answer's text: "-10.123456954956055, " and the like, and all that is not numbers. */
#define NUMBER_BYTES 28
#define FRAME_BYTES ((size_t)64 << 10)

/* A redirect that is not followed is no answer. */
static int exchange(
	struct http *http, const struct http_request *request, struct http_answer *answer, struct error *err)
{
	int result = http_exchange(http, request, answer, err);

	return result && err->status == STATUS_REFUSED
		? error_set(err, STATUS_FAILED, "it answers with a redirect that is not followed")
		: result;
}

/* --- health -------------------------------------------------------------------------------------- */

/* 1: healthy, 0: not yet. */
static int read_health(const struct http_answer *answer, struct error *err)
{
	cJSON *document;
	const char *status = "";
	int result = -1;

	if (answer->status == 503)
		return 0;
	if (answer->status != 200)
		return error_set(err, STATUS_FAILED, "/health answers %d", answer->status);
	document = json_parse(answer->body.data ? answer->body.data : "", answer->body.length, err);
	if (document && json_string(document, "status", JSON_REQUIRED, &status, err) == 0)
		result = !strcmp(status, "healthy");
	else
		error_context(err, "/health");
	cJSON_Delete(document);
	err->status = STATUS_FAILED;
	return result;
}

static int ask_health(struct http *http, const char *address, bool starting, struct error *err)
{
	const struct http_request request = {.url = address, .timeout = HEALTH_TIMEOUT, .stays = true};
	struct http_answer answer = {0};
	int result = exchange(http, &request, &answer, err);

	if (!result)
		result = read_health(&answer, err);
	else if (err->status == STATUS_NETWORK && starting)
		result = 0;
	else if (err->status == STATUS_NETWORK)
		error_hint(err, "Is the inference server running? `quasar serve` is one.");
	buffer_free(&answer.body);
	return result;
}

int responder_wait(const char *url, double seconds, bool starting, struct error *err)
{
	char *address = xprintf("%s/health", url);
	struct http *http = http_open();
	double deadline = clock_elapsed() + seconds;
	int healthy;

	while ((healthy = ask_health(http, address, starting, err)) == 0) {
		if (clock_elapsed() > deadline)
			healthy = error_set(
				err, STATUS_FAILED, "%s is not healthy after %.0f s", url, seconds);
		else if (clock_sleep(HEALTH_PAUSE, err) < 0)
			healthy = -1;
		if (healthy < 0)
			break;
	}
	http_close(http);
	free(address);
	return healthy < 0 ? -1 : 0;
}

/* --- inference ----------------------------------------------------------------------------------- */

static char *write_question(const struct challenge *challenge)
{
	cJSON *document = cJSON_CreateObject();
	char *text;

	cJSON_AddItemToObject(document, "prompt", cJSON_CreateIntArray(challenge->prompt, CHALLENGE_PROMPT));
	cJSON_AddNumberToObject(document, "gen_len", challenge->length);
	cJSON_AddNumberToObject(document, "logits_at_step", challenge->steps[0]);
	if (challenge->kind != CHALLENGE_2026_02)
		cJSON_AddItemToObject(document, "logits_at_steps",
			cJSON_CreateIntArray(challenge->steps, challenge->step_count));
	text = cJSON_PrintUnformatted(document);
	cJSON_Delete(document);
	return text;
}

static int read_tokens(const cJSON *document, struct challenge_answer *answer, struct error *err)
{
	const cJSON *tokens, *item;

	if (json_array(document, "tokens", JSON_REQUIRED, &tokens, err) < 0)
		return -1;
	cJSON_ArrayForEach (item, tokens) {
		if (answer->token_count == CHALLENGE_LENGTH)
			break;
		if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0) || item->valuedouble > INT32_MAX ||
			item->valuedouble != floor(item->valuedouble))
			return error_set(err, STATUS_FAILED, "token %d of the answer is no token",
				answer->token_count + 1);
		answer->tokens[answer->token_count++] = (int32_t)item->valuedouble;
	}
	return 0;
}

static int read_logits(const cJSON *list, int step, float **logits, int *count, struct error *err)
{
	const cJSON *item;

	*logits = malloc((size_t)cJSON_GetArraySize(list) * sizeof(float) + 1);
	if (!*logits)
		return error_set(err, STATUS_ENVIRONMENT, "not enough memory for logits");
	cJSON_ArrayForEach (item, list) {
		if (!cJSON_IsNumber(item))
			return error_set(
				err, STATUS_FAILED, "logit %d of step %d is no number", *count, step);
		(*logits)[(*count)++] = (float)item->valuedouble;
	}
	return 0;
}

static int read_all_logits(const cJSON *document, const struct challenge *challenge,
	struct challenge_answer *answer, struct error *err)
{
	const cJSON *several = document, *list;
	bool single = challenge->kind == CHALLENGE_2026_02;

	if (!single && json_object(document, "captured_logits_multi", JSON_REQUIRED, &several, err) < 0)
		return -1;
	for (int i = 0; i < challenge->step_count; i++) {
		char step[16];

		snprintf(step, sizeof(step), "%d", challenge->steps[i]);
		list = NULL;
		if (json_array(several, single ? "captured_logits" : step, JSON_OPTIONAL, &list, err) < 0 ||
			(list &&
				read_logits(list, challenge->steps[i], &answer->logits[i],
					&answer->logit_count[i], err) < 0))
			return -1;
	}
	return 0;
}

int responder_read_answer(const char *text, size_t length, const struct challenge *challenge,
	struct challenge_answer *answer, struct error *err)
{
	cJSON *document = json_parse(text, length, err);
	int result = document && read_tokens(document, answer, err) == 0 &&
			read_all_logits(document, challenge, answer, err) == 0
		? 0
		: -1;

	cJSON_Delete(document);
	if (result && err->status == STATUS_NETWORK)
		err->status = STATUS_FAILED;
	return result;
}

struct body {
	struct buffer text;
	size_t limit;
	bool too_long;
};

static int take(void *context, const char *data, size_t length)
{
	struct body *body = context;

	body->too_long = length > body->limit - body->text.length;
	if (body->too_long)
		return -1;
	buffer_append(&body->text, data, length);
	return 0;
}

static int refused(struct http_answer *answer, struct error *err)
{
	char *words = answer->body.data ? answer->body.data : "";

	error_set(err, STATUS_FAILED, "/inference answers %d: %.200s", answer->status, words);
	text_clean(err->message);
	return -1;
}

int responder_ask(const char *url, const struct challenge *challenge, int vocabulary,
	struct challenge_answer *answer, struct error *err)
{
	char *address = xprintf("%s/inference", url), *question = write_question(challenge);
	struct body body = {
		.limit = FRAME_BYTES + (size_t)challenge->step_count * (size_t)vocabulary * NUMBER_BYTES};
	const struct http_request request = {.url = address,
		.body = question,
		.timeout = RESPONDER_ANSWER_SECONDS,
		.take = take,
		.context = &body,
		.once = true};
	struct http_answer reply = {0};
	struct http *http = http_open();
	double started = clock_elapsed();
	int result = exchange(http, &request, &reply, err);

	*answer = (struct challenge_answer){.seconds = clock_elapsed() - started};
	if (body.too_long)
		result = error_set(
			err, STATUS_FAILED, "/inference answers with more than %zu bytes", body.limit);
	else if (!result && reply.status != 200)
		result = refused(&reply, err);
	else if (!result)
		result = responder_read_answer(
			body.text.data ? body.text.data : "", body.text.length, challenge, answer, err);
	http_close(http);
	buffer_free(&reply.body);
	buffer_free(&body.text);
	free(question);
	free(address);
	return result;
}
