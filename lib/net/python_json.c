#include "net/python_json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/json.h"

/* U+10FFFF, and what it stands for. */
#define STAND_IN "\xf4\x8f\xbf\xbf"
#define NUL "\\u0000"

struct word {
	const char *python, *json;
};

/* Read as numbers too large for a double. */
static const struct word words[] = {{"NaN", "-1e999"}, {"Infinity", "1e999"}};

/* The code unit of "\uXXXX" at `at`, or -1. */
static long code_unit(const char *at, const char *end)
{
	char digits[5] = "";

	if (end - at < 6 || at[0] != '\\' || at[1] != 'u')
		return -1;
	memcpy(digits, at + 2, 4);
	return strspn(digits, "0123456789abcdefABCDEF") == 4 ? strtol(digits, NULL, 16) : -1;
}

static bool is_high(long unit)
{
	return unit >= 0xd800 && unit < 0xdc00;
}

static bool is_low(long unit)
{
	return unit >= 0xdc00 && unit < 0xe000;
}

/* Copies what a backslash in a text begins; returns what follows. */
static const char *copy_escape(const char *at, const char *end, struct buffer *out, bool *lone_surrogate)
{
	long unit = code_unit(at, end);
	ptrdiff_t length = unit < 0 ? (end - at < 2 ? end - at : 2) : 6;

	if (is_high(unit) && is_low(code_unit(at + 6, end))) {
		length = 12;
	} else if (is_high(unit) || is_low(unit)) {
		*lone_surrogate = true;
		buffer_text(out, "?");
		return at + length;
	}
	if (unit == 0)
		buffer_text(out, STAND_IN);
	else
		buffer_append(out, at, (size_t)length);
	return at + length;
}

static const struct word *find_word(const char *at, const char *end)
{
	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++) {
		size_t length = strlen(words[i].python);

		if ((size_t)(end - at) >= length && !memcmp(at, words[i].python, length))
			return &words[i];
	}
	return NULL;
}

/* Makes JSON of it. */
static void translate(const char *at, const char *end, struct buffer *out, bool *lone_surrogate)
{
	bool in_text = false;

	while (at < end) {
		const struct word *word = in_text ? NULL : find_word(at, end);

		if (in_text && *at == '\\') {
			at = copy_escape(at, end, out, lone_surrogate);
		} else if (word) {
			buffer_text(out, word->json);
			at += strlen(word->python);
		} else {
			in_text ^= *at == '"';
			buffer_append(out, at++, 1);
		}
	}
}

cJSON *python_json_parse(const char *text, size_t length, bool *lone_surrogate, struct error *err)
{
	struct buffer json = {0};
	cJSON *document;

	*lone_surrogate = false;
	translate(text, text + length, &json, lone_surrogate);
	document = json_parse(json.data ? json.data : "", json.length, err);
	buffer_free(&json);
	return document;
}

static bool is_finite(const cJSON *item)
{
	const cJSON *child;

	if (cJSON_IsNumber(item))
		return isfinite(item->valuedouble);
	cJSON_ArrayForEach (child, item)
		if (!is_finite(child))
			return false;
	return true;
}

char *python_json_print(const cJSON *document)
{
	struct buffer out = {0};
	char *text, *at, *stand_in;

	if (!is_finite(document))
		return NULL;
	text = cJSON_PrintUnformatted(document);
	if (!strstr(text, STAND_IN))
		return text;
	for (at = text; (stand_in = strstr(at, STAND_IN)); at = stand_in + strlen(STAND_IN)) {
		buffer_append(&out, at, (size_t)(stand_in - at));
		buffer_text(&out, NUL);
	}
	buffer_text(&out, at);
	cJSON_free(text);
	return out.data; /* both are malloc's */
}
