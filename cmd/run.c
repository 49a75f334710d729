/* quasar run: the miner's loop, for a machine that is left alone.
 *
 * One thread waits for what comes first: a block, the interval, a new commit of the fork, a signal. What
 * computes for long (`quasar verify`, `quasar bench`) runs in a process of its own, so that a reveal is
 * never late for it and its memory goes with it. What must survive lies in the state store, and every step
 * starts from there: a loop that was killed goes on as if it had not been. */
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/standings.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/process.h"
#include "base/service.h"
#include "base/version.h"
#include "commands.h"
#include "connect.h"
#include "due.h"
#include "event.h"
#include "proposal.h"
#include "score/score.h"
#include "space/fork.h"

#define PAUSE_SHORTEST 1.0  /* s between two attempts at something that failed */
#define PAUSE_LONGEST 60.0
#define REFUSED_SECONDS 3600.0 /* until a commit whose submission was refused is tried once more */

/* Where a round of work stands. */
enum stage { STAGE_WAITING, STAGE_VERIFYING, STAGE_BENCHING, STAGE_COMMITTING };

struct loop {
	struct invocation *invocation;
	struct session session;
	struct event_log events;
	char **environment; /* of the processes that are started */
	double improve, interval;

	enum stage stage;
	struct process work; /* verify or bench */
	double work_began;
	char head[41];     /* the fork's commit that the round is about; "": none yet */
	char verified[41]; /* the commit that passed `quasar verify` last */
	char refused[41];  /* the commit whose submission the validator refused last */
	double refused_until;
	int watch;         /* readable when the fork's HEAD may have moved; -1: none */

	/* clock_elapsed() at which each is next to be done */
	double next_round, next_look, next_commit, next_standing;

	struct block_clock blocks;
	double poll;         /* longest pause between two looks at the validator's clock */
	double outage_began; /* clock_elapsed(); 0: the validator answers */
	double outage_pause;
	char problem[1024];  /* the last one told, so that it is not told again and again */
	int64_t round_number, rank_id;
	size_t rank;
};

/* --- what went wrong ------------------------------------------------------------------------------ */

static cJSON *error_fields(const struct error *err)
{
	cJSON *fields = cJSON_CreateObject();

	cJSON_AddStringToObject(fields, "kind", status_name(err->status));
	cJSON_AddStringToObject(fields, "hint", err->hint);
	return fields;
}

static void tell_problem(struct loop *loop, const struct error *err)
{
	if (!strcmp(loop->problem, err->message))
		return;
	snprintf(loop->problem, sizeof(loop->problem), "%s", err->message);
	event_emit(&loop->events, "problem", error_fields(err), "%s", err->message);
}

/* The validator did not answer as it should: that passes. Returns when to try again. */
static double outage(struct loop *loop, const struct error *err)
{
	double now = clock_elapsed();

	if (!loop->outage_began) {
		loop->outage_began = now;
		loop->outage_pause = PAUSE_SHORTEST;
		event_emit(&loop->events, "outage", error_fields(err), "%s", err->message);
	}
	loop->outage_pause = fmin(loop->outage_pause * 2, PAUSE_LONGEST);
	return now + loop->outage_pause / 2;
}

static void answered(struct loop *loop)
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

/* Banned, not registered, not who it says it is, or the wrong address: waiting does not help. */
static bool needs_a_person(const struct loop *loop, const struct error *err)
{
	const struct api_exchange *last = api_last(loop->session.api);

	if (err->status != STATUS_REFUSED)
		return false;
	return last->http_status < 400 || last->http_status == 401 || last->http_status == 403 ||
	       (last->http_status == 404 && strcasestr(last->detail, "not registered"));
}

/* --- reveals -------------------------------------------------------------------------------------- */

static void tell_submission(struct loop *loop, const char *name, int64_t id, const struct error *refusal)
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

/* A refused submission keeps its reason, and `quasar reveal ID` can still try it. */
static int refused(struct loop *loop, int64_t id, const struct error *err)
{
	struct error failure;

	if (store_submission_refused(loop->session.workspace.store, id, err->message, &failure) < 0)
		tell_problem(loop, &failure);
	tell_submission(loop, "refused", id, err);
	return 0;
}

