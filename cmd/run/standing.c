/* run: rank and round. */
#include <math.h>
#include <string.h>

#include "api/standings.h"
#include "api/version.h"
#include "base/clock.h"
#include "base/json.h"
#include "cmd/run/run.h"

/* The best rank of this hotkey's submissions. */
static void tell_rank(struct loop *loop, const struct standings *standings)
{
	for (size_t i = 0; i < standings->count; i++) {
		const struct api_submission *submission = standings->ranked[i].submission;
		cJSON *fields;

		if (strcmp(submission->miner_hotkey, loop->session.workflow.hotkey))
			continue;
		if (loop->rank == i + 1 && loop->rank_id == submission->id)
			return;
		loop->rank = i + 1;
		loop->rank_id = submission->id;
		fields = cJSON_CreateObject();
		cJSON_AddNumberToObject(fields, "rank", (double)loop->rank);
		cJSON_AddNumberToObject(fields, "of", (double)standings->count);
		cJSON_AddNumberToObject(fields, "submission_id", (double)submission->id);
		event_emit(&loop->events, "rank", fields, "rank %zu of %zu", loop->rank, standings->count);
		return;
	}
}

static void tell_round(struct loop *loop, const struct api_round *round)
{
	char left[32];
	cJSON *fields;

	if (loop->round_number == round->round_number)
		return;
	loop->round_number = round->round_number;
	clock_duration((double)round->time_remaining_seconds, left);
	fields = cJSON_CreateObject();
	cJSON_AddNumberToObject(fields, "round", (double)round->round_number);
	cJSON_AddNumberToObject(fields, "seconds_left", (double)round->time_remaining_seconds);
	event_emit(
		&loop->events, "round", fields, "round %lld, %s left", (long long)round->round_number, left);
}

/* -1: it was told to stop. */
static int failed(struct loop *loop, enum part part, const struct error *err)
{
	double next;

	if (err->status == STATUS_INTERRUPTED)
		return -1;
	if (api_last(loop->session.api)->refusal == REFUSAL_NOT_FOR_US) { /* since just now */
		loop->next_standing = 0;
		return 0;
	}
	next = loop_outage(loop, part, 0, api_last(loop->session.api)->refusal, err);
	loop->next_standing = fmin(loop->next_standing, next);
	return 0;
}

/* The service may be replaced at any time. Without lists no answer would contradict what is known of it. */
static void look_at_version(struct loop *loop)
{
	struct api *api = loop->session.api;
	const struct api_version *found;
	struct error ignored;
	cJSON *fields;

	if (!api_learn_version(api)->lists && clock_uptime() >= loop->next_version) {
		loop->next_version = clock_uptime() + loop->interval;
		api_find_version(api, &ignored);
	}
	found = session_remember_version(&loop->session);
	if (!found)
		return;
	fields = cJSON_CreateObject();
	cJSON_AddStringToObject(fields, "api_version", found->name);
	event_emit(&loop->events, "version", fields, "the validator's version is %s%s", found->name,
		found->lists ? "" : ", which shows neither lists nor rank to miners");
}

/* What validators made of the newest submission that they have measured. */
static void tell_measurement(struct loop *loop, const struct api_miner *miner)
{
	for (size_t i = 0; i < miner->count; i++) {
		const struct api_own_submission *submission = &miner->submissions[i];
		cJSON *fields;

		if (isnan(submission->validated_tokens_per_sec))
			continue;
		if (loop->measured_id == submission->id)
			return;
		loop->measured_id = submission->id;
		fields = cJSON_CreateObject();
		cJSON_AddNumberToObject(fields, "submission_id", (double)submission->id);
		cJSON_AddNumberToObject(
			fields, "validated_tokens_per_sec", submission->validated_tokens_per_sec);
		json_add_real(fields, "score", submission->score);
		event_emit(&loop->events, "measured", fields,
			"submission %lld was measured: %.0f tokens/s, normalised", (long long)submission->id,
			submission->validated_tokens_per_sec);
		return;
	}
}

/* Where miners see no lists, the dashboard, if there is a key for it. */
static int look_at_dashboard(struct loop *loop, struct error *err)
{
	struct api_miner miner;
	int result = 0;

	loop_answered(loop, PART_ROUND, 0);
	if (!api_has_dashboard(loop->session.api)) {
		loop_answered(loop, PART_STANDINGS, 0);
		return 0;
	}
	if (workflow_dashboard(&loop->session.workflow, &miner, err) == 0) {
		loop_answered(loop, PART_STANDINGS, 0);
		tell_measurement(loop, &miner);
	} else if (api_last(loop->session.api)->refusal != REFUSAL_UNKNOWN) {
		result = failed(loop, PART_STANDINGS, err);
	}
	api_release(&miner.memory);
	return result;
}

int loop_look_at_standings(struct loop *loop, struct error *err)
{
	struct standings standings = {0};
	struct api_round round = {0};
	int result = 0;

	loop->next_standing = clock_uptime() + fmin(loop->interval, PAUSE_LONGEST);
	look_at_version(loop);
	if (!api_shows_lists(loop->session.api))
		return look_at_dashboard(loop, err);
	if (api_current_round(loop->session.api, &round, err) == 0) {
		loop_answered(loop, PART_ROUND, 0);
		tell_round(loop, &round);
	} else {
		result = failed(loop, PART_ROUND, err);
	}
	if (!result && standings_read(loop->session.api, &standings, err) == 0) {
		loop_answered(loop, PART_STANDINGS, 0);
		tell_rank(loop, &standings);
	} else if (!result) {
		result = failed(loop, PART_STANDINGS, err);
	}
	standings_free(&standings);
	api_release(&round.memory);
	return result;
}
