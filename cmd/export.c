/* quasar export: our kernels into a fork. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "cmd/commands.h"
#include "fork/export.h"
#include "space/workspace.h"

static const char *const changes[] = {
	[EXPORT_ADDED] = "added",
	[EXPORT_CHANGED] = "changed",
	[EXPORT_SAME] = "same",
	[EXPORT_KEPT] = "kept",
};

static void print_json(const struct export_plan *plan, bool written)
{
	cJSON *document = cJSON_CreateObject(), *list;

	cJSON_AddStringToObject(document, "fork", plan->fork);
	cJSON_AddBoolToObject(document, "written", written);
	list = cJSON_AddArrayToObject(document, "files");
	for (size_t i = 0; i < plan->count; i++) {
		const struct export_file *file = &plan->files[i];
		cJSON *entry = cJSON_CreateObject();

		cJSON_AddItemToArray(list, entry);
		cJSON_AddStringToObject(entry, "path", file->file->path);
		cJSON_AddStringToObject(entry, "change", changes[file->change]);
		cJSON_AddNumberToObject(entry, "lines_added", (double)file->added);
		cJSON_AddNumberToObject(entry, "lines_removed", (double)file->removed);
		cJSON_AddBoolToObject(entry, "uncommitted", file->uncommitted);
	}
	list = cJSON_AddArrayToObject(document, "unmet_imports");
	for (size_t i = 0; plan->unmet[i]; i++)
		cJSON_AddItemToArray(list, cJSON_CreateString(plan->unmet[i]));
	if (plan->undo)
		cJSON_AddStringToObject(document, "undo", plan->undo);
	output_json(document);
}

static void print_files(const struct export_plan *plan)
{
	int width = 0;

	for (size_t i = 0; i < plan->count; i++)
		if ((int)strlen(plan->files[i].file->path) > width)
			width = (int)strlen(plan->files[i].file->path);
	printf("%s\n", plan->fork);
	for (size_t i = 0; i < plan->count; i++) {
		const struct export_file *file = &plan->files[i];
		bool writes = file->change == EXPORT_ADDED || file->change == EXPORT_CHANGED;
		char *lines = writes ? xprintf("  +%-5zu -%zu", file->added, file->removed) : xstrdup("");

		printf("%-7s  %-*s%s%s\n", changes[file->change], writes ? width : 0, file->file->path, lines,
			file->uncommitted ? "  not committed" : "");
		free(lines);
	}
}

/* What is no obstacle, but should be known. */
static void warn(const struct export_plan *plan)
{
	for (size_t i = 0; plan->unmet[i]; i++)
		log_warn("`%s` will fail: the fork has its own module, without that name", plan->unmet[i]);
	for (size_t i = 0; i < plan->count; i++)
		if (plan->files[i].ignored)
			log_warn("the fork's .gitignore names %s: add it by hand, with git add -f", plan->files[i].file->path);
}

/* Whether git could bring back what is overwritten. */
static int check_undoable(const struct export_plan *plan, struct error *err)
{
	if (!plan->in_git) {
		error_set(err, STATUS_FAILED, "nothing was written: %s is in no git repository, so there would be no way back",
			plan->fork);
		return error_hint(err, "Put it under git first, or write all the same with --force.");
	}
	for (size_t i = 0; i < plan->count; i++)
		if (plan->files[i].uncommitted) {
			error_set(err, STATUS_FAILED, "nothing was written: %s has changes that are not committed%s",
				plan->files[i].file->path, plan->uncommitted > 1 ? ", and it is not the only one" : "");
			return error_hint(err, "Commit or stash them, or overwrite them with --force.");
		}
	return 0;
}

static void print_outcome(const struct export_plan *plan, const char *named, bool written)
{
	if (!plan->written) {
		printf("Nothing to write: the fork has all of it.\n");
	} else if (!written) {
		printf("Nothing was written; without --dry-run it would be %zu file%s.\n", plan->written,
			plan->written == 1 ? "" : "s");
	} else {
		printf("%zu file%s written.\n", plan->written, plan->written == 1 ? "" : "s");
		if (plan->undo)
			printf("To undo it, before you commit:\n  %s\n", plan->undo);
		if (named)
			printf("Next: quasar verify --static --fork '%s'\n", named);
		else
			printf("Next: quasar verify && quasar push\n");
	}
}

static int export(const struct invocation *invocation, const char *path, const char *named, struct error *err)
{
	bool dry = arg_flag(invocation, "dry-run"), written = false;
	struct export_plan plan;
	int result = 0;

	if (export_plan_make(path, arg_flag(invocation, "op-only"), &plan, err) < 0)
		return -1;
	if (!invocation->json)
		print_files(&plan);
	warn(&plan);
	if (!dry && plan.written) {
		if (!arg_flag(invocation, "force"))
			result = check_undoable(&plan, err);
		if (!result)
			result = export_write(&plan, err);
		if (result && plan.undo && err->status == STATUS_ENVIRONMENT)
			log_note("To undo what was written: %s", plan.undo);
		written = !result;
	}
	if (!result && invocation->json)
		print_json(&plan, written);
	else if (!result)
		print_outcome(&plan, named, written);
	export_plan_free(&plan);
	return result;
}

static int run(struct invocation *invocation, struct error *err)
{
	const char *named = invocation->positional_count ? invocation->positionals[0] : NULL;
	const char *directory = named ? NULL : require_workspace(invocation, err);
	char *path;
	int result;

	if (!named && !directory)
		return -1;
	path = named ? xstrdup(named) : workspace_fork_path(directory, invocation->settings);
	result = export(invocation, path, named, err);
	free(path);
	return result;
}

const struct command cmd_export = {
	.name = "export",
	.summary = "put quasar's kernels and its layer into a fork",
	.positionals = "[DIR]",
	.max_positionals = 1,
	.description =
		"Puts the QuasarAttention that `quasar init` writes into the workspace's fork, or into DIR, the root of "
		"any clone of flash-linear-attention: the operation with its CUDA, Triton and PyTorch back ends "
		"(fla/ops/quasar), the layer (fla/layers/quasar.py), and of the few modules that they import from the "
		"rest of fla those that are missing. Everything else in the fork stays as it is.\n\n"
		"It lists each file, with the lines that it adds and removes: \"kept\" is what the fork has of its own "
		"and keeps. It stops before it writes anything when a file that it would change is not committed. What it "
		"wrote is undone by git; it says how. Commit and push it, for validators see nothing else.",
	.opts =
		(const struct opt[]){
			{"op-only", 0, NULL, NULL, NULL, NULL, "Leave the layer as it is: put in the operation alone."},
			{"dry-run", 'n', NULL, NULL, NULL, NULL, "Show what would change, and write nothing."},
			{"force", 0, NULL, NULL, NULL, NULL,
				"Overwrite changes that are not committed, and write where there is no git."},
			{0},
		},
	.examples =
		(const struct example[]){
			{"quasar export", "bring the workspace's fork up to this quasar's kernels"},
			{"quasar export --dry-run ~/src/flash-linear-attention", "what would change in a clone"},
			{"quasar export --op-only && quasar verify && quasar push", "keep your own layer, and publish"},
			{0},
		},
	.exits = (const enum status[]){STATUS_FAILED, STATUS_ENVIRONMENT, 0},
	.run = run,
};
