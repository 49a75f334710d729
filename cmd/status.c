/* quasar status: where each submission of the workspace stands. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/block.h"
#include "api/standings.h"
#include "api/version.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/layout.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/terminal.h"
#include "cli/page.h"
#include "cli/session.h"
#include "cli/table.h"
#include "cmd/commands.h"
#include "score/score.h"
#include "space/due.h"
#include "space/hidden.h"

#define REST_SECONDS 10.0 /* for what is good to know besides the commitments */
#define LOOK_SECONDS 5.0  /* that a look at the validator may take at the least */
#define FIELD 11          /* the column where a field's value begins */
#define ROOMY 10          /* rows of a page, from which on there is room for what never changes */

/* What the validator told at one moment. The parts fail independently of each other. */
struct report {
	double time, elapsed; /* Unix time and clock_uptime() then; 0 and since when none has come yet */
	bool has_pending, has_standings, has_round;
	struct api_pending_reveals pending;
	struct standings standings;
	struct api_round round;
	size_t unknown; /* of the hotkey at the validator, but not in the store */

	/* of versions that show miners no lists: it answers, and what the dashboard has, where there is a key */
	bool answers, has_miner;
	struct api_miner miner;
};

/* What the store and the validator know. Zero-initialised. */
struct overview {
	struct submission_list submissions;
	struct report report;              /* the latest that came */
	bool online;                       /* it came when the validator was last asked */
	const struct api_version *version; /* of the validator, as far as is known; NULL: not yet */
	bool hidden;                       /* it shows miners no lists */
	struct error problem;              /* why it, or a part of it, did not; STATUS_OK: all came */
	struct block_clock blocks;
	struct elsewhere {
		size_t count; /* submissions of the workspace at another validator, or by another hotkey */
		char *api_url, *hotkey; /* of the latest */
	} elsewhere;
};

/* Made in another workspace, doubled on the way, or lost here. */
static size_t count_unknown(struct session *session, const struct report *report)
{
	const struct api_submission_stats *stats = &report->standings.stats;
	size_t count = 0;

	for (size_t i = 0; i < report->pending.count; i++)
		count += workflow_lacks_commitment(&session->workflow, &report->pending.reveals[i]);
	for (size_t i = 0; i < stats->recent_count; i++)
		count += stats->recent[i].fork_url && /* unrevealed ones were counted above */
			!strcmp(stats->recent[i].miner_hotkey, session->workflow.hotkey) &&
			!workflow_knows_submission(&session->workflow, stats->recent[i].id);
	return count;
}

static void report_free(struct report *report)
{
	api_release(&report->pending.memory);
	api_release(&report->round.memory);
	api_release(&report->miner.memory);
	standings_free(&report->standings);
}

/* One part of a report. True when it came; else the first reason is kept. */
static bool came(int result, const struct error *err, struct error *problem)
{
	if (result && (!problem->status || err->status == STATUS_INTERRUPTED))
		*problem = *err;
	return !result;
}

/* Where miners see no lists: whether the validator answers, and what its dashboard shows. */
static void read_hidden(struct session *session, struct report *report, struct error *problem)
{
	struct error err;

	report->answers = came(api_health(session->api, &err), &err, problem);
	if (!report->answers || !api_has_dashboard(session->api))
		return;
	report->has_miner = workflow_dashboard(&session->workflow, &report->miner, &err) == 0;
	if (api_last(session->api)->refusal != REFUSAL_UNKNOWN)
		came(report->has_miner ? 0 : -1, &err, problem);
}

/* What anybody is shown. */
static void read_lists(struct session *session, const struct submission_list *stored, struct report *report,
	struct error *problem)
{
	double timeout = session->workflow.timeout;
	struct error err;

	report->has_pending = came(
		workflow_pending(&session->workflow, &report->pending, &err), &err, problem);
	/* without a connection the next would only be waited for in vain, too */
	if (report->has_pending ||
		(api_last(session->api)->http_status && problem->status != STATUS_INTERRUPTED)) {
		api_set_timeout(session->api, fmin(timeout, REST_SECONDS));
		report->has_standings = came(
			standings_read(session->api, &report->standings, &err), &err, problem);
		report->has_round = came(
			api_current_round(session->api, &report->round, &err), &err, problem);
	}
	if (report->has_pending)
		workflow_mark_forgotten(&session->workflow, stored, &report->pending,
			report->has_standings ? &report->standings.stats : NULL,
			report->has_round ? &report->round : NULL);
	report->unknown = count_unknown(session, report);
}

