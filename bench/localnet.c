/* The table of `make bench-localnet`: how many signed commits a second `quasar localnet` takes, each durable
 * before its answer leaves.
 *
 * usage: bench-localnet QUASAR [SECONDS [CONNECTIONS [RATE]]]     (10 s, 64 connections, rate 0: all they can)
 *
 * Starts a service on a database in a temporary directory, registers a hotkey a connection, and sends
 * commits, one percent of them malformed in turn: a wrong signature, a foreign hotkey, broken JSON, a body
 * that is too large. Every answer must be the right one. At the end the service is killed, not stopped, and
 * started again: it must have every commit that was answered. Exits with 1 when it does not. */
#include <arpa/inet.h>
#include <pthread.h>
#include <signal.h>
#include <sodium.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/hex.h"
#include "base/json.h"
#include "base/memory.h"
#include "key/keypair.h"

#define MOST_SAMPLES (1 << 20) /* latencies kept for each connection */
#define LARGE 70000            /* bytes of a body that is too large */
#define MALFORMED_ONE_IN 100

static struct {
	const char *binary;
	double seconds, rate;
	int connections;
	char directory[64], *database;
	pid_t service;
	unsigned port;
	double end;
} load;

struct client {
	pthread_t thread;
	int fd;
	struct keypair *keypair;
	char signature[2 * SIGNATURE_LENGTH + 1];
	size_t sent, committed, malformed, wrong;
	float *latencies;
};

static void die(const char *what)
{
	fprintf(stderr, "bench-localnet: %s\n", what);
	if (load.service)
		kill(load.service, SIGKILL);
	exit(1);
}

/* --- the service ------------------------------------------------------------------------------- */

static void start_service(void)
{
	char line[1024] = "";
	struct error err = {0};
	cJSON *announced;
	int64_t port;
	int ends[2];
	FILE *out;

	if (pipe(ends) < 0)
		die("cannot make a pipe");
	load.service = fork();
	if (load.service == 0) {
		dup2(ends[1], STDOUT_FILENO);
		close(ends[0]);
		close(ends[1]);
		execl(load.binary, load.binary, "localnet", "--json", "--port", "0", "--rate-limit", "0",
			"--db", load.database, (char *)NULL);
		_exit(127);
	}
	close(ends[1]);
	out = fdopen(ends[0], "r");
	if (!fgets(line, sizeof(line), out))
		die("the service did not start");
	fclose(out);
	announced = json_parse(line, strlen(line), &err);
	if (!announced || json_integer(announced, "port", JSON_REQUIRED, &port, &err) < 0)
		die("the service announced something else");
	load.port = (unsigned)port;
	cJSON_Delete(announced);
}

static void kill_service(void)
{
	kill(load.service, SIGKILL);
	waitpid(load.service, NULL, 0);
	load.service = 0;
}

/* --- HTTP -------------------------------------------------------------------------------------- */

static int open_connection(void)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
		.sin_port = htons((uint16_t)load.port),
	};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
		die("cannot connect");
	return fd;
}

/* Reads one answer; its status, or 0 when there is none. The body goes into `text`. */
static int read_answer(int fd, char *text, size_t size)
{
	size_t length = 0, whole = 0;
	char *body, *field;
	ssize_t got;

	while (length < size - 1 && (!whole || length < whole)) {
		got = recv(fd, text + length, size - 1 - length, 0);
		if (got <= 0)
			return 0;
		length += (size_t)got;
		text[length] = '\0';
		body = strstr(text, "\r\n\r\n");
		field = body ? strstr(text, "Content-Length: ") : NULL;
		if (field)
			whole = (size_t)(body + 4 - text) + strtoul(field + 16, NULL, 10);
	}
	return atoi(text + 9);
}

static int request(int fd, const char *method, const char *path, const char *hotkey, const char *signature,
	const char *body, char *text, size_t size)
{
	char *whole = xprintf("%s %s HTTP/1.1\r\nHost: localhost\r\nHotkey: %s\r\nSignature: %s\r\n"
			      "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
		method, path, hotkey, signature, strlen(body), body);
	size_t left = strlen(whole);
	const char *at = whole;

	while (left) {
		ssize_t written = send(fd, at, left, MSG_NOSIGNAL);

		if (written <= 0)
			break;
		at += written;
		left -= (size_t)written;
	}
	free(whole);
	return left ? 0 : read_answer(fd, text, size);
}

