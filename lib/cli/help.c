/* Usage and --help, from the command table. */
#include "cli/help.h"

#include <stdlib.h>
#include <string.h>

#include "base/layout.h"
#include "base/memory.h"
#include "base/terminal.h"

const struct exit_code help_exit_codes[] = {
	{STATUS_OK, "done"},
	{STATUS_FAILED, "a check failed"},
	{STATUS_USAGE, "wrong usage"},
	{STATUS_ENVIRONMENT,
		"something is missing: no wallet, not a workspace, no GPU, unwritable directory"},
	{STATUS_NETWORK, "network or server error: worth retrying"},
	{STATUS_REFUSED, "refused by the validator or the fork's remote: not worth retrying"},
	{STATUS_EARLY, "too early: the reveal block has not been reached"},
	{STATUS_INTERRUPTED, "interrupted"},
	{0},
};

bool help_may_end_with(const struct command *command, enum status status)
{
	if (status == STATUS_OK || status == STATUS_USAGE || status == STATUS_INTERRUPTED)
		return true;
	for (const enum status *exit = command->exits; exit && *exit; exit++)
		if (*exit == status)
			return true;
	return command->subcommands != NULL;
}

/* "--seq N" and the like, into `text`. */
static void opt_words(const struct opt *opt, char *text, size_t size)
{
	char letter[8] = "    ";

	if (opt->letter)
		snprintf(letter, sizeof(letter), "-%c, ", opt->letter);
	snprintf(text, size, "%s--%s%s%s", letter, opt->name, opt->arg ? " " : "", opt->arg ? opt->arg : "");
}

const char *help_default(const struct opt *opt)
{
	if (opt->fallback || !opt->setting)
		return opt->fallback;
	for (const struct setting *setting = settings_table; setting->name; setting++)
		if (!strcmp(setting->name, opt->setting))
			return setting->kind == SETTING_SECRET ? NULL : setting->fallback;
	return NULL;
}

static void print_opts(FILE *out, const struct opt *opts)
{
	for (; opts && opts->name; opts++) {
		char words[64];
		char *help;
		const char *value = help_default(opts);

		opt_words(opts, words, sizeof(words));
		fprintf(out, "  %-26s", words);
		if (strlen(words) > 26)
			fprintf(out, "\n%28s", "");
		help = xprintf("%s%s%s%s%s%s%s%s", opts->help, opts->choices ? " One of " : "",
			opts->choices ? opts->choices : "", opts->choices ? "." : "",
			value || opts->setting ? " [" : "", opts->setting ? opts->setting : "",
			value && opts->setting ? "; " : "", value ? value : "");
		if (value || opts->setting) {
			char *closed = xprintf("%s]", help);

			free(help);
			help = closed;
		}
		layout_prose(out, help, 28, 28);
		free(help);
	}
}

static void print_subcommands(FILE *out, const struct command *command)
{
	for (size_t i = 0; command->subcommands[i]; i++) {
		const struct command *next = command->subcommands[i];

		if (next->group)
			fprintf(out, "%s%s%s%s\n", i ? "\n" : "", color(out, COLOR_BOLD), next->group,
				color(out, COLOR_NONE));
		fprintf(out, "  %-14s", next->name);
		layout_prose(out, next->summary, 16, 16);
	}
}

void help_synopsis(FILE *out, const char *path, const struct command *command)
{
	fprintf(out, "%s%s%s%s%s", path, command->subcommands ? " COMMAND" : "",
		command->opts || command->subcommands ? " [OPTION]..." : "", command->positionals ? " " : "",
		command->positionals ? command->positionals : "");
}

static void print_title(FILE *out, const char *path, const struct command *command)
{
	fprintf(out, "%s - ", path);
	layout_prose(out, command->summary, strlen(path) + 3, 0);
	fputs("\nusage: ", out);
	help_synopsis(out, path, command);
	fputc('\n', out);
}

void help_usage(FILE *out, const char *path, const struct command *command)
{
	print_title(out, path, command);
	if (command->subcommands) {
		fputc('\n', out);
		print_subcommands(out, command);
	}
	fprintf(out, "\nMore: %s%s --help\n", path, command->subcommands ? " [COMMAND]" : "");
}

void help_full(FILE *out, const char *path, const struct command *command)
{
	const char *bold = color(out, COLOR_BOLD), *plain = color(out, COLOR_NONE);

	print_title(out, path, command);
	if (command->description) {
		fputc('\n', out);
		layout_prose(out, command->description, 0, 0);
	}
	if (command->subcommands) {
		fputc('\n', out);
		if (!command->subcommands[0]->group)
			fprintf(out, "%scommands%s\n", bold, plain);
		print_subcommands(out, command);
	}
	if (command->opts) {
		fprintf(out, "\n%soptions%s [setting in the environment or .env; default]\n", bold, plain);
		print_opts(out, command->opts);
	}
	fprintf(out, "\n%sglobal options%s\n", bold, plain);
	print_opts(out, global_opts);
	if (command->examples) {
		fprintf(out, "\n%sexamples%s\n", bold, plain);
		for (const struct example *example = command->examples; example->line; example++)
			fprintf(out, "  %s\n      %s\n", example->line, example->what);
	}
	fprintf(out, "\n%sexit codes%s\n", bold, plain);
	for (const struct exit_code *code = help_exit_codes; code->meaning; code++) {
		if (!help_may_end_with(command, code->status))
			continue;
		fprintf(out, "  %3d  ", code->status);
		layout_prose(out, code->meaning, 7, 7);
	}
}
