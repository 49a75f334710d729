/* api: messages, refusals, the block clock, and what becomes of requests that go wrong */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "api/block.h"
#include "api/client.h"
#include "api/http.h"
#include "api/message.h"
#include "api/refusal.h"
#include "api/retry.h"
#include "api/standings.h"
#include "api/version.h"
#include "base/clock.h"
#include "base/hex.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "key/keypair.h"
#include "vectors.h"

static const char *string(const cJSON *item, const char *name)
{
	return cJSON_GetStringValue(cJSON_GetObjectItem(item, name));
}

/* --- messages --------------------------------------------------------------------------------- */

static void commitments_hash_the_text_of_the_salt(void **state)
{
	cJSON *document = read_vectors(VECTORS "commitment.json");
	const cJSON *item;

	(void)state;
	cJSON_ArrayForEach (item, document) {
		char hash[65];

		message_commitment_hash(string(item, "salt"), string(item, "data"), hash);
		assert_string_equal(hash, string(item, "sha256"));
		assert_true(message_salt_fits(string(item, "salt"), string(item, "data"), hash));
		hash[63] = hash[63] == '0' ? '1' : '0';
		assert_false(message_salt_fits(string(item, "salt"), string(item, "data"), hash));
		assert_false(message_salt_fits(NULL, string(item, "data"), hash));
		assert_false(message_salt_fits(string(item, "salt"), string(item, "data"), NULL));
	}
	cJSON_Delete(document);
}

static void salts_are_64_digits_and_differ(void **state)
{
	char first[65], second[65];

	(void)state;
	message_salt(first);
	message_salt(second);
	assert_int_equal(strspn(first, "0123456789abcdef"), 64);
	assert_string_not_equal(first, second);
}

static void submissions_are_signed_as_python_formats_them(void **state)
{
	cJSON *document = read_vectors(VECTORS "python_format.json");
	const cJSON *item;

	(void)state;
	cJSON_ArrayForEach (item, cJSON_GetObjectItem(document, "submissions")) {
		uint64_t bits = strtoull(string(item, "performance_hex"), NULL, 16);
		struct buffer text = {0};
		double performance;

		memcpy(&performance, &bits, sizeof(performance));
		message_submission_text(string(item, "fork_url"), string(item, "commit_hash"), performance,
			cJSON_GetObjectItem(item, "benchmarks"), string(item, "repo_hash"), &text);
		assert_string_equal(text.data, string(item, "signed_string"));
		buffer_free(&text);
	}
	cJSON_Delete(document);
}

/* --- words of others -------------------------------------------------------------------------- */

