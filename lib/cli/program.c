/* The way from a command line to one of the program's commands. */
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/layout.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/suggest.h"
#include "base/terminal.h"
#include "base/text.h"
#include "base/version.h"
#include "cli/help.h"
#include "cli/program.h"
#include "space/workspace.h"

const struct opt global_opts[] = {
	{"json", 0, NULL, NULL, NULL, NULL, "Print one JSON document instead of text."},
	{"workspace", 'C', "DIR", NULL, NULL, NULL,
		"Workspace to use. Default: $QUASAR_WORKSPACE, or else the current directory or its "
		"nearest parent that is a workspace of yours."},
	{"quiet", 'q', NULL, NULL, NULL, NULL, "Suppress notices and progress."},
	{"verbose", 'v', NULL, NULL, NULL, NULL, "Log more to stderr."},
	{"help", 'h', NULL, NULL, NULL, NULL, "Show help."},
	{0},
};

const struct command *find_command(
	const struct command *parent, const char *path, const char *name, struct error *err)
{
	struct suggestion near = {.word = name};

	for (const struct command *const *at = parent->subcommands; at && *at; at++) {
		if (!strcmp((*at)->name, name))
			return *at;
		suggestion_offer(&near, (*at)->name);
	}
	error_set(err, STATUS_USAGE, "unknown command \"%s\"", name);
	if (near.name)
		error_hint(err, "Did you mean `%s %s`?", path, near.name);
	return NULL;
}

/* Finds "--name", "--name=value" or "-n" in a table; `value` points behind the '=', or is NULL. */
static const struct opt *find_opt(const struct opt *opts, const char *word, const char **value)
{
	*value = NULL;
	for (; opts && opts->name; opts++) {
		size_t length = strlen(opts->name);

		if (word[1] != '-') {
			if (opts->letter && word[1] == opts->letter && !word[2])
				return opts;
		} else if (!strncmp(word + 2, opts->name, length)) {
			if (word[2 + length] == '=')
				*value = word + 3 + length;
			if (!word[2 + length] || *value)
				return opts;
		}
	}
	return NULL;
}

const struct opt *program_find_opt(const struct command *command, const char *word, const char **value)
{
	const struct opt *opt = find_opt(command->opts, word, value);

	return opt ? opt : find_opt(global_opts, word, value);
}

static bool is_global(const struct opt *opt)
{
	const struct opt *global = global_opts;

	while (global->name && global != opt)
		global++;
	return global->name;
}

static int unknown_option(const struct opt *opts, const char *word, struct error *err)
{
	char *name = xprintf("%.*s", (int)strcspn(word, "="), word);
	struct suggestion near = {.word = name + strspn(name, "-")};

	for (const struct opt *opt = opts; opt && opt->name; opt++)
		suggestion_offer(&near, opt->name);
	for (const struct opt *opt = global_opts; opt->name; opt++)
		suggestion_offer(&near, opt->name);
	error_set(err, STATUS_USAGE, "unknown option %s", name);
	if (near.name)
		error_hint(err, "Did you mean --%s?", near.name);
	free(name);
	return -1;
}

static void apply_global(struct globals *globals, const struct opt *opt, const char *value)
{
	if (!strcmp(opt->name, "json"))
		globals->json = true;
	else if (!strcmp(opt->name, "help"))
		globals->help = true;
	else if (!strcmp(opt->name, "workspace"))
		globals->workspace = value;
	else
		log_set_level(!strcmp(opt->name, "quiet") ? LOG_QUIET : LOG_VERBOSE);
}

bool is_choice(const char *choices, const char *value, size_t length)
{
	while (choices) {
		if (!strncmp(choices, value, length) && (choices[length] == '|' || !choices[length]))
			return true;
		choices = strchr(choices, '|');
		choices += choices != NULL;
	}
	return false;
}

/* Whether an option may have this value: one of its choices, or several behind commas. */
static bool fits_choices(const struct opt *opt, const char *value)
{
	bool several = strstr(opt->arg, ",...") != NULL;
	size_t length = several ? strcspn(value, ",") : strlen(value);

	while (is_choice(opt->choices, value, length)) {
		if (!value[length])
			return true;
		value += length + 1;
		length = strcspn(value, ",");
	}
	return false;
}

bool program_opt_is_optional(const struct opt *opt)
{
	return opt->arg && opt->arg[0] == '[';
}

/* Whether the word behind an option that may go without a value is its value: to a command that takes no
 * other words it can be nothing else, even if misspelt. */