/* Takes what comes; `problem` says what kept the rest away. `stored`: the submissions that the store has now. Free
 * with report_free. */
static void report_read(struct session *session, const struct submission_list *stored, struct report *report,
	struct error *problem)
{
	*report = (struct report){.time = clock_now()};
	*problem = (struct error){0};
	api_set_timeout(session->api, session->workflow.timeout);
	if (api_shows_lists(session->api))
		read_lists(session, stored, report, problem);
	if (!api_shows_lists(session->api)) { /* perhaps since just now */
		*problem = (struct error){0};
		read_hidden(session, report, problem);
	}
	report->elapsed = clock_uptime();
}

static void elsewhere_free(struct elsewhere *elsewhere)
{
	free(elsewhere->api_url);
	free(elsewhere->hotkey);
	*elsewhere = (struct elsewhere){0};
}

static int elsewhere_read(struct session *session, struct elsewhere *elsewhere, struct error *err)
{
	const struct workflow *workflow = &session->workflow;
	struct submission_list all;
	size_t latest = 0;

	elsewhere_free(elsewhere);
	if (store_submissions(session->workspace.store, NULL, &all, err) < 0)
		return -1;
	for (size_t i = 0; i < all.count; i++) {
		if (!strcmp(all.items[i].api_url, workflow->api_url) &&
			!strcmp(all.items[i].hotkey, workflow->hotkey))
			continue;
		elsewhere->count++;
		latest = i;
	}
	if (elsewhere->count) {
		elsewhere->api_url = xstrdup(all.items[latest].api_url);
		elsewhere->hotkey = xstrdup(all.items[latest].hotkey);
	}
	submission_list_free(&all);
	return 0;
}

static int submissions_read(struct session *session, struct overview *overview, struct error *err)
{
	struct submission_filter filter = {
		.api_url = session->workflow.api_url, .hotkey = session->workflow.hotkey};
	struct submission_list list;

	if (store_submissions(session->workspace.store, &filter, &list, err) < 0)
		return -1;
	submission_list_free(&overview->submissions);
	overview->submissions = list;
	return elsewhere_read(session, &overview->elsewhere, err);
}

/* Brings it up to date. The store's part is needed; a validator that does not answer is only noted, and what
 * it told before stays. */
static int overview_read(struct session *session, struct overview *overview, struct error *err)
{
	struct report report;

	/* the page shows it while the validator is waited for */
	if (submissions_read(session, overview, err) < 0)
		return -1;
	report_read(session, &overview->submissions, &report, &overview->problem);
	overview->version = api_version(session->api);
	overview->hidden = !api_shows_lists(session->api);
	overview->online = report.has_pending || report.has_standings || report.has_round || report.answers;
	if (!overview->online || overview->problem.status == STATUS_INTERRUPTED) {
		report_free(&report);
		*err = overview->problem;
		return err->status == STATUS_INTERRUPTED ? -1 : 0;
	}
	report_free(&overview->report);
	overview->report = report;
	if (report.has_pending)
		block_clock_observe(&overview->blocks, report.pending.current_block, report.elapsed);
	return submissions_read(session, overview, err); /* what the validator told may have changed them */
}

static void overview_free(struct overview *overview)
{
	submission_list_free(&overview->submissions);
	elsewhere_free(&overview->elsewhere);
	report_free(&overview->report);
}

/* Blocks until a commitment can be revealed, when the validator was last asked; -1 when that is not the
 * question or not known. */
static int64_t blocks_left(const struct overview *overview, const struct submission *submission)
{
	int64_t left = submission->reveal_block - overview->report.pending.current_block;

	if (submission->step != STEP_COMMITTED || !overview->report.has_pending)
		return -1;
	return left > 0 ? left : 0;
}

/* From 1; 0 when it does not rank. */
static size_t rank(const struct overview *overview, const struct submission *submission)
{
	return submission->server_id ? standings_rank(&overview->report.standings, submission->server_id) : 0;
}

/* Marked as judged by a validator that could not see it yet. */
static bool was_judged_hidden(const struct overview *overview, const struct submission *submission)
{
	const struct report *report = &overview->report;

	return submission->step == STEP_COMMITTED &&
		hidden_was_judged(&report->pending, &report->standings.stats, submission->server_id);
}

