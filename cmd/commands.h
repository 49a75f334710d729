/* commands: every subcommand, each defined in the file of its name. */
#pragma once

#include "cli/command.h"

/* The table of them: what `quasar --help`, the man pages and the completions walk over. */
extern const struct command program;

extern const struct command cmd_bench;
extern const struct command cmd_commit;
extern const struct command cmd_doctor;
extern const struct command cmd_export;
extern const struct command cmd_export_state;
extern const struct command cmd_generate;
extern const struct command cmd_gpus;
extern const struct command cmd_help;
extern const struct command cmd_image;
extern const struct command cmd_import_state;
extern const struct command cmd_init;
extern const struct command cmd_leaderboard;
extern const struct command cmd_leagues;
extern const struct command cmd_localnet;
extern const struct command cmd_push;
extern const struct command cmd_recover;
extern const struct command cmd_register;
extern const struct command cmd_report;
extern const struct command cmd_reveal;
extern const struct command cmd_roofline;
extern const struct command cmd_round;
extern const struct command cmd_run;
extern const struct command cmd_score;
extern const struct command cmd_serve;
extern const struct command cmd_status;
extern const struct command cmd_submit;
extern const struct command cmd_tune;
extern const struct command cmd_validate;
extern const struct command cmd_verify;
extern const struct command cmd_wallet;
