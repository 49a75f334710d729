/* Completions for bash, zsh and fish, from the command table. */
#include "cli/generate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "cli/help.h"

/* Whether an option takes what `kind` says, alone or as the last of several: "URL|DIR". */
static bool takes(const struct opt *opt, const char *kind)
{
	const char *last = strrchr(opt->arg, '|');

	return !strcmp(last ? last + 1 : opt->arg, kind);
}

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
		printf("\"%s ;;\n", takes(opt, "DIR") || takes(opt, "FILE") ? "; files=1" : "");
	}
	puts("\t\tesac ;;");
	for (size_t i = 0; command->subcommands && command->subcommands[i]; i++) {
		char *longer = xprintf("%s %s", path, command->subcommands[i]->name);

		bash_case(command->subcommands[i], longer);
		free(longer);
	}
}

void generate_bash(const struct command *program)
{
	puts("# bash completion for quasar, made from its command table\n"
	     "_quasar()\n{\n"
	     "\tlocal current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}\n"
	     "\tlocal path=quasar words='' files='' i word\n"
	     "\tfor ((i = 1; i < COMP_CWORD; i++)); do\n"
	     "\t\tword=${COMP_WORDS[i]}\n"
	     "\t\tcase \"$path $word\" in");
	for (size_t i = 0; program->subcommands[i]; i++) {
		printf("\t\t\"quasar %s\"", program->subcommands[i]->name);
		for (size_t j = 0;
			program->subcommands[i]->subcommands && program->subcommands[i]->subcommands[j]; j++)
			printf("|\"quasar %s %s\"", program->subcommands[i]->name,
				program->subcommands[i]->subcommands[j]->name);
		puts(") path=\"$path $word\" ;;");
	}
	puts("\t\tesac\n\tdone\n\tcase $path in");
	bash_case(program, "quasar");
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
			} else if (takes(opts, "DIR"))
				fputs("_files -/", stdout);
			else if (takes(opts, "FILE"))
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
		       "\targuments) (( $+functions[%s_$line[1]] )) && %s_$line[1] ;;\n\tesac\n",
			name, name);
	} else {
		puts("\t_arguments \\");
		zsh_opts(command->opts);
		zsh_opts(global_opts);
		puts("\t\t'*:file:_files'");
	}
	puts("}\n");
}

void generate_zsh(const struct command *program)
{
	puts("#compdef quasar\n# zsh completion for quasar, made from its command table\n");
	zsh_function(program, "_quasar");
	puts("_quasar \"$@\"");
}

/* " -d '…'" with the quotes inside escaped. */
static void fish_description(const char *text)
{
	fputs(" -d '", stdout);
	for (; *text; text++)
		printf(*text == '\'' ? "\\'" : "%c", *text);
	puts("'");
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
		fish_description(opts->help);
	}
}

static void fish_commands(const struct command *parent, const char *condition)
{
	for (size_t i = 0; parent->subcommands[i]; i++) {
		const struct command *command = parent->subcommands[i];
		char *inside = xprintf(" -n '__fish_seen_subcommand_from %s'", command->name);

		printf("complete -c quasar -f -n '%s' -a %s", condition, command->name);
		fish_description(command->summary);
		fish_opts(command->opts, inside);
		free(inside);
		if (command->subcommands) {
			char *under = xprintf("__fish_seen_subcommand_from %s", command->name);

			fish_commands(command, under);
			free(under);
		}
	}
}

void generate_fish(const struct command *program)
{
	puts("# fish completion for quasar, made from its command table");
	fish_opts(global_opts, "");
	fish_commands(program, "__fish_use_subcommand");
}
