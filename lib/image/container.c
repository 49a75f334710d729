#include "image/container.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/text.h"
#include "image/relay.h"
#include "image/tool.h"

#define MEMORY "16g"
#define LOG "1m"
#define PORT "8000"

/* In what both tools say of an image with neither command nor entry point. */
#define NO_COMMAND "no command"

/* Seconds that a tool may take to start a container, and to do anything else. */
#define START_SECONDS 300
#define SECONDS 60

/* Where the tool has the port come out: "127.0.0.1:40123". */
static int find_port(struct container *container, struct error *err)
{
	char *said = tool_ask(
		(const char *const[]){container->tool, "port", container->name, PORT, NULL}, SECONDS, err);

	if (!said)
		return -1;
	container->url = xprintf("http://%s", text_last_line(said));
	free(said);
	return 0;
}

static int open_relay(struct container *container, struct error *err)
{
	char *said = tool_ask((const char *const[]){container->tool, "inspect", "--format", "{{.State.Pid}}",
				      container->name, NULL},
		SECONDS, err);
	int pid = said ? atoi(text_last_line(said)) : 0;

	free(said);
	if (!said)
		return -1;
	if (!pid) {
		char *words = container_last_words(container);

		error_set(err, STATUS_FAILED, "it has ended%s%s", *words ? ": " : "", words);
		free(words);
		return -1;
	}
	container->relay = relay_open(pid, atoi(PORT), err);
	if (!container->relay)
		return -1;
	container->url = xprintf("http://127.0.0.1:%d", relay_port(container->relay));
	return 0;
}

/* Starting it comes after: what keeps it from being made is not the image's fault, but for one that says nothing to start. */
static int make_container(
	const struct container *container, const char *reference, int rights, struct error *err)
{
	const bool gpu = rights & CONTAINER_GPU;
	const char *argv[20] = {container->tool, "create", "--name", container->name, "--read-only",
		"--tmpfs=/tmp", "--memory=" MEMORY, "--log-driver=json-file", "--log-opt=max-size=" LOG,
		gpu ? "--env=DEVICE=cuda" : "--env=DEVICE=cpu"};
	size_t count = 10;
	char *said;

	if (gpu)
		argv[count++] = "--gpus=1";
	if (rights & CONTAINER_APART) {
		argv[count++] = "--network=none";
		argv[count++] = "--security-opt=no-new-privileges";
		argv[count++] = "--pids-limit=512";
	} else {
		argv[count++] = "--publish=127.0.0.1::" PORT;
	}
	argv[count] = reference;
	said = tool_ask(argv, START_SECONDS, err);
	if (!said) {
		if (strstr(err->message, NO_COMMAND))
			err->status = STATUS_FAILED;
		error_context(err, "cannot make a container of %s", reference);
	}
	free(said);
	return said ? 0 : -1;
}

static int start(const struct container *container, const char *reference, struct error *err)
{
	char *said = tool_ask(
		(const char *const[]){container->tool, "start", container->name, NULL}, START_SECONDS, err);

	if (!said) {
		err->status = err->status == STATUS_INTERRUPTED ? STATUS_INTERRUPTED : STATUS_FAILED;
		error_context(err, "cannot start %s", reference);
	}
	free(said);
	return said ? 0 : -1;
}

int container_start(
	const char *tool, const char *reference, int rights, struct container *container, struct error *err)
{
	*container = (struct container){.tool = tool, .name = xprintf("quasar-verify-%d", (int)getpid())};
	if (make_container(container, reference, rights, err) == 0 && start(container, reference, err) == 0 &&
		(rights & CONTAINER_APART ? open_relay(container, err) : find_port(container, err)) == 0)
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
	relay_close(container->relay);
	if (container->name)
		tool_clear(container->tool, "rm", container->name, SECONDS);
	free(container->name);
	free(container->url);
	*container = (struct container){0};
}
