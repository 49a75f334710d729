/* What a command line may go on with. The shells ask for it at each Tab: so the table of commands, and what lies on
 * this machine, is looked up in one place for all of them. */
#include <ctype.h>
#include <glob.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/embed.h"
#include "base/memory.h"
#include "base/text.h"
#include "cli/generate.h"
#include "cli/help.h"
#include "cli/program.h"
#include "key/wallet.h"
#include "space/store.h"

EMBED(completion_bash, "completions/quasar.bash");
EMBED(completion_zsh, "completions/quasar.zsh");
EMBED(completion_fish, "completions/quasar.fish");

/* A command line of which the last word is being typed. */
struct line {
	const struct command *program;
	struct invocation invocation; /* what the words before it say */
	struct globals globals;
	const struct opt *waiting;  /* the option whose value the word is; NULL: none */
	const struct opt *optional; /* the option before the word, if it needs no value; else NULL */
	bool only_positionals;
	const char *word; /* as far as it is typed */
	size_t kept;      /* so many letters of it stay: "--device=" or "4096," */
	size_t offered;
	const char *places; /* of the file system that may stand here: "files", "directories"; NULL: none */
};

/* --- one offer --------------------------------------------------------------------------------------- */

/* What comes from a file's name is offered only if it can be shown: neither as a line of its own nor as a command to the
 * terminal. */
static bool is_plain(const char *text)
{
	char *clean = xstrdup(text);
	bool plain;

	text_clean(clean);
	plain = *text && *text != ':' && !strcmp(clean, text);
	free(clean);
	return plain;
}

/* Offers a word, with its meaning up to the end of its first sentence; `meaning` may be NULL. */
static void offer(struct line *line, const char *word, const char *meaning)
{
	const char *typed = line->word + line->kept, *end;

	if (strncmp(word, typed, strlen(typed)) != 0 || !is_plain(word))
		return;
	printf("%.*s%s", (int)line->kept, line->word, word);
	if (meaning && is_plain(meaning)) {
		end = strstr(meaning, ". ");
		printf("\t%.*s", (int)(end ? (size_t)(end - meaning) : strlen(meaning)), meaning);
	}
	putchar('\n');
	line->offered++;
}

static void offer_choices(struct line *line, const char *choices)
{
	char *list = xstrdup(choices), *rest = list, *choice;

	while ((choice = strsep(&rest, "|")))
		offer(line, choice, NULL);
	free(list);
}

static void offer_subcommands(struct line *line, const struct command *command)
{
	for (size_t i = 0; command->subcommands && command->subcommands[i]; i++)
		offer(line, command->subcommands[i]->name, command->subcommands[i]->summary);
}

static void offer_opts(struct line *line, const struct opt *opts)
{
	for (; opts && opts->name; opts++) {
		char *word = xprintf("--%s", opts->name);

		offer(line, word, opts->help);
		free(word);
	}
}

/* --- kinds of values --------------------------------------------------------------------------------- */

/* What `quasar help` takes: a command, then one below it. */
static void offer_commands(struct line *line)
{
	const struct command *command = line->program;
	struct error ignored;

	for (int i = 0; command && i < line->invocation.positional_count; i++)
		command = find_command(command, "", line->invocation.positionals[i], &ignored);
	if (command)
		offer_subcommands(line, command);
}

/* An option of the line, or the setting that will count when the command itself has none. */
static const char *option_or_setting(const struct line *line, const char *option, const char *setting)
{
	const char *value = arg_string(&line->invocation, option);

	return value ? value : settings_get(line->invocation.settings, setting, NULL);
}

static void list_wallets(const struct line *line, struct hotkey_list *list)
{
	struct error ignored;

	if (wallet_list(option_or_setting(line, "path", "BT_WALLET_PATH"), list, &ignored) < 0)
		*list = (struct hotkey_list){0};
}

static void offer_wallets(struct line *line)
{
	struct hotkey_list list;

	list_wallets(line, &list);
	for (size_t i = 0; i < list.count; i++)
		if (!i || strcmp(list.items[i].wallet, list.items[i - 1].wallet))
			offer(line, list.items[i].wallet, NULL);
	wallet_list_free(&list);
}

