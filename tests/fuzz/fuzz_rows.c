/* Lists that arrive in parts: however they are cut, the same rows come, and they are those of the document.
 *
 * Input: a byte, the length of the parts; then the document. */
#include "fuzz.h"

#include "base/json.h"
#include "base/json_rows.h"

/* What was handed over, as one text: "name=row\n", the row written anew if it is JSON. */
static void note(void *context, const char *name, const char *text, size_t length)
{
	struct buffer *heard = context;
	struct error ignored;
	cJSON *row = text ? json_parse(text, length, &ignored) : NULL;
	char *plain = row ? cJSON_PrintUnformatted(row) : NULL;

	REQUIRE(!text || (length <= JSON_ROW_BYTES && text[length] == '\0'));
	buffer_printf(heard, "%s=%s\n", name, plain ? plain : "?");
	cJSON_free(plain);
	cJSON_Delete(row);
}

static int read_in_parts(
	const uint8_t *data, size_t size, size_t part, struct buffer *heard, struct buffer *frame)
{
	struct json_rows rows = {.take = note, .context = heard};
	int result = 0;

	buffer_text(heard, "");
	for (size_t at = 0; !result && at < size; at += part)
		result = json_rows_feed(&rows, (const char *)data + at, size - at < part ? size - at : part);
	buffer_append(frame, rows.frame.data ? rows.frame.data : "", rows.frame.length);
	json_rows_free(&rows);
	return result;
}

/* The same of a document that is read as a whole. */
static void require_same(const cJSON *document, const struct buffer *heard)
{
	struct buffer expected = {0};
	const cJSON *list, *row;

	buffer_text(&expected, "");
	cJSON_ArrayForEach (list, document) {
		if (!cJSON_IsArray(list))
			continue;
		cJSON_ArrayForEach (row, list) {
			char *plain = cJSON_PrintUnformatted(row);

			buffer_printf(&expected, "%s=%s\n", list->string, plain);
			cJSON_free(plain);
		}
	}
	REQUIRE(!strcmp(expected.data, heard->data));
	buffer_free(&expected);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct buffer whole = {0}, parts = {0}, frame = {0}, frame_parts = {0};
	struct error ignored;
	cJSON *document;
	char *text;

	if (size < 2 || size > JSON_ROW_BYTES)
		return 0;
	REQUIRE(read_in_parts(data + 1, size - 1, size, &whole, &frame) == 0);
	REQUIRE(read_in_parts(data + 1, size - 1, data[0] % 16 + 1, &parts, &frame_parts) == 0);
	REQUIRE(whole.length == parts.length && !memcmp(whole.data, parts.data, whole.length));
	REQUIRE(frame.length == frame_parts.length && !memcmp(frame.data, frame_parts.data, frame.length));
	text = fuzz_string(data + 1, size - 1);
	document = json_parse(text, size - 1, &ignored);
	/* names are compared as they are written: without escapes, and not cut */
	if (cJSON_IsObject(document) && !strchr(text, '\\') && !strchr(text, '?') && size < 1000) {
		const cJSON *field;
		bool plain = true;

		cJSON_ArrayForEach (field, document)
			plain &= strlen(field->string) < 60;
		if (plain)
			require_same(document, &whole);
	}
	cJSON_Delete(document);
	free(text);
	buffer_free(&whole);
	buffer_free(&parts);
	buffer_free(&frame);
	buffer_free(&frame_parts);
	return 0;
}
