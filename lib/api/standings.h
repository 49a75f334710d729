/* standings: the submissions that the validator shows, ranked as it ranks them.
 *
 * It does not show everything: speeds are claims, who failed logit verification or belongs to an earlier
 * round is not told, and of validated submissions only the ten with the most tokens/s are listed. */
#pragma once

#include "api/client.h"

enum standing_state {
	STANDING_WAITING, /* not validated yet */
	STANDING_VALIDATED,
	STANDING_UNKNOWN, /* there are more waiting ones than were asked for: it may be either */
};

struct standing {
	const struct api_submission *submission;
	enum standing_state state;
};

struct standings {
	const struct standing *ranked; /* best first */
	size_t count;
	size_t unrevealed; /* commitments, which have no rank yet */
	struct api_submission_stats stats;
};

/* Reads and ranks. Free with standings_free, also after an error. */
int standings_read(struct api *api, struct standings *standings, struct error *err);

/* From 1; 0: does not rank, or is not shown. */
size_t standings_rank(const struct standings *standings, int64_t submission_id);

/* What the validator does not show, and so is not in them: sentences; ends with NULL. */
extern const char *const standings_not_told[];

/* A zeroed struct is fine too. */
void standings_free(struct standings *standings);

const char *standing_state_name(enum standing_state state); /* "waiting", "validated", "unknown" */