static void foreign_text_loses_what_could_steer_a_terminal(void **state)
{
	static const char *const cases[][2] = {
		{"plain ümläut ✓ 🚀", "plain ümläut ✓ 🚀"},
		{"\033[31mred\033[0m", "red"},
		{"\033]0;title\adone", "done"},
		{"\033]8;;http://x\033\\link", "link"},
		{"a\033", "a"},
		{"a\033[", "a"},
		{"a\033]never ended", "a"},
		{"two\r\nlines\tand", "two  lines and"},
		{"bell\a nul\x7f", "bell? nul?"},
		{"c1 \xc2\x9b"
		 "31m",
			"c1 ?31m"},
		{"\xe2\x80\xae"
		 "desrever",
			"?desrever"},
		{"bad \xff\xc3(\xe2\x82",
			"bad ?"
			"?(?"
			"?"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char *text = xstrdup(cases[i][0]);

		text_clean(text);
		assert_string_equal(text, cases[i][1]);
		free(text);
	}
}

static void check_detail(const char *body, const char *type, const char *expected)
{
	struct buffer bytes = {0};
	char detail[64];

	buffer_text(&bytes, body);
	refusal_read("POST /x", 400, type, &bytes, detail, sizeof(detail));
	assert_string_equal(detail, expected);
	buffer_free(&bytes);
}

static void refusals_keep_the_validators_words(void **state)
{
	(void)state;
	check_detail("{\"detail\":\"Hotkey mismatch\"}", "application/json", "Hotkey mismatch");
	check_detail("{\"detail\":\"a\\u001b[2Jb\\nc\"}", "application/json", "ab c");
	check_detail(
		"{\"detail\":[{\"loc\":[\"body\",\"tokens_per_sec\"],\"msg\":\"field required\"},"
		"{\"loc\":[\"body\",\"benchmarks\",3,\"x\"],\"msg\":\"bad\"},{\"loc\":[\"body\"],\"msg\":\"m\"}]}",
		"application/json", "tokens_per_sec: field required; benchmarks.3.x: bad; body: m");
	check_detail(
		"{\"detail\":[1,{},{\"msg\":7},{\"loc\":\"x\",\"msg\":\"m\"}]}", "application/json", "m");
	check_detail("{\"detail\":7}", "application/json", "");
	check_detail("Internal Server Error\nmore", "text/plain; charset=utf-8", "Internal Server Error");
	check_detail("<html>", "text/html", "");
	check_detail("", "", "");
	check_detail(
		"{\"detail\":\"0123456789012345678901234567890123456789012345678901234567890123456789\"}",
		"application/json", "012345678901234567890123456789012345678901234567890123456789012");
}

#define JSON "application/json"
#define WORDS(text) "{\"detail\":\"" text "\"}"

/* The validator's own words, where they belong, are a refusal; anything else leaves open what it would have said. */
static void refusals_say_what_to_do(void **state)
{
	static const struct {
		const char *route;
		int http_status;
		const char *type, *body;
		enum refusal refusal;
		enum status status;
		const char *hint;
	} cases[] = {
		{"POST /x", 401, JSON, WORDS("Invalid signature"), REFUSAL_SIGNATURE, STATUS_REFUSED,
			"sr25519"},
		{"POST /x", 401, JSON, WORDS("Missing Hotkey or Signature headers"), REFUSAL_SIGNATURE,
			STATUS_REFUSED, "proxy"},
		{"POST /x", 401, JSON, WORDS("Authentication error: no Keypair"), REFUSAL_UNCLEAR,
			STATUS_NETWORK, "later"},
		{"GET /pending_reveals", 401, JSON, WORDS("Missing Hotkey or Signature headers"),
			REFUSAL_NOT_FOR_US, STATUS_REFUSED, "validators only"},
		{"POST /x", 403, JSON, WORDS("Hotkey mismatch"), REFUSAL_HOTKEY, STATUS_REFUSED,
			"WALLET_HOTKEY"},
		{"POST /x", 403, JSON, WORDS("IP address banned: IP banned for 2.5 more hours"),
			REFUSAL_BANNED, STATUS_REFUSED,
			"ends in 2 h 30 min, on 2023-11-15 at about 00:43 UTC"},
		{"POST /x", 403, JSON, WORDS("IP address banned: for good"), REFUSAL_BANNED, STATUS_REFUSED,
			"24 hours"},
		{"POST /x", 403, "text/html", "<html>banned</html>", REFUSAL_UNCLEAR, STATUS_NETWORK,
			"later"},
		{"POST /x", 404, JSON, WORDS("Miner not registered"), REFUSAL_UNREGISTERED, STATUS_REFUSED,
			"quasar register"},
		{"POST /reveal_submission", 404, JSON, WORDS("Submission not found"), REFUSAL_UNKNOWN,
			STATUS_REFUSED, ""},
		{"POST /reveal_submission", 404, "text/plain", WORDS("Submission not found"), REFUSAL_UNCLEAR,
			STATUS_NETWORK, "later"},
		{"POST /commit_submission", 404, JSON, WORDS("Submission not found"), REFUSAL_UNCLEAR,
			STATUS_NETWORK, "later"},
		{"POST /x", 404, JSON, WORDS("Not Found"), REFUSAL_NO_ROUTE, STATUS_REFUSED,
			"VALIDATOR_API_URL"},
		{"POST /finalize_round/3", 404, JSON, WORDS("Round not found"), REFUSAL_UNKNOWN,
			STATUS_REFUSED, ""},
		{"POST /commit_submission", 409, JSON,
			WORDS("Commitment hash already exists. Use a different salt."), REFUSAL_EXISTS,
			STATUS_REFUSED, "quasar status"},
		{"POST /reveal_submission", 409, JSON, WORDS("Commitment hash already exists."),
			REFUSAL_UNCLEAR, STATUS_NETWORK, "later"},
		{"POST /x", 422, JSON, "{\"detail\":[{\"loc\":[\"body\",\"a\"],\"msg\":\"m\"}]}",
			REFUSAL_SCHEMA, STATUS_REFUSED, "version"},
		{"POST /x", 422, JSON, WORDS("no"), REFUSAL_UNCLEAR, STATUS_NETWORK, "later"},
		{"POST /x", 418, JSON, "", REFUSAL_UNCLEAR, STATUS_NETWORK, "VALIDATOR_API_URL"},
		{"POST /reveal_submission", 400, JSON,
			WORDS("Commitment verification failed. Hash mismatch."), REFUSAL_MISMATCH,
			STATUS_REFUSED, "five failures ban"},
		{"POST /register_miner", 400, JSON, WORDS("Invalid league"), REFUSAL_VALUE, STATUS_REFUSED,
			""},
		{"POST /reveal_submission", 425, JSON, WORDS("Cannot reveal yet. Wait 3 blocks"),
			REFUSAL_EARLY, STATUS_EARLY, "reveal --wait"},
		{"POST /x", 429, JSON, WORDS("Rate limit exceeded"), REFUSAL_LIMIT, STATUS_NETWORK,
			"Wait a minute"},
		{"POST /commit_submission", 429, JSON,
			WORDS("Rate limit exceeded. Please wait 287 seconds before submitting again."),
			REFUSAL_COOLDOWN, STATUS_NETWORK, "Nothing is lost"},
		{"POST /x", 429, "text/html", "please wait 9 seconds", REFUSAL_LIMIT, STATUS_NETWORK, ""},
		{"POST /x", 401, JSON, WORDS("Signature expired (130s old, max 120s)"), REFUSAL_EXPIRED,
			STATUS_REFUSED, "clock"},
		{"GET /pending_reveals", 403, JSON, WORDS("Hotkey is not an authorized validator. No."),
			REFUSAL_NOT_FOR_US, STATUS_REFUSED, "validators only"},
		{"GET /dashboard/miner/5F", 401, JSON, WORDS("Invalid API key"), REFUSAL_KEY, STATUS_REFUSED,
			"DASHBOARD_API_KEY"},
		{"GET /dashboard/miner/5F", 404, JSON, WORDS("Miner not found"), REFUSAL_UNKNOWN,
			STATUS_REFUSED, ""},
		{"POST /x", 403, JSON, WORDS("Miner flagged: over-claim"), REFUSAL_FLAGGED, STATUS_REFUSED,
			"operator"},
		{"POST /x", 403, JSON, WORDS("GitHub account alice belongs to another hotkey"),
			REFUSAL_SHARED, STATUS_REFUSED, "quasar doctor"},
		{"POST /x", 403, JSON, WORDS("IP address 192.0.2.1 belongs to another hotkey"),
			REFUSAL_SHARED, STATUS_REFUSED, "public address"},
		{"POST /submit_kernel", 400, JSON, WORDS("tokens_per_sec must be a positive number."),
			REFUSAL_VALUE, STATUS_REFUSED, ""},
		{"POST /submit_kernel", 400, JSON, WORDS("5e+08 outside plausible range"), REFUSAL_VALUE,
			STATUS_REFUSED, ""},
		{"POST /x", 500, JSON, "", REFUSAL_INTERNAL, STATUS_NETWORK, "later"},
		{"POST /x", 520, "text/html", "", REFUSAL_DOWN, STATUS_NETWORK, "later"},
		{"POST /x", 304, "", "", REFUSAL_UNCLEAR, STATUS_NETWORK, ""},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct buffer body = {0};
		struct error err = {0};
		char code[16], detail[128];
		enum refusal refusal;

		buffer_text(&body, cases[i].body);
		refusal = refusal_read(
			cases[i].route, cases[i].http_status, cases[i].type, &body, detail, sizeof(detail));
		assert_int_equal(refusal, cases[i].refusal);
		assert_int_equal(refusal_error(cases[i].route, cases[i].http_status, refusal, detail,
					 1700000000, &err),
			-1);
		assert_int_equal(err.status, cases[i].status);
		assert_non_null(strstr(err.message, detail));
		snprintf(code, sizeof(code), "HTTP %d", cases[i].http_status);
		assert_non_null(strstr(err.message, code));
		assert_non_null(strstr(err.hint, cases[i].hint));
		buffer_free(&body);
	}
	assert_int_equal(refusal_blocks("Cannot reveal yet. Wait 37 blocks (~7 minutes)"), 37);
	assert_int_equal(refusal_blocks("Cannot reveal yet. Wait -3 blocks"), 0);
	assert_int_equal(refusal_blocks("Cannot reveal yet. Wait a minute"), 0);
	assert_true(refusal_seconds("Please wait 287 seconds before submitting again.") == 287);
	assert_true(refusal_seconds("Please wait 287 blocks") == 0);
	assert_true(refusal_seconds("Please wait -3 seconds") == 0);
}

static void base_urls_are_checked(void **state)
{
	static const struct {
		const char *url, *base;
		bool plain, local;
	} good[] = {
		{"http://localhost:8000", "http://localhost:8000", false, true},
		{"http://127.0.0.1:8000/", "http://127.0.0.1:8000", false, true},
		{"http://[::1]:1/", "http://[::1]:1", false, true},
		{"https://LOCALHOST/api", "https://LOCALHOST/api", false, true},
		{"https://validator.example/api//", "https://validator.example/api", false, false},
		{"https://localhost.example/127.0.0.1", "https://localhost.example/127.0.0.1", false, false},
		{"http://validator.example", "http://validator.example", true, false},
		{"http://127.0.0.1.example", "http://127.0.0.1.example", true, false},
	};
	struct error err = {0};
	bool plain;

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		char *base = http_check_base(good[i].url, &plain, &err);

		assert_string_equal(base, good[i].base);
		assert_int_equal(plain, good[i].plain);
		assert_int_equal(http_is_this_machine(base), good[i].local);
		free(base);
	}
	for (const char *const *bad = (const char *const[]){"", "localhost:8000", "ftp://host",
		     "file:///etc/passwd", "http://", "http://user:secret@host", "http://@host",
		     "http://host/?a=b", "http://host/#x", "http://host:99999", NULL};
		*bad; bad++) {
		assert_null(http_check_base(*bad, &plain, &err));
		assert_int_equal(err.status, STATUS_USAGE);
		assert_null(strstr(err.message, "secret"));
	}
}

