/* quasar leaderboard: who is ahead, as far as the validator tells */
#include <stdio.h>
#include <string.h>

#include "api/rewards.h"
#include "api/standings.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/layout.h"
#include "base/number.h"
#include "base/text.h"
#include "cli/connect.h"
#include "cli/hotkey.h"
#include "cli/table.h"
#include "cmd/commands.h"
#include "cmd/leaderboard/leaderboard.h"
#include "score/gpu.h"
#include "score/score.h"

static cJSON *standing_json(const struct standing *standing, size_t rank, const char *own)
{
	const struct api_submission *submission = standing->submission;
	int64_t length = submission->target_sequence_length;
	cJSON *item = cJSON_CreateObject();

	cJSON_AddNumberToObject(item, "rank", (double)rank);
	cJSON_AddNumberToObject(item, "submission_id", (double)submission->id);
	cJSON_AddStringToObject(item, "hotkey", submission->miner_hotkey);
	cJSON_AddBoolToObject(item, "own", !strcmp(submission->miner_hotkey, own));
	cJSON_AddStringToObject(item, "league", league_for(length)->name);
	cJSON_AddNumberToObject(item, "multiplier", league_for(length)->multiplier);
	cJSON_AddNumberToObject(item, "target_sequence_length", (double)length);
	cJSON_AddNumberToObject(item, "tokens_per_sec", submission->tokens_per_sec);
	cJSON_AddNumberToObject(item, "weighted_score", score_weighted(submission->tokens_per_sec, length));
	cJSON_AddStringToObject(item, "state", standing_state_name(standing->state));
	json_add_time(item, "created_at", submission->created_at);
	return item;
}

static void print_json(
	const struct standings *standings, size_t shown, const struct rewards *rewards, const char *own)
{
	cJSON *document = cJSON_CreateObject();
	cJSON *ranking = cJSON_AddArrayToObject(document, "ranking");
	cJSON *paid = cJSON_AddArrayToObject(document, "rewards");
	cJSON *notes = cJSON_AddArrayToObject(document, "not_told");

	for (size_t i = 0; i < shown; i++)
		cJSON_AddItemToArray(ranking, standing_json(&standings->ranked[i], i + 1, own));
	for (size_t i = 0; i < rewards->weights.count; i++) {
		cJSON *item = cJSON_CreateObject();

		cJSON_AddStringToObject(item, "hotkey", rewards->weights.weights[i].hotkey);
		cJSON_AddBoolToObject(item, "own", !strcmp(rewards->weights.weights[i].hotkey, own));
		cJSON_AddNumberToObject(item, "weight", rewards->weights.weights[i].weight);
		cJSON_AddItemToArray(paid, item);
	}
	for (const char *const *note = standings_not_told; *note; note++)
		cJSON_AddItemToArray(notes, cJSON_CreateString(*note));
	cJSON_AddNumberToObject(document, "rounds_since_rewards", (double)rewards->rounds_since);
	cJSON_AddNumberToObject(document, "ranked", (double)standings->count);
	cJSON_AddNumberToObject(
		document, "skipped_rows", (double)(standings->stats.skipped + rewards->weights.skipped));
	cJSON_AddNumberToObject(document, "unrevealed", (double)standings->unrevealed);
	if (standings->stats.total_submissions >= 0)
		cJSON_AddNumberToObject(
			document, "total_submissions", (double)standings->stats.total_submissions);
	output_json(document);
}

static void print_ranking(const struct standings *standings, size_t shown, const char *own)
{
	static const char *const headings[] = {"rank", "submission", "hotkey", "league", "tokens", "tokens/s",
		"weighted score", "submitted (UTC)", "state", ""};
	static const int spare[] = {4, 7, 1, 8, 5, 3, -1};
	struct table table;

	table_begin(&table, headings, "rrllrrrlll");
	table_spare(&table, spare);
	for (size_t i = 0; i < shown; i++) {
		const struct api_submission *submission = standings->ranked[i].submission;
		int64_t length = submission->target_sequence_length;
		bool is_own = !strcmp(submission->miner_hotkey, own);
		char tokens[48], speed[48], weighted[48], when[32];

		number_grouped((double)length, tokens);
		number_grouped(submission->tokens_per_sec, speed);
		number_grouped(score_weighted(submission->tokens_per_sec, length), weighted);
		clock_format(submission->created_at, when);
		when[10] = ' ';
		table_cell(&table, "%zu", i + 1);
		table_cell(&table, "%lld", (long long)submission->id);
		table_cell(&table, "%.*s…", (int)text_prefix(submission->miner_hotkey, 12),
			submission->miner_hotkey);
		table_cell(&table, "%s", league_for(length)->name);
		table_cell(&table, "%s", tokens);
		table_cell(&table, "%s", speed);
		table_cell(&table, "%s", weighted);
		table_cell(&table, "%.16s", when);
		table_cell(&table, "%s", standing_state_name(standings->ranked[i].state));
		table_cell(&table, "%s", is_own ? "you" : "");
		if (is_own)
			table_mark_row(&table);
	}
	table_print(&table, stdout);
}

