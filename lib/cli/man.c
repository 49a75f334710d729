/* Man pages, one for each command of the table. */
#include "cli/generate.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/version.h"
#include "cli/help.h"

/* Text for groff: what has a meaning there, or would be made typographic, as it stands. */
static void man_text(FILE *out, const char *text)
{
	static const struct {
		char character;
		const char *escape;
	} escapes[] = {{'\\', "\\e"}, {'-', "\\-"}, {'"', "\\(dq"}, {'\'', "\\(aq"}, {'`', "\\(ga"},
		{'~', "\\(ti"}, {'^', "\\(ha"}, {'|', "|\\:"} /* a line may end there */, {0}};
	bool line_start = true;

	for (; *text; line_start = *text++ == '\n') {
		size_t i = 0;

		if (line_start && *text == '.')
			fputs("\\&", out);
		while (escapes[i].character && escapes[i].character != *text)
			i++;
		if (escapes[i].character) {
			fputs(escapes[i].escape, out);
		} else if (!strncmp(text, "\n\n", 2)) {
			fputs("\n.PP\n", out);
			text++;
		} else {
			fputc(*text, out);
		}
	}
}

static void man_opts(FILE *out, const struct opt *opts)
{
	for (; opts && opts->name; opts++) {
		const char *value = help_default(opts);

		fputs(".TP\n", out);
		if (opts->letter)
			fprintf(out, "\\fB\\-%c\\fR, ", opts->letter);
		fputs("\\fB\\-\\-", out);
		man_text(out, opts->name);
		fprintf(out, "\\fR%s%s%s\n", opts->arg ? " \\fI" : "", opts->arg ? opts->arg : "",
			opts->arg ? "\\fR" : "");
		man_text(out, opts->help);
		if (opts->choices) {
			fputs(" One of ", out);
			man_text(out, opts->choices);
			fputc('.', out);
		}
		if (opts->setting)
			fprintf(out, " Setting: \\fB%s\\fR.", opts->setting);
		if (value) {
			fputs(" Default: ", out);
			man_text(out, value);
			fputc('.', out);
		}
		fputc('\n', out);
	}
}

static void man_commands(FILE *out, const struct command *const *commands)
{
	fputs(".SH COMMANDS\n", out);
	for (; *commands; commands++) {
		fprintf(out, ".TP\n.B %s\n", (*commands)->name);
		man_text(out, (*commands)->summary);
		fputc('\n', out);
	}
}

static void man_examples(FILE *out, const struct example *example)
{
	fputs(".SH EXAMPLES\n", out);
	for (; example->line; example++) {
		fputs(".TP\n.B ", out);
		man_text(out, example->line);
		fputc('\n', out);
		man_text(out, example->what);
		fputc('\n', out);
	}
}

static void man_settings(FILE *out)
{
	fputs(".SH ENVIRONMENT\n", out);
	for (const struct setting *setting = settings_table; setting->name; setting++) {
		fprintf(out, ".TP\n.B %s\n", setting->name);
		man_text(out, setting->help);
		if (setting->kind == SETTING_UNUSED) {
			fputs(" " SETTING_UNUSED_NOTE, out);
		} else if (setting->fallback) {
			fputs(" Default: ", out);
			man_text(out, setting->fallback);
			fputc('.', out);
		}
		fputc('\n', out);
	}
}

static void man_page(FILE *out, const char *path, const struct command *command)
{
	char *dashed = xstrdup(path);

	for (char *space = dashed; (space = strchr(space, ' '));)
		*space = '-';
	fprintf(out, ".TH \"%s\" 1 \"\" \"quasar %s\" \"User Commands\"\n.nh\n.ad l\n.SH NAME\n", dashed,
		QUASAR_VERSION); /* commands are not hyphenated, and lines that have no space not adjusted */
	man_text(out, dashed);
	fputs(" \\- ", out);
	man_text(out, command->summary);
	fputs("\n.SH SYNOPSIS\n.B ", out);
	help_synopsis(out, path, command);
	fputc('\n', out);
	if (command->description) {
		fputs(".SH DESCRIPTION\n", out);
		man_text(out, command->description);
		fputc('\n', out);
	}
	if (command->subcommands)
		man_commands(out, command->subcommands);
	fputs(".SH OPTIONS\n", out);
	man_opts(out, command->opts);
	man_opts(out, global_opts);
	if (command->examples)
		man_examples(out, command->examples);
	fputs(".SH \"EXIT STATUS\"\n", out);
	for (const struct exit_code *code = help_exit_codes; code->meaning; code++)
		if (help_may_end_with(command, code->status))
			fprintf(out, ".TP\n.B %d\n%s\n", code->status, code->meaning);
	if (!strchr(path, ' ')) /* the program's own */
		man_settings(out);
	free(dashed);
}

int generate_man(const struct command *command, const char *path, const char *directory, struct error *err)
{
	char *dashed = xprintf("%s/%s.1", directory, path);
	FILE *out;
	int result = 0;

	for (char *space = dashed + strlen(directory); (space = strchr(space, ' '));)
		*space = '-';
	out = fopen(dashed, "w");
	if (out)
		man_page(out, path, command);
	if (!out || fclose(out) != 0)
		result = error_set(err, STATUS_ENVIRONMENT, "cannot write %s: %s", dashed, strerror(errno));
	free(dashed);
	for (size_t i = 0; !result && command->subcommands && command->subcommands[i]; i++) {
		char *longer = xprintf("%s %s", path, command->subcommands[i]->name);

		result = generate_man(command->subcommands[i], longer, directory, err);
		free(longer);
	}
	return result;
}