/* --- blocks and retries ----------------------------------------------------------------------- */

static void blocks_are_twelve_seconds_unless_seen_otherwise(void **state)
{
	struct block_clock clock = {0};

	(void)state;
	assert_int_equal(block_at(1609459200), 0);
	assert_int_equal(block_at(1609459211.99), 0);
	assert_int_equal(block_at(1609459212), 1);
	assert_int_equal(block_at(1609459199), -1);

	block_clock_observe(&clock, 1000, 50);
	assert_true(block_clock_length(&clock) == 12);
	assert_true(block_clock_until(&clock, 1002, 60) == 14);
	assert_true(block_clock_until(&clock, 1000, 60) == 0);
	block_clock_observe(&clock, 1001, 55); /* 5 s later, but a boundary may lie between */
	assert_true(block_clock_length(&clock) == 12);
	block_clock_observe(&clock, 1010, 60); /* ten in ten seconds: a fast chain */
	assert_true(block_clock_length(&clock) == 1);
	assert_true(block_clock_until(&clock, 1015, 62) == 3);
	block_clock_observe(&clock, 1010, 63); /* nothing new */
	assert_true(block_clock_until(&clock, 1015, 63) == 2);
	block_clock_observe(&clock, 7, 70); /* another chain */
	assert_true(block_clock_length(&clock) == 12);
}