static void print_text(
	const struct standings *standings, size_t shown, const struct rewards *rewards, const char *own)
{
	if (standings->count)
		print_ranking(standings, shown, own);
	else
		puts("Nothing has been revealed yet.");
	if (shown < standings->count)
		printf("… and %zu more\n", standings->count - shown);
	if (standings->unrevealed)
		printf("\n%zu committed, not yet revealed.\n", standings->unrevealed);
	puts(!rewards->weights.count            ? "\nNo round has had rewards yet."
			: rewards->rounds_since ? "\nRewards of the latest round that had any"
						: "\nRewards of the latest completed round");
	for (size_t i = 0; i < rewards->weights.count; i++)
		printf("  %3.0f %%  %s%s\n", rewards->weights.weights[i].weight * 100,
			rewards->weights.weights[i].hotkey,
			strcmp(rewards->weights.weights[i].hotkey, own) ? "" : "  you");
	puts("\nWhat the validator does not show");
	for (const char *const *note = standings_not_told; *note; note++)
		layout_format(stdout, 4, "  - %s", *note);
}

/* --- by the dashboard, where miners are shown no lists ------------------------------------------------- */

static void print_leaders_json(const struct api_leaderboard *board, const char *own, const char *gpu)
{
	cJSON *document = cJSON_CreateObject();
	cJSON *ranking = cJSON_AddArrayToObject(document, "ranking");

	for (size_t i = 0; i < board->count; i++) {
		const struct api_leader *leader = &board->leaders[i];
		int64_t length = leader->target_sequence_length;
		cJSON *item = cJSON_CreateObject();

		cJSON_AddNumberToObject(item, "rank", (double)i + 1);
		json_add_id(item, "submission_id", leader->submission_id);
		cJSON_AddStringToObject(item, "hotkey", leader->miner_hotkey);
		cJSON_AddBoolToObject(item, "own", !strcmp(leader->miner_hotkey, own));
		cJSON_AddStringToObject(item, "league", league_for(length)->name);
		cJSON_AddNumberToObject(item, "target_sequence_length", (double)length);
		json_add_real(item, "normalized_tokens_per_sec", leader->tokens_per_sec);
		json_add_real(item, "tokens_per_sec", leader->tokens_per_sec * gpu_factor(gpu));
		json_add_real(item, "weighted_score", score_weighted(leader->tokens_per_sec, length));
		cJSON_AddItemToArray(ranking, item);
	}
	cJSON_AddStringToObject(document, "validator_gpu", gpu);
	cJSON_AddNumberToObject(document, "skipped_rows", (double)board->skipped);
	output_json(document);
}

static void print_leaders(const struct api_leaderboard *board, const char *own, const char *gpu)
{
	static const char *const headings[] = {
		"rank", "submission", "hotkey", "league", "normalised", "on that GPU", "weighted score", ""};
	static const int spare[] = {1, 5, 3, 4, -1};
	struct table table;

	if (!board->count) {
		puts("Nothing ranks yet: validators have measured nothing in this round.");
		return;
	}
	table_begin(&table, headings, "rrllrrrl");
	table_spare(&table, spare);
	for (size_t i = 0; i < board->count; i++) {
		const struct api_leader *leader = &board->leaders[i];
		int64_t length = leader->target_sequence_length;
		bool is_own = !strcmp(leader->miner_hotkey, own);
		char normalised[48], speed[48], weighted[48];

		number_grouped(leader->tokens_per_sec, normalised);
		number_grouped(leader->tokens_per_sec * gpu_factor(gpu), speed);
		number_grouped(score_weighted(leader->tokens_per_sec, length), weighted);
		table_cell(&table, "%zu", i + 1);
		table_cell(&table, "%lld", (long long)leader->submission_id);
		table_cell(&table, "%.*s…", (int)text_prefix(leader->miner_hotkey, 12), leader->miner_hotkey);
		table_cell(&table, "%s", league_for(length)->name);
		table_cell(&table, "%s", normalised);
		table_cell(&table, "%s", speed);
		table_cell(&table, "%s", weighted);
		table_cell(&table, "%s", is_own ? "you" : "");
		if (is_own)
			table_mark_row(&table);
	}
	table_print(&table, stdout);
	layout_format(stdout, 0,
		"\nTokens/s as validators measured them, divided by the factor of their GPU; before that on %s.",
		gpu);
}

