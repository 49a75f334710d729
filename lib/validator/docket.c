#include "validator/docket.h"

#include <math.h>
#include <stdlib.h>

#include "api/version.h"
#include "base/memory.h"

/* More than any validator holds unvalidated. */
#define STATS_LIMIT 1000
/* As many as a docket hands out. */
#define PENDING_LIMIT 100

static void add(struct docket *docket, const struct api_submission *submission)
{
	docket->submissions = xrealloc(
		docket->submissions, (docket->count + 1) * sizeof(const struct api_submission *));
	docket->submissions[docket->count++] = submission;
}

static int read_pending(struct api *api, struct docket *docket, struct error *err)
{
	struct api_pending_validations pending;
	int result = api_pending_validations(api, PENDING_LIMIT, &pending, err);

	docket->memory = pending.memory;
	for (size_t i = 0; !result && i < pending.count; i++)
		add(docket, &pending.submissions[i]);
	docket->more = pending.total > (int64_t)(pending.count + pending.skipped);
	return result;
}

static int read_stats(struct api *api, struct docket *docket, struct error *err)
{
	struct api_submission_stats stats;
	int result = api_submission_stats(api, STATS_LIMIT, &stats, err);

	docket->memory = stats.memory;
	for (size_t i = stats.recent_count; !result && i-- > 0;) {
		const struct api_submission *submission = &stats.recent[i];

		if (!submission->fork_url || !submission->commit_hash)
			docket->unrevealed++;
		else if (!submission->validated)
			add(docket, submission);
	}
	return result;
}

int docket_read(struct api *api, struct docket *docket, struct error *err)
{
	*docket = (struct docket){0};
	return api_learn_version(api)->docket ? read_pending(api, docket, err) : read_stats(api, docket, err);
}

void docket_free(struct docket *docket)
{
	free(docket->submissions);
	api_release(&docket->memory);
}

/* A fork that is not what a fork has to be also fails verification: else its claim, however bold, would rank. */
static int tell_score(struct api *api, const struct api_submission *submission, const struct verdict *verdict,
	struct error *err)
{
	if (verdict->invalid &&
		api_record_verification(api, submission->id, false, NAN, NAN, NAN, verdict->reason, err) < 0)
		return -1;
	return api_mark_validated(api, submission->id, verdict->told_score, err);
}

static bool has_image(const struct api_submission *submission)
{
	return submission->docker_image && *submission->docker_image;
}

bool docket_wants_logits(
	struct api *api, const struct api_submission *submission, const struct verdict *verdict)
{
	return api_version(api)->docket && verdict->told_score > 0 && has_image(submission);
}

/* A miner loses by what is told wrongly, and it cannot be taken back: what is not known is not told. */
static int tell_speed(struct api *api, const struct api_submission *submission, const struct verdict *verdict,
	const struct docket_logits *logits, struct error *err)
{
	struct api_judgement judgement = {
		.submission_id = submission->id,
		.score = verdict->told_score,
		.tokens_per_sec = verdict->tokens_per_second,
		.reason = verdict->reason,
		.cosine_similarity = logits->cosine,
		.max_abs_diff = logits->difference,
		.throughput = logits->tokens_per_second,
	};

	if (judgement.score > 0 && judgement.tokens_per_sec < api_version(api)->claim_least)
		return error_set(err, STATUS_ENVIRONMENT,
			"%g tokens/s were measured: no validator takes less than %g for a speed",
			judgement.tokens_per_sec, api_version(api)->claim_least);
	if (judgement.score > 0 && !has_image(submission)) {
		judgement.score = 0;
		judgement.reason = "it names no docker_image, whose logits could be verified";
	} else {
		judgement.verified = judgement.score > 0;
	}
	return api_mark_verified(api, &judgement, err);
}

int docket_tell(struct api *api, const struct api_submission *submission, const struct verdict *verdict,
	const struct docket_logits *logits, struct error *err)
{
	return api_version(api)->docket ? tell_speed(api, submission, verdict, logits, err)
					: tell_score(api, submission, verdict, err);
}
