/* due: when commitments can be revealed, by the validator's own clock. */
#pragma once

#include "api/block.h"
#include "session.h"

/* Where a committed submission stands at the validator. */
struct due {
	int64_t reveal_block, current_block;
	bool ready;
};

/* Finds the submission by its hash in what the validator lists; a reveal block that was moved, or another id
 * than the one told at the commitment, goes into `submission` and the store. */
int due_read(struct session *session, struct submission *submission,
	const struct api_pending_reveals *pending, struct due *due, struct error *err);

/* Seconds between two looks at the validator's clock. The first ones are close together: how long a block
 * takes there is certain only when it was seen. */
#define DUE_POLL_SHORTEST 0.25
#define DUE_POLL_LONGEST 60.0

/* Seconds until the next look, `poll` at most. */
double due_pause(const struct due *due, const struct block_clock *blocks, double poll);
