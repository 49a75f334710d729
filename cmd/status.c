/* quasar status: where each submission of the workspace stands. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/block.h"
#include "api/standings.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/number.h"
#include "commands.h"
#include "score/score.h"
#include "session.h"
#include "table.h"

/* What the store and the validator know, read together. */
struct overview {
	struct submission_list submissions;
	struct api_pending_reveals pending;
	struct standings standings;
	struct api_round round;
	bool online;         /* the validator answered */
	char problem[1024];  /* why not */
	struct block_clock blocks;
	size_t unknown;      /* of the hotkey at the validator, but not in the store */
};

/* Made in another workspace, doubled on the way, or lost here. */
static size_t count_unknown(struct session *session, const struct overview *overview)
{
	const struct api_submission_stats *stats = &overview->standings.stats;
	size_t count = 0;

	for (size_t i = 0; i < overview->pending.count; i++)
		count += !strcmp(overview->pending.reveals[i].miner_hotkey, session->workflow.hotkey) &&
			!workflow_knows_commitment(&session->workflow, &overview->pending.reveals[i]);
	for (size_t i = 0; i < stats->recent_count; i++)
		count += stats->recent[i].fork_url && /* unrevealed ones were counted above */
			!strcmp(stats->recent[i].miner_hotkey, session->workflow.hotkey) &&
			!workflow_knows_submission(&session->workflow, stats->recent[i].id);
	return count;
}

/* The store's part is needed; a validator that does not answer is only noted. */
static int overview_read(struct session *session, struct overview *overview, struct error *err)
{
	struct submission_filter filter = {
		.api_url = session->workflow.api_url, .hotkey = session->workflow.hotkey};
	struct error offline = {0};

	*overview = (struct overview){0};
	if (store_submissions(session->workspace.store, &filter, &overview->submissions, err) < 0)
		return -1;
	overview->online = api_pending_reveals(session->api, &overview->pending, &offline) == 0 &&
			   standings_read(session->api, &overview->standings, &offline) == 0 &&
			   api_current_round(session->api, &overview->round, &offline) == 0;
	if (offline.status == STATUS_INTERRUPTED) {
		*err = offline;
		return -1;
	}
	if (overview->online) {
		block_clock_observe(
			&overview->blocks, overview->pending.current_block, clock_elapsed());
		overview->unknown = count_unknown(session, overview);
	} else {
		snprintf(overview->problem, sizeof(overview->problem), "%s", offline.message);
	}
	return 0;
}

static void overview_free(struct overview *overview)
{
	submission_list_free(&overview->submissions);
	api_release(&overview->pending.memory);
	api_release(&overview->round.memory);
	standings_free(&overview->standings);
}

/* Blocks until a commitment can be revealed; -1 when that is not the question or not known. */
static int64_t blocks_left(const struct overview *overview, const struct submission *submission)
{
	int64_t left = submission->reveal_block - overview->pending.current_block;

	if (submission->step != STEP_COMMITTED || !overview->online)
		return -1;
	return left > 0 ? left : 0;
}

/* From 1; 0 when it does not rank. */
static size_t rank(const struct overview *overview, const struct submission *submission)
{
	return overview->online && submission->server_id
		       ? standings_rank(&overview->standings, submission->server_id)
		       : 0;
}

static cJSON *overview_json(const struct session *session, const struct overview *overview)
{
	cJSON *document = cJSON_CreateObject(), *list;

	cJSON_AddStringToObject(document, "workspace", session->workspace.directory);
	cJSON_AddStringToObject(document, "api", session->workflow.api_url);
	cJSON_AddStringToObject(document, "hotkey", session->workflow.hotkey);
	cJSON_AddBoolToObject(document, "online", overview->online);
	json_add_text(document, "problem", overview->online ? NULL : overview->problem);
	if (overview->online) {
		cJSON_AddNumberToObject(document, "current_block", (double)overview->pending.current_block);
		cJSON_AddNumberToObject(
			document, "round_seconds_left", (double)overview->round.time_remaining_seconds);
		cJSON_AddNumberToObject(document, "unknown_here", (double)overview->unknown);
	}
	list = cJSON_AddArrayToObject(document, "submissions");
	for (size_t i = 0; i < overview->submissions.count; i++) {
		const struct submission *submission = &overview->submissions.items[i];
		cJSON *item = submission_json(submission);
		int64_t left = blocks_left(overview, submission);
		size_t place = rank(overview, submission);

		json_add_real(item, "blocks_remaining", left < 0 ? NAN : (double)left);
		json_add_id(item, "rank", (int64_t)place);
		cJSON_AddItemToArray(list, item);
	}
	return document;
}

/* What a person should know or do about a submission. */
static void describe(const struct overview *overview, const struct submission *submission, char text[96])
{
	int64_t left = blocks_left(overview, submission);
	size_t place = rank(overview, submission);
	char wait[32];

	switch (submission->step) {
	case STEP_PREPARED:
		snprintf(text, 96, "not known to have arrived: run `quasar %s` again",
			submission->kind == SUBMISSION_COMMIT ? "commit" : "submit");
		break;
	case STEP_COMMITTED:
		if (left > 0) {
			clock_duration(block_clock_until(
					       &overview->blocks, submission->reveal_block, clock_elapsed()),
				wait);
			snprintf(text, 96, "reveal in %lld block%s, about %s", (long long)left,
				left == 1 ? "" : "s", wait);
		} else {
			snprintf(text, 96, left == 0 ? "ready: run `quasar reveal`" : "reveal at block %lld",
				(long long)submission->reveal_block);
		}
		break;
	case STEP_REVEALED:
	case STEP_SUBMITTED:
		if (place)
			snprintf(text, 96, "rank %zu", place);
		else
			snprintf(text, 96, "no rank yet");
		break;
	case STEP_REFUSED:
	case STEP_ABANDONED:
		snprintf(text, 96, "%s", submission->reason ? submission->reason : "");
		break;
	}
}