static void the_count_of_blocks_tells_how_long_they_are(void **state)
{
	double age = clock_now() - BLOCK_GENESIS;

	(void)state;
	for (const double *seconds = (const double[]){0.2, 1, 11, 0}; *seconds; seconds++) {
		struct block_clock clock = {0};

		block_clock_observe(&clock, (int64_t)(age / *seconds), 50);
		assert_true(fabs(block_clock_length(&clock) - *seconds) < 1e-6);
		assert_true(fabs(block_clock_until(&clock, clock.last + 10, 50) - 10 * *seconds) < 1e-5);
	}
	for (const double *seconds = (const double[]){12, 13, 1e6, 0}; *seconds; seconds++) {
		struct block_clock clock = {0};

		block_clock_observe(&clock, (int64_t)(age / *seconds), 50);
		assert_true(block_clock_length(&clock) == 12);
	}
}

static void retries_end_when_the_time_is_up(void **state)
{
	struct error err = {.status = STATUS_NETWORK, .message = "it failed"};
	struct retry retry;

	(void)state;
	retry_begin(&retry, 0.2);
	while (retry_wait(&retry, 0, &err) == 0)
		assert_true(retry.failures < 1000);
	assert_non_null(strstr(err.message, "it failed (gave up after "));
	assert_int_equal(err.status, STATUS_NETWORK);

	retry_begin(&retry, 10);
	error_set(&err, STATUS_NETWORK, "busy");
	assert_int_equal(retry_wait(&retry, 60, &err), -1);
	assert_non_null(strstr(err.message, "asks to wait 1 min 00 s"));
	assert_true(retry_left(&retry) > 9);
}

/* --- a server that does as it is told --------------------------------------------------------- */

#define ANSWERS 12

struct answer {
	const char *bytes; /* NULL: hang up without a word */
	bool keep;         /* leave the connection open */
};

struct server {
	int listening, kept;
	struct answer answers[ANSWERS];
	char requests[ANSWERS][4096];
	int count; /* requests that arrived */
	char url[64];
	pthread_t thread;
};

static bool read_request(int peer, char request[4096])
{
	size_t used = 0, body = 0;
	char *end = NULL, *length;

	while (!end || used < (size_t)(end - request) + 4 + body) {
		ssize_t got = recv(peer, request + used, 4095 - used, 0);

		if (got <= 0)
			return false;
		used += (size_t)got;
		request[used] = '\0';
		end = strstr(request, "\r\n\r\n");
		length = strcasestr(request, "content-length:");
		body = length ? strtoul(length + 15, NULL, 10) : 0;
	}
	return true;
}

/* The connection on which something arrives next, or -1 when the test is over. */
static int next_peer(struct server *server)
{
	struct pollfd fds[2] = {{server->listening, POLLIN, 0}, {server->kept, POLLIN, 0}};
	int peer;

	poll(fds, server->kept >= 0 ? 2 : 1, -1);
	if (server->kept >= 0 && fds[1].revents) {
		peer = server->kept;
		server->kept = -1;
		return peer;
	}
	return accept(server->listening, NULL, NULL);
}

static void *serve(void *context)
{
	struct server *server = context;
	int peer;

	while ((peer = next_peer(server)) >= 0) {
		const struct answer *answer = &server->answers[server->count];

		if (server->count == ANSWERS || !read_request(peer, server->requests[server->count])) {
			close(peer);
			continue;
		}
		server->count++;
		if (answer->bytes && send(peer, answer->bytes, strlen(answer->bytes), MSG_NOSIGNAL) < 0)
			perror("send");
		if (answer->keep)
			server->kept = peer;
		else
			close(peer);
	}
	return NULL;
}

static void server_start(struct server *server)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof(address);

	server->kept = -1;
	server->count = 0;
	server->listening = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(bind(server->listening, (struct sockaddr *)&address, size), 0);
	assert_int_equal(listen(server->listening, 8), 0);
	assert_int_equal(getsockname(server->listening, (struct sockaddr *)&address, &size), 0);
	snprintf(server->url, sizeof(server->url), "http://127.0.0.1:%d", ntohs(address.sin_port));
	assert_int_equal(pthread_create(&server->thread, NULL, serve, server), 0);
}

static void server_stop(struct server *server)
{
	shutdown(server->listening, SHUT_RDWR); /* ends accept() */
	pthread_join(server->thread, NULL);
	close(server->listening);
	if (server->kept >= 0)
		close(server->kept);
}

#define OK_JSON(body) "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n" body
#define HASH "eac8775a3fbbd8007119748d902c25ad96026c57ef35d47c7cb68565b79e02c9"
#define COMMITTED(hash)                                                                                      \
	OK_JSON("{\"submission_id\":3,\"commitment_hash\":\"" hash "\",\"reveal_block\":5,"                  \
		"\"estimated_reveal_time\":\"2026-11-20T18:14:00.5\",\"message\":\"m\"}")

struct fixture {
	struct server server;
	struct keypair *keypair;
	struct api *api;
	struct error err;
};

static int set_up(void **state)
{
	struct fixture *fixture = xcalloc(1, sizeof(*fixture));

	log_set_level(LOG_QUIET);
	fixture->keypair = keypair_from_text(CRYPTO_SR25519,
		"unlock reward sponsor loud pause bus okay popular maid minimum essay paper", &fixture->err);
	assert_non_null(fixture->keypair);
	*state = fixture;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *fixture = *state;

	api_close(fixture->api);
	if (fixture->server.url[0])
		server_stop(&fixture->server);
	keypair_free(fixture->keypair);
	free(fixture);
	return 0;
}

