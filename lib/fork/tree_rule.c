#include "fork/tree_rule.h"

#include <fts.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buffer.h"
#include "base/memory.h"
#include "fork/fork_text.h"
#include "fork/inspect.h"
#include "fork/python_ast.h"
#include "fork/python_source.h"

#define PACKAGE "fla"
#define FILES_LIMIT 20000
#define BATCH_FILES 256
#define SHOWN 4     /* findings, sure and unsure ones; the others are counted */
#define BINDINGS 64 /* other names for os and the like, in one file */

/* --- the words of the rule ----------------------------------------------------------------------- */

static const char *const forbidden_modules[] = {
	"importlib", "ctypes", "socket", "http", "urllib", "requests", "paramiko", "fabric"};

/* A star stands for the rest of a name. */
static const char *const forbidden_calls[] = {"__import__", "exec", "eval", "compile", "os.system",
	"os.popen", "os.exec*", "os.spawn*", "subprocess.run", "subprocess.call", "subprocess.Popen",
	"subprocess.check_*"};

static const char *const forbidden_packages[] = {"fla.ops.gla", "fla.ops.kda"};

/* Where a name can come from that is forbidden to be called. */
static const char *const calling_modules[] = {"os", "subprocess", "builtins"};

#define COUNT(list) (sizeof(list) / sizeof(*(list)))

/* Whether the dotted name is the module, or in it. */
static bool is_within(const char *name, const char *module)
{
	size_t length = strlen(module);

	return !strncmp(name, module, length) && (!name[length] || name[length] == '.');
}

static const char *which_within(const char *name, const char *const *modules, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (is_within(name, modules[i]))
			return modules[i];
	return NULL;
}

static bool is_forbidden_call(const char *name)
{
	for (size_t i = 0; i < COUNT(forbidden_calls); i++) {
		size_t length = strcspn(forbidden_calls[i], "*");

		if (forbidden_calls[i][length]
				? !strncmp(name, forbidden_calls[i], length) && !strchr(name + length, '.')
				: !strcmp(name, forbidden_calls[i]))
			return true;
	}
	return false;
}

/* --- what is found in the whole fork ------------------------------------------------------------- */

enum finding {
	FOUND_FAULT,
	FOUND_UNREADABLE,
	FOUND_IMPORT,
	FOUND_CALL,
	FOUND_CALL_OF_EXPRESSION,
	FOUND_PACKAGE,
	FOUND_MISSING,
	FOUND_UNSURE, /* the last: all others are sure */
};

static const char *const remedies[] = {
	[FOUND_FAULT] = "Fix the syntax.",
	[FOUND_UNREADABLE] =
		"Save the file as UTF-8: validators cannot read it, and the submission stays pending.",
	[FOUND_IMPORT] = "Remove the import, even where it is not used.",
	[FOUND_CALL] = "Remove the call, even where it is never reached.",
	[FOUND_CALL_OF_EXPRESSION] = "Give the object a name first: m = f(), then m.eval().",
	[FOUND_PACKAGE] = "Move what you need of fla.ops.gla and fla.ops.kda into fla/ops/quasar.",
	[FOUND_MISSING] = "Add to chunk.py, for each name: from fla.utils import NAME.",
	[FOUND_UNSURE] = "The rule leaves it open whether that passes: better do without.",
};

struct verdict {
	struct buffer bad, unsure; /* the first findings, as text */
	size_t bad_count, unsure_count;
	unsigned kinds;         /* a bit for each kind that was found */
	size_t files, unparsed; /* unparsed: read by our own reader alone */
	char version[32];       /* of the Python that read the others */
};

__attribute__((format(printf, 5, 6))) static void find(
	struct verdict *verdict, enum finding kind, const char *path, size_t line, const char *format, ...)
{
	bool unsure = kind == FOUND_UNSURE;
	struct buffer *out = unsure ? &verdict->unsure : &verdict->bad;
	size_t *count = unsure ? &verdict->unsure_count : &verdict->bad_count;
	char what[120], where[32] = "";
	va_list args;

