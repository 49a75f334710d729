/* run: a round of work: verify, bench, commit what is better. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "cli/proposal.h"
#include "cmd/run/run.h"
#include "score/score.h"
#include "space/due.h"

#define REFUSED_SECONDS 3600.0 /* until a commit whose submission was refused is tried once more */

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
		words[count++] = "1";
	}
	loop->stage = stage;
	loop->work_began = clock_elapsed();
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

static void verify_ended(struct loop *loop, int status)
{
	cJSON *document = work_result(loop, "verify", status), *fields;
	bool passed;
	char *failed;

	if (!document) {
		rest(loop);
		return;
	}
	passed = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(document, "passed"));
	fields = cJSON_CreateObject();
	cJSON_AddStringToObject(fields, "commit", loop->head);
	cJSON_AddBoolToObject(fields, "passed", passed);
	cJSON_AddNumberToObject(fields, "seconds", clock_elapsed() - loop->work_began);
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
	if (!passed) {
		rest(loop);
		return;
	}
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

	if (!document) {
		rest(loop);
		return;
	}
	result = cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(document, "results"), 0);
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
 * counts, too. */
static int round_began(struct loop *loop, double *began, struct error *err)
{
	struct api_round round;
	int result = api_current_round(loop->session.api, &round, err);

	*began = result ? 0 : round.start_time;
	api_release(&round.memory);
	if (!result)
		return 0;
	if (err->status == STATUS_INTERRUPTED || !api_last(loop->session.api)->http_status)
		return -1;
	loop_outage(loop, PART_ROUND, 0, api_last(loop->session.api)->refusal, err);
	return 0;
}

/* The submission that the next one has to beat: the latest of this round, for a round ranks only what was handed
 * in during it. `found` says whether there is one. */
static int last_submission(struct loop *loop, bool *found, struct submission *last, struct error *err)
{
	struct submission_filter filter = {
		.steps = ~(STEP_BIT(STEP_REFUSED) | STEP_BIT(STEP_ABANDONED)),
		.api_url = loop->session.workflow.api_url,
		.hotkey = loop->session.workflow.hotkey,
	};
	struct submission_list list;
	double began;
	int64_t id = 0;

	*found = false;
	if (round_began(loop, &began, err) < 0 ||
		store_submissions(loop->session.workspace.store, &filter, &list, err) < 0)
		return -1;
	for (size_t i = 0; i < list.count; i++)
		if (list.items[i].created_at >= began)
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

	if (last_submission(loop, &found, &last, err) < 0)
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

static int commit_proposal(struct loop *loop, const struct proposal *proposal, struct error *err)
{
	int64_t id = 0;
	bool better;

	/* a claim is made of what was verified; a commit that came since has its own round */
	if (strcmp(proposal->plan.commit_hash, loop->verified) != 0)
		return 0;
	if (is_better(loop, proposal, &better, err) < 0)
		return -1;
	if (!better)
		return 0;
	if (proposal_verify(loop->invocation, &loop->session, proposal, false, NULL, err) < 0)
		return -1;
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
	loop->refused_until = clock_elapsed() + REFUSED_SECONDS;
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
		return -1;
	result = commit_proposal(loop, &proposal, err);
	proposal_free(&proposal);
	return result;
}

/* It will pass, or somebody will mend it. -1: it cannot go on without a person, or was told to stop. */
static int commit_failed(struct loop *loop, struct error *err)
{
	enum refusal refusal = api_last(loop->session.api)->refusal;

	if (err->status == STATUS_INTERRUPTED || loop_needs_a_person(refusal, err))
		return -1;
	if (err->status == STATUS_NETWORK || (err->status == STATUS_REFUSED && !refusal_is_clear(refusal))) {
		loop->next_commit = loop_outage(loop, PART_COMMIT, 0, refusal, err);
	} else {
		loop_tell_problem(loop, err); /* not pushed, a full disk */
		loop->next_commit = clock_elapsed() + fmin(loop->interval, PAUSE_LONGEST);
	}
	return 0;
}

int loop_try_commit(struct loop *loop, struct error *err)
{
	bool commit = loop->stage == STAGE_COMMITTING;
	int result, turn;

	if (workspace_turn(loop->session.workspace.directory, 0, &turn, err) < 0) {
		loop_tell_problem(loop, err);
		loop->next_commit = clock_elapsed() + PAUSE_SHORTEST;
		return 0;
	}
	result = settle_and_commit(loop, commit, err);
	close(turn);
	if (result)
		return commit_failed(loop, err);
	loop_answered(loop, PART_COMMIT, 0);
	loop->next_commit = INFINITY;
	loop->problem[0] = '\0';
	if (commit)
		rest(loop);
	return 0;
}

void loop_begin_round(struct loop *loop)
{
	const struct session *session = &loop->session;

	process_kill(&loop->work);
	loop->next_round = clock_elapsed() + loop->interval;
	loop->rehearsal = command_rehearsal(loop->invocation, session->api, session->workspace.fork_path);
	if (!loop->head[0] || (!strcmp(loop->refused, loop->head) && clock_elapsed() < loop->refused_until))
		rest(loop);
	else
		start_work(loop, strcmp(loop->verified, loop->head) ? STAGE_VERIFYING : STAGE_BENCHING);
}
