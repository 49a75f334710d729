/* quasar localnet: the validator's API on this machine. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "cmd/commands.h"
#include "net/server.h"
#include "validator/validator.h"

static int read_options(const struct invocation *invocation, struct validator_options *validator,
	struct server_options *server, struct error *err)
{
	int64_t port = 0, connections = 0;

	validator->version = validator_version(arg_string(invocation, "like"));
	validator->rate_limit = validator->version->rate_limit;
	validator->cooldown = validator->version->cooldown;
	validator->validator_hotkeys = arg_string(invocation, "validator-hotkeys");
	validator->api_keys = arg_string(invocation, "api-keys");
	if (arg_integer(invocation, "port", 0, 65535, &port, err) < 0 ||
		arg_real(invocation, "block-time", 0.01, 86400, &validator->block_seconds, err) < 0 ||
		arg_integer(invocation, "blocks-until-reveal", 0, 1000000, &validator->blocks_until_reveal,
			err) < 0 ||
		arg_integer(invocation, "rate-limit", 0, 1000000, &validator->rate_limit, err) < 0 ||
		arg_real(invocation, "cooldown", 0, 1e9, &validator->cooldown, err) < 0 ||
		arg_real(invocation, "round-time", 0.01, 1e9, &validator->round_seconds, err) < 0 ||
		arg_integer(invocation, "connections", 1, 100000, &connections, err) < 0 ||
		arg_real(invocation, "request-timeout", 0.1, 3600, &server->request_seconds, err) < 0)
		return -1;
	server->routes = validator->version->routes;
	server->dialect = validator->version->dialect;
	server->body_limit = validator->version->body_limit;
	server->connection_limit = (size_t)connections;
	server->port = (unsigned)port;
	server->listen = arg_string(invocation, "host");
	return 0;
}

static void announce(const struct invocation *invocation, const struct server *server,
	const struct validator_options *options)
{
	cJSON *document;

	if (!invocation->json) {
		printf("Listening on %s, like %s\nState in %s; %g s per block, reveal after %lld blocks. "
		       "Press Ctrl-C to stop.\nFor a browser: %s/ shows the leaderboard and the rounds.\n",
			server_url(server), options->version->name, options->database, options->block_seconds,
			(long long)options->blocks_until_reveal, server_url(server));
		return;
	}
	document = cJSON_CreateObject();
	cJSON_AddStringToObject(document, "url", server_url(server));
	cJSON_AddNumberToObject(document, "port", server_port(server));
	cJSON_AddStringToObject(document, "like", options->version->name);
	cJSON_AddStringToObject(document, "db", options->database);
	cJSON_AddNumberToObject(document, "pid", getpid());
	cJSON_AddNumberToObject(document, "block_time", options->block_seconds);
	cJSON_AddNumberToObject(document, "blocks_until_reveal", (double)options->blocks_until_reveal);
	output_json_line(document);
}

static int serve(const struct invocation *invocation, const struct validator_options *options,
	struct server_options *server_options, struct error *err)
{
	struct validator *validator = validator_open(options, err);
	struct server *server = NULL;
	struct error stop;

	if (!validator)
		return -1;
	server_options->context = validator;
	server = server_start(server_options, err);
	if (server) {
		announce(invocation, server, options);
		while (clock_sleep(3600, &stop) == 0)
			;
		log_note("Stopping");
		server_stop(server);
	}
	validator_close(validator);
	return server ? 0 : -1;
}

/* Absolute, because that is what the announcement should say. The caller frees. */
static char *database_path(const struct invocation *invocation)
{
	const char *named = arg_string(invocation, "db");
	char *here, *path;

	if (named && !strcmp(named, ":memory:"))
		return xstrdup(named);
	if (!named && invocation->workspace)
		return path_join(invocation->workspace, "localnet.db");
	here = getcwd(NULL, 0);
	path = path_join(here ? here : ".", named ? named : "localnet.db");
	free(here);
	return path;
}

static int run(struct invocation *invocation, struct error *err)
{
	struct validator_options options = {0};
	struct server_options server = {.transaction = &validator_transaction};
	char *database = database_path(invocation);
	int result = read_options(invocation, &options, &server, err);

	options.database = database;
	if (!result)
		result = serve(invocation, &options, &server, err);
	free(database);
	return result;
}

