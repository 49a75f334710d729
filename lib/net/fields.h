/* fields: what a request must hold, checked as pydantic does, with FastAPI's 422 for what does not fit.
 *
 *	struct fields fields = fields_body(request);
 *	const char *hotkey = fields_string(&fields, "miner_hotkey");
 *	int64_t length = fields_integer(&fields, "target_sequence_length");
 *
 *	if (fields_refused(&fields, reply))
 *		return 0;
 *
 * Every problem is collected; a field with a problem reads as "", 0, NAN or false. As in pydantic, text that
 * spells a number or a boolean counts as one. */
#pragma once

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>

#include "net/server.h"

struct fields {
	const cJSON *object;
	const char *source; /* "body", "query", "path" */
	cJSON *problems;    /* NULL while there is none */
};

struct fields fields_body(const struct server_request *request);
struct fields fields_query(const struct server_request *request);
struct fields fields_path(const struct server_request *request);

const char *fields_string(struct fields *fields, const char *name);
int64_t fields_integer(struct fields *fields, const char *name);
double fields_real(struct fields *fields, const char *name);
bool fields_bool(struct fields *fields, const char *name);

/* For fields that may be missing or null. */
const char *fields_optional_string(struct fields *fields, const char *name); /* NULL when missing */
double fields_optional_real(struct fields *fields, const char *name);        /* NAN when missing */
int64_t fields_integer_or(struct fields *fields, const char *name, int64_t fallback);

/* A problem when `value`, read from that field, is not between the two. */
void fields_range(struct fields *fields, const char *name, int64_t value, int64_t least, int64_t most);

/* An object of objects of numbers, {"4096": {"tokens_per_sec": 1.5}}, or NULL when missing. Here a
 * number is a finite number, not text. */
const cJSON *fields_optional_tables(struct fields *fields, const char *name);

/* True when there were problems; then the reply is made. Ends the use of `fields`. */
bool fields_refused(struct fields *fields, struct server_reply *reply);