static void offer_hotkeys(struct line *line)
{
	const char *wallet = option_or_setting(line, "wallet", "WALLET_MINER_NAME");
	struct hotkey_list list;

	list_wallets(line, &list);
	for (size_t i = 0; i < list.count; i++)
		if (!strcmp(list.items[i].wallet, wallet))
			offer(line, list.items[i].name, list.items[i].address);
	wallet_list_free(&list);
}

/* By their device files: asking the driver takes too long for a key press. */
static void offer_devices(struct line *line)
{
	glob_t found = {0};

	offer(line, "auto", "a GPU if there is one");
	offer(line, "cpu", NULL);
	if (glob("/dev/nvidia[0-9]*", 0, NULL, &found) == 0)
		offer(line, "cuda", "the first GPU");
	for (size_t i = 0; i < found.gl_pathc; i++) {
		char *name = xprintf("cuda:%zu", i);

		offer(line, name, NULL);
		free(name);
	}
	globfree(&found);
}

/* Of the workspace's commitments, by the ids that `quasar status` shows. */
static void offer_submissions(struct line *line)
{
	const struct submission_filter committed = {.steps = STEP_BIT(STEP_COMMITTED)};
	const char *directory = line->invocation.workspace;
	struct submission_list list = {0};
	struct error ignored;
	struct store *store = directory && store_exists(directory) ? store_open(directory, &ignored) : NULL;

	if (store && store_submissions(store, &committed, &list, &ignored) == 0) {
		for (size_t i = 0; i < list.count; i++) {
			const struct submission *submission = &list.items[i];
			char *id = xprintf("%lld", (long long)submission->id);
			char *what = xprintf("%lld tokens, commit %.12s",
				(long long)submission->target_sequence_length, submission->commit_hash);

			offer(line, id, what);
			free(what);
			free(id);
		}
	}
	submission_list_free(&list);
	store_close(store);
}

static void offer_files(struct line *line)
{
	line->places = "files";
}

static void offer_directories(struct line *line)
{
	line->places = "directories";
}

/* A value is of the kind that its name in the help says. */
static const struct {
	const char *name;
	void (*offer)(struct line *line);
} kinds[] = {
	{"COMMAND", offer_commands},
	{"WALLET", offer_wallets},
	{"HOTKEY", offer_hotkeys},
	{"DEVICE", offer_devices},
	{"ID", offer_submissions},
	{"FILE", offer_files},
	{"PATH", offer_files},
	{"DIR", offer_directories},
};

/* The name without what the help puts around it: "[DIR]", "DEVICE,...", "[COMMAND]...". The caller frees. */
static char *bare_name(const char *name)
{
	char *bare = xstrdup(name + (*name == '['));

	bare[strcspn(bare, "],.")] = '\0';
	return bare;
}

/* It may be one of several: "DIR|URL". */
static void offer_kind(struct line *line, const char *name)
{
	char *bare = bare_name(name), *rest = bare, *one;

	while ((one = strsep(&rest, "|")))
		for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
			if (!strcmp(kinds[i].name, one))
				kinds[i].offer(line);
	free(bare);
}

static void offer_value(struct line *line, const struct opt *opt)
{
	const char *comma = strrchr(line->word + line->kept, ',');

	if (comma && strstr(opt->arg, ",..."))
		line->kept = (size_t)(comma + 1 - line->word);
	if (opt->choices)
		offer_choices(line, opt->choices);
	else
		offer_kind(line, opt->arg);
}

/* --- positional arguments ---------------------------------------------------------------------------- */

/* The words of one synopsis, "man [DIR]": a word in small letters stands for itself. The one that comes next is offered
 * if those before it fit; one that ends with "..." may be repeated. */
static void offer_next(struct line *line, char *synopsis)
{
	const struct invocation *invocation = &line->invocation;
	int at = 0;
	char *word;

	while ((word = strsep(&synopsis, " "))) {
		if (!*word)
			continue;
		if (at == invocation->positional_count || (strstr(word, "]...") && !synopsis)) {
			if (islower((unsigned char)*word))
				offer(line, word, NULL);
			else
				offer_kind(line, word);
			return;
		}
		if (islower((unsigned char)*word) && strcmp(word, invocation->positionals[at]) != 0)
			return;
		at++;
	}
}

