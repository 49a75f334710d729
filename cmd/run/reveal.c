/* run: each commitment at its block. */
#include <math.h>

#include "base/clock.h"
#include "cmd/run/run.h"
#include "space/due.h"

/* A mismatch counts as a failure, and five of them in a day ban the address. */
#define MISMATCH_SECONDS 21600.0
/* So long the list is asked for what was given up: it may have it after all. */
#define LOST_SECONDS 172800.0

static void reveal_failed(struct loop *loop, const struct submission *submission, const struct error *err)
{
	enum refusal refusal = loop->session.workflow.refusal;

	/* a refused submission keeps its reason, and `quasar reveal ID` can still try it */
	if (workflow_gave_up(&loop->session.workflow, submission->id)) {
		loop_answered(loop, PART_REVEAL, submission->id);
		loop_tell_submission(loop, "refused", submission->id, err, NULL);
		return;
	}
	if (err->status == STATUS_ENVIRONMENT) {
		loop_tell_problem(loop, err);
		return;
	}
	loop_outage(loop, PART_REVEAL, submission->id, refusal, err);
	if (refusal == REFUSAL_MISMATCH)
		loop_trouble(loop, PART_REVEAL, submission->id)->next = clock_uptime() + MISMATCH_SECONDS;
}

/* -1: it cannot go on without a person, or was told to stop. */
static int reveal_one(struct loop *loop, const struct submission *submission, struct error *err)
{
	struct workflow *workflow = &loop->session.workflow;

	if (workflow_reveal(workflow, submission, err) == 0) {
		loop_answered(loop, PART_REVEAL, submission->id);
		loop_tell_submission(loop, "revealed", submission->id, NULL, NULL);
		loop->next_standing = 0;
		return 0;
	}
	if (err->status == STATUS_INTERRUPTED || loop_needs_a_person(workflow->refusal, err))
		return -1;
	if (err->status != STATUS_EARLY) {
		reveal_failed(loop, submission, err);
		return 0;
	}
	loop_answered(loop, PART_REVEAL, submission->id);
	if (workflow->blocks_left)
		block_clock_observe(
			&loop->blocks, submission->reveal_block - workflow->blocks_left, clock_uptime());
	return 0;
}

/* Reveals it if it is ready. `next` receives when to look again. */
static int look_at_one(struct loop *loop, const struct submission *submission,
	const struct api_pending_reveals *pending, double *next, struct error *err)
{
	const struct trouble *trouble = loop_trouble(loop, PART_REVEAL, submission->id);
	double now = clock_uptime();
	struct due due;

	*next = now + DUE_POLL_LONGEST;
	if (pending && workflow_check_listed(&loop->session.workflow, submission, pending, err) < 0) {
		loop_tell_submission(loop, "refused", submission->id, err, NULL);
		return 0;
	}
	due_read(&loop->session.workflow, submission, pending, &loop->blocks, &due);
	if (!due.ready) {
		*next = now + due_pause(&due, loop->poll);
		return 0;
	}
	if (trouble && now < trouble->next) {
		*next = trouble->next;
		return 0;
	}
	if (reveal_one(loop, submission, err) < 0)
		return -1;
	/* whatever came of it, not before a moment has passed */
	trouble = loop_trouble(loop, PART_REVEAL, submission->id);
	*next = trouble ? trouble->next : now + PAUSE_SHORTEST;
	return 0;
}

/* Reveals what is ready, and finds out when to look again. `pending`: NULL when the list cannot be read. */
static int reveal_list(struct loop *loop, const struct submission_list *list,
	const struct api_pending_reveals *pending, struct error *err)
{
	loop->next_look = clock_uptime() + DUE_POLL_LONGEST;
	for (size_t i = 0; i < list->count; i++) {
		double next;

		if (list->items[i].step != STEP_COMMITTED)
			continue;
		if (look_at_one(loop, &list->items[i], pending, &next, err) < 0)
			return -1;
		loop->next_look = fmin(loop->next_look, next);
	}
	return 0;
}