/* Starts the server with the answers and opens the API; `answers` ends with an empty one. */
static void script(struct fixture *fixture, const struct answer *answers)
{
	for (int i = 0; i < ANSWERS && (answers[i].bytes || answers[i].keep); i++)
		fixture->server.answers[i] = answers[i];
	server_start(&fixture->server);
	fixture->api = api_open(fixture->server.url, fixture->keypair, 5, &fixture->err);
	assert_non_null(fixture->api);
	api_set_network(fixture->api, "test");
}

static int commit(struct fixture *fixture)
{
	struct api_commitment commitment;
	int result = api_commit_submission(fixture->api, HASH, 100000, &commitment, &fixture->err);

	if (!result) {
		assert_int_equal(commitment.submission_id, 3);
		assert_int_equal(commitment.reveal_block, 5);
		assert_true(commitment.estimated_reveal_time == 1795198440.5);
	}
	api_release(&commitment.memory);
	return result;
}

static void a_commitment_carries_the_hotkeys_signature(void **state)
{
	struct fixture *fixture = *state;
	const char *address = keypair_address(fixture->keypair), *request = fixture->server.requests[0];
	uint8_t signature[SIGNATURE_LENGTH];
	char header[96], digits[129];

	script(fixture, (const struct answer[]){{COMMITTED(HASH), false}, {0}});
	assert_int_equal(commit(fixture), 0);
	assert_int_equal(api_last(fixture->api)->delivery, API_DONE);
	assert_non_null(strstr(request, "POST /commit_submission HTTP/1.1\r\n"));
	assert_non_null(strstr(request, "\r\nUser-Agent: quasar/"));
	snprintf(header, sizeof(header), "\r\nHotkey: %s\r\n", address);
	assert_non_null(strstr(request, header));
	assert_int_equal(sscanf(strstr(request, "Signature: "), "Signature: %128[0-9a-f]\r", digits), 1);
	assert_int_equal(hex_decode(digits, signature, sizeof(signature)), 0);
	assert_true(signature_verify(address, CRYPTO_SR25519, address, strlen(address), signature));
}

#define ROUTES(route)                                                                                        \
	"HTTP/1.1 200 OK\r\nConnection: close\r\nDate: Thu, 01 Jan 2032 00:00:00 GMT\r\n"                    \
	"Content-Type: application/json\r\n\r\n{\"paths\":{\"" route "\":{}}}"
#define REFUSED(status, words)                                                                               \
	"HTTP/1.1 " status " No\r\nConnection: close\r\nContent-Type: application/json\r\n\r\n"              \
	"{\"detail\":\"" words "\"}"

static void a_signature_covers_the_validators_time_where_it_may(void **state)
{
	struct fixture *fixture = *state;
	const char *address = keypair_address(fixture->keypair), *request = fixture->server.requests[1];
	uint8_t signature[SIGNATURE_LENGTH];
	char digits[129], *identity;
	long long time;

	script(fixture,
		(const struct answer[]){
			{ROUTES("/get_pending_validations"), false}, {COMMITTED(HASH), false}, {0}});
	api_follow_version(fixture->api, NULL);
	assert_int_equal(commit(fixture), 0);
	assert_string_equal(api_version_if_found(fixture->api)->name, "2026-04");
	assert_int_equal(sscanf(strstr(request, "Timestamp: "), "Timestamp: %lld\r", &time), 1);
	assert_true(llabs(time - 1956528000) <= 5);
	assert_int_equal(sscanf(strstr(request, "Signature: "), "Signature: %128[0-9a-f]\r", digits), 1);
	assert_int_equal(hex_decode(digits, signature, sizeof(signature)), 0);
	identity = xprintf("%s:%lld", address, time);
	assert_true(signature_verify(address, CRYPTO_SR25519, identity, strlen(identity), signature));
	free(identity);
}

static void a_version_that_an_answer_contradicts_is_found_out_anew(void **state)
{
	struct fixture *fixture = *state;

	script(fixture,
		(const struct answer[]){{REFUSED("401", "Invalid signature"), false},
			{ROUTES("/commit_submission"), false}, {COMMITTED(HASH), false}, {0}});
	api_follow_version(fixture->api, api_version_named("2026-04"));
	assert_int_equal(commit(fixture), 0); /* nothing was done when it was refused */
	assert_non_null(strstr(fixture->server.requests[0], "Timestamp: "));
	assert_non_null(strstr(fixture->server.requests[0], "\"network\":\"test\""));
	assert_null(strstr(fixture->server.requests[2], "Timestamp: "));
	assert_string_equal(api_version(fixture->api)->name, "2026-02");
}

/* The validator would take it for finney's. */
static void nothing_is_sent_to_a_network_that_nobody_chose(void **state)
{
	struct fixture *fixture = *state;
	struct api_registration registration;
	struct api_claim claim = {.fork_url = "u", .commit_hash = "c", .tokens_per_sec = 1, .vram_mb = NAN};
	int64_t id;

	script(fixture, (const struct answer[]){{COMMITTED(HASH), false}, {0}});
	api_force_version(fixture->api, api_version_named("2026-04"));
	api_set_network(fixture->api, NULL);
	assert_int_equal(commit(fixture), -1);
	assert_int_equal(fixture->err.status, STATUS_USAGE);
	assert_non_null(strstr(fixture->err.message, "SUBTENSOR_NETWORK"));
	assert_int_equal(api_last(fixture->api)->delivery, API_NOT_SENT);
	assert_int_equal(api_submit_kernel(fixture->api, &claim, 1, NULL, &id, &fixture->err), -1);
	assert_int_equal(api_register_miner(fixture->api, "m", "1M", &registration, &fixture->err), -1);
	api_release(&registration.memory);
	assert_int_equal(fixture->server.count, 0);
	api_force_version(fixture->api, api_version_named("2026-02")); /* which knows of no networks */
	assert_int_equal(commit(fixture), 0);
	assert_null(strstr(fixture->server.requests[0], "network"));
}