static void print_header(const struct session *session, const struct overview *overview, FILE *out)
{
	char block[48], time_left[32];

	fprintf(out, "hotkey     %s\nvalidator  %s", session->workflow.hotkey, session->workflow.api_url);
	if (!overview->online) {
		fprintf(out, ", not reached: %s\n", overview->problem);
		return;
	}
	number_grouped((double)overview->pending.current_block, block);
	clock_duration((double)overview->round.time_remaining_seconds, time_left);
	fprintf(out, ", block %s, round %lld (%s left)\n", block, (long long)overview->round.round_number,
		time_left);
}

static void print_submissions(const struct overview *overview, FILE *out)
{
	static const char *const headings[] = {
		"id", "server id", "step", "league", "claim", "weighted", "commit", "what next"};
	struct table table;

	table_begin(&table, headings, "rrllrrll");
	for (size_t i = 0; i < overview->submissions.count; i++) {
		const struct submission *submission = &overview->submissions.items[i];
		int64_t target = submission->target_sequence_length;
		char claim[48], weighted[48], text[96];

		number_grouped(submission->tokens_per_sec, claim);
		number_grouped(score_weighted(submission->tokens_per_sec, target), weighted);
		describe(overview, submission, text);
		table_cell(&table, "%lld", (long long)submission->id);
		if (submission->server_id)
			table_cell(&table, "%lld", (long long)submission->server_id);
		else
			table_cell(&table, "-");
		table_cell(&table, "%s", submission_step_name(submission->step));
		table_cell(&table, "%s", league_for(target)->name);
		table_cell(&table, "%s", claim);
		table_cell(&table, "%s", weighted);
		table_cell(&table, "%.10s", submission->commit_hash);
		table_cell(&table, "%s", text);
	}
	table_print(&table, out);
}

static char *overview_text(const struct session *session, const struct overview *overview)
{
	char *text = NULL;
	size_t length;
	FILE *out = open_memstream(&text, &length);

	print_header(session, overview, out);
	if (overview->submissions.count)
		print_submissions(overview, out);
	else
		fputs("no submissions yet: `quasar commit` makes the first\n", out);
	if (overview->unknown)
		fprintf(out, "The validator has %zu more of this hotkey that this workspace does not know: "
			     "`quasar recover` tells which.\n",
			overview->unknown);
	fclose(out);
	return text;
}

static char *overview_line(const struct session *session, const struct overview *overview)
{
	cJSON *document = overview_json(session, overview);
	char *line = cJSON_PrintUnformatted(document), *text = xprintf("%s\n", line);

	cJSON_free(line);
	cJSON_Delete(document);
	return text;
}

/* The page, or with --json the document on one line. The caller frees. NULL on error. */
static char *page(const struct invocation *invocation, struct session *session, struct error *err)
{
	struct overview overview;
	char *text = NULL;

	if (overview_read(session, &overview, err) == 0)
		text = invocation->json ? overview_line(session, &overview)
					: overview_text(session, &overview);
	overview_free(&overview);
	return text;
}

/* Shows the page again and again: in place on a terminal, elsewhere when it has changed. */
static int watch(const struct invocation *invocation, struct session *session, double interval,
	struct error *err)
{
	bool in_place = !invocation->json && isatty(STDOUT_FILENO);
	char *before = NULL, *now;
	int result = 0;

	while (!result && (now = page(invocation, session, err))) {
		if (in_place)
			printf("\033[H\033[J%s", now);
		else if (!before || strcmp(before, now))
			fputs(now, stdout);
		fflush(stdout);
		free(before);
		before = now;
		result = clock_sleep(interval, err);
	}
	free(before);
	return -1; /* it ends with an error or an interruption only */
}

static int print_once(const struct invocation *invocation, struct session *session, struct error *err)
{
	char *text = page(invocation, session, err);

	if (!text)
		return -1;
	fputs(text, stdout);
	free(text);
	return 0;
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
	.name = "status",
	.summary = "where each submission stands: step, blocks left, rank",
	.description =
		"Reads the workspace's own records and the validator's. When the validator does not answer, the "
		"records are shown alone, with the reason.\n\n"
		"With --watch --json, a document of one line is printed whenever something has changed.",
	.opts =
		(const struct opt[]){
			{"watch", 'w', NULL, NULL, NULL, NULL, "Keep showing it until interrupted."},
			{"interval", 0, "SECONDS", NULL, "12", NULL, "Pause between two looks with --watch."},
			OPTS_WALLET,
			OPTS_API,
			{0},
		},
	.examples =
		(const struct example[]){
			{"quasar status", "all submissions of this workspace"},
			{"quasar status --watch", "a page that follows the blocks"},
			{"quasar status --json | jq '.submissions[-1].step'", "for a script"},
			{0},
		},
	.exits = (const enum status[]){STATUS_ENVIRONMENT, 0},
	.run = run,
};
