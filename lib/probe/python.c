#include "probe/python.h"

#include <stdlib.h>
#include <string.h>

#include "base/embed.h"
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/process.h"
#include "base/text.h"

#define ANSWER_SECONDS 30.0 /* a cold disk */
#define IMPORT_SECONDS 120.0

EMBED(source_python, "lib/probe/python.py");
EMBED(source_import, "lib/probe/import.py");

/* --- where it is --------------------------------------------------------------------------------- */

/* A program to run as Python, and how it was found. */
struct candidate {
	char *program; /* a path or a name in the PATH; NULL: not there */
	const char *found_by;
};

/* The Python of the virtual environment in `folder`; NULL: that is none. The caller frees. */
static char *program_of(const char *folder)
{
	char *path = path_join(folder, "bin/python");

	if (path_exists(path))
		return path;
	free(path);
	return NULL;
}

static char *program_below(const char *directory)
{
	char *folder = directory ? path_join(directory, ".venv") : NULL;
	char *program = folder ? program_of(folder) : NULL;

	free(folder);
	return program;
}

/* As a person names it: the folder of a virtual environment, too. */
static char *program_named(const char *name)
{
	char *expanded = path_expand(name), *program = strchr(expanded, '/') ? program_of(expanded) : NULL;

	if (!program)
		return expanded;
	free(expanded);
	return program;
}

static struct candidate choose(const struct python_search *search)
{
	const char *active = getenv("VIRTUAL_ENV");
	struct candidate candidate = {0};

	if (search->named)
		return (struct candidate){program_named(search->named), search->named_by};
	if (active && *active)
		return (struct candidate){path_join(active, "bin/python"), "VIRTUAL_ENV"};
	candidate = (struct candidate){program_below(search->workspace), "the workspace's .venv"};
	if (!candidate.program)
		candidate = (struct candidate){program_below(search->fork), "the fork's .venv"};
	if (!candidate.program)
		candidate = (struct candidate){xstrdup("python3"), "PATH"};
	return candidate;
}

/* --- what it has --------------------------------------------------------------------------------- */

/* A system's own Python is the system's: PyTorch goes into an environment, which is found before any but one that is
 * named. */
static char *way_to_torch(const struct python *python, const struct python_search *search, bool virtual)
{
	if (virtual || !search->workspace)
		return xprintf("%s torch", python->install);
	if (search->named)
		return xprintf("quasar init --venv, and name no other Python by %s", search->named_by);
	return xstrdup("quasar init --venv");
}

static char *copy(const char *text)
{
	return text ? xstrdup(text) : NULL;
}

static char **copy_texts(const cJSON *list)
{
	char **texts = xcalloc((size_t)cJSON_GetArraySize(list) + 1, sizeof(*texts));
	const cJSON *item;
	size_t count = 0;

	cJSON_ArrayForEach (item, list)
		if (cJSON_IsString(item))
			texts[count++] = xstrdup(item->valuestring);
	return texts;
}

static int read_answer(
	const char *line, const struct python_search *search, struct python *python, struct error *err)
{
	cJSON *document = json_parse(line, strlen(line), err);
	const char *path = NULL, *version = NULL, *torch = NULL, *cuda = NULL;
	bool virtual = false, pip = false;
	char *word;
	int result = -1;

	if (!document || json_string(document, "path", JSON_REQUIRED, &path, err) < 0 ||
		json_string(document, "version", JSON_REQUIRED, &version, err) < 0 ||
		json_bool(document, "virtual", JSON_REQUIRED, &virtual, err) < 0 ||
		json_bool(document, "pip", JSON_REQUIRED, &pip, err) < 0 ||
		json_string(document, "torch", JSON_OPTIONAL, &torch, err) < 0 ||
		json_string(document, "cuda", JSON_OPTIONAL, &cuda, err) < 0)
		goto done;
	python->path = xstrdup(path);
	python->version = xstrdup(version);
	python->torch = copy(torch);
	python->cuda = copy(cuda);
	python->places = copy_texts(cJSON_GetObjectItemCaseSensitive(document, "places"));
	word = shell_word(path);
	python->install = xprintf(pip ? "%s -m pip install" : "uv pip install --python %s", word);
	free(word);
	python->install_torch = way_to_torch(python, search, virtual);
	result = 0;
done:
	cJSON_Delete(document);
	return result;
}

int python_find(const struct python_search *search, struct python *python, struct error *err)
{
	struct candidate candidate = choose(search);
	const char *argv[] = {candidate.program, "-c", source_python, NULL};
	char *answer = process_ask(argv, NULL, ANSWER_SECONDS, err);
	int result = -1;

	*python = (struct python){.found_by = xstrdup(candidate.found_by)};
	if (answer)
		result = read_answer(text_last_line(answer), search, python, err);
	if (result && err->status != STATUS_INTERRUPTED) {
		err->status = STATUS_ENVIRONMENT;
		error_context(err, "the Python from %s", candidate.found_by);
		error_hint(err, "Install Python 3.8 or later, or name the one to use: --python PATH.");
	}
	free(answer);
	free(candidate.program);
	return result;
}

int python_require_torch(const struct python *python, struct error *err)
{
	if (python->torch)
		return 0;
	error_set(err, STATUS_ENVIRONMENT, "%s has no PyTorch, which the fork needs to run", python->path);
	return error_hint(err, "Install PyTorch: %s", python->install_torch);
}

/* What to do about a module that is missing: one of the fork's own, or one that has to be installed. */
static void hint_module(const struct python *python, struct error *err)
{
	static const char missing[] = "No module named '";
	const char *name = strstr(err->message, missing);
	int length;

	if (!name)
		return;
	name += strlen(missing);
	length = (int)strcspn(name, ".'");
	if (!strncmp(name, "fla", (size_t)length))
		error_hint(err, "Put what is missing into the fork: quasar export");
	else
		error_hint(err, "%s %.*s", python->install, length, name);
}

int python_import_layer(const struct python *python, const char *fork, struct error *err)
{
	const char *argv[] = {python->path, "-c", source_import, fork, NULL};
	char *answer = process_ask(argv, NULL, IMPORT_SECONDS, err);

	if (!answer)
		hint_module(python, err);
	free(answer);
	return answer ? 0 : -1;
}

void python_free(struct python *python)
{
	free(python->path);
	free(python->found_by);
	free(python->version);
	free(python->torch);
	free(python->cuda);
	for (char **place = python->places; place && *place; place++)
		free(*place);
	free(python->places);
	free(python->install);
	free(python->install_torch);
	*python = (struct python){0};
}
