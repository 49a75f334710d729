#include "cli/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/version.h"
#include "base/json.h"
#include "base/log.h"
#include "cli/connect.h"
#include "cli/hotkey.h"
#include "score/score.h"
#include "space/due.h"

/* What the validator was the last time, so that it need not be asked each time. */
static void assume_version(struct session *session)
{
	char *name = store_validator_version(session->workspace.store, api_url(session->api));

	api_follow_version(session->api, name ? api_version_named(name) : NULL);
	free(name);
}

const struct api_version *session_remember_version(struct session *session)
{
	const char *url = api_url(session->api);
	char *before = store_validator_version(session->workspace.store, url);
	const struct api_version *version = api_version_if_found(session->api);
	struct error ignored;
	bool is_new = version && (!before || strcmp(before, version->name));

	/* a store that cannot be written now learns it the next time */
	if (is_new)
		store_set_validator_version(session->workspace.store, url, version->name, &ignored);
	free(before);
	return is_new ? version : NULL;
}

int session_open_as(const struct invocation *invocation, struct keypair *keypair, struct session *session,
	struct error *err)
{
	const char *directory = require_workspace(invocation, err);
	double timeout = 0;

	*session = (struct session){0};
	if (!directory || arg_timeout(invocation, &timeout, err) < 0 ||
		workspace_open(directory, invocation->settings, &session->workspace, err) < 0)
		return -1;
	session->api = require_api(invocation, keypair, err);
	if (!session->api) {
		workspace_close(&session->workspace);
		return -1;
	}
	assume_version(session);
	session->keypair = keypair;
	session->workflow = (struct workflow){
		.store = session->workspace.store,
		.api = session->api,
		.api_url = api_url(session->api),
		.hotkey = keypair_address(session->keypair),
		.timeout = timeout,
	};
	return 0;
}

int session_open(const struct invocation *invocation, struct session *session, struct error *err)
{
	struct keypair *keypair;

	/* what is quick to find comes before a password is asked for */
	if (!require_workspace(invocation, err))
		return -1;
	keypair = require_hotkey(invocation, err);
	if (!keypair)
		return -1;
	if (session_open_as(invocation, keypair, session, err) == 0)
		return 0;
	keypair_free(keypair);
	return -1;
}

void session_close(struct session *session)
{
	session_remember_version(session);
	api_close(session->api);
	keypair_free(session->keypair);
	workspace_close(&session->workspace);
}

int session_settle(struct session *session, enum submission_kind kind, size_t *settled, struct error *err)
{
	struct submission_filter filter = {
		.steps = STEP_BIT(STEP_PREPARED),
		.api_url = session->workflow.api_url,
		.hotkey = session->workflow.hotkey,
	};
	struct submission_list list;
	int result = 0;

	*settled = 0;
	if (store_submissions(session->workspace.store, &filter, &list, err) < 0)
		return -1;
	for (size_t i = 0; !result && i < list.count; i++) {
		enum refusal refusal;

		if (list.items[i].kind != kind)
			continue;
		log_note("Submission %s was not finished; checking where it stands.",
			submission_label(&list.items[i]));
		result = workflow_settle(&session->workflow, &list.items[i], err);
		*settled += !result;
		refusal = api_last(session->api)->refusal;
		if (result && err->status == STATUS_NETWORK && refusal == REFUSAL_UNCLEAR) {
			/* that may stay so: nothing is lost, and nothing else has to wait for it */
			log_warn("%s", err->message);
			result = 0;
		}
	}
	submission_list_free(&list);
	return result;
}

static int elsewhere(const struct submission *submission, size_t others, bool same_hotkey, struct error *err)
{
	char more[48] = "";

	if (others)
		snprintf(more, sizeof(more), ", and %zu more are waiting elsewhere", others);
	error_set(err, STATUS_ENVIRONMENT, "submission %s is waiting to be revealed at %s, by hotkey %s%s",
		submission_label(submission), submission->api_url, submission->hotkey, more);
	return error_hint(err, "Run `quasar reveal --wait --api %s`%s.", submission->api_url,
		same_hotkey ? "" : " with that hotkey: --wallet NAME --hotkey NAME");
}