/* A submission on the dashboard, or NULL. */
static const struct api_own_submission *on_dashboard(
	const struct overview *overview, const struct submission *submission)
{
	const struct api_miner *miner = &overview->report.miner;

	for (size_t i = 0; submission->server_id && i < miner->count; i++)
		if (miner->submissions[i].id == submission->server_id)
			return &miner->submissions[i];
	return NULL;
}

static cJSON *overview_json(const struct session *session, const struct overview *overview)
{
	cJSON *document = cJSON_CreateObject(), *list;
	const struct report *report = &overview->report;
	bool online = overview->online;

	cJSON_AddStringToObject(document, "workspace", session->workspace.directory);
	cJSON_AddStringToObject(document, "api", session->workflow.api_url);
	cJSON_AddStringToObject(document, "hotkey", session->workflow.hotkey);
	cJSON_AddStringToObject(document, "api_version", overview->version->name);
	cJSON_AddBoolToObject(document, "lists_shown", !overview->hidden);
	cJSON_AddBoolToObject(document, "online", online);
	json_add_text(document, "problem", overview->problem.status ? overview->problem.message : NULL);
	if (online && report->has_pending)
		cJSON_AddNumberToObject(document, "current_block", (double)report->pending.current_block);
	if (online && report->has_round)
		cJSON_AddNumberToObject(
			document, "round_seconds_left", (double)report->round.time_remaining_seconds);
	if (online) {
		cJSON_AddNumberToObject(document, "unknown_here", (double)report->unknown);
		cJSON_AddNumberToObject(document, "skipped_rows",
			(double)(report->pending.skipped + report->standings.stats.skipped));
	}
	cJSON_AddNumberToObject(document, "elsewhere", (double)overview->elsewhere.count);
	list = cJSON_AddArrayToObject(document, "submissions");
	for (size_t i = 0; i < overview->submissions.count; i++) {
		const struct submission *submission = &overview->submissions.items[i];
		cJSON *item = submission_json(submission);
		int64_t left = online ? blocks_left(overview, submission) : -1;
		size_t place = online ? rank(overview, submission) : 0;
		const struct api_own_submission *own = on_dashboard(overview, submission);

		json_add_real(item, "blocks_remaining", left < 0 ? NAN : (double)left);
		json_add_id(item, "rank", (int64_t)place);
		json_add_real(item, "validated_tokens_per_sec", own ? own->validated_tokens_per_sec : NAN);
		cJSON_AddBoolToObject(item, "judged_unrevealed", was_judged_hidden(overview, submission));
		cJSON_AddItemToArray(list, item);
	}
	return document;
}

/* When a commitment can be revealed, as far as is known by now. */
static void describe_wait(const struct session *session, const struct overview *overview,
	const struct submission *submission, char text[96])
{
	char wait[64], block[48];

	number_grouped((double)submission->reveal_block, block);
	if (!overview->blocks.last) {
		due_describe_left(&session->workflow, submission, &overview->blocks, wait);
		if (wait[0])
			snprintf(text, 96, "reveal %s", wait);
		else if (isnan(submission->reveal_time))
			snprintf(text, 96, "reveal at block %s", block);
		else
			snprintf(text, 96, "ready: run `quasar reveal`");
	} else if (block_clock_until(&overview->blocks, submission->reveal_block, clock_uptime()) > 0) {
		due_describe(&overview->blocks, submission->reveal_block, wait);
		snprintf(text, 96, "reveal %s", wait);
	} else if (overview->report.has_pending && !overview->report.pending.skipped &&
		!workflow_listed(&overview->report.pending, submission)) {
		snprintf(text, 96, "not listed by the validator: run `quasar reveal`");
	} else {
		snprintf(text, 96, "ready: run `quasar reveal`");
	}
}

