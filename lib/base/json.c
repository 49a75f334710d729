#include "base/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/text.h"

cJSON *json_parse(const char *text, size_t length, struct error *err)
{
	const char *end = NULL;
	cJSON *document = NULL;

	if (!utf8_valid(text, length)) {
		error_set(err, STATUS_NETWORK, "not a JSON document: not UTF-8");
		return NULL;
	}
	document = cJSON_ParseWithLengthOpts(text, length, &end, false);
	if (document) {
		while (end < text + length && *end && strchr(" \t\r\n", *end))
			end++;
		if (end == text + length)
			return document;
		cJSON_Delete(document);
	}
	error_set(err, STATUS_NETWORK, "not a JSON document: error near byte %td of %zu",
		end ? end - text : (ptrdiff_t)0, length);
	return NULL;
}

static const char *type_name(const cJSON *item)
{
	if (!item)
		return "nothing";
	switch (item->type & 0xff) {
	case cJSON_False:
	case cJSON_True:
		return "a boolean";
	case cJSON_NULL:
		return "null";
	case cJSON_Number:
		return "a number";
	case cJSON_String:
		return "a string";
	case cJSON_Array:
		return "a list";
	case cJSON_Object:
		return "an object";
	}
	return "something else";
}

/* The item, if it is there and `matches`; NULL with 0 in `result` when absent and optional. */
static const cJSON *field(const cJSON *object, const char *name, enum json_need need, const char *expected,
	cJSON_bool (*matches)(const cJSON *), int *result, struct error *err)
{
	const cJSON *item = cJSON_IsObject(object) ? cJSON_GetObjectItemCaseSensitive(object, name) : NULL;

	*result = 0;
	if (need == JSON_OPTIONAL && (!item || cJSON_IsNull(item)))
		return NULL;
	if (item && matches(item))
		return item;
	*result = error_set(
		err, STATUS_NETWORK, "field \"%s\" should be %s, but is %s", name, expected, type_name(item));
	return NULL;
}

int json_string(
	const cJSON *object, const char *name, enum json_need need, const char **out, struct error *err)
{
	int result;
	const cJSON *item = field(object, name, need, "a string", cJSON_IsString, &result, err);

	if (item)
		*out = item->valuestring;
	return result;
}

int json_integer(const cJSON *object, const char *name, enum json_need need, int64_t *out, struct error *err)
{
	int result;
	const cJSON *item = field(object, name, need, "a whole number", cJSON_IsNumber, &result, err);

	if (!item)
		return result;
	if (item->valuedouble != floor(item->valuedouble) || fabs(item->valuedouble) > 0x1p53)
		return error_set(err, STATUS_NETWORK, "field \"%s\" should be a whole number, but is %g",
			name, item->valuedouble);
	*out = (int64_t)item->valuedouble;
	return 0;
}

int json_real(const cJSON *object, const char *name, enum json_need need, double *out, struct error *err)
{
	int result;
	const cJSON *item = field(object, name, need, "a number", cJSON_IsNumber, &result, err);

	if (!item)
		return result;
	if (!isfinite(item->valuedouble))
		return error_set(err, STATUS_NETWORK, "field \"%s\" is not a finite number", name);
	*out = item->valuedouble;
	return 0;
}

int json_bool(const cJSON *object, const char *name, enum json_need need, bool *out, struct error *err)
{
	int result;
	const cJSON *item = field(object, name, need, "a boolean", cJSON_IsBool, &result, err);

	if (item)
		*out = cJSON_IsTrue(item);
	return result;
}

int json_array(
	const cJSON *object, const char *name, enum json_need need, const cJSON **out, struct error *err)
{
	int result;
	const cJSON *item = field(object, name, need, "a list", cJSON_IsArray, &result, err);

	if (item)
		*out = item;
	return result;
}

int json_object(
	const cJSON *object, const char *name, enum json_need need, const cJSON **out, struct error *err)
{
	int result;
	const cJSON *item = field(object, name, need, "an object", cJSON_IsObject, &result, err);

	if (item)
		*out = item;
	return result;
}

void json_add_real(cJSON *object, const char *name, double value)
{
	cJSON_AddItemToObject(object, name, isnan(value) ? cJSON_CreateNull() : cJSON_CreateNumber(value));
}

