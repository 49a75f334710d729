/* /openapi.json: which routes there are, by the table that they are served from. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "validator/state.h"

/* The {names} of a pattern. */
static void add_parameters(cJSON *operation, const char *pattern)
{
	cJSON *list = NULL;

	for (const char *at = strchr(pattern, '{'); at; at = strchr(at + 1, '{')) {
		char *name = xprintf("%.*s", (int)strcspn(at + 1, "}"), at + 1);
		cJSON *parameter = cJSON_CreateObject();

		if (!list)
			list = cJSON_AddArrayToObject(operation, "parameters");
		cJSON_AddItemToArray(list, parameter);
		cJSON_AddStringToObject(parameter, "name", name);
		cJSON_AddStringToObject(parameter, "in", "path");
		cJSON_AddBoolToObject(parameter, "required", true);
		cJSON_AddObjectToObject(parameter, "schema");
		free(name);
	}
}

static void add_route(cJSON *paths, const struct server_route *route)
{
	cJSON *path = cJSON_GetObjectItemCaseSensitive(paths, route->pattern), *operation, *answer;
	char *method = xstrdup(route->method);

	if (!path)
		path = cJSON_AddObjectToObject(paths, route->pattern);
	for (char *letter = method; *letter; letter++)
		*letter = (char)tolower((unsigned char)*letter);
	operation = cJSON_AddObjectToObject(path, method);
	add_parameters(operation, route->pattern);
	answer = cJSON_AddObjectToObject(cJSON_AddObjectToObject(operation, "responses"), "200");
	cJSON_AddStringToObject(answer, "description", "Successful Response");
	free(method);
}

bool validator_describe(struct server_request *request, struct server_reply *reply, void *context)
{
	const struct validator_version *version = ((struct validator *)context)->version;
	cJSON *info, *paths;

	(void)request;
	reply->body = cJSON_CreateObject();
	cJSON_AddStringToObject(reply->body, "openapi", "3.1.0");
	info = cJSON_AddObjectToObject(reply->body, "info");
	cJSON_AddStringToObject(info, "title", "quasar localnet");
	cJSON_AddStringToObject(info, "version", version->name);
	paths = cJSON_AddObjectToObject(reply->body, "paths");
	for (const struct server_route *route = version->routes; route->method; route++)
		if (strcmp(route->pattern, VALIDATOR_PAGE))
			add_route(paths, route);
	return true;
}