	verdict->kinds |= 1U << kind;
	if (++*count > SHOWN)
		return;
	va_start(args, format);
	vsnprintf(what, sizeof(what), format, args);
	va_end(args);
	if (line)
		snprintf(where, sizeof(where), ":%zu", line);
	buffer_printf(out, "%s%.100s%s %s", out->length ? "; " : "", path, where, what);
}

/* --- one file ------------------------------------------------------------------------------------ */

struct file {
	struct verdict *verdict;
	const char *path;
	bool target;   /* one of the five files, which may not import forbidden packages */
	bool is_chunk; /* the one that has to import names */
	unsigned imported, perhaps_imported; /* a bit for each of those names */
	struct binding {
		char *name, *means;
	} bindings[BINDINGS];
	size_t count;
};

static bool is_target(const char *path)
{
	size_t length = strlen(INSPECT_FOLDER);

	if (strncmp(path, INSPECT_FOLDER, length))
		return false;
	for (int i = 0; inspect_target_files[i]; i++)
		if (!strcmp(path + length, inspect_target_files[i]))
			return true;
	return false;
}

static void add_binding(struct file *file, size_t line, const char *name, char *means)
{
	if (file->count < BINDINGS) {
		file->bindings[file->count++] = (struct binding){xstrdup(name), means};
		return;
	}
	if (file->count++ == BINDINGS)
		find(file->verdict, FOUND_UNSURE, file->path, line, "imports too many names to follow");
	free(means);
}

/* The first visit: under which other names the file can call what is forbidden. */
static void note_binding(const struct python_fact *fact, void *context)
{
	struct file *file = context;

	if (fact->kind == PYTHON_CALL || fact->level ||
		!which_within(fact->module, calling_modules, COUNT(calling_modules)))
		return;
	if (fact->kind == PYTHON_IMPORT && fact->alias)
		add_binding(file, fact->line, fact->alias, xstrdup(fact->module));
	else if (fact->kind == PYTHON_FROM && strcmp(fact->name, "*"))
		add_binding(file, fact->line, fact->alias ? fact->alias : fact->name,
			xprintf("%s.%s", fact->module, fact->name));
}

/* The name with what its first part was bound to; as it is when that is nothing. The caller frees. */
static char *resolve(const struct file *file, const char *name)
{
	size_t first = strcspn(name, ".");

	for (size_t i = 0; i < file->count && i < BINDINGS; i++)
		if (strlen(file->bindings[i].name) == first && !strncmp(name, file->bindings[i].name, first))
			return xprintf("%s%s", file->bindings[i].means, name + first);
	return xstrdup(name);
}

/* The forbidden function that is called in other words; NULL: none. Points into the name. */
static const char *forbidden_behind(const char *name)
{
	static const char *const builtins[] = {"builtins.", "__builtins__."};
	const char *last = strrchr(name, '.'), *behind = name;

	for (size_t i = 0; i < COUNT(builtins); i++)
		if (!strncmp(name, builtins[i], strlen(builtins[i])))
			behind = name + strlen(builtins[i]);
	if (is_forbidden_call(behind))
		return behind;
	while (last && last > name && last[-1] != '.') /* the last two parts, of "torch.os.system" */
		last--;
	return last && last > name && is_forbidden_call(last) ? last : NULL;
}

static void judge_call(struct file *file, const struct python_fact *fact)
{
	char *resolved;
	const char *behind;

	if (is_forbidden_call(fact->name)) {
		find(file->verdict, fact->of_expression ? FOUND_CALL_OF_EXPRESSION : FOUND_CALL, file->path,
			fact->line, fact->of_expression ? "calls (…).%s()" : "calls %s()", fact->name);
		return;
	}
	resolved = fact->of_expression ? xstrdup(fact->name) : resolve(file, fact->name);
	behind = forbidden_behind(resolved);
	if (behind)
		find(file->verdict, FOUND_UNSURE, file->path, fact->line, "calls %s() as %s()", behind,
			fact->name);
	free(resolved);
}

