/* http: one request over HTTP or HTTPS, with everything about it bounded.
 *
 * Certificates are verified. Redirects are followed, at most 5: on the same host with method, headers and
 * body kept; to another host only when the request carries nothing that is not for that host. Never from
 * https to http. */
#pragma once

#include <stdbool.h>

#include "base/buffer.h"
#include "base/error.h"

struct http; /* a connection kept open between requests */

/* No connection is made yet. Never NULL. */
struct http *http_open(void);
void http_close(struct http *http);

#define HTTP_BODY_LIMIT (8 << 20)
#define HTTP_REFUSAL_LIMIT (64 << 10) /* of an answer that is no success: what goes beyond is cut off */

struct http_request {
	const char *url;
	const char *body; /* JSON, makes it a POST; NULL: a GET */
	const char *const
		*headers; /* "Name: value" …, meant for this host alone; ends with NULL; may be NULL */
	double timeout;   /* seconds, redirects included */
	/* gets the body of an answer that is a success, part by part, in place of `answer->body`, and without its
	 * limit; -1 ends it. NULL: none */
	int (*take)(void *context, const char *data, size_t length);
	void *context;
	bool once;  /* never sent a second time, not even when a kept connection turns out dead */
	bool stays; /* on its host: a stranger's server must not lead it to others that this machine reaches */
};

struct http_answer {
	int status;
	struct buffer body; /* within those limits; what `take` got is not in it */
	char content_type[64];
	double retry_after; /* seconds the server asked to wait; 0: none */
	double clock_skew;  /* http_clock_skew of this answer */
	bool sent;          /* some of the request may have reached the server */
	bool transient;     /* without an answer: what kept it away may pass */
};

/* 0 when an answer of any status arrived whole. -1 with STATUS_NETWORK (`answer->sent` tells whether the
 * server may have acted), STATUS_REFUSED for a redirect that must not be followed, or STATUS_INTERRUPTED.
 * The caller frees `answer->body` in either case. */
int http_exchange(
	struct http *http, const struct http_request *request, struct http_answer *answer, struct error *err);

/* Seconds that the server's clock is ahead; 0 when that is within the uncertainty of its Date header; NAN when `date`,
 * that header, is NULL or none. The server wrote it, cut to whole seconds, at some moment between `began` and `ended`
 * (Unix time), or up to DATE_AGE before: uvicorn renews it once a second. */
#define DATE_AGE 1.2
double http_clock_skew(const char *date, double began, double ended);

/* Checks that `url` is an http or https URL without user, password, query or fragment; returns it without
 * a slash at the end and the scheme's own port, or NULL with STATUS_USAGE. `plain`: it is http and the
 * host is not this machine. The caller frees. */
char *http_check_base(const char *url, bool *plain, struct error *err);

/* Whether a URL's host is this machine by its name or address alone: "localhost", 127.…, [::1]. */
bool http_is_this_machine(const char *url);

/* `text` as it stands in a query. The caller frees. */
char *http_escape(const char *text);
