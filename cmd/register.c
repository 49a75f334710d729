/* quasar register: make the hotkey known to the validator */
#include <math.h>
#include <stdio.h>

#include "api/version.h"
#include "cli/connect.h"
#include "cli/hotkey.h"
#include "cli/session.h"
#include "cmd/commands.h"
#include "score/score.h"

/* A version that registers hotkeys by itself answers 500 to one that it knows under another model or league. */
static bool is_known_already(struct api *api)
{
	struct error ignored;

	return api_last(api)->refusal == REFUSAL_INTERNAL && api_version(api)->registers &&
		api_health(api, &ignored) == 0;
}

static void print_known(const struct invocation *invocation, const char *hotkey)
{
	cJSON *document;

	if (!invocation->json) {
		printf("The validator answers 500, as it does once it knows a hotkey with another model or "
		       "league.\nNothing is missing: it registers %s by itself. Go on with `quasar commit`.\n",
			hotkey);
		return;
	}
	document = cJSON_CreateObject();
	cJSON_AddStringToObject(document, "status", "known");
	cJSON_AddStringToObject(document, "hotkey", hotkey);
	output_json(document);
}

static void print_result(const struct invocation *invocation, const struct api_registration *registration)
{
	cJSON *document;

	if (!invocation->json) {
		printf("%s %s for league %s (x%g), model %s\n", registration->hotkey,
			registration->already ? "was already registered" : "is registered",
			registration->league, league_by_name(registration->league)->multiplier,
			registration->model_name);
		puts("Next: quasar verify");
		return;
	}
	document = cJSON_CreateObject();
	cJSON_AddStringToObject(
		document, "status", registration->already ? "already_registered" : "registered");
	cJSON_AddStringToObject(document, "hotkey", registration->hotkey);
	cJSON_AddStringToObject(document, "model_name", registration->model_name);
	cJSON_AddStringToObject(document, "league", registration->league);
	if (!isnan(registration->current_score))
		cJSON_AddNumberToObject(document, "current_score", registration->current_score);
	output_json(document);
}

static int run(struct invocation *invocation, struct error *err)
{
	int64_t seq = 0;
	struct keypair *keypair = NULL;
	struct api *api = NULL;
	struct api_registration registration = {0};
	int result = -1;

	if (arg_integer(invocation, "seq", 1, MOST_TOKENS, &seq, err) < 0)
		return -1;
	keypair = require_hotkey(invocation, err);
	api = keypair ? require_api_soon(invocation, keypair, err) : NULL;
	if (!api)
		goto done;
	result = api_register_miner(
		api, arg_string(invocation, "model"), league_for(seq)->name, &registration, err);
	if (!result) {
		print_result(invocation, &registration);
	} else if (is_known_already(api)) {
		print_known(invocation, keypair_address(keypair));
		result = 0;
	} else if (api_last(api)->refusal == REFUSAL_INTERNAL) {
		error_hint(err,
			"Validators answer like this if the hotkey is already registered for another "
			"league. Then there is no need to register again: go on with `quasar commit`.");
	} else if (err->status == STATUS_NETWORK) {
		session_hint_stored(invocation, api, keypair_address(keypair), err);
	}
done:
	api_release(&registration.memory);
	api_close(api);
	keypair_free(keypair);
	return result;
}

const struct command cmd_register = {
	.name = "register",
	.summary = "register the hotkey with the validator",
	.description =
		"A validator accepts submissions only from registered hotkeys. Registering again does no "
		"harm. Versions from 2026-04 on register a hotkey by themselves when it first submits.",
	.opts =
		(const struct opt[]){
			{"seq", 's', "N", "TARGET_SEQUENCE_LENGTH", NULL, NULL,
				"Target sequence length, in tokens; it determines the league."},
			{"model", 'm', "NAME", "REFERENCE_MODEL", NULL, NULL,
				"Reference model to register for."},
			OPTS_WALLET,
			OPTS_API_SOON,
			{0},
		},
	.examples =
		(const struct example[]){
			{"quasar register", "register with the workspace's wallet, league and validator"},
			{"quasar register --wallet alice --hotkey rig2 --seq 1M",
				"register another hotkey, for league 1M"},
			{"quasar register --api http://localhost:8000",
				"register with a local validator (`quasar localnet`)"},
			{0},
		},
	.exits = (const enum status[]){STATUS_ENVIRONMENT, STATUS_NETWORK, STATUS_REFUSED, 0},
	.run = run,
};
