/* server: an HTTP/1.1 server for JSON services.
 *
 * A table of routes says what there is. Requests are received and checked by a few network threads; what
 * changes or reads state is handled by one worker thread, in batches: the worker begins a transaction,
 * handles every request that has come in, commits, and only then do the answers leave. So handlers need no
 * locks, an answer that arrives is durable, and many requests share one fsync. What takes its time is taken
 * away from the server, and answered later.
 *
 * Errors are worded as FastAPI's: {"detail": "text"}, or for 422 a list of {"type", "loc", "msg", "input"}; a
 * fault of the server is 500 in plain text. Sizes, times, memory and the number of connections are bounded: a
 * request that is too large gets 413, one for which there is no memory 503, a slow one is cut off, and when
 * connections run out, the one that has been idle or slow for longest gives way.
 *
 * A web page can make a browser on this machine send requests here. None may change anything: a POST that
 * names an origin other than this server gets 403. */
#pragma once

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

struct server_request {
	const char *method, *path;
	const char *client;    /* numeric address of the peer; NULL: not known */
	const cJSON *headers;  /* name: text; names ignore case (cJSON_GetObjectItem) */
	const cJSON *captures; /* what stood in place of the pattern's {names}: name: text */
	const cJSON *query;    /* name: text */
	const cJSON *body;     /* NULL when there was none; a string when it was not declared as JSON */
	const char *identity;  /* for a route's `check` to set: who asks; memory of the request or static */
};

/* Content that is made while it is sent. */
struct server_content {
	const char *type; /* for a Content-Type header; static */
	/* Writes its next bytes, at most so many, in the network threads; returns their count, 0 at the end. */
	size_t (*read)(struct server_content *content, char *out, size_t most);
	void (*close)(struct server_content *content); /* called once, whether all was sent or not */
};

struct server_reply {
	unsigned status;    /* 200 unless set */
	cJSON *body;        /* for the handler to make; the server frees it; may refer to the request */
	const char *text;   /* static; sent as plain text instead of a body */
	char *page;         /* HTML, sent instead of a body; the server frees it */
	const char *policy; /* of a page, its Content-Security-Policy; static */
	double retry_after; /* seconds, for a Retry-After header; 0: none */
	struct server_content *content; /* sent instead of a body; the server closes it */
};

/* Answers {"detail": text} with a status. */
void server_refuse(struct server_reply *reply, unsigned status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Whether whoever asks is on this machine, and knows it by a name that no web page elsewhere can have: a page whose own
 * name was made to lead here cannot read what is for this machine's user. */
bool server_is_local(const struct server_request *request);

/* Answers 500. What the handler did is kept when it returns 0. */
void server_fault(struct server_reply *reply);

struct server_route {
	const char *method;
	const char *pattern; /* "/finalize_round/{round_id}" */
	bool takes_body;     /* a JSON document; otherwise a body is ignored */
	/* Runs in the network threads, several at once: for what needs no state. False: the reply is made.
	 * NULL: nothing to check. */
	bool (*check)(struct server_request *request, struct server_reply *reply, void *context);
	/* Runs in the worker. -1 is a fault of the server, not of the request: everything done in the
	 * transaction is undone, and the client gets 500. A handler may be run again for a request whose
	 * transaction failed, so it may touch nothing but what the transaction covers. NULL: `check` makes
	 * the reply; without that either, the request is for `take` of the options. */
	int (*handle)(const struct server_request *request, struct server_reply *reply, void *context,
		struct error *err);
};

/* A request that was taken away from the server, and waits for its answer. */
struct exchange;

/* Answers what was taken. The exchange is gone then; body or content are the server's. */
void server_answer(struct exchange *exchange, const struct server_reply *reply);

/* Whether the client has closed its connection instead of waiting; noticed within a second. */
bool server_abandoned(const struct exchange *exchange);

/* What surrounds a batch. */
struct server_transaction {
	int (*begin)(void *context, struct error *err);
	int (*commit)(void *context, struct error *err);
	void (*rollback)(void *context);
};

/* How far the service follows FastAPI where that differs from what HTTP and JSON ask for. */
struct server_dialect {
	bool python_json;       /* reads and writes as python_json.h says; what it cannot write is a fault */
	bool cors;              /* lets pages of all origins read, and tells them that they may do anything */
	bool redirects_slashes; /* 307 to the route without the slash at the end, or with it */
};

struct server_options {
	const char *listen;                           /* address or name; NULL: 127.0.0.1 */
	unsigned port;                                /* 0: any that is free */
	const struct server_route *routes;            /* ends with an entry whose method is NULL */
	const struct server_transaction *transaction; /* NULL: none */
	/* For what takes its time: runs in the network threads, several at once. True: server_answer() will be
	 * called for the exchange, by any thread, once, and before server_stop(); until then the request stays
	 * as it is. False: the reply is made. */
	bool (*take)(struct exchange *exchange, const struct server_request *request,
		struct server_reply *reply, void *context);
	void *context;      /* passed to all callbacks */
	size_t batch_limit; /* requests that share a transaction at most; 0: 256 */
	struct server_dialect dialect;
	size_t body_limit;       /* bytes; 0: 64 KiB */
	size_t value_limit;      /* values of a body; 0: 20,000 */
	size_t memory_limit;     /* bytes of requests and answers that are held at a time; 0: 256 MiB */
	size_t connection_limit; /* 0: 1000; never more than the open files allow */
	double request_seconds;  /* to send a request, to take an answer, to stay idle; 0: 30 */
};

struct server;

/* Starts to serve. STATUS_ENVIRONMENT when the address cannot be had. Threads of the server take no
 * signals. Served requests are logged with log_debug. */
struct server *server_start(const struct server_options *options, struct error *err);

/* Where it listens. The URL belongs to the server. */
unsigned server_port(const struct server *server);
const char *server_url(const struct server *server); /* "http://127.0.0.1:8000" */

/* Stops listening, finishes what has been received, and frees everything. */
void server_stop(struct server *server);
