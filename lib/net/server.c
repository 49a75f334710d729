#include "net/server.h"

#include <errno.h>
#include <math.h>
#include <microhttpd.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "api/http.h"
#include "base/buffer.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "net/python_json.h"

/* What is read of a body that is too large, so that the client gets to see the 413. */
#define DISCARD_LIMIT ((size_t)16 << 20)
/* Requests that wait for the worker; more than that, and the client is asked to come again. */
#define QUEUE_LIMIT 4096
/* Arguments of a query: nobody has more to say, and each takes room. */
#define QUERY_LIMIT 100
/* What libmicrohttpd asks for at a time of content that is made while it is sent. */
#define CONTENT_BLOCK ((size_t)32 << 10)
/* Seconds that a stopping server gives its clients to take their answers. */
#define STOP_SECONDS 5

/* A client's connection, in the server's list while it is open. */
struct connection {
	int fd;
	double deadline; /* clock_elapsed() when it is cut off; INFINITY while the server is at work */
	bool taken;      /* its request waits for server_answer() */
	bool left;       /* its client did not */
	struct connection *previous, *next;
};

/* One request and its answer. */
struct exchange {
	struct server *server;
	struct MHD_Connection *http;
	struct connection *connection;
	const struct server_route *route; /* NULL: there is none */
	const char *other_method; /* what the path would take, when it is only the method that is wrong */
	char *elsewhere; /* the path without the slashes at its end, when that leads to a route; else NULL */
	struct server_request request;
	struct server_reply reply;
	char client[64];
	struct buffer received;
	size_t received_total;
	size_t held;      /* bytes of it and of the answer */
	size_t text_held; /* of the answer alone */
	unsigned query_count;
	bool crowded;  /* there was no memory for the request */
	bool answered; /* the reply is made */
	char *text;    /* the reply's, once it is made */
	double started;
	struct exchange *next; /* in the queue, or in a batch */
};

struct server {
	struct server_options options;
	struct MHD_Daemon *daemon;
	unsigned port;
	char *url;
	pthread_t worker, reaper;
	bool has_worker, has_reaper;

	pthread_mutex_t mutex; /* guards all that follows */
	pthread_cond_t wake_worker, wake_reaper, finished;
	struct connection *connections;
	size_t connection_count;
	struct exchange *queue, **queue_end;
	size_t queue_length;
	size_t held;       /* bytes of requests and answers */
	size_t unfinished; /* exchanges between the request's head and the end of the answer */
	bool stopping;
};

/* Frees what a reply was to send. */
static void drop(struct server_reply *reply)
{
	cJSON_Delete(reply->body);
	free(reply->page);
	if (reply->content)
		reply->content->close(reply->content);
	*reply = (struct server_reply){.status = 200};
}

void server_refuse(struct server_reply *reply, unsigned status, const char *format, ...)
{
	char text[1024];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	drop(reply);
	reply->status = status;
	reply->body = cJSON_CreateObject();
	cJSON_AddStringToObject(reply->body, "detail", text);
}

void server_fault(struct server_reply *reply)
{
	drop(reply);
	reply->status = 500;
	reply->text = "Internal Server Error";
}

static void refuse_busy(struct server_reply *reply)
{
	server_refuse(reply, 503, "Server busy");
	reply->retry_after = 1;
}

/* Counts bytes that a request or its answer takes; false when that is more than there may be. */
static bool hold(struct exchange *exchange, size_t bytes)
{
	struct server *server = exchange->server;
	bool room;

	pthread_mutex_lock(&server->mutex);
	room = bytes <= server->options.memory_limit - server->held;
	if (room) {
		server->held += bytes;
		exchange->held += bytes;
	}
	pthread_mutex_unlock(&server->mutex);
	return room;
}

static void release(struct exchange *exchange, size_t bytes)
{
	pthread_mutex_lock(&exchange->server->mutex);
	exchange->server->held -= bytes;
	pthread_mutex_unlock(&exchange->server->mutex);
	exchange->held -= bytes;
}

/* The reply's page, or its body as text, which takes its place. */
static char *print_body(struct exchange *exchange)
{
	struct server_reply *reply = &exchange->reply;
	char *text = reply->page;

	reply->page = NULL;
	if (text)
		return text;
	text = exchange->server->options.dialect.python_json ? python_json_print(reply->body)
							     : cJSON_PrintUnformatted(reply->body);
	cJSON_Delete(reply->body);
	reply->body = NULL;
	return text;
}

/* Makes the text of the reply. Where there is no room for it, those who only read may come again. */
static void render(struct exchange *exchange)
{
	struct server_reply *reply = &exchange->reply;

	if (reply->content)
		return;
	if (!reply->text && !reply->page && !reply->body)
		reply->body = cJSON_CreateObject();
	if (!reply->text)
		exchange->text = print_body(exchange);
	if (!reply->text && !exchange->text)
		server_fault(reply); /* it cannot be written as JSON */
	else if (exchange->text && hold(exchange, strlen(exchange->text)))
		exchange->text_held = strlen(exchange->text);
	else if (exchange->text && !strcmp(exchange->request.method, "GET")) {
		free(exchange->text);
		refuse_busy(reply);
		exchange->text = print_body(exchange);
	}
}

