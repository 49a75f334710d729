#include "probe/probe.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/embed.h"
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/process.h"
#include "base/text.h"

#define START_SECONDS 60.0 /* for Python alone, which is this machine's matter */
#define END_SECONDS 2.0    /* for a process that has said its last */

EMBED(source_probe, "lib/probe/probe.py");

struct probe {
	struct process process;
	char *directory; /* private; holds the clone */
	char *clone;     /* the fork's files by symbolic links, and the script */
	bool gpu;
	double seconds, deadline;
	bool needs_gpu;
	char *torch;
};

/* --- the directory ------------------------------------------------------------------------------- */

/* Links all of the fork into the clone. */
static int link_files(const char *fork, const char *clone, struct error *err)
{
	char *root = realpath(fork, NULL);
	DIR *directory = root ? opendir(root) : NULL;
	struct dirent *entry;
	int result = 0;

	if (!directory)
		result = error_set(
			err, STATUS_ENVIRONMENT, "cannot read the fork %s: %s", fork, strerror(errno));
	while (!result && (entry = readdir(directory))) {
		char *target = path_join(root, entry->d_name), *link = path_join(clone, entry->d_name);

		if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..") && symlink(target, link) < 0)
			result = error_set(
				err, STATUS_ENVIRONMENT, "cannot create %s: %s", link, strerror(errno));
		free(target);
		free(link);
	}
	if (directory)
		closedir(directory);
	free(root);
	return result;
}

/* A directory such as validators clone into. */
static int make_directory(struct probe *probe, const struct probe_options *options, struct error *err)
{
	const char *temporary = getenv("TMPDIR");
	char *script;
	int result;

	probe->directory = xprintf(
		"%s/quasar_validator_XXXXXX", temporary && *temporary ? temporary : "/tmp");
	if (!mkdtemp(probe->directory)) {
		error_set(err, STATUS_ENVIRONMENT, "cannot create %s: %s", probe->directory, strerror(errno));
		free(probe->directory);
		probe->directory = NULL;
		return -1;
	}
	probe->clone = path_join(probe->directory, "flash-linear-attention");
	script = path_join(probe->clone, options->script);
	result = directory_make(probe->clone, 0700, err);
	if (!result)
		result = link_files(options->fork, probe->clone, err);
	if (!result)
		result = file_write(script, source_probe, strlen(source_probe), 0600, FILE_REPLACE, err);
	free(script);
	return result;
}

/* --- its end ---------------------------------------------------------------------------------------- */

/* The last line that says anything, fit for a terminal; the caller frees. */
static char *last_line(const struct buffer *text)
{
	size_t length = text->length, start;
	char *line;

	while (length && strchr(" \r\n", text->data[length - 1]))
		length--;
	for (start = length; start && text->data[start - 1] != '\n'; start--)
		;
	line = xprintf("%.*s", (int)(length - start), length ? text->data + start : "");
	text_clean(line);
	return line;
}

/* The process has closed its end of the line: says how it ended. */
static int ended(struct probe *probe, struct error *err)
{
	struct error ignored;
	char *said;
	int status;

	if (process_finish(&probe->process, END_SECONDS, &status, &ignored) < 0)
		return error_set(err, STATUS_FAILED, "its process stopped answering");
	said = last_line(&probe->process.text);
	if (status > 128)
		error_set(err, STATUS_FAILED, "its process was ended by signal %d (%s)%s%.400s", status - 128,
			strsignal(status - 128), *said ? ": " : "", said);
	else
		error_set(err, STATUS_FAILED, "its process ended with status %d%s%.400s", status,
			*said ? ": " : "", said);
	free(said);
	return -1;
}

bool probe_alive(const struct probe *probe)
{
	return probe->process.pid > 0;
}

void probe_close(struct probe *probe)
{
	struct error ignored;

	if (!probe)
		return;
	process_kill(&probe->process);
	buffer_free(&probe->process.text);
	if (probe->directory)
		directory_remove(probe->directory, &ignored);
	free(probe->directory);
	free(probe->clone);
	free(probe->torch);
	free(probe);
}

/* --- asking ----------------------------------------------------------------------------------------- */