/* What is no longer waited for, is no trouble any more. */
static void end_troubles(struct loop *loop, const struct submission_list *list)
{
	for (size_t i = 0; i < loop->trouble_count; i++) {
		const struct trouble *trouble = &loop->troubles[i];
		bool waiting = false;

		for (size_t k = 0; k < list->count; k++)
			waiting |= list->items[k].id == trouble->id && list->items[k].step == STEP_COMMITTED;
		if (trouble->part == PART_REVEAL && !waiting)
			loop_answered(loop, PART_REVEAL, trouble->id);
	}
}

/* The commitments, and those that were given up lately. */
static int read_commitments(struct loop *loop, struct submission_list *list, bool *ask, struct error *err)
{
	struct submission_filter filter = {
		.steps = STEP_BIT(STEP_COMMITTED) | STEP_BIT(STEP_REFUSED),
		.api_url = loop->session.workflow.api_url,
		.hotkey = loop->session.workflow.hotkey,
	};

	*ask = false;
	if (store_submissions(loop->session.workspace.store, &filter, list, err) < 0)
		return -1;
	for (size_t i = 0; i < list->count; i++)
		*ask |= list->items[i].step == STEP_COMMITTED ||
			(list->items[i].server_id && clock_now() - list->items[i].updated_at < LOST_SECONDS);
	end_troubles(loop, list);
	return 0;
}

/* Commitments of this hotkey whose salts are elsewhere, or lost: a backup that was put back does not have what
 * was committed since. */
static void compare_commitments(struct loop *loop, const struct api_pending_reveals *pending)
{
	struct error err;
	size_t unknown = 0;

	loop->compared = true;
	for (size_t i = 0; i < pending->count; i++)
		unknown += workflow_lacks_commitment(&loop->session.workflow, &pending->reveals[i]);
	if (!unknown)
		return;
	error_set(&err, STATUS_ENVIRONMENT,
		"the validator has %zu commitment%s by this hotkey for which this workspace has no salt",
		unknown, unknown == 1 ? "" : "s");
	error_hint(&err, "`quasar recover` lists them; `quasar import-state` restores salts from a backup.");
	loop_tell_problem(loop, &err);
}

int loop_reveal_due(struct loop *loop, struct error *err)
{
	struct api_pending_reveals pending = {0};
	struct submission_list list;
	double retry = INFINITY;
	bool ask, listed = false;
	int result = 0, read;

	loop->next_look = clock_uptime() + DUE_POLL_LONGEST;
	if (read_commitments(loop, &list, &ask, err) < 0) {
		loop_tell_problem(loop, err);
		return 0;
	}
	if (!ask && loop->compared && !loop_trouble(loop, PART_LIST, 0)) {
		loop->poll = DUE_POLL_SHORTEST;
		submission_list_free(&list);
		return 0;
	}
	read = due_pending(&loop->session.workflow, &list, &loop->blocks, &pending, err);
	if (read > 0) {
		/* there is nothing to compare the store with, and what is stored tells when to reveal */
		loop->compared = true;
		loop->poll = fmin(loop->poll * 2, DUE_POLL_LONGEST);
		loop_answered(loop, PART_LIST, 0);
	} else if (read == 0) {
		listed = true;
		loop_answered(loop, PART_LIST, 0);
		loop->poll = fmin(loop->poll * 2, DUE_POLL_LONGEST);
		if (!loop->compared)
			compare_commitments(loop, &pending);
		submission_list_free(&list); /* the list may have told other ids, and blocks */
		if (read_commitments(loop, &list, &ask, err) < 0) {
			loop_tell_problem(loop, err);
			api_release(&pending.memory);
			return 0;
		}
	} else if (err->status == STATUS_INTERRUPTED) {
		result = -1;
	} else {
		retry = loop_outage(loop, PART_LIST, 0, api_last(loop->session.api)->refusal, err);
	}
	if (!result)
		result = reveal_list(loop, &list, listed ? &pending : NULL, err);
	loop->next_look = fmin(loop->next_look, retry);
	api_release(&pending.memory);
	submission_list_free(&list);
	return result;
}
