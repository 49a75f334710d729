/* server: requests that share a transaction, and what a failure does to them */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "net/server.h"

#define LARGE (12 << 20)        /* more than the sockets take */
#define MEMORY_LIMIT (16 << 20) /* for one of them */

/* A store that counts. Only the worker touches it while requests are under way. */
static struct {
	int value, committed; /* what handlers changed, and what of it is durable */
	int transactions, fail_commits;
	sem_t entered, proceed, arrived;
} store;

static int begin(void *context, struct error *err)
{
	(void)context;
	(void)err;
	store.transactions++;
	return 0;
}

static int commit(void *context, struct error *err)
{
	(void)context;
	if (store.fail_commits && store.fail_commits--)
		return error_set(err, STATUS_ENVIRONMENT, "disk full");
	store.committed = store.value;
	return 0;
}

static void rollback(void *context)
{
	(void)context;
	store.value = store.committed;
}

static bool check_arrival(struct server_request *request, struct server_reply *reply, void *context)
{
	(void)request;
	(void)reply;
	(void)context;
	sem_post(&store.arrived);
	return true;
}

static int handle_add(
	const struct server_request *request, struct server_reply *reply, void *context, struct error *err)
{
	(void)request;
	(void)context;
	(void)err;
	store.value++;
	reply->body = cJSON_CreateObject();
	cJSON_AddNumberToObject(reply->body, "value", store.value);
	return 0;
}

static int handle_fault(
	const struct server_request *request, struct server_reply *reply, void *context, struct error *err)
{
	(void)request;
	(void)context;
	store.value += 1000;
	reply->body = cJSON_CreateObject();
	return error_set(err, STATUS_ENVIRONMENT, "secret inner reason");
}

/* Holds the worker until the test lets it go on, so that requests gather in the queue. */
static int handle_hold(
	const struct server_request *request, struct server_reply *reply, void *context, struct error *err)
{
	(void)request;
	(void)reply;
	(void)context;
	(void)err;
	sem_post(&store.entered);
	sem_wait(&store.proceed);
	return 0;
}

static bool check_echo(struct server_request *request, struct server_reply *reply, void *context)
{
	(void)context;
	reply->body = cJSON_Duplicate(request->query, true);
	cJSON_AddItemToObject(
		reply->body, "name", cJSON_Duplicate(cJSON_GetObjectItem(request->captures, "name"), true));
	return true;
}

/* The body as it came. */
static int handle_repeat(
	const struct server_request *request, struct server_reply *reply, void *context, struct error *err)
{
	(void)context;
	(void)err;
	reply->body = cJSON_CreateObject();
	cJSON_AddItemReferenceToObject(reply->body, "body", (cJSON *)request->body);
	return 0;
}

static bool check_large(struct server_request *request, struct server_reply *reply, void *context)
{
	char *text = xmalloc(LARGE + 1);

	(void)request;
	(void)context;
	memset(text, 'x', LARGE);
	text[LARGE] = '\0';
	reply->body = cJSON_CreateObject();
	cJSON_AddStringToObject(reply->body, "text", text);
	free(text);
	return true;
}

static const struct server_route routes[] = {
	{"POST", "/add", false, check_arrival, handle_add},
	{"POST", "/fault", false, check_arrival, handle_fault},
	{"POST", "/hold", false, NULL, handle_hold},
	{"GET", "/echo/{name}/end", false, check_echo, NULL},
	{"POST", "/repeat", true, NULL, handle_repeat},
	{"GET", "/large", false, check_large, NULL},
	{0},
};
static const struct server_transaction transaction = {begin, commit, rollback};

static struct server *server;

static int start(struct server_dialect dialect)
{
	const struct server_options options = {.routes = routes,
		.transaction = &transaction,
		.dialect = dialect,
		.body_limit = MEMORY_LIMIT,
		.memory_limit = MEMORY_LIMIT};
	struct error err = {0};

	memset(&store, 0, sizeof(store));
	sem_init(&store.entered, 0, 0);
	sem_init(&store.proceed, 0, 0);
	sem_init(&store.arrived, 0, 0);
	log_set_level(LOG_QUIET);
	server = server_start(&options, &err);
	return server ? 0 : -1;
}

static int set_up(void **state)
{
	(void)state;
	return start((struct server_dialect){0});
}

static int set_up_like_fastapi(void **state)
{
	(void)state;
	return start((struct server_dialect){.python_json = true, .cors = true, .redirects_slashes = true});
}

static int tear_down(void **state)
{
	(void)state;
	server_stop(server);
	sem_destroy(&store.entered);
	sem_destroy(&store.proceed);
	sem_destroy(&store.arrived);
	return 0;
}

/* A connection with a request sent on it. `headers` end with "\r\n" each. */
static int ask_with(const char *method, const char *path, const char *headers, const char *body)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
		.sin_port = htons(server_port(server))};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	dprintf(fd, "%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %zu\r\n%s\r\n%s",
		method, path, strlen(body), headers, body);
	return fd;
}

static int ask(const char *method, const char *path)
{
	return ask_with(method, path, "", "");
}

