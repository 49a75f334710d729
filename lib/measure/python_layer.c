#include "measure/python_layer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/embed.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/process.h"
#include "base/text.h"

#define LIMIT_SECONDS 300.0 /* what validators give one length */
#define MOST_ROUNDS 16

EMBED(source_python_layer, "lib/measure/python_layer.py");

static int failed(const struct measure_plan *plan, const char *why, struct error *err)
{
	error_set(err, STATUS_ENVIRONMENT, "the fork's layer does not run in Python at %lld tokens: %.500s",
		(long long)plan->tokens, *why ? why : "it ended without a word");
	return error_hint(err, "Validators run it the same way: mend it, or install what python3 lacks (`quasar "
			       "doctor` shows which one is used). Quasar's own layer: --layer.");
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
	measure_summarise(plan, seconds, rounds, result);
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
	int result = process_start(process, argv, NULL, source_python_layer, err);

	if (!result && process_finish(process, LIMIT_SECONDS, status, err) < 0)
		result = err->status == STATUS_INTERRUPTED
				 ? -1
				 : failed(plan, "it takes longer than the 300 s that validators give it", err);
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
