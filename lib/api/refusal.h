/* refusal: what an answer of the validator that is not a success means, in words. */
#pragma once

#include <stddef.h>

#include "base/buffer.h"
#include "base/error.h"

/* The validator's own words: `detail` of the answer, a text, or the list of a 422 made readable; without
 * one, the first line of a plain text. Free of control characters, cut to `size`; may be empty. */
void refusal_detail(const struct buffer *body, const char *content_type, char *detail, size_t size);

/* Fills in status, message and hint for an answer with `http_status` to `route` ("POST /register_miner").
 * Always -1. `server_time`: Unix time by the validator's clock. */
int refusal_error(const char *route, int http_status, const char *detail, double server_time,
	struct error *err);