/* The status of the answer, which is read to its end into `text`. */
static int answer(int fd, char text[4096])
{
	size_t length = 0;
	ssize_t got;

	while (length < 4095 && (got = recv(fd, text + length, 4095 - length, 0)) > 0)
		length += (size_t)got;
	text[length] = '\0';
	close(fd);
	return length > 12 ? atoi(text + 9) : 0;
}

static int status_of(const char *method, const char *path)
{
	char text[4096];

	return answer(ask(method, path), text);
}

static void captures_and_queries_reach_the_route(void **state)
{
	char text[4096];

	(void)state;
	assert_int_equal(answer(ask("GET", "/echo/a%20b/end?x=1&x=2&y"), text), 200);
	assert_non_null(strstr(text, "{\"x\":\"2\",\"y\":\"\",\"name\":\"a b\"}"));
	assert_int_equal(status_of("GET", "/echo//end"), 404);
	assert_int_equal(status_of("GET", "/echo/a/end/"), 404);
	assert_int_equal(status_of("POST", "/echo/a/end"), 405);
}

/* Starts requests while the worker is held, lets it go, and collects the statuses. */
static void ask_together(const char *const *paths, int *statuses, int count)
{
	int held = ask("POST", "/hold"), fds[8];
	char text[4096];

	sem_wait(&store.entered);
	for (int i = 0; i < count; i++)
		fds[i] = ask("POST", paths[i]);
	for (int i = 0; i < count; i++)
		sem_wait(&store.arrived);
	store.transactions = 0;
	sem_post(&store.proceed);
	assert_int_equal(answer(held, text), 200);
	for (int i = 0; i < count; i++)
		statuses[i] = answer(fds[i], text);
}

static void requests_that_wait_share_a_transaction(void **state)
{
	static const char *const paths[] = {"/add", "/add", "/add", "/add", "/add"};
	int statuses[5];

	(void)state;
	ask_together(paths, statuses, 5);
	for (int i = 0; i < 5; i++)
		assert_int_equal(statuses[i], 200);
	assert_int_equal(store.committed, 5);
	assert_in_range(store.transactions, 1, 4); /* 1, unless one was overtaken on its way into the queue */
}

static void a_faulty_request_takes_no_other_with_it(void **state)
{
	static const char *const paths[] = {"/add", "/fault", "/add", "/fault"};
	int statuses[4];
	char text[4096];

	(void)state;
	ask_together(paths, statuses, 4);
	assert_int_equal(statuses[0], 200);
	assert_int_equal(statuses[1], 500);
	assert_int_equal(statuses[2], 200);
	assert_int_equal(statuses[3], 500);
	assert_int_equal(store.committed, 2); /* each counted once, nothing of the faulty ones */
	assert_int_equal(answer(ask("POST", "/fault"), text), 500);
	assert_non_null(strstr(text, "\r\n\r\nInternal Server Error"));
	assert_null(strstr(text, "secret"));
}

static void no_answer_leaves_before_its_commit(void **state)
{
	char text[4096];

	(void)state;
	store.fail_commits = 1;
	assert_int_equal(status_of("POST", "/add"), 500);
	assert_int_equal(store.value, 0);
	assert_int_equal(answer(ask("POST", "/add"), text), 200);
	assert_non_null(strstr(text, "{\"value\":1}"));
}

/* A page in a browser can send any request, but not without saying where the page is from. */
static void pages_of_others_change_nothing(void **state)
{
	static const char *const foreign[] = {"https://evil.example", "null", "http://localhost", "http://x",
		"http://localhost:1", "http://localhost.evil.example:80"};
	char headers[128], text[4096];

	(void)state;
	for (size_t i = 0; i < sizeof(foreign) / sizeof(*foreign); i++) {
		snprintf(headers, sizeof(headers), "Origin: %s\r\n", foreign[i]);
		assert_int_equal(answer(ask_with("POST", "/add", headers, ""), text), 403);
		assert_int_equal(answer(ask_with("GET", "/echo/a/end", headers, ""), text), 200);
	}
	assert_int_equal(store.value, 0);
	snprintf(headers, sizeof(headers), "Origin: http://localhost:%u\r\n", server_port(server));
	assert_int_equal(answer(ask_with("POST", "/add", headers, ""), text), 200);
	snprintf(headers, sizeof(headers), "Origin: %s\r\n", server_url(server));
	assert_int_equal(answer(ask_with("POST", "/add", headers, ""), text), 200);
	assert_int_equal(store.value, 2);
}

static void what_takes_too_much_room_is_refused(void **state)
{
	char path[2048] = "/echo/a/end?a0", text[4096], *body;

	(void)state;
	for (int i = 1; i < 100; i++)
		snprintf(path + strlen(path), sizeof(path) - strlen(path), "&a%d", i);
	assert_int_equal(answer(ask("GET", path), text), 200);
	strcat(path, "&a100");
	assert_int_equal(answer(ask("GET", path), text), 400);
	assert_non_null(strstr(text, "100 query arguments"));

	body = xcalloc(50001, 1);
	memset(body, '[', 50000);
	assert_int_equal(answer(ask_with("POST", "/repeat", "", body), text), 413);
	assert_non_null(strstr(text, "values"));
	free(body);
}

