/* Usage, help, man pages and completions, all from the command table. */
#include "help.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/version.h"

static const struct {
	enum status status;
	const char *meaning;
} exit_codes[] = {
	{STATUS_OK, "done"},
	{STATUS_FAILED, "a check failed"},
	{STATUS_USAGE, "wrong usage"},
	{STATUS_ENVIRONMENT, "something is missing here: no wallet, not a workspace, no GPU, unwritable directory"},
	{STATUS_NETWORK, "network or server fault: worth retrying"},
	{STATUS_REFUSED, "refused by the validator: not worth retrying"},
	{STATUS_EARLY, "too early: the reveal block is not reached"},
	{STATUS_INTERRUPTED, "interrupted"},
};

static bool may_end_with(const struct command *command, enum status status)
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
	snprintf(text, size, "%s--%s%s%s", letter, opt->name, opt->arg ? " " : "",
		opt->arg ? opt->arg : "");
}

static const char *opt_default(const struct opt *opt)
{
	if (opt->fallback || !opt->setting)
		return opt->fallback;
	for (const struct setting *setting = settings_table; setting->name; setting++)
		if (!strcmp(setting->name, opt->setting))
			return setting->secret ? NULL : setting->fallback;
	return NULL;
}

/* Prints words with lines of at most 96 columns, the first starting at `column`, the others at `indent`. */
static void print_wrapped(FILE *out, const char *text, int column, int indent)
{
	while (*text) {
		int length = (int)strcspn(text, " \n");

		if (column + length > 96 && column > indent) {
			fprintf(out, "\n%*s", indent, "");
			column = indent;
		}
		fprintf(out, "%.*s", length, text);
		column += length;
		text += length;
		while (*text == ' ' || *text == '\n') {
			if (*text == '\n') {
				fprintf(out, "\n%*s", indent, "");
				column = indent;
			} else if (text[1]) {
				fputc(' ', out);
				column++;
			}
			text++;
		}
	}
	fputc('\n', out);
}

static void print_opts(FILE *out, const struct opt *opts)
{
	for (; opts && opts->name; opts++) {
		char words[64];
		char *help;
		const char *value = opt_default(opts);

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
		print_wrapped(out, help, 28, 28);
		free(help);
	}
}

static void print_subcommands(FILE *out, const struct command *command)
{
	for (size_t i = 0; command->subcommands[i]; i++)
		fprintf(out, "  %-14s%s\n", command->subcommands[i]->name,
			command->subcommands[i]->summary);
}

static void print_synopsis(FILE *out, const char *path, const struct command *command)
{
	fprintf(out, "%s%s%s%s%s", path, command->subcommands ? " COMMAND" : "",
		command->opts || command->subcommands ? " [OPTION]..." : "", command->positionals ? " " : "",
		command->positionals ? command->positionals : "");
}

void help_usage(FILE *out, const char *path, const struct command *command)
{
	fprintf(out, "%s - %s\n\nusage: ", path, command->summary);
	print_synopsis(out, path, command);
	fputc('\n', out);
	if (command->subcommands) {
		fputc('\n', out);
		print_subcommands(out, command);
	}
	fprintf(out, "\nMore: %s%s --help\n", path, command->subcommands ? " [COMMAND]" : "");
}

void help_full(FILE *out, const char *path, const struct command *command)
{
	const char *bold = color(out, COLOR_BOLD), *plain = color(out, COLOR_NONE);

	fprintf(out, "%s - %s\n\nusage: ", path, command->summary);
	print_synopsis(out, path, command);
	fputc('\n', out);
	if (command->description) {
		fputc('\n', out);
		print_wrapped(out, command->description, 0, 0);
	}
	if (command->subcommands) {
		fprintf(out, "\n%scommands%s\n", bold, plain);
		print_subcommands(out, command);
	}
	if (command->opts) {
		fprintf(out, "\n%soptions%s [setting in the environment or .env; default]\n", bold, plain);
		print_opts(out, command->opts);
	}
	fprintf(out, "\n%soptions of every command%s\n", bold, plain);
	print_opts(out, global_opts);
	if (command->examples) {
		fprintf(out, "\n%sexamples%s\n", bold, plain);
		for (const struct example *example = command->examples; example->line; example++)
			fprintf(out, "  %s\n      %s\n", example->line, example->what);
	}
	fprintf(out, "\n%sexit codes%s\n", bold, plain);
	for (size_t i = 0; i < sizeof(exit_codes) / sizeof(exit_codes[0]); i++)
		if (may_end_with(command, exit_codes[i].status))
			fprintf(out, "  %3d  %s\n", exit_codes[i].status, exit_codes[i].meaning);
}

