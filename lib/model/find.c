/* Where models lie: in a folder, or in the cache that Hugging Face's tools share. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/file.h"
#include "base/memory.h"
#include "model/model.h"

#define LONGEST_NAME 200
#define LONGEST_REF 256

static bool has_config(const char *folder)
{
	char *path = path_join(folder, "config.json");
	bool found = path_exists(path);

	free(path);
	return found;
}

static const char *environment(const char *name)
{
	const char *value = getenv(name);

	return value && *value ? value : NULL;
}

/* The caller frees. */
static char *cache_folder(void)
{
	const char *hub = environment("HF_HUB_CACHE"), *home = environment("HF_HOME"),
		   *cache = environment("XDG_CACHE_HOME");
	char *folder, *expanded;

	if (hub)
		return path_expand(hub);
	folder = home ? path_join(home, "hub") : path_join(cache ? cache : "~/.cache", "huggingface/hub");
	expanded = path_expand(folder);
	free(folder);
	return expanded;
}

/* "MODEL" or "OWNER/MODEL", as Hugging Face takes names. */
static bool is_name(const char *name, size_t length)
{
	int slashes = 0;

	if (!length || length > LONGEST_NAME)
		return false;
	for (size_t i = 0; i < length; i++) {
		bool starts = !i || name[i - 1] == '/';

		slashes += name[i] == '/';
		if (name[i] == '/' ? starts || i + 1 == length
				   : !isalnum((unsigned char)name[i]) && !strchr("-_.", name[i]))
			return false;
		if (starts && name[i] == '.')
			return false;
	}
	return slashes <= 1;
}

/* "models--OWNER--MODEL"; the caller frees. */
static char *folder_name(const char *name, size_t length)
{
	struct buffer text = {0};

	buffer_text(&text, "models--");
	for (size_t i = 0; i < length; i++)
		buffer_append(&text, name[i] == '/' ? "--" : &name[i], name[i] == '/' ? 2 : 1);
	return text.data;
}

/* The commit that a branch or tag stands for, or what is one itself. The caller frees. */
static char *resolve(const char *folder, const char *revision)
{
	char *path = xprintf("%s/refs/%s", folder, revision);
	struct buffer text = {0};
	struct error unread;

	if (file_read(path, LONGEST_REF, &text, &unread) < 0) {
		buffer_free(&text);
		buffer_text(&text, revision);
	}
	text.data[strcspn(text.data, " \r\n")] = '\0';
	free(path);
	return text.data;
}

static char *find_cached(const char *name, struct error *err)
{
	size_t length = strcspn(name, "@");
	const char *revision = name[length] ? name + length + 1 : "main";
	char *cache, *model, *folder, *commit, *path = NULL;

	if (!is_name(name, length) || !is_name(revision, strlen(revision))) {
		error_set(err, STATUS_USAGE,
			"\"%.100s\" is neither a folder with a config.json nor a model's name", name);
		return NULL;
	}
	cache = cache_folder();
	model = folder_name(name, length);
	folder = path_join(cache, model);
	commit = resolve(folder, revision);
	if (is_name(commit, strlen(commit)))
		path = xprintf("%s/snapshots/%s", folder, commit);
	if (!path || !has_config(path)) {
		free(path);
		path = NULL;
		error_set(err, STATUS_ENVIRONMENT,
			strchr(name, '/') ? "the model %s is not in %s"
					  : "%s is neither a folder here nor a model in %s",
			name, cache);
		error_hint(err, "Get it with: hf download %.*s%s%s (pip install huggingface_hub)",
			(int)length, name, name[length] ? " --revision " : "", name[length] ? revision : "");
	}
	free(commit);
	free(folder);
	free(model);
	free(cache);
	return path;
}

char *model_find(const char *name, struct error *err)
{
	char *path = path_expand(name);
	bool is_path = name[0] == '/' || name[0] == '.' || name[0] == '~';

	if (has_config(path))
		return path;
	if (is_path || path_exists(path)) {
		error_set(err, STATUS_ENVIRONMENT, "%s has no config.json: it is not a model's folder", path);
		free(path);
		return NULL;
	}
	free(path);
	return find_cached(name, err);
}
