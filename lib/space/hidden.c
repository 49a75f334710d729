#include "space/hidden.h"

/* A list of more may be cut off. */
#define LIST_MOST 1000

const char hidden_advice[] =
	"A validator that polls before the reveal may mark the commitment as judged. It is then never "
	"measured, and ranks by its claim. `quasar submit` is measured, but visible to everyone "
	"immediately.";

bool hidden_was_judged(const struct api_pending_reveals *pending, const struct api_submission_stats *stats,
	int64_t server_id)
{
	bool waits = false;

	if (stats->total_submissions <= 0 || stats->recent_count >= LIST_MOST)
		return false;
	for (size_t i = 0; i < pending->count; i++)
		waits |= pending->reveals[i].submission_id == server_id;
	for (size_t i = 0; i < stats->recent_count; i++)
		if (stats->recent[i].id == server_id)
			return false;
	return waits;
}
