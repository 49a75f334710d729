/* quasar recover: what is left of a damaged state store, and what the validator knows besides. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/log.h"
#include "cli/session.h"
#include "cmd/commands.h"

/* What came of it; lists are JSON arrays from the beginning. */
struct outcome {
	struct store_repair repair;
	cJSON *unrevealable; /* commitments whose salts this workspace does not have */
	cJSON *found;        /* the validator's ids of submissions that only it knew */
	size_t skipped;      /* rows of its lists that make no sense */
	bool hidden;         /* it shows miners no lists to compare with */
};

/* An earlier answer may have been lost before the store was. */
static int locate_prepared(struct session *session, struct outcome *outcome, struct error *err)
{
	struct submission_filter filter = {
		.steps = STEP_BIT(STEP_PREPARED),
		.api_url = session->workflow.api_url,
		.hotkey = session->workflow.hotkey,
	};
	struct submission_list list;
	int result = store_submissions(session->workspace.store, &filter, &list, err);

	(void)outcome;
	if (result < 0)
		return -1;
	for (size_t i = 0; !result && i < list.count; i++)
		result = workflow_locate(&session->workflow, &list.items[i], err);
	submission_list_free(&list);
	return result;
}

static void add_unrevealable(cJSON *list, const struct api_pending_reveal *reveal)
{
	cJSON *item = cJSON_CreateObject();

	cJSON_AddNumberToObject(item, "submission_id", (double)reveal->submission_id);
	cJSON_AddStringToObject(item, "commitment_hash", reveal->commitment_hash);
	cJSON_AddNumberToObject(item, "reveal_block", (double)reveal->reveal_block);
	cJSON_AddItemToArray(list, item);
}

static int compare_commitments(struct session *session, struct outcome *outcome, struct error *err)
{
	struct api_pending_reveals pending;
	int result = workflow_pending(&session->workflow, &pending, err);

	outcome->skipped += pending.skipped;
	for (size_t i = 0; !result && i < pending.count; i++)
		if (workflow_lacks_commitment(&session->workflow, &pending.reveals[i]))
			add_unrevealable(outcome->unrevealable, &pending.reveals[i]);
	api_release(&pending.memory);
	return result;
}

static int compare_submissions(struct session *session, struct outcome *outcome, struct error *err)
{
	struct api_submission_stats stats;
	int result = api_submission_stats(session->api, 1000, &stats, err);

	outcome->skipped += stats.skipped;
	for (size_t i = 0; !result && i < stats.recent_count; i++) {
		const struct api_submission *listed = &stats.recent[i];

		if (strcmp(listed->miner_hotkey, session->workflow.hotkey) || !listed->fork_url ||
			!listed->commit_hash || workflow_knows_submission(&session->workflow, listed->id))
			continue;
		result = workflow_adopt(&session->workflow, listed, err);
		if (!result)
			cJSON_AddItemToArray(outcome->found, cJSON_CreateNumber((double)listed->id));
	}
	api_release(&stats.memory);
	return result;
}

/* Each list on its own: one that cannot be read must not keep the other from being compared. */
static int compare(const struct invocation *invocation, struct outcome *outcome, struct error *err)
{
	static int (*const steps[])(struct session *, struct outcome *, struct error *) = {
		locate_prepared, compare_commitments, compare_submissions};
	struct session session;
	struct error first = {0};

	if (session_open(invocation, &session, err) < 0)
		return -1;
	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		if (steps[i](&session, outcome, err) == 0)
			continue;
		if (api_last(session.api)->refusal == REFUSAL_NOT_FOR_US) {
			outcome->hidden = true;
			continue;
		}
		if (!first.status || err->status == STATUS_INTERRUPTED)
			first = *err;
		/* without a connection the next one would only wait in vain, too */
		if (err->status != STATUS_NETWORK || !api_last(session.api)->http_status)
			break;
	}
	session_close(&session);
	*err = first;
	return first.status ? -1 : 0;
}

static void print_repair(const struct store_repair *repair)
{
	if (repair->aside)
		printf("The state store was damaged. It was renamed to %s; nothing was deleted.\n",
			repair->aside);
	else
		printf(repair->missing ? "There was no state store; a new one was created.\n"
				       : "The state store is sound.\n");
	if (repair->aside || repair->taken || repair->lost)
		printf("Recovered from damaged stores: %zu submission%s; %zu could not be read.\n",
			repair->taken, repair->taken == 1 ? "" : "s", repair->lost);
	if (repair->unreadable)
		printf("Nothing at all could be read from %zu damaged store%s.\n", repair->unreadable,
			repair->unreadable == 1 ? "" : "s");
}

