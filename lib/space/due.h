/* due: when commitments can be revealed, by the validator's own clock. */
#pragma once

#include "api/block.h"
#include "space/workflow.h"

/* Where a committed submission stands at the validator. */
struct due {
	int64_t reveal_block, current_block; /* the latter 0: not known */
	double left;                         /* seconds until the next attempt; 0: ready, or nothing tells */
	bool ready;
};

/* Reads it off the validator's list; when that could not be read (`pending` NULL), off what is stored, the blocks
 * that were seen and the validator's clock. An attempt that is too early does no harm, and tells the wait. */
void due_read(const struct workflow *workflow, const struct submission *submission,
	const struct api_pending_reveals *pending, const struct block_clock *blocks, struct due *due);

/* The list of commitments, as workflow_pending(), for what is waited for: soon given up when something is due without
 * it. Takes note of the block. 1: miners are not shown it. */
int due_pending(struct workflow *workflow, const struct submission_list *list, struct block_clock *blocks,
	struct api_pending_reveals *pending, struct error *err);

/* Seconds until the reveal, without the validator's list; 0: due, or nothing tells. */
double due_left(const struct workflow *workflow, const struct submission *submission,
	const struct block_clock *blocks);

/* "in 3 blocks, about 36 s" */
void due_describe(const struct block_clock *blocks, int64_t reveal_block, char text[64]);
/* The same where perhaps no block was seen: "in about 36 s"; "" when nothing tells. */
void due_describe_left(const struct workflow *workflow, const struct submission *submission,
	const struct block_clock *blocks, char text[64]);

/* Seconds between two looks at the validator's clock. The first ones are close together: how long a block
 * takes there is certain only when it was seen. */
#define DUE_POLL_SHORTEST 0.25
#define DUE_POLL_LONGEST 60.0

/* Seconds until the next look, `poll` at most. */
double due_pause(const struct due *due, double poll);
