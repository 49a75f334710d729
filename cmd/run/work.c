/* run: a round of work: verify, bench, commit what is better. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/version.h"
#include "base/clock.h"
#include "base/json.h"
#include "cli/proposal.h"
#include "cmd/run/run.h"
#include "fork/fork.h"
#include "score/score.h"
#include "space/due.h"

#define REFUSED_SECONDS 3600.0 /* until a commit whose submission was refused is tried once more */

#define TURN_MARGIN 5.0 /* s, by which the same end of the validator's pause may seem to differ */

static void rest(struct loop *loop)
{
	loop->stage = STAGE_WAITING;
}

/* Starts a subcommand of this program in the workspace. In a rehearsal the fork cannot run: its files are checked, and
 * quasar's own layer is measured. */
static void start_work(struct loop *loop, enum stage stage)
{
	const struct invocation *invocation = loop->invocation;
	bool verifying = stage == STAGE_VERIFYING;
	const char *words[12] = {"/proc/self/exe", verifying ? "verify" : "bench", "--json", "-q", "-C",
		invocation->workspace};
	size_t count = 6;
	struct error err;

	if (!verifying) {
		words[count++] =
			"--seq"; /* as it was when the settings were read: the claim is made for that length */
		words[count++] = arg_string(invocation, "seq");
	}
	if (arg_given(invocation, "python")) {
		words[count++] = "--python";
		words[count++] = arg_string(invocation, "python");
	}
	if (loop->rehearsal && verifying) {
		words[count++] = "--static";
	} else if (loop->rehearsal) {
		words[count++] = "--native";
		words[count++] = "--budget"; /* how fast it really is matters to nobody */
		words[count++] = "0.05";
	}
	loop->stage = stage;
	loop->work_began = clock_uptime();
	if (process_start(&loop->work, words, loop->settings, "", &err) == 0)
		return;
	loop_tell_problem(loop, &err);
	rest(loop);
}

/* Reads what the subcommand printed. NULL, having told the problem, when it did not do what it should. */
static cJSON *work_result(struct loop *loop, const char *what, int status)
{
	struct error err = {0};
	cJSON *document = loop->work.text.length
		? json_parse(loop->work.text.data, loop->work.text.length, &err)
		: NULL;
	const cJSON *error = cJSON_GetObjectItemCaseSensitive(document, "error");
	const char *message = NULL, *hint = NULL;

	buffer_free(&loop->work.text);
	if (document && !error)
		return document;
	if (error) {
		json_string(error, "message", JSON_OPTIONAL, &message, &err);
		json_string(error, "hint", JSON_OPTIONAL, &hint, &err);
	}
	error_set(&err, STATUS_ENVIRONMENT, "quasar %s: %s", what,
		message ? message : "it ended without a result");
	if (!message)
		error_hint(&err, "Exit code %d. Run `quasar %s` yourself to see why.", status, what);
	else if (hint)
		error_hint(&err, "%s", hint);
	loop_tell_problem(loop, &err);
	cJSON_Delete(document);
	return NULL;
}

static const char *text_of(const cJSON *object, const char *name)
{
	const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, name));

	return text ? text : "";
}

/* Copies the checks that failed into `fields`; their names, for people, or where none failed, why the fork was not
 * run. The caller frees. */
static char *failed_checks(const cJSON *document, cJSON *fields)
{
	const cJSON *check, *checks = cJSON_GetObjectItemCaseSensitive(document, "checks");
	cJSON *failed = cJSON_AddArrayToObject(fields, "failed");
	const char *not_run = "it was not run";
	struct buffer names = {0};

	buffer_text(&names, "");
	cJSON_ArrayForEach (check, checks) {
		if (!strcmp(text_of(check, "status"), "skip"))
			not_run = text_of(check, "detail");
		if (strcmp(text_of(check, "status"), "fail") != 0)
			continue;
		buffer_printf(&names, "%s%s", names.length ? ", " : "", text_of(check, "name"));
		cJSON_AddItemToArray(failed, cJSON_Duplicate(check, true));
	}
	if (!names.length)
		buffer_text(&names, not_run);
	return names.data;
}