static void offer_positionals(struct line *line)
{
	const struct command *command = line->invocation.command;
	char *synopses = command->positionals ? xstrdup(command->positionals) : NULL, *rest = synopses, *one;

	while (line->invocation.positional_count < command->max_positionals && (one = strsep(&rest, "|")))
		offer_next(line, one);
	free(synopses);
}

/* --- the line ---------------------------------------------------------------------------------------- */

static void enter_command(struct line *line, const struct command *command)
{
	size_t count = 0;

	while (command->opts && command->opts[count].name)
		count++;
	free(line->invocation.values);
	line->invocation.command = command;
	line->invocation.values = xcalloc(count, sizeof(*line->invocation.values));
}

/* What is wrong with an option before the word is for the command to say, once it runs. */
static void read_before(struct line *line, char **words, int count, int *at)
{
	const char *value;
	const struct opt *opt = program_find_opt(line->invocation.command, words[*at], &value);
	bool open = opt && opt->arg && !value && *at + 1 == count;
	struct error ignored;

	if (open && program_opt_is_optional(opt))
		line->optional = opt;
	else if (open)
		line->waiting = opt;
	program_read_option(&line->invocation, &line->globals, words, count, at, &ignored);
}

static void read_line(struct line *line, char **words, int count)
{
	struct invocation *invocation = &line->invocation;
	struct error ignored;

	for (int i = 0; i < count; i++) {
		const struct command *next = find_command(invocation->command, "", words[i], &ignored);

		if (!line->only_positionals && !strcmp(words[i], "--"))
			line->only_positionals = true;
		else if (!line->only_positionals && words[i][0] == '-' && words[i][1])
			read_before(line, words, count, &i);
		else if (next && !invocation->positional_count)
			enter_command(line, next);
		else
			invocation->positionals[invocation->positional_count++] = words[i];
	}
}

static void offer_all(struct line *line)
{
	const struct command *command = line->invocation.command;
	const char *value = NULL;
	const struct opt *opt = line->waiting;

	if (!opt && !line->only_positionals && line->word[0] == '-')
		opt = program_find_opt(command, line->word, &value);
	if (line->waiting || value) {
		line->kept = value ? (size_t)(value - line->word) : 0;
		if (opt->arg)
			offer_value(line, opt);
		return;
	}
	if (line->optional && line->optional->choices)
		offer_choices(line, line->optional->choices);
	if (!line->invocation.positional_count)
		offer_subcommands(line, command);
	offer_positionals(line);
	if (!line->only_positionals && !line->offered && !line->places) {
		offer_opts(line, command->opts);
		offer_opts(line, global_opts);
	}
}

void program_complete(const struct command *program, char **words, int count)
{
	struct line line = {.program = program, .word = count ? words[count - 1] : ""};
	struct workspace_place place = {0};
	struct error ignored;

	line.invocation.positionals = xcalloc((size_t)count + 1, sizeof(*line.invocation.positionals));
	enter_command(&line, program);
	read_line(&line, words, count - 1);
	if (sodium_init() < 0) /* for whatever reads keys */
		goto done;
	if (program_find_workspace(&line.globals, &place, &ignored) == 0) {
		line.invocation.workspace = place.directory;
		line.invocation.settings = place.settings;
	}
	offer_all(&line);
	if (line.places)
		printf(":%s\n", line.places);
done:
	settings_free(place.settings);
	free(place.directory);
	free(line.invocation.values);
	free(line.invocation.positionals);
}

/* --- what the shells run ----------------------------------------------------------------------------- */

const char *generate_completion(const char *shell)
{
	static const struct {
		const char *shell, *text;
	} completions[] = {{"bash", completion_bash}, {"zsh", completion_zsh}, {"fish", completion_fish}};

	for (size_t i = 0; i < sizeof(completions) / sizeof(*completions); i++)
		if (!strcmp(shell, completions[i].shell))
			return completions[i].text;
	return NULL;
}