static void a_wrong_signature_stays_one(void **state)
{
	struct fixture *fixture = *state;

	script(fixture,
		(const struct answer[]){{REFUSED("401", "Invalid signature"), false},
			{ROUTES("/get_pending_validations"), false}, {0}});
	api_follow_version(fixture->api, api_version_named("2026-04"));
	assert_int_equal(commit(fixture), -1);
	assert_int_equal(api_last(fixture->api)->refusal, REFUSAL_SIGNATURE);
	assert_int_equal(fixture->server.count, 2);
}

static void lists_that_miners_are_not_shown_are_not_asked_for(void **state)
{
	struct fixture *fixture = *state;
	struct api_pending_filter filter = {.hotkey = "5F"};
	struct api_pending_reveals pending;

	script(fixture,
		(const struct answer[]){{REFUSED("401", "Missing Hotkey or Signature headers"), false},
			{"HTTP/1.1 404 No\r\nConnection: close\r\n\r\n", false},
			{REFUSED("401", "Missing Hotkey or Signature headers"), false}, {0}});
	api_follow_version(fixture->api, NULL);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(api_pending_reveals(fixture->api, &filter, &pending, &fixture->err), -1);
		assert_int_equal(api_last(fixture->api)->refusal, REFUSAL_NOT_FOR_US);
		assert_non_null(strstr(fixture->err.message, "not shown to miners"));
		api_release(&pending.memory);
	}
	assert_int_equal(fixture->server.count, 3);
	assert_string_equal(api_version(fixture->api)->name, "2026-04");
}

static void a_forced_version_is_not_asked_for(void **state)
{
	struct fixture *fixture = *state;

	script(fixture, (const struct answer[]){{COMMITTED(HASH), false}, {0}});
	api_force_version(fixture->api, api_version_named("2026-02"));
	api_follow_version(fixture->api, api_version_named("2026-04"));
	assert_int_equal(commit(fixture), 0);
	assert_int_equal(fixture->server.count, 1);
	assert_null(api_version_named("2031-01"));
}

static void a_lost_answer_is_told_from_a_request_that_never_left(void **state)
{
	struct fixture *fixture = *state;

	script(fixture, (const struct answer[]){{0}});
	assert_int_equal(commit(fixture), -1);
	assert_int_equal(fixture->err.status, STATUS_NETWORK);
	assert_int_equal(api_last(fixture->api)->delivery, API_UNKNOWN);
	assert_true(api_last(fixture->api)->transient);
	assert_int_equal(fixture->server.count, 1);

	server_stop(&fixture->server);
	fixture->server.url[0] = '\0';
	assert_int_equal(commit(fixture), -1);
	assert_int_equal(fixture->err.status, STATUS_NETWORK);
	assert_int_equal(api_last(fixture->api)->delivery, API_NOT_SENT);
	assert_false(api_last(fixture->api)->transient); /* nobody listens on this machine */
}

/* libcurl by itself repeats a request when a kept connection dies under it */
static void a_kept_connection_that_dies_does_not_double_a_commitment(void **state)
{
	struct fixture *fixture = *state;

	script(fixture,
		(const struct answer[]){
			{"HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n{\"status\":\"ok\"}", true}, {0}});
	assert_int_equal(api_health(fixture->api, &fixture->err), 0);
	assert_int_equal(commit(fixture), -1);
	assert_int_equal(api_last(fixture->api)->delivery, API_UNKNOWN);
	assert_int_equal(fixture->server.count, 2);
}

#define SAYS(body) "Content-Type: application/json\r\nConnection: close\r\n\r\n" body

static void what_the_validator_said_decides_what_is_known(void **state)
{
	static const struct {
		const char *answer;
		enum status status;
		enum api_delivery delivery;
		int http_status;
		bool transient;
	} cases[] = {
		{"HTTP/1.1 409 Conflict\r\n" SAYS(WORDS("Commitment hash already exists.")), STATUS_REFUSED,
			API_REFUSED, 409, false},
		{"HTTP/1.1 404 Not Found\r\n" SAYS(WORDS("Miner not registered")), STATUS_REFUSED,
			API_REFUSED, 404, false},
		{"HTTP/1.1 404 Not Found\r\n" SAYS(WORDS("No such thing")), STATUS_NETWORK, API_UNKNOWN, 404,
			false},
		{"HTTP/1.1 404 Not Found\r\nConnection: close\r\n\r\n<html>", STATUS_NETWORK, API_UNKNOWN,
			404, false},
		{"HTTP/1.1 429 Slow\r\nRetry-After: 7\r\nConnection: close\r\n\r\n", STATUS_NETWORK,
			API_UNKNOWN, 429, true},
		{"HTTP/1.1 503 Busy\r\nConnection: close\r\n\r\n", STATUS_NETWORK, API_UNKNOWN, 503, true},
		{OK_JSON("{}"), STATUS_NETWORK, API_UNKNOWN, 200, false},
		{OK_JSON("nonsense"), STATUS_NETWORK, API_UNKNOWN, 200, false},
		{COMMITTED("0000"), STATUS_NETWORK, API_UNKNOWN, 200, false},
	};
	struct fixture *fixture = *state;
	struct answer answers[ANSWERS] = {{0}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		answers[i].bytes = cases[i].answer;
	script(fixture, answers);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct api_exchange *last;

		assert_int_equal(commit(fixture), -1);
		last = api_last(fixture->api);
		assert_int_equal(fixture->err.status, cases[i].status);
		assert_int_equal(last->delivery, cases[i].delivery);
		assert_int_equal(last->http_status, cases[i].http_status);
		assert_int_equal(last->transient, cases[i].transient);
		assert_true(last->retry_after == (cases[i].http_status == 429 ? 7 : 0));
		assert_int_equal(fixture->server.count, i + 1);
	}
}

