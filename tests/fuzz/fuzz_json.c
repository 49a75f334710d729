/* JSON in, JSON as Python writes it out: the result is a document again, and the same one when repeated. */
#include "fuzz.h"

#include <math.h>

#include "api/message.h"
#include "base/json.h"
#include "base/text.h"
#include "score/score.h"

/* Python, but not JSON, has a word for numbers that are too large. */
static bool is_finite(const cJSON *item)
{
	const cJSON *child;

	if (cJSON_IsNumber(item) && !isfinite(item->valuedouble))
		return false;
	cJSON_ArrayForEach (child, item)
		if (!is_finite(child))
			return false;
	return true;
}

/* cJSON compares in quadratic time, so text is compared instead. */
static void require_stable(const struct buffer *text)
{
	struct error err = {0};
	struct buffer again = {0};
	cJSON *document = json_parse(text->data, text->length, &err);

	REQUIRE(document);
	json_python(document, &again);
	REQUIRE(again.length == text->length && !memcmp(again.data, text->data, text->length));
	cJSON_Delete(document);
	buffer_free(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct error err = {0};
	struct buffer text = {0}, message = {0};
	char *input = fuzz_string(data, size), *again, hash[17];
	cJSON *document = json_parse(input, size, &err);

	REQUIRE(document || err.message[0]);
	if (document) {
		json_python(document, &text);
		if (is_finite(document))
			require_stable(&text);
		score_solution_hash(1.5, 100000, cJSON_IsObject(document) ? document : NULL, hash);
		message_submission_text(
			"url", "commit", 1.5, cJSON_IsObject(document) ? document : NULL, NULL, &message);
	}
	text_clean(input);
	REQUIRE(utf8_valid(input, strlen(input)));
	again = fuzz_string(input, strlen(input));
	text_clean(again);
	REQUIRE(!strcmp(again, input));
	free(again);
	cJSON_Delete(document);
	buffer_free(&message);
	buffer_free(&text);
	free(input);
	return 0;
}
