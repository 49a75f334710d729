#include "op/python_layer.h"

#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/embed.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/process.h"
#include "base/text.h"

#define LIMIT_SECONDS 300.0 /* what validators give one length */
#define MOST_ROUNDS 16

EMBED(source_python_layer, "lib/op/python_layer.py");

static int failed(const struct measure_plan *plan, const char *why, struct error *err)
{
	error_set(err, STATUS_ENVIRONMENT, "the fork's layer does not run in Python at %lld tokens: %.500s",
		(long long)plan->tokens, *why ? why : "it ended without a word");
	return error_hint(err, "Validators run it the same way: mend it, or install what python3 lacks (`quasar "
			       "doctor` shows which one is used). Quasar's own layer: --layer.");
}

/* Waits for its end, and ends it when validators would. */
static int finish(struct process *process, const struct measure_plan *plan, int *status, struct error *err)
{
	double deadline = clock_elapsed() + LIMIT_SECONDS;

	while (!process_ended(process, status)) {
		struct pollfd wait = {.fd = process->output, .events = POLLIN};
		double left = deadline - clock_elapsed();

		if (left > 0 && clock_poll(&wait, 1, left, err) == 0)
			continue;
		process_kill(process);
		return left > 0 ? -1 : failed(plan, "it takes longer than the 300 s that validators give it", err);
	}
	return 0;
}

/* The last line that says anything; cuts the text behind it. */
static char *last_line(char *text)
{
	size_t length = strlen(text);
	char *line;

	while (length && strchr(" \r\n", text[length - 1]))
		text[--length] = '\0';
	line = strrchr(text, '\n');
	return line ? line + 1 : text;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static int read_result(const char *line, const struct measure_plan *plan, struct measurement *result,
	struct error *err)
{
	cJSON *document = json_parse(line, strlen(line), err);
	const cJSON *item, *list = cJSON_GetObjectItemCaseSensitive(document, "seconds");
	double seconds[MOST_ROUNDS];
	int rounds = 0;

	cJSON_ArrayForEach(item, list)
		if (rounds < MOST_ROUNDS && cJSON_IsNumber(item) && item->valuedouble > 0)
			seconds[rounds++] = item->valuedouble;
	*result = (struct measurement){
		.warmups = plan->warmups, .runs = plan->runs * rounds, .memory_mb = NAN};
	json_real(document, "memory_mb", JSON_OPTIONAL, &result->memory_mb, err);
	cJSON_Delete(document);
	if (!rounds)
		return failed(plan, line, err);
	qsort(seconds, (size_t)rounds, sizeof(*seconds), by_value);
	result->seconds = (seconds[(rounds - 1) / 2] + seconds[rounds / 2]) / 2;
	result->spread = (seconds[rounds - 1] - seconds[0]) / result->seconds;
	result->tokens_per_second = (double)plan->tokens / result->seconds;
	return 0;
}

static int run_python(const struct device *device, const struct measure_plan *plan, struct process *process,
	int *status, struct error *err)
{
	char *tokens = xprintf("%lld", (long long)plan->tokens), *warmups = xprintf("%d", plan->warmups);
	char *calls = xprintf("%d", plan->runs);
	char *where = device->index < 0 ? xprintf("cpu") : xprintf("cuda:%d", device->index);
	/* the shell finds it in the PATH, and its complaints are part of what it says */
	const char *argv[] = {"/bin/sh", "-c", "exec python3 - \"$@\" 2>&1", "sh", plan->fork_path, where, tokens,
		warmups, calls, NULL};
	int result = process_start(process, argv, environ, source_python_layer, err);

	if (!result)
		result = finish(process, plan, status, err);
	free(where);
	free(calls);
	free(warmups);
	free(tokens);
	return result;
}

int python_layer_measure(const struct device *device, const struct measure_plan *plan,
	struct measurement *result, struct error *err)
{
	struct process process;
	int status = 0, failure = run_python(device, plan, &process, &status, err);
	char *line;

	if (failure)
		return -1;
	buffer_append(&process.text, "", 0);
	line = last_line(process.text.data);
	text_clean(line);
	failure = status ? failed(plan, line, err) : read_result(line, plan, result, err);
	buffer_free(&process.text);
	return failure;
}
