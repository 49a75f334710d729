#include "tune/worker.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"
#include "base/process.h"
#include "base/text.h"

struct tune_worker {
	struct tune_worker_options options;
	struct process process;
	bool open, opening; /* there is a process; which has not answered yet */
};

struct tune_worker *tune_worker_make(const struct tune_worker_options *options)
{
	struct tune_worker *worker = xmalloc(sizeof(*worker));

	*worker = (struct tune_worker){.options = *options};
	return worker;
}

static void end(struct tune_worker *worker)
{
	if (worker->open)
		process_kill(&worker->process);
	worker->open = worker->opening = false;
}

void tune_worker_free(struct tune_worker *worker)
{
	if (worker)
		end(worker);
	free(worker);
}

/* --- talking --------------------------------------------------------------------------------------- */

/* Why no answer came: the time was up, or the process has ended. */
static int explain_silence(struct tune_worker *worker, double seconds, struct error *err)
{
	char *last;

	if (err->status == STATUS_INTERRUPTED)
		return -1;
	if (err->status == STATUS_ENVIRONMENT)
		return error_set(err, STATUS_FAILED, "hangs: no answer within %.0f s", seconds);
	buffer_text(&worker->process.text, "");
	last = text_last_line(worker->process.text.data);
	return error_set(err, STATUS_FAILED, *last ? "crashes: %.200s" : "crashes", last);
}

/* What it says went wrong. */
static int take_error(const cJSON *answer, struct error *err)
{
	const char *message, *hint = "";
	int64_t status = STATUS_FAILED;
	struct error bad;

	if (json_string(answer, "error", JSON_REQUIRED, &message, &bad) < 0 ||
		json_integer(answer, "status", JSON_OPTIONAL, &status, &bad) < 0 ||
		json_string(answer, "hint", JSON_OPTIONAL, &hint, &bad) < 0 || status < STATUS_FAILED ||
		status > STATUS_INTERRUPTED)
		return error_set(err, STATUS_FAILED, "answers with nonsense");
	error_set(err, (enum status)status, "%s", message);
	return error_hint(err, "%s", hint);
}

/* Takes the request. */
static int say(struct tune_worker *worker, cJSON *request, struct error *err)
{
	char *line = cJSON_PrintUnformatted(request);
	int result = process_say(&worker->process, line, err);

	cJSON_free(line);
	cJSON_Delete(request);
	return result;
}

/* NULL when it was not done: then the process is gone. */
static cJSON *hear(struct tune_worker *worker, double seconds, struct error *err)
{
	char *heard = process_hear(&worker->process, seconds, err);
	cJSON *answer = NULL;
	struct error bad;

	if (!heard) {
		explain_silence(worker, seconds, err);
	} else {
		answer = json_parse(heard, strlen(heard), &bad);
		if (!cJSON_IsObject(answer) || cJSON_GetObjectItemCaseSensitive(answer, "error")) {
			take_error(answer, err);
			cJSON_Delete(answer);
			answer = NULL;
		}
	}
	free(heard);
	if (!answer)
		end(worker);
	return answer;
}

/* Takes the request. */
static cJSON *ask(struct tune_worker *worker, cJSON *request, double seconds, struct error *err)
{
	if (say(worker, request, err) == 0)
		return hear(worker, seconds, err);
	explain_silence(worker, seconds, err);
	end(worker);
	return NULL;
}

static cJSON *request_of(const char *what)
{
	cJSON *request = cJSON_CreateObject();

	cJSON_AddStringToObject(request, "do", what);
	return request;
}

int tune_worker_start(struct tune_worker *worker, struct error *err)
{
	cJSON *request;

	if (worker->open)
		return 0;
	if (process_talk(&worker->process, worker->options.argv, worker->options.environment, NULL, err) < 0)
		return -1;
	worker->open = worker->opening = true;
	request = cJSON_Duplicate(worker->options.opening, true);
	cJSON_AddStringToObject(request, "do", "open");
	say(worker, request, err); /* who cannot hear that does not answer either */
	return 0;
}

static int make_ready(struct tune_worker *worker, struct error *err)
{
	cJSON *answer;

	if (tune_worker_start(worker, err) < 0)
		return -1;
	if (!worker->opening)
		return 0;
	answer = hear(worker, worker->options.opening_seconds, err);
	worker->opening = false;
	cJSON_Delete(answer);
	if (answer)
		return 0;
	error_context(err, "the process that tries configurations");
	if (err->status == STATUS_FAILED) /* it is no candidate's fault */
		err->status = STATUS_ENVIRONMENT;
	return -1;
}