void json_add_text(cJSON *object, const char *name, const char *text)
{
	cJSON_AddItemToObject(object, name, text ? cJSON_CreateString(text) : cJSON_CreateNull());
}

void json_add_naive_time(cJSON *object, const char *name, double unix_time)
{
	char text[32];

	clock_format(unix_time, text);
	json_add_text(object, name, isnan(unix_time) ? NULL : text);
}

void json_add_time(cJSON *object, const char *name, double unix_time)
{
	char text[32], zoned[40];

	clock_format(unix_time, text);
	snprintf(zoned, sizeof(zoned), "%sZ", text);
	json_add_text(object, name, text[0] == '?' ? NULL : zoned);
}

void json_add_id(cJSON *object, const char *name, int64_t id)
{
	cJSON_AddItemToObject(object, name, id ? cJSON_CreateNumber((double)id) : cJSON_CreateNull());
}

/* Decodes one UTF-8 sequence; a byte that starts none stands for itself. */
static unsigned next_code_point(const unsigned char **text)
{
	const unsigned char *at = *text;
	int extra = *at >= 0xf0 ? 3 : *at >= 0xe0 ? 2 : *at >= 0xc0 ? 1 : 0;
	unsigned code = extra ? *at & (0x3f >> extra) : *at;

	for (int i = 1; i <= extra; i++) {
		if ((at[i] & 0xc0) != 0x80) {
			extra = 0;
			code = *at;
			break;
		}
		code = code << 6 | (at[i] & 0x3f);
	}
	*text = at + 1 + extra;
	return code;
}

static void python_string(const char *value, struct buffer *out)
{
	static const char escapes[] = "\"\"\\\\\bb\ff\nn\rr\tt";
	const unsigned char *at = (const unsigned char *)value;

	buffer_text(out, "\"");
	while (*at) {
		unsigned code = next_code_point(&at);
		const char *escape = NULL;

		for (const char *pair = escapes; *pair && !escape; pair += 2)
			if ((unsigned char)*pair == code)
				escape = pair + 1;
		if (escape)
			buffer_printf(out, "\\%c", *escape);
		else if (code >= 0x10000)
			buffer_printf(out, "\\u%04x\\u%04x", 0xd800 + ((code - 0x10000) >> 10),
				0xdc00 + ((code - 0x10000) & 0x3ff));
		else if (code < 0x20 || code > 0x7e)
			buffer_printf(out, "\\u%04x", code);
		else
			buffer_printf(out, "%c", (char)code);
	}
	buffer_text(out, "\"");
}

static int by_key(const void *left, const void *right)
{
	/* UTF-8 sorts by bytes as its code points do */
	return strcmp((*(const cJSON *const *)left)->string, (*(const cJSON *const *)right)->string);
}

static void python_container(const cJSON *value, struct buffer *out)
{
	bool is_object = cJSON_IsObject(value);
	size_t count = (size_t)cJSON_GetArraySize(value), i = 0;
	const cJSON **items = xcalloc(count, sizeof(*items)), *item;

	cJSON_ArrayForEach (item, value)
		items[i++] = item;
	if (is_object)
		qsort(items, count, sizeof(*items), by_key);
	buffer_text(out, is_object ? "{" : "[");
	for (i = 0; i < count; i++) {
		if (i)
			buffer_text(out, ", ");
		if (is_object) {
			python_string(items[i]->string, out);
			buffer_text(out, ": ");
		}
		json_python(items[i], out);
	}
	buffer_text(out, is_object ? "}" : "]");
	free(items);
}

void json_python(const cJSON *value, struct buffer *out)
{
	char number[32];

	switch (value->type & 0xff) {
	case cJSON_True:
		buffer_text(out, "true");
		break;
	case cJSON_False:
		buffer_text(out, "false");
		break;
	case cJSON_Number:
		number_repr(value->valuedouble, number);
		if (isinf(value->valuedouble)) /* written 1e400 */
			strcpy(number, value->valuedouble > 0 ? "Infinity" : "-Infinity");
		buffer_text(out, number);
		break;
	case cJSON_String:
		python_string(value->valuestring, out);
		break;
	case cJSON_Array:
	case cJSON_Object:
		python_container(value, out);
		break;
	default:
		buffer_text(out, "null");
	}
}
