#include "api/standings.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "score/score.h"

/* How many of those that wait for validation are asked for. */
#define WAITING_LIMIT 1000

const char *const standings_not_told[] = {
	"Speeds are the miners' claims: the validator shows neither what it measured nor the score.",
	"Failed logit verification excludes a submission, but the validator does not show which ones failed.",
	"Only the ten fastest validated submissions are shown.",
	"Submissions from earlier rounds are listed together with those of the current one.",
	NULL,
};

/* The candidates for a rank, each once. */
struct candidates {
	struct standing *standings;
	struct score_entry *entries;
	size_t count;
};

static void add(struct candidates *candidates, const struct api_submission *submission, bool revealed,
	enum standing_state state)
{
	for (size_t i = 0; i < candidates->count; i++)
		if (candidates->entries[i].id == submission->id)
			return;
	candidates->standings[candidates->count] = (struct standing){submission, state};
	candidates->entries[candidates->count++] = (struct score_entry){
		.id = submission->id,
		.tokens_per_sec = submission->tokens_per_sec,
		.target_sequence_length = submission->target_sequence_length,
		.created_at = submission->created_at,
		.revealed = revealed,
		.logits = LOGITS_PENDING,
	};
}

static void rank(struct standings *standings)
{
	const struct api_submission_stats *stats = &standings->stats;
	size_t most = stats->recent_count + stats->top_count;
	struct candidates candidates = {
		xcalloc(most, sizeof(*candidates.standings)), xcalloc(most, sizeof(*candidates.entries)), 0};
	size_t *order = xcalloc(most, sizeof(*order));
	struct standing *ranked = xcalloc(most, sizeof(*ranked));
	bool all_waiting = stats->recent_count < WAITING_LIMIT;

	/* a commitment has no fork yet; in the shorter entries of the fastest, no speed */
	for (size_t i = 0; i < stats->recent_count; i++)
		add(&candidates, &stats->recent[i], stats->recent[i].fork_url != NULL,
			stats->recent[i].validated ? STANDING_VALIDATED : STANDING_WAITING);
	for (size_t i = 0; i < stats->top_count; i++)
		add(&candidates, &stats->top[i], stats->top[i].tokens_per_sec > 0,
			all_waiting ? STANDING_VALIDATED : STANDING_UNKNOWN);
	standings->count = score_rank(candidates.entries, candidates.count, -INFINITY, order);
	standings->unrevealed = candidates.count - standings->count;
	standings->ranked = ranked;
	for (size_t i = 0; i < standings->count; i++)
		ranked[i] = candidates.standings[order[i]];
	free(order);
	free(candidates.entries);
	free(candidates.standings);
}

int standings_read(struct api *api, struct standings *standings, struct error *err)
{
	*standings = (struct standings){0};
	if (api_submission_stats(api, WAITING_LIMIT, &standings->stats, err) < 0)
		return -1;
	rank(standings);
	return 0;
}

size_t standings_rank(const struct standings *standings, int64_t submission_id)
{
	for (size_t i = 0; i < standings->count; i++)
		if (standings->ranked[i].submission->id == submission_id)
			return i + 1;
	return 0;
}

void standings_free(struct standings *standings)
{
	free((void *)standings->ranked);
	api_release(&standings->stats.memory);
	*standings = (struct standings){0};
}

const char *standing_state_name(enum standing_state state)
{
	static const char *const names[] = {"waiting", "validated", "unknown"};

	return names[state];
}
