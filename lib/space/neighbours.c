#include "space/neighbours.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "fork/fork.h"

#define FILE_LIMIT ((size_t)1 << 20)
#define FIELDS 5

static char *list_path(void)
{
	const char *base = getenv("XDG_STATE_HOME");

	return base && base[0] == '/' ? path_join(base, "quasar/miners")
				      : path_expand("~/.local/state/quasar/miners");
}

/* What is there; nothing when there is no list. */
static int read_list(const char *path, struct buffer *text, struct error *err)
{
	buffer_text(text, "");
	return path_exists(path) ? file_read(path, FILE_LIMIT, text, err) : 0;
}

/* The next line; false at the end. Lines of another form are left out. */
static bool next_neighbour(char **rest, struct neighbour *out)
{
	char *line;

	while ((line = strsep(rest, "\n"))) {
		char *fields[FIELDS];
		size_t count = 0;

		while (count < FIELDS && (fields[count] = strsep(&line, "\t")))
			count++;
		if (count < FIELDS)
			continue;
		*out = (struct neighbour){fields[0], fields[1], fields[2], fields[3], fields[4]};
		return true;
	}
	return false;
}

int neighbours_note(const struct neighbour *own, struct error *err)
{
	char *path = list_path(), *folder = xstrdup(path);
	char *line = xprintf("%s\t%s\t%s\t%s\t%s\n", own->api_url, own->hotkey, own->fork_url, own->wallet,
		own->directory);
	struct buffer text = {0};
	int result = read_list(path, &text, err);

	*strrchr(folder, '/') = '\0';
	if (!result && !strstr(text.data, line)) {
		buffer_text(&text, line);
		result = directory_make(folder, 0700, err);
		if (!result)
			result = file_write(path, text.data, text.length, 0600, FILE_REPLACE, err);
	}
	buffer_free(&text);
	free(line);
	free(folder);
	free(path);
	return result;
}

static void check_neighbour(
	const struct neighbour *own, const struct neighbour *other, struct check_list *checks)
{
	char *owner = fork_url_owner(own->fork_url), *other_owner = fork_url_owner(other->fork_url);

	if (owner && other_owner && !strcmp(owner, other_owner))
		check_add(checks, "flags", CHECK_FAIL,
			"Submit with that hotkey, or use a fork of another GitHub account.",
			"%s submits with a fork of %s, too (%s): the validator shuts out the later hotkey, for good",
			other->hotkey, owner, other->directory);
	else if (!strcmp(own->wallet, other->wallet))
		check_add(checks, "flags", CHECK_WARN, "Use a wallet of its own for each hotkey.",
			"%s is of the same coldkey (%s): validators may shut out the later hotkey, for good",
			other->hotkey, other->directory);
	else
		check_add(checks, "flags", CHECK_WARN,
			"Let each hotkey submit from a public address of its own.",
			"%s submits from this machine, too (%s): a second one at the same address is shut out, "
			"with the first, for good",
			other->hotkey, other->directory);
	free(owner);
	free(other_owner);
}

void neighbours_check(const struct neighbour *own, struct check_list *checks)
{
	char *path = list_path(), *rest;
	struct buffer text = {0};
	struct neighbour other;
	struct error err;
	size_t found = 0;

	if (read_list(path, &text, &err) < 0) {
		check_problem(checks, "flags", CHECK_WARN, &err);
	} else {
		for (rest = text.data; next_neighbour(&rest, &other);) {
			if (strcmp(other.api_url, own->api_url) || !strcmp(other.hotkey, own->hotkey) ||
				!path_exists(other.directory))
				continue;
			check_neighbour(own, &other, checks);
			found++;
		}
		if (!found)
			check_add(checks, "flags", CHECK_OK, NULL,
				"no other hotkey of yours submits to this validator from here");
	}
	buffer_free(&text);
	free(path);
}