/* What is known in the place of a rank. */
static void describe_unranked(
	const struct overview *overview, const struct submission *submission, char text[96])
{
	const struct api_submission_stats *stats = &overview->report.standings.stats;
	const struct api_own_submission *own = on_dashboard(overview, submission);
	char speed[48];

	if (submission->score == 0) {
		snprintf(text, 96, "score 0: it wins no place");
		return;
	}
	if (own && !isnan(own->validated_tokens_per_sec)) {
		number_grouped(own->validated_tokens_per_sec, speed);
		snprintf(text, 96, "measured: %s, normalised", speed);
		return;
	}
	if (own || overview->hidden) {
		snprintf(text, 96, own ? "not measured yet" : "rank not shown to miners");
		return;
	}
	snprintf(text, 96, "%s",
		overview->report.has_standings     ? "rank unknown: the validator shows only the ten fastest"
			: overview->problem.status ? "rank unknown: the validator's list cannot be read"
						   : "asking the validator for the rank");
	for (size_t i = 0; i < stats->recent_count; i++)
		if (stats->recent[i].id == submission->server_id)
			snprintf(text, 96, "no rank yet");
}

/* What a person should know or do about a submission. */
static void describe(const struct session *session, const struct overview *overview,
	const struct submission *submission, char text[96])
{
	size_t place = rank(overview, submission);

	switch (submission->step) {
	case STEP_PREPARED:
		snprintf(text, 96, "may not have arrived: run `quasar %s` again",
			submission->kind == SUBMISSION_COMMIT ? "commit" : "submit");
		break;
	case STEP_COMMITTED:
		describe_wait(session, overview, submission, text);
		break;
	case STEP_REVEALED:
	case STEP_SUBMITTED:
		if (place)
			snprintf(text, 96, "rank %zu", place);
		else
			describe_unranked(overview, submission, text);
		break;
	case STEP_REFUSED:
	case STEP_ABANDONED:
		snprintf(text, 96, "%s", submission->reason ? submission->reason : "");
		break;
	}
}

static void print_report(const struct overview *overview, FILE *out)
{
	const struct report *report = &overview->report;
	double passed = clock_uptime() - report->elapsed;
	char block[48], left[32];

	if (!report->time)
		return;
	if (report->has_pending) {
		number_grouped((double)report->pending.current_block, block);
		fprintf(out, "block      %s", block);
	}
	if (report->has_round) {
		clock_duration((double)report->round.time_remaining_seconds - passed, left);
		fprintf(out, "%s%lld (%s left)", report->has_pending ? ", round " : "round      ",
			(long long)report->round.round_number, left);
	}
	if (report->has_pending || report->has_round)
		fputc('\n', out);
	if (report->unknown)
		fprintf(out, "unknown    %zu more by this hotkey at the validator: see `quasar recover`\n",
			report->unknown);
}

static void print_hidden(const struct overview *overview, FILE *out)
{
	if (overview->report.miner.flag_reason)
		fprintf(out, "FLAGGED    %s\n", overview->report.miner.flag_reason);
	if (overview->hidden)
		fprintf(out,
			"not shown  block, round and rank: this version shows them to validators only\n");
}

static void print_judged(const struct overview *overview, FILE *out)
{
	for (size_t i = 0; i < overview->submissions.count; i++)
		if (was_judged_hidden(overview, &overview->submissions.items[i]))
			fprintf(out,
				"judged     %s before its reveal: it will not be measured, and ranks by "
				"its claim; `quasar submit` is measured\n",
				submission_label(&overview->submissions.items[i]));
}

/* How old it is what the validator told. */
static void print_age(const struct overview *overview, FILE *out)
{
	const struct report *report = &overview->report;
	char when[32], age[32];

	clock_duration(clock_uptime() - report->elapsed, age);
	if (!report->time) {
		fprintf(out, "updated    not yet, in %s\n", age);
		return;
	}
	clock_format(report->time, when);
	fprintf(out, "updated    %.10s %.8s UTC", when, when + 11);
	if (!overview->online)
		fprintf(out, "; the validator has not been reached since (%s)", age);
	fputc('\n', out);
}

static void add_row(struct table *table, const struct session *session, const struct overview *overview,
	const struct submission *submission)
{
	int64_t target = submission->target_sequence_length;
	char claim[48], weighted[48], text[96];

	number_grouped(submission->tokens_per_sec, claim);
	number_grouped(score_weighted(submission->tokens_per_sec, target), weighted);
	describe(session, overview, submission, text);
	table_cell(table, "%lld", (long long)submission->id);
	if (submission->server_id)
		table_cell(table, "%lld", (long long)submission->server_id);
	else
		table_cell(table, "-");
	table_cell(table, "%s", submission_step_name(submission->step));
	table_cell(table, "%s", league_for(target)->name);
	table_cell(table, "%s", claim);
	table_cell(table, "%s", weighted);
	table_cell(table, "%.10s", submission->commit_hash);
	table_cell(table, "%s", text);
}

