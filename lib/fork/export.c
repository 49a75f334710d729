#include "fork/export.h"

#include <ctype.h>
#include <errno.h>
#include <git2.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buffer.h"
#include "base/file.h"
#include "base/hex.h"
#include "base/memory.h"
#include "base/text.h"
#include "fork/private.h"
#include "fork/template.h"

#define FILE_LIMIT ((size_t)16 << 20)
#define OPERATION "fla/ops/quasar/"
#define ENTRY OPERATION "entry.cu"
#define KERNELS OPERATION "kernels/"
#define LAYER "fla/layers/quasar.py"

static bool starts_with(const char *text, const char *start)
{
	return !strncmp(text, start, strlen(start));
}

/* --- what is there ------------------------------------------------------------------------------- */

/* Whether the first `length` bytes of the path, a folder or the file itself, are in the fork. -1 when something else
 * is in their place: no link is followed, wherever it leads. */
static int is_there(const char *fork, const char *path, size_t length, mode_t *mode, struct error *err)
{
	char *place = xprintf("%s/%.*s", fork, (int)length, path);
	const char *kind = path[length] ? "folder" : "file";
	struct stat status;
	int result = lstat(place, &status) == 0;

	if (result)
		*mode = status.st_mode;
	if (!result && errno != ENOENT)
		result = error_set(err, STATUS_ENVIRONMENT, "%s: %s", place, strerror(errno));
	else if (result && !(path[length] ? S_ISDIR(*mode) : S_ISREG(*mode)))
		result = error_set(err, STATUS_ENVIRONMENT, "%s is %s, not a %s", place,
			S_ISLNK(*mode) ? "a link" : "something else", kind);
	free(place);
	return result;
}

/* The same for the whole path. `missing` receives the length of the first part that is not there. */
static int find_file(const char *fork, const char *path, size_t *missing, mode_t *mode, struct error *err)
{
	int there = 1;

	for (*missing = strcspn(path, "/");
		(there = is_there(fork, path, *missing, mode, err)) > 0 && path[*missing];)
		*missing += 1 + strcspn(path + *missing + 1, "/");
	return there;
}

/* A module outside of the operation may be a package: fla/utils/__init__.py stands before fla/utils.py. */
static char *package_of(const char *fork, const char *path)
{
	size_t length = strlen(path) - strlen(".py");
	char *package = xprintf("%.*s/__init__.py", (int)length, path), *whole = path_join(fork, package);
	bool exists = path_exists(whole);

	free(whole);
	if (exists)
		return package;
	free(package);
	return NULL;
}

/* --- one file ------------------------------------------------------------------------------------ */

static int count_lines(struct export_file *file, const struct buffer *old, struct error *err)
{
	git_patch *patch = NULL;
	int code = git_patch_from_buffers(
		&patch, old->data, old->length, NULL, file->text, strlen(file->text), NULL, NULL);

	if (!code)
		code = git_patch_line_stats(NULL, &file->added, &file->removed, patch);
	git_patch_free(patch);
	return code ? git_failed(code, "compare", file->file->path, err) : 0;
}

/* What git knows of a file that is to be written. */
static int ask_git(git_repository *repository, const char *fork, struct export_file *file, struct error *err)
{
	char *path = fork_path_in_repository(repository, fork, file->file->path);
	unsigned flags = GIT_STATUS_CURRENT;
	int code = 0, ignored = 0;

	if (path && file->change == EXPORT_CHANGED)
		code = git_status_file(&flags, repository, path);
	else if (path)
		code = git_ignore_path_is_ignored(&ignored, repository, path);
	file->uncommitted = flags != GIT_STATUS_CURRENT;
	file->ignored = ignored;
	free(path);
	return code ? git_failed(code, "look at", file->file->path, err) : 0;
}

/* Compares a file of ours with the fork's. `missing`: as find_file has it. */
static int compare(const char *fork, struct export_file *file, size_t *missing, struct error *err)
{
	const char *path = file->file->path;
	bool ours = file->ours;
	char *package = ours ? NULL : package_of(fork, path), *whole = path_join(fork, path);
	struct buffer old = {0};
	mode_t mode = 0;
	int result, there = package ? 1 : find_file(fork, path, missing, &mode, err);

	result = there < 0 ? -1 : 0;
	if (there > 0 && !package)
		result = file_read(whole, FILE_LIMIT, &old, err);
	file->permissions = there > 0 ? mode & 0777 : 0644;
	if (there <= 0)
		file->change = EXPORT_ADDED;
	else if (old.data && !strcmp(old.data, file->text) && strlen(old.data) == old.length)
		file->change = EXPORT_SAME;
	else
		file->change = ours ? EXPORT_CHANGED : EXPORT_KEPT;
	if (!result && (file->change == EXPORT_ADDED || file->change == EXPORT_CHANGED))
		result = count_lines(file, &old, err);
	buffer_free(&old);
	free(whole);
	free(package);
	return result;
}

