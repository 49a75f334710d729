/* quasar: the table of its commands. */
#include "cmd/commands.h"

/* In the order of a miner's journey, which is the order of `quasar --help`. */
static const struct command *const commands[] = {
	&cmd_wallet,
	&cmd_init,
	&cmd_register,
	&cmd_verify,
	&cmd_bench,
	&cmd_tune,
	&cmd_score,
	&cmd_leagues,
	&cmd_export,
	&cmd_push,
	&cmd_commit,
	&cmd_reveal,
	&cmd_submit,
	&cmd_run,
	&cmd_serve,
	&cmd_image,
	&cmd_status,
	&cmd_round,
	&cmd_leaderboard,
	&cmd_report,
	&cmd_gpus,
	&cmd_roofline,
	&cmd_doctor,
	&cmd_localnet,
	&cmd_validate,
	&cmd_export_state,
	&cmd_import_state,
	&cmd_recover,
	&cmd_generate,
	&cmd_help,
	NULL,
};

const struct command program = {
	.name = "quasar",
	.summary = "from zero to a ranked submission in the QUASAR kernel competition",
	.subcommands = commands,
};

int main(int argc, char **argv)
{
	return program_main(&program, argc, argv);
}