/* --- connections ------------------------------------------------------------------------------- */

/* Ends a connection from our side; its network thread sees that and cleans up. Mutex held. */
static void cut_off(struct connection *connection)
{
	shutdown(connection->fd, SHUT_RDWR);
	connection->deadline = INFINITY;
}

/* Makes the connection that has been idle or slow for longest give way. Mutex held. */
static void make_room(struct server *server)
{
	struct connection *oldest = NULL;

	for (struct connection *at = server->connections; at; at = at->next)
		if (isfinite(at->deadline) && (!oldest || at->deadline < oldest->deadline))
			oldest = at;
	if (oldest)
		cut_off(oldest);
}

static void set_deadline(struct server *server, struct connection *connection, double seconds)
{
	pthread_mutex_lock(&server->mutex);
	connection->deadline = clock_elapsed() + seconds;
	pthread_mutex_unlock(&server->mutex);
}

static void open_connection(struct server *server, struct MHD_Connection *http, void **slot)
{
	struct connection *connection = xcalloc(1, sizeof(*connection));

	connection->fd = MHD_get_connection_info(http, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
	connection->deadline = clock_elapsed() + server->options.request_seconds;
	pthread_mutex_lock(&server->mutex);
	if (server->connection_count >= server->options.connection_limit)
		make_room(server);
	if (!server->connections)
		pthread_cond_signal(&server->wake_reaper);
	connection->next = server->connections;
	if (connection->next)
		connection->next->previous = connection;
	server->connections = connection;
	server->connection_count++;
	pthread_mutex_unlock(&server->mutex);
	*slot = connection;
}

static void close_connection(struct server *server, struct connection *connection)
{
	pthread_mutex_lock(&server->mutex);
	if (connection->previous)
		connection->previous->next = connection->next;
	else
		server->connections = connection->next;
	if (connection->next)
		connection->next->previous = connection->previous;
	server->connection_count--;
	pthread_mutex_unlock(&server->mutex);
	free(connection);
}

static void on_connection(
	void *context, struct MHD_Connection *http, void **slot, enum MHD_ConnectionNotificationCode code)
{
	if (code == MHD_CONNECTION_NOTIFY_STARTED)
		open_connection(context, http, slot);
	else
		close_connection(context, *slot);
}

/* Sleeps on a condition until it is signalled or the time is up. */
static void wait_seconds(struct server *server, pthread_cond_t *condition, double seconds)
{
	double until = clock_elapsed() + seconds;
	struct timespec end = {(time_t)until, (long)((until - floor(until)) * 1e9)};

	pthread_cond_timedwait(condition, &server->mutex, &end);
}

/* Whether the other side has closed the connection. */
static bool is_closed(const struct connection *connection)
{
	struct pollfd socket = {.fd = connection->fd, .events = POLLRDHUP};

	return poll(&socket, 1, 0) > 0 && socket.revents & (POLLRDHUP | POLLHUP | POLLERR);
}

/* The thread that cuts off those whose time is up, and sees who does not wait for an answer. libmicrohttpd's own
 * timeout starts anew with every byte that trickles in, and it does not look at those who wait. */
static void *reap(void *argument)
{
	struct server *server = argument;

	pthread_mutex_lock(&server->mutex);
	while (!server->stopping) {
		double now = clock_elapsed();

		for (struct connection *at = server->connections; at; at = at->next) {
			if (at->deadline <= now)
				cut_off(at);
			at->left = at->left || (at->taken && is_closed(at));
		}
		if (server->connections)
			wait_seconds(server, &server->wake_reaper, 0.5);
		else
			pthread_cond_wait(&server->wake_reaper, &server->mutex);
	}
	pthread_mutex_unlock(&server->mutex);
	return NULL;
}

/* --- routes ------------------------------------------------------------------------------------ */

/* Does the path fit the pattern? What stands in place of "{name}" is added to `captures`. */
static bool path_matches(const char *pattern, const char *path, cJSON *captures)
{
	while (*pattern) {
		if (*pattern == '{') {
			size_t name_length = strcspn(pattern + 1, "}"), length = strcspn(path, "/");
			char *name, *value;

			if (!length)
				return false;
			name = xprintf("%.*s", (int)name_length, pattern + 1);
			value = xprintf("%.*s", (int)length, path);
			cJSON_AddStringToObject(captures, name, value);
			free(name);
			free(value);
			pattern += name_length + 2;
			path += length;
		} else if (*pattern++ != *path++) {
			return false;
		}
	}
	return !*path;
}

static bool is_route(const struct server *server, const char *path)
{
	const struct server_route *route = server->options.routes;
	cJSON *captures = cJSON_CreateObject();

	while (route->method && !path_matches(route->pattern, path, captures))
		route++;
	cJSON_Delete(captures);
	return route->method != NULL;
}

/* Whether slashes at the end are all that is wrong with the path. */
static void find_elsewhere(struct exchange *exchange)
{
	size_t length = strlen(exchange->request.path);
	char *path = xstrdup(exchange->request.path);

	while (length > 1 && path[length - 1] == '/')
		path[--length] = '\0';
	if (exchange->request.path[length] && is_route(exchange->server, path))
		exchange->elsewhere = path;
	else
		free(path);
}

static void find_route(struct exchange *exchange)
{
	for (const struct server_route *route = exchange->server->options.routes; route->method; route++) {
		cJSON *captures = cJSON_CreateObject();

		if (path_matches(route->pattern, exchange->request.path, captures)) {
			if (!strcmp(route->method, exchange->request.method)) {
				exchange->route = route;
				exchange->request.captures = captures;
				return;
			}
			exchange->other_method = route->method;
		}
		cJSON_Delete(captures);
	}
	if (exchange->server->options.dialect.redirects_slashes)
		find_elsewhere(exchange);
}

/* --- the worker -------------------------------------------------------------------------------- */

static void answer_fault(struct exchange *exchange, const struct error *err)
{
	log_warn("%s %s: %s", exchange->request.method, exchange->route->pattern, err->message);
	server_fault(&exchange->reply);
}

static int begin(struct server *server, struct error *err)
{
	const struct server_transaction *transaction = server->options.transaction;

	return transaction ? transaction->begin(server->options.context, err) : 0;
}

static int commit(struct server *server, struct error *err)
{
	const struct server_transaction *transaction = server->options.transaction;

	return transaction ? transaction->commit(server->options.context, err) : 0;
}

static void rollback(struct server *server)
{
	if (server->options.transaction)
		server->options.transaction->rollback(server->options.context);
}

/* Before a request is handled, perhaps for the second time. */
static void discard_reply(struct exchange *exchange)
{
	drop(&exchange->reply);
	free(exchange->text);
	exchange->text = NULL;
	release(exchange, exchange->text_held);
	exchange->text_held = 0;
}

/* Handles `count` requests in one transaction. */
static int handle_together(struct server *server, struct exchange *batch, size_t count, struct error *err)
{
	struct exchange *at = batch;

	if (begin(server, err) < 0)
		return -1;
	for (size_t i = 0; i < count; i++, at = at->next) {
		discard_reply(at);
		if (at->route->handle(&at->request, &at->reply, server->options.context, err) < 0) {
			rollback(server);
			return -1;
		}
		render(at);
	}
	if (commit(server, err) < 0) {
		rollback(server);
		return -1;
	}
	return 0;
}

/* When a batch fails, each of its requests gets a transaction of its own, so that one that cannot be
 * handled takes no other with it. */
static void handle_batch(struct server *server, struct exchange *batch, size_t count)
{
	struct error err = {0};

	if (handle_together(server, batch, count, &err) == 0)
		return;
	for (struct exchange *at = batch; at; at = at->next)
		if (count == 1 || handle_together(server, at, 1, &err) < 0) {
			discard_reply(at);
			answer_fault(at, &err);
		}
}

/* Takes up to a batch from the queue; waits for one. NULL when the server stops and nothing is left. */
static struct exchange *take_batch(struct server *server, size_t *count)
{
	struct exchange *batch, *last = NULL;

	pthread_mutex_lock(&server->mutex);
	while (!server->queue && !server->stopping)
		pthread_cond_wait(&server->wake_worker, &server->mutex);
	batch = server->queue;
	for (*count = 0; server->queue && *count < server->options.batch_limit; ++*count) {
		last = server->queue;
		server->queue = last->next;
	}
	if (last)
		last->next = NULL;
	if (!server->queue)
		server->queue_end = &server->queue;
	server->queue_length -= *count;
	pthread_mutex_unlock(&server->mutex);
	return batch;
}

static void *work(void *argument)
{
	struct server *server = argument;
	struct exchange *batch, *next;
	size_t count;

	while ((batch = take_batch(server, &count))) {
		handle_batch(server, batch, count);
		for (; batch; batch = next) {
			next = batch->next; /* once resumed, it may be gone */
			batch->answered = true;
			MHD_resume_connection(batch->http);
		}
	}
	return NULL;
}

/* Hands a request to the worker; false when there are too many already. */
static bool enqueue(struct exchange *exchange)
{
	struct server *server = exchange->server;
	bool accepted;

	pthread_mutex_lock(&server->mutex);
	accepted = !server->stopping && server->queue_length < QUEUE_LIMIT;
	if (accepted) {
		exchange->connection->deadline = INFINITY;
		MHD_suspend_connection(exchange->http); /* before the worker can resume it */
		exchange->next = NULL;
		*server->queue_end = exchange;
		server->queue_end = &exchange->next;
		server->queue_length++;
		pthread_cond_signal(&server->wake_worker);
	}
	pthread_mutex_unlock(&server->mutex);
	return accepted;
}

/* --- requests that are taken away ---------------------------------------------------------------- */

static void set_taken(struct exchange *exchange, bool taken)
{
	pthread_mutex_lock(&exchange->server->mutex);
	exchange->connection->taken = taken;
	if (taken)
		exchange->connection->deadline = INFINITY;
	pthread_mutex_unlock(&exchange->server->mutex);
}

/* Has a network thread send the reply. */
static void give_back(struct exchange *exchange)
{
	set_taken(exchange, false);
	exchange->answered = true;
	MHD_resume_connection(exchange->http); /* from here on it may be gone */
}

static void take(struct exchange *exchange)
{
	const struct server_options *options = &exchange->server->options;

	set_taken(exchange, true);
	MHD_suspend_connection(exchange->http); /* before the answer can come */
	if (!options->take(exchange, &exchange->request, &exchange->reply, options->context))
		give_back(exchange);
}

void server_answer(struct exchange *exchange, const struct server_reply *reply)
{
	exchange->reply = *reply;
	exchange->reply.status = reply->status ? reply->status : 200;
	render(exchange);
	give_back(exchange);
}

bool server_abandoned(const struct exchange *exchange)
{
	bool left;

	pthread_mutex_lock(&exchange->server->mutex);
	left = exchange->connection->left;
	pthread_mutex_unlock(&exchange->server->mutex);
	return left;
}

/* --- a request, in a network thread ------------------------------------------------------------ */

static enum MHD_Result collect(void *context, enum MHD_ValueKind kind, const char *name, const char *value)
{
	cJSON *object = context;

	(void)kind;
	cJSON_DeleteItemFromObjectCaseSensitive(object, name); /* the last one counts */
	cJSON_AddStringToObject(object, name, value ? value : "");
	return MHD_YES;
}

static cJSON *collect_values(struct exchange *exchange, enum MHD_ValueKind kind)
{
	cJSON *object = cJSON_CreateObject();

	MHD_get_connection_values(exchange->http, kind, collect, object);
	return object;
}

static void name_client(struct exchange *exchange)
{
	const struct sockaddr *address =
		MHD_get_connection_info(exchange->http, MHD_CONNECTION_INFO_CLIENT_ADDRESS)->client_addr;
	socklen_t length = address->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
							  : sizeof(struct sockaddr_in);

	if (getnameinfo(address, length, exchange->client, sizeof(exchange->client), NULL, 0, NI_NUMERICHOST))
		strcpy(exchange->client, "?");
	exchange->request.client = exchange->client;
}

/* Called with a request's head. */
static struct exchange *begin_exchange(
	struct server *server, struct MHD_Connection *http, const char *path, const char *method)
{
	struct exchange *exchange = xcalloc(1, sizeof(*exchange));

	exchange->server = server;
	exchange->http = http;
	exchange->started = clock_elapsed();
	exchange->connection = MHD_get_connection_info(http, MHD_CONNECTION_INFO_SOCKET_CONTEXT)
				       ->socket_context;
	exchange->reply.status = 200;
	exchange->request.method = method;
	exchange->request.path = path;
	exchange->request.headers = collect_values(exchange, MHD_HEADER_KIND);
	exchange->query_count = (unsigned)MHD_get_connection_values(http, MHD_GET_ARGUMENT_KIND, NULL, NULL);
	exchange->request.query = exchange->query_count <= QUERY_LIMIT
		? collect_values(exchange, MHD_GET_ARGUMENT_KIND)
		: cJSON_CreateObject();
	name_client(exchange);
	find_route(exchange);
	set_deadline(server, exchange->connection, server->options.request_seconds);
	pthread_mutex_lock(&server->mutex);
	server->unfinished++;
	pthread_mutex_unlock(&server->mutex);
	return exchange;
}

static void on_completed(
	void *context, struct MHD_Connection *http, void **slot, enum MHD_RequestTerminationCode code)
{
	struct server *server = context;
	struct exchange *exchange = *slot;

	(void)http;
	(void)code;
	if (!exchange)
		return;
	set_deadline(server, exchange->connection, server->options.request_seconds);
	pthread_mutex_lock(&server->mutex);
	if (--server->unfinished == 0)
		pthread_cond_signal(&server->finished);
	pthread_mutex_unlock(&server->mutex);
	free(exchange->elsewhere);
	cJSON_Delete((cJSON *)exchange->request.headers);
	cJSON_Delete((cJSON *)exchange->request.query);
	cJSON_Delete((cJSON *)exchange->request.captures);
	cJSON_Delete((cJSON *)exchange->request.body);
	drop(&exchange->reply);
	free(exchange->text);
	buffer_free(&exchange->received);
	release(exchange, exchange->held);
	free(exchange);
	*slot = NULL;
}

/* The value of the request's header, or "". */
static const char *header(const struct exchange *exchange, const char *name)
{
	const char *value = cJSON_GetStringValue(cJSON_GetObjectItem(exchange->request.headers, name));

	return value ? value : "";
}

/* FastAPI parses a body that says nothing about its type, or that it is application/json or
 * application/SOMETHING+json. */
static bool declared_as_json(const struct exchange *exchange)
{
	const char *type = header(exchange, "Content-Type");
	size_t length = strcspn(type, "; \t");

	return !length || (length == 16 && !strncasecmp(type, "application/json", 16)) ||
		(length > 17 && !strncasecmp(type, "application/", 12) &&
			!strncasecmp(type + length - 5, "+json", 5));
}

/* A body that is no JSON. */
static void refuse_json(struct server_reply *reply, const struct error *err)
{
	cJSON *entry;

	reply->status = 422;
	reply->body = cJSON_CreateObject();
	entry = cJSON_Parse(
		"{\"type\": \"json_invalid\", \"loc\": [\"body\", 0], \"msg\": \"JSON decode error\","
		" \"input\": {}, \"ctx\": {}}");
	cJSON_AddStringToObject(cJSON_GetObjectItem(entry, "ctx"), "error", err->message);
	cJSON_AddItemToArray(cJSON_AddArrayToObject(reply->body, "detail"), entry);
}

/* At least as many as the JSON has values. */
static size_t count_values(const struct buffer *json)
{
	size_t count = 1;

	for (size_t i = 0; i < json->length; i++)
		count += json->data[i] == ',' || json->data[i] == '[' || json->data[i] == '{';
	return count;
}

/* False: the reply is made. */
static bool parse_json(struct exchange *exchange)
{
	const struct buffer *received = &exchange->received;
	const size_t limit = exchange->server->options.value_limit;
	bool lone_surrogate = false;
	struct error err = {0};

	if (count_values(received) > limit) {
		server_refuse(&exchange->reply, 413, "Request body with more than %zu values", limit);
		return false;
	}
	exchange->request.body = exchange->server->options.dialect.python_json
		? python_json_parse(received->data, received->length, &lone_surrogate, &err)
		: json_parse(received->data, received->length, &err);
	if (!exchange->request.body)
		refuse_json(&exchange->reply, &err);
	else if (lone_surrogate)
		server_fault(&exchange->reply);
	return exchange->request.body && !lone_surrogate;
}

static bool parse_body(struct exchange *exchange)
{
	if (!exchange->route->takes_body || !exchange->received.length)
		return true;
	if (declared_as_json(exchange))
		return parse_json(exchange);
	exchange->request.body = cJSON_CreateString(
		utf8_valid(exchange->received.data, exchange->received.length) ? exchange->received.data
									       : "");
	return true;
}

/* What the Origin header of the server's own pages would be, if it had any. */
static bool is_own_origin(const struct server *server, const char *origin)
{
	static const char *const names[] = {"localhost", "127.0.0.1", "[::1]"};
	char own[64];

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		snprintf(own, sizeof(own), "http://%s:%u", names[i], server->port);
		if (!strcmp(origin, own))
			return true;
	}
	return !strcmp(origin, server->url);
}

