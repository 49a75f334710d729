#include "api/http.h"

#include <curl/curl.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/certificates.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/version.h"

#define REDIRECT_LIMIT 5
#define HEADER_LIMIT (256 << 10)
#define CONNECT_SECONDS 20
#define SILENT_WAIT 2.0 /* before a terminal shows what is waited for */

struct http {
	CURL *curl;
};

/* One hop: a request to one URL, and what came back. */
struct hop {
	CURL *curl;
	const struct http_request *request;
	struct http_answer *answer;
	size_t header_bytes;
	bool head_complete, too_large;
	bool cut;     /* a refusal that was long enough */
	char *host;   /* for people */
	double began; /* clock_elapsed() */
	char reason[CURL_ERROR_SIZE];
};

struct http *http_open(void)
{
	struct http *http = xcalloc(1, sizeof(*http));

	http->curl = curl_easy_init();
	return http;
}

void http_close(struct http *http)
{
	if (!http)
		return;
	curl_easy_cleanup(http->curl);
	free(http);
}

/* --- URLs ------------------------------------------------------------------------------------- */

static char *url_part(CURLU *url, CURLUPart part)
{
	char *text = NULL, *copy;

	if (curl_url_get(url, part, &text, CURLU_DEFAULT_PORT) != CURLUE_OK)
		return xstrdup("");
	copy = xstrdup(text);
	curl_free(text);
	return copy;
}

static bool part_equal(CURLU *left, CURLU *right, CURLUPart part)
{
	char *a = url_part(left, part), *b = url_part(right, part);
	bool equal = !strcasecmp(a, b);

	free(a);
	free(b);
	return equal;
}

static bool part_is(CURLU *url, CURLUPart part, const char *text)
{
	char *value = url_part(url, part);
	bool equal = !strcasecmp(value, text);

	free(value);
	return equal;
}

/* Whether it is there, though it may be empty. */
static bool has_part(CURLU *url, CURLUPart part)
{
	char *text = NULL;
	bool found = curl_url_get(url, part, &text, 0) == CURLUE_OK;

	curl_free(text);
	return found;
}

/* A name may begin with "127." too. */
static bool is_this_machine(CURLU *url)
{
	char *host = url_part(url, CURLUPART_HOST);
	bool is = !strcasecmp(host, "localhost") || !strcmp(host, "[::1]") ||
		(!strncmp(host, "127.", 4) && !host[strspn(host, "0123456789.")]);

	free(host);
	return is;
}

bool http_is_this_machine(const char *url)
{
	CURLU *parts = curl_url();
	bool is = parts && curl_url_set(parts, CURLUPART_URL, url, 0) == CURLUE_OK && is_this_machine(parts);

	curl_url_cleanup(parts);
	return is;
}

char *http_check_base(const char *url, bool *plain, struct error *err)
{
	static const CURLUPart unwanted[] = {
		CURLUPART_USER, CURLUPART_PASSWORD, CURLUPART_QUERY, CURLUPART_FRAGMENT};
	CURLU *parts = curl_url();
	char *text = NULL, *base = NULL;
	bool bad;

	bad = !parts || curl_url_set(parts, CURLUPART_URL, url, CURLU_NON_SUPPORT_SCHEME) != CURLUE_OK ||
		(!part_is(parts, CURLUPART_SCHEME, "http") && !part_is(parts, CURLUPART_SCHEME, "https"));
	for (size_t i = 0; !bad && i < sizeof(unwanted) / sizeof(unwanted[0]); i++)
		bad = has_part(parts, unwanted[i]);
	if (!bad && curl_url_get(parts, CURLUPART_URL, &text, CURLU_NO_DEFAULT_PORT) == CURLUE_OK) {
		base = xstrdup(text);
		while (base[0] && base[strlen(base) - 1] == '/')
			base[strlen(base) - 1] = '\0';
		*plain = part_is(parts, CURLUPART_SCHEME, "http") && !is_this_machine(parts);
	}
	curl_free(text);
	curl_url_cleanup(parts);
	if (!base) {
		/* the URL itself may hold a password: not shown */
		error_set(err, STATUS_USAGE,
			"the validator's URL is not of the form http[s]://HOST[:PORT][/PATH]");
		error_hint(err, "Set VALIDATOR_API_URL or --api, for example to https://validator.example");
	}
	return base;
}

