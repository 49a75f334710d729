/* command: a subcommand is a table entry; usage, --help, man pages, completions and the errors for
 * unknown options all come from it. */
#pragma once

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "space/settings.h"

struct opt {
	const char *name; /* "seq" is --seq */
	char letter;      /* 's' is -s; 0: none */
	const char
		*arg; /* what follows, in capitals ("N"); "[N]": or nothing; "N,...": several; NULL: a flag */
	const char *setting;  /* the setting that stands in when the option is not given; NULL: none */
	const char *fallback; /* the value when nothing else gives one; NULL: the setting's, or none */
	const char *choices;  /* "cpu|cuda": offered by completion and checked; NULL: anything */
	const char *help;
};

struct example {
	const char *line, *what;
};

struct invocation;

struct command {
	const char *group; /* heading in the list of commands; NULL: the same as the one before */
	const char *name, *summary;
	const char *positionals; /* "[DIR]" as the synopsis shows it; NULL: none */
	int min_positionals, max_positionals;
	const char *description;        /* paragraphs, separated by "\n\n"; NULL: the summary says it all */
	const struct opt *opts;         /* ends with an entry whose name is NULL; NULL: none */
	const struct example *examples; /* ends with an entry whose line is NULL */
	const enum status *exits;       /* the codes besides 0, 2 and 130 that it may end with; ends with 0 */
	/* 0, or -1 with the error, whose status becomes the exit code. An empty message prints nothing. */
	int (*run)(struct invocation *invocation, struct error *err);
	const struct command *const *subcommands; /* ends with NULL; then `run` is NULL */
};

struct invocation {
	const struct command *command;
	int positional_count;
	char **positionals;
	bool json;                 /* one JSON document on stdout instead of text */
	const char *workspace;     /* the workspace's directory, or NULL when outside of one */
	bool workspace_above;      /* nobody named it: it was found above the current directory */
	struct settings *settings; /* the environment, over the workspace's .env */
	const char **values;       /* as given, one for each of the command's options */
};

/* Sets an option that the command line did not give, as if it had: what a person answered. The value stays
 * the caller's, and has to outlive the invocation. */
void arg_set(struct invocation *invocation, const char *name, const char *value);

/* All take an option of the command by its name; a name that the command does not have is a bug.
 * Strings belong to the invocation. */
bool arg_flag(const struct invocation *invocation, const char *name);
/* The option, else its setting (environment, then .env), else the fallback; NULL when there is none. */
const char *arg_string(const struct invocation *invocation, const char *name);
/* True when the value comes from the command line. */
bool arg_given(const struct invocation *invocation, const char *name);
/* Numbers as in base/number.h. Outside of the bounds or not a number: STATUS_USAGE, naming
 * where the value came from. Leaves `out` alone when there is no value. */
int arg_integer(const struct invocation *invocation, const char *name, int64_t least, int64_t most,
	int64_t *out, struct error *err);
int arg_real(const struct invocation *invocation, const char *name, double least, double most, double *out,
	struct error *err);
/* A part of one, written as a percentage, "3%". */
int arg_percent(const struct invocation *invocation, const char *name, double least, double most, double *out,
	struct error *err);
/* That the file which the option names, if it is given, can be written: STATUS_ENVIRONMENT. */
int arg_try_file(const struct invocation *invocation, const char *name, struct error *err);
/* A list "4096,64k,1M" of at most `capacity` numbers; returns the count, or -1. "131,072" is one number;
 * "262,144", which may be two, is two, and a note says so. */
int arg_integers(const struct invocation *invocation, const char *name, int64_t least, int64_t most,
	int64_t *out, int capacity, struct error *err);

/* The workspace's directory; STATUS_ENVIRONMENT with the way out when there is none. */
const char *require_workspace(const struct invocation *invocation, struct error *err);

/* Whether the first `length` bytes of the value are one of "cpu|cuda". */
bool is_choice(const char *choices, const char *value, size_t length);

/* The subcommand of that name; NULL, with STATUS_USAGE and what may have been meant. `path`: the parent's full name. */
const struct command *find_command(
	const struct command *parent, const char *path, const char *name, struct error *err);

/* Prints a document to stdout, indented, and frees it. */
void output_json(cJSON *document);
/* Whether that was done: there is one document a process, and an error that comes later is told on stderr alone. */
bool output_json_done(void);
/* The same on one line, for a script that waits for it. */
void output_json_line(cJSON *document);

/* Option groups that several commands share. */
#define OPTS_WALLET                                                                                          \
	{"wallet", 0, "WALLET", "WALLET_MINER_NAME", NULL, NULL,                                             \
		"Name of the wallet that holds the hotkey."},                                                \
		{"hotkey", 0, "HOTKEY", "WALLET_HOTKEY", NULL, NULL, "Name of the hotkey in that wallet."},  \
	{                                                                                                    \
		"path", 0, "DIR", "BT_WALLET_PATH", NULL, NULL, "Folder that holds the wallets."             \
	}
#define OPTS_VALIDATOR                                                                                       \
	{"api", 0, "URL", "VALIDATOR_API_URL", NULL, NULL, "Base URL of the validator API."},                \
	{                                                                                                    \
		"api-version", 0, "VERSION", "API_VERSION", NULL, "auto|2026-04|2026-02",                    \
			"Version of the validator's service. auto: find it out."                             \
	}
#define OPT_TIMEOUT(seconds)                                                                                 \
	{                                                                                                    \
		"timeout", 0, "SECONDS", NULL, seconds, NULL,                                                \
			"Time limit for the whole exchange, retries included."                               \
	}
#define OPTS_API OPTS_VALIDATOR, OPT_TIMEOUT("120")
/* For what somebody looks at and can simply ask again: an outage shows soon. */
#define OPTS_API_SOON OPTS_VALIDATOR, OPT_TIMEOUT("5")

/* Runs the command that the words name, below the program, and says on stderr what went wrong. Returns the
 * exit code. */
int program_main(const struct command *program, int argc, char **argv);
