/* init: what a person is asked. */
#include "cmd/init/init.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "cli/ask.h"
#include "cmd/commands.h"
#include "fork/fork.h"
#include "score/score.h"

static const struct network networks[] = {
	{"finney", PRODUCTION_API, "finney"},
	{"test", PRODUCTION_API, "test"},
	{"local", "http://localhost:8000", NULL},
};

const struct network *network_named(const char *name)
{
	size_t i = 0;

	while (strcmp(networks[i].name, name) != 0)
		i++;
	return &networks[i];
}

/* Whether the settings, as they are before the workspace, say it. */
static bool is_set(const struct plan *plan, const char *setting)
{
	const char *source;

	return settings_get(plan->settings, setting, &source) && strcmp(source, "default") != 0;
}

/* Takes an answer over for an option. */
static void take(struct plan *plan, const char *option, char *answer)
{
	cJSON *kept = cJSON_CreateString(answer);

	cJSON_AddItemToArray(plan->answers, kept);
	arg_set(plan->invocation, option, kept->valuestring);
	free(answer);
}

static int ask_option(struct plan *plan, const char *option, const char *setting, const char *question,
	const char *choices, struct error *err)
{
	char *answer;

	if (is_set(plan, setting))
		return 0;
	answer = ask(question, choices, choices ? "local" : settings_get(plan->settings, setting, NULL), err);
	if (!answer)
		return -1;
	take(plan, option, answer);
	return 0;
}

static int ask_fork(struct plan *plan, struct error *err)
{
	if (is_set(plan, "FORK_URL"))
		return 0;
	for (;;) {
		char *answer = ask(
			"URL of your fork (empty: one of quasar's own, to try things out)", NULL, NULL, err);

		if (!answer)
			return -1;
		if (!*answer) {
			free(answer);
			return 0;
		}
		if (fork_url_check(answer, true, err) == 0) {
			take(plan, "fork-url", answer);
			return 0;
		}
		fprintf(stderr, "%s\n", err->message);
		free(answer);
	}
}

static int ask_length(struct plan *plan, struct error *err)
{
	const char *setting = "TARGET_SEQUENCE_LENGTH";
	int64_t length;

	if (is_set(plan, setting))
		return 0;
	for (;;) {
		char *answer = ask("Sequence length to compete at, in tokens (1M is worth the most)", NULL,
			settings_get(plan->settings, setting, NULL), err);

		if (!answer)
			return -1;
		if (number_parse_integer(answer, &length) == 0 && length >= 1 && length <= MOST_TOKENS) {
			take(plan, "seq", answer);
			return 0;
		}
		fprintf(stderr, "\"%s\" is not a number of tokens between 1 and %lld\n", answer,
			(long long)MOST_TOKENS);
		free(answer);
	}
}

static int ask_python(struct plan *plan, struct error *err)
{
	int wanted = ask_whether(
		"Install PyTorch into .venv of the workspace, to run the fork? It is large", false, err);

	if (wanted > 0)
		arg_set(plan->invocation, "venv", "");
	return wanted < 0 ? -1 : 0;
}

/* Who gives options knows what to say, and may have pasted other commands behind this one. */
static bool is_told(const struct invocation *invocation)
{
	for (const struct opt *opt = cmd_init.opts; opt->name; opt++)
		if (arg_given(invocation, opt->name))
			return true;
	return false;
}

int init_ask(struct plan *plan, struct error *err)
{
	if (!ask_possible(plan->invocation) || is_told(plan->invocation))
		return 0;
	if (ask_option(plan, "network", "VALIDATOR_API_URL", "Network", NETWORKS, err) < 0 ||
		ask_option(plan, "wallet", "WALLET_MINER_NAME", "Name of your wallet", NULL, err) < 0 ||
		ask_fork(plan, err) < 0 || ask_length(plan, err) < 0)
		return -1;
	return ask_python(plan, err);
}
