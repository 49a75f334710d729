/* quasar help: what a command does and takes. */
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "cli/help.h"
#include "cmd/commands.h"

static int run_help(struct invocation *invocation, struct error *err)
{
	const struct command *command = &program;
	char *path = xstrdup("quasar");

	for (int i = 0; i < invocation->positional_count; i++) {
		char *longer;

		command = find_command(command, path, invocation->positionals[i], err);
		if (!command) {
			if (!err->hint[0])
				error_hint(err, "`%s --help` lists the commands.", path);
			free(path);
			return -1;
		}
		longer = xprintf("%s %s", path, command->name);
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
			{"quasar help commit", "what `quasar commit` does, and its options"},
			{0},
		},
	.run = run_help,
};
