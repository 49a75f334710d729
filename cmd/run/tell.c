/* run: what the loop says, and how it waits through what passes. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "cmd/run/run.h"

void loop_tell_problem(struct loop *loop, const struct error *err)
{
	if (!strcmp(loop->problem, err->message))
		return;
	snprintf(loop->problem, sizeof(loop->problem), "%s", err->message);
	event_emit(&loop->events, "problem", event_error(err), "%s", err->message);
}

/* --- trouble with the validator --------------------------------------------------------------------- */

#define QUIET_SHORTEST 60.0
#define QUIET_LONGEST 21600.0

enum cause { CAUSE_CONNECTION = 1, CAUSE_SERVER = 2, CAUSE_UNREADABLE = 4, CAUSE_UNCLEAR = 8 };

static enum cause find_cause(const struct loop *loop, enum refusal refusal)
{
	if (refusal == REFUSAL_INTERNAL || refusal == REFUSAL_DOWN || refusal == REFUSAL_LIMIT)
		return CAUSE_SERVER;
	if (refusal != REFUSAL_NONE)
		return CAUSE_UNCLEAR;
	return api_last(loop->session.api)->http_status ? CAUSE_UNREADABLE : CAUSE_CONNECTION;
}

static const char *cause_name(enum cause cause)
{
	switch (cause) {
	case CAUSE_CONNECTION:
		return "connection";
	case CAUSE_SERVER:
		return "server";
	case CAUSE_UNREADABLE:
		return "unreadable";
	case CAUSE_UNCLEAR:
		return "unclear";
	}
	return "";
}

static cJSON *trouble_fields(const struct trouble *trouble)
{
	static const char *const names[] = {"list", "reveal", "commit", "standings", "round"};
	cJSON *fields = cJSON_CreateObject();

	cJSON_AddStringToObject(fields, "part", names[trouble->part]);
	if (trouble->id)
		cJSON_AddNumberToObject(fields, "submission", (double)trouble->id);
	cJSON_AddNumberToObject(fields, "seconds", clock_uptime() - trouble->began);
	return fields;
}

static struct trouble *find_trouble(const struct loop *loop, enum part part, int64_t id)
{
	for (size_t i = 0; i < loop->trouble_count; i++)
		if (loop->troubles[i].part == part && loop->troubles[i].id == id)
			return &loop->troubles[i];
	return NULL;
}

struct trouble *loop_trouble(const struct loop *loop, enum part part, int64_t id)
{
	struct trouble *trouble = find_trouble(loop, part, id);

	return trouble && trouble->began ? trouble : NULL;
}

/* One connection serves them all: that it is lost is told for one. */
static bool is_told_elsewhere(const struct loop *loop, const struct trouble *trouble, enum cause cause)
{
	for (size_t i = 0; cause == CAUSE_CONNECTION && i < loop->trouble_count; i++) {
		const struct trouble *other = &loop->troubles[i];

		if (other != trouble && other->began && other->told & CAUSE_CONNECTION)
			return true;
	}
	return false;
}

static struct trouble *begin_trouble(struct loop *loop, enum part part, int64_t id, double now)
{
	struct trouble *trouble = find_trouble(loop, part, id);

	if (!trouble) {
		loop->troubles = xrealloc(loop->troubles, (loop->trouble_count + 1) * sizeof(*trouble));
		trouble = &loop->troubles[loop->trouble_count++];
		*trouble = (struct trouble){.part = part, .id = id, .interval = QUIET_SHORTEST};
	}
	if (!trouble->began) {
		if (now - trouble->ended > trouble->interval)
			trouble->interval = QUIET_SHORTEST;
		trouble->began = now;
		trouble->pause = PAUSE_SHORTEST;
		trouble->told = 0;
	}
	return trouble;
}

/* `cause` is new in this trouble, or it is time for a reminder. */
static bool is_worth_telling(const struct trouble *trouble, enum cause cause, double now)
{
	return now >= trouble->quiet_until || (trouble->told && !(trouble->told & cause));
}

static void tell_trouble(
	struct loop *loop, struct trouble *trouble, enum cause cause, const struct error *err)
{
	cJSON *fields = trouble_fields(trouble), *field, *error = event_error(err);
	char since[48] = "", lasted[32];

	if (trouble->told & cause) {
		clock_duration(clock_uptime() - trouble->began, lasted);
		snprintf(since, sizeof(since), "still failing after %s: ", lasted);
	}
	cJSON_AddStringToObject(fields, "cause", cause_name(cause));
	while ((field = cJSON_DetachItemFromArray(error, 0)))
		cJSON_AddItemToObject(fields, field->string, field);
	cJSON_Delete(error);
	trouble->told |= cause;
	trouble->quiet_until = clock_uptime() + trouble->interval;
	trouble->interval = fmin(2 * trouble->interval, QUIET_LONGEST);
	event_emit(&loop->events, "outage", fields, "%s%s", since, err->message);
}

double loop_outage(
	struct loop *loop, enum part part, int64_t id, enum refusal refusal, const struct error *err)
{
	double now = clock_uptime();
	enum cause cause = find_cause(loop, refusal);
	struct trouble *trouble = begin_trouble(loop, part, id, now);

	if (is_worth_telling(trouble, cause, now) && !is_told_elsewhere(loop, trouble, cause))
		tell_trouble(loop, trouble, cause, err);
	trouble->pause = fmin(trouble->pause * 2, PAUSE_LONGEST);
	trouble->next = now + trouble->pause / 2;
	return trouble->next;
}

void loop_answered(struct loop *loop, enum part part, int64_t id)
{
	static const char *const works[] = {"the list of commitments can be read again",
		"it can be revealed again", "commitments are accepted again",
		"the list of submissions can be read again", "the round can be read again"};
	struct trouble *trouble = loop_trouble(loop, part, id);
	char lasted[32];
	cJSON *fields;

	if (!trouble)
		return;
	clock_duration(clock_uptime() - trouble->began, lasted);
	fields = trouble_fields(trouble);
	trouble->began = 0;
	trouble->ended = clock_uptime();
	if (trouble->told)
		event_emit(&loop->events, "recovered", fields, "%s, after %s",
			trouble->told & CAUSE_CONNECTION ? "the validator responds again" : works[part],
			lasted);
	else
		cJSON_Delete(fields);
}

bool loop_needs_a_person(enum refusal refusal, const struct error *err)
{
	return err->status == STATUS_REFUSED &&
		(refusal == REFUSAL_SIGNATURE || refusal == REFUSAL_HOTKEY || refusal == REFUSAL_BANNED ||
			refusal == REFUSAL_FLAGGED || refusal == REFUSAL_SHARED ||
			refusal == REFUSAL_UNREGISTERED);
}

/* --- submissions --------------------------------------------------------------------------------------- */

void loop_tell_submission(
	struct loop *loop, const char *name, int64_t id, const struct error *refusal, const char *remark)
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
		event_emit(&loop->events, name, fields,
			"submission %s: %.0f tokens/s at %lld tokens, commit %.10s%s%s",
			submission_label(&submission), submission.tokens_per_sec,
			(long long)submission.target_sequence_length, submission.commit_hash,
			remark ? "; " : "", remark ? remark : "");
	}
	submission_free(&submission);
}
