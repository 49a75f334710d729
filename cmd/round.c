/* quasar round: the current round */
#include <math.h>
#include <stdio.h>

#include "api/target.h"
#include "base/buffer.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/layout.h"
#include "base/log.h"
#include "base/number.h"
#include "cli/connect.h"
#include "cli/session.h"
#include "cmd/commands.h"

/* The round is worth showing without. */
static int find_target_or_warn(
	struct api *api, const struct api_round *round, struct target *target, struct error *err)
{
	if (target_read(api, round, target, err) == 0)
		return 0;
	if (err->status == STATUS_INTERRUPTED)
		return -1;
	log_warn("the score to beat is unknown: %s", err->message);
	return 0;
}

static cJSON *target_json(const struct target *target)
{
	cJSON *document;

	if (!target->submission_id && !target->hotkey)
		return cJSON_CreateNull();
	document = cJSON_CreateObject();
	json_add_id(document, "submission_id", target->submission_id);
	json_add_text(document, "hotkey", target->hotkey);
	json_add_real(document, "weighted_score", target->weighted);
	cJSON_AddBoolToObject(document, "at_most", target->at_most);
	return document;
}

static void print_json(const struct api_round *round, const struct target *target)
{
	cJSON *document = cJSON_CreateObject();

	cJSON_AddNumberToObject(document, "id", (double)round->id);
	cJSON_AddNumberToObject(document, "round_number", (double)round->round_number);
	cJSON_AddStringToObject(document, "status", round->status);
	json_add_time(document, "start_time", round->start_time);
	json_add_time(document, "end_time", round->end_time);
	cJSON_AddNumberToObject(document, "time_remaining_seconds", (double)round->time_remaining_seconds);
	cJSON_AddNumberToObject(document, "total_submissions", (double)round->total_submissions);
	json_add_id(document, "baseline_submission_id", round->baseline_submission_id);
	cJSON_AddItemToObject(document, "to_beat", target_json(target));
	json_add_text(document, "winner_hotkey", round->winner_hotkey);
	output_json(document);
}

static void print_target(const struct target *target)
{
	struct buffer text = {0};
	char weighted[48];

	if (!target->submission_id && !target->hotkey)
		return;
	number_grouped(target->weighted, weighted);
	if (isnan(target->weighted))
		buffer_text(&text, "a score that the validator does not show");
	else
		buffer_printf(&text, "%sweighted score %s", target->at_most ? "at most " : "", weighted);
	if (target->submission_id)
		buffer_printf(&text, ", submission %lld", (long long)target->submission_id);
	if (target->hotkey)
		buffer_printf(&text, ", by %s, who won the %s", target->hotkey,
			target->at_most ? "latest round with rewards" : "round before");
	layout_field(stdout, 13, "to beat", "%s", text.data);
	buffer_free(&text);
}

static void print_text(const struct api_round *round, const struct target *target)
{
	char began[32], ends[32], left[32], text[48];

	clock_minute(round->start_time, began);
	clock_minute(round->end_time, ends);
	clock_duration((double)round->time_remaining_seconds, left);
	number_grouped((double)round->total_submissions, text);
	printf("round        %lld (%s)\n", (long long)round->round_number, round->status);
	printf("began        %s UTC\n", began);
	printf("ends         %s UTC, in %s\n", ends, left);
	printf("submissions  %s\n", text);
	print_target(target);
	if (round->winner_hotkey)
		printf("winner       %s\n", round->winner_hotkey);
}

static int run(struct invocation *invocation, struct error *err)
{
	struct api *api = require_api_soon(invocation, NULL, err);
	struct api_round round = {0};
	struct target target = {0};
	int result = -1;

	if (!api)
		return -1;
	if (api_current_round(api, &round, err) == 0)
		result = find_target_or_warn(api, &round, &target, err);
	else if (err->status == STATUS_NETWORK)
		session_hint_stored(invocation, api, NULL, err);
	if (!result && invocation->json)
		print_json(&round, &target);
	else if (!result)
		print_text(&round, &target);
	target_free(&target);
	api_release(&round.memory);
	api_close(api);
	return result;
}

const struct command cmd_round = {
	.name = "round",
	.summary = "show the current round: time left, submissions, the score to beat",
	.description =
		"From the second round on, a submission is ranked only if it beats the baseline: the "
		"previous winner's weighted score. The deployed validator does not report the baseline; "
		"it is then taken from the best submission shown of the hotkey with the largest reward in "
		"the previous round. If no round is running, asking the validator starts one.",
	.opts = (const struct opt[]){OPTS_API_SOON, {0}},
	.examples =
		(const struct example[]){
			{"quasar round", "show the current round of the workspace's validator"},
			{"quasar round --json | jq .time_remaining_seconds", "for a script"},
			{0},
		},
	.exits = (const enum status[]){STATUS_NETWORK, STATUS_REFUSED, 0},
	.run = run,
};
