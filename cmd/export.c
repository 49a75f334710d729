/* quasar export: our kernels into a fork. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "cli/tuned.h"
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
			file->uncommitted ? "  uncommitted changes" : "");
		free(lines);
	}
}

/* What is no obstacle, but should be known. */
static void warn(const struct export_plan *plan)
{
	for (size_t i = 0; plan->unmet[i]; i++)
		log_warn("`%s` will fail: the fork's own module does not have that name", plan->unmet[i]);
	for (size_t i = 0; i < plan->count; i++)
		if (plan->files[i].ignored)
			log_warn(
				"git ignores %s in this fork: add it with git add -f, or validators will not see it",
				plan->files[i].file->path);
}

/* Whether git could bring back what is overwritten. A fork is never written to without. */
static int check_undoable(const struct export_plan *plan, bool is_fork, struct error *err)
{
	if (!plan->in_git && (is_fork || plan->changed)) {
		error_set(err, STATUS_FAILED,
			"nothing was written: %s is not under git, so the export could not be undone",
			plan->fork);
		return error_hint(err, "Put it under git first, or use --force to write anyway.");
	}
	for (size_t i = 0; i < plan->count; i++)
		if (plan->files[i].uncommitted) {
			error_set(err, STATUS_FAILED, "nothing was written: %s has uncommitted changes%s",
				plan->files[i].file->path,
				plan->uncommitted > 1 ? ", and so have others" : "");
			return error_hint(err, "Commit or stash them, or use --force to overwrite them.");
		}
	return 0;
}

static void print_outcome(
	const struct export_plan *plan, enum export_part part, const char *named, bool written)
{
	char *word;

	if (!plan->written) {
		printf("Nothing to write: %s is up to date.\n",
			part == EXPORT_OPS ? "quasar_ops" : "the fork");
	} else if (!written) {
		printf("Nothing was written; without --dry-run, %zu file%s would be.\n", plan->written,
			plan->written == 1 ? "" : "s");
	} else {
		printf("%zu file%s written.\n", plan->written, plan->written == 1 ? "" : "s");
		if (plan->undo)
			printf("To undo this before committing it:\n  %s\n", plan->undo);
		if (part == EXPORT_OPS)
			printf("Next: in Python there, import quasar_ops; help(quasar_ops.linear_attention)\n");
		else if (!named)
			printf("Next: quasar verify && quasar push\n");
		else {
			word = shell_word(named);
			printf("Next: quasar verify --static --fork %s\n", word);
			free(word);
		}
	}
}

static enum export_part part_of(const struct invocation *invocation)
{
	return arg_flag(invocation, "ops")        ? EXPORT_OPS
		: arg_flag(invocation, "op-only") ? EXPORT_OPERATION
						  : EXPORT_EVERYTHING;
}

static int export(const struct invocation *invocation, const char *path, const char *named, struct error *err)
{
	bool dry = arg_flag(invocation, "dry-run"), written = false;
	enum export_part part = part_of(invocation);
	struct buffer tuned = {0};
	struct export_plan plan;
	int result = 0;

	if (export_plan_make(path, part, command_tuned_file(&tuned) ? tuned.data : NULL, &plan, err) < 0) {
		buffer_free(&tuned);
		return -1;
	}
	if (!invocation->json)
		print_files(&plan);
	warn(&plan);
	if (!dry && plan.written) {
		if (!arg_flag(invocation, "force"))
			result = check_undoable(&plan, part != EXPORT_OPS, err);
		if (!result)
			result = export_write(&plan, err);
		if (result && plan.undo && err->status == STATUS_ENVIRONMENT)
			log_note("To undo what was written: %s", plan.undo);
		written = !result;
	}
	if (!result && invocation->json)
		print_json(&plan, written);
	else if (!result)
		print_outcome(&plan, part, named, written);
	export_plan_free(&plan);
	buffer_free(&tuned);
	return result;
}

static int run(struct invocation *invocation, struct error *err)
{
	bool ops = arg_flag(invocation, "ops");
	const char *named = invocation->positional_count ? invocation->positionals[0] : ops ? "." : NULL;
	const char *directory;
	char *path;
	int result;

	if (ops && arg_flag(invocation, "op-only"))
		return error_set(err, STATUS_USAGE, "use only one of --ops and --op-only");
	directory = named ? NULL : require_workspace(invocation, err);
	if (!named && !directory)
		return -1;
	path = named ? xstrdup(named) : workspace_fork_path(directory, invocation->settings);
	result = export(invocation, path, named, err);
	free(path);
	return result;
}

const struct command cmd_export = {
	.name = "export",
	.summary = "put quasar's kernels and layer into a fork",
	.positionals = "[DIR]",
	.max_positionals = 1,
	.description =
		"Writes quasar's QuasarAttention into the workspace's fork, or into DIR, the root of any clone of "
		"flash-linear-attention: the operation with its CUDA, Triton and PyTorch back ends (fla/ops/quasar), "
		"the layer (fla/layers/quasar.py), and those of the modules they import (fla/utils.py and a few "
		"others) that the fork does not have. What `quasar tune` found for these kernels goes into "
		"fla/ops/quasar/tuned.py. Nothing else in the fork changes.\n\n"
		"Each file is listed with the number of lines added and removed; \"kept\" marks a file of the fork's "
		"own that stays as it is. If a file to be changed has uncommitted changes, nothing is written. "
		"Afterwards, the git command that undoes the export is shown. Commit and push the result: validators "
		"see only what is pushed.\n\n"
		"--ops writes something else, into DIR or here: quasar_ops, a PyTorch package with linear attention and "
		"FlashAttention-2, forward and backward, by the kernels that `quasar bench --op` measures. It needs "
		"PyTorch alone, and does not belong in a fork that validators run.",
	.opts =
		(const struct opt[]){
			{"op-only", 0, NULL, NULL, NULL, NULL,
				"Write only the operation, and leave the layer as it is."},
			{"ops", 0, NULL, NULL, NULL, NULL,
				"Write quasar_ops, for PyTorch, into DIR or the current folder."},
			{"dry-run", 'n', NULL, NULL, NULL, NULL,
				"Show what would change, but write nothing."},
			{"force", 0, NULL, NULL, NULL, NULL,
				"Overwrite uncommitted changes, and write to a fork that is not under git."},
			{0},
		},
	.examples =
		(const struct example[]){
			{"quasar export", "update the workspace's fork to this version's kernels"},
			{"quasar export --dry-run ~/src/flash-linear-attention",
				"show what would change in a clone"},
			{"quasar export --op-only && quasar verify && quasar push",
				"keep your own layer, then check and publish"},
			{"quasar export --ops ~/model",
				"linear attention and FlashAttention-2 for PyTorch, beside your own code"},
			{0},
		},
	.exits = (const enum status[]){STATUS_FAILED, STATUS_ENVIRONMENT, 0},
	.run = run,
};
