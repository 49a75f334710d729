/* quasar push: what is in the fork, to where validators clone it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "cmd/commands.h"
#include "fork/fork.h"
#include "space/workspace.h"

#define LONGEST_TIMEOUT 86400
#define SECRETS_MAX 16

/* The secret settings in force; ends with NULL. */
static void list_secrets(const struct settings *settings, const char *secrets[SECRETS_MAX + 1])
{
	size_t count = 0;

	for (const struct setting *setting = settings_table; setting->name && count < SECRETS_MAX;
		setting++) {
		const char *value = setting->kind == SETTING_SECRET
			? settings_get(settings, setting->name, NULL)
			: NULL;

		if (value)
			secrets[count++] = value;
	}
	secrets[count] = NULL;
}

static void warn_of_another_address(const struct settings *settings, const struct fork_state *state)
{
	const char *setting = settings_get(settings, "FORK_URL", NULL);
	char *wanted = setting ? fork_url_clean(setting) : NULL;

	if (wanted && state->remote_url && strcmp(wanted, state->remote_url))
		log_warn("validators clone FORK_URL (%s), but the fork is pushed to its origin (%s)", wanted,
			state->remote_url);
	free(wanted);
}

static void report(
	const struct invocation *invocation, const struct fork_state *state, bool committed, bool pushed)
{
	if (invocation->json) {
		cJSON *document = cJSON_CreateObject();

		cJSON_AddBoolToObject(document, "committed", committed);
		cJSON_AddBoolToObject(document, "pushed", pushed);
		cJSON_AddStringToObject(document, "commit", state->commit);
		cJSON_AddStringToObject(document, "branch", state->branch);
		cJSON_AddStringToObject(document, "url", state->remote_url);
		output_json(document);
	} else if (pushed) {
		printf("%s%.12s is on branch %s of %s.\n", committed ? "Committed. " : "", state->commit,
			state->branch, state->remote_url);
	} else {
		printf("Nothing to push: %s already has %.12s on branch %s.\n", state->remote_url,
			state->commit, state->branch);
	}
}

static int push(const struct invocation *invocation, const char *path, double timeout, struct error *err)
{
	const char *secrets[SECRETS_MAX + 1];
	struct fork_remote remote = {
		.token = settings_get(invocation->settings, "GITHUB_TOKEN", NULL),
		.token_api = settings_get(invocation->settings, "GITHUB_API_URL", NULL),
		.allow_local = true,
		.timeout = timeout,
	};
	struct fork_state state;
	bool committed, pushed;
	int result;

	list_secrets(invocation->settings, secrets);
	if (fork_commit(path, arg_string(invocation, "message"), secrets, &committed, err) < 0)
		return -1;
	result = fork_push(path, &remote, &pushed, err);
	if (result < 0 && committed)
		log_note("The commit was made, but the push failed.");
	if (!result)
		result = fork_state_read(path, &state, err);
	if (!result) {
		warn_of_another_address(invocation->settings, &state);
		report(invocation, &state, committed, pushed);
		fork_state_free(&state);
	}
	return result;
}

static int run(struct invocation *invocation, struct error *err)
{
	const char *directory = require_workspace(invocation, err);
	double timeout = 0;
	char *path;
	int result;

	if (!directory || arg_real(invocation, "timeout", 0.1, LONGEST_TIMEOUT, &timeout, err) < 0)
		return -1;
	if (arg_given(invocation, "message") && !arg_string(invocation, "message")[0])
		return error_set(err, STATUS_USAGE, "--message: the commit message is empty");
	path = workspace_fork_path(directory, invocation->settings);
	result = push(invocation, path, timeout, err);
	free(path);
	return result;
}

const struct command cmd_push = {
	.name = "push",
	.summary = "commit the fork's changes and push them",
	.description =
		"Commits every change in the fork, new files included, and pushes the branch to the "
		"remote \"origin\", from which validators clone. The author is git's user.name and "
		"user.email, or else quasar@localhost. Files ignored by .gitignore are left out, and git "
		"hooks are not run. Nothing is committed if a file looks like a key, a token "
		"or settings with passwords, or is larger than GitHub's limit of 100 MiB.\n\n"
		"GITHUB_TOKEN is sent only over https, and only to GitHub (the host of GITHUB_API_URL, by "
		"default github.com); it is never stored. ssh uses the keys in ssh-agent and ~/.ssh. It "
		"never force-pushes: if the remote branch has commits that yours lacks, pull them first. "
		"If there is nothing to push, it says so and exits with 0.",
	.opts =
		(const struct opt[]){
			{"message", 'm', "TEXT", NULL, NULL, NULL,
				"Commit message. Default: the file that was changed, or how many were."},
			{"timeout", 0, "SECONDS", NULL, "300", NULL, "Time limit for the push."},
			{0},
		},
	.examples =
		(const struct example[]){
			{"quasar push", "commit all changes and push them"},
			{"quasar push -m 'gate: one pass less' && quasar commit",
				"push, then commit to it at the validator"},
			{"GITHUB_TOKEN=… quasar push", "push to a fork on GitHub"},
			{0},
		},
	.exits = (const enum status[]){STATUS_FAILED, STATUS_ENVIRONMENT, STATUS_NETWORK, STATUS_REFUSED, 0},
	.run = run,
};
