/* refusal: what an answer of the validator that is not a success means.
 *
 * A refusal counts as the validator's only in its own form, JSON with a `detail`, and in words that are known for
 * that route. Anything else that comes instead of a success, a proxy's page or words of another version, leaves
 * open what the validator would have said. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/error.h"

enum refusal {
	REFUSAL_NONE,     /* it was no refusal: done, or no answer at all */
	REFUSAL_UNCLEAR,  /* not known to be the validator's word */
	REFUSAL_INTERNAL, /* 500 */
	REFUSAL_DOWN,     /* any other 5xx */
	REFUSAL_LIMIT,    /* 429 */
	REFUSAL_EARLY,    /* before the reveal block */
	REFUSAL_COOLDOWN, /* too soon after this hotkey's last submission */
	REFUSAL_SCHEMA,   /* the request is not of the form that this validator takes */
	REFUSAL_VALUE,    /* something in it is not allowed */
	REFUSAL_SIGNATURE,
	REFUSAL_EXPIRED, /* the signature is of another time than the validator's clock */
	REFUSAL_HOTKEY,  /* signed by another one than the request is about */
	REFUSAL_BANNED,
	REFUSAL_FLAGGED, /* the hotkey is shut out for good */
	REFUSAL_SHARED,  /* another hotkey has the same GitHub name, public address or coldkey */
	REFUSAL_UNREGISTERED,
	REFUSAL_EXISTS,     /* the commitment is there already */
	REFUSAL_REVEALED,   /* so is its reveal */
	REFUSAL_MISMATCH,   /* salt and URL do not give the commitment's hash */
	REFUSAL_UNKNOWN,    /* no such submission, or round */
	REFUSAL_NOT_FOR_US, /* the list is for validators only */
	REFUSAL_KEY,        /* no API key, or one that is not known */
	REFUSAL_NO_ROUTE,   /* not a route there: the wrong address, or another version */
};

/* Reads the answer with `http_status` to `route` ("POST /register_miner"). `detail` receives the words: those of
 * the validator, the list of a 422 made readable, or the first line of a plain text; free of control characters,
 * cut to `size`, perhaps empty. */
enum refusal refusal_read(const char *route, int http_status, const char *content_type,
	const struct buffer *body, char *detail, size_t size);

/* Fills in status, message and hint. Always -1. `server_time`: Unix time by the validator's clock. */
int refusal_error(const char *route, int http_status, enum refusal refusal, const char *detail,
	double server_time, struct error *err);

/* Adds the hint of a refusal alone. Always -1. */
int refusal_hint(enum refusal refusal, struct error *err);

/* True when the validator itself said no: nothing was changed there. */
bool refusal_is_clear(enum refusal refusal);

/* The blocks that are left by the words of REFUSAL_EARLY; 0: they do not say. */
int64_t refusal_blocks(const char *detail);

/* The seconds to wait by the words of REFUSAL_COOLDOWN; 0: they do not say. */
double refusal_seconds(const char *detail);