static void reads_are_repeated(void **state)
{
	struct fixture *fixture = *state;

	script(fixture,
		(const struct answer[]){{"HTTP/1.1 503 Busy\r\nConnection: close\r\n\r\n", false},
			{"HTTP/1.1 429 Slow\r\nConnection: close\r\n\r\n", false},
			{OK_JSON("{\"status\":\"ok\"}"), false}, {0}});
	assert_int_equal(api_health(fixture->api, &fixture->err), 0);
	assert_int_equal(fixture->server.count, 3);
}

#define PENDING(id, hotkey)                                                                                  \
	"{\"submission_id\":" id ",\"miner_hotkey\":\"" hotkey                                               \
	"\",\"commitment_hash\":\"eac8775a3fbbd800...\","                                                    \
	"\"reveal_block\":100,\"blocks_remaining\":23,\"can_reveal\":false,\"created_at\":\"2026-11-20T18:14:00\"}"

static void a_pending_commitment_is_found_by_hotkey_and_prefix(void **state)
{
	struct fixture *fixture = *state;
	struct api_pending_reveals pending;
	const int64_t ids[] = {5};
	const struct api_pending_filter filter = {"5A", ids, 1};

	script(fixture,
		(const struct answer[]){{OK_JSON("{\"current_block\":77,\"pending_reveals\":[" PENDING(
						 "3", "5A") "," PENDING("4", "5B") "," PENDING("5",
						 "5B") "," PENDING("0", "5A") ",{\"submission_id\":7}]}"),
						false},
			{0}});
	assert_int_equal(api_pending_reveals(fixture->api, &filter, &pending, &fixture->err), 0);
	assert_int_equal(pending.current_block, 77);
	assert_int_equal(pending.count, 2);
	assert_int_equal(pending.skipped, 2);
	assert_int_equal(pending.reveals[1].submission_id, 5);
	assert_int_equal(pending.reveals[0].reveal_block, 100);
	assert_false(pending.reveals[0].can_reveal);
	assert_true(api_pending_matches(&pending.reveals[0], "5A", HASH));
	assert_false(api_pending_matches(&pending.reveals[0], "5B", HASH));
	assert_false(api_pending_matches(&pending.reveals[0], "5A", "e" HASH));
	assert_false(api_pending_matches(&pending.reveals[0], "5A",
		"eac8775a3fbbd801119748d902c25ad96026c57ef35d47c7cb68565b79e02c90"));
	api_release(&pending.memory);
}

static void the_servers_clock_is_known_from_its_date(void **state)
{
	struct fixture *fixture = *state;

	script(fixture,
		(const struct answer[]){{"HTTP/1.1 200 OK\r\nDate: Tue, 14 Nov 2023 22:13:20 GMT\r\n"
					 "Connection: close\r\n\r\n{\"status\":\"ok\"}",
						false},
			{0}});
	assert_true(api_clock_skew(fixture->api) == 0);
	assert_int_equal(api_health(fixture->api, &fixture->err), 0);
	assert_true(fabs(clock_now() + api_clock_skew(fixture->api) - 1700000000) < 5);
	assert_in_range(api_block(fixture->api), block_at(1700000000), block_at(1700000012));
}

static void a_date_is_cut_to_seconds_and_may_be_as_old(void **state)
{
	const char *date = "Tue, 14 Nov 2023 22:13:20 GMT";
	const double then = 1700000000;

	(void)state;
	assert_true(http_clock_skew(date, then + 0.2, then + 0.4) == 0);
	assert_true(http_clock_skew(date, then - 0.1, then) == 0);
	assert_true(http_clock_skew(date, then + 1.003, then + 1.004) == 0); /* a coarse clock's */
	assert_true(http_clock_skew(date, then + 1.99, then + 2) == 0);      /* renewed once a second */
	assert_true(http_clock_skew(date, then - 0.2, then - 0.1) > 0);
	assert_true(http_clock_skew(date, then + 2.5, then + 2.6) < 0);
	assert_true(fabs(http_clock_skew(date, then + 3600, then + 3601) + 3600) < 2);
	assert_true(isnan(http_clock_skew(NULL, then, then)));
	assert_true(isnan(http_clock_skew("yesterday", then, then)));
}