/* The subcommand looked at other files than the commit's: that says nothing of the commit. */
static void tell_changes(struct loop *loop)
{
	const char *path = loop->session.workspace.fork_path;
	struct fork_state fork = {0};
	struct error err;

	if (fork_settled(path, &err) < 0 || fork_state_read(path, &fork, &err) < 0) {
		loop_tell_problem(loop, &err);
	} else if (fork.changed) {
		claim_refuse_changes(fork.changed_name, &err);
		loop_tell_problem(loop, &err);
	}
	if (!fork.changed)
		loop->head[0] = '\0'; /* HEAD is, or was, elsewhere: it is to be looked at anew */
	fork_state_free(&fork);
}

static void verify_ended(struct loop *loop, int status)
{
	cJSON *document = work_result(loop, "verify", status), *fields;
	bool passed;
	char *failed;

	rest(loop);
	if (!document)
		return;
	if (strcmp(text_of(document, "commit"), loop->head) != 0) {
		tell_changes(loop);
		cJSON_Delete(document);
		return;
	}
	passed = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(document, "passed"));
	fields = cJSON_CreateObject();
	cJSON_AddStringToObject(fields, "commit", loop->head);
	cJSON_AddBoolToObject(fields, "passed", passed);
	cJSON_AddNumberToObject(fields, "seconds", clock_uptime() - loop->work_began);
	failed = failed_checks(document, fields);
	if (!passed)
		cJSON_AddStringToObject(fields, "hint", "`quasar verify` shows what to do.");
	if (!passed)
		event_emit(&loop->events, "verify", fields, "commit %.10s %s: %s", loop->head,
			cJSON_GetArraySize(cJSON_GetObjectItem(fields, "failed")) ? "fails" : "was not run",
			failed);
	else
		event_emit(&loop->events, "verify", fields, "commit %.10s passes %s", loop->head,
			loop->rehearsal ? "the checks of its files; " CLAIM_REHEARSAL : "every check");
	free(failed);
	cJSON_Delete(document);
	if (!passed)
		return;
	memcpy(loop->verified, loop->head, sizeof(loop->verified));
	start_work(loop, STAGE_BENCHING);
}

static void copy_text(cJSON *to, const cJSON *from, const char *name)
{
	json_add_text(to, name, cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(from, name)));
}

static void bench_ended(struct loop *loop, int status)
{
	cJSON *document = work_result(loop, "bench", status), *fields;
	const cJSON *result;
	double tokens_per_sec = NAN;
	struct error ignored;

	rest(loop);
	if (!document)
		return;
	result = cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(document, "results"), 0);
	if (cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(result, "dirty"))) {
		tell_changes(loop);
		cJSON_Delete(document);
		return;
	}
	json_real(result, "tokens_per_sec", JSON_OPTIONAL, &tokens_per_sec, &ignored);
	fields = cJSON_Duplicate(result, true);
	if (fields) {
		cJSON_AddStringToObject(fields, "commit", loop->head);
		copy_text(fields, document, "device");
		copy_text(fields, document, "workload");
	}
	event_emit(&loop->events, "bench", fields, "%.0f tokens/s, commit %.10s%s", tokens_per_sec,
		loop->head, loop->rehearsal ? "; " CLAIM_REHEARSAL : "");
	cJSON_Delete(document);
	loop->stage = STAGE_COMMITTING;
	loop->next_commit = 0;
}

void loop_look_at_work(struct loop *loop)
{
	int status;

	if (!loop->work.pid || !process_ended(&loop->work, &status))
		return;
	if (loop->stage == STAGE_VERIFYING)
		verify_ended(loop, status);
	else
		bench_ended(loop, status);
}

/* When this round of the competition began; 0 where the validator cannot tell: then what was handed in before
 * counts, too. Where it tells only validators, what was handed in a round's time ago is of an earlier one. */