char *http_escape(const char *text)
{
	char *escaped = curl_easy_escape(NULL, text, 0), *copy = xstrdup(escaped ? escaped : "");

	curl_free(escaped);
	return copy;
}

/* "host:port" for messages. The caller frees. */
static char *url_host(const char *url)
{
	CURLU *parts = curl_url();
	char *host, *port, *both;

	curl_url_set(parts, CURLUPART_URL, url, 0);
	host = url_part(parts, CURLUPART_HOST);
	port = url_part(parts, CURLUPART_PORT);
	both = xprintf("%s:%s", host, port);
	free(host);
	free(port);
	curl_url_cleanup(parts);
	return both;
}

/* --- one hop ---------------------------------------------------------------------------------- */

static size_t take_body(char *data, size_t size, size_t count, void *context)
{
	struct hop *hop = context;
	struct buffer *body = &hop->answer->body;

	long status = 0;

	(void)size; /* is 1 */
	curl_easy_getinfo(hop->curl, CURLINFO_RESPONSE_CODE, &status);
	if (status < 200 || status >= 300) {
		hop->cut = count > HTTP_REFUSAL_LIMIT - body->length;
		buffer_append(body, data, hop->cut ? HTTP_REFUSAL_LIMIT - body->length : count);
		return hop->cut ? 0 : count;
	}
	if (hop->request->take)
		hop->too_large = hop->request->take(hop->request->context, data, count) < 0;
	else if (count > HTTP_BODY_LIMIT - body->length)
		hop->too_large = true;
	else
		buffer_append(body, data, count);
	return hop->too_large ? 0 : count;
}

static size_t take_header(char *data, size_t size, size_t count, void *context)
{
	struct hop *hop = context;

	(void)size;
	hop->header_bytes += count;
	hop->head_complete = data[0] == '\r' || data[0] == '\n'; /* an empty line ends it */
	hop->too_large |= hop->header_bytes > HEADER_LIMIT;
	return hop->too_large ? 0 : count;
}

static int watch(void *context, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
	const struct hop *hop = context;
	double waited = clock_elapsed() - hop->began;

	(void)a, (void)b, (void)c, (void)d;
	if (waited > SILENT_WAIT)
		log_passing("waiting for %s, %.0f s", hop->host, waited);
	clock_turn();
	return interrupted();
}

static struct curl_slist *header_list(const struct http_request *request)
{
	struct curl_slist *list = curl_slist_append(NULL, "Accept: application/json");

	if (request->body)
		list = curl_slist_append(list, "Content-Type: application/json");
	for (const char *const *header = request->headers; header && *header; header++)
		list = curl_slist_append(list, *header);
	return list;
}

static void set_up(CURL *curl, const struct http_request *request, const char *url, double timeout,
	struct curl_slist *headers, struct hop *hop)
{
	const char *certificates = certificates_file();

	curl_easy_reset(curl);
	curl_easy_setopt(curl, CURLOPT_URL, url);
	curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	curl_easy_setopt(curl, CURLOPT_USERAGENT, "quasar/" QUASAR_VERSION);
	curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
	curl_easy_setopt(curl, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
	curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)ceil(timeout * 1000));
	curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, (long)(CONNECT_SECONDS * 1000));
	curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_body);
	curl_easy_setopt(curl, CURLOPT_WRITEDATA, hop);
	curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, take_header);
	curl_easy_setopt(curl, CURLOPT_HEADERDATA, hop);
	curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
	curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, watch);
	curl_easy_setopt(curl, CURLOPT_XFERINFODATA, hop);
	curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, hop->reason);
	if (certificates)
		curl_easy_setopt(curl, CURLOPT_CAINFO, certificates);
	if (request->body)
		curl_easy_setopt(curl, CURLOPT_POSTFIELDS, request->body);
	/* on a kept connection that died libcurl would send the request again by itself */
	curl_easy_setopt(curl, CURLOPT_FRESH_CONNECT, (long)request->once);
}

static bool is_tls_failure(CURLcode code)
{
	switch (code) {
	case CURLE_SSL_CONNECT_ERROR:
	case CURLE_PEER_FAILED_VERIFICATION:
	case CURLE_SSL_CERTPROBLEM:
	case CURLE_SSL_CIPHER:
	case CURLE_SSL_ISSUER_ERROR:
	case CURLE_SSL_CACERT_BADFILE:
	case CURLE_SSL_INVALIDCERTSTATUS:
		return true;
	default:
		return false;
	}
}

