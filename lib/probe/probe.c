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
#include "fork/fork.h"
#include "layer/layer.h"

#define START_SECONDS 60.0 /* for Python alone, which is this machine's matter */
#define END_SECONDS 2.0    /* for a process that has said its last */
#define HUSH_SECONDS 30.0  /* for one that is asked to end, which PyTorch takes its time for */

EMBED(source_probe, "lib/probe/probe.py");

struct probe {
	struct process process;
	struct sandbox *sandbox; /* that it runs in; NULL: none */
	char *directory;         /* private; holds the clone */
	char *clone;             /* the fork's files by symbolic links, and the script */
	bool gpu, elsewhere;
	double seconds, deadline;
	bool preparing; /* an answer to that is to come */
	bool needs_gpu;
	char *torch, *type, *weights, *gradients;
};

/* --- the directory ------------------------------------------------------------------------------- */

/* How much of what lies at a path a validator's clone has. */
enum share { ALL, SOME, NONE };

static enum share share_of(const char *path, char *const *ignored)
{
	size_t length = strlen(path);
	enum share share = ALL;

	for (; *ignored; ignored++)
		if (!strncmp(*ignored, path, length)) {
			const char *rest = *ignored + length;

			if (!*rest || !strcmp(rest, "/"))
				return NONE;
			if (*rest == '/')
				share = SOME;
		}
	return share;
}

/* From one directory to the other. */
struct linking {
	const char *fork, *clone;
	char *const *ignored;
};

static int link_files(const struct linking *linking, const char *inside, struct error *err);

static int link_path(const struct linking *linking, const char *path, struct error *err)
{
	enum share share = share_of(path, linking->ignored);
	char *target = path_join(linking->fork, path), *link = path_join(linking->clone, path);
	int result = 0;

	if (share == ALL && symlink(target, link) < 0)
		result = error_set(err, STATUS_ENVIRONMENT, "cannot create %s: %s", link, strerror(errno));
	if (share == SOME)
		result = directory_make(link, 0700, err);
	if (share == SOME && !result)
		result = link_files(linking, path, err);
	free(target);
	free(link);
	return result;
}

/* Links what lies in a folder of the fork; "": the fork itself. */
static int link_files(const struct linking *linking, const char *inside, struct error *err)
{
	char *folder = path_join(linking->fork, inside);
	DIR *directory = opendir(folder);
	struct dirent *entry;
	int result = 0;

	if (!directory)
		result = error_set(err, STATUS_ENVIRONMENT, "cannot read %s: %s", folder, strerror(errno));
	while (!result && (entry = readdir(directory))) {
		char *path = xprintf("%s%s%s", inside, *inside ? "/" : "", entry->d_name);

		if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
			result = link_path(linking, path, err);
		free(path);
	}
	if (directory)
		closedir(directory);
	free(folder);
	return result;
}

/* Links the fork into the clone, as far as it comes with a clone: what git ignores is on this machine alone. A stranger's
 * fork has just been cloned. */
static int link_fork(const struct probe_options *options, const char *clone, struct error *err)
{
	char *fork = realpath(options->fork, NULL), **ignored;
	int result;

	if (!fork)
		return error_set(err, STATUS_ENVIRONMENT, "cannot read the fork %s: %s", options->fork,
			strerror(errno));
	ignored = options->sandbox ? xcalloc(1, sizeof(*ignored)) : fork_ignored(fork);
	result = link_files(&(struct linking){fork, clone, ignored}, "", err);
	for (char **path = ignored; *path; path++)
		free(*path);
	free(ignored);
	free(fork);
	return result;
}

/* A new private directory, by its absolute path: the Python works in another one. NULL on error. */
static char *make_private(struct error *err)
{
	const char *temporary = getenv("TMPDIR"), *place = temporary && *temporary ? temporary : "/tmp";
	char *absolute = realpath(place, NULL);
	char *directory = path_join(absolute ? absolute : place, "quasar_validator_XXXXXX");

	free(absolute);
	if (mkdtemp(directory))
		return directory;
	error_set(err, STATUS_ENVIRONMENT, "cannot create %s: %s", directory, strerror(errno));
	free(directory);
	return NULL;
}

