/* tune: what was found, put into a fork. */
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "cli/tuned.h"
#include "cmd/tune/tune.h"
#include "fork/export.h"
#include "space/workspace.h"

static int nothing_found(struct error *err)
{
	error_set(err, STATUS_FAILED, "nothing was tuned yet for this version's kernels");
	return error_hint(
		err, "Run `quasar tune` on a machine with a GPU, or add results with --import FILE.");
}

char *tune_fork_path(const struct invocation *invocation, struct error *err)
{
	const char *named = arg_string(invocation, "fork"), *directory;

	if (named)
		return xstrdup(named);
	directory = require_workspace(invocation, err);
	if (directory)
		return workspace_fork_path(directory, invocation->settings);
	error_hint(err, "Name a fork with --fork DIR, or create a workspace with `quasar init DIR`.");
	return NULL;
}

static void tell(const struct tune_request *request, const struct export_plan *plan, size_t count)
{
	const struct export_file *file = &plan->files[0];
	cJSON *document;

	if (request->invocation->json) {
		document = cJSON_CreateObject();
		cJSON_AddStringToObject(document, "fork", plan->fork);
		cJSON_AddStringToObject(document, "path", file->file->path);
		cJSON_AddNumberToObject(document, "configurations", (double)count);
		cJSON_AddBoolToObject(document, "written", plan->written);
		output_json(document);
		return;
	}
	if (!plan->written)
		printf("Nothing to write: %s is up to date.\n", file->file->path);
	else
		printf("%zu configuration%s written to %s/%s, +%zu -%zu lines.\n", count,
			count == 1 ? "" : "s", plan->fork, file->file->path, file->added, file->removed);
	if (plan->written && plan->undo)
		printf("To undo this before committing it:\n  %s\n", plan->undo);
}

static int write_file(const struct export_plan *plan, struct error *err)
{
	if (!plan->uncommitted)
		return export_write(plan, err);
	error_set(err, STATUS_FAILED, "nothing was written: %s has uncommitted changes",
		plan->files[0].file->path);
	return error_hint(err, "Commit or stash them first.");
}

int tune_apply(const struct tune_request *request, struct error *err)
{
	struct buffer text = {0};
	size_t count = command_tuned_file(&text);
	char *fork = count ? tune_fork_path(request->invocation, err) : NULL;
	struct export_plan plan;
	int result = fork ? 0 : count ? -1 : nothing_found(err);

	if (!result)
		result = export_plan_make(fork, EXPORT_TUNED, text.data, &plan, err);
	if (!result) {
		result = write_file(&plan, err);
		if (!result)
			tell(request, &plan, count);
		export_plan_free(&plan);
	}
	free(fork);
	buffer_free(&text);
	return result;
}
