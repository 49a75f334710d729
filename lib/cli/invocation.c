/* Reads a command line by the command's table, and gives its values to the command. */
#include "cli/command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/text.h"
#include "space/workspace.h"

static size_t opt_index(const struct invocation *invocation, const char *name)
{
	const struct opt *opts = invocation->command->opts;

	for (size_t i = 0; opts && opts[i].name; i++)
		if (!strcmp(opts[i].name, name))
			return i;
	fprintf(stderr, "quasar: bug: command %s has no option %s\n", invocation->command->name, name);
	abort();
}

bool arg_given(const struct invocation *invocation, const char *name)
{
	return invocation->values[opt_index(invocation, name)] != NULL;
}

void arg_set(struct invocation *invocation, const char *name, const char *value)
{
	invocation->values[opt_index(invocation, name)] = value;
}

bool arg_flag(const struct invocation *invocation, const char *name)
{
	return arg_given(invocation, name);
}

static const char *lookup(const struct invocation *invocation, const char *name, char source[160])
{
	size_t i = opt_index(invocation, name);
	const struct opt *opt = &invocation->command->opts[i];
	const char *value = invocation->values[i], *where = "default";

	snprintf(source, 160, "--%s", name);
	if (value)
		return value;
	if (opt->setting)
		value = settings_get(invocation->settings, opt->setting, &where);
	if (value && strcmp(where, "default")) {
		snprintf(source, 160, "%s (from %s)", opt->setting, where);
		return value;
	}
	return opt->fallback ? opt->fallback : value;
}

const char *arg_string(const struct invocation *invocation, const char *name)
{
	char source[160];

	return lookup(invocation, name, source);
}

static int read_integer(
	const char *text, const char *source, int64_t least, int64_t most, int64_t *out, struct error *err)
{
	int64_t value;

	if (number_parse_integer(text, &value) < 0)
		return error_set(err, STATUS_USAGE, "%s: \"%s\" is not a whole number", source, text);
	if (value < least || value > most)
		return error_set(err, STATUS_USAGE, "%s: %s is not between %lld and %lld", source, text,
			(long long)least, (long long)most);
	*out = value;
	return 0;
}

int arg_integer(const struct invocation *invocation, const char *name, int64_t least, int64_t most,
	int64_t *out, struct error *err)
{
	char source[160];
	const char *text = lookup(invocation, name, source);

	return text ? read_integer(text, source, least, most, out, err) : 0;
}

/* How an option's number is read and told. */
struct number_kind {
	int (*parse)(const char *text, double *value);
	const char *name, *sign;
	double unit; /* what is told of 1 */
};

static int arg_number(const struct invocation *invocation, const char *name, const struct number_kind *kind,
	double least, double most, double *out, struct error *err)
{
	char source[160];
	const char *text = lookup(invocation, name, source);
	double value;

	if (!text)
		return 0;
	if (kind->parse(text, &value) < 0)
		return error_set(err, STATUS_USAGE, "%s: \"%s\" is not %s", source, text, kind->name);
	if (value < least || value > most)
		return error_set(err, STATUS_USAGE, "%s: %s is not between %g%s and %g%s", source, text,
			least * kind->unit, kind->sign, most * kind->unit, kind->sign);
	*out = value;
	return 0;
}

int arg_real(const struct invocation *invocation, const char *name, double least, double most, double *out,
	struct error *err)
{
	static const struct number_kind real = {number_parse_real, "a number", "", 1};

	return arg_number(invocation, name, &real, least, most, out, err);
}

int arg_percent(const struct invocation *invocation, const char *name, double least, double most, double *out,
	struct error *err)
{
	static const struct number_kind percent = {
		number_parse_percent, "a percentage, such as 3%", "%", 100};

	return arg_number(invocation, name, &percent, least, most, out, err);
}

int arg_try_file(const struct invocation *invocation, const char *name, struct error *err)
{
	const char *path = arg_string(invocation, name);

	return path ? file_try(path, err) : 0;
}

int arg_integers(const struct invocation *invocation, const char *name, int64_t least, int64_t most,
	int64_t *out, int capacity, struct error *err)
{
	char source[160];
	const char *text = lookup(invocation, name, source);
	char *copy, *rest, *part;
	int count = 0;

	if (!text)
		return 0;
	if (number_is_grouped(text) && strstr(text, ",0")) /* no number of a list begins with a zero */
		return read_integer(text, source, least, most, out, err) < 0 ? -1 : 1;
	if (number_is_grouped(text))
		log_note("%s: %s is read as several numbers; write one without commas.", source, text);
	copy = rest = xstrdup(text);
	while ((part = strsep(&rest, ","))) {
		if (count == capacity)
			count = error_set(err, STATUS_USAGE, "%s: more than %d numbers", source, capacity);
		else if (read_integer(part, source, least, most, &out[count], err) < 0)
			count = -1;
		if (count < 0)
			break;
		count++;
	}
	free(copy);
	return count;
}

const char *require_workspace(const struct invocation *invocation, struct error *err)
{
	const char *directory = invocation->workspace;
	char *word;

	if (directory && workspace_exists(directory))
		return directory;
	if (directory) {
		error_set(err, STATUS_ENVIRONMENT, "%s is not a workspace: it has no .quasar/", directory);
		word = shell_word(directory);
		error_hint(err, "Create one with: quasar init %s", word);
		free(word);
	} else {
		error_set(err, STATUS_ENVIRONMENT, "not in a workspace");
		error_hint(err, "Create one with `quasar init DIR`, then work in it or name it with -C DIR.");
	}
	return NULL;
}

/* Frees both. */
static void output(cJSON *document, char *text)
{
	if (text) {
		utf8_mend(text); /* names of files need not be UTF-8, and what is cut may not be */
		puts(text);
	}
	cJSON_free(text);
	cJSON_Delete(document);
}

static bool json_done;

void output_json(cJSON *document)
{
	json_done = true;
	output(document, cJSON_Print(document));
}

bool output_json_done(void)
{
	return json_done;
}

void output_json_line(cJSON *document)
{
	output(document, cJSON_PrintUnformatted(document));
}
