/* quasar reveal: show what was committed to, once its block is reached. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/number.h"
#include "cli/progress.h"
#include "cli/session.h"
#include "cmd/commands.h"
#include "space/due.h"

#define PAUSE_FIRST 2.0 /* s, before another attempt */

/* What came of a look at the validator's list. */
static int look(struct session *session, struct submission *submission, struct block_clock *blocks,
	struct due *due, struct error *err)
{
	const struct submission_list one = {submission, 1};
	struct api_pending_reveals pending;
	struct submission now;
	int result = due_pending(&session->workflow, &one, blocks, &pending, err);
	bool hidden = result > 0;

	if (result < 0 && err->status == STATUS_NETWORK) {
		due_read(&session->workflow, submission, NULL, blocks, due);
		if (due->ready) {
			log_warn("%s; going by the reveal block given when it was committed", err->message);
			result = 0;
		}
	} else if (result >= 0) {
		result = hidden ? 0 : workflow_check_listed(&session->workflow, submission, &pending, err);
		if (!result)
			result = store_submission_get(session->workspace.store, submission->id, &now, err);
		if (!result) { /* the list, or an attempt, may have told another id, block or time */
			submission_free(submission);
			*submission = now;
			due_read(&session->workflow, submission, hidden ? NULL : &pending, blocks, due);
		}
	}
	api_release(&pending.memory);
	return result;
}

static int too_early(const struct session *session, const struct submission *submission,
	const struct due *due, const struct block_clock *blocks, struct error *err)
{
	char wait[64], block[48];

	number_grouped((double)due->reveal_block, block);
	if (due->current_block)
		due_describe(blocks, due->reveal_block, wait);
	else
		due_describe_left(&session->workflow, submission, blocks, wait);
	error_set(err, STATUS_EARLY, "submission %s can be revealed from block %s: %s",
		submission_label(submission), block, wait);
	return error_hint(err, "Run `quasar reveal --wait` to wait for it.");
}

/* The validator's answer to an attempt that came too early tells its block. */
static int attempt(struct session *session, const struct submission *submission, struct block_clock *blocks,
	struct error *err)
{
	int result = workflow_reveal(&session->workflow, submission, err);

	if (session->workflow.blocks_left)
		block_clock_observe(
			blocks, submission->reveal_block - session->workflow.blocks_left, clock_uptime());
	return result;
}

/* Counts down to the block, looking at the validator's clock from time to time. */
static int countdown(struct progress *progress, const struct submission *submission, const struct due *due,
	double poll, struct error *err)
{
	double began = clock_uptime(), end = began + due_pause(due, poll);

	while (clock_uptime() < end) {
		double step = end - clock_uptime();
		char text[32], now[48], block[48];

		number_grouped((double)due->current_block, now);
		number_grouped((double)due->reveal_block, block);
		clock_duration(fmax(0, due->left - (clock_uptime() - began)), text);
		progress_status(progress, "submission %s: block %s%s%s, %s left",
			submission_label(submission), due->current_block ? now : "",
			due->current_block ? " of " : "", block, text);
		if (clock_sleep(step < 1 ? step : 1, err) < 0)
			return error_hint(
				err, "Nothing is lost. `quasar reveal --wait` continues from here.");
	}
	return 0;
}

/* Waits until the submission is ready. */
static int wait_until_ready(struct session *session, struct submission *submission,
	struct block_clock *blocks, struct progress *progress, struct error *err)
{
	for (double poll = DUE_POLL_SHORTEST;; poll = fmin(poll * 2, DUE_POLL_LONGEST)) {
		struct due due;

		if (look(session, submission, blocks, &due, err) < 0)
			return -1;
		if (due.ready)
			return 0;
		if (countdown(progress, submission, &due, poll, err) < 0)
			return -1;
	}
}

/* Says once what keeps it waiting. */
static void tell_trouble(const struct error *err, struct error *told)
{
	if (strcmp(told->message, err->message))
		log_warn("%s; still waiting", err->message);
	*told = *err;
}