static int64_t count_submissions(void)
{
	char text[1 << 16];
	int fd = open_connection();
	int status = request(fd, "GET", "/get_submission_stats?limit=1", "", "", "", text, sizeof(text));
	const char *field = strstr(text, "\"total_submissions\":");

	close(fd);
	if (status != 200 || !field)
		die("the statistics cannot be read");
	return atoll(field + strlen("\"total_submissions\":"));
}

/* --- clients ----------------------------------------------------------------------------------- */

static void register_client(struct client *client)
{
	const char *address;
	uint8_t signature[SIGNATURE_LENGTH];
	struct error err = {0};
	char text[4096], *body;

	client->keypair = keypair_generate(CRYPTO_SR25519, 12, &err);
	if (!client->keypair)
		die(err.message);
	address = keypair_address(client->keypair);
	if (keypair_sign(client->keypair, address, strlen(address), signature, &err) < 0)
		die(err.message);
	hex_encode(signature, sizeof(signature), client->signature);
	client->fd = open_connection();
	client->latencies = xcalloc(MOST_SAMPLES, sizeof(*client->latencies));
	body = xprintf("{\"hotkey\":\"%s\",\"model_name\":\"m\",\"league\":\"1M\"}", address);
	if (request(client->fd, "POST", "/register_miner", address, client->signature, body, text,
		    sizeof(text)) != 200)
		die("a hotkey cannot register");
	free(body);
}

static char *commit_body(const char *address)
{
	uint8_t random[32];
	char hash[65];

	randombytes_buf(random, sizeof(random));
	hex_encode(random, sizeof(random), hash);
	return xprintf(
		"{\"miner_hotkey\":\"%s\",\"commitment_hash\":\"%s\",\"target_sequence_length\":1000000,"
		"\"signature\":\"00\"}",
		address, hash);
}

/* A request that must be refused, of the `kind`-th sort. True when it is, with the right status. */
static bool send_malformed(struct client *client, size_t kind)
{
	static const int expected[] = {401, 403, 422, 413};
	const char *address = keypair_address(client->keypair);
	char text[4096], wrong[sizeof(client->signature)], *body;
	int status;

	kind %= sizeof(expected) / sizeof(*expected);
	memcpy(wrong, client->signature, sizeof(wrong));
	wrong[10] = wrong[10] == '0' ? '1' : '0';
	if (kind == 1)
		body = commit_body("5GrwvaEF5zXb26Fz9rcQpDWS57CtERHpNehXCPcNoHGKutQY");
	else if (kind == 2)
		body = xstrdup("{\"miner_hotkey\":");
	else if (kind == 3)
		body = xprintf("{\"miner_hotkey\":\"%*s\"}", LARGE, "x");
	else
		body = commit_body(address);
	status = request(client->fd, "POST", "/commit_submission", address, kind ? client->signature : wrong,
		body, text, sizeof(text));
	free(body);
	return status == expected[kind];
}

static bool send_commit(struct client *client)
{
	const char *address = keypair_address(client->keypair);
	char text[4096], *body = commit_body(address);
	double started = clock_elapsed();
	bool done = request(client->fd, "POST", "/commit_submission", address, client->signature, body, text,
			    sizeof(text)) == 200;

	if (done && client->committed < MOST_SAMPLES)
		client->latencies[client->committed] = (float)(clock_elapsed() - started);
	client->committed += done;
	free(body);
	return done;
}

