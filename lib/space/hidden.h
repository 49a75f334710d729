/* hidden: what a validator makes of a commitment before its reveal. The reference validator takes whatever is
 * not validated, cannot clone a fork that it is not told of, and marks the commitment as validated. Once it is
 * revealed, nobody measures it: it ranks by its claim. */
#pragma once

#include <stdbool.h>

#include "api/client.h"

/* For who is about to commit. */
extern const char hidden_advice[];

/* Has that befallen a commitment? The lists must be of one moment; a list of what is not validated may be cut
 * off, or not have come (zeroed): then it is not known, which is false. */
bool hidden_was_judged(const struct api_pending_reveals *pending, const struct api_submission_stats *stats,
	int64_t server_id);