static int run_help(struct invocation *invocation, struct error *err)
{
	const struct command *command = &program;
	char *path = xstrdup("quasar");

	for (int i = 0; i < invocation->positional_count; i++) {
		const char *name = invocation->positionals[i];
		const struct command *const *next = command->subcommands;
		char *longer;

		while (next && *next && strcmp((*next)->name, name))
			next++;
		if (!next || !*next) {
			free(path);
			return error_set(err, STATUS_USAGE, "unknown command \"%s\"", name);
		}
		command = *next;
		longer = xprintf("%s %s", path, name);
		free(path);
		path = longer;
	}
	help_full(stdout, path, command);
	free(path);
	return 0;
}

const struct command cmd_help = {
	.name = "help",
	.summary = "explain a command",
	.positionals = "[COMMAND]...",
	.max_positionals = 2,
	.examples =
		(const struct example[]){
			{"quasar help commit", "what `quasar commit` does and takes"},
			{0},
		},
	.run = run_help,
};

/* --- man pages, one for each command ---------------------------------------------------------- */

/* Text for groff: backslashes and hyphens literal, no line starting with a control character. */
static void man_text(FILE *out, const char *text)
{
	bool line_start = true;

	for (; *text; text++) {
		if (line_start && (*text == '.' || *text == '\''))
			fputs("\\&", out);
		if (*text == '\\')
			fputs("\\e", out);
		else if (*text == '-')
			fputs("\\-", out);
		else if (!strncmp(text, "\n\n", 2)) {
			fputs("\n.PP\n", out);
			text++;
		} else
			fputc(*text, out);
		line_start = *text == '\n';
	}
}

