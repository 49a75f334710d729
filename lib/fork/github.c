#include "fork/github.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/http.h"
#include "api/retry.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/text.h"

#define ATTEMPT_SECONDS 30.0

struct session {
	struct http *http;
	const char *base;
	const char *headers[4];
	struct retry retry;
};

/* A fault of theirs, or too many questions: worth asking again. */
static bool may_pass(int status)
{
	return status == 429 || status >= 500;
}

/* GitHub's own words on a refusal. */
static void read_detail(const cJSON *answer, char detail[256])
{
	struct error ignored;
	const char *message = "no reason given";

	json_string(answer, "message", JSON_OPTIONAL, &message, &ignored);
	snprintf(detail, 256, "%s", message);
	text_clean(detail);
}

static int refused(int status, const cJSON *answer, const char *path, struct error *err)
{
	char detail[256];

	read_detail(answer, detail);
	error_set(err, may_pass(status) ? STATUS_NETWORK : STATUS_REFUSED, "GitHub answered %d to %s: %s",
		status, path, detail);
	if (status == 401)
		return error_hint(err,
			"GITHUB_TOKEN was rejected: has it expired? Create one at "
			"https://github.com/settings/tokens");
	if (status == 403 || status == 404)
		return error_hint(err,
			"The token must be allowed to create a public fork: it needs the scope "
			"public_repo or, if it is fine-grained, the permissions Administration and "
			"Contents.");
	return -1;
}

/* Asks again while that may help and there is time. `status` receives the answer's; the caller deletes the
 * document, which is NULL on an error, and an object whatever came otherwise. */
static cJSON *ask(struct session *session, const char *path, const char *body, int *status, struct error *err)
{
	char *url = xprintf("%s%s", session->base, path);
	cJSON *document = NULL;
	bool again;

	do {
		double left = retry_left(&session->retry);
		struct http_request request = {
			.url = url,
			.body = body,
			.headers = session->headers,
			.timeout = left < ATTEMPT_SECONDS ? left : ATTEMPT_SECONDS,
		};
		struct http_answer answer;
		int result = http_exchange(session->http, &request, &answer, err);

		*status = answer.status;
		again = result < 0 ? answer.transient : may_pass(answer.status);
		if (result < 0) {
			error_hint(err, "Check the connection, and GITHUB_API_URL if it is set.");
		} else {
			struct error ignored;

			document = json_parse(answer.body.data, answer.body.length, &ignored);
			if (!document)
				document = cJSON_CreateObject();
		}
		if (!result && again) {
			refused(answer.status, document, path, err);
			cJSON_Delete(document);
			document = NULL;
		}
		again = again && retry_wait(&session->retry, answer.retry_after, err) == 0;
		buffer_free(&answer.body);
	} while (again);
	free(url);
	return document;
}

/* "OWNER/NAME", with nothing that would lead elsewhere in a URL. */
static bool is_full_name(const char *text)
{
	static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
	size_t owner = strspn(text, letters),
	       name = text[owner] == '/' ? strspn(text + owner + 1, letters) : 0;

	return owner && name && !text[owner + 1 + name];
}

/* What the answer tells of the fork. `path` receives the question whether it is ready. */
static int read_fork(const cJSON *answer, struct github_fork *fork, char **path, struct error *err)
{
	const char *full_name, *clone_url, *branch;
	char *escaped;

	if (json_string(answer, "full_name", JSON_REQUIRED, &full_name, err) < 0 ||
		json_string(answer, "clone_url", JSON_REQUIRED, &clone_url, err) < 0 ||
		json_string(answer, "default_branch", JSON_REQUIRED, &branch, err) < 0)
		return error_context(err, "GitHub's answer about the fork");
	if (!is_full_name(full_name))
		return error_set(err, STATUS_NETWORK, "GitHub's answer names no repository");
	fork->clone_url = xstrdup(clone_url);
	fork->owner = xprintf("%.*s", (int)strcspn(full_name, "/"), full_name);
	escaped = http_escape(branch);
	*path = xprintf("/repos/%s/branches/%s", full_name, escaped);
	free(escaped);
	return 0;
}

static int make(struct session *session, const struct github_request *request, struct github_fork *fork,
	char **path, struct error *err)
{
	cJSON *body = cJSON_CreateObject(), *answer;
	char *text, *forks = xprintf("/repos/%s/forks", request->upstream);
	int status = 0, result = -1;

	cJSON_AddStringToObject(body, "name", request->name);
	text = cJSON_PrintUnformatted(body);
	answer = ask(session, forks, text, &status, err);
	if (answer)
		result = status / 100 == 2 ? read_fork(answer, fork, path, err)
					   : refused(status, answer, forks, err);
	cJSON_Delete(answer);
	cJSON_Delete(body);
	cJSON_free(text);
	free(forks);
	return result;
}

/* Until the fork's branch is there: 404 and 409 mean not yet. */
static int await(struct session *session, const char *path, struct error *err)
{
	for (;;) {
		int status = 0, result = -1;
		cJSON *answer = ask(session, path, NULL, &status, err);

		if (answer && status / 100 != 2)
			refused(status, answer, path, err);
		result = answer && status / 100 == 2 ? 0 : -1;
		cJSON_Delete(answer);
		if (!result)
			return 0;
		if (!answer || (status != 404 && status != 409))
			return -1;
		error_set(err, STATUS_NETWORK, "the fork is not ready yet");
		error_hint(err, "Run the same command again in a few minutes to continue.");
		if (retry_wait(&session->retry, 0, err) < 0)
			return -1;
	}
}

/* Where the token may be sent; the caller frees. */
static char *check_base(const char *url, struct error *err)
{
	bool plain = false;
	char *base = http_check_base(url, &plain, err);

	if (base && !plain)
		return base;
	free(base);
	error_set(err, STATUS_USAGE, "GITHUB_API_URL %s",
		plain ? "is not encrypted: the token is not sent there"
		      : "is not of the form https://HOST[/PATH]");
	return NULL;
}

int github_fork(const struct github_request *request, struct github_fork *fork, struct error *err)
{
	char *base = check_base(request->api_url, err), *authorization, *path = NULL;
	struct session session;
	int result;

	*fork = (struct github_fork){0};
	if (!base)
		return -1;
	authorization = xprintf("Authorization: Bearer %s", request->token);
	session = (struct session){
		.http = http_open(),
		.base = base,
		.headers = {authorization, "X-GitHub-Api-Version: 2022-11-28", NULL},
	};
	retry_begin(&session.retry, request->timeout);
	result = make(&session, request, fork, &path, err);
	if (!result)
		result = await(&session, path, err);
	if (result)
		github_fork_free(fork);
	http_close(session.http);
	sodium_memzero(authorization, strlen(authorization));
	free(authorization);
	free(path);
	free(base);
	return result;
}

void github_fork_free(struct github_fork *fork)
{
	free(fork->clone_url);
	free(fork->owner);
	*fork = (struct github_fork){0};
}
