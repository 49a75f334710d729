/* json: cJSON with types checked, for documents that somebody else wrote.
 *
 * Each getter looks up `name` in `object` and fails with STATUS_NETWORK and a message that names the
 * field, what was expected and what came, unless the caller changes the status. Strings returned belong
 * to the document. */
#pragma once

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/error.h"

/* Parses exactly one document of `length` bytes of UTF-8, with nothing but white space after it. NULL on
 * error. */
cJSON *json_parse(const char *text, size_t length, struct error *err);

/* JSON_OPTIONAL: a field that is missing or null leaves the output as it was, and is no error. */
enum json_need { JSON_REQUIRED, JSON_OPTIONAL };

int json_string(
	const cJSON *object, const char *name, enum json_need need, const char **out, struct error *err);
/* A whole number within ±2^53. */
int json_integer(const cJSON *object, const char *name, enum json_need need, int64_t *out, struct error *err);
/* Any finite number. */
int json_real(const cJSON *object, const char *name, enum json_need need, double *out, struct error *err);
int json_bool(const cJSON *object, const char *name, enum json_need need, bool *out, struct error *err);
int json_array(
	const cJSON *object, const char *name, enum json_need need, const cJSON **out, struct error *err);
int json_object(
	const cJSON *object, const char *name, enum json_need need, const cJSON **out, struct error *err);

/* Adds a field to an object; NAN, NULL and an id of 0 become null. */
void json_add_real(cJSON *object, const char *name, double value);
void json_add_text(cJSON *object, const char *name, const char *text);
void json_add_id(cJSON *object, const char *name, int64_t id);
/* ISO 8601 in UTC, ending with "Z"; or without a zone, as the validator writes times. */
void json_add_time(cJSON *object, const char *name, double unix_time);
void json_add_naive_time(cJSON *object, const char *name, double unix_time);

/* Appends the document as Python's json.dumps(…, sort_keys=True) writes it: keys sorted by code point,
 * ", " and ": ", non-ASCII as \uXXXX. A number whose double is whole and that was made by
 * cJSON_AddNumberToObject is written as a float ("50000.0"): what is signed here holds floats only. */
void json_python(const cJSON *value, struct buffer *out);
