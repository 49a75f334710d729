#include "image/image.h"

#include <regex.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/text.h"
#include "image/tool.h"

/* The longest name without tag and digest that registries take. */
#define LONGEST_NAME 255
#define LONGEST_REFERENCE 512

/* Seconds to say whether an image is here. */
#define LOOK_SECONDS 60

/* A path's part; the host, which a dot, a port or "localhost" tells from it. */
#define COMPONENT "[a-z0-9]+((\\.|_|__|-+)[a-z0-9]+)*"
#define HOST_PART "[a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?"
#define HOST "(((localhost|" HOST_PART "(\\." HOST_PART ")+)(:[0-9]+)?|" HOST_PART ":[0-9]+)/)?"
#define TAG "(:[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,127})?"
#define DIGEST "(@sha256:[0-9a-f]{64})?"

static bool fits(const char *pattern, const char *text)
{
	regex_t compiled;
	bool matches = regcomp(&compiled, pattern, REG_EXTENDED | REG_NOSUB) == 0;

	if (!matches)
		return false;
	matches = regexec(&compiled, text, 0, NULL, 0) == 0;
	regfree(&compiled);
	return matches;
}

/* Where tag or digest begin. */
static size_t name_length(const char *reference)
{
	const char *slash = strrchr(reference, '/');

	/* a colon before the last slash is a port's */
	return (size_t)(slash ? slash - reference : 0) + strcspn(slash ? slash : reference, ":@");
}

int image_check_syntax(const char *reference, struct error *err)
{
	char *shown;

	if (strlen(reference) <= LONGEST_REFERENCE && name_length(reference) <= LONGEST_NAME &&
		fits("^" HOST COMPONENT "(/" COMPONENT ")*" TAG DIGEST "$", reference))
		return 0;
	shown = xprintf("%.80s", reference);
	text_clean(shown);
	error_set(err, STATUS_USAGE, "\"%s\" is not the reference of an image", shown);
	free(shown);
	return error_hint(err,
		"Write it as registries do, in lower case: NAME/quasar-miner-gpu:TAG, or best "
		"NAME/quasar-miner-gpu@sha256:DIGEST.");
}

bool image_is_pinned(const char *reference)
{
	return strstr(reference, "@sha256:") != NULL;
}

/* STATUS_FAILED with the tool's words, or STATUS_INTERRUPTED. */
static int pull(const char *tool, const char *reference, double timeout, struct error *err)
{
	/* an empty folder, or file in it, in the place of the logins */
	static const char script[] =
		"logins=$(mktemp -d) && echo '{}' >\"$logins/auth.json\" || exit 1\n"
		"case $1 in\n"
		"podman) podman pull --quiet --authfile \"$logins/auth.json\" \"$2\" ;;\n"
		"*) DOCKER_CONFIG=$logins \"$1\" pull --quiet \"$2\" ;;\n"
		"esac\n"
		"result=$?; rm -rf \"$logins\"; exit $result";
	char *said = tool_ask(
		(const char *const[]){"/bin/sh", "-c", script, "sh", tool, reference, NULL}, timeout, err);

	free(said);
	if (said)
		return 0;
	if (err->status == STATUS_INTERRUPTED)
		return -1;
	err->status = STATUS_FAILED;
	error_context(err, "cannot pull %s", reference);
	return error_hint(
		err, "Validators pull it without a login: push it, and make the repository public.");
}

static void check_pull(const char *reference, const char *tool, double timeout, struct check_list *checks)
{
	struct error err;

	if (!tool)
		tool = tool_find(NULL, TOOL_RUNS, &err);
	if (!tool && err.status != STATUS_INTERRUPTED)
		check_add(checks, "image.pull", CHECK_SKIP, NULL, "neither podman nor docker works here");
	else if (!tool || pull(tool, reference, timeout, &err) < 0)
		check_problem(checks, "image.pull", CHECK_FAIL, &err);
	else
		check_add(checks, "image.pull", CHECK_OK, NULL, "it can be pulled");
}

void image_check(const char *reference, const char *tool, double timeout, struct check_list *checks)
{
	struct error err;

	if (image_check_syntax(reference, &err) < 0) {
		check_problem(checks, "image.syntax", CHECK_FAIL, &err);
		return;
	}
	check_add(checks, "image.syntax", CHECK_OK, NULL, "%s", reference);
	if (image_is_pinned(reference))
		check_add(checks, "image.pinned", CHECK_OK, NULL, "by its digest");
	else
		check_add(checks, "image.pinned", CHECK_WARN,
			"Name it by its digest: MINER_DOCKER_IMAGE=NAME@sha256:…, which `podman push "
			"--digestfile` and `docker images --digests` tell.",
			"a tag may be moved to another image; validators run what it is when they pull");
	if (timeout > 0)
		check_pull(reference, tool, timeout, checks);
}

bool image_is_here(const char *tool, const char *reference)
{
	struct error ignored;
	char *said = tool_ask(
		(const char *const[]){tool, "image", "inspect", "--format={{.Id}}", reference, NULL},
		LOOK_SECONDS, &ignored);

	free(said);
	return said != NULL;
}
