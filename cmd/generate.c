/* quasar generate: the documents that are made from the tables of commands and settings. */
#include "cli/generate.h"

#include <stdio.h>
#include <string.h>

#include "cmd/commands.h"

static void generate_env(void)
{
	struct buffer text = {0};

	settings_write(NULL, &text);
	fputs(text.data, stdout);
	buffer_free(&text);
}

static int run_generate(struct invocation *invocation, struct error *err)
{
	const char *what = invocation->positionals[0], *completion = generate_completion(what);

	if (!strcmp(what, "man"))
		return generate_man(&program, program.name,
			invocation->positional_count > 1 ? invocation->positionals[1] : ".", err);
	if (completion)
		fputs(completion, stdout);
	else if (!strcmp(what, "env"))
		generate_env();
	else
		return error_set(
			err, STATUS_USAGE, "unknown document \"%s\"; use man, bash, zsh, fish or env", what);
	return 0;
}

const struct command cmd_generate = {
	.group = "More",
	.name = "generate",
	.summary = "write man pages, completions or .env.example",
	.positionals = "man [DIR] | bash | zsh | fish | env",
	.min_positionals = 1,
	.max_positionals = 2,
	.examples =
		(const struct example[]){
			{"quasar generate bash > ~/.local/share/bash-completion/completions/quasar",
				"command-line completion for bash"},
			{"quasar generate man ~/.local/share/man/man1",
				"install the man pages without `make install`"},
			{0},
		},
	.exits = (const enum status[]){STATUS_ENVIRONMENT, 0},
	.run = run_generate,
};
