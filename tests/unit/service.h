/* A validator on a database of its own, with a clock that stands still, and requests to it. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "validator/validator.h"

#define START 1700000000.0
#define URL "https://github.com/alice/flash-linear-attention"

static double now;
static char directory[64], *database;
static struct validator *validator;
static struct validator_options options; /* what it is opened with */

static inline double read_now(void)
{
	return now;
}

/* Opens it, or opens it again, like a version; other options are kept. */
static inline void open_like(const char *name)
{
	struct error err = {0};

	validator_close(validator);
	options.version = validator_version(name);
	validator = validator_open(&options, &err);
	assert_string_equal(err.message, "");
	assert_non_null(validator);
}

/* With an empty database. */
static inline void open_anew(const char *name)
{
	validator_close(validator);
	validator = NULL;
	assert_int_equal(unlink(database), 0);
	open_like(name);
}

static inline int make_service(const char *name)
{
	strcpy(directory, "/tmp/quasar-validator-XXXXXX");
	if (!mkdtemp(directory))
		return -1;
	database = path_join(directory, "localnet.db");
	now = START;
	options = (struct validator_options){
		.database = database, .block_seconds = 12, .blocks_until_reveal = 100, .now = read_now};
	open_like(name);
	return 0;
}

static inline int remove_service(void **state)
{
	struct error err;

	(void)state;
	validator_close(validator);
	validator = NULL;
	free(database);
	return directory_remove(directory, &err);
}

static inline const struct server_route *find_route(const char *pattern)
{
	const struct server_route *route = options.version->routes;

	while (route->method && strcmp(route->pattern, pattern))
		route++;
	assert_non_null(route->method);
	return route;
}

static inline cJSON *parse(const char *text)
{
	struct error err = {0};
	cJSON *document = json_parse(text, strlen(text), &err);

	assert_string_equal(err.message, "");
	return document;
}

/* Calls a route as the server does, in a transaction of its own; `parameters` are those of query and path.
 * A text stands for an answer that is no JSON. The answer is to be freed with cJSON_Delete. */
static inline cJSON *call_from(const char *client, unsigned expected, const char *route, const char *hotkey,
	const char *parameters, const char *body)
{
	cJSON *values = parse(parameters ? parameters : "{}"), *document = body ? parse(body) : NULL;
	const struct server_request request = {
		.client = client,
		.identity = hotkey,
		.query = values,
		.captures = values,
		.body = document,
	};
	struct server_reply reply = {.status = 200};
	struct error err = {0};
	cJSON *answer;
	char *text;

	assert_int_equal(validator_transaction.begin(validator, &err), 0);
	assert_int_equal(find_route(route)->handle(&request, &reply, validator, &err), 0);
	assert_int_equal(validator_transaction.commit(validator, &err), 0);
	text = reply.text ? xprintf("\"%s\"", reply.text) : cJSON_PrintUnformatted(reply.body);
	if (reply.status != expected)
		fail_msg("%s answered %u: %s", route, reply.status, text);
	answer = parse(text);
	free(text);
	cJSON_Delete(reply.body);
	cJSON_Delete(values);
	cJSON_Delete(document);
	return answer;
}

static inline cJSON *call(unsigned expected, const char *route, const char *hotkey, const char *body)
{
	return call_from("192.0.2.1", expected, route, hotkey, NULL, body);
}

static inline const char *text_of(const cJSON *object, const char *name)
{
	const char *text = cJSON_GetStringValue(cJSON_GetObjectItem(object, name));

	assert_non_null(text);
	return text;
}

static inline double number_of(const cJSON *object, const char *name)
{
	const cJSON *item = cJSON_GetObjectItem(object, name);

	assert_true(cJSON_IsNumber(item));
	return item->valuedouble;
}

/* Expects a refusal whose detail begins with a text. */
static inline void refused(cJSON *answer, const char *detail)
{
	if (strncmp(text_of(answer, "detail"), detail, strlen(detail)))
		fail_msg("\"%s\" does not begin with \"%s\"", text_of(answer, "detail"), detail);
	cJSON_Delete(answer);
}
