#include "image/tool.h"

#include <fnmatch.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/process.h"

/* Seconds to say whether it works. */
#define LOOK_SECONDS 60

/* Variables of the environment that tell such tools where things are, and where the user's logins. */
static const char *const passed[] = {"DOCKER_*", "CONTAINER_*", "CONTAINERS_*", "BUILDAH_*", "BUILDKIT_*",
	"STORAGE_*", "REGISTRY_AUTH_FILE"};

/* Its strings stay the environment's. The caller frees the list. */
static char **make_environment(void)
{
	size_t count = 0, kept = 0;
	char **list;

	while (environ[count])
		count++;
	list = xcalloc(count + 1, sizeof(*list));
	for (size_t i = 0; i < count; i++)
		for (size_t n = 0; n < sizeof(passed) / sizeof(*passed); n++) {
			char *pattern = xprintf("%s=*", passed[n]);

			if (!fnmatch(pattern, environ[i], 0))
				list[kept++] = environ[i];
			free(pattern);
		}
	return list;
}

char *tool_ask(const char *const *argv, double seconds, struct error *err)
{
	char **environment = make_environment(), *said = process_ask(argv, environment, seconds, err);

	free(environment);
	return said;
}

void tool_clear(const char *tool, const char *task, const char *what, double seconds)
{
	const char *const argv[] = {
		"/bin/sh", "-c", "exec \"$1\" $2 --force \"$3\" 2>&1", "sh", tool, task, what, NULL};
	double deadline = clock_elapsed() + seconds;
	char **environment = make_environment();
	struct process process;
	struct error ignored;
	int status;

	if (process_start(&process, argv, environment, "", &ignored) == 0) {
		while (!process_ended(&process, &status) && clock_elapsed() < deadline) {
			struct pollfd output = {.fd = process.output, .events = POLLIN};

			poll(&output, 1, 50); /* its output may end before it does */
		}
		process_kill(&process);
		buffer_free(&process.text);
	}
	free(environment);
}

/* Whether it is here, and whatever it needs runs. */
static bool works(const char *name, struct error *err)
{
	char *said = tool_ask((const char *const[]){name, "info", NULL}, LOOK_SECONDS, err);

	free(said);
	return said != NULL;
}

const char *tool_find(const char *wanted, enum tool_task task, struct error *err)
{
	static const char *const names[] = {"podman", "docker", "buildah"};
	const size_t count = task == TOOL_RUNS ? 2 : 3;

	for (size_t i = 0; i < count; i++)
		if (wanted ? !strcmp(wanted, names[i]) : works(names[i], err))
			return names[i];
	if (wanted) {
		error_set(err, STATUS_USAGE, "%s is not one of %s", wanted,
			task == TOOL_RUNS ? "podman and docker" : "podman, docker and buildah");
		return NULL;
	}
	error_set(err, STATUS_ENVIRONMENT,
		task == TOOL_RUNS ? "neither podman nor docker works here"
				  : "none of podman, docker and buildah works here");
	error_hint(err, "Install one: apt-get install podman");
	return NULL;
}
