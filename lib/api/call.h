/* call: from a route and a body to a checked JSON document, with signature, retries and refusals. */
#pragma once

#include "api/client.h"

struct route {
	const char *name; /* method and path: "POST /register_miner" */
	bool is_signed;
	bool for_validators; /* where lists are not for everybody; then it is signed, too */
	bool with_key;       /* carries the API key of the dashboard */
	bool once;           /* one attempt: repeating it would change something again */
	bool final_fault;    /* a 500 is not repeated: the same would come again */
	double seconds;      /* that an attempt may take; 0: as long as there is time */
};

/* A list of an answer. Each row is decoded as it arrives and kept if it is wanted; one that makes no sense is
 * left out and counted: it must not hide the others. */
struct list {
	const char *name;
	int (*decode)(const cJSON *row, void *item, struct error *err);
	bool (*wanted)(const void *item, const void *context); /* NULL: every row */
	const void *context;
	size_t size; /* of an item */

	/* what came of it */
	void *items;
	size_t count, skipped;
};
#define LIST_LIMIT 2048 /* items kept; more are counted as left out */

/* Makes the request and parses the answer into memory->document, an object. `query` ("?limit=50") may be
 * NULL, `body` too; the body is freed. */
int api_call(struct api *api, const struct route *route, const char *query, cJSON *body,
	struct api_memory *memory, struct error *err);

/* The same for an answer with lists, of any length: they are not in the document, but in `lists`, whose items are
 * the caller's to put into memory->list. The user is told how many rows were left out, once as long as the
 * number stays. */
int api_call_lists(struct api *api, const struct route *route, const char *query, struct list *lists,
	size_t list_count, struct api_memory *memory, struct error *err);

/* Ends a call: passes on `result`, what decoding the answer came to; when that failed, the exchange counts
 * as of unknown outcome and the error names the route. */
int api_finish(struct api *api, const struct route *route, int result, struct error *err);

/* An answer has named a Unix time that had come when it was written. */
void api_told_time(struct api *api, double time);

/* The SS58 address of the key that signs, and a signature by it over a text, in hex, for a body. */
const char *api_hotkey(const struct api *api);
int api_sign(struct api *api, const char *text, char signature[129], struct error *err);
