#include "net/fields.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/memory.h"
#include "base/text.h"

static const char not_a_table[] = "Input should be a valid dictionary";

/* Problems of one list that are told: as many as help. */
#define LIST_PROBLEMS 8

/* Where a value stands: its field, and the keys that lead on from there; NULL where it ends. */
struct location {
	const char *keys[3];
	size_t number; /* in a list, from 1; 0: in none */
};

/* `input`: what is wrong, which the request owns; NULL: there was nothing. Returns the entry. */
static cJSON *problem(struct fields *fields, const struct location *at, const cJSON *input, const char *type,
	const char *message)
{
	cJSON *entry = cJSON_CreateObject(), *loc;

	cJSON_AddStringToObject(entry, "type", type);
	loc = cJSON_AddArrayToObject(entry, "loc");
	cJSON_AddItemToArray(loc, cJSON_CreateString(fields->source));
	for (size_t i = 0; i < sizeof(at->keys) / sizeof(*at->keys) && at->keys[i]; i++)
		cJSON_AddItemToArray(loc, cJSON_CreateString(at->keys[i]));
	if (at->number)
		cJSON_AddItemToArray(loc, cJSON_CreateNumber((double)at->number - 1));
	cJSON_AddStringToObject(entry, "msg", message);
	/* what stands in a query may be no text at all */
	if (input && !(cJSON_IsString(input) && !utf8_valid(input->valuestring, strlen(input->valuestring))))
		cJSON_AddItemReferenceToObject(entry, "input", (cJSON *)input);
	else
		cJSON_AddNullToObject(entry, "input");
	if (!fields->problems)
		fields->problems = cJSON_CreateArray();
	cJSON_AddItemToArray(fields->problems, entry);
	return entry;
}

static struct fields whole_body(const struct server_request *request, const struct field_rules *rules,
	const char *type, const char *message)
{
	struct fields fields = {.object = request->body, .source = "body", .rules = rules};
	const struct location whole = {.keys = {NULL}};

	if (!request->body)
		problem(&fields, &whole, NULL, "missing", "Field required");
	else if (!cJSON_IsObject(request->body))
		problem(&fields, &whole, request->body, type, message);
	return fields;
}

struct fields fields_body(const struct server_request *request, const struct field_rules *rules)
{
	return whole_body(request, rules, "model_attributes_type",
		"Input should be a valid dictionary or object to extract fields from");
}

struct fields fields_object(const struct server_request *request, const struct field_rules *rules)
{
	return whole_body(request, rules, "dict_type", not_a_table);
}

struct fields fields_query(const struct server_request *request, const struct field_rules *rules)
{
	return (struct fields){.object = request->query, .source = "query", .rules = rules};
}

struct fields fields_path(const struct server_request *request, const struct field_rules *rules)
{
	return (struct fields){.object = request->captures, .source = "path", .rules = rules};
}

const cJSON *fields_raw(const struct fields *fields, const char *name)
{
	return cJSON_IsObject(fields->object) ? cJSON_GetObjectItemCaseSensitive(fields->object, name) : NULL;
}

/* NULL when the field is missing, or when there is no object to look into, which is a problem already. */
static const cJSON *find(struct fields *fields, const char *name, bool required)
{
	const cJSON *item = fields_raw(fields, name);

	if (!item && required && cJSON_IsObject(fields->object))
		problem(fields, &(struct location){.keys = {name}},
			strcmp(fields->source, "body") ? NULL : fields->object, "missing", "Field required");
	return item;
}

static bool is_blank(const char *text)
{
	return text[strspn(text, " \t\r\n")] == '\0';
}

/* Digits with an optional sign and point: no exponent, no "inf". */
static bool spells_decimal(const char *text)
{
	text += strspn(text, " \t\r\n");
	return is_blank(text + strspn(text, "+-.0123456789"));
}

/* 0; 1 when the value is no number at all; 2 when it is text that spells none. */
static int read_number(const cJSON *item, double *value)
{
	char *end;

	if (cJSON_IsBool(item))
		*value = cJSON_IsTrue(item);
	else if (cJSON_IsNumber(item))
		*value = item->valuedouble;
	else if (!cJSON_IsString(item))
		return 1;
	else {
		/* strtod also reads hexadecimal numbers */
		*value = strtod(item->valuestring, &end);
		if (end == item->valuestring || !is_blank(end) || strpbrk(item->valuestring, "xX"))
			return 2;
	}
	return 0;
}

static const struct field_bound *find_bound(const struct fields *fields, const char *name)
{
	const struct field_bound *bound = fields->rules->bounds;

	while (bound && bound->name && strcmp(bound->name, name))
		bound++;
	return bound && bound->name ? bound : NULL;
}