static void man_opts(FILE *out, const struct opt *opts)
{
	for (; opts && opts->name; opts++) {
		const char *value = opt_default(opts);

		fputs(".TP\n", out);
		if (opts->letter)
			fprintf(out, "\\fB\\-%c\\fR, ", opts->letter);
		fputs("\\fB\\-\\-", out);
		man_text(out, opts->name);
		fprintf(out, "\\fR%s%s%s\n", opts->arg ? " \\fI" : "", opts->arg ? opts->arg : "",
			opts->arg ? "\\fR" : "");
		man_text(out, opts->help);
		if (opts->choices)
			fprintf(out, " One of %s.", opts->choices);
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

static void man_page(FILE *out, const char *path, const struct command *command)
{
	char *dashed = xstrdup(path);

	for (char *space = dashed; (space = strchr(space, ' '));)
		*space = '-';
	fprintf(out, ".TH \"%s\" 1 \"\" \"quasar %s\" \"User Commands\"\n.SH NAME\n", dashed,
		QUASAR_VERSION);
	man_text(out, dashed);
	fputs(" \\- ", out);
	man_text(out, command->summary);
	fputs("\n.SH SYNOPSIS\n.B ", out);
	print_synopsis(out, path, command);
	fputc('\n', out);
	if (command->description) {
		fputs(".SH DESCRIPTION\n", out);
		man_text(out, command->description);
		fputc('\n', out);
	}
	if (command->subcommands) {
		fputs(".SH COMMANDS\n", out);
		for (size_t i = 0; command->subcommands[i]; i++) {
			fprintf(out, ".TP\n.B %s\n", command->subcommands[i]->name);
			man_text(out, command->subcommands[i]->summary);
			fputc('\n', out);
		}
	}
	fputs(".SH OPTIONS\n", out);
	man_opts(out, command->opts);
	man_opts(out, global_opts);
	if (command->examples) {
		fputs(".SH EXAMPLES\n", out);
		for (const struct example *example = command->examples; example->line; example++) {
			fputs(".TP\n.B ", out);
			man_text(out, example->line);
			fputc('\n', out);
			man_text(out, example->what);
			fputc('\n', out);
		}
	}
	fputs(".SH \"EXIT STATUS\"\n", out);
	for (size_t i = 0; i < sizeof(exit_codes) / sizeof(exit_codes[0]); i++)
		if (may_end_with(command, exit_codes[i].status))
			fprintf(out, ".TP\n.B %d\n%s\n", exit_codes[i].status, exit_codes[i].meaning);
	if (command == &program) {
		fputs(".SH ENVIRONMENT\n", out);
		for (const struct setting *setting = settings_table; setting->name; setting++) {
			fprintf(out, ".TP\n.B %s\n", setting->name);
			man_text(out, setting->help);
			if (setting->fallback) {
				fputs(" Default: ", out);
				man_text(out, setting->fallback);
				fputc('.', out);
			}
			fputc('\n', out);
		}
	}
	free(dashed);
}

static int generate_man(const struct command *command, const char *path, const char *directory,
	struct error *err)
{
	char *dashed = xprintf("%s/%s.1", directory, path);
	FILE *out;
	int result = 0;

	for (char *space = dashed + strlen(directory); (space = strchr(space, ' '));)
		*space = '-';
	out = fopen(dashed, "w");
	if (!out) {
		error_set(err, STATUS_ENVIRONMENT, "cannot write %s", dashed);
		free(dashed);
		return -1;
	}
	man_page(out, path, command);
	if (fclose(out) != 0)
		result = error_set(err, STATUS_ENVIRONMENT, "cannot write %s", dashed);
	free(dashed);
	for (size_t i = 0; !result && command->subcommands && command->subcommands[i]; i++) {
		char *longer = xprintf("%s %s", path, command->subcommands[i]->name);

		result = generate_man(command->subcommands[i], longer, directory, err);
		free(longer);
	}
	return result;
}

/* --- completions ------------------------------------------------------------------------------ */

static void bash_case(const struct command *command, const char *path)
{
	printf("\t\"%s\")\n\t\twords=\"", path);
	for (size_t i = 0; command->subcommands && command->subcommands[i]; i++)
		printf("%s ", command->subcommands[i]->name);
	for (const struct opt *opt = command->opts; opt && opt->name; opt++)
		printf("--%s ", opt->name);
	for (const struct opt *opt = global_opts; opt->name; opt++)
		printf("--%s ", opt->name);
	puts("\"\n\t\tcase $previous in");
	for (const struct opt *opt = command->opts; opt && opt->name; opt++) {
		if (!opt->arg)
			continue;
		printf("\t\t--%s) words=\"", opt->name);
		for (const char *at = opt->choices; at && *at; at++)
			putchar(*at == '|' ? ' ' : *at);
		printf("\"%s ;;\n",
			!strcmp(opt->arg, "DIR") || !strcmp(opt->arg, "FILE") ? "; files=1" : "");
	}
	puts("\t\tesac ;;");
	for (size_t i = 0; command->subcommands && command->subcommands[i]; i++) {
		char *longer = xprintf("%s %s", path, command->subcommands[i]->name);

		bash_case(command->subcommands[i], longer);
		free(longer);
	}
}

static void generate_bash(void)
{
	puts("# bash completion for quasar, made from its command table\n"
	     "_quasar()\n{\n"
	     "\tlocal current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}\n"
	     "\tlocal path=quasar words='' files='' i word\n"
	     "\tfor ((i = 1; i < COMP_CWORD; i++)); do\n"
	     "\t\tword=${COMP_WORDS[i]}\n"
	     "\t\tcase \"$path $word\" in");
	for (size_t i = 0; program.subcommands[i]; i++) {
		printf("\t\t\"quasar %s\"", program.subcommands[i]->name);
		for (size_t j = 0; program.subcommands[i]->subcommands &&
			program.subcommands[i]->subcommands[j];
			j++)
			printf("|\"quasar %s %s\"", program.subcommands[i]->name,
				program.subcommands[i]->subcommands[j]->name);
		puts(") path=\"$path $word\" ;;");
	}
	puts("\t\tesac\n\tdone\n\tcase $path in");
	bash_case(&program, "quasar");
	puts("\tesac\n"
	     "\tcase $previous in -C|--workspace) words=''; files=1 ;; esac\n"
	     "\tCOMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
	     "\tif [[ $files || ( ${#COMPREPLY[@]} -eq 0 && $current != -* ) ]]; then\n"
	     "\t\tCOMPREPLY+=($(compgen -f -- \"$current\"))\n\tfi\n}\n"
	     "complete -o filenames -F _quasar quasar");
}

/* Text inside single quotes, with what zsh's _arguments treats specially escaped. */
static void quoted(const char *text, const char *special)
{
	for (; *text; text++) {
		if (*text == '\'')
			fputs("'\\''", stdout);
		else {
			if (strchr(special, *text))
				putchar('\\');
			putchar(*text);
		}
	}
}

static void zsh_opts(const struct opt *opts)
{
	for (; opts && opts->name; opts++) {
		printf("\t\t'--%s%s[", opts->name, opts->arg ? "=" : "");
		quoted(opts->help, "[]:\\");
		putchar(']');
		if (opts->arg) {
			printf(":%s:", opts->arg);
			if (opts->choices) {
				putchar('(');
				for (const char *at = opts->choices; *at; at++)
					putchar(*at == '|' ? ' ' : *at);
				putchar(')');
			} else if (!strcmp(opts->arg, "DIR"))
				fputs("_files -/", stdout);
			else if (!strcmp(opts->arg, "FILE"))
				fputs("_files", stdout);
		}
		puts("' \\");
	}
}

static void zsh_function(const struct command *command, const char *name)
{
	for (size_t i = 0; command->subcommands && command->subcommands[i]; i++) {
		char *longer = xprintf("%s_%s", name, command->subcommands[i]->name);

		zsh_function(command->subcommands[i], longer);
		free(longer);
	}
	printf("%s()\n{\n", name);
	if (command->subcommands) {
		puts("\tlocal line state\n\t_arguments -C \\");
		zsh_opts(global_opts);
		puts("\t\t'1:command:->command' '*::argument:->arguments'\n"
		     "\tcase $state in\n\tcommand) local -a names=(");
		for (size_t i = 0; command->subcommands[i]; i++) {
			printf("\t\t'%s:", command->subcommands[i]->name);
			quoted(command->subcommands[i]->summary, ":\\");
			puts("'");
		}
		printf("\t\t)\n\t\t_describe command names ;;\n"
		       "\targuments) (( $+functions[%s_$line[1]] )) && %s_$line[1] ;;\n\tesac\n", name, name);
	} else {
		puts("\t_arguments \\");
		zsh_opts(command->opts);
		zsh_opts(global_opts);
		puts("\t\t'*:file:_files'");
	}
	puts("}\n");
}

static void generate_zsh(void)
{
	puts("#compdef quasar\n# zsh completion for quasar, made from its command table\n");
	zsh_function(&program, "_quasar");
	puts("_quasar \"$@\"");
}

static void fish_opts(const struct opt *opts, const char *condition)
{
	for (; opts && opts->name; opts++) {
		printf("complete -c quasar%s -l %s", condition, opts->name);
		if (opts->letter)
			printf(" -s %c", opts->letter);
		if (opts->choices) {
			fputs(" -x -a '", stdout);
			for (const char *at = opts->choices; *at; at++)
				putchar(*at == '|' ? ' ' : *at);
			putchar('\'');
		} else if (opts->arg)
			fputs(" -r", stdout);
		fputs(" -d '", stdout);
		for (const char *at = opts->help; *at; at++)
			printf(*at == '\'' ? "\\'" : "%c", *at);
		puts("'");
	}
}

static void fish_commands(const struct command *parent, const char *condition)
{
	for (size_t i = 0; parent->subcommands[i]; i++) {
		const struct command *command = parent->subcommands[i];
		char *inside = xprintf(" -n '__fish_seen_subcommand_from %s'", command->name);

		printf("complete -c quasar -f -n '%s' -a %s -d '%s'\n", condition, command->name,
			command->summary);
		fish_opts(command->opts, inside);
		free(inside);
		if (command->subcommands) {
			struct command nested = *command;
			char *under = xprintf("__fish_seen_subcommand_from %s", command->name);

			fish_commands(&nested, under);
			free(under);
		}
	}
}

static void generate_fish(void)
{
	puts("# fish completion for quasar, made from its command table");
	fish_opts(global_opts, "");
	fish_commands(&program, "__fish_use_subcommand");
}

static void generate_env(void)
{
	struct buffer text = {0};

	settings_write(NULL, &text);
	fputs(text.data, stdout);
	buffer_free(&text);
}

static int run_generate(struct invocation *invocation, struct error *err)
{
	const char *what = invocation->positionals[0];

	if (!strcmp(what, "man"))
		return generate_man(&program, "quasar",
			invocation->positional_count > 1 ? invocation->positionals[1] : ".", err);
	if (!strcmp(what, "bash"))
		generate_bash();
	else if (!strcmp(what, "zsh"))
		generate_zsh();
	else if (!strcmp(what, "fish"))
		generate_fish();
	else if (!strcmp(what, "env"))
		generate_env();
	else
		return error_set(err, STATUS_USAGE, "unknown document \"%s\"", what);
	return 0;
}

const struct command cmd_generate = {
	.name = "generate",
	.summary = "write man pages, completions or .env.example",
	.positionals = "man [DIR] | bash | zsh | fish | env",
	.min_positionals = 1,
	.max_positionals = 2,
	.examples =
		(const struct example[]){
			{"quasar generate bash > ~/.local/share/bash-completion/completions/quasar",
				"complete commands and options in bash"},
			{"quasar generate man ~/.local/share/man/man1", "man pages without `make install`"},
			{0},
		},
	.exits = (const enum status[]){STATUS_ENVIRONMENT, 0},
	.run = run_generate,
};