/* Nobody listens on this machine: that is known at once, and does not pass by itself. */
static bool is_nobody_here(CURLcode code, const struct hop *hop, const char *url)
{
	long reason = 0;

	curl_easy_getinfo(hop->curl, CURLINFO_OS_ERRNO, &reason);
	return code == CURLE_COULDNT_CONNECT && reason == ECONNREFUSED && http_is_this_machine(url);
}

static void hop_failed(CURLcode code, const struct hop *hop, const char *url, struct error *err)
{
	const char *host = hop->host, *reason = hop->reason[0] ? hop->reason : curl_easy_strerror(code);
	bool nobody_here = is_nobody_here(code, hop, url);

	hop->answer->transient = !hop->too_large && !is_tls_failure(code) && !nobody_here && !interrupted();
	if (interrupted()) {
		error_set(err, STATUS_INTERRUPTED, "interrupted");
	} else if (hop->too_large) {
		error_set(err, STATUS_NETWORK, "the response from %s is too large", host);
		error_hint(err, "Is VALIDATOR_API_URL the address of a validator API?");
	} else if (is_tls_failure(code)) {
		error_set(err, STATUS_NETWORK, "cannot trust the TLS connection to %s: %s", host, reason);
		error_hint(err,
			"Check the address, this machine's clock and the package ca-certificates. "
			"SSL_CERT_FILE can name another file of trusted certificates.");
	} else if (nobody_here) {
		error_set(err, STATUS_NETWORK, "cannot reach %s: nothing listens there", host);
		error_hint(err,
			"Start a validator on this machine with `quasar localnet`, or set VALIDATOR_API_URL "
			"(or --api) to another one's address.");
	} else if (hop->answer->sent && code == CURLE_OPERATION_TIMEDOUT) {
		error_set(err, STATUS_NETWORK, "no response in time from %s: %s", host, reason);
		error_hint(err,
			"A hosted service may have to wake up first: try again in a minute, or wait longer "
			"with --timeout SECONDS.");
	} else {
		error_set(err, STATUS_NETWORK, "%s %s: %s",
			hop->answer->sent ? "lost the connection to" : "cannot reach", host, reason);
		error_hint(err,
			"Check VALIDATOR_API_URL (or --api) and the network; `quasar localnet` starts "
			"a validator on this machine.");
	}
}

static const char *header(CURL *curl, const char *name)
{
	struct curl_header *found;

	if (curl_easy_header(curl, name, 0, CURLH_HEADER, -1, &found) != CURLHE_OK)
		return NULL;
	return found->value;
}

double http_clock_skew(const char *date, double began, double ended)
{
	time_t server = date ? curl_getdate(date, NULL) : -1;
	double least = (double)server - ended, most = (double)server + 1 + DATE_AGE - began;

	if (server == -1)
		return NAN;
	return least <= 0 && most >= 0 ? 0 : (least + most) / 2;
}

static double retry_after(const char *text, const char *date)
{
	char *end;
	double seconds;
	time_t when, now;

	if (!text)
		return 0;
	seconds = strtod(text, &end);
	if (end != text && !*end)
		return isfinite(seconds) && seconds > 0 ? seconds : 0;
	when = curl_getdate(text, NULL);
	now = date ? curl_getdate(date, NULL) : -1;
	if (when == -1)
		return 0;
	return fmax(0, (double)when - (now == -1 ? clock_now() : (double)now));
}