/* The next line it says, as an object; NULL when there is none, and then nothing runs any more. */
static cJSON *hear(struct probe *probe, struct error *err)
{
	double left = probe->deadline - clock_elapsed();
	char *line = process_hear(&probe->process, fmax(left, 0), err);
	cJSON *answer = NULL;

	if (line) {
		answer = json_parse(line, strlen(line), err);
		if (!cJSON_IsObject(answer)) {
			cJSON_Delete(answer);
			answer = NULL;
			error_set(err, STATUS_FAILED,
				"its process answers with something else than it was asked");
		}
	} else if (err->status == STATUS_FAILED) {
		ended(probe, err);
	} else if (err->status == STATUS_ENVIRONMENT) {
		error_set(err, STATUS_FAILED, "it takes longer than the %.0f s that it has", probe->seconds);
	}
	free(line);
	if (!answer)
		process_kill(&probe->process);
	return answer;
}

/* "error" and what goes with it, as an error. */
static int fork_failed(struct probe *probe, const cJSON *answer, struct error *err)
{
	const char *error = "", *where = NULL;
	struct error ignored;
	char *words;

	probe->needs_gpu = false;
	json_string(answer, "error", JSON_OPTIONAL, &error, &ignored);
	json_string(answer, "where", JSON_OPTIONAL, &where, &ignored);
	json_bool(answer, "needs_gpu", JSON_OPTIONAL, &probe->needs_gpu, &ignored);
	words = xprintf("%s%s%s", where ? where : "", where ? ": " : "", error);
	text_clean(words);
	error_set(err, STATUS_FAILED, "%.600s", words);
	free(words);
	return -1;
}

/* Sends a request, which it frees. */
static int say(struct probe *probe, cJSON *request, struct error *err)
{
	char *line = cJSON_PrintUnformatted(request);
	int result = probe_alive(probe) ? process_say(&probe->process, line, err)
					: error_set(err, STATUS_FAILED, "its process has ended");

	cJSON_free(line);
	cJSON_Delete(request);
	return result;
}

/* The answer, which the caller frees. NULL on error, also when it is that the fork failed. */
static cJSON *hear_answer(struct probe *probe, struct error *err)
{
	cJSON *answer = hear(probe, err);

	if (answer && cJSON_HasObjectItem(answer, "error")) {
		fork_failed(probe, answer, err);
		cJSON_Delete(answer);
		return NULL;
	}
	return answer;
}

static cJSON *request_new(const char *action)
{
	cJSON *request = cJSON_CreateObject();

	cJSON_AddStringToObject(request, "do", action);
	return request;
}

static cJSON *ask(struct probe *probe, cJSON *request, struct error *err)
{
	return say(probe, request, err) < 0 ? NULL : hear_answer(probe, err);
}

/* What needs no more than its name, and answers nothing of interest. */
static int perform(struct probe *probe, const char *action, struct error *err)
{
	cJSON *answer = ask(probe, request_new(action), err);

	cJSON_Delete(answer);
	return answer ? 0 : -1;
}

/* --- the session ------------------------------------------------------------------------------------ */

/* The GPU of that index as the only one that the process sees. */
static char *visible_gpu(int index)
{
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");

	if (index < 0)
		return xstrdup("CUDA_VISIBLE_DEVICES=");
	if (!visible || !*visible)
		return xprintf("CUDA_VISIBLE_DEVICES=%d", index);
	for (; index; index--)
		visible += strcspn(visible, ",") + 1;
	return xprintf("CUDA_VISIBLE_DEVICES=%.*s", (int)strcspn(visible, ","), visible);
}

static int start_python(struct probe *probe, const struct probe_options *options, struct error *err)
{
	char *script = path_join(probe->clone, options->script), *gpu = visible_gpu(options->gpu);
	/* env finds it in the PATH */
	const char *argv[] = {"/usr/bin/env", options->python ? options->python : "python3", script, NULL};
	size_t count = 0;
	char **environment;
	int result;

	while (options->environment && options->environment[count])
		count++;
	environment = xcalloc(count + 2, sizeof(*environment));
	environment[0] = gpu;
	for (size_t i = 0; i < count; i++)
		environment[i + 1] = options->environment[i];
	result = process_talk(&probe->process, argv, environment, err);
	free(environment);
	free(gpu);
	free(script);
	return result;
}

/* What Python says first. */
static int greet(struct probe *probe, const char *python, struct error *err)
{
	cJSON *answer;

	probe_limit(probe, START_SECONDS);
	answer = hear(probe, err);
	cJSON_Delete(answer);
	if (answer)
		return 0;
	if (err->status == STATUS_FAILED) { /* the fork has no part in this */
		err->status = STATUS_ENVIRONMENT;
		error_context(err, "%s does not run", python ? python : "python3");
	}
	return -1;
}