/* --- our own ------------------------------------------------------------------------------------- */

const char *export_text(const char *path)
{
	for (size_t i = 0; i < template_fork_count; i++)
		if (!strcmp(template_fork[i].path, path))
			return template_fork[i].text;
	return NULL;
}

static int by_path(const void *a, const void *b)
{
	return strcmp(
		(*(const struct fork_file *const *)a)->path, (*(const struct fork_file *const *)b)->path);
}

void export_kernels_hash(char hash[EXPORT_KERNELS_HASH])
{
	const char *entry = export_text(ENTRY);
	const struct fork_file **files = xcalloc(template_fork_count, sizeof(*files));
	crypto_hash_sha256_state state;
	uint8_t digest[crypto_hash_sha256_BYTES];
	size_t count = 0;

	for (size_t i = 0; i < template_fork_count; i++)
		if (starts_with(template_fork[i].path, KERNELS))
			files[count++] = &template_fork[i];
	qsort(files, count, sizeof(*files), by_path);
	crypto_hash_sha256_init(&state);
	crypto_hash_sha256_update(&state, (const uint8_t *)entry, strlen(entry));
	for (size_t i = 0; i < count; i++)
		crypto_hash_sha256_update(&state, (const uint8_t *)files[i]->text, strlen(files[i]->text));
	crypto_hash_sha256_final(&state, digest);
	hex_encode(digest, sizeof(digest), hash);
	free(files);
}

/* --- the plan ------------------------------------------------------------------------------------ */

/* A space and the text's first bytes, as a word of a command. */
static void add_word(struct buffer *out, const char *text, size_t length)
{
	char *part = xprintf("%.*s", (int)length, text), *word = shell_word(part);

	buffer_printf(out, " %s", word);
	free(word);
	free(part);
}

/* A git command on files of the fork, unless there are none. */
static void add_command(struct buffer *out, const char *fork, const char *words, const struct buffer *files)
{
	if (!files->length)
		return;
	buffer_text(out, out->length ? " && git -C" : "git -C");
	add_word(out, fork, strlen(fork));
	buffer_printf(out, " %s --%s", words, files->data);
}

/* The repository that the fork is in, or NULL. */
static int open_repository(const char *fork, git_repository **repository, struct error *err)
{
	int code = git_repository_open_ext(repository, fork, 0, NULL);

	*repository = code ? NULL : *repository;
	return code && code != GIT_ENOTFOUND ? git_failed(code, "read the repository", fork, err) : 0;
}

/* Whether a file is part of what is asked for. */
static bool is_wanted(const char *path, enum export_part part)
{
	if (part == EXPORT_OPS)
		return true;
	if (part == EXPORT_TUNED)
		return !strcmp(path, EXPORT_TUNED_PATH);
	return starts_with(path, "fla/") && !(part == EXPORT_OPERATION && !strcmp(path, LAYER));
}

/* Whether the fork's own file of that name does not stay. */
static bool is_ours(const char *path, enum export_part part, const char *tuned)
{
	if (!strcmp(path, EXPORT_TUNED_PATH))
		return tuned != NULL;
	return part == EXPORT_OPS || starts_with(path, OPERATION) || !strcmp(path, LAYER);
}

static int compare_all(struct export_plan *plan, enum export_part part, const char *tuned,
	git_repository *repository, struct error *err)
{
	const struct fork_file *files = part == EXPORT_OPS ? template_ops : template_fork;
	size_t count = part == EXPORT_OPS ? template_ops_count : template_fork_count;
	struct buffer changed = {0}, added = {0}, undo = {0};
	const char *last = NULL; /* what was added last, and how much of its path was new */
	size_t last_length = 0;
	int result = 0;

	plan->files = xcalloc(count, sizeof(*plan->files));
	for (size_t i = 0; !result && i < count; i++) {
		struct export_file *file = &plan->files[plan->count];
		const char *path = files[i].path;
		size_t missing = 0;

		if (!is_wanted(path, part))
			continue;
		file->file = &files[i];
		file->text = tuned && !strcmp(path, EXPORT_TUNED_PATH) ? tuned : files[i].text;
		file->ours = is_ours(path, part, tuned);
		plan->count++;
		result = compare(plan->fork, file, &missing, err);
		if (result || file->change == EXPORT_SAME || file->change == EXPORT_KEPT)
			continue;
		if (repository)
			result = ask_git(repository, plan->fork, file, err);
		plan->written++;
		plan->changed += file->change == EXPORT_CHANGED;
		plan->uncommitted += file->uncommitted;
		if (file->change == EXPORT_CHANGED) {
			add_word(&changed, path, strlen(path));
		} else if (!last || missing != last_length || strncmp(path, last, missing)) {
			add_word(&added, path, missing);
			last = path;
			last_length = missing;
		}
	}
	add_command(&undo, plan->fork, "checkout HEAD", &changed);
	add_command(&undo, plan->fork, "clean -fdq", &added);
	if (!result && plan->in_git && !plan->uncommitted && undo.length)
		plan->undo = xstrdup(undo.data);
	buffer_free(&changed);
	buffer_free(&added);
	buffer_free(&undo);
	return result;
}