int session_check_elsewhere(const struct session *session, struct error *err)
{
	const struct workflow *workflow = &session->workflow;
	struct submission_filter filter = {.steps = STEP_BIT(STEP_COMMITTED)};
	const struct submission *first = NULL;
	struct submission_list list;
	size_t count = 0;
	int result = 0;

	if (store_submissions(session->workspace.store, &filter, &list, err) < 0)
		return -1;
	for (size_t i = list.count; i-- > 0;) {
		if (!strcmp(list.items[i].api_url, workflow->api_url) &&
			!strcmp(list.items[i].hotkey, workflow->hotkey))
			continue;
		first = &list.items[i];
		count++;
	}
	if (first)
		result = elsewhere(first, count - 1, !strcmp(first->hotkey, workflow->hotkey), err);
	submission_list_free(&list);
	return result;
}

/* What is waited for, in words; "" when nothing is. */
static void describe_committed(
	const struct workflow *workflow, const struct submission_list *list, char text[160])
{
	const struct block_clock no_block = {0};
	size_t count = 0;
	char wait[64];

	text[0] = '\0';
	for (size_t i = 0; i < list->count; i++) {
		if (list->items[i].step != STEP_COMMITTED)
			continue;
		due_describe_left(workflow, &list->items[i], &no_block, wait);
		snprintf(text, 160, "; %s can be revealed %s", submission_label(&list->items[i]),
			wait[0] ? wait : "now");
		count++;
	}
	if (count > 1)
		snprintf(text, 160, "; %zu wait for their reveal", count);
}

static int hint_submissions(const struct workflow *workflow, struct error *err)
{
	const struct submission_filter filter = {.api_url = workflow->api_url, .hotkey = workflow->hotkey};
	struct submission_list list;
	struct error ignored;
	char before[sizeof(err->hint)], committed[160];

	if (store_submissions(workflow->store, &filter, &list, &ignored) < 0)
		return -1;
	memcpy(before, err->hint, sizeof(before));
	describe_committed(workflow, &list, committed);
	if (list.count)
		error_hint(err, "%s This workspace has %zu submission%s there%s: see `quasar status`.",
			before, list.count, list.count == 1 ? "" : "s", committed);
	submission_list_free(&list);
	return -1;
}

int session_hint_stored(
	const struct invocation *invocation, struct api *api, const char *hotkey, struct error *err)
{
	struct workspace workspace;
	struct error ignored;

	if (!invocation->workspace ||
		workspace_open(invocation->workspace, invocation->settings, &workspace, &ignored) < 0)
		return -1;
	hint_submissions(
		&(struct workflow){
			.store = workspace.store, .api = api, .api_url = api_url(api), .hotkey = hotkey},
		err);
	workspace_close(&workspace);
	return -1;
}

const char *submission_label(const struct submission *submission)
{
	static char label[64];
	int used = snprintf(label, sizeof(label), "#%lld", (long long)submission->id);

	if (submission->server_id)
		snprintf(label + used, sizeof(label) - (size_t)used, " (server id %lld)",
			(long long)submission->server_id);
	return label;
}

cJSON *submission_json(const struct submission *submission)
{
	cJSON *object = cJSON_CreateObject();

	cJSON_AddNumberToObject(object, "id", (double)submission->id);
	cJSON_AddStringToObject(object, "kind", submission_kind_name(submission->kind));
	cJSON_AddStringToObject(object, "step", submission_step_name(submission->step));
	json_add_id(object, "submission_id", submission->server_id);
	cJSON_AddStringToObject(object, "api", submission->api_url);
	cJSON_AddStringToObject(object, "hotkey", submission->hotkey);
	cJSON_AddStringToObject(object, "fork_url", submission->fork_url);
	cJSON_AddStringToObject(object, "commit_hash", submission->commit_hash);
	json_add_text(object, "commitment_hash", submission->commitment_hash);
	cJSON_AddNumberToObject(object, "target_sequence_length", (double)submission->target_sequence_length);
	cJSON_AddNumberToObject(object, "tokens_per_sec", submission->tokens_per_sec);
	cJSON_AddStringToObject(object, "league", league_for(submission->target_sequence_length)->name);
	cJSON_AddNumberToObject(object, "weighted_score",
		score_weighted(submission->tokens_per_sec, submission->target_sequence_length));
	json_add_real(object, "vram_mb", submission->vram_mb);
	json_add_text(object, "docker_image", submission->docker_image);
	json_add_id(object, "reveal_block", submission->reveal_block);
	json_add_time(object, "reveal_time", submission->reveal_time);
	json_add_real(object, "score", submission->score);
	json_add_text(object, "reason", submission->reason);
	json_add_time(object, "created_at", submission->created_at);
	json_add_time(object, "sent_at", submission->sent_at);
	json_add_time(object, "updated_at", submission->updated_at);
	return object;
}