struct probe *probe_open(const struct probe_options *options, struct error *err)
{
	struct probe *probe = xcalloc(1, sizeof(*probe));

	*probe = (struct probe){.process = {.output = -1, .talk = -1}, .gpu = options->gpu >= 0};
	if (make_directory(probe, options, err) == 0 && start_python(probe, options, err) == 0 &&
		greet(probe, options->python, err) == 0) {
		probe_limit(probe, options->seconds);
		return probe;
	}
	probe_close(probe);
	return NULL;
}

void probe_limit(struct probe *probe, double seconds)
{
	probe->seconds = seconds;
	probe->deadline = clock_elapsed() + seconds;
}

bool probe_needs_gpu(const struct probe *probe)
{
	return probe->needs_gpu;
}

int probe_compile(struct probe *probe, struct error *err)
{
	return perform(probe, "compile_sources", err);
}

const char *probe_torch(const struct probe *probe)
{
	return probe->torch;
}

int probe_start_torch(struct probe *probe, struct error *err)
{
	cJSON *request = request_new("start_torch"), *answer;
	const char *version = "?";
	struct error ignored;

	cJSON_AddBoolToObject(request, "gpu", probe->gpu);
	answer = ask(probe, request, err);
	if (!answer) {
		if (err->status == STATUS_FAILED) {
			err->status = STATUS_ENVIRONMENT;
			error_context(err, "PyTorch does not start");
			error_hint(err,
				"Install it into the Python that runs the fork: python3 -m pip install torch");
		}
		return -1;
	}
	json_string(answer, "torch", JSON_OPTIONAL, &version, &ignored);
	probe->torch = xstrdup(version);
	text_clean(probe->torch);
	cJSON_Delete(answer);
	return 0;
}

int probe_import(struct probe *probe, struct error *err)
{
	return perform(probe, "import_fork", err);
}

int probe_construct(struct probe *probe, struct error *err)
{
	return perform(probe, "construct", err);
}

int probe_load(struct probe *probe, struct error *err)
{
	if (probe_start_torch(probe, err) < 0 || probe_import(probe, err) < 0)
		return -1;
	return probe_construct(probe, err);
}

/* --- timing ----------------------------------------------------------------------------------------- */

/* Its answers until the last one, with our clock at each line that tells of a round. NULL on error. */
static cJSON *hear_rounds(struct probe *probe, struct probe_times *times, struct error *err)
{
	double started = 0;
	const cJSON *mark;
	cJSON *answer;

	while ((answer = hear_answer(probe, err)) &&
		(mark = cJSON_GetObjectItemCaseSensitive(answer, "clock"))) {
		double now = clock_elapsed();

		if (!cJSON_IsString(mark) || strcmp(mark->valuestring, "stop"))
			started = now;
		else if (times->rounds < PROBE_ROUNDS)
			times->own[times->rounds++] = now - started;
		cJSON_Delete(answer);
	}
	return answer;
}

/* As many of its own times as we took. */
static int read_times(const cJSON *answer, struct probe_times *times, struct error *err)
{
	const cJSON *item, *list = cJSON_GetObjectItemCaseSensitive(answer, "seconds");
	int count = 0;

	times->memory_mb = NAN;
	json_real(answer, "memory_mb", JSON_OPTIONAL, &times->memory_mb, err);
	cJSON_ArrayForEach (item, list)
		if (count < times->rounds && cJSON_IsNumber(item) && isfinite(item->valuedouble))
			times->process[count++] = item->valuedouble;
	return count && count == times->rounds
		? 0
		: error_set(err, STATUS_FAILED, "its process did not measure the rounds that it ran");
}

int probe_time(
	struct probe *probe, const struct probe_timing *timing, struct probe_times *times, struct error *err)
{
	cJSON *request = request_new("time_calls"), *answer = NULL;
	int result = -1;

	*times = (struct probe_times){.calls = timing->calls};
	cJSON_AddNumberToObject(request, "tokens", (double)timing->tokens);
	cJSON_AddNumberToObject(request, "warmups", timing->warmups);
	cJSON_AddNumberToObject(request, "calls", timing->calls);
	cJSON_AddNumberToObject(request, "rounds", timing->rounds);
	cJSON_AddNumberToObject(request, "seconds", timing->seconds);
	if (say(probe, request, err) == 0)
		answer = hear_rounds(probe, times, err);
	if (answer)
		result = read_times(answer, times, err);
	cJSON_Delete(answer);
	return result;
}