/* An outage of the validator is no reason to give up: that is what a miner waits through. Nor is an answer that
 * nobody can make sense of; and it may take a moment to agree with what it lists. */
static int reveal_when_ready(struct session *session, struct submission *submission, struct error *err)
{
	struct block_clock blocks = {0};
	struct error told = {0};
	struct progress progress;
	double left;
	int result;

	progress_begin(&progress, "reveal", 0, "blocks");
	for (double pause = PAUSE_FIRST;; pause = fmin(pause * 2, DUE_POLL_LONGEST)) {
		result = wait_until_ready(session, submission, &blocks, &progress, err);
		if (!result)
			result = attempt(session, submission, &blocks, err);
		if (!result || (err->status != STATUS_EARLY && err->status != STATUS_NETWORK))
			break;
		tell_trouble(err, &told);
		left = due_left(&session->workflow, submission, &blocks);
		if (clock_sleep(left > 0 ? fmin(left, pause) : pause, err) < 0)
			break;
	}
	progress_end(&progress);
	return result;
}

static int reveal_if_ready(struct session *session, struct submission *submission, struct error *err)
{
	struct block_clock blocks = {0};
	struct due due;

	if (look(session, submission, &blocks, &due, err) < 0)
		return -1;
	if (!due.ready)
		return too_early(session, submission, &due, &blocks, err);
	return attempt(session, submission, &blocks, err);
}

/* The submissions that `reveal` is about: the one that was named, or all that are committed. */
static int choose(const struct invocation *invocation, struct session *session, struct submission_list *list,
	struct error *err)
{
	struct submission_filter filter = {
		.steps = STEP_BIT(STEP_COMMITTED),
		.api_url = session->workflow.api_url,
		.hotkey = session->workflow.hotkey,
	};
	const char *word;
	int64_t id;

	if (!invocation->positional_count) {
		if (store_submissions(session->workspace.store, &filter, list, err) < 0)
			return -1;
		if (list->count)
			return 0;
		submission_list_free(list);
		if (session_check_elsewhere(session, err) < 0)
			return -1;
		error_set(err, STATUS_ENVIRONMENT, "there is nothing to reveal");
		return error_hint(err, "`quasar commit` makes a commitment; `quasar status` lists them all.");
	}
	word = invocation->positionals[0];
	if (number_parse_integer(word + (*word == '#'), &id) < 0 || id < 1) { /* "#3" is how we write it */
		error_set(err, STATUS_USAGE, "\"%s\" is not a submission id", word);
		return error_hint(err, "`quasar status` lists them.");
	}
	list->items = xcalloc(1, sizeof(*list->items));
	list->count = 1;
	if (store_submission_get(session->workspace.store, id, &list->items[0], err) < 0) {
		free(list->items);
		return -1;
	}
	if (list->items[0].step == STEP_REVEALED) { /* by an earlier call, whose end may not have been seen */
		log_note("submission %s is revealed already", submission_label(&list->items[0]));
		submission_list_free(list);
		return 0;
	}
	if (list->items[0].step != STEP_COMMITTED && list->items[0].step != STEP_REFUSED) {
		error_set(err, STATUS_USAGE, "submission %s is %s, not waiting to be revealed",
			submission_label(&list->items[0]), submission_step_name(list->items[0].step));
		submission_list_free(list);
		return -1;
	}
	return 0;
}

static void report(const struct invocation *invocation, struct session *session,
	const struct submission *submission, cJSON *revealed)
{
	struct submission now;
	struct error ignored;

	if (store_submission_get(session->workspace.store, submission->id, &now, &ignored) < 0)
		return;
	cJSON_AddItemToArray(revealed, submission_json(&now));
	if (!invocation->json)
		printf("Revealed submission %s: %s at %.10s\nNext: quasar status\n", submission_label(&now),
			now.fork_url, now.commit_hash);
	submission_free(&now);
}