static int show_leaders(
	const struct invocation *invocation, struct api *api, int64_t top, const char *own, struct error *err)
{
	const char *gpu = arg_string(invocation, "validator-gpu");
	struct api_leaderboard board;
	int result = api_dashboard_leaderboard(api, (int)top, &board, err);

	if (!result && invocation->json)
		print_leaders_json(&board, own, gpu);
	else if (!result)
		print_leaders(&board, own, gpu);
	api_release(&board.memory);
	return result;
}

static int run(struct invocation *invocation, struct error *err)
{
	struct standings standings = {0};
	struct rewards rewards = {0};
	struct api *api;
	char own[SS58_SIZE];
	int64_t top = 0;
	size_t shown;
	int result = -1;

	if (arg_integer(invocation, "top", 1, 1000000, &top, err) < 0)
		return -1;
	api = require_api_soon(invocation, NULL, err);
	if (!api)
		return -1;
	hotkey_own_address(invocation, own);
	if (arg_flag(invocation, "web")) {
		result = leaderboard_serve(invocation, api, own, err);
		goto done;
	}
	if (api_has_dashboard(api) && !api_shows_lists(api)) {
		result = show_leaders(invocation, api, top, own, err);
		goto done;
	}
	if (standings_read(api, &standings, err) < 0 || rewards_read(api, &rewards, err) < 0)
		goto done;
	shown = standings.count < (size_t)top ? standings.count : (size_t)top;
	if (invocation->json)
		print_json(&standings, shown, &rewards, own);
	else
		print_text(&standings, shown, &rewards, own);
	result = 0;
done:
	standings_free(&standings);
	api_release(&rewards.weights.memory);
	api_close(api);
	return result;
}

const struct command cmd_leaderboard = {
	.name = "leaderboard",
	.summary = "rank the submissions at the validator, and list the rewards",
	.description =
		"Ranks by weighted score (tokens/s times the league's multiplier); if scores are equal, "
		"the earlier commitment wins. \"waiting\" means not validated yet. Your own hotkey is "
		"marked if its wallet is on this machine. Notes below the table say what the validator "
		"does not show.\n\n"
		"Versions from 2026-04 on show it only with DASHBOARD_API_KEY, as what validators measured, "
		"normalised by their GPU.\n\n"
		"With --web, it is a page for browsers on this machine, which keeps itself up to date until "
		"you press Ctrl-C. While the validator does not respond, the page shows its last answer "
		"and how old it is.",
	.opts =
		(const struct opt[]){
			{"top", 'n', "N", NULL, "20", NULL, "Number of ranks to show."},
			{"validator-gpu", 0, "NAME", NULL, "RTX 5090", NULL,
				"Also show speeds as measured on this GPU, where they are normalised."},
			{"web", 0, NULL, NULL, NULL, NULL, "Serve it as a page on this machine."},
			{"port", 'p', "N", NULL, "8100", NULL,
				"With --web: port to listen on; 0: any free port."},
			{"interval", 0, "SECONDS", NULL, "12", NULL,
				"With --web: how often to ask the validator."},
			{"open", 0, NULL, NULL, NULL, NULL, "With --web: open the page in the browser."},
			OPTS_WALLET,
			OPTS_API_SOON,
			{0},
		},
	.examples =
		(const struct example[]){
			{"quasar leaderboard", "the top 20"},
			{"quasar leaderboard --json | jq '.ranking[] | select(.own)'",
				"your own ranks, for a script"},
			{"quasar leaderboard --web --open", "a page that keeps itself up to date"},
			{0},
		},
	.exits = (const enum status[]){STATUS_ENVIRONMENT, STATUS_NETWORK, STATUS_REFUSED, 0},
	.run = run,
};