bool server_is_local(const struct server_request *request)
{
	const char *host = cJSON_GetStringValue(cJSON_GetObjectItem(request->headers, "Host"));
	size_t length = !host ? 0 : *host == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":");
	char name[64];

	if (!request->client || (strcmp(request->client, "127.0.0.1") && strcmp(request->client, "::1")))
		return false;
	snprintf(name, sizeof(name), "%.*s", (int)length, host ? host : "");
	return !strcmp(name, "localhost") || !strcmp(name, "127.0.0.1") || !strcmp(name, "[::1]");
}

/* A page of somebody else's in this machine's browser wants something changed. */
static bool is_forged(const struct exchange *exchange)
{
	const char *origin = header(exchange, "Origin");

	return *origin && strcmp(exchange->request.method, "GET") && !is_own_origin(exchange->server, origin);
}

/* A browser asks whether it may. */
static bool is_preflight(const struct exchange *exchange)
{
	return exchange->server->options.dialect.cors && !strcmp(exchange->request.method, "OPTIONS") &&
		*header(exchange, "Origin") && *header(exchange, "Access-Control-Request-Method");
}

/* Gives a request to whoever answers it; false when the reply is made. */
static bool hand_over(struct exchange *exchange)
{
	const struct server_route *route = exchange->route;

	if (route->handle && enqueue(exchange))
		return true;
	if (route->handle)
		refuse_busy(&exchange->reply);
	if (route->handle || route->check)
		return false;
	take(exchange);
	return true;
}