/* What is shown first where there may not be room for all: the lower, the earlier. */
static double urgency(const struct overview *overview, const struct submission *submission)
{
	if (submission->step == STEP_PREPARED)
		return -1;
	if (submission->step == STEP_COMMITTED)
		return (double)blocks_left(overview, submission);
	return 1e15 - (double)submission->id;
}

static int compare_urgency(const void *a, const void *b, void *overview)
{
	const struct submission *one = *(const struct submission *const *)a;
	const struct submission *other = *(const struct submission *const *)b;
	double x = urgency(overview, one), y = urgency(overview, other);

	return x != y ? (x > y) - (x < y) : (one->id > other->id) - (one->id < other->id);
}

/* Oldest first; on a page, what matters most. */
static void print_submissions(const struct session *session, const struct overview *overview,
	const struct page_size *page, FILE *out)
{
	static const char *const headings[] = {
		"id", "server id", "step", "league", "claim", "weighted", "commit", "what next"};
	static const int spare[] = {6, 1, 5, 3, 4, 2, -1};
	size_t count = overview->submissions.count;
	const struct submission **order = xcalloc(count, sizeof(*order));
	struct table table;

	for (size_t i = 0; i < count; i++)
		order[i] = &overview->submissions.items[i];
	table_begin(&table, headings, "rrllrrll");
	table_spare(&table, spare);
	if (page) {
		qsort_r(order, count, sizeof(*order), compare_urgency, (void *)overview);
		table_narrow(&table, page->columns);
	}
	for (size_t i = 0; i < count; i++)
		add_row(&table, session, overview, order[i]);
	table_print(&table, out);
	free(order);
}

static void print_elsewhere(const struct session *session, const struct elsewhere *elsewhere, FILE *out)
{
	bool same_api = elsewhere->count && !strcmp(elsewhere->api_url, session->workflow.api_url);

	if (elsewhere->count)
		layout_field(out, FIELD, "elsewhere", "%zu more, the latest %s %s: see `quasar status %s%s`",
			elsewhere->count, same_api ? "by hotkey" : "at",
			same_api ? elsewhere->hotkey : elsewhere->api_url,
			same_api ? "--hotkey NAME" : "--api ", same_api ? "" : elsewhere->api_url);
}

/* `page`: where it is shown; NULL: lines, which may be as many and as long as they need. */
static void print_overview(const struct session *session, const struct overview *overview,
	const struct page_size *page, FILE *out)
{
	if (!page || page->rows >= ROOMY)
		fprintf(out, "hotkey     %s\nvalidator  %s%s%s\n", session->workflow.hotkey,
			session->workflow.api_url, overview->version ? ", version " : "",
			overview->version ? overview->version->name : "");
	print_hidden(overview, out);
	print_report(overview, out);
	print_judged(overview, out);
	if (page)
		print_age(overview, out);
	if (overview->problem.status)
		layout_field(
			out, FIELD, overview->online ? "missing" : "outage", "%s", overview->problem.message);
	print_elsewhere(session, &overview->elsewhere, out);
	if (overview->submissions.count)
		print_submissions(session, overview, page, out);
	else if (overview->elsewhere.count)
		fputs("No submissions of this hotkey at this validator.\n", out);
	else
		fputs("No submissions yet. `quasar commit` makes the first one.\n", out);
}

static void print_line(const struct session *session, const struct overview *overview, FILE *out)
{
	cJSON *document = overview_json(session, overview);
	char *line = cJSON_PrintUnformatted(document);

	fprintf(out, "%s\n", line);
	cJSON_free(line);
	cJSON_Delete(document);
}

/* The document, with --json, or the text. The caller frees. */
static char *overview_text(
	const struct invocation *invocation, const struct session *session, const struct overview *overview)
{
	char *text;
	size_t length;
	FILE *out = xmemstream(&text, &length);

	if (invocation->json)
		print_line(session, overview, out);
	else
		print_overview(session, overview, NULL, out);
	xmemstream_close(out);
	return text;
}

