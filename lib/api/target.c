#include "api/target.h"

#include <math.h>
#include <string.h>

#include "score/score.h"

/* More than any validator holds unvalidated. */
#define STATS_LIMIT 1000

/* Is it the one that a target is about? A winner's is the best of those made before the round. */
static bool is_target(
	const struct target *target, const struct api_round *round, const struct api_submission *submission)
{
	double weighted = score_weighted(submission->tokens_per_sec, submission->target_sequence_length);

	if (round->baseline_submission_id)
		return submission->id == round->baseline_submission_id;
	return target->hotkey && !strcmp(submission->miner_hotkey, target->hotkey) &&
		submission->created_at < round->start_time &&
		(isnan(target->weighted) || weighted > target->weighted);
}

/* Looks for the score among the submissions that the validator shows. */
static int find_score(
	struct api *api, const struct api_round *round, struct target *target, struct error *err)
{
	struct api_submission_stats stats;
	int result = api_submission_stats(api, STATS_LIMIT, &stats, err);

	for (size_t i = 0; !result && i < stats.recent_count + stats.top_count; i++) {
		const struct api_submission *submission = &stats.recent[i];

		if (!is_target(target, round, submission))
			continue;
		target->submission_id = submission->id;
		target->weighted = score_weighted(
			submission->tokens_per_sec, submission->target_sequence_length);
	}
	api_release(&stats.memory);
	return result;
}

int target_read(struct api *api, const struct api_round *round, struct target *target, struct error *err)
{
	*target = (struct target){.submission_id = round->baseline_submission_id, .weighted = NAN};
	if (!target->submission_id && round->round_number > 1 && rewards_read(api, &target->rewards, err) < 0)
		return -1;
	if (target->rewards.weights.count)
		target->hotkey = target->rewards.weights.weights[0].hotkey;
	target->at_most = target->rewards.rounds_since > 0;
	if (!target->submission_id && !target->hotkey)
		return 0;
	return find_score(api, round, target, err);
}

void target_free(struct target *target)
{
	api_release(&target->rewards.weights.memory);
	*target = (struct target){0};
}