/* Whether the name stands in the text by itself. */
static bool has_name(const char *text, const char *name)
{
	size_t length = strlen(name);

	for (const char *at = text; (at = strstr(at, name)); at += length) {
		unsigned char before = at > text ? (unsigned char)at[-1] : ' ',
			      after = (unsigned char)at[length];

		if (!isalnum(before) && before != '_' && !isalnum(after) && after != '_')
			return true;
	}
	return false;
}

/* Whether an import line of ours finds its name, where the fork has a module of its own: "from fla.utils import IS_AMD". */
static bool is_met(const struct export_plan *plan, const char *line)
{
	const char *module = line + strlen("from "), *name = strrchr(line, ' ') + 1;
	char *path = xprintf("%.*s.py", (int)strcspn(module, " "), module), *package, *whole;
	struct buffer text = {0};
	struct error ignored;
	bool met = true;

	for (char *dot = path; (dot = strchr(dot, '.')) && strcmp(dot, ".py");)
		*dot = '/';
	for (size_t i = 0; i < plan->count; i++) {
		if (plan->files[i].change != EXPORT_KEPT || strcmp(plan->files[i].file->path, path))
			continue;
		package = package_of(plan->fork, path);
		whole = path_join(plan->fork, package ? package : path);
		met = file_read(whole, FILE_LIMIT, &text, &ignored) == 0 && text.length &&
			has_name(text.data, name);
		free(whole);
		free(package);
	}
	buffer_free(&text);
	free(path);
	return met;
}

static void check_imports(struct export_plan *plan)
{
	size_t count = 0;

	for (size_t i = 0; i < INSPECT_STRICT_COUNT; i++)
		if (starts_with(inspect_strict_lines[i], "from fla.") &&
			!is_met(plan, inspect_strict_lines[i]))
			plan->unmet[count++] = inspect_strict_lines[i];
}

/* A fork has a package fla. quasar_ops goes anywhere. */
static int find_folder(const char *path, enum export_part part, struct export_plan *plan, struct error *err)
{
	struct stat status;
	char *package;
	bool found;

	plan->fork = realpath(path, NULL);
	if (!plan->fork) {
		error_set(err, STATUS_ENVIRONMENT, "%s: %s", path, strerror(errno));
		if (part == EXPORT_OPS)
			return error_hint(err, "Name a folder that is there.");
	} else if (part == EXPORT_OPS) {
		return 0;
	} else {
		package = path_join(plan->fork, "fla");
		found = stat(package, &status) == 0 && S_ISDIR(status.st_mode);
		free(package);
		if (found)
			return 0;
		error_set(err, STATUS_ENVIRONMENT, "%s is not a fork: it has no fla folder", path);
	}
	return error_hint(err,
		"Name the root of a clone of flash-linear-attention, or create a workspace with a "
		"fork: quasar init DIR");
}

int export_plan_make(const char *path, enum export_part part, const char *tuned, struct export_plan *plan,
	struct error *err)
{
	git_repository *repository = NULL;
	int result;

	*plan = (struct export_plan){0};
	git_begin();
	result = find_folder(path, part, plan, err);
	if (!result)
		result = open_repository(plan->fork, &repository, err);
	plan->in_git = repository != NULL;
	if (!result)
		result = compare_all(plan, part, tuned, repository, err);
	if (!result)
		check_imports(plan);
	git_repository_free(repository);
	if (result)
		export_plan_free(plan);
	return result;
}

void export_plan_free(struct export_plan *plan)
{
	free(plan->fork);
	free(plan->files);
	free(plan->undo);
	*plan = (struct export_plan){0};
}

/* --- writing ------------------------------------------------------------------------------------- */

static int write_one(const struct export_plan *plan, const struct export_file *file, struct error *err)
{
	bool added = file->change == EXPORT_ADDED;
	char *path = path_join(plan->fork, file->file->path), *folder = xstrdup(path);
	int result;

	*strrchr(folder, '/') = '\0';
	result = added ? directory_make(folder, 0755, err) : 0;
	if (!result)
		result = file_write(path, file->text, strlen(file->text), file->permissions,
			added ? FILE_NEW : FILE_REPLACE, err);
	free(folder);
	free(path);
	return result;
}

int export_write(const struct export_plan *plan, struct error *err)
{
	const struct export_file *last = NULL;
	size_t written = 0;

	for (size_t i = 0; i < plan->count; i++) {
		const struct export_file *file = &plan->files[i];

		if (file->change == EXPORT_SAME || file->change == EXPORT_KEPT)
			continue;
		if (write_one(plan, file, err) < 0)
			return last
				? error_append(err, "; %zu of %zu files had been written, the last one %s",
					  written, plan->written, last->file->path)
				: error_append(err, "; nothing was written");
		last = file;
		written++;
	}
	return 0;
}
