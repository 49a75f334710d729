#include "due.h"

#include <math.h>

#include "base/clock.h"
#include "base/log.h"

/* The validator's list has the last word on a commitment's id and block. */
static int follow(struct session *session, struct submission *submission,
	const struct api_pending_reveal *reveal, struct error *err)
{
	if (reveal->reveal_block == submission->reveal_block && reveal->submission_id == submission->server_id)
		return 0;
	if (reveal->submission_id != submission->server_id)
		log_warn("the validator lists submission %s under the id %lld", submission_label(submission),
			(long long)reveal->submission_id);
	if (reveal->reveal_block != submission->reveal_block)
		log_warn("the validator moved the reveal of submission %s from block %lld to %lld",
			submission_label(submission), (long long)submission->reveal_block,
			(long long)reveal->reveal_block);
	submission->server_id = reveal->submission_id;
	submission->reveal_block = reveal->reveal_block;
	return store_submission_committed(session->workspace.store, submission->id, submission->server_id,
		submission->reveal_block, err);
}

/* A validator that began anew counts from the start again: the id may be another commitment's by now, whose
 * reveal must not be tried with this salt. */
static int check_id(struct session *session, const struct submission *submission,
	const struct api_pending_reveals *pending, struct due *due, struct error *err)
{
	for (size_t i = 0; i < pending->count; i++)
		if (pending->reveals[i].submission_id == submission->server_id) {
			due->ready = false;
			return workflow_forgotten(&session->workflow, submission, err);
		}
	return 0;
}

int due_read(struct session *session, struct submission *submission,
	const struct api_pending_reveals *pending, struct due *due, struct error *err)
{
	*due = (struct due){
		.reveal_block = submission->reveal_block,
		.current_block = pending->current_block,
		/* not listed: revealed already, or the list leaves it out; the attempt will tell */
		.ready = pending->current_block >= submission->reveal_block,
	};
	for (size_t i = 0; i < pending->count; i++) {
		const struct api_pending_reveal *reveal = &pending->reveals[i];

		if (!api_pending_matches(reveal, submission->hotkey, submission->commitment_hash))
			continue;
		due->ready = reveal->can_reveal;
		due->reveal_block = reveal->reveal_block;
		return follow(session, submission, reveal, err);
	}
	return check_id(session, submission, pending, due, err);
}

double due_pause(const struct due *due, const struct block_clock *blocks, double poll)
{
	double left = block_clock_until(blocks, due->reveal_block, clock_elapsed());

	return fmax(DUE_POLL_SHORTEST, fmin(left, poll));
}
