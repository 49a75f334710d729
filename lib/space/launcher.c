#include "space/launcher.h"

#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/embed.h"
#include "base/memory.h"

#define WORKSPACE "templates/workspace/"
#define PROGRAM_PLACE "@QUASAR@"

EMBED(service_pm2, WORKSPACE "ecosystem.config.js");
EMBED(service_systemd, WORKSPACE "quasar-miner.service");
EMBED(service_screen, WORKSPACE "start-in-screen.sh");
EMBED(inference_pm2, WORKSPACE "inference.config.js");
EMBED(inference_systemd, WORKSPACE "quasar-inference.service");

const struct launcher launchers[LAUNCHER_KINDS] = {
	[LAUNCHER_PM2] = {"ecosystem.config.js", service_pm2, 0644, "%", "$", "`"},
	[LAUNCHER_SYSTEMD] = {"quasar-miner.service", service_systemd, 0644, "%%", "$$", "`"},
	[LAUNCHER_SCREEN] = {"start-in-screen.sh", service_screen, 0755, "%", "\\$", "\\`"},
	[LAUNCHER_INFERENCE_PM2] = {"inference.config.js", inference_pm2, 0644, "%", "$", "`"},
	[LAUNCHER_INFERENCE_SYSTEMD] = {"quasar-inference.service", inference_systemd, 0644, "%%", "$$", "`"},
};

/* For a place inside double quotes. */
static void add_quoted(struct buffer *out, const char *text, const struct launcher *launcher)
{
	for (; *text; text++) {
		switch (*text) {
		case '%':
			buffer_text(out, launcher->percent);
			break;
		case '$':
			buffer_text(out, launcher->dollar);
			break;
		case '`':
			buffer_text(out, launcher->backtick);
			break;
		case '"':
		case '\\':
			buffer_text(out, "\\");
			buffer_append(out, text, 1);
			break;
		default:
			buffer_append(out, text, 1);
		}
	}
}

/* The value whose place this is, and the place's length; NULL: it is an @ like any other. */
static const char *value_at(const char *at, const struct launcher_values *values, size_t *length)
{
	const struct {
		const char *place, *value;
	} known[] = {
		{PROGRAM_PLACE, values->program},
		{"@WORKSPACE@", values->workspace},
		{"@NAME@", values->name},
		{"@PATH@", values->path},
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		*length = strlen(known[i].place);
		if (!strncmp(at, known[i].place, *length))
			return known[i].value;
	}
	return NULL;
}

char *launcher_fill(const struct launcher *launcher, const struct launcher_values *values)
{
	struct buffer out = {0};
	const char *rest = launcher->text, *at;

	while ((at = strchr(rest, '@'))) {
		size_t length;
		const char *value = value_at(at, values, &length);

		buffer_append(&out, rest, (size_t)(at - rest));
		if (value)
			add_quoted(&out, value, launcher);
		else
			buffer_text(&out, "@");
		rest = at + (value ? length : 1);
	}
	buffer_text(&out, rest);
	return out.data;
}

/* What stands before the program in its line, without blanks before and quotes behind: "ExecStart=". */
static char *before_program(const struct launcher *launcher)
{
	const char *place = strstr(launcher->text, PROGRAM_PLACE), *start = place;

	while (start > launcher->text && start[-1] != '\n')
		start--;
	start += strspn(start, " \t");
	return xprintf("%.*s", (int)strcspn(start, "\"'\n"), start);
}

/* A word as the file writes it, quoted or bare. */
static char *read_word(const struct launcher *launcher, const char *text)
{
	const char quote = *text == '"' || *text == '\'' ? *text++ : '\0';
	struct buffer word = {0};

	buffer_text(&word, "");
	while (*text && *text != '\n' && (quote ? *text != quote : !strchr(" \t,;", *text))) {
		if (!strncmp(text, launcher->percent, strlen(launcher->percent)))
			text += strlen(launcher->percent) - 1;
		else if (!strncmp(text, launcher->dollar, strlen(launcher->dollar)))
			text += strlen(launcher->dollar) - 1;
		else if (*text == '\\' && text[1] && quote != '\'')
			text++;
		buffer_append(&word, text++, 1);
	}
	return word.data;
}

char *launcher_program(const struct launcher *launcher, const char *text)
{
	char *before = before_program(launcher), *program = NULL;

	for (const char *line = text; line && !program; line = strchr(line, '\n')) {
		line += strspn(line, " \t\n");
		if (!strncmp(line, before, strlen(before)))
			program = read_word(launcher, line + strlen(before));
	}
	free(before);
	if (program && *program == '/')
		return program;
	free(program);
	return NULL;
}