/* Called with the whole request. True when somebody else has it now, false when the reply is made. */
static bool dispatch(struct exchange *exchange)
{
	const struct server_options *options = &exchange->server->options;
	const struct server_route *route = exchange->route;
	struct server_reply *reply = &exchange->reply;

	if (is_preflight(exchange))
		reply->text = "OK";
	else if (exchange->elsewhere)
		*reply = (struct server_reply){.status = 307, .text = ""};
	else if (!route && exchange->other_method)
		server_refuse(reply, 405, "Method Not Allowed");
	else if (!route)
		server_refuse(reply, 404, "Not Found");
	else if (is_forged(exchange))
		server_refuse(reply, 403, "A page of another origin may not change anything here");
	else if (exchange->query_count > QUERY_LIMIT)
		server_refuse(reply, 400, "More than %d query arguments", QUERY_LIMIT);
	else if (exchange->received_total > options->body_limit)
		server_refuse(reply, 413, "Request body larger than %zu bytes", options->body_limit);
	else if (exchange->crowded)
		refuse_busy(reply);
	else if (parse_body(exchange) &&
		(!route->check || route->check(&exchange->request, reply, options->context)))
		return hand_over(exchange);
	return false;
}

static void add_header(struct MHD_Response *response, const char *name, const char *value)
{
	if (value && *value)
		MHD_add_response_header(response, name, value);
}

