/* Requests to the inference server: body, fields, and the text of the answer.
 *
 * Input: the body of POST /inference. */
#include "fuzz.h"

#include "base/json.h"
#include "inference/answer.h"

#define VOCABULARY 50
#define TOKENS 40

/* All of an answer, read in pieces of changing sizes. */
static void answer_to(const struct inference_request *request)
{
	int32_t tokens[TOKENS] = {0};
	float logits[INFERENCE_STEPS_MOST * VOCABULARY];
	struct answer answer = {.request = request,
		.tokens = tokens,
		.logits = logits,
		.vocabulary = VOCABULARY,
		.seconds = 0.5};
	struct buffer text = {0};
	struct error err = {0};
	const cJSON *found = NULL;
	char piece[300];
	size_t length;
	cJSON *document;

	for (int i = 0; i < request->step_count * VOCABULARY; i++)
		logits[i] = (float)i / 3;
	answer_begin(&answer);
	while ((length = answer.content.read(&answer.content, piece, 1 + text.length % sizeof(piece))))
		buffer_append(&text, piece, length);
	answer_end(&answer);
	document = json_parse(text.data, text.length, &err);
	REQUIRE(document);
	REQUIRE(cJSON_GetArraySize(cJSON_GetObjectItem(document, "tokens")) == request->length);
	found = cJSON_GetObjectItem(document, "captured_logits");
	REQUIRE(cJSON_GetArraySize(found) == (request->step_count ? VOCABULARY : 0));
	found = cJSON_GetObjectItem(document, "captured_logits_multi");
	REQUIRE(!found == !request->several);
	REQUIRE(!found || cJSON_GetArraySize(found) == request->step_count);
	cJSON_Delete(document);
	buffer_free(&text);
}

static void require_bounds(const struct inference_request *request)
{
	REQUIRE(request->prompt_length > 0 && request->length >= 0);
	REQUIRE(request->prompt_length + request->length <= TOKENS);
	for (int i = 0; i < request->prompt_length; i++)
		REQUIRE(request->prompt[i] >= 0 && request->prompt[i] < VOCABULARY);
	REQUIRE(request->step_count <= INFERENCE_STEPS_MOST);
	for (int i = 0; i < request->step_count; i++)
		REQUIRE(request->steps[i] > (i ? request->steps[i - 1] : 0) &&
			request->steps[i] <= request->length);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct inference_limits limits = {.vocabulary = VOCABULARY, .tokens = TOKENS};
	char *input = fuzz_string(data, size);
	struct error err = {0};
	cJSON *body = json_parse(input, size, &err);
	const struct server_request request = {.body = body};
	struct server_reply reply = {.status = 200};
	struct inference_request asked;

	if (inference_request_read(&request, &limits, &asked, &reply)) {
		require_bounds(&asked);
		answer_to(&asked);
		inference_request_free(&asked);
	} else {
		REQUIRE(reply.status == 422 && reply.body);
		cJSON_Delete(reply.body);
	}
	cJSON_Delete(body);
	free(input);
	return 0;
}