/* -1: it cannot go on without a person, or was told to stop. */
static int reveal_one(struct loop *loop, const struct submission *submission, struct error *err)
{
	if (workflow_reveal(&loop->session.workflow, submission, err) == 0) {
		answered(loop);
		tell_submission(loop, "revealed", submission->id, NULL);
		loop->next_standing = 0;
		return 0;
	}
	if (err->status == STATUS_INTERRUPTED || needs_a_person(loop, err))
		return -1;
	if (err->status == STATUS_REFUSED)
		return refused(loop, submission->id, err);
	if (err->status == STATUS_NETWORK)
		loop->next_look = outage(loop, err);
	else if (err->status != STATUS_EARLY)
		tell_problem(loop, err);
	return 0;
}

/* Reveals what is ready, and finds out when to look again. */
static int reveal_list(struct loop *loop, const struct submission_list *list,
	const struct api_pending_reveals *pending, struct error *err)
{
	double now = clock_elapsed();

	loop->next_look = now + DUE_POLL_LONGEST;
	for (size_t i = 0; i < list->count; i++) {
		struct due due;

		if (due_read(&loop->session, &list->items[i], pending, &due, err) < 0)
			tell_problem(loop, err);
		if (due.ready && reveal_one(loop, &list->items[i], err) < 0)
			return -1;
		if (loop->outage_began)
			return 0;
		if (due.ready) /* whatever came of it, not before a moment has passed */
			loop->next_look = fmin(loop->next_look, now + PAUSE_SHORTEST);
		else
			loop->next_look = fmin(
				loop->next_look, now + due_pause(&due, &loop->blocks, loop->poll));
	}
	return 0;
}

static int reveal_due(struct loop *loop, struct error *err)
{
	struct submission_filter filter = {
		.steps = STEP_BIT(STEP_COMMITTED),
		.api_url = loop->session.workflow.api_url,
		.hotkey = loop->session.workflow.hotkey,
	};
	struct api_pending_reveals pending = {0};
	struct submission_list list;
	int result = 0;

	loop->next_look = clock_elapsed() + DUE_POLL_LONGEST;
	if (store_submissions(loop->session.workspace.store, &filter, &list, err) < 0) {
		tell_problem(loop, err);
		return 0;
	}
	if (!list.count) {
		loop->poll = DUE_POLL_SHORTEST;
	} else if (api_pending_reveals(loop->session.api, &pending, err) == 0) {
		answered(loop);
		block_clock_observe(&loop->blocks, pending.current_block, clock_elapsed());
		loop->poll = fmin(loop->poll * 2, DUE_POLL_LONGEST);
		result = reveal_list(loop, &list, &pending, err);
	} else if (err->status == STATUS_INTERRUPTED) {
		result = -1;
	} else {
		loop->next_look = outage(loop, err);
	}
	api_release(&pending.memory);
	submission_list_free(&list);
	return result;
}

/* --- rank and round ------------------------------------------------------------------------------- */

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
	event_emit(&loop->events, "round", fields, "round %lld, %s left", (long long)round->round_number, left);
}

static int look_at_standings(struct loop *loop, struct error *err)
{
	struct standings standings = {0};
	struct api_round round = {0};
	int result = 0;

	loop->next_standing = clock_elapsed() + fmin(loop->interval, PAUSE_LONGEST);
	if (standings_read(loop->session.api, &standings, err) == 0 &&
		api_current_round(loop->session.api, &round, err) == 0) {
		answered(loop);
		tell_round(loop, &round);
		tell_rank(loop, &standings);
	} else if (err->status == STATUS_INTERRUPTED) {
		result = -1;
	} else {
		loop->next_standing = outage(loop, err);
	}
	standings_free(&standings);
	api_release(&round.memory);
	return result;
}

/* --- a round of work: verify, bench, commit ------------------------------------------------------- */

static void rest(struct loop *loop)
{
	loop->stage = STAGE_WAITING;
}

/* Starts a subcommand of this program in the workspace. */
static void start_work(struct loop *loop, enum stage stage)
{
	const char *seq = arg_given(loop->invocation, "seq") ? arg_string(loop->invocation, "seq") : NULL;
	const char *directory = loop->invocation->workspace;
	/* what verify measures besides is not needed here: little time for that */
	const char *verify[] = {"/proc/self/exe", "verify", "--json", "-q", "-C", directory, "--budget", "1", NULL};
	const char *bench[] = {"/proc/self/exe", "bench", "--json", "-q", "-C", directory, seq ? "--seq" : NULL,
		seq, NULL};
	const char *const *argv = stage == STAGE_VERIFYING ? verify : bench;
	struct error err;

	loop->stage = stage;
	loop->work_began = clock_elapsed();
	if (process_start(&loop->work, argv, loop->environment, "", &err) == 0)
		return;
	tell_problem(loop, &err);
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
	error_set(&err, STATUS_ENVIRONMENT, "quasar %s: %s", what, message ? message : "it ended without a result");
	if (!message)
		error_hint(&err, "Exit code %d; run `quasar %s` by hand to see why.", status, what);
	else if (hint)
		error_hint(&err, "%s", hint);
	tell_problem(loop, &err);
	cJSON_Delete(document);
	return NULL;
}