static bool is_its_value(const struct command *command, const struct opt *opt, const char *word)
{
	return fits_choices(opt, word) || (!command->positionals && word[0] != '-');
}

int program_read_option(struct invocation *invocation, struct globals *globals, char **words, int count,
	int *at, struct error *err)
{
	const char *word = words[*at], *value;
	const struct opt *opt = program_find_opt(invocation->command, word, &value);

	if (!opt)
		return unknown_option(invocation->command->opts, word, err);
	if (!opt->arg && value)
		return error_set(err, STATUS_USAGE, "option --%s takes no value", opt->name);
	if (program_opt_is_optional(opt) && !value) {
		if (*at + 1 < count && is_its_value(invocation->command, opt, words[*at + 1]))
			value = words[++*at];
	} else if (opt->arg && !value) {
		if (*at + 1 >= count)
			return error_set(
				err, STATUS_USAGE, "option --%s needs a value: %s", opt->name, opt->arg);
		value = words[++*at];
	}
	if (opt->choices && value && !fits_choices(opt, value))
		return error_set(
			err, STATUS_USAGE, "--%s: \"%s\" is not one of %s", opt->name, value, opt->choices);
	if (is_global(opt))
		apply_global(globals, opt, value);
	else
		invocation->values[opt - invocation->command->opts] = value ? value : "";
	return 0;
}

static int read_words(
	struct invocation *invocation, struct globals *globals, char **words, int count, struct error *err)
{
	bool only_positionals = false;

	for (int i = 0; i < count; i++) {
		if (!only_positionals && !strcmp(words[i], "--")) {
			only_positionals = true;
		} else if (!only_positionals && words[i][0] == '-' && words[i][1]) {
			if (program_read_option(invocation, globals, words, count, &i, err) < 0)
				return -1;
		} else {
			invocation->positionals[invocation->positional_count++] = words[i];
		}
	}
	return 0;
}

static int check_positionals(const struct invocation *invocation, struct error *err)
{
	const struct command *command = invocation->command;

	if (invocation->positional_count > command->max_positionals)
		return error_set(err, STATUS_USAGE, "unexpected argument \"%s\"",
			invocation->positionals[command->max_positionals]);
	if (invocation->positional_count < command->min_positionals)
		return error_set(err, STATUS_USAGE, "missing argument: %s", command->positionals);
	return 0;
}

static void print_error(const char *path, bool json, const struct error *err)
{
	if (!err->message[0])
		return;
	if (json && !output_json_done()) {
		cJSON *document = cJSON_CreateObject(), *error = cJSON_AddObjectToObject(document, "error");

		cJSON_AddStringToObject(error, "kind", status_name(err->status));
		cJSON_AddNumberToObject(error, "exit", err->status);
		cJSON_AddStringToObject(error, "message", err->message);
		cJSON_AddStringToObject(error, "hint", err->hint);
		output_json(document);
	}
	fflush(stdout);
	log_passing_end();
	if (err->status == STATUS_INTERRUPTED) { /* no fault, and with --quiet not worth a word */
		log_note("%s: %s", path, err->message);
		return;
	}
	fprintf(stderr, "%s: %s", path, color(stderr, COLOR_RED));
	layout_words(stderr, err->message, strlen(path) + 2, 0);
	fputs(color(stderr, COLOR_NONE), stderr);
	if (err->hint[0])
		layout_words(stderr, err->hint, 0, 0);
	if (err->status == STATUS_USAGE)
		fprintf(stderr, "See: %s --help\n", path);
}

/* A setting that is misspelt would be silently without effect. */
static void tell_misspelt(const struct invocation *invocation)
{
	const char *name, *meant;
	size_t at = 0;

	while ((name = settings_unknown(invocation->settings, &at, &meant)))
		if (meant)
			log_warn("%s/.env: %s is not a setting; did you mean %s?", invocation->workspace,
				name, meant);
}

int program_find_workspace(const struct globals *globals, struct workspace_place *place, struct error *err)
{
	const char *named = globals->workspace ? globals->workspace : getenv("QUASAR_WORKSPACE");

	return workspace_find(named && *named ? named : NULL, place, err);
}

static int run(struct invocation *invocation, const struct globals *globals, struct error *err)
{
	struct workspace_place place;
	char *word;
	int result;

	if (sodium_init() < 0)
		return error_set(err, STATUS_ENVIRONMENT, "libsodium cannot start: no random numbers");
	if (program_find_workspace(globals, &place, err) < 0)
		return -1;
	if (globals->workspace && !place.directory) {
		error_set(err, STATUS_ENVIRONMENT, "workspace %s: no such directory", globals->workspace);
		word = shell_word(globals->workspace);
		result = error_hint(err, "Create it with: quasar init %s", word);
		free(word);
	} else {
		invocation->workspace = place.directory;
		invocation->workspace_above = place.above;
		invocation->settings = place.settings;
		settings_export_compute(place.settings);
		tell_misspelt(invocation);
		result = invocation->command->run(invocation, err);
		place.settings = invocation->settings; /* it may have read them again */
	}
	settings_free(place.settings);
	free(place.directory);
	return result;
}