const struct command cmd_localnet = {
	.group = "Validate",
	.name = "localnet",
	.summary = "run a validator on this machine, to try things out",
	.description =
		"A local server with the routes, fields and status codes of the real validator: it checks "
		"signatures, makes commitments wait for their block, and ranks rounds. Use `quasar "
		"validate` to judge what is submitted to it. By default, it can be reached only from this "
		"machine. Web pages may not change anything. At its address, a browser sees the leaderboard "
		"and the rounds, kept up to date.\n\n"
		"--like 2026-02 answers as the validator deployed in February 2026, faults included: it has "
		"no rate limit, answers 500 when a hotkey registers again or when a round has ended and "
		"nobody has asked for the next one yet, and stores claims that are not numbers. As with the "
		"real one, anyone who can reach it may finalize rounds and mark submissions.\n\n"
		"--like 2026-04 answers as the one deployed in April 2026. It also takes signatures that "
		"cover a Timestamp, shows its lists only to the hotkeys in --validator-hotkeys, and its "
		"dashboard also to whoever has one of the --api-keys. A hotkey waits --cooldown between "
		"submissions. A second hotkey with the same GitHub name, public address or coldkey is "
		"flagged, and so is a claim far above what was measured. Rounds end when their time is up "
		"(--round-time), and rank what validators measured and verified.\n\n"
		"--like strict is the service of February as it should be: it refuses such requests with "
		"4xx, bounds every field, limits the request rate and passes on the score to beat. All use "
		"a bounded amount of memory.\n\n"
		"The block number is (Unix time - 1609459200) div the block time, with 2026-04 (Unix time - "
		"1687939200) div the block time; use --block-time 1 for short waits. Everything is kept in "
		"a SQLite file, so that it continues after a restart; a file belongs to one version. -v "
		"logs every request to stderr.",
	.opts =
		(const struct opt[]){
			{"like", 0, "VERSION", NULL, "2026-02", "2026-02|2026-04|strict",
				"2026-02 or 2026-04: as the validator deployed then, faults included. strict: "
				"as it should be."},
			{"port", 'p', "N", NULL, "8000", NULL, "Port to listen on; 0: any free port."},
			{"host", 0, "ADDRESS", NULL, "127.0.0.1", NULL,
				"Address to listen on; 0.0.0.0: every interface."},
			{"db", 0, "FILE", NULL, NULL, NULL,
				"File to keep the state in. Default: localnet.db in the workspace, or "
				"else in the current directory."},
			{"block-time", 0, "SECONDS", NULL, "12", NULL, "Duration of a block."},
			{"blocks-until-reveal", 0, "N", "BLOCKS_UNTIL_REVEAL", NULL, NULL,
				"Blocks between a commitment and its reveal."},
			{"rate-limit", 0, "N", NULL, NULL, NULL,
				"Signed requests per hotkey in 60 seconds; 0: no limit. Default: no limit "
				"with 2026-02, 10 with strict."},
			{"cooldown", 0, "SECONDS", "SUBMISSION_COOLDOWN_SECONDS", NULL, NULL,
				"Time between two submissions of a hotkey; 0: none. Default: 300 with 2026-04, "
				"none with the others."},
			{"round-time", 0, "SECONDS", NULL, "172800", NULL, "Duration of a round."},
			{"validator-hotkeys", 0, "ADDRESS,...", "VALIDATOR_HOTKEYS", NULL, NULL,
				"With 2026-04: hotkeys that may judge and read everything."},
			{"api-keys", 0, "KEY,...", "API_KEYS", NULL, NULL,
				"With 2026-04: keys that open /dashboard/."},
			{"connections", 0, "N", NULL, "1000", NULL,
				"Maximum number of connections; beyond it, the one idle the longest is "
				"closed."},
			{"request-timeout", 0, "SECONDS", NULL, "30", NULL,
				"Time limit for a client to send a request, or to stay idle."},
			{0},
		},
	.examples =
		(const struct example[]){
			{"quasar localnet", "listen at the default VALIDATOR_API_URL"},
			{"quasar localnet --block-time 1 --blocks-until-reveal 5",
				"reveal 5 seconds after the commitment"},
			{"quasar localnet --like 2026-04 --validator-hotkeys HOTKEY",
				"as in April 2026, with that hotkey as the validator"},
			{"quasar localnet --json --port 0 --db /tmp/try.db",
				"for a script: print {\"url\":...,\"port\":...,\"db\":...,\"pid\":...} "
				"when ready"},
			{0},
		},
	.exits = (const enum status[]){STATUS_ENVIRONMENT, 0},
	.run = run,
};