static void verify_ended(struct loop *loop, int status)
{
	cJSON *document = work_result(loop, "verify", status), *fields, *failed;
	const cJSON *check, *checks;
	bool passed = false;

	if (!document) {
		rest(loop);
		return;
	}
	checks = cJSON_GetObjectItemCaseSensitive(document, "checks");
	passed = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(document, "passed"));
	fields = cJSON_CreateObject();
	cJSON_AddStringToObject(fields, "commit", loop->head);
	cJSON_AddBoolToObject(fields, "passed", passed);
	cJSON_AddNumberToObject(fields, "seconds", clock_elapsed() - loop->work_began);
	failed = cJSON_AddArrayToObject(fields, "failed");
	cJSON_ArrayForEach(check, checks)
	{
		const char *result = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(check, "status"));

		if (result && !strcmp(result, "fail"))
			cJSON_AddItemToArray(failed, cJSON_Duplicate(check, true));
	}
	event_emit(&loop->events, "verify", fields, "commit %.10s %s", loop->head,
		passed ? "passes every check" : "fails: see `quasar verify`");
	cJSON_Delete(document);
	if (!passed) {
		rest(loop);
		return;
	}
	memcpy(loop->verified, loop->head, sizeof(loop->verified));
	start_work(loop, STAGE_BENCHING);
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
	if (fields)
		cJSON_AddStringToObject(fields, "commit", loop->head);
	event_emit(&loop->events, "bench", fields, "%.0f tokens/s, commit %.10s", tokens_per_sec, loop->head);
	cJSON_Delete(document);
	loop->stage = STAGE_COMMITTING;
	loop->next_commit = 0;
}

static void look_at_work(struct loop *loop)
{
	int status;

	if (!loop->work.pid || !process_ended(&loop->work, &status))
		return;
	if (loop->stage == STAGE_VERIFYING)
		verify_ended(loop, status);
	else
		bench_ended(loop, status);
}

/* The submission that the next one has to beat: the latest of this round of the competition, for a round
 * ranks only what was handed in during it. `found` says whether there is one. */
static int last_submission(struct loop *loop, bool *found, struct submission *last, struct error *err)
{
	struct submission_filter filter = {
		.steps = ~(STEP_BIT(STEP_REFUSED) | STEP_BIT(STEP_ABANDONED)),
		.api_url = loop->session.workflow.api_url,
		.hotkey = loop->session.workflow.hotkey,
	};
	struct submission_list list;
	struct api_round round;
	double began;
	int64_t id = 0;
	int result = api_current_round(loop->session.api, &round, err);

	*found = false;
	began = result ? 0 : round.start_time - api_clock_skew(loop->session.api);
	api_release(&round.memory);
	if (result || store_submissions(loop->session.workspace.store, &filter, &list, err) < 0)
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
	answered(loop);
	*better = true;
	if (!found)
		return 0;
	before = score_weighted(last.tokens_per_sec, last.target_sequence_length);
	improve = loop->improve;
	if (!strcmp(last.commit_hash, plan->commit_hash) &&
		last.target_sequence_length == plan->target_sequence_length)
		improve = fmax(improve, proposal->spread);
	*better = weighted > before * (1 + improve);
	submission_free(&last);
	if (*better)
		return 0;
	fields = cJSON_CreateObject();
	cJSON_AddStringToObject(fields, "commit", plan->commit_hash);
	cJSON_AddNumberToObject(fields, "weighted_score", weighted);
	cJSON_AddNumberToObject(fields, "last_weighted_score", before);
	cJSON_AddNumberToObject(fields, "needed", before * (1 + improve));
	event_emit(&loop->events, "kept", fields, "%.0f weighted is no %.3g %% more than the last submission's %.0f",
		weighted, improve * 100, before);
	return 0;
}