static int round_began(struct loop *loop, double *began, struct error *err)
{
	struct api *api = loop->session.api;
	struct api_round round;
	int result = api_current_round(api, &round, err);

	*began = result ? 0 : round.start_time;
	api_release(&round.memory);
	if (!result)
		return 0;
	if (api_last(api)->refusal == REFUSAL_NOT_FOR_US) {
		*began = api_now(api) - api_version(api)->round_seconds;
		return 0;
	}
	if (err->status == STATUS_INTERRUPTED || !api_last(api)->http_status)
		return -1;
	loop_outage(loop, PART_ROUND, 0, api_last(api)->refusal, err);
	return 0;
}

/* What was handed in for this hotkey, and not refused. */
static int read_submissions(struct loop *loop, struct submission_list *list, struct error *err)
{
	struct submission_filter filter = {
		.steps = ~(STEP_BIT(STEP_REFUSED) | STEP_BIT(STEP_ABANDONED)),
		.api_url = loop->session.workflow.api_url,
		.hotkey = loop->session.workflow.hotkey,
	};

	return store_submissions(loop->session.workspace.store, &filter, list, err);
}

/* Whether a validator was seen to find that it cannot win a place. The dashboard shows a hotkey's newest submissions
 * only. One that fell behind them unseen has been judged, if they have, for validators begin with the oldest; but
 * whether it won is not known. It counts as one that may: waiting costs a round at most, a second place may cost more
 * than half of the reward. It is seldom, for this loop itself sends nothing after one that may win. */
static bool is_judged_out(const struct submission *submission)
{
	return submission->score == 0;
}

/* Whether the earlier one cannot win a place, for a reason that does not hold for the new one. */
static bool is_no_rival(const struct submission *earlier, const struct plan *plan)
{
	if (!earlier->docker_image && plan->docker_image)
		return true;
	return is_judged_out(earlier) && strcmp(earlier->commit_hash, plan->commit_hash) != 0;
}

/* The submission that the next one has to beat: the latest of this round, for a round ranks only what was handed
 * in during it. `found` says whether there is one. */
static int last_submission(
	struct loop *loop, const struct plan *plan, bool *found, struct submission *last, struct error *err)
{
	struct submission_list list;
	double began;
	int64_t id = 0;

	*found = false;
	if (round_began(loop, &began, err) < 0 || read_submissions(loop, &list, err) < 0)
		return -1;
	for (size_t i = 0; i < list.count; i++)
		if (submission_came_at(&list.items[i]) >= began && !is_no_rival(&list.items[i], plan))
			id = list.items[i].id;
	submission_list_free(&list);
	*found = id != 0;
	return id ? store_submission_get(loop->session.workspace.store, id, last, err) : 0;
}

/* Is the proposal enough better than the last submission? Of the same commit only noise could differ, so
 * there the improvement has to be larger than the spread of its measurements, too. */
static int is_better(struct loop *loop, const struct proposal *proposal, bool *better, struct error *err)
{
	const struct plan *plan = &proposal->plan;
	double weighted = score_weighted(plan->tokens_per_sec, plan->target_sequence_length), before, improve;
	struct submission last;
	bool found;
	cJSON *fields;

	if (last_submission(loop, plan, &found, &last, err) < 0)
		return -1;
	*better = true;
	if (!found)
		return 0;
	before = score_weighted(last.tokens_per_sec, last.target_sequence_length);
	improve = loop->improve;
	if (!strcmp(last.commit_hash, plan->commit_hash) &&
		last.target_sequence_length == plan->target_sequence_length)
		improve = fmax(improve, proposal->claim.spread);
	*better = weighted > before * (1 + improve);
	submission_free(&last);
	if (*better)
		return 0;
	fields = cJSON_CreateObject();
	cJSON_AddStringToObject(fields, "commit", plan->commit_hash);
	cJSON_AddNumberToObject(fields, "weighted_score", weighted);
	cJSON_AddNumberToObject(fields, "last_weighted_score", before);
	cJSON_AddNumberToObject(fields, "needed", before * (1 + improve));
	event_emit(&loop->events, "kept", fields,
		"weighted score %.0f does not beat the last submission's %.0f by %.3g %%", weighted, before,
		improve * 100);
	return 0;
}