/* What FastAPI's CORSMiddleware says with everything allowed. */
static void allow_origin(const struct exchange *exchange, struct MHD_Response *response)
{
	add_header(response, "Vary", "Origin");
	add_header(response, "Access-Control-Allow-Origin", header(exchange, "Origin"));
	add_header(response, "Access-Control-Allow-Credentials", "true");
	if (!is_preflight(exchange))
		return;
	add_header(response, "Access-Control-Allow-Methods", "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT");
	add_header(
		response, "Access-Control-Allow-Headers", header(exchange, "Access-Control-Request-Headers"));
	add_header(response, "Access-Control-Max-Age", "600");
}

/* What keeps a browser from doing more with a page than to show it to whoever asked. */
static void guard_page(const struct server_reply *reply, struct MHD_Response *response)
{
	struct buffer policy = {0};

	buffer_printf(&policy, "%s; frame-ancestors 'none'", reply->policy);
	add_header(response, "Content-Security-Policy", policy.data);
	add_header(response, "X-Content-Type-Options", "nosniff");
	add_header(response, "Referrer-Policy", "no-referrer");
	add_header(response, "Cross-Origin-Resource-Policy", "same-origin");
	add_header(response, "Cache-Control", "no-store");
	buffer_free(&policy);
}

static void add_location(const struct exchange *exchange, struct MHD_Response *response)
{
	const char *host = header(exchange, "Host");
	struct buffer location = {0};
	const cJSON *argument;

	if (*host)
		buffer_printf(&location, "http://%s", host);
	buffer_text(&location, exchange->elsewhere);
	cJSON_ArrayForEach (argument, exchange->request.query) {
		char *name = http_escape(argument->string), *value = http_escape(argument->valuestring);

		buffer_printf(&location, "%c%s=%s", argument->prev->next ? '&' : '?', name, value);
		free(name);
		free(value);
	}
	add_header(response, "Location", location.data);
	buffer_free(&location);
}

