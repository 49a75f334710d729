#include "probe/environment.h"

#include <fnmatch.h>
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/process.h"
#include "base/text.h"

#define IMPORT_SECONDS 120.0

/* How pip is told where packages are, also by a proxy: beyond what other programs see. */
static const char *const pip_variables[] = {"PIP_*", "[Hh][Tt][Tt][Pp]_[Pp][Rr][Oo][Xx][Yy]",
	"[Hh][Tt][Tt][Pp][Ss]_[Pp][Rr][Oo][Xx][Yy]", "[Nn][Oo]_[Pp][Rr][Oo][Xx][Yy]",
	"[Aa][Ll][Ll]_[Pp][Rr][Oo][Xx][Yy]", "REQUESTS_CA_BUNDLE"};

/* Of this process's environment; ends with NULL. The caller frees the list alone. */
static char **pip_environment(void)
{
	size_t count = 0, kept = 0;
	char **list;

	while (environ[count])
		count++;
	list = xcalloc(count + 1, sizeof(*list));
	for (size_t i = 0; i < count; i++) {
		char *name = strndup(environ[i], strcspn(environ[i], "="));

		for (size_t p = 0; name && p < sizeof(pip_variables) / sizeof(*pip_variables); p++)
			if (!fnmatch(pip_variables[p], name, 0)) {
				list[kept++] = environ[i];
				break;
			}
		free(name);
	}
	return list;
}

/* Shows what a step says last, and for how long it has gone on. */
static void show(const char *what, double began, const struct process *process)
{
	char *copy = xstrdup(process->text.data ? process->text.data : ""), spent[32];

	clock_duration(clock_elapsed() - began, spent);
	log_passing("%s, %s: %s", what, spent, text_last_line(copy));
	free(copy);
}

/* Runs `words` (ends with NULL), which may take long. */
static int run_step(const char *what, const char *const *words, struct error *err)
{
	const char *argv[16] = {"/bin/sh", "-c", "exec \"$0\" \"$@\" 2>&1"};
	char **environment = pip_environment();
	double began = clock_elapsed();
	struct process process;
	int status = 0, result;

	for (size_t i = 0; words[i]; i++)
		argv[3 + i] = words[i];
	result = process_start(&process, argv, environment, "", err);
	free(environment);
	while (!result && !process_ended(&process, &status)) {
		struct pollfd output = {.fd = process.output, .events = POLLIN};

		result = clock_poll(&output, 1, fmin(1, process_pause(&process)), err);
		show(what, began, &process);
	}
	log_passing_end();
	if (result)
		process_kill(&process);
	else if (status)
		result = error_set(err, STATUS_ENVIRONMENT, "%s failed: %.500s", what,
			process.text.data ? text_last_line(process.text.data) : "it said nothing");
	buffer_free(&process.text);
	return result;
}

static int make(const char *path, struct error *err)
{
	const char *argv[] = {"python3", "-m", "venv", path, NULL};

	if (run_step("making the virtual environment", argv, err) == 0)
		return 0;
	if (err->status == STATUS_ENVIRONMENT)
		error_hint(
			err, "It needs Python 3 with its module venv: on Debian, the package python3-venv.");
	return -1;
}

static int install(const char *python, struct error *err)
{
	const char *argv[] = {python, "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar",
		"off", "torch", NULL};

	if (run_step("installing PyTorch", argv, err) == 0)
		return 0;
	if (err->status == STATUS_ENVIRONMENT)
		error_hint(err,
			"Check the network, pip's settings and the room on the disk, then run it again.");
	return -1;
}

/* What counts is that it can be imported. */
static int ask_version(const char *python, char **torch, struct error *err)
{
	const char *argv[] = {python, "-c", "import torch; print(torch.__version__)", NULL};
	char *answer = process_ask(argv, NULL, IMPORT_SECONDS, err);

	if (!answer)
		return error_context(err, "PyTorch was installed, but cannot be imported");
	*torch = xstrdup(text_last_line(answer));
	free(answer);
	return 0;
}

int environment_make(const char *path, char **torch, struct error *err)
{
	char *python = path_join(path, "bin/python");
	bool is_new = !path_exists(path);
	struct error ignored;
	int result;

	log_note("PyTorch is installed into %s: it downloads some gigabytes.", path);
	result = is_new ? make(path, err) : 0;
	if (!result)
		result = install(python, err);
	if (!result)
		result = ask_version(python, torch, err);
	if (result && is_new)
		directory_remove(path, &ignored);
	free(python);
	return result;
}