/* One large answer fits, and while nobody fetches it, the next one does not. */
static void memory_is_shared(void **state)
{
	int first = ask("GET", "/large"), second;
	char text[4096];

	(void)state;
	/* the first piece is here: the rest is on its way */
	assert_true(recv(first, text, 1, 0) == 1);
	second = ask("GET", "/large");
	assert_int_equal(answer(second, text), 503);
	assert_non_null(strstr(text, "Retry-After: 1"));
	while (recv(first, text, sizeof(text), 0) > 0)
		;
	close(first);
	/* its end is noticed soon after */
	while ((second = status_of("GET", "/large")) == 503)
		;
	assert_int_equal(second, 200);
}

static void like_fastapi(void **state)
{
	static const char json[] = "Content-Type: application/json\r\n";
	char text[4096];

	(void)state;
	assert_int_equal(answer(ask("GET", "/echo/a/end//?x=1&y=a%26b"), text), 307);
	assert_non_null(strstr(text, "Location: http://x/echo/a/end?x=1&y=a%26b\r\n"));
	assert_int_equal(status_of("POST", "/echo/a/end/"), 307);
	assert_int_equal(status_of("GET", "/nothing/"), 404);

	assert_int_equal(answer(ask_with("GET", "/echo/a/end", "Origin: http://a\r\n", ""), text), 200);
	assert_non_null(strstr(text, "Access-Control-Allow-Origin: http://a\r\n"));
	assert_int_equal(answer(ask_with("OPTIONS", "/add",
					"Origin: http://a\r\nAccess-Control-Request-Method: POST\r\n"
					"Access-Control-Request-Headers: hotkey\r\n",
					""),
				 text),
		200);
	assert_non_null(strstr(text, "Access-Control-Allow-Headers: hotkey\r\n"));
	assert_int_equal(answer(ask_with("OPTIONS", "/add", "Origin: http://a\r\n", ""), text), 405);
	assert_int_equal(answer(ask_with("POST", "/add", "Origin: http://a\r\n", ""), text), 403);

	assert_int_equal(
		answer(ask_with("POST", "/repeat", json, "[\"a\\u0000b\\\\u0000 NaN\", \"\\ud83d\\ude00\"]"),
			text),
		200);
	assert_non_null(strstr(text, "{\"body\":[\"a\\u0000b\\\\u0000 NaN\",\"\xf0\x9f\x98\x80\"]}"));
	assert_int_equal(answer(ask_with("POST", "/repeat", json, "[NaN]"), text), 500);
	assert_non_null(strstr(text, "\r\n\r\nInternal Server Error"));
	assert_int_equal(answer(ask_with("POST", "/repeat", json, "[-Infinity]"), text), 500);
	assert_int_equal(answer(ask_with("POST", "/repeat", json, "[\"\\ud83d\"]"), text), 500);
	assert_int_equal(answer(ask_with("POST", "/repeat", json, "[\"\\ude00\"]"), text), 500);
	assert_int_equal(answer(ask_with("POST", "/repeat", json, "[nan]"), text), 422);
	assert_non_null(strstr(text, "\"ctx\":{\"error\":"));
	assert_int_equal(answer(ask_with("POST", "/repeat", json, "[\"\\"), text), 422);
}

static void *stop(void *argument)
{
	server_stop(argument);
	return NULL;
}

static void stopping_finishes_what_was_received(void **state)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	char text[4096];
	pthread_t thread;
	int held, fd;

	(void)state;
	assert_int_equal(set_up(NULL), 0);
	address.sin_port = htons(server_port(server));
	held = ask("POST", "/hold");
	sem_wait(&store.entered);
	assert_int_equal(pthread_create(&thread, NULL, stop, server), 0);
	do { /* until it does not listen any more */
		fd = socket(AF_INET, SOCK_STREAM, 0);
	} while (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0 && close(fd) == 0);
	close(fd);
	sem_post(&store.proceed);
	pthread_join(thread, NULL);
	assert_int_equal(answer(held, text), 200);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(captures_and_queries_reach_the_route, set_up, tear_down),
		cmocka_unit_test_setup_teardown(requests_that_wait_share_a_transaction, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_faulty_request_takes_no_other_with_it, set_up, tear_down),
		cmocka_unit_test_setup_teardown(no_answer_leaves_before_its_commit, set_up, tear_down),
		cmocka_unit_test_setup_teardown(pages_of_others_change_nothing, set_up, tear_down),
		cmocka_unit_test_setup_teardown(what_takes_too_much_room_is_refused, set_up, tear_down),
		cmocka_unit_test_setup_teardown(memory_is_shared, set_up, tear_down),
		cmocka_unit_test_setup_teardown(like_fastapi, set_up_like_fastapi, tear_down),
		cmocka_unit_test(stopping_finishes_what_was_received),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
