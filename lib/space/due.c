#include "space/due.h"

#include <math.h>
#include <stdio.h>

#include "api/version.h"
#include "base/clock.h"

#define LIST_SECONDS 10.0 /* to wait for the list when something is due without it */
#define SECONDS_AHEAD                                                                                        \
	(30 * 86400.0) /* farther away no reveal is: the validator counts blocks in another way */
/* Without a list the last word on the wait is believed for so long: where validators take their blocks from may
 * change. */
#define WORD_SECONDS 600.0

/* Without a block having been seen. */
static double stored_left(const struct workflow *workflow, const struct submission *submission)
{
	double left = isnan(submission->reveal_time)
		? (double)(submission->reveal_block - api_block(workflow->api)) * BLOCK_SECONDS
		: submission->reveal_time - api_now(workflow->api);

	return left > 0 && left < SECONDS_AHEAD ? left : 0;
}

double due_left(const struct workflow *workflow, const struct submission *submission,
	const struct block_clock *blocks)
{
	double now = clock_uptime();

	if (!blocks->last)
		return stored_left(workflow, submission);
	if (!api_version(workflow->api)->lists && now - blocks->last_seen >= WORD_SECONDS)
		return 0;
	return block_clock_until(blocks, submission->reveal_block, now);
}

void due_read(const struct workflow *workflow, const struct submission *submission,
	const struct api_pending_reveals *pending, const struct block_clock *blocks, struct due *due)
{
	const struct api_pending_reveal *reveal = pending ? workflow_listed(pending, submission) : NULL;

	*due = (struct due){
		.reveal_block = submission->reveal_block,
		.current_block = pending ? pending->current_block : blocks->last,
	};
	if (!pending) {
		due->left = due_left(workflow, submission, blocks);
		due->ready = due->left <= 0;
		return;
	}
	if (reveal) {
		due->ready = reveal->can_reveal;
		if (reveal->reveal_block)
			due->reveal_block = reveal->reveal_block;
	} else {
		/* not listed: revealed already, or the list leaves it out; the attempt will tell */
		due->ready = pending->current_block >= submission->reveal_block;
	}
	due->left = block_clock_until(blocks, due->reveal_block, clock_uptime());
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
	if (result < 0)
		return api_last(workflow->api)->refusal == REFUSAL_NOT_FOR_US ? 1 : -1;
	block_clock_observe(blocks, pending->current_block, clock_uptime());
	return 0;
}

void due_describe(const struct block_clock *blocks, int64_t reveal_block, char text[64])
{
	double seconds = block_clock_until(blocks, reveal_block, clock_uptime());
	double count = ceil(seconds / block_clock_length(blocks) - 1e-6);
	char wait[32];

	clock_duration(seconds, wait);
	snprintf(text, 64, "in %.0f block%s, about %s", count, count == 1 ? "" : "s", wait);
}

void due_describe_left(const struct workflow *workflow, const struct submission *submission,
	const struct block_clock *blocks, char text[64])
{
	double left = due_left(workflow, submission, blocks);
	char wait[32];

	text[0] = '\0';
	if (blocks->last) {
		due_describe(blocks, submission->reveal_block, text);
	} else if (left > 0) {
		clock_duration(left, wait);
		snprintf(text, 64, "in about %s", wait);
	}
}

double due_pause(const struct due *due, double poll)
{
	return fmax(DUE_POLL_SHORTEST, fmin(due->left, poll));
}
