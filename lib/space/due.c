#include "space/due.h"

#include <math.h>
#include <stdio.h>

#include "base/clock.h"

#define LIST_SECONDS 10.0        /* to wait for the list when something is due without it */
#define BLOCKS_AHEAD (30 * 7200) /* farther away no reveal is: the validator counts blocks in another way */

double due_left(const struct workflow *workflow, const struct submission *submission,
	const struct block_clock *blocks)
{
	int64_t left = submission->reveal_block - api_block(workflow->api);

	if (blocks->last)
		return block_clock_until(blocks, submission->reveal_block, clock_elapsed());
	/* an attempt that is too early does no harm, and its answer tells the wait */
	return left > 0 && left < BLOCKS_AHEAD ? (double)(left * BLOCK_SECONDS) : 0;
}

void due_read(const struct workflow *workflow, const struct submission *submission,
	const struct api_pending_reveals *pending, const struct block_clock *blocks, struct due *due)
{
	const struct api_pending_reveal *reveal = pending ? workflow_listed(pending, submission) : NULL;

	*due = (struct due){
		.reveal_block = submission->reveal_block,
		.current_block = pending ? pending->current_block
			: blocks->last   ? blocks->last
					 : api_block(workflow->api),
	};
	if (!pending) {
		due->ready = due_left(workflow, submission, blocks) <= 0;
	} else if (reveal) {
		due->ready = reveal->can_reveal;
		if (reveal->reveal_block)
			due->reveal_block = reveal->reveal_block;
	} else {
		/* not listed: revealed already, or the list leaves it out; the attempt will tell */
		due->ready = pending->current_block >= submission->reveal_block;
	}
}

int due_pending(struct workflow *workflow, const struct submission_list *list, struct block_clock *blocks,
	struct api_pending_reveals *pending, struct error *err)
{
	double timeout = workflow->timeout;
	int result;

	for (size_t i = 0; i < list->count; i++)
		if (due_left(workflow, &list->items[i], blocks) <= 0)
			timeout = fmin(timeout, LIST_SECONDS);
	api_set_timeout(workflow->api, timeout);
	result = workflow_pending(workflow, pending, err);
	api_set_timeout(workflow->api, workflow->timeout);
	if (!result)
		block_clock_observe(blocks, pending->current_block, clock_elapsed());
	return result;
}

void due_describe(const struct block_clock *blocks, int64_t reveal_block, char text[64])
{
	double seconds = block_clock_until(blocks, reveal_block, clock_elapsed());
	double count = ceil(seconds / block_clock_length(blocks) - 1e-6);
	char wait[32];

	clock_duration(seconds, wait);
	snprintf(text, 64, "in %.0f block%s, about %s", count, count == 1 ? "" : "s", wait);
}

double due_pause(const struct due *due, const struct block_clock *blocks, double poll)
{
	double left = blocks->last ? block_clock_until(blocks, due->reveal_block, clock_elapsed()) : poll;

	return fmax(DUE_POLL_SHORTEST, fmin(left, poll));
}
