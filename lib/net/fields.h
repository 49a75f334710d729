/* fields: what a request must hold, checked as pydantic does, with FastAPI's 422 for what does not fit.
 *
 *	struct fields fields = fields_body(request, &rules);
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

/* What a field may hold: the characters of a text, the value of a number. */
struct field_bound {
	const char *name;
	double least, most;
};

/* What is asked of fields besides their types. */
struct field_rules {
	const struct field_bound *bounds; /* ends with a name that is NULL; NULL: no bounds */
	bool any_number; /* numbers need not be finite; a whole one beyond 64 bits is a fault, as in SQLAlchemy */
};

struct fields {
	const cJSON *object;
	const char *source; /* "body", "query", "path" */
	const struct field_rules *rules;
	cJSON *problems; /* NULL while there is none */
	bool fault;      /* a whole number is too large to be stored */
};

struct fields fields_body(const struct server_request *request, const struct field_rules *rules);
/* A body that may hold anything, as long as it is an object. */
struct fields fields_object(const struct server_request *request, const struct field_rules *rules);
struct fields fields_query(const struct server_request *request, const struct field_rules *rules);
struct fields fields_path(const struct server_request *request, const struct field_rules *rules);

const char *fields_string(struct fields *fields, const char *name);
int64_t fields_integer(struct fields *fields, const char *name);
double fields_real(struct fields *fields, const char *name);
bool fields_bool(struct fields *fields, const char *name);

/* For fields that may be missing or null. */
const char *fields_optional_string(struct fields *fields, const char *name); /* NULL when missing */
double fields_optional_real(struct fields *fields, const char *name);        /* NAN when missing */
int64_t fields_integer_or(struct fields *fields, const char *name, int64_t fallback);
bool fields_bool_or(struct fields *fields, const char *name, bool fallback);

/* The field as it came; NULL when missing. */
const cJSON *fields_raw(const struct fields *fields, const char *name);

/* An object of objects of numbers, {"4096": {"tokens_per_sec": 1.5}}, or NULL when missing or empty. Here a
 * number is not text. */
const cJSON *fields_optional_tables(struct fields *fields, const char *name);

/* An object of whole numbers, or of texts; NULL when missing or null, which is a problem if it is `required`. */
const cJSON *fields_integers(struct fields *fields, const char *name, bool required);
const cJSON *fields_strings(struct fields *fields, const char *name, bool required);

/* A list of whole numbers, each within the field's bounds, which have to be those of 32 bits or closer. NULL when
 * missing or null, which is a problem if it is `required`, or wrong. The caller frees. */
int32_t *fields_integer_list(struct fields *fields, const char *name, bool required, size_t *count);

/* True when there were problems; then the reply is made. Ends the use of `fields`. */
bool fields_refused(struct fields *fields, struct server_reply *reply);
