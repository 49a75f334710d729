/* python_json: JSON as Python's json module has it, which is what a FastAPI service speaks. */
#pragma once

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

/* As json_parse, but also takes NaN, Infinity and -Infinity outside of texts, and "\u0000" in them. NaN is
 * read as -Infinity: neither can be written again, and cJSON has no NaN. A NUL is kept as U+10FFFF, which no
 * text holds. `lone_surrogate`: a text has one half of a surrogate pair, read as "?"; Python keeps it and
 * fails later. */
cJSON *python_json_parse(const char *text, size_t length, bool *lone_surrogate, struct error *err);

/* The document as text, or NULL when it holds a number that is not finite. Free with cJSON_free. */
char *python_json_print(const cJSON *document);