static void *drive(void *argument)
{
	struct client *client = argument;
	double interval = load.rate > 0 ? load.connections / load.rate : 0, next = clock_elapsed();
	struct error err;

	if (interval) /* not all at once */
		next += interval * (double)randombytes_uniform(1000) / 1000;
	for (; clock_elapsed() < load.end; client->sent++, next += interval) {
		bool right;

		if (interval)
			clock_sleep(next - clock_elapsed(), &err);
		if (randombytes_uniform(MALFORMED_ONE_IN) == 0)
			right = send_malformed(client, client->malformed++);
		else
			right = send_commit(client);
		client->wrong += !right;
		if (!right) { /* whatever it was, go on with a fresh connection */
			close(client->fd);
			client->fd = open_connection();
		}
	}
	return NULL;
}

/* --- the result -------------------------------------------------------------------------------- */

static int by_value(const void *left, const void *right)
{
	float a = *(const float *)left, b = *(const float *)right;

	return (a > b) - (a < b);
}

static void print_latencies(const struct client *clients, size_t total)
{
	float *all = xcalloc(total, sizeof(*all));
	size_t count = 0;

	for (int i = 0; i < load.connections; i++) {
		size_t own = clients[i].committed < MOST_SAMPLES ? clients[i].committed : MOST_SAMPLES;

		memcpy(all + count, clients[i].latencies, own * sizeof(*all));
		count += own;
	}
	qsort(all, count, sizeof(*all), by_value);
	if (count)
		printf("latency   median %.1f ms, 99 %% %.1f ms, longest %.1f ms\n", all[count / 2] * 1e3,
			all[count * 99 / 100] * 1e3, all[count - 1] * 1e3);
	free(all);
}

static bool report(const struct client *clients, double seconds)
{
	size_t committed = 0, malformed = 0, wrong = 0;
	int64_t kept;

	for (int i = 0; i < load.connections; i++) {
		committed += clients[i].committed;
		malformed += clients[i].malformed;
		wrong += clients[i].wrong;
	}
	kill_service();
	start_service();
	kept = count_submissions();
	printf("commits   %zu in %.1f s: %.0f a second over %d connections\n", committed, seconds,
		(double)committed / seconds, load.connections);
	print_latencies(clients, committed);
	printf("malformed %zu, all refused as they should be: %s\n", malformed, wrong ? "no" : "yes");
	printf("wrong     %zu answers\n", wrong);
	printf("kept      %lld commits after kill -9, %lld lost\n", (long long)kept,
		(long long)committed - (long long)kept);
	return !wrong && kept == (int64_t)committed;
}

static void read_arguments(int argc, char **argv)
{
	if (argc < 2)
		die("usage: bench-localnet QUASAR [SECONDS [CONNECTIONS [RATE]]]");
	load.binary = argv[1];
	load.seconds = argc > 2 ? atof(argv[2]) : 10;
	load.connections = argc > 3 ? atoi(argv[3]) : 64;
	load.rate = argc > 4 ? atof(argv[4]) : 0;
	if (!(load.seconds > 0) || load.connections < 1 || load.connections > 10000)
		die("no such load");
}

int main(int argc, char **argv)
{
	struct client *clients;
	struct error err;
	double started;
	bool good;

	read_arguments(argc, argv);
	if (sodium_init() < 0)
		die("libsodium cannot start");
	strcpy(load.directory, "/tmp/quasar-bench.XXXXXX");
	if (!mkdtemp(load.directory))
		die("cannot make a directory");
	load.database = path_join(load.directory, "localnet.db");
	start_service();
	clients = xcalloc((size_t)load.connections, sizeof(*clients));
	for (int i = 0; i < load.connections; i++)
		register_client(&clients[i]);
	started = clock_elapsed();
	load.end = started + load.seconds;
	for (int i = 0; i < load.connections; i++)
		if (pthread_create(&clients[i].thread, NULL, drive, &clients[i]))
			die("cannot start a thread");
	for (int i = 0; i < load.connections; i++)
		pthread_join(clients[i].thread, NULL);
	good = report(clients, clock_elapsed() - started);
	kill_service();
	for (int i = 0; i < load.connections; i++) {
		close(clients[i].fd);
		keypair_free(clients[i].keypair);
		free(clients[i].latencies);
	}
	free(clients);
	free(load.database);
	directory_remove(load.directory, &err);
	return good ? 0 : 1;
}
