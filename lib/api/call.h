/* call: from a route and a body to a checked JSON document, with signature, retries and refusals. */
#pragma once

#include "api/client.h"

struct route {
	const char *name; /* method and path: "POST /register_miner" */
	bool is_signed;
	bool once;        /* repeating it would change something again: one attempt */
};

/* Makes the request and parses the answer into memory->document, an object. `query` ("?limit=50") may be
 * NULL, `body` too; the body is freed. */
int api_call(struct api *api, const struct route *route, const char *query, cJSON *body,
	struct api_memory *memory, struct error *err);

/* Ends a call: passes on `result`, what decoding the answer came to; when that failed, the exchange counts
 * as of unknown outcome and the error names the route. */
int api_finish(struct api *api, const struct route *route, int result, struct error *err);

/* The SS58 address of the key that signs, and a signature by it over a text, in hex, for a body. */
const char *api_hotkey(const struct api *api);
int api_sign(struct api *api, const char *text, char signature[129], struct error *err);