/* Where a hotkey that wins several places is paid for the lowest only, it competes with itself: what is better waits
 * until every round that an earlier one may win a place in is over. When one began is not known, but it lasts no
 * longer than its length from any submission to it. */
static int is_held(struct loop *loop, const struct proposal *proposal, bool *held, struct error *err)
{
	double length = proposal->version->round_seconds, until = -INFINITY;
	struct submission_list list;
	char time[32];
	cJSON *fields;

	*held = false;
	if (!proposal->version->pays_lowest)
		return 0;
	if (read_submissions(loop, &list, err) < 0)
		return -1;
	for (size_t i = 0; i < list.count; i++)
		if (list.items[i].docker_image && !is_judged_out(&list.items[i]))
			until = fmax(until, submission_came_at(&list.items[i]) + length);
	submission_list_free(&list);
	*held = until > api_now(loop->session.api);
	if (!*held || (until == loop->held_until && !strcmp(loop->held, proposal->plan.commit_hash)))
		return 0;
	loop->held_until = until;
	snprintf(loop->held, sizeof(loop->held), "%s", proposal->plan.commit_hash);
	clock_minute(until, time);
	fields = cJSON_CreateObject();
	cJSON_AddStringToObject(fields, "commit", proposal->plan.commit_hash);
	json_add_time(fields, "until", until);
	event_emit(&loop->events, "held", fields,
		"commit %.10s is held until %s UTC: if two submissions win in a round, this validator pays "
		"for the lower place only. `quasar commit --again` sends it now",
		proposal->plan.commit_hash, time);
	return 0;
}

static int is_worth_sending(
	struct loop *loop, const struct proposal *proposal, bool *worth, struct error *err)
{
	struct api_miner judged = {0};
	struct error unread; /* then what was seen before counts */
	bool held = false;
	int result;

	if (proposal->version->pays_lowest && api_has_dashboard(loop->session.api))
		workflow_dashboard(&loop->session.workflow, &judged, &unread);
	api_release(&judged.memory);
	result = is_better(loop, proposal, worth, err);
	if (!result && *worth)
		result = is_held(loop, proposal, &held, err);
	*worth &= !held;
	return result;
}

static void tell_concern(const struct error *concern, void *loop)
{
	loop_tell_problem(loop, concern);
}

/* A claim is made of what was verified; a commit that has come since has its own round. */
static bool has_moved(const struct loop *loop)
{
	struct error ignored;
	char head[41];

	return fork_head(loop->session.workspace.fork_path, head, &ignored) == 0 &&
		strcmp(head, loop->verified) != 0;
}

static int commit_proposal(struct loop *loop, const struct proposal *proposal, struct error *err)
{
	int64_t id = 0;
	bool worth = false;

	if (is_worth_sending(loop, proposal, &worth, err) < 0)
		return -1;
	if (!worth)
		return 0;
	proposal_concerns(proposal, tell_concern, loop);
	if (proposal_verify(loop->invocation, &loop->session, proposal, false, NULL, err) < 0)
		return has_moved(loop) ? 0 : -1;
	if (workflow_commit(&loop->session.workflow, &proposal->plan, &id, err) == 0) {
		loop_tell_submission(
			loop, "committed", id, NULL, proposal->claim.stands_in ? CLAIM_REHEARSAL : NULL);
		loop->poll = DUE_POLL_SHORTEST;
		loop->next_look = loop->next_standing = 0;
		return 0;
	}
	if (!id || !workflow_gave_up(&loop->session.workflow, id) ||
		loop_needs_a_person(api_last(loop->session.api)->refusal, err))
		return -1;
	memcpy(loop->refused, proposal->plan.commit_hash, sizeof(loop->refused));
	loop->refused_until = clock_uptime() + REFUSED_SECONDS;
	loop_tell_submission(loop, "refused", id, err, NULL);
	return 0;
}