/* Prints it again whenever it has changed. */
static int watch_lines(
	const struct invocation *invocation, struct session *session, double interval, struct error *err)
{
	struct overview overview = {0};
	char *before = xstrdup(""), *now;

	while (overview_read(session, &overview, err) == 0) {
		now = overview_text(invocation, session, &overview);
		if (strcmp(before, now))
			fputs(now, stdout);
		fflush(stdout);
		free(before);
		before = now;
		if (clock_sleep(interval, err) < 0)
			break;
	}
	free(before);
	overview_free(&overview);
	return -1; /* it ends with an error or an interruption only */
}

struct watched {
	struct session *session;
	struct overview overview;
};

static void show(void *context)
{
	struct watched *watched = context;
	struct page_size size = page_size();
	char *text;
	size_t length;
	FILE *out = xmemstream(&text, &length);

	print_overview(watched->session, &watched->overview, &size, out);
	xmemstream_close(out);
	page_show(text);
	free(text);
}

/* Shows it in place, also while the validator is waited for. */
static int watch_page(struct session *session, double interval, struct error *err)
{
	struct watched watched = {.session = session, .overview.report.elapsed = clock_uptime()};

	if (is_terminal(stderr))
		log_set_level(LOG_QUIET);
	page_open();
	clock_while_waiting(show, &watched);
	while (overview_read(session, &watched.overview, err) == 0 && clock_sleep(interval, err) == 0)
		;
	clock_while_waiting(NULL, NULL);
	page_close();
	overview_free(&watched.overview);
	return -1;
}

static int watch(
	const struct invocation *invocation, struct session *session, double interval, struct error *err)
{
	/* a look is over when the next one is due */
	session->workflow.timeout = fmin(session->workflow.timeout, fmax(interval, LOOK_SECONDS));
	return !invocation->json && page_possible() ? watch_page(session, interval, err)
						    : watch_lines(invocation, session, interval, err);
}

static int print_once(const struct invocation *invocation, struct session *session, struct error *err)
{
	struct overview overview = {0};
	int result;

	api_share_timeout(session->api);
	result = overview_read(session, &overview, err);
	if (!result && invocation->json)
		print_line(session, &overview, stdout);
	else if (!result)
		print_overview(session, &overview, NULL, stdout);
	if (!result && !overview.online) {
		log_note("%s", overview.problem.hint);
		result = error_set(err, overview.problem.status, "%s", ""); /* said above */
	}
	overview_free(&overview);
	return result;
}

static int run(struct invocation *invocation, struct error *err)
{
	struct session session;
	double interval = 0;
	int result;

	if (arg_real(invocation, "interval", 0.1, 86400, &interval, err) < 0 ||
		session_open(invocation, &session, err) < 0)
		return -1;
	result = arg_flag(invocation, "watch") ? watch(invocation, &session, interval, err)
					       : print_once(invocation, &session, err);
	session_close(&session);
	return result;
}

const struct command cmd_status = {
	.group = "Watch",
	.name = "status",
	.summary = "show where each submission stands: step, blocks left, rank",
	.description =
		"Combines the workspace's records with the validator's. If the validator does not "
		"respond, it shows the records alone, says why, and ends with exit code 4. Versions from "
		"2026-04 on do not show their lists to miners; with DASHBOARD_API_KEY, it shows what "
		"validators measured.\n\n"
		"With --watch, a terminal shows a page that is updated every second, the most urgent "
		"submissions first: those that need you, those to be revealed next, then the newest. "
		"Those that do not fit the window are only counted. While the validator does not respond, "
		"the page keeps its last answer and says how old it is. Press Ctrl-C to quit. Without a "
		"terminal (or with TERM=dumb), the text is printed again on every change; with --json, as "
		"one line of JSON.",
	.opts =
		(const struct opt[]){
			{"watch", 'w', NULL, NULL, NULL, NULL, "Keep it updated until interrupted."},
			{"interval", 0, "SECONDS", NULL, "12", NULL,
				"With --watch: how often to ask the validator, and the time limit for its "
				"response (at least 5)."},
			OPTS_WALLET,
			OPTS_API_SOON,
			{0},
		},
	.examples =
		(const struct example[]){
			{"quasar status", "all submissions of this workspace"},
			{"quasar status --watch", "a page that counts the blocks down"},
			{"quasar status --json | jq '.submissions[-1].step'", "for a script"},
			{0},
		},
	.exits = (const enum status[]){STATUS_ENVIRONMENT, STATUS_NETWORK, STATUS_REFUSED, 0},
	.run = run,
};