static ssize_t read_content(void *context, uint64_t position, char *out, size_t most)
{
	struct server_content *content = context;
	size_t length = content->read(content, out, most);

	(void)position;
	return length ? (ssize_t)length : MHD_CONTENT_READER_END_OF_STREAM;
}

static void close_content(void *context)
{
	struct server_content *content = context;

	content->close(content);
}

/* The response with what it sends, which is its own then. */
static struct MHD_Response *make_payload(struct exchange *exchange)
{
	struct server_reply *reply = &exchange->reply;
	struct MHD_Response *response;

	if (reply->content)
		response = MHD_create_response_from_callback(
			MHD_SIZE_UNKNOWN, CONTENT_BLOCK, read_content, reply->content, close_content);
	else if (reply->text)
		response = MHD_create_response_from_buffer(
			strlen(reply->text), (void *)reply->text, MHD_RESPMEM_PERSISTENT);
	else
		response = MHD_create_response_from_buffer(
			strlen(exchange->text), exchange->text, MHD_RESPMEM_MUST_FREE);
	reply->content = NULL;
	exchange->text = reply->text ? exchange->text : NULL;
	return response;
}

static struct MHD_Response *make_response(struct exchange *exchange)
{
	const struct server_reply *reply = &exchange->reply;
	struct MHD_Response *response;
	const char *type;