/* The module or name as fla's packages see it, dots before it resolved in fla.ops.quasar. Caller frees. */
static char *absolute_name(const struct python_fact *fact)
{
	static const char *const packages[] = {"", "fla.ops.quasar.", "fla.ops.", "fla."};
	const char *package = fact->level >= 0 && fact->level < 4 ? packages[fact->level] : "";

	if (fact->kind == PYTHON_IMPORT)
		return xstrdup(fact->module);
	return xprintf("%s%s%s%s", package, fact->module, *fact->module ? "." : "", fact->name);
}

/* The five files may not import fla.ops.gla and fla.ops.kda. */
static void judge_package(struct file *file, const struct python_fact *fact)
{
	char *name = absolute_name(fact);
	bool near = false;

	for (size_t i = 0; i < COUNT(forbidden_packages); i++)
		near |= !strncmp(name, forbidden_packages[i], strlen(forbidden_packages[i]));
	if (!fact->level && which_within(fact->module, forbidden_packages, COUNT(forbidden_packages)))
		find(file->verdict, FOUND_PACKAGE, file->path, fact->line, "imports %s", fact->module);
	else if (near)
		find(file->verdict, FOUND_UNSURE, file->path, fact->line, "imports %s%s", name,
			fact->level ? " by a relative import" : "");
	free(name);
}

static void note_required(struct file *file, const struct python_fact *fact)
{
	bool absolute = !fact->level && !strcmp(fact->module, "fla.utils");
	bool relative = fact->level == 3 && !strcmp(fact->module, "utils");

	for (int i = 0; i < INSPECT_DEPLOYED_COUNT; i++) {
		if (absolute && !strcmp(fact->name, inspect_deployed_names[i]))
			file->imported |= 1U << i;
		else if ((absolute && !strcmp(fact->name, "*")) ||
			(relative && !strcmp(fact->name, inspect_deployed_names[i])))
			file->perhaps_imported |= 1U << i;
	}
}

static void judge_import(struct file *file, const struct python_fact *fact)
{
	const char *from = fact->level && !*fact->module ? fact->name : fact->module;
	const char *module = which_within(from, forbidden_modules, COUNT(forbidden_modules));

	if (module && !fact->level)
		find(file->verdict, FOUND_IMPORT, file->path, fact->line, "imports %s", module);
	else if (module)
		find(file->verdict, FOUND_UNSURE, file->path, fact->line,
			"imports a module of the fork that is named %s", module);
	if (fact->kind == PYTHON_FROM && !fact->level && !strcmp(fact->name, "*") &&
		which_within(fact->module, calling_modules, COUNT(calling_modules)))
		find(file->verdict, FOUND_UNSURE, file->path, fact->line, "imports all of %s", fact->module);
	if (file->target)
		judge_package(file, fact);
	if (file->is_chunk && fact->kind == PYTHON_FROM)
		note_required(file, fact);
}

/* The second visit. */
static void judge_fact(const struct python_fact *fact, void *context)
{
	struct file *file = context;

	if (fact->kind == PYTHON_CALL)
		judge_call(file, fact);
	else
		judge_import(file, fact);
}

static void judge_required(struct file *file)
{
	struct buffer missing = {0}, unsure = {0};

	for (int i = 0; i < INSPECT_DEPLOYED_COUNT; i++) {
		struct buffer *out = file->perhaps_imported >> i & 1 ? &unsure : &missing;

		if (!(file->imported >> i & 1))
			buffer_printf(out, "%s%s", out->length ? ", " : "", inspect_deployed_names[i]);
	}
	if (missing.length)
		find(file->verdict, FOUND_MISSING, file->path, 0, "does not import %s from fla.utils",
			missing.data);
	if (unsure.length)
		find(file->verdict, FOUND_UNSURE, file->path, 0,
			"imports %s from fla.utils by * or by a relative import", unsure.data);
	buffer_free(&missing);
	buffer_free(&unsure);
}

