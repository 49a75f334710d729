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
#include "net/server.h"

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

static const struct server_route routes[] = {
	{"POST", "/add", false, check_arrival, handle_add},
	{"POST", "/fault", false, check_arrival, handle_fault},
	{"POST", "/hold", false, NULL, handle_hold},
	{"GET", "/echo/{name}/end", false, check_echo, NULL},
	{0},
};
static const struct server_transaction transaction = {begin, commit, rollback};

static struct server *server;

static int set_up(void **state)
{
	const struct server_options options = {.routes = routes, .transaction = &transaction};
	struct error err = {0};

	(void)state;
	memset(&store, 0, sizeof(store));
	sem_init(&store.entered, 0, 0);
	sem_init(&store.proceed, 0, 0);
	sem_init(&store.arrived, 0, 0);
	log_set_level(LOG_QUIET);
	server = server_start(&options, &err);
	return server ? 0 : -1;
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

/* A connection with a request sent on it. */
static int ask(const char *method, const char *path)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
		.sin_port = htons(server_port(server))};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	dprintf(fd, "%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", method, path);
	return fd;
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
	assert_non_null(strstr(text, "{\"detail\":\"Internal Server Error\"}"));
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
		cmocka_unit_test(stopping_finishes_what_was_received),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
