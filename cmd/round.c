/* quasar round: the current round */
#include <math.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/number.h"
#include "commands.h"
#include "connect.h"
#include "score/score.h"

/* More than any validator holds unvalidated. */
#define STATS_LIMIT 1000

/* The weighted score that has to be exceeded; NAN: there is none, or the validator does not show it. */
static int find_baseline(
	struct api *api, int64_t submission_id, double *weighted, struct error *err)
{
	struct api_submission_stats stats = {0};
	int result = 0;

	*weighted = NAN;
	if (submission_id)
		result = api_submission_stats(api, STATS_LIMIT, &stats, err);
	for (size_t i = 0; !result && i < stats.recent_count + stats.top_count; i++)
		if (stats.recent[i].id == submission_id)
			*weighted = score_weighted(stats.recent[i].tokens_per_sec,
				stats.recent[i].target_sequence_length);
	api_release(&stats.memory);
	return result;
}

static void print_json(const struct api_round *round, double baseline)
{
	cJSON *document = cJSON_CreateObject();

	cJSON_AddNumberToObject(document, "id", (double)round->id);
	cJSON_AddNumberToObject(document, "round_number", (double)round->round_number);
	cJSON_AddStringToObject(document, "status", round->status);
	json_add_time(document, "start_time", round->start_time);
	json_add_time(document, "end_time", round->end_time);
	cJSON_AddNumberToObject(
		document, "time_remaining_seconds", (double)round->time_remaining_seconds);
	cJSON_AddNumberToObject(document, "total_submissions", (double)round->total_submissions);
	json_add_id(document, "baseline_submission_id", round->baseline_submission_id);
	json_add_real(document, "baseline_weighted_score", baseline);
	json_add_text(document, "winner_hotkey", round->winner_hotkey);
	output_json(document);
}

static void print_text(const struct api_round *round, double baseline)
{
	char began[32], ends[32], left[32], text[48];

	clock_format(round->start_time, began);
	clock_format(round->end_time, ends);
	clock_duration((double)round->time_remaining_seconds, left);
	number_grouped((double)round->total_submissions, text);
	printf("round        %lld (%s)\n", (long long)round->round_number, round->status);
	printf("began        %.16s UTC\n", began);
	printf("ends         %.16s UTC, in %s\n", ends, left);
	printf("submissions  %s\n", text);
	if (round->baseline_submission_id) {
		number_grouped(baseline, text);
		printf("to beat      submission %lld%s%s\n",
			(long long)round->baseline_submission_id,
			isnan(baseline) ? ", whose speed the validator does not show"
					: ", weighted score ",
			isnan(baseline) ? "" : text);
	}
	if (round->winner_hotkey)
		printf("winner       %s\n", round->winner_hotkey);
}

static int run(struct invocation *invocation, struct error *err)
{
	struct api *api = require_api(invocation, NULL, err);
	struct api_round round = {0};
	double baseline;
	int result = -1;

	if (!api)
		return -1;
	if (api_current_round(api, &round, err) == 0)
		result = find_baseline(api, round.baseline_submission_id, &baseline, err);
	if (!result && invocation->json)
		print_json(&round, baseline);
	else if (!result)
		print_text(&round, baseline);
	api_release(&round.memory);
	api_close(api);
	return result;
}

const struct command cmd_round = {
	.name = "round",
	.summary = "show the current round: time left, submissions, the score to beat",
	.description =
		"From the second round on a submission ranks only above the baseline, the weighted score of the "
		"previous winner. A validator without a running round begins one when it is asked.",
	.opts = (const struct opt[]){OPTS_API, {0}},
	.examples =
		(const struct example[]){
			{"quasar round", "the round of the workspace's validator"},
			{"quasar round --json | jq .time_remaining_seconds", "for a script"},
			{0},
		},
	.exits = (const enum status[]){STATUS_NETWORK, STATUS_REFUSED, 0},
	.run = run,
};