	if (!exchange->text && !reply->text)
		render(exchange);
	type = reply->content   ? reply->content->type
		: reply->text   ? "text/plain; charset=utf-8"
		: reply->policy ? "text/html; charset=utf-8"
				: "application/json";
	response = make_payload(exchange);
	if (reply->status == 307)
		add_location(exchange, response);
	else
		add_header(response, "Content-Type", type);
	if (reply->policy)
		guard_page(reply, response);
	if (reply->status == 405)
		add_header(response, "Allow", exchange->other_method);
	if (reply->retry_after > 0) {
		char seconds[32];

		snprintf(seconds, sizeof(seconds), "%.0f", ceil(reply->retry_after));
		add_header(response, "Retry-After", seconds);
	}
	if (exchange->server->options.dialect.cors && !reply->policy && *header(exchange, "Origin"))
		allow_origin(exchange, response);
	return response;
}

static enum MHD_Result respond(struct exchange *exchange)
{
	char path[128];
	struct MHD_Response *response = make_response(exchange);
	enum MHD_Result result = MHD_queue_response(exchange->http, exchange->reply.status, response);

	MHD_destroy_response(response);
	set_deadline(exchange->server, exchange->connection, exchange->server->options.request_seconds);
	snprintf(path, sizeof(path), "%s", exchange->request.path);
	text_clean(path); /* what a client sends must not steer a terminal */
	log_debug("%s %s %s %u %.1f ms", exchange->client, exchange->request.method, path,
		exchange->reply.status, (clock_elapsed() - exchange->started) * 1e3);
	return result;
}

static enum MHD_Result receive(struct exchange *exchange, const char *data, size_t size)
{
	exchange->received_total += size;
	if (exchange->received_total <= exchange->server->options.body_limit && !exchange->crowded)
		exchange->crowded = !hold(exchange, size);
	if (exchange->received_total <= exchange->server->options.body_limit && !exchange->crowded)
		buffer_append(&exchange->received, data, size);
	else
		buffer_free(&exchange->received);
	return exchange->received_total <= DISCARD_LIMIT ? MHD_YES : MHD_NO;
}

/* libmicrohttpd calls this with a request's head, with each piece of its body, at its end, and again when
 * the worker, or who took the request, has resumed the connection. */
static enum MHD_Result on_request(void *context, struct MHD_Connection *http, const char *path,
	const char *method, const char *version, const char *data, size_t *size, void **slot)
{
	struct exchange *exchange = *slot;

	(void)version;
	if (!exchange) {
		exchange = *slot = begin_exchange(context, http, path, method);
		exchange->received_total = strtoull(header(exchange, "Content-Length"), NULL, 10);
		if (exchange->received_total > DISCARD_LIMIT) {
			dispatch(exchange);
			return respond(exchange);
		}
		exchange->received_total = 0;
		return MHD_YES;
	}
	if (*size) {
		size_t length = *size;

		*size = 0;
		return receive(exchange, data, length);
	}
	if (!exchange->answered && dispatch(exchange))
		return MHD_YES;
	return respond(exchange);
}

/* --- start and stop ---------------------------------------------------------------------------- */

/* Binds and listens; returns the socket, and what it is really bound to in `bound`. */
static int open_socket(
	const struct server_options *options, struct sockaddr_storage *bound, struct error *err)
{
	const struct addrinfo hints = {
		.ai_flags = AI_PASSIVE | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM, .ai_family = AF_UNSPEC};
	const int on = 1;
	socklen_t length = sizeof(*bound);
	struct addrinfo *found;
	char port[16];
	int fd, code;

	snprintf(port, sizeof(port), "%u", options->port);
	code = getaddrinfo(options->listen, port, &hints, &found);
	if (code)
		return error_set(err, STATUS_ENVIRONMENT, "cannot listen on \"%s\": %s", options->listen,
			gai_strerror(code));
	fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	/* a restart finds the port free, though old connections linger */
	if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
		bind(fd, found->ai_addr, found->ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0 &&
		getsockname(fd, (struct sockaddr *)bound, &length) == 0) {
		freeaddrinfo(found);
		return fd;
	}
	error_set(err, STATUS_ENVIRONMENT, "cannot listen on %s port %u: %s", options->listen, options->port,
		strerror(errno));
	if (errno == EADDRINUSE)
		error_hint(err, "Something already listens there. Use another port; 0 picks a free one.");
	else if (errno == EACCES)
		error_hint(err, "Ports below 1024 are reserved for root. Use a higher one.");
	if (fd >= 0)
		close(fd);
	freeaddrinfo(found);
	return -1;
}

static void name_server(struct server *server, const struct sockaddr_storage *bound)
{
	char host[64] = "", port[16] = "";

	getnameinfo((const struct sockaddr *)bound, sizeof(*bound), host, sizeof(host), port, sizeof(port),
		NI_NUMERICHOST | NI_NUMERICSERV);
	server->port = (unsigned)atoi(port);
	server->url = xprintf(strchr(host, ':') ? "http://[%s]:%s" : "http://%s:%s", host, port);
}