/* A directory such as validators clone into, or another one. */
static int make_directory(struct probe *probe, const struct probe_options *options, struct error *err)
{
	char *script;
	int result;

	probe->directory = make_private(err);
	if (!probe->directory)
		return -1;
	probe->clone = path_join(probe->directory, options->elsewhere ? "package" : "flash-linear-attention");
	script = path_join(probe->clone, options->script);
	result = directory_make(probe->clone, 0700, err);
	if (!result)
		result = link_fork(options, probe->clone, err);
	unlink(script); /* a link to what the fork calls so, which may be a folder */
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
	sandbox_close(probe->sandbox);
	buffer_free(&probe->process.text);
	if (probe->directory)
		directory_remove(probe->directory, &ignored);
	free(probe->directory);
	free(probe->clone);
	free(probe->torch);
	free(probe->type);
	free(probe->weights);
	free(probe->gradients);
	free(probe);
}

/* --- asking ----------------------------------------------------------------------------------------- */

/* Nothing runs any more. */
static void end(struct probe *probe, struct error *err)
{
	process_kill(&probe->process);
	if (probe->sandbox) /* which knows better, if it ended it */
		sandbox_leave(probe->sandbox, err);
}

/* The next line it says, as an object; NULL when there is none, and then nothing runs any more. */
static cJSON *hear(struct probe *probe, struct error *err)
{
	double left = probe->deadline - clock_elapsed();
	/* also from one that never stops answering */
	char *line = left > 0 ? process_hear(&probe->process, left, err) : NULL;
	cJSON *answer = NULL;

	if (left <= 0)
		err->status = STATUS_ENVIRONMENT;
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
		end(probe, err);
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

int probe_prepare(struct probe *probe, struct error *err)
{
	probe->preparing = say(probe, request_new("import_torch"), err) == 0;
	return probe->preparing ? 0 : -1;
}

int probe_await(struct probe *probe, struct error *err)
{
	if (probe->preparing)
		cJSON_Delete(hear_answer(probe, err));
	probe->preparing = false;
	return probe_alive(probe) ? 0 : -1;
}

static cJSON *ask(struct probe *probe, cJSON *request, struct error *err)
{
	if (probe->preparing && probe_await(probe, err) < 0) {
		cJSON_Delete(request);
		return NULL;
	}
	return say(probe, request, err) < 0 ? NULL : hear_answer(probe, err);
}

/* What needs no more than its name, and answers nothing of interest. */
static int perform(struct probe *probe, const char *action, struct error *err)
{
	cJSON *answer = ask(probe, request_new(action), err);

	cJSON_Delete(answer);
	return answer ? 0 : -1;
}

/* The same with one argument. */
static int perform_on(
	struct probe *probe, const char *action, const char *name, const char *value, struct error *err)
{
	cJSON *request = request_new(action), *answer;

	cJSON_AddStringToObject(request, name, value);
	answer = ask(probe, request, err);
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

static int start_outside(
	struct probe *probe, const char *const *argv, const struct probe_options *options, struct error *err)
{
	char *gpu = visible_gpu(options->gpu), **environment;
	size_t count = 0;
	int result;

	while (options->environment && options->environment[count])
		count++;
	environment = xcalloc(count + 2, sizeof(*environment));
	environment[0] = gpu;
	for (size_t i = 0; i < count; i++)
		environment[i + 1] = options->environment[i];
	result = process_talk(&probe->process, argv, environment, NULL, err);
	free(environment);
	free(gpu);
	return result;
}

/* What it is given, with the clone and the fork that this consists of. */
static struct sandbox *open_sandbox(
	const struct probe *probe, const struct probe_options *options, struct error *err)
{
	struct sandbox_options with = *options->sandbox;
	char *fork = realpath(options->fork, NULL);
	struct sandbox *sandbox;

	with.own = (const char *const[]){probe->directory, fork ? fork : options->fork, NULL};
	with.directory = probe->clone;
	with.gpu = options->gpu;
	sandbox = sandbox_open(&with, err);
	free(fork);
	return sandbox;
}

static int start_inside(
	struct probe *probe, const char *const *argv, const struct probe_options *options, struct error *err)
{
	const char **command;
	int result;

	probe->sandbox = open_sandbox(probe, options, err);
	if (!probe->sandbox)
		return -1;
	command = sandbox_command(probe->sandbox, argv);
	result = process_talk(&probe->process, command, NULL, sandbox_files(probe->sandbox), err);
	free(command);
	return result ? result : sandbox_enter(probe->sandbox, probe->process.pid, err);
}

static int start_python(struct probe *probe, const struct probe_options *options, struct error *err)
{
	char *script = path_join(probe->clone, options->script);
	/* env finds it in the PATH */
	const char *argv[] = {"/usr/bin/env", options->python ? options->python : "python3", script, NULL};
	int result = options->sandbox ? start_inside(probe, argv, options, err)
				      : start_outside(probe, argv, options, err);

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

	*probe = (struct probe){.process = {.output = -1, .talk = -1},
		.gpu = options->gpu >= 0,
		.elsewhere = options->elsewhere,
		.type = xstrdup("Tensor")};
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
	cJSON *request = request_new("import_fork"), *answer;
	const cJSON *shadow;
	int result = 0;

	cJSON_AddBoolToObject(request, "as_validator", !probe->elsewhere);
	answer = ask(probe, request, err);
	if (!answer)
		return -1;
	shadow = cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(answer, "shadows"), 0);
	if (cJSON_IsString(shadow)) {
		text_clean(shadow->valuestring);
		result = error_set(err, STATUS_FAILED,
			"\"%.100s\" at the fork's root takes the place of the Python module of that name",
			shadow->valuestring);
	}
	cJSON_Delete(answer);
	return result;
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

/* --- tensors ---------------------------------------------------------------------------------------- */

/* A file beside the clone; the caller frees. */
static char *beside(const struct probe *probe, const char *name)
{
	return path_join(probe->directory, name);
}

static int write_numbers(const char *path, const float *numbers, size_t count, struct error *err)
{
	FILE *file = fopen(path, "wbe");
	bool written = file && fwrite(numbers, sizeof(*numbers), count, file) == count;

	if (file && fclose(file) != 0)
		written = false;
	return written ? 0 : error_set(err, STATUS_ENVIRONMENT, "cannot write %s: %s", path, strerror(errno));
}

/* Reads what the process wrote there, and removes it: the next one's may be large, too. */
static int take_numbers(const char *path, float *numbers, size_t count, struct error *err)
{
	struct error ignored;
	int fd = file_open(path, &ignored);
	FILE *file = fd < 0 ? NULL : fdopen(fd, "rb");
	bool read = file && fread(numbers, sizeof(*numbers), count, file) == count && fgetc(file) == EOF;

	if (file)
		fclose(file);
	else if (fd >= 0)
		close(fd);
	unlink(path);
	return read ? 0
		    : error_set(err, STATUS_FAILED, "its process did not write the numbers it was asked for");
}

int probe_save_weights(struct probe *probe, const char **path, struct error *err)
{
	if (!probe->weights)
		probe->weights = beside(probe, "weights");
	*path = probe->weights;
	return perform_on(probe, "save_weights", "path", *path, err);
}

int probe_load_weights(struct probe *probe, const char *path, struct error *err)
{
	return perform_on(probe, "load_weights", "path", path, err);
}

int probe_negate(struct probe *probe, const char *parameter, struct error *err)
{
	return perform_on(probe, "negate", "parameter", parameter, err);
}

int probe_input(struct probe *probe, const char *name, const float *x, int64_t tokens, struct error *err)
{
	char *path = beside(probe, "input");
	cJSON *request = request_new("put_input"), *answer = NULL;

	cJSON_AddStringToObject(request, "name", name);
	cJSON_AddStringToObject(request, "path", path);
	cJSON_AddNumberToObject(request, "tokens", (double)tokens);
	if (write_numbers(path, x, (size_t)tokens * LAYER_HIDDEN, err) < 0)
		cJSON_Delete(request);
	else
		answer = ask(probe, request, err);
	unlink(path);
	free(path);
	cJSON_Delete(answer);
	return answer ? 0 : -1;
}

/* --- calls ------------------------------------------------------------------------------------------ */

/* What an answer says of the output: remembers its type, and refuses another shape than x has. */
static int check_output(struct probe *probe, const cJSON *answer, int64_t tokens, struct error *err)
{
	const double wanted[] = {1, (double)tokens, LAYER_HIDDEN};
	const cJSON *shape = cJSON_GetObjectItemCaseSensitive(answer, "shape");
	const char *type = "Tensor", *dtype = "";
	bool fits = cJSON_GetArraySize(shape) == 3;
	struct error ignored;

	json_string(answer, "type", JSON_OPTIONAL, &type, &ignored);
	json_string(answer, "dtype", JSON_OPTIONAL, &dtype, &ignored);
	if (strcmp(type, "Tensor")) {
		free(probe->type);
		probe->type = xprintf("%.100s", type);
		text_clean(probe->type);
	}
	for (int i = 0; fits && i < 3; i++)
		fits = cJSON_GetNumberValue(cJSON_GetArrayItem(shape, i)) == wanted[i];
	if (!fits) {
		char *found = cJSON_PrintUnformatted(shape);

		error_set(err, STATUS_FAILED, "the output's shape is %.100s; x has [1,%lld,%d]",
			found ? found : "unknown", (long long)tokens, LAYER_HIDDEN);
		cJSON_free(found);
		return -1;
	}
	if (strcmp(dtype, "bfloat16") && strcmp(dtype, "float16") && strcmp(dtype, "float32"))
		return error_set(err, STATUS_FAILED, "the output's type is %.50s", dtype);
	return 0;
}

const char *probe_output_type(const struct probe *probe)
{
	return probe->type;
}

int probe_call(
	struct probe *probe, const char *input, int64_t tokens, int poison, float *out, struct error *err)
{
	cJSON *request = request_new("call_once"), *answer;
	char *path = beside(probe, "output");
	int result = -1;

	cJSON_AddStringToObject(request, "input", input);
	cJSON_AddStringToObject(request, "output", path);
	cJSON_AddNumberToObject(request, "poison", poison);
	answer = ask(probe, request, err);
	if (answer && check_output(probe, answer, tokens, err) == 0)
		result = take_numbers(path, out, (size_t)tokens * LAYER_HIDDEN, err);
	cJSON_Delete(answer);
	free(path);
	return result;
}

int probe_gradients(struct probe *probe, const char *input, int64_t tokens, const float *direction,
	const char **path, struct error *err)
{
	cJSON *request = request_new("gradients"), *answer = NULL;
	char *from = beside(probe, "direction");

	if (!probe->gradients)
		probe->gradients = beside(probe, "gradients");
	*path = probe->gradients;
	cJSON_AddStringToObject(request, "input", input);
	cJSON_AddStringToObject(request, "direction", from);
	cJSON_AddStringToObject(request, "path", *path);
	if (write_numbers(from, direction, (size_t)tokens * LAYER_HIDDEN, err) < 0)
		cJSON_Delete(request);
	else
		answer = ask(probe, request, err);
	free(from);
	cJSON_Delete(answer);
	return answer ? 0 : -1;
}

/* --- timing ----------------------------------------------------------------------------------------- */

/* Its answers until the last one, with our clock at each line that tells of a round. NULL on error. */
static cJSON *hear_rounds(struct probe *probe, struct probe_times *times, struct error *err)
{
	double started = 0;
	bool runs = false;
	const cJSON *mark;
	cJSON *answer;

	while ((answer = hear_answer(probe, err)) &&
		(mark = cJSON_GetObjectItemCaseSensitive(answer, "clock"))) {
		double now = clock_elapsed();
		bool starts = cJSON_IsString(mark) && !strcmp(mark->valuestring, "start");

		cJSON_Delete(answer);
		if (starts == runs || times->rounds == PROBE_ROUNDS) {
			error_set(err, STATUS_FAILED, "its process tells of rounds that it did not run");
			end(probe, err);
			return NULL;
		}
		if (starts)
			started = now;
		else
			times->own[times->rounds++] = now - started;
		runs = starts;
	}
	return answer;
}

/* As many of its own times as we took. By a clock that stands still, a validator's script divides by zero. */
static int read_times(const cJSON *answer, struct probe_times *times, struct error *err)
{
	const cJSON *item, *list = cJSON_GetObjectItemCaseSensitive(answer, "seconds");
	int count = 0;

	times->memory_mb = NAN;
	json_real(answer, "memory_mb", JSON_OPTIONAL, &times->memory_mb, err);
	cJSON_ArrayForEach (item, list)
		if (count < times->rounds && cJSON_IsNumber(item) && isfinite(item->valuedouble) &&
			item->valuedouble > 0)
			times->process[count++] = item->valuedouble;
	return count && count == times->rounds
		? 0
		: error_set(err, STATUS_FAILED,
			  "its process did not measure the rounds that it ran, or by a clock that does not advance");
}

/* Its request; `paths`: where the outputs go. */
static cJSON *timing_request(const struct probe_timing *timing, char *const paths[2])
{
	cJSON *request = request_new("time_calls"), *inputs, *outputs;

	cJSON_AddNumberToObject(request, "tokens", (double)timing->tokens);
	cJSON_AddNumberToObject(request, "warmups", timing->warmups);
	cJSON_AddNumberToObject(request, "calls", timing->calls);
	cJSON_AddNumberToObject(request, "rounds", timing->rounds);
	cJSON_AddNumberToObject(request, "seconds", timing->seconds);
	cJSON_AddNumberToObject(request, "rest", timing->rest);
	inputs = cJSON_AddArrayToObject(request, "inputs");
	for (const char *const *name = timing->inputs; name && *name; name++)
		cJSON_AddItemToArray(inputs, cJSON_CreateString(*name));
	outputs = cJSON_AddArrayToObject(request, "outputs");
	for (int i = 0; timing->last && i < 2; i++)
		cJSON_AddItemToArray(outputs, cJSON_CreateString(paths[i]));
	return request;
}

static int take_times(struct probe *probe, const struct probe_timing *timing, const cJSON *answer,
	char *const paths[2], struct probe_times *times, struct error *err)
{
	size_t count = (size_t)timing->tokens * LAYER_HIDDEN;
	int64_t drawn = 0;
	struct error ignored;

	json_integer(answer, "drawn", JSON_OPTIONAL, &drawn, &ignored);
	times->drawn = drawn > 0 && drawn < timing->calls ? (int)drawn : 0;
	if (read_times(answer, times, err) < 0 || check_output(probe, answer, timing->tokens, err) < 0)
		return -1;
	if (timing->last && take_numbers(paths[0], timing->last, count, err) < 0)
		return -1;
	return timing->last ? take_numbers(paths[1], timing->drawn, count, err) : 0;
}

int probe_time(
	struct probe *probe, const struct probe_timing *timing, struct probe_times *times, struct error *err)
{
	char *paths[] = {beside(probe, "last"), beside(probe, "drawn")};
	cJSON *answer = NULL;
	int result = -1;

	*times = (struct probe_times){.calls = timing->calls};
	if (say(probe, timing_request(timing, paths), err) == 0)
		answer = hear_rounds(probe, times, err);
	if (answer)
		result = take_times(probe, timing, answer, paths, times, err);
	cJSON_Delete(answer);
	free(paths[0]);
	free(paths[1]);
	return result;
}

/* --- behind the scenes ------------------------------------------------------------------------------ */

cJSON *probe_autotuners(struct probe *probe, const char *input, struct error *err)
{
	cJSON *request = request_new("autotuners"), *answer, *kernels = NULL;

	cJSON_AddStringToObject(request, "input", input);
	answer = ask(probe, request, err);
	if (answer)
		kernels = cJSON_DetachItemFromObjectCaseSensitive(answer, "kernels");
	if (answer && !cJSON_IsArray(kernels)) {
		cJSON_Delete(kernels);
		kernels = NULL;
		error_set(err, STATUS_FAILED, "its process answers with nonsense");
	}
	cJSON_Delete(answer);
	return kernels;
}

int probe_configure(struct probe *probe, const cJSON *configs, const char *input, struct error *err)
{
	cJSON *request = request_new("configure"), *answer;

	cJSON_AddItemToObject(request, "configs", cJSON_Duplicate(configs, true));
	cJSON_AddStringToObject(request, "input", input);
	answer = ask(probe, request, err);
	cJSON_Delete(answer);
	return answer ? 0 : -1;
}

int probe_replaced(struct probe *probe, char **what, bool *settled, struct error *err)
{
	cJSON *answer = ask(probe, request_new("replaced"), err);
	struct buffer names = {0};
	struct error ignored;
	const cJSON *name;

	if (!answer)
		return -1;
	*settled = false;
	json_bool(answer, "settled", JSON_OPTIONAL, settled, &ignored);
	buffer_append(&names, "", 0);
	cJSON_ArrayForEach (name, cJSON_GetObjectItemCaseSensitive(answer, "replaced"))
		if (cJSON_IsString(name))
			buffer_printf(&names, "%s%.60s", names.length ? ", " : "", name->valuestring);
	cJSON_Delete(answer);
	text_clean(names.data);
	*what = names.data;
	return 0;
}

int probe_memory(struct probe *probe, const char *input, double *outside_mb, bool *reset, struct error *err)
{
	cJSON *request = request_new("memory"), *answer;
	int result = -1;

	cJSON_AddStringToObject(request, "input", input);
	answer = ask(probe, request, err);
	if (answer && json_real(answer, "outside_mb", JSON_REQUIRED, outside_mb, err) == 0)
		result = json_bool(answer, "reset", JSON_REQUIRED, reset, err);
	if (answer && result)
		err->status = STATUS_FAILED;
	cJSON_Delete(answer);
	return result;
}

int probe_finish(struct probe *probe, struct error *err)
{
	int status;

	process_hush(&probe->process);
	if (process_finish(&probe->process, HUSH_SECONDS, &status, err) == 0)
		return 0;
	if (err->status == STATUS_ENVIRONMENT)
		error_set(err, STATUS_FAILED,
			"its process, or one that it started, still runs %.0f s after the last call: validators "
			"wait for the end, and give up after %.0f s",
			HUSH_SECONDS, PROBE_SECONDS);
	return -1;
}

const struct buffer *probe_printed(const struct probe *probe)
{
	return &probe->process.text;
}
