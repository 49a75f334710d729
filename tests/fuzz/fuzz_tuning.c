/* Files of tuning results: what is read holds to what results promise, and written again reads as the same. */
#include "fuzz.h"

#include <math.h>

#include "base/json.h"
#include "base/text.h"
#include "tune/results.h"

static void require_sound(const struct tune_result *result)
{
	const struct tune_key *key = &result->key;
	char text[160];

	REQUIRE(result->ms > 0 && isfinite(result->ms) && result->imported);
	REQUIRE(strlen(key->source) == 64 && key->device[0] && key->kernel[0]);
	REQUIRE(key->class.length >= 0 && key->class.length < 63 && key->class.sequences > 0);
	REQUIRE(utf8_valid(key->device, strlen(key->device)) && !strchr(key->device, '\033'));
	REQUIRE(strspn(result->parameters,
			" =_0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz") ==
		strlen(result->parameters));
	shape_class_format(&key->class, text, sizeof(text));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct error err = {0}, problem = {0};
	struct tune_result_list list, again;
	struct buffer text = {0};
	char *input = fuzz_string(data, size);
	cJSON *document = json_parse(input, size, &err);
	size_t skipped;

	if (tune_results_read(document, &list, &skipped, &problem, &err) < 0) {
		REQUIRE(err.message[0] && !list.count);
	} else {
		REQUIRE(!skipped == !problem.message[0]);
		for (size_t i = 0; i < list.count; i++)
			require_sound(&list.items[i]);
		cJSON_Delete(document);
		tune_results_write(&list, &text);
		document = json_parse(text.data, text.length, &err);
		REQUIRE(tune_results_read(document, &again, &skipped, &problem, &err) == 0);
		REQUIRE(!skipped && again.count == list.count);
		for (size_t i = 0; i < list.count; i++)
			REQUIRE(shape_class_equal(&list.items[i].key.class, &again.items[i].key.class));
		tune_result_list_free(&again);
	}
	tune_result_list_free(&list);
	cJSON_Delete(document);
	buffer_free(&text);
	free(input);
	return 0;
}