#define ROUND(start)                                                                                         \
	"HTTP/1.1 200 OK\r\nDate: Tue, 14 Nov 2023 22:13:20 GMT\r\nConnection: close\r\n\r\n"                \
	"{\"id\":1,\"round_number\":1,\"status\":\"active\",\"start_time\":\"2023-11-14T" start              \
	"\",\"end_time\":\"2023-11-16T22:00:00\",\"time_remaining_seconds\":9,\"total_submissions\":0}"

/* What is handed in next is of that round, though a Date tells less than its beginning does. */
static void nothing_happens_before_the_round_that_was_told(void **state)
{
	struct fixture *fixture = *state;
	struct api_round round;

	script(fixture,
		(const struct answer[]){{ROUND("22:13:23.75"), false}, {ROUND("23:13:20"), false}, {0}});
	assert_int_equal(api_current_round(fixture->api, &round, &fixture->err), 0);
	assert_true(api_now(fixture->api) == 1700000003.75);
	api_release(&round.memory);
	assert_int_equal(api_current_round(fixture->api, &round, &fixture->err), 0);
	assert_true(
		fabs(api_now(fixture->api) - 1700000000) < 5); /* an hour from now is no news of the clock */
	api_release(&round.memory);
}

#define SUBMISSION(id, fork, length, speed, when)                                                            \
	"{\"id\":" id ",\"miner_hotkey\":\"5A\",\"fork_url\":" fork ",\"commit_hash\":" fork                 \
	",\"repo_hash\":null,\"target_sequence_length\":" length ",\"tokens_per_sec\":" speed                \
	",\"vram_mb\":null,\"benchmarks\":null,\"validated\":false,\"created_at\":\"" when "\"}"

static void standings_rank_what_is_revealed(void **state)
{
	struct fixture *fixture = *state;
	struct standings standings = {0};

	script(fixture,
		(const struct answer[]){
			{OK_JSON("{\"total_submissions\":9,\"recent_submissions\":[" SUBMISSION(
				 "5", "null", "1000000", "0.0", "2026-11-20T10:00:00") "," SUBMISSION("4",
				 "\"u\"", "100000", "600.0",
				 "2026-11-20T11:00:00") "," SUBMISSION("3", "\"u\"", "1000000", "100.0",
				 "2026-11-20T10:00:00") "],\"stats\":{\"avg_tokens_per_sec\":1,\"max_tokens_per_sec\":2,"
							"\"min_tokens_per_sec\":0,\"total_submissions\":9},\"top_performers\":[" SUBMISSION(
								"4", "null", "100000", "600.0",
								"2026-11-20T11:00:00") "," SUBMISSION("2",
								"null", "300000", "400.0",
								"2026-11-20T11:00:00") "," SUBMISSION("5",
								"null", "1000000", "0",
								"2026-11-20T11:00:00") "]}"),
				false},
			{0}});
	standings_free(&standings);
	assert_int_equal(standings_read(fixture->api, &standings, &fixture->err), 0);
	assert_int_equal(standings.count, 3);
	assert_int_equal(standings.unrevealed, 1);
	assert_int_equal(standings_rank(&standings, 2), 1);
	assert_int_equal(standings_rank(&standings, 3), 2); /* as much as 4, and earlier */
	assert_int_equal(standings_rank(&standings, 4), 3);
	assert_int_equal(standings_rank(&standings, 5), 0);
	assert_string_equal(standing_state_name(standings.ranked[0].state), "validated");
	assert_string_equal(standing_state_name(standings.ranked[1].state), "waiting");
	standings_free(&standings);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(commitments_hash_the_text_of_the_salt),
		cmocka_unit_test(salts_are_64_digits_and_differ),
		cmocka_unit_test(submissions_are_signed_as_python_formats_them),
		cmocka_unit_test(foreign_text_loses_what_could_steer_a_terminal),
		cmocka_unit_test(refusals_keep_the_validators_words),
		cmocka_unit_test(refusals_say_what_to_do),
		cmocka_unit_test(base_urls_are_checked),
		cmocka_unit_test(blocks_are_twelve_seconds_unless_seen_otherwise),
		cmocka_unit_test(the_count_of_blocks_tells_how_long_they_are),
		cmocka_unit_test(retries_end_when_the_time_is_up),
		cmocka_unit_test_setup_teardown(
			a_commitment_carries_the_hotkeys_signature, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			a_signature_covers_the_validators_time_where_it_may, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			a_version_that_an_answer_contradicts_is_found_out_anew, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			nothing_is_sent_to_a_network_that_nobody_chose, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_wrong_signature_stays_one, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			lists_that_miners_are_not_shown_are_not_asked_for, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_forced_version_is_not_asked_for, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			a_lost_answer_is_told_from_a_request_that_never_left, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			a_kept_connection_that_dies_does_not_double_a_commitment, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			what_the_validator_said_decides_what_is_known, set_up, tear_down),
		cmocka_unit_test_setup_teardown(reads_are_repeated, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			a_pending_commitment_is_found_by_hotkey_and_prefix, set_up, tear_down),
		cmocka_unit_test_setup_teardown(the_servers_clock_is_known_from_its_date, set_up, tear_down),
		cmocka_unit_test(a_date_is_cut_to_seconds_and_may_be_as_old),
		cmocka_unit_test_setup_teardown(
			nothing_happens_before_the_round_that_was_told, set_up, tear_down),
		cmocka_unit_test_setup_teardown(standings_rank_what_is_revealed, set_up, tear_down),
	};

	return sodium_init() < 0 ? 1 : cmocka_run_group_tests_name("api", tests, NULL, NULL);
}