/* `quasar` alone: its commands and, for whoever has no workspace, where to begin. */
static void welcome(const struct command *program)
{
	struct workspace_place place = {0};
	struct error ignored;

	help_usage(stdout, program->name, program);
	if (workspace_find(NULL, &place, &ignored) == 0 && !place.directory)
		printf("\nYou are not in a workspace. To begin: `%s wallet new`, then `%s init DIR`.\n",
			program->name, program->name);
	settings_free(place.settings);
	free(place.directory);
}

/* Goes down to the command that the first words name, and makes its path, "quasar wallet new", of them; returns how many
 * words that takes, or -1. Options may stand between: `quasar -C DIR status`. */
static int read_command(struct invocation *invocation, struct globals *globals, int argc, char **argv,
	char **path, struct error *err)
{
	int at = 1;

	for (; at < argc && invocation->command->subcommands; at++) {
		const struct command *next;
		char *longer;

		if (argv[at][0] == '-') {
			if (program_read_option(invocation, globals, argv, argc, &at, err))
				return -1;
			continue;
		}
		next = find_command(invocation->command, *path, argv[at], err);
		if (!next)
			return -1;
		invocation->command = next;
		longer = xprintf("%s %s", *path, next->name);
		free(*path);
		*path = longer;
	}
	return at;
}

/* What the words behind the command's name are for it. */
static int read_rest(struct invocation *invocation, struct globals *globals, int argc, char **argv, int first,
	struct error *err)
{
	size_t opt_count = 0;

	while (invocation->command->opts && invocation->command->opts[opt_count].name)
		opt_count++;
	invocation->values = xcalloc(opt_count, sizeof(*invocation->values));
	invocation->positionals = xcalloc((size_t)argc, sizeof(*invocation->positionals));
	return read_words(invocation, globals, argv + first, argc - first, err);
}

/* Whether all output has arrived. */
static int finish_output(struct error *err)
{
	if (fflush(stdout) < 0 || ferror(stdout))
		return error_set(err, STATUS_ENVIRONMENT, "cannot write to standard output");
	return 0;
}

static int tell_version(const struct command *program)
{
	struct error err = {0};

	puts("quasar " QUASAR_VERSION);
	if (finish_output(&err) == 0)
		return STATUS_OK;
	print_error(program->name, false, &err);
	return (int)err.status;
}

static int obey(struct invocation *invocation, const struct globals *globals, const struct command *program,
	const char *path, struct error *err)
{
	if (globals->help)
		help_full(stdout, path, invocation->command);
	else if (invocation->command == program)
		welcome(program);
	else if (invocation->command->subcommands)
		help_usage(stdout, path, invocation->command);
	else if (check_positionals(invocation, err) || run(invocation, globals, err))
		return -1;
	return finish_output(err);
}

/* Also behind a mistake, where reading ends. */
static bool asks_for_json(int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		if (!strcmp(argv[i], "--json"))
			return true;
	return false;
}

static int main_with(const struct command *program, int argc, char **argv)
{
	struct invocation invocation = {.command = program};
	struct globals globals = {0};
	struct error err = {0};
	char *path = xstrdup(program->name);
	int first = read_command(&invocation, &globals, argc, argv, &path, &err);
	int result = first < 0 ? -1 : read_rest(&invocation, &globals, argc, argv, first, &err);

	invocation.json = globals.json || (result && asks_for_json(argc, argv));
	if (!result)
		result = obey(&invocation, &globals, program, path, &err);
	if (result)
		print_error(path, invocation.json, &err);
	free(invocation.values);
	free(invocation.positionals);
	free(path);
	return result ? (int)err.status : STATUS_OK;
}

int program_main(const struct command *program, int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0); /* a line arrives whole, also in a pipe or a log file */
	interrupt_install();
	if (argc > 1 && !strcmp(argv[1], "--version"))
		return tell_version(program);
	if (argc > 1 && !strcmp(argv[1], COMPLETE_WORD)) {
		program_complete(program, argv + 2, argc - 2);
		return STATUS_OK;
	}
	return main_with(program, argc, argv);
}
