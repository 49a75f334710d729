#include "cli/python.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"

/* A path in the workspace's settings is relative to it, as that of the fork; a name is one in the PATH. */
static char *from_workspace(const struct invocation *invocation, const char *name)
{
	char *expanded = path_expand(name), *path;

	if (!invocation->workspace || !strchr(expanded, '/'))
		return expanded;
	path = path_join(invocation->workspace, expanded);
	free(expanded);
	return path;
}

int command_python(
	const struct invocation *invocation, const char *fork, struct python *python, struct error *err)
{
	const char *named = arg_string(invocation, "python");
	bool given = arg_given(invocation, "python");
	char *path = named && !given ? from_workspace(invocation, named) : NULL;
	const struct python_search search = {
		.named = path ? path : named,
		.named_by = given ? "--python" : "QUASAR_PYTHON",
		.workspace = invocation->workspace,
		.fork = fork,
	};
	int result = python_find(&search, python, err);

	free(path);
	return result;
}

bool command_rehearsal(const struct invocation *invocation, const struct api *api, const char *fork)
{
	struct python python;
	struct error ignored;
	bool runs;

	if (!api_is_local(api))
		return false;
	runs = command_python(invocation, fork, &python, &ignored) == 0 && python.torch;
	python_free(&python);
	return !runs;
}