/* What an earlier run, or attempt, left unfinished comes before anything new. */
static int settle_and_commit(struct loop *loop, bool commit, struct error *err)
{
	struct proposal proposal;
	size_t settled = 0;
	int result = session_settle(&loop->session, SUBMISSION_COMMIT, &settled, err);

	if (settled) {
		event_emit(&loop->events, "settled", NULL, "%zu earlier submission%s found or sent again",
			settled, settled == 1 ? "" : "s");
		loop->poll = DUE_POLL_SHORTEST;
		loop->next_look = 0;
	}
	if (result || !commit)
		return result;
	if (proposal_read(loop->invocation, &loop->session, 0, &proposal, err) < 0)
		return has_moved(loop) ? 0 : -1;
	if (!strcmp(proposal.plan.commit_hash, loop->verified))
		result = commit_proposal(loop, &proposal, err);
	proposal_free(&proposal);
	return result;
}

/* The validator's pause between two submissions is no fault of anybody's. Says once when it ends. */
static void wait_for_turn(struct loop *loop)
{
	double seconds = api_last(loop->session.api)->retry_after, until = clock_uptime() + seconds;
	bool told = fabs(until - loop->turn) < TURN_MARGIN;
	char text[32];
	cJSON *fields;

	loop->next_commit = loop->turn = until;
	if (told)
		return;
	clock_duration(ceil(seconds), text);
	fields = cJSON_CreateObject();
	cJSON_AddNumberToObject(fields, "seconds", seconds);
	event_emit(&loop->events, "waiting", fields,
		"the validator takes the next submission of this hotkey in %s", text);
}

/* It will pass, or somebody will mend it. -1: it cannot go on without a person, or was told to stop. */
static int commit_failed(struct loop *loop, struct error *err)
{
	enum refusal refusal = api_last(loop->session.api)->refusal;

	if (err->status == STATUS_INTERRUPTED || loop_needs_a_person(refusal, err))
		return -1;
	if (refusal == REFUSAL_COOLDOWN) {
		loop_answered(loop, PART_COMMIT, 0);
		wait_for_turn(loop);
	} else if (err->status == STATUS_NETWORK ||
		(err->status == STATUS_REFUSED && !refusal_is_clear(refusal))) {
		loop->next_commit = loop_outage(loop, PART_COMMIT, 0, refusal, err);
	} else {
		loop_tell_problem(loop, err); /* not pushed, a full disk */
		loop->next_commit = clock_uptime() + fmin(loop->interval, PAUSE_LONGEST);
	}
	return 0;
}

int loop_try_commit(struct loop *loop, struct error *err)
{
	bool commit = loop->stage == STAGE_COMMITTING;
	int turn, result = workspace_turn(loop->session.workspace.directory, 0, &turn, err);

	if (result) {
		if (result < 0)
			loop_tell_problem(loop, err);
		loop->next_commit = clock_uptime() + PAUSE_SHORTEST;
		return 0;
	}
	result = settle_and_commit(loop, commit, err);
	close(turn);
	if (result)
		return commit_failed(loop, err);
	loop_answered(loop, PART_COMMIT, 0);
	loop->next_commit = INFINITY;
	if (commit) { /* whatever kept the fork from it is over */
		loop->problem[0] = '\0';
		rest(loop);
	}
	return 0;
}

void loop_begin_round(struct loop *loop)
{
	const struct session *session = &loop->session;

	process_kill(&loop->work);
	loop->next_round = clock_uptime() + loop->interval;
	loop->rehearsal = command_rehearsal(loop->invocation, session->api, session->workspace.fork_path);
	if (!loop->head[0] || (!strcmp(loop->refused, loop->head) && clock_uptime() < loop->refused_until))
		rest(loop);
	else
		start_work(loop, strcmp(loop->verified, loop->head) ? STAGE_VERIFYING : STAGE_BENCHING);
}
