#include "image/container.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/text.h"
#include "image/tool.h"

#define MEMORY "16g"
#define PORT "8000"

/* Seconds that a tool may take to start a container, and to do anything else. */
#define START_SECONDS 300
#define SECONDS 60

/* Where the tool has the port come out: "127.0.0.1:40123". */
static int find_url(struct container *container, struct error *err)
{
	char *said = tool_ask(
		(const char *const[]){container->tool, "port", container->name, PORT, NULL}, SECONDS, err);

	if (!said)
		return -1;
	container->url = xprintf("http://%s", text_last_line(said));
	free(said);
	return 0;
}

int container_start(
	const char *tool, const char *reference, bool gpu, struct container *container, struct error *err)
{
	char *name = xprintf("quasar-verify-%d", (int)getpid());
	const char *const argv[] = {tool, "run", "--name", name, "--detach", "--read-only", "--tmpfs=/tmp",
		"--memory=" MEMORY, "--publish=127.0.0.1::" PORT,
		gpu ? "--env=DEVICE=cuda" : "--env=DEVICE=cpu", gpu ? "--gpus=1" : "--pull=missing",
		reference, NULL};
	char *said = tool_ask(argv, START_SECONDS, err);

	*container = (struct container){.tool = tool, .name = name};
	if (!said) {
		err->status = err->status == STATUS_INTERRUPTED ? STATUS_INTERRUPTED : STATUS_FAILED;
		error_context(err, "cannot start %s", reference);
	}
	free(said);
	if (said && find_url(container, err) == 0)
		return 0;
	container_end(container);
	return -1;
}

char *container_last_words(const struct container *container)
{
	struct error ignored;
	char *said = tool_ask(
		(const char *const[]){container->tool, "logs", "--tail=3", container->name, NULL}, SECONDS,
		&ignored);
	char *words = xstrdup(said ? text_last_line(said) : "");

	free(said);
	return words;
}

void container_end(struct container *container)
{
	if (container->name)
		tool_clear(container->tool, "rm", container->name, SECONDS);
	free(container->name);
	free(container->url);
	*container = (struct container){0};
}
