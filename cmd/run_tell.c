/* run: what the loop says, and how it waits through what passes. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "run.h"

void loop_tell_problem(struct loop *loop, const struct error *err)
{
	if (!strcmp(loop->problem, err->message))
		return;
	snprintf(loop->problem, sizeof(loop->problem), "%s", err->message);
	event_emit(&loop->events, "problem", event_error(err), "%s", err->message);
}

double loop_outage(struct loop *loop, const struct error *err)
{
	double now = clock_elapsed();

	if (!loop->outage_began) {
		loop->outage_began = now;
		loop->outage_pause = PAUSE_SHORTEST;
		event_emit(&loop->events, "outage", event_error(err), "%s", err->message);
	}
	loop->outage_pause = fmin(loop->outage_pause * 2, PAUSE_LONGEST);
	return now + loop->outage_pause / 2;
}

void loop_answered(struct loop *loop)
{
	char lasted[32];
	cJSON *fields;

	if (!loop->outage_began)
		return;
	clock_duration(clock_elapsed() - loop->outage_began, lasted);
	fields = cJSON_CreateObject();
	cJSON_AddNumberToObject(fields, "seconds", clock_elapsed() - loop->outage_began);
	loop->outage_began = 0;
	event_emit(&loop->events, "recovered", fields, "the validator answers again, after %s", lasted);
}

bool loop_needs_a_person(const struct loop *loop, const struct error *err)
{
	const struct api_exchange *last = api_last(loop->session.api);

	if (err->status != STATUS_REFUSED)
		return false;
	return last->http_status < 400 || last->http_status == 401 || last->http_status == 403 ||
	       (last->http_status == 404 && strcasestr(last->detail, "not registered"));
}

void loop_tell_submission(struct loop *loop, const char *name, int64_t id, const struct error *refusal)
{
	struct submission submission;
	struct error ignored;
	cJSON *fields;

	if (store_submission_get(loop->session.workspace.store, id, &submission, &ignored) < 0)
		return;
	fields = cJSON_CreateObject();
	cJSON_AddItemToObject(fields, "submission", submission_json(&submission));
	if (refusal) {
		cJSON_AddStringToObject(fields, "hint", refusal->hint);
		event_emit(&loop->events, name, fields, "submission %s was refused: %s",
			submission_label(&submission), refusal->message);
	} else {
		event_emit(&loop->events, name, fields, "submission %s: %.0f tokens/s at %lld tokens, commit %.10s",
			submission_label(&submission), submission.tokens_per_sec,
			(long long)submission.target_sequence_length, submission.commit_hash);
	}
	submission_free(&submission);
}