/* As Python reported it, or without a report as our own reader tells it. */
static void visit(const struct buffer *text, const cJSON *report, python_visit *visitor, struct file *file,
	struct python_fault *fault)
{
	if (report)
		python_ast_visit(report, visitor, file, fault);
	else
		python_source_read(text->data, text->length, visitor, file, fault);
}

static void pass_over(const struct python_fact *fact, void *context)
{
	(void)fact;
	(void)context;
}

static void judge_file(
	struct verdict *verdict, const char *path, const struct buffer *text, const cJSON *report)
{
	struct file file = {
		.verdict = verdict,
		.path = path,
		.target = is_target(path),
		.is_chunk = !strcmp(path, INSPECT_FOLDER "chunk.py"),
	};
	struct python_fault fault;

	verdict->unparsed += !report;
	visit(text, report, note_binding, &file, &fault);
	visit(text, report, judge_fact, &file, &fault);
	if (!fault.line && report)
		python_source_read(
			text->data, text->length, pass_over, NULL, &fault); /* a newer Python's f-strings */
	if (fault.line)
		find(verdict, FOUND_FAULT, path, fault.line, "is not valid Python%s%s: %s", report ? " " : "",
			report ? verdict->version : "", fault.what);
	else if (file.is_chunk)
		judge_required(&file);
	for (size_t i = 0; i < file.count && i < BINDINGS; i++) {
		free(file.bindings[i].name);
		free(file.bindings[i].means);
	}
}

/* --- all of them --------------------------------------------------------------------------------- */

struct batch {
	char *paths[BATCH_FILES];
	struct buffer texts[BATCH_FILES];
	size_t count, bytes;
};

static void batch_free(struct batch *batch)
{
	for (size_t i = 0; i < batch->count; i++) {
		free(batch->paths[i]);
		buffer_free(&batch->texts[i]);
	}
	*batch = (struct batch){0};
}

static int judge_batch(struct verdict *verdict, const char *python, struct batch *batch, struct error *err)
{
	struct python_ast ast = {0};
	int result = 0;

	if (python && batch->count)
		result = python_ast_read(python, batch->texts, batch->count, &ast, err);
	if (*ast.version)
		memcpy(verdict->version, ast.version, sizeof(ast.version));
	for (size_t i = 0; i < batch->count && !result; i++)
		judge_file(verdict, batch->paths[i], &batch->texts[i], ast.count ? ast.reports[i] : NULL);
	python_ast_free(&ast);
	batch_free(batch);
	return result;
}

static bool is_python(const FTSENT *entry)
{
	return entry->fts_namelen > 3 && !strcmp(entry->fts_name + entry->fts_namelen - 3, ".py");
}

static bool is_linked_folder(const FTSENT *entry)
{
	struct stat status;

	return entry->fts_info == FTS_SL && !stat(entry->fts_accpath, &status) && S_ISDIR(status.st_mode);
}

static void add_file(struct verdict *verdict, const char *root, const char *path, struct batch *batch)
{
	struct fork_text file;

	verdict->files++;
	fork_text_read(root, path, &file);
	if (file.fault) {
		find(verdict, file.not_utf8 ? FOUND_UNREADABLE : FOUND_UNSURE, path, 0, "%s", file.fault);
		buffer_free(&file.text);
		return;
	}
	batch->paths[batch->count] = xstrdup(path);
	batch->texts[batch->count++] = file.text;
	batch->bytes += file.text.length;
}

static int by_name(const FTSENT **left, const FTSENT **right)
{
	return strcmp((*left)->fts_name, (*right)->fts_name);
}