/* Connections that fit beside the files a process may have open anyway. */
static size_t connections_possible(size_t wanted)
{
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) < 0 || files.rlim_cur == RLIM_INFINITY)
		return wanted;
	if (files.rlim_cur < 128)
		return 64;
	return files.rlim_cur - 64 < wanted ? files.rlim_cur - 64 : wanted;
}

static struct server *make_server(const struct server_options *options)
{
	struct server *server = xcalloc(1, sizeof(*server));
	struct server_options *own = &server->options;
	pthread_condattr_t attributes;

	*own = *options;
	own->listen = own->listen ? own->listen : "127.0.0.1";
	own->batch_limit = own->batch_limit ? own->batch_limit : 256;
	own->body_limit = own->body_limit ? own->body_limit : 64 << 10;
	own->value_limit = own->value_limit ? own->value_limit : 20000;
	own->memory_limit = own->memory_limit ? own->memory_limit : 256 << 20;
	own->connection_limit = connections_possible(own->connection_limit ? own->connection_limit : 1000);
	own->request_seconds = own->request_seconds > 0 ? own->request_seconds : 30;
	server->queue_end = &server->queue;
	pthread_mutex_init(&server->mutex, NULL);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&server->wake_worker, &attributes);
	pthread_cond_init(&server->wake_reaper, &attributes);
	pthread_cond_init(&server->finished, &attributes);
	pthread_condattr_destroy(&attributes);
	return server;
}

static void free_server(struct server *server)
{
	pthread_cond_destroy(&server->wake_worker);
	pthread_cond_destroy(&server->wake_reaper);
	pthread_cond_destroy(&server->finished);
	pthread_mutex_destroy(&server->mutex);
	free(server->url);
	free(server);
}

/* Stops the two threads; what is queued is finished first. */
static void stop_threads(struct server *server)
{
	pthread_mutex_lock(&server->mutex);
	server->stopping = true;
	pthread_cond_signal(&server->wake_worker);
	pthread_cond_signal(&server->wake_reaper);
	pthread_mutex_unlock(&server->mutex);
	if (server->has_worker)
		pthread_join(server->worker, NULL);
	if (server->has_reaper)
		pthread_join(server->reaper, NULL);
}

static struct MHD_Daemon *start_daemon(struct server *server, int fd)
{
	long processors = sysconf(_SC_NPROCESSORS_ONLN);
	unsigned threads = processors < 2 ? 2 : processors > 8 ? 8 : (unsigned)processors;

	/* libmicrohttpd shares its limit out among the threads; ours, which makes room, comes first. Its memory
	 * for a request's head must hold more arguments than we take: where it ends, 0.9.75 does not answer. */
	return MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL,
		on_request, server, MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_THREAD_POOL_SIZE, threads,
		MHD_OPTION_CONNECTION_LIMIT, (unsigned)(server->options.connection_limit + 32) * threads,
		MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)(128 << 10), MHD_OPTION_STRICT_FOR_CLIENT, 1,
		MHD_OPTION_NOTIFY_CONNECTION, on_connection, server, MHD_OPTION_NOTIFY_COMPLETED,
		on_completed, server, MHD_OPTION_END);
}

/* Starts the server's threads and libmicrohttpd's; none of them takes signals. */
static int start_threads(struct server *server, int fd)
{
	sigset_t all, before;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &before);
	server->has_worker = pthread_create(&server->worker, NULL, work, server) == 0;
	server->has_reaper = pthread_create(&server->reaper, NULL, reap, server) == 0;
	if (server->has_worker && server->has_reaper)
		server->daemon = start_daemon(server, fd);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return server->daemon ? 0 : -1;
}

struct server *server_start(const struct server_options *options, struct error *err)
{
	struct server *server = make_server(options);
	struct sockaddr_storage bound;
	int fd = open_socket(&server->options, &bound, err);

	if (fd < 0)
		goto failed;
	name_server(server, &bound);
	if (start_threads(server, fd) == 0)
		return server;
	error_set(err, STATUS_ENVIRONMENT, "cannot start the threads of an HTTP server on %s", server->url);
	stop_threads(server);
	close(fd);
failed:
	free_server(server);
	return NULL;
}

unsigned server_port(const struct server *server)
{
	return server->port;
}

const char *server_url(const struct server *server)
{
	return server->url;
}

void server_stop(struct server *server)
{
	int fd = MHD_quiesce_daemon(server->daemon);
	double until = clock_elapsed() + STOP_SECONDS;

	if (fd >= 0)
		close(fd);
	stop_threads(server);
	pthread_mutex_lock(&server->mutex);
	while (server->unfinished && clock_elapsed() < until)
		wait_seconds(server, &server->finished, until - clock_elapsed());
	pthread_mutex_unlock(&server->mutex);
	MHD_stop_daemon(server->daemon);
	free_server(server);
}