/* Prints what was revealed. What kept others from being revealed is the error, unless it is only too early
 * for them and something was revealed. */
static int conclude(
	const struct invocation *invocation, cJSON *revealed, const struct error *worst, struct error *err)
{
	bool any = cJSON_GetArraySize(revealed) > 0;
	bool failed = worst->status && !(any && worst->status == STATUS_EARLY);

	*err = *worst;
	if (worst->status && any)
		log_warn("%s", worst->message);
	if (any)
		err->message[0] = '\0'; /* said above; the document below is the only one */
	if (invocation->json && (any || !failed)) {
		cJSON *document = cJSON_CreateObject();

		cJSON_AddItemToObject(document, "revealed", revealed);
		json_add_text(document, "error", worst->status ? worst->message : NULL);
		output_json(document);
	} else {
		cJSON_Delete(revealed);
	}
	return failed ? -1 : 0;
}

/* Settles what earlier calls left. What another process is sending just now is not to be sent from here, too. */
static int settle(struct session *session, struct error *err)
{
	size_t settled;
	int turn, result;

	if (workspace_turn(session->workspace.directory, 0, &turn, err)) {
		log_note("%s: what is not committed yet is left out", err->message);
		return 0;
	}
	result = session_settle(session, SUBMISSION_COMMIT, &settled, err);
	close(turn);
	return result;
}

static int reveal(const struct invocation *invocation, struct session *session, struct error *err)
{
	struct submission_list list;
	struct error worst = {0};
	cJSON *revealed;

	/* what cannot be settled now must not keep the others from being revealed */
	if (settle(session, err) < 0) {
		if (err->status != STATUS_NETWORK && err->status != STATUS_REFUSED)
			return -1;
		worst = *err;
	}
	if (choose(invocation, session, &list, err) < 0) {
		if (worst.status)
			*err = worst;
		return -1;
	}
	revealed = cJSON_CreateArray();
	for (size_t i = 0; i < list.count && worst.status != STATUS_INTERRUPTED; i++) {
		int result = arg_flag(invocation, "wait") ? reveal_when_ready(session, &list.items[i], err)
							  : reveal_if_ready(session, &list.items[i], err);

		/* one that cannot be revealed must not keep the others waiting */
		if (!result)
			report(invocation, session, &list.items[i], revealed);
		else if (!worst.status || worst.status == STATUS_EARLY || err->status == STATUS_INTERRUPTED)
			worst = *err;
	}
	submission_list_free(&list);
	return conclude(invocation, revealed, &worst, err);
}

static int run(struct invocation *invocation, struct error *err)
{
	struct session session;
	int result;

	if (session_open(invocation, &session, err) < 0)
		return -1;
	result = reveal(invocation, &session, err);
	session_close(&session);
	return result;
}

const struct command cmd_reveal = {
	.name = "reveal",
	.summary = "reveal a commitment once its block is reached",
	.positionals = "[ID]",
	.max_positionals = 1,
	.description =
		"Without an id, reveals every commitment that is ready. With --wait, it also waits for "
		"those that are not, going by the validator's block number, even while the validator is "
		"down. If it is interrupted, start it again. A reveal whose response was lost is not sent "
		"twice.\n\n"
		"A commitment cannot be revealed before its block: exit code 6.",
	.opts =
		(const struct opt[]){
			{"wait", 'w', NULL, NULL, NULL, NULL, "Wait for the block, showing a countdown."},
			OPTS_WALLET,
			OPTS_API,
			{0},
		},
	.examples =
		(const struct example[]){
			{"quasar reveal --wait", "wait for the block, then reveal"},
			{"quasar reveal",
				"reveal what is ready; exit code 6 if all have to wait, 3 if there is nothing"},
			{"quasar reveal 3 --json", "one submission, for a script"},
			{0},
		},
	.exits = (const enum status[]){STATUS_ENVIRONMENT, STATUS_NETWORK, STATUS_REFUSED, STATUS_EARLY, 0},
	.run = run,
};
