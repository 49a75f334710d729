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

EMBED(source_python_layer, "lib/measure/python_layer.py");

static int failed(int64_t tokens, const char *why, struct error *err)
{
	error_set(err, STATUS_ENVIRONMENT, "the fork's layer does not run in Python at %lld tokens: %.500s",
		(long long)tokens, *why ? why : "it exited without a message");
	return error_hint(err,
		"Validators run it the same way, so fix it, or install what python3 lacks (`quasar "
		"doctor` shows which python3 is used). To measure quasar's own layer, use --layer.");
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

static int read_times(const char *line, int64_t tokens, struct python_layer_times *times, struct error *err)
{
	cJSON *document = json_parse(line, strlen(line), err);
	const cJSON *item, *list = cJSON_GetObjectItemCaseSensitive(document, "seconds");

	*times = (struct python_layer_times){.memory_mb = NAN};
	cJSON_ArrayForEach (item, list)
		if (times->rounds < PYTHON_LAYER_ROUNDS && cJSON_IsNumber(item) && item->valuedouble > 0)
			times->seconds[times->rounds++] = item->valuedouble;
	json_real(document, "memory_mb", JSON_OPTIONAL, &times->memory_mb, err);
	cJSON_Delete(document);
	return times->rounds ? 0 : failed(tokens, line, err);
}

static int run_python(const char *fork_path, int gpu, int64_t tokens, int warmups, int calls,
	struct process *process, int *status, struct error *err)
{
	char *where = gpu < 0 ? xprintf("cpu") : xprintf("cuda:%d", gpu);
	char *numbers[] = {xprintf("%lld", (long long)tokens), xprintf("%d", warmups), xprintf("%d", calls)};
	/* the shell finds it in the PATH, and its complaints are part of what it says */
	const char *argv[] = {"/bin/sh", "-c", "exec python3 - \"$@\" 2>&1", "sh", fork_path, where,
		numbers[0], numbers[1], numbers[2], NULL};
	int result = process_start(process, argv, NULL, source_python_layer, err);

	if (!result && process_finish(process, LIMIT_SECONDS, status, err) < 0)
		result = err->status == STATUS_INTERRUPTED
			? -1
			: failed(tokens, "it takes longer than the 300 s that validators allow", err);
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		free(numbers[i]);
	free(where);
	return result;
}

int python_layer_time(const char *fork_path, int gpu, int64_t tokens, int warmups, int calls,
	struct python_layer_times *times, struct error *err)
{
	struct process process;
	int status = 0, failure = run_python(fork_path, gpu, tokens, warmups, calls, &process, &status, err);
	char *line;

	if (failure)
		return -1;
	buffer_append(&process.text, "", 0);
	line = last_line(process.text.data);
	text_clean(line);
	failure = status ? failed(tokens, line, err) : read_times(line, tokens, times, err);
	buffer_free(&process.text);
	return failure;
}