/* Sends the request to `url`. When the answer is a redirect, `next` receives the URL it names. */
static int exchange_hop(struct http *http, const struct http_request *request, const char *url,
	double timeout, struct http_answer *answer, char **next, struct error *err)
{
	struct hop hop = {.curl = http->curl,
		.request = request,
		.answer = answer,
		.host = url_host(url),
		.began = clock_elapsed()};
	struct curl_slist *headers = header_list(request);
	double began = clock_now();
	curl_off_t sending_began = 0;
	char *redirect = NULL;
	const char *type;
	long status = 0;
	CURLcode code;

	answer->body.length = 0;
	buffer_text(&answer->body, ""); /* a string even when nothing comes */
	set_up(http->curl, request, url, timeout, headers, &hop);
	code = curl_easy_perform(http->curl);
	curl_slist_free_all(headers);
	curl_easy_getinfo(http->curl, CURLINFO_PRETRANSFER_TIME_T, &sending_began);
	answer->sent |= sending_began > 0;
	/* libcurl takes headers that are cut short for an answer */
	if (code == CURLE_WRITE_ERROR && hop.cut)
		code = CURLE_OK;
	if (code == CURLE_OK && !hop.head_complete)
		code = CURLE_RECV_ERROR;
	if (code != CURLE_OK)
		hop_failed(code, &hop, url, err);
	free(hop.host);
	if (code != CURLE_OK)
		return -1;
	curl_easy_getinfo(http->curl, CURLINFO_RESPONSE_CODE, &status);
	curl_easy_getinfo(http->curl, CURLINFO_REDIRECT_URL, &redirect);
	answer->status = (int)status;
	answer->clock_skew = http_clock_skew(header(http->curl, "Date"), began, clock_now());
	answer->retry_after = retry_after(header(http->curl, "Retry-After"), header(http->curl, "Date"));
	type = header(http->curl, "Content-Type");
	snprintf(answer->content_type, sizeof(answer->content_type), "%s", type ? type : "");
	text_clean(answer->content_type);
	*next = redirect ? xstrdup(redirect) : NULL;
	return 0;
}

/* --- redirects -------------------------------------------------------------------------------- */

/* 303 asks for a GET of something else, which is no answer to what was asked. */
static bool is_redirect(int status)
{
	return status == 301 || status == 302 || status == 307 || status == 308;
}

/* May the request, as it is, be sent from one URL on to the other? */
static int check_redirect(
	const struct http_request *request, const char *from, const char *to, struct error *err)
{
	CURLU *old = curl_url(), *new = curl_url();
	bool known = curl_url_set(old, CURLUPART_URL, from, 0) == CURLUE_OK &&
		curl_url_set(new, CURLUPART_URL, to, 0) == CURLUE_OK;
	bool was_secure = part_is(old, CURLUPART_SCHEME, "https");
	bool is_secure = part_is(new, CURLUPART_SCHEME, "https");
	bool upgrade = !was_secure && is_secure && part_is(old, CURLUPART_PORT, "80") &&
		part_is(new, CURLUPART_PORT, "443");
	bool same = part_equal(old, new, CURLUPART_HOST) &&
		((was_secure == is_secure && part_equal(old, new, CURLUPART_PORT)) || upgrade);
	bool private = request->stays || request->body || (request->headers && *request->headers);
	bool allowed = known && (is_secure || part_is(new, CURLUPART_SCHEME, "http")) &&
		(is_secure || !was_secure) && (same || !private);
	char *host = url_host(to);

	text_clean(host);
	if (!allowed) {
		error_set(err, STATUS_REFUSED, "the server redirects to %s%s, which is not followed", host,
			was_secure && !is_secure ? " without TLS" : "");
		error_hint(
			err, "If the validator has moved there, set VALIDATOR_API_URL to its new address.");
	}
	free(host);
	curl_url_cleanup(old);
	curl_url_cleanup(new);
	return allowed ? 0 : -1;
}

int http_exchange(
	struct http *http, const struct http_request *request, struct http_answer *answer, struct error *err)
{
	double deadline = clock_elapsed() + request->timeout;
	char *url = xstrdup(request->url), *next = NULL;
	int result = -1;

	*answer = (struct http_answer){.clock_skew = NAN};
	for (int hops = 0;; hops++) {
		double left = fmax(0.001, deadline - clock_elapsed());

		if (exchange_hop(http, request, url, left, answer, &next, err) < 0)
			break;
		if (!next || !is_redirect(answer->status)) {
			result = 0;
			break;
		}
		answer->sent = false; /* whoever redirects has not acted */
		if (check_redirect(request, url, next, err) < 0)
			break;
		if (hops == REDIRECT_LIMIT) {
			error_set(err, STATUS_REFUSED, "the server redirects more than %d times",
				REDIRECT_LIMIT);
			error_hint(err, "Set VALIDATOR_API_URL to the validator's final address.");
			break;
		}
		free(url);
		url = next;
		next = NULL;
	}
	free(url);
	free(next);
	return result;
}