static int judge_all(struct verdict *verdict, const char *root, const char *python, struct error *err)
{
	char *package = xprintf("%s/" PACKAGE, root);
	char *const roots[] = {package, NULL};
	FTS *walk = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, by_name);
	struct batch *batch = xcalloc(1, sizeof(*batch));
	FTSENT *entry;
	int result = 0;

	while (!result && walk && (entry = fts_read(walk))) {
		const char *path = entry->fts_path + strlen(root) + 1;

		if (verdict->files == FILES_LIMIT) {
			find(verdict, FOUND_UNSURE, path, 0, "and what follows: too many files to read");
			break;
		}
		if (is_linked_folder(entry))
			find(verdict, FOUND_UNSURE, path, 0, "is a link to a folder");
		else if (is_python(entry) && entry->fts_info != FTS_DP)
			add_file(verdict, root, path, batch);
		if (batch->count == BATCH_FILES || batch->bytes >= PYTHON_AST_BYTES)
			result = judge_batch(verdict, python, batch, err);
	}
	if (!result)
		result = judge_batch(verdict, python, batch, err);
	if (walk)
		fts_close(walk);
	batch_free(batch);
	free(batch);
	free(package);
	return result;
}

/* --- the check ----------------------------------------------------------------------------------- */

static void append_findings(
	struct buffer *out, const char *before, const struct buffer *findings, size_t count)
{
	if (!count)
		return;
	buffer_printf(out, "%s%s%s", out->length ? "; " : "", before, findings->data);
	if (count > SHOWN)
		buffer_printf(out, " and %zu more", count - SHOWN);
}

static void append_remedies(const struct verdict *verdict, struct buffer *out)
{
	if (verdict->bad_count)
		buffer_text(out, "By the rule of April 2026 such a fork scores zero.");
	for (enum finding kind = 0; kind <= FOUND_UNSURE; kind++)
		if (verdict->kinds >> kind & 1)
			buffer_printf(out, "%s%s", out->length ? " " : "", remedies[kind]);
	if (verdict->unparsed)
		buffer_printf(out, "%s%s", out->length ? " " : "",
			*verdict->version
				? "Split what is too large or too deep for Python to check the syntax."
				: "Install Python 3.8 or later, or name one with --python, to have the syntax "
				  "checked.");
}

/* What keeps a fork in which nothing was found from passing, or how it was read. */
static void append_reading(const struct verdict *verdict, struct buffer *out)
{
	if (verdict->unparsed)
		buffer_printf(out, "%sthe syntax of %zu of %zu files was not checked",
			out->length ? "; " : "nothing forbidden was found, but ", verdict->unparsed,
			verdict->files);
	else if (!out->length)
		buffer_printf(out, "all %zu Python files under " PACKAGE "/ pass, as Python %s reads them",
			verdict->files, verdict->version);
}

static void report(const struct verdict *verdict, enum check_status bad, struct check_list *checks)
{
	struct buffer detail = {0}, remedy = {0};
	enum check_status status = verdict->bad_count        ? bad
		: verdict->unsure_count || verdict->unparsed ? CHECK_WARN
							     : CHECK_OK;

	append_findings(&detail, "", &verdict->bad, verdict->bad_count);
	append_findings(&detail, "not sure: ", &verdict->unsure, verdict->unsure_count);
	append_reading(verdict, &detail);
	append_remedies(verdict, &remedy);
	check_add(checks, "imports.ast", status, remedy.data, "%s", detail.data);
	buffer_free(&detail);
	buffer_free(&remedy);
}

int tree_rule_check(const char *root, const char *python, enum check_status bad, struct check_list *checks,
	struct error *err)
{
	struct verdict verdict = {0};
	int result = judge_all(&verdict, root, python, err);

	if (!result && !verdict.files)
		check_add(checks, "imports.ast", CHECK_SKIP, NULL,
			"there is no Python file under " PACKAGE "/");
	else if (!result)
		report(&verdict, bad, checks);
	buffer_free(&verdict.bad);
	buffer_free(&verdict.unsure);
	return result;
}