cJSON *tune_worker_ask(struct tune_worker *worker, cJSON *request, struct error *err)
{
	if (make_ready(worker, err) == 0)
		return ask(worker, request, worker->options.trial_seconds, err);
	cJSON_Delete(request);
	return NULL;
}

static int take_times(const cJSON *answer, int runs, double *seconds, double *mhz, struct error *err)
{
	const cJSON *list, *item;
	int count = 0;

	*mhz = NAN;
	if (json_array(answer, "seconds", JSON_REQUIRED, &list, err) < 0 ||
		json_real(answer, "mhz", JSON_OPTIONAL, mhz, err) < 0)
		return error_set(err, STATUS_FAILED, "answers with nonsense");
	cJSON_ArrayForEach (item, list) {
		if (count == runs || !cJSON_IsNumber(item) || !(item->valuedouble > 0) ||
			!isfinite(item->valuedouble))
			return error_set(err, STATUS_FAILED, "answers with nonsense");
		seconds[count++] = item->valuedouble;
	}
	return count == runs ? 0 : error_set(err, STATUS_FAILED, "answers with nonsense");
}

int tune_worker_time(struct tune_worker *worker, const char *parameters, int runs, double *seconds,
	double *mhz, struct error *err)
{
	cJSON *request = request_of("time"), *answer;
	int result;

	cJSON_AddStringToObject(request, "parameters", parameters);
	cJSON_AddNumberToObject(request, "runs", runs);
	answer = tune_worker_ask(worker, request, err);
	result = answer ? take_times(answer, runs, seconds, mhz, err) : -1;
	cJSON_Delete(answer);
	return result;
}

int tune_worker_verify(struct tune_worker *worker, const char *parameters, struct error *err)
{
	cJSON *request, *answer;

	if (make_ready(worker, err) < 0)
		return -1;
	request = request_of("verify");
	cJSON_AddStringToObject(request, "parameters", parameters);
	answer = ask(worker, request, worker->options.opening_seconds, err);
	cJSON_Delete(answer);
	return answer ? 0 : -1;
}

/* --- in the worker ------------------------------------------------------------------------------------ */

static int perform(const struct tune_server *server, const cJSON *request, cJSON *answer, struct error *err)
{
	double seconds[TUNE_MOST_RUNS], mhz = NAN;
	const char *what, *parameters = "";
	int64_t runs = 1;

	if (json_string(request, "do", JSON_REQUIRED, &what, err) < 0 ||
		json_string(request, "parameters", JSON_OPTIONAL, &parameters, err) < 0 ||
		json_integer(request, "runs", JSON_OPTIONAL, &runs, err) < 0)
		return -1;
	if (!strcmp(what, "open"))
		return server->open(server->context, request, err);
	if (!strcmp(what, "verify"))
		return server->verify(server->context, parameters, err);
	if (strcmp(what, "time") || runs < 1 || runs > TUNE_MOST_RUNS)
		return error_set(err, STATUS_USAGE, "what is to be done is not known");
	if (server->time(server->context, parameters, (int)runs, seconds, &mhz, err) < 0)
		return -1;
	cJSON_AddItemToObject(answer, "seconds", cJSON_CreateDoubleArray(seconds, (int)runs));
	json_add_real(answer, "mhz", mhz);
	return 0;
}

static void answer_line(const struct tune_server *server, const char *line, size_t length)
{
	cJSON *answer = cJSON_CreateObject(), *request;
	struct error err = {0};
	char *text;

	request = json_parse(line, length, &err);
	if (!request || perform(server, request, answer, &err) < 0) {
		cJSON_AddStringToObject(answer, "error", err.message);
		cJSON_AddNumberToObject(answer, "status", err.status);
		cJSON_AddStringToObject(answer, "hint", err.hint);
	}
	text = cJSON_PrintUnformatted(answer);
	puts(text);
	fflush(stdout);
	cJSON_free(text);
	cJSON_Delete(request);
	cJSON_Delete(answer);
}

void tune_serve(const struct tune_server *server)
{
	char *line = NULL;
	size_t size = 0;
	ssize_t length;

	while ((length = getline(&line, &size, stdin)) > 0)
		answer_line(server, line, (size_t)length);
	free(line);
}
