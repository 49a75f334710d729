/* quasar generate: the documents that are made from the tables of commands and settings. */
#include "cli/generate.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
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
	const char *directory = invocation->positional_count > 1 ? invocation->positionals[1] : ".";

	if (!strcmp(what, "man"))
		return directory_make(directory, 0755, err) < 0
			? -1
			: generate_man(&program, program.name, directory, err);
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
			{"source <(quasar generate bash)",
				"completion in this bash; in ~/.bashrc, in every one"},
			{"quasar generate man ~/.local/share/man/man1",
				"install the man pages without `make install`"},
			{0},
		},
	.exits = (const enum status[]){STATUS_ENVIRONMENT, 0},
	.run = run_generate,
};