static void print_comparison(const struct outcome *outcome)
{
	const cJSON *item;

	if (outcome->hidden)
		puts("The validator does not show its lists to miners, so they could not be compared with the "
		     "store.");
	cJSON_ArrayForEach (item, outcome->found)
		printf("Submission %.0f, which only the validator knew, was recorded again.\n",
			item->valuedouble);
	cJSON_ArrayForEach (item, outcome->unrevealable)
		printf("Submission %.0f (commitment %s) cannot be revealed from here: its salt is "
		       "missing. If a backup or another workspace of this hotkey has it, run `quasar "
		       "import-state`.\n",
			cJSON_GetObjectItem(item, "submission_id")->valuedouble,
			cJSON_GetObjectItem(item, "commitment_hash")->valuestring);
}

static void print_json(const struct outcome *outcome)
{
	cJSON *document = cJSON_CreateObject();

	cJSON_AddBoolToObject(document, "missing", outcome->repair.missing);
	json_add_text(document, "aside", outcome->repair.aside);
	cJSON_AddNumberToObject(document, "read", (double)outcome->repair.taken);
	cJSON_AddNumberToObject(document, "unreadable", (double)outcome->repair.lost);
	cJSON_AddNumberToObject(document, "unreadable_stores", (double)outcome->repair.unreadable);
	cJSON_AddItemReferenceToObject(document, "found", outcome->found);
	cJSON_AddItemReferenceToObject(document, "unrevealable", outcome->unrevealable);
	cJSON_AddNumberToObject(document, "skipped_rows", (double)outcome->skipped);
	cJSON_AddBoolToObject(document, "compared", !outcome->hidden);
	output_json(document);
}

static int recover(const struct invocation *invocation, const char *directory, struct outcome *outcome,
	struct error *err)
{
	if (store_repair(directory, &outcome->repair, err) < 0)
		return -1;
	if (!invocation->json)
		print_repair(&outcome->repair);
	else if (outcome->repair.aside)
		log_warn("the state store was damaged; it was renamed to %s", outcome->repair.aside);
	if (compare(invocation, outcome, err) < 0) {
		if (!invocation->json)
			print_comparison(outcome);
		return err->hint[0] ? -1
				    : error_hint(err,
					      "Run `quasar recover` again to compare it with the validator's "
					      "lists.");
	}
	if (invocation->json)
		print_json(outcome);
	else
		print_comparison(outcome);
	if (cJSON_GetArraySize(outcome->unrevealable))
		return error_set(err, STATUS_FAILED, "%s", ""); /* said above */
	return 0;
}

static int run(struct invocation *invocation, struct error *err)
{
	const char *directory = require_workspace(invocation, err);
	struct outcome outcome = {.unrevealable = cJSON_CreateArray(), .found = cJSON_CreateArray()};
	int lock = -1, turn = -1, result = -1;

	/* what another process is just sending is not the validator's alone */
	if (directory && workspace_lock(directory, &lock, err) == 0 &&
		workspace_turn(directory, 0, &turn, err) == 0)
		result = recover(invocation, directory, &outcome, err);
	if (turn >= 0)
		close(turn);
	if (lock >= 0)
		close(lock);
	free(outcome.repair.aside);
	cJSON_Delete(outcome.unrevealable);
	cJSON_Delete(outcome.found);
	return result;
}

const struct command cmd_recover = {
	.name = "recover",
	.summary = "recover what is left of a damaged or lost state store",
	.description =
		"Renames a damaged .quasar/state.db to state.db.damaged-TIME (nothing is ever deleted), "
		"creates a new one, and copies every intact submission into it. A commitment is intact if "
		"its salt matches its hash. If there is no state.db, one is created.\n\n"
		"It then asks the validator. Submissions by the hotkey that only the validator knows are "
		"recorded again. Commitments whose salts are lost are listed, as nobody can reveal them "
		"any more; the exit code is then 1.\n\n"
		"If the store is sound, only the second step is done. If it was interrupted, run it "
		"again: it continues where it stopped and adds nothing twice. Benchmark results are not "
		"recovered: measure again.",
	.opts =
		(const struct opt[]){
			OPTS_WALLET,
			OPTS_API,
			{0},
		},
	.examples =
		(const struct example[]){
			{"quasar recover", "repair this workspace, and compare it with the validator"},
			{"quasar recover --json | jq '.unrevealable'", "the commitments that are lost"},
			{0},
		},
	.exits = (const enum status[]){STATUS_FAILED, STATUS_ENVIRONMENT, STATUS_NETWORK, STATUS_REFUSED, 0},
	.run = run,
};
