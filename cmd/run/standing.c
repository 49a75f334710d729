/* run: rank and round. */
#include <math.h>
#include <string.h>

#include "api/standings.h"
#include "base/clock.h"
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
	next = loop_outage(loop, part, 0, api_last(loop->session.api)->refusal, err);
	loop->next_standing = fmin(loop->next_standing, next);
	return 0;
}

int loop_look_at_standings(struct loop *loop, struct error *err)
{
	struct standings standings = {0};
	struct api_round round = {0};
	int result = 0;

	loop->next_standing = clock_elapsed() + fmin(loop->interval, PAUSE_LONGEST);
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