static void out_of_bounds(struct fields *fields, const struct location *at, const cJSON *item,
	const char *type, const char *message, const char *limit_name, double limit)
{
	cJSON *entry = problem(fields, at, item, type, message);

	cJSON_AddNumberToObject(cJSON_AddObjectToObject(entry, "ctx"), limit_name, limit);
}

static void check_number(struct fields *fields, const struct location *at, const cJSON *item, double value)
{
	const struct field_bound *bound = find_bound(fields, at->keys[0]);
	char message[96];

	if (bound && value < bound->least) {
		snprintf(message, sizeof(message), "Input should be greater than or equal to %.15g",
			bound->least);
		out_of_bounds(fields, at, item, "greater_than_equal", message, "ge", bound->least);
	} else if (bound && value > bound->most) {
		snprintf(
			message, sizeof(message), "Input should be less than or equal to %.15g", bound->most);
		out_of_bounds(fields, at, item, "less_than_equal", message, "le", bound->most);
	}
}

static void check_length(struct fields *fields, const struct location *at, const cJSON *item)
{
	const struct field_bound *bound = find_bound(fields, at->keys[0]);
	char message[96];

	if (!bound || (double)text_width(item->valuestring) <= bound->most)
		return;
	snprintf(message, sizeof(message), "String should have at most %.0f characters", bound->most);
	out_of_bounds(fields, at, item, "string_too_long", message, "max_length", bound->most);
}

static double to_real(struct fields *fields, const char *name, const cJSON *item)
{
	const struct location at = {.keys = {name}};
	double value = NAN;

	switch (read_number(item, &value)) {
	case 1:
		problem(fields, &at, item, "float_type", "Input should be a valid number");
		return NAN;
	case 2:
		problem(fields, &at, item, "float_parsing",
			"Input should be a valid number, unable to parse string as a number");
		return NAN;
	}
	if (!isfinite(value) && !fields->rules->any_number) {
		problem(fields, &at, item, "finite_number", "Input should be a finite number");
		return NAN;
	}
	check_number(fields, &at, item, value);
	return value;
}

static int64_t to_integer(struct fields *fields, const struct location *at, const cJSON *item)
{
	const double limit = fields->rules->any_number ? 0x1p63 : 0x1p53 + 2;
	double value;
	int wrong = read_number(item, &value);
	bool spelled = !cJSON_IsString(item) || spells_decimal(item->valuestring);

	if (wrong == 1)
		problem(fields, at, item, "int_type", "Input should be a valid integer");
	else if (wrong == 2 || !spelled || (cJSON_IsString(item) && value != floor(value)))
		problem(fields, at, item, "int_parsing",
			"Input should be a valid integer, unable to parse string as an integer");
	else if (value != floor(value))
		problem(fields, at, item, "int_from_float",
			"Input should be a valid integer, got a number with a fractional part");
	else if (fabs(value) < limit) {
		check_number(fields, at, item, value);
		return (int64_t)value;
	} else if (fields->rules->any_number && isfinite(value))
		fields->fault = true;
	else
		problem(fields, at, item, "int_parsing_size",
			"Unable to parse input string as an integer, exceeded maximum size");
	return 0;
}

static const char *to_string(struct fields *fields, const struct location *at, const cJSON *item)
{
	if (!cJSON_IsString(item)) {
		problem(fields, at, item, "string_type", "Input should be a valid string");
		return "";
	}
	if (!utf8_valid(item->valuestring, strlen(item->valuestring))) {
		problem(fields, at, item, "string_unicode",
			"Input should be a valid string, unable to parse raw data as a unicode string");
		return "";
	}
	check_length(fields, at, item);
	return item->valuestring;
}

const char *fields_string(struct fields *fields, const char *name)
{
	const cJSON *item = find(fields, name, true);

	return item ? to_string(fields, &(struct location){.keys = {name}}, item) : "";
}

const char *fields_optional_string(struct fields *fields, const char *name)
{
	const cJSON *item = find(fields, name, false);

	return item && !cJSON_IsNull(item) ? to_string(fields, &(struct location){.keys = {name}}, item)
					   : NULL;
}

int64_t fields_integer(struct fields *fields, const char *name)
{
	const cJSON *item = find(fields, name, true);

	return item ? to_integer(fields, &(struct location){.keys = {name}}, item) : 0;
}

int64_t fields_integer_or(struct fields *fields, const char *name, int64_t fallback)
{
	const cJSON *item = find(fields, name, false);

	return item && !cJSON_IsNull(item) ? to_integer(fields, &(struct location){.keys = {name}}, item)
					   : fallback;
}

double fields_real(struct fields *fields, const char *name)
{
	const cJSON *item = find(fields, name, true);

	return item ? to_real(fields, name, item) : NAN;
}

