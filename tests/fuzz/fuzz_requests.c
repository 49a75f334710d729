/* Requests to the local validator, from the parsed head of the request on: routes, bodies, fields, handlers
 * and answers, like each version, on databases that forget them after each input.
 *
 * Input: requests, one after the other, each "METHOD PATH[?QUERY]", header lines, an empty line, and the body
 * in one line. They are signed by one miner, who is a validator, too, unless they have headers that
 * say something else. */
#include "fuzz.h"

#include <sodium.h>

#include "../../lib/net/server.c" /* its inner functions are what is under test */

#include "base/hex.h"
#include "key/keypair.h"
#include "key/ss58.h"
#include "validator/validator.h"

#define VERSIONS_MOST 8

static struct {
	const struct validator_version *version; /* the one at work */
	struct server *server;
	struct validator *validator;
	char hotkey[SS58_SIZE], signature[2 * SIGNATURE_LENGTH + 1];
	double now;
} local;

/* One for each version. */
static struct server *servers[VERSIONS_MOST];

static double read_now(void)
{
	return local.now;
}

/* stands in for libmicrohttpd's: there is no connection */
void MHD_suspend_connection(struct MHD_Connection *connection)
{
	(void)connection;
}

static void sign(void)
{
	static const uint8_t seed[SEED_LENGTH] = {1};
	uint8_t signature[SIGNATURE_LENGTH];
	struct error err = {0};
	struct keypair *keypair = keypair_from_seed(CRYPTO_SR25519, seed, &err);

	strcpy(local.hotkey, keypair_address(keypair));
	REQUIRE(keypair_sign(keypair, local.hotkey, strlen(local.hotkey), signature, &err) == 0);
	hex_encode(signature, sizeof(signature), local.signature);
	keypair_free(keypair);
}

static struct server *start(const struct validator_version *version)
{
	const struct validator_options options = {
		.version = version,
		.database = ":memory:",
		.block_seconds = 12,
		.blocks_until_reveal = 1,
		.rate_limit = 10,
		.validator_hotkeys = local.hotkey,
		.api_keys = "key",
		.now = read_now,
	};
	struct error err = {0};
	struct validator *validator = validator_open(&options, &err);

	REQUIRE(validator);
	return make_server(&(struct server_options){.routes = version->routes,
		.context = validator,
		.dialect = version->dialect,
		.body_limit = version->body_limit});
}

static void set_up(void)
{
	log_set_level(LOG_QUIET);
	REQUIRE(sodium_init() >= 0);
	sign();
	for (size_t i = 0; validator_versions[i].name; i++) {
		REQUIRE(i < VERSIONS_MOST);
		servers[i] = start(&validator_versions[i]);
		servers[i]->url = "http://127.0.0.1:8000";
	}
}

/* "a=1&b=2", as libmicrohttpd takes it apart. */
static cJSON *parse_query(char *query)
{
	cJSON *object = cJSON_CreateObject();
	char *next, *value;

	for (; query && *query; query = next) {
		next = strchr(query, '&');
		if (next)
			*next++ = '\0';
		value = strchr(query, '=');
		if (value) {
			*value++ = '\0';
			MHD_http_unescape(value);
		}
		MHD_http_unescape(query);
		collect(object, MHD_GET_ARGUMENT_KIND, query, value);
	}
	return object;
}

static cJSON *parse_headers(char **rest)
{
	cJSON *object = cJSON_CreateObject();
	char *line, *value;

	collect(object, MHD_HEADER_KIND, "Hotkey", local.hotkey);
	collect(object, MHD_HEADER_KIND, "Signature", local.signature);
	while (*(line = fuzz_line(rest))) {
		value = strchr(line, ':');
		if (value)
			*value++ = '\0';
		collect(object, MHD_HEADER_KIND, line, value ? value + strspn(value, " ") : NULL);
	}
	return object;
}

/* What leaves is JSON that the client reads. A strict server has no faults, and no other than those of the
 * version that it is like. */
static void require_answer(struct exchange *exchange)
{
	struct error err = {0};
	cJSON *document;

	if (!exchange->reply.text && !exchange->text)
		render(exchange);
	REQUIRE(exchange->reply.status >= 200);
	REQUIRE(exchange->reply.status < 500 || local.version->dialect.python_json);
	if (!exchange->reply.text) {
		document = json_parse(exchange->text, strlen(exchange->text), &err);
		REQUIRE(document && cJSON_IsObject(document));
		cJSON_Delete(document);
	}
	MHD_destroy_response(make_response(exchange));
}

/* The worker's part, in the transaction of the whole input. */
static void work_off(void)
{
	struct exchange *batch;
	size_t count;

	while (local.server->queue) {
		batch = take_batch(local.server, &count);
		handle_batch(local.server, batch, count);
	}
}

static void request(char **rest)
{
	char *method = fuzz_line(rest), *path = strchr(method, ' '), *query, *body;
	struct connection connection = {0};
	struct exchange exchange = {
		.server = local.server, .connection = &connection, .reply = {.status = 200}};

	if (path)
		*path++ = '\0';
	else
		path = method + strlen(method);
	query = strchr(path, '?');
	if (query)
		*query++ = '\0';
	MHD_http_unescape(path);
	exchange.request = (struct server_request){.method = method,
		.path = path,
		.client = "192.0.2.1",
		.query = parse_query(query),
		.headers = parse_headers(rest)};
	body = fuzz_line(rest);
	find_route(&exchange);
	receive(&exchange, body, strlen(body));
	if (dispatch(&exchange))
		work_off();
	require_answer(&exchange);
	local.now += 13; /* a block, and a bit */
	cJSON_Delete((cJSON *)exchange.request.headers);
	cJSON_Delete((cJSON *)exchange.request.query);
	cJSON_Delete((cJSON *)exchange.request.captures);
	cJSON_Delete((cJSON *)exchange.request.body);
	cJSON_Delete(exchange.reply.body);
	free(exchange.elsewhere);
	buffer_free(&exchange.received);
	release(&exchange, exchange.held);
	REQUIRE(local.server->held == 0);
}

/* All of an input's requests to one of the servers. */
static void serve(const uint8_t *data, size_t size)
{
	char *input = fuzz_string(data, size), *rest = input;
	struct error err = {0};

	local.now = 1700000000;
	REQUIRE(validator_transaction.begin(local.validator, &err) == 0);
	while (*rest)
		request(&rest);
	validator_transaction.rollback(local.validator);
	free(input);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!servers[0])
		set_up();
	for (size_t i = 0; validator_versions[i].name; i++) {
		local.version = &validator_versions[i];
		local.server = servers[i];
		local.validator = local.server->options.context;
		serve(data, size);
	}
	return 0;
}
