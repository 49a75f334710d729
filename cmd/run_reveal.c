/* run: each commitment at its block. */
#include <math.h>

#include "base/clock.h"
#include "due.h"
#include "run.h"

/* A refused submission keeps its reason, and `quasar reveal ID` can still try it. */
static int refused(struct loop *loop, int64_t id, const struct error *err)
{
	struct error failure;

	if (store_submission_refused(loop->session.workspace.store, id, err->message, &failure) < 0)
		loop_tell_problem(loop, &failure);
	loop_tell_submission(loop, "refused", id, err);
	return 0;
}

/* -1: it cannot go on without a person, or was told to stop. */
static int reveal_one(struct loop *loop, const struct submission *submission, struct error *err)
{
	if (workflow_reveal(&loop->session.workflow, submission, err) == 0) {
		loop_answered(loop);
		loop_tell_submission(loop, "revealed", submission->id, NULL);
		loop->next_standing = 0;
		return 0;
	}
	if (err->status == STATUS_INTERRUPTED || loop_needs_a_person(loop, err))
		return -1;
	if (err->status == STATUS_REFUSED)
		return refused(loop, submission->id, err);
	if (err->status == STATUS_NETWORK)
		loop->next_look = loop_outage(loop, err);
	else if (err->status != STATUS_EARLY)
		loop_tell_problem(loop, err);
	return 0;
}

/* Reveals what is ready, and finds out when to look again. */
static int reveal_list(struct loop *loop, const struct submission_list *list,
	const struct api_pending_reveals *pending, struct error *err)
{
	double now = clock_elapsed();

	loop->next_look = now + DUE_POLL_LONGEST;
	for (size_t i = 0; i < list->count; i++) {
		struct due due;

		if (due_read(&loop->session, &list->items[i], pending, &due, err) < 0) {
			if (err->status == STATUS_REFUSED)
				refused(loop, list->items[i].id, err);
			else
				loop_tell_problem(loop, err);
		}
		if (due.ready && reveal_one(loop, &list->items[i], err) < 0)
			return -1;
		if (loop->outage_began)
			return 0;
		if (due.ready) /* whatever came of it, not before a moment has passed */
			loop->next_look = fmin(loop->next_look, now + PAUSE_SHORTEST);
		else
			loop->next_look = fmin(
				loop->next_look, now + due_pause(&due, &loop->blocks, loop->poll));
	}
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
		"the validator has %zu commitment%s of this hotkey that this workspace has no salt for", unknown,
		unknown == 1 ? "" : "s");
	error_hint(&err, "`quasar recover` names them; `quasar import-state` takes salts from a backup.");
	loop_tell_problem(loop, &err);
}

int loop_reveal_due(struct loop *loop, struct error *err)
{
	struct submission_filter filter = {
		.steps = STEP_BIT(STEP_COMMITTED),
		.api_url = loop->session.workflow.api_url,
		.hotkey = loop->session.workflow.hotkey,
	};
	struct api_pending_reveals pending = {0};
	struct submission_list list;
	int result = 0;

	loop->next_look = clock_elapsed() + DUE_POLL_LONGEST;
	if (store_submissions(loop->session.workspace.store, &filter, &list, err) < 0) {
		loop_tell_problem(loop, err);
		return 0;
	}
	if (!list.count && loop->compared) {
		loop->poll = DUE_POLL_SHORTEST;
	} else if (api_pending_reveals(loop->session.api, &pending, err) == 0) {
		loop_answered(loop);
		block_clock_observe(&loop->blocks, pending.current_block, clock_elapsed());
		loop->poll = fmin(loop->poll * 2, DUE_POLL_LONGEST);
		if (!loop->compared)
			compare_commitments(loop, &pending);
		result = reveal_list(loop, &list, &pending, err);
	} else if (err->status == STATUS_INTERRUPTED) {
		result = -1;
	} else {
		loop->next_look = loop_outage(loop, err);
	}
	api_release(&pending.memory);
	submission_list_free(&list);
	return result;
}