double fields_optional_real(struct fields *fields, const char *name)
{
	const cJSON *item = find(fields, name, false);

	return item && !cJSON_IsNull(item) ? to_real(fields, name, item) : NAN;
}

static bool among(const char *word, const char *const *words)
{
	while (*words && strcasecmp(word, *words))
		words++;
	return *words != NULL;
}

static bool to_bool(struct fields *fields, const char *name, const cJSON *item)
{
	static const char *const yes[] = {"true", "t", "yes", "y", "on", "1", NULL};
	static const char *const no[] = {"false", "f", "no", "n", "off", "0", NULL};

	if (cJSON_IsBool(item))
		return cJSON_IsTrue(item);
	if (cJSON_IsNumber(item) && (item->valuedouble == 0 || item->valuedouble == 1))
		return item->valuedouble == 1;
	if (cJSON_IsString(item) && among(item->valuestring, yes))
		return true;
	if (!cJSON_IsString(item) || !among(item->valuestring, no))
		problem(fields, &(struct location){.keys = {name}}, item, "bool_parsing",
			"Input should be a valid boolean, unable to interpret input");
	return false;
}

bool fields_bool(struct fields *fields, const char *name)
{
	const cJSON *item = find(fields, name, true);

	return item && to_bool(fields, name, item);
}

bool fields_bool_or(struct fields *fields, const char *name, bool fallback)
{
	const cJSON *item = find(fields, name, false);

	return item && !cJSON_IsNull(item) ? to_bool(fields, name, item) : fallback;
}

/* An object within the document; NULL when there is none. */
static const cJSON *find_table(struct fields *fields, const char *name, bool required)
{
	const cJSON *table = find(fields, name, required);

	if (!table || (cJSON_IsNull(table) && !required))
		return NULL;
	if (cJSON_IsObject(table))
		return table;
	problem(fields, &(struct location){.keys = {name}}, table, "dict_type", not_a_table);
	return NULL;
}

const cJSON *fields_optional_tables(struct fields *fields, const char *name)
{
	const cJSON *tables = find_table(fields, name, false), *table, *number;

	cJSON_ArrayForEach (table, tables) {
		if (!cJSON_IsObject(table))
			problem(fields, &(struct location){.keys = {name, table->string}}, table, "dict_type",
				not_a_table);
		else
			cJSON_ArrayForEach (number, table)
				if (!cJSON_IsNumber(number) ||
					(!isfinite(number->valuedouble) && !fields->rules->any_number))
					problem(fields,
						&(struct location){
							.keys = {name, table->string, number->string}},
						number, "float_type", "Input should be a valid number");
	}
	return tables && tables->child ? tables : NULL;
}

const cJSON *fields_integers(struct fields *fields, const char *name, bool required)
{
	const cJSON *table = find_table(fields, name, required), *item;

	cJSON_ArrayForEach (item, table)
		to_integer(fields, &(struct location){.keys = {name, item->string}}, item);
	return table;
}

const cJSON *fields_strings(struct fields *fields, const char *name, bool required)
{
	const cJSON *table = find_table(fields, name, required), *item;

	cJSON_ArrayForEach (item, table)
		to_string(fields, &(struct location){.keys = {name, item->string}}, item);
	return table;
}

int32_t *fields_integer_list(struct fields *fields, const char *name, bool required, size_t *count)
{
	const cJSON *list = find(fields, name, required), *item;
	int before, most;
	int32_t *values;

	*count = 0;
	if (!list || (cJSON_IsNull(list) && !required))
		return NULL;
	if (!cJSON_IsArray(list)) {
		problem(fields, &(struct location){.keys = {name}}, list, "list_type",
			"Input should be a valid list");
		return NULL;
	}
	values = xcalloc((size_t)cJSON_GetArraySize(list) + 1, sizeof(*values));
	before = cJSON_GetArraySize(fields->problems);
	most = before + LIST_PROBLEMS;
	cJSON_ArrayForEach (item, list) {
		int64_t value = to_integer(
			fields, &(struct location){.keys = {name}, .number = *count + 1}, item);

		if (cJSON_GetArraySize(fields->problems) == most)
			break;
		values[(*count)++] = (int32_t)value;
	}
	if (cJSON_GetArraySize(fields->problems) == before)
		return values;
	free(values);
	*count = 0;
	return NULL;
}

bool fields_refused(struct fields *fields, struct server_reply *reply)
{
	if (!fields->problems && !fields->fault)
		return false;
	if (!fields->problems) {
		server_refuse(reply, 500, "A whole number is too large for the database");
		return true;
	}
	reply->status = 422;
	reply->body = cJSON_CreateObject();
	cJSON_AddItemToObject(reply->body, "detail", fields->problems);
	fields->problems = NULL;
	return true;
}