static int commit_proposal(struct loop *loop, const struct proposal *proposal, struct error *err)
{
	int64_t id = 0;
	bool better;

	if (is_better(loop, proposal, &better, err) < 0)
		return -1;
	if (!better)
		return 0;
	if (proposal_verify(loop->invocation, &loop->session, proposal, false, err) < 0)
		return -1;
	if (workflow_commit(&loop->session.workflow, &proposal->plan, &id, err) == 0) {
		tell_submission(loop, "committed", id, NULL);
		loop->poll = DUE_POLL_SHORTEST;
		loop->next_look = loop->next_standing = 0;
		return 0;
	}
	if (err->status != STATUS_REFUSED || needs_a_person(loop, err))
		return -1;
	memcpy(loop->refused, proposal->plan.commit_hash, sizeof(loop->refused));
	loop->refused_until = clock_elapsed() + REFUSED_SECONDS;
	tell_submission(loop, "refused", id, err);
	return 0;
}

/* What an earlier run, or attempt, left unfinished comes before anything new. */
static int settle_and_commit(struct loop *loop, bool commit, struct error *err)
{
	struct proposal proposal;
	size_t settled = 0;
	int result = session_settle(&loop->session, SUBMISSION_COMMIT, &settled, err);

	if (settled) {
		event_emit(&loop->events, "settled", NULL, "%zu earlier submission%s found or sent again", settled,
			settled == 1 ? "" : "s");
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
	if (err->status == STATUS_INTERRUPTED || needs_a_person(loop, err))
		return -1;
	if (err->status == STATUS_NETWORK) {
		loop->next_commit = outage(loop, err);
	} else {
		tell_problem(loop, err); /* not pushed, a full disk */
		loop->next_commit = clock_elapsed() + fmin(loop->interval, PAUSE_LONGEST);
	}
	return 0;
}

static int try_commit(struct loop *loop, struct error *err)
{
	bool commit = loop->stage == STAGE_COMMITTING;
	int result, turn;

	if (workspace_turn(loop->session.workspace.directory, 0, &turn, err) < 0) {
		tell_problem(loop, err);
		loop->next_commit = clock_elapsed() + PAUSE_SHORTEST;
		return 0;
	}
	result = settle_and_commit(loop, commit, err);
	close(turn);
	if (result)
		return commit_failed(loop, err);
	loop->next_commit = INFINITY;
	loop->problem[0] = '\0';
	if (commit)
		rest(loop);
	return 0;
}

static void begin_round(struct loop *loop)
{
	process_kill(&loop->work);
	loop->next_round = clock_elapsed() + loop->interval;
	if (!loop->head[0] || (!strcmp(loop->refused, loop->head) && clock_elapsed() < loop->refused_until))
		rest(loop);
	else
		start_work(loop, strcmp(loop->verified, loop->head) ? STAGE_VERIFYING : STAGE_BENCHING);
}

/* --- the fork, the settings ----------------------------------------------------------------------- */

static void look_at_fork(struct loop *loop)
{
	const char *path = loop->session.workspace.fork_path;
	struct error err;
	char head[41];
	cJSON *fields;

	if (loop->watch >= 0)
		close(loop->watch);
	loop->watch = fork_watch(path); /* before looking, so that nothing slips between */
	if (fork_head(path, head, &err) < 0) {
		tell_problem(loop, &err);
		return;
	}
	if (!strcmp(head, loop->head))
		return;
	memcpy(loop->head, head, sizeof(head));
	fields = cJSON_CreateObject();
	cJSON_AddStringToObject(fields, "commit", head);
	event_emit(&loop->events, "fork", fields, "the fork is at commit %.10s", head);
	begin_round(loop);
}

static bool same_setting(const struct settings *a, const struct settings *b, const char *name)
{
	const char *x = settings_get(a, name, NULL), *y = settings_get(b, name, NULL);

	return x == y || (x && y && !strcmp(x, y));
}

static int read_options(struct loop *loop, struct error *err)
{
	if (arg_real(loop->invocation, "improve", -1, 1000, &loop->improve, err) < 0)
		return -1;
	return arg_real(loop->invocation, "interval", 0.1, 1e7, &loop->interval, err);
}

/* Opens the session anew under other settings; the hotkey only if it may be another one, for its password
 * may have been typed in. */
static int reopen(struct loop *loop, const struct settings *before, struct error *err)
{
	static const char *const names[] = {
		"WALLET_MINER_NAME", "WALLET_HOTKEY", "BT_WALLET_PATH", "WALLET_PASSWORD"};
	struct session session;
	bool same = true;

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		same &= same_setting(before, loop->invocation->settings, names[i]);
	if (read_options(loop, err) < 0)
		return -1;
	if ((same ? session_open_as(loop->invocation, loop->session.keypair, &session, err)
		  : session_open(loop->invocation, &session, err)) < 0)
		return -1;
	if (same)
		loop->session.keypair = NULL;
	session_close(&loop->session);
	loop->session = session;
	return 0;
}

static void reread(struct loop *loop)
{
	struct settings *before = loop->invocation->settings;
	struct error err, ignored;
	struct settings *fresh = settings_load(loop->invocation->workspace, &err);

	if (fresh) {
		loop->invocation->settings = fresh;
		if (reopen(loop, before, &err) == 0) {
			settings_free(before);
			event_emit(&loop->events, "settings", NULL, "read .env again");
			loop->verified[0] = loop->refused[0] = loop->problem[0] = '\0';
			loop->next_look = loop->next_standing = 0;
			look_at_fork(loop);
			begin_round(loop);
			return;
		}
		loop->invocation->settings = before;
		settings_free(fresh);
		read_options(loop, &ignored); /* they were good before */
	}
	event_emit(&loop->events, "problem", error_fields(&err), "kept the old settings: %s", err.message);
}

/* --- the loop ------------------------------------------------------------------------------------- */

/* Does whatever is due. -1 ends the loop. */
static int turn(struct loop *loop, struct error *err)
{
	double now = clock_elapsed();

	event_turn(&loop->events);
	if (hangup_taken())
		reread(loop);
	if (now >= loop->next_look && reveal_due(loop, err) < 0)
		return -1;
	look_at_work(loop);
	if (loop->stage == STAGE_WAITING && now >= loop->next_round) {
		look_at_fork(loop);
		if (loop->stage == STAGE_WAITING)
			begin_round(loop);
	}
	if (now >= loop->next_commit && try_commit(loop, err) < 0)
		return -1;
	if (now >= loop->next_standing && look_at_standings(loop, err) < 0)
		return -1;
	service_notify(SERVICE_ALIVE);
	return 0;
}

/* Seconds until something is due. */
static double pause_length(const struct loop *loop)
{
	double next = fmin(fmin(loop->next_look, loop->next_standing), loop->next_commit);

	if (loop->stage == STAGE_WAITING)
		next = fmin(next, loop->next_round);
	next = fmin(next - clock_elapsed(), event_pause(&loop->events));
	if (service_watchdog() > 0)
		next = fmin(next, service_watchdog() / 2);
	return fmax(next, 0);
}

static int wait(struct loop *loop, struct error *err)
{
	struct pollfd fds[] = {
		{.fd = loop->watch, .events = POLLIN},
		{.fd = loop->work.pid ? loop->work.output : -1, .events = POLLIN},
		{.fd = loop->events.process.pid ? loop->events.process.output : -1, .events = POLLIN},
	};

	if (clock_poll(fds, sizeof(fds) / sizeof(*fds), pause_length(loop), err) < 0)
		return -1;
	if (fds[0].revents)
		look_at_fork(loop);
	return 0;
}

static void announce(struct loop *loop)
{
	cJSON *fields = cJSON_CreateObject();

	cJSON_AddStringToObject(fields, "workspace", loop->session.workspace.directory);
	cJSON_AddStringToObject(fields, "hotkey", loop->session.workflow.hotkey);
	cJSON_AddStringToObject(fields, "api", loop->session.workflow.api_url);
	cJSON_AddNumberToObject(fields, "pid", getpid());
	cJSON_AddNumberToObject(fields, "interval", loop->interval);
	cJSON_AddStringToObject(fields, "version", QUASAR_VERSION);
	event_emit(&loop->events, "started", fields, "mining in %s for %s", loop->session.workspace.directory,
		loop->session.workflow.api_url);
}

/* To be told to stop is no failure; anything else that ends the loop needs a person. */
static int stopped(struct loop *loop, struct error *err)
{
	bool asked = err->status == STATUS_INTERRUPTED;
	cJSON *fields = asked ? cJSON_CreateObject() : error_fields(err);

	cJSON_AddNumberToObject(fields, "exit", asked ? STATUS_OK : err->status);
	service_notify(SERVICE_STOPPING);
	event_emit(&loop->events, "stopped", fields, "%s", asked ? "asked to stop" : err->message);
	return asked ? 0 : -1;
}

static int loop_run(struct loop *loop, struct error *err)
{
	hangup_install();
	signal(SIGPIPE, SIG_IGN); /* a log that nobody reads any more must not end the miner */
	announce(loop);
	service_notify(SERVICE_READY);
	look_at_fork(loop);
	while (turn(loop, err) == 0 && wait(loop, err) == 0)
		;
	return stopped(loop, err);
}

static int run(struct invocation *invocation, struct error *err)
{
	struct loop loop = {.invocation = invocation, .watch = -1, .poll = DUE_POLL_SHORTEST};
	const char *directory = require_workspace(invocation, err);
	int lock, result;

	service_begin();
	if (!directory || read_options(&loop, err) < 0)
		return -1;
	if (workspace_lock(directory, &lock, err) < 0)
		return error_hint(err, "One loop a workspace: `quasar status` shows where it stands.");
	result = session_open(invocation, &loop.session, err);
	if (!result) {
		loop.environment = settings_environment();
		loop.events = (struct event_log){
			.text = !invocation->json && !strcmp(arg_string(invocation, "log"), "text"),
			.command = arg_string(invocation, "notify"),
			.environment = loop.environment,
		};
		result = loop_run(&loop, err);
		process_kill(&loop.work);
		event_close(&loop.events);
		session_close(&loop.session);
		free(loop.environment);
	}
	if (loop.watch >= 0)
		close(loop.watch);
	close(lock);
	return result;
}

const struct command cmd_run = {
	.name = "run",
	.summary = "mine unattended: verify, bench, commit what is better, reveal, again",
	.description =
		"The loop for a machine that is left alone, under pm2, systemd or screen. It checks and measures "
		"the fork's HEAD at the start, at once when HEAD moves, and every OPTIMIZATION_INTERVAL seconds; "
		"commits when the weighted score of the claim beats that of the last submission of this round "
		"by --improve; reveals each commitment when its block is reached, also while something is "
		"measured; and follows rank and round. A further submission of the same commit must also beat "
		"the spread of its measurements, so that noise is not submitted.\n\n"
		"Each event is a line of JSON on stdout, with time, event, message and details: started, fork, "
		"verify, bench, kept, committed, settled, revealed, refused, rank, round, outage, recovered, "
		"problem, settings, stopped. With --notify a command gets the same line on its stdin, the "
		"event's name in QUASAR_EVENT and the sentence in QUASAR_MESSAGE; it has 30 seconds.\n\n"
		"Outages of the validator and full disks are waited through. Whatever ends the process, a new one "
		"goes on from the state store. A second loop in a workspace refuses and names the first; "
		"other commands may be used beside it.\n\n"
		"SIGTERM and SIGINT end it with exit code 0. SIGHUP reads .env again. It ends by itself only when "
		"a person is needed: 3 when wallet or workspace cannot be used, 5 when the validator refuses this "
		"miner (banned, not registered). Under systemd it reports its state and feeds the watchdog.",
	.opts =
		(const struct opt[]){
			{"improve", 0, "PERCENT", NULL, "1%", NULL,
				"What a weighted score must be above the last one; -100%: commit every new HEAD."},
			{"interval", 0, "SECONDS", "OPTIMIZATION_INTERVAL", NULL, NULL,
				"Pause between two rounds of work."},
			{"notify", 0, "CMD", NULL, NULL, NULL, "Run CMD in a shell for each event."},
			{"log", 0, "FORMAT", NULL, "json", "json|text", "Lines for programs or for people."},
			OPTS_CLAIM,
			OPTS_WALLET,
			{"api", 0, "URL", "VALIDATOR_API_URL", NULL, NULL, "Base URL of the validator API."},
			{"timeout", 0, "SECONDS", NULL, "60", NULL,
				"Longest time for one step at the validator; what did not succeed is tried later."},
			{0},
		},
	.examples =
		(const struct example[]){
			{"quasar run", "mine in this workspace until told to stop"},
			{"quasar run --log text --improve 2%", "lines for people; commit what is 2 % better"},
			{"quasar run --notify 'jq -r .message | mail -s \"quasar: $QUASAR_EVENT\" me'",
				"mail for each event"},
			{"quasar run --notify '[ \"$QUASAR_EVENT\" != revealed ] || touch /tmp/revealed'",
				"act on one kind of event"},
			{"kill -HUP $(systemctl --user show -P MainPID quasar-miner)", "read .env again"},
			{0},
		},
	.exits = (const enum status[]){STATUS_ENVIRONMENT, STATUS_REFUSED, 0},
	.run = run,
};
