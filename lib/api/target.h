/* target: what has to be exceeded in a round, as far as the validator tells. */
#pragma once

#include "api/rewards.h"

struct target {
	int64_t submission_id; /* 0: not known */
	const char *hotkey;    /* NULL: not known; belongs to `rewards` */
	double weighted;       /* NAN: the validator does not show it */
	bool at_most;          /* the previous round's winner is not known, but has to be lower */
	struct rewards rewards;
};

/* The round's baseline or, since the deployed validator does not tell it, the previous winner, who got the
 * most. A round without rewards may have had a winner, who did not beat the one before. Free with target_free, also
 * after an error. */
int target_read(struct api *api, const struct api_round *round, struct target *target, struct error *err);
void target_free(struct target *target);
