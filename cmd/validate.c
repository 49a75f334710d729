/* quasar validate: the judging side of a validator. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/number.h"
#include "cli/connect.h"
#include "cli/device.h"
#include "cli/measurement.h"
#include "cli/report.h"
#include "cli/table.h"
#include "cmd/commands.h"
#include "validator/judge.h"

/* More than any validator holds unvalidated. */
#define STATS_LIMIT 1000

struct run {
	const struct invocation *invocation;
	struct api *api;
	struct judge judge;
	double interval;
	cJSON *judged; /* a verdict each */
	size_t judged_count, unrevealed;
};

/* --- submissions ------------------------------------------------------------------------------- */

/* Tells the validator. A fork that is not what a fork has to be also fails verification: else its claim,
 * however bold, would rank. */
static int report(struct run *run, const struct api_submission *submission, const struct verdict *verdict,
	struct error *err)
{
	if (verdict->invalid &&
		api_record_verification(
			run->api, submission->id, false, NAN, NAN, NAN, verdict->reason, err) < 0)
		return -1;
	return api_mark_validated(run->api, submission->id, verdict_normalised(verdict), err);
}

static cJSON *verdict_json(const struct api_submission *submission, const struct verdict *verdict)
{
	cJSON *document = cJSON_CreateObject(), *benchmarks;

	cJSON_AddNumberToObject(document, "submission_id", (double)submission->id);
	cJSON_AddStringToObject(document, "miner_hotkey", submission->miner_hotkey);
	cJSON_AddStringToObject(document, "fork_url", submission->fork_url);
	cJSON_AddStringToObject(document, "commit_hash", submission->commit_hash);
	cJSON_AddNumberToObject(
		document, "target_sequence_length", (double)submission->target_sequence_length);
	cJSON_AddNumberToObject(document, "claimed", submission->tokens_per_sec);
	cJSON_AddItemToObject(document, "checks", check_json(&verdict->checks));
	benchmarks = cJSON_AddArrayToObject(document, "benchmarks");
	for (int i = 0; i < verdict->benchmark_count; i++) {
		cJSON *entry = cJSON_CreateObject();

		measurement_json(entry, verdict->benchmarks[i].tokens, &verdict->benchmarks[i].measurement);
		cJSON_AddItemToArray(benchmarks, entry);
	}
	cJSON_AddBoolToObject(document, "valid", !verdict->invalid);
	cJSON_AddNumberToObject(document, "score", verdict->score);
	cJSON_AddNumberToObject(document, "normalised_score", verdict_normalised(verdict));
	json_add_text(document, "reason", verdict->reason);
	return document;
}

static int judge_one(struct run *run, const struct api_submission *submission, struct error *err)
{
	struct verdict verdict;
	char length[48];
	int result;

	number_grouped((double)submission->target_sequence_length, length);
	if (run->judge.report)
		printf("\nSubmission %lld by %s, %s tokens\n", (long long)submission->id,
			submission->miner_hotkey, length);
	result = judge_submission(&run->judge, submission, &verdict, err);
	if (!result)
		result = report(run, submission, &verdict, err);
	if (!result) {
		cJSON_AddItemToArray(run->judged, verdict_json(submission, &verdict));
		run->judged_count++;
	}
	verdict_free(&verdict);
	return result;
}

/* Judges what is revealed and not validated yet, the oldest first. */
static int judge_all(struct run *run, struct error *err)
{
	struct api_submission_stats stats = {0};
	int result = api_submission_stats(run->api, STATS_LIMIT, &stats, err);

	run->unrevealed = 0;
	for (size_t i = stats.recent_count; !result && i-- > 0;) {
		const struct api_submission *submission = &stats.recent[i];

		if (!submission->fork_url || !submission->commit_hash)
			run->unrevealed++;
		else if (!submission->validated)
			result = judge_one(run, submission, err);
	}
	api_release(&stats.memory);
	return result;
}

/* --- the round --------------------------------------------------------------------------------- */

static void print_result(const struct api_round_result *result)
{
	static const char *const headings[] = {"rank", "submission", "hotkey", "weighted score"};
	struct table table;

	puts(result->count ? "\nThe round has ended:" : "\nThe round has ended without a ranking.");
	table_begin(&table, headings, "rrlr");
	for (size_t i = 0; i < result->count; i++) {
		char weighted[48];

		number_grouped(result->rankings[i].weighted_score, weighted);
		table_cell(&table, "%zu", i + 1);
		table_cell(&table, "%lld", (long long)result->rankings[i].submission_id);
		table_cell(&table, "%s",
			result->rankings[i].miner_hotkey ? result->rankings[i].miner_hotkey : "?");
		table_cell(&table, "%s", weighted);
	}
	if (result->count)
		table_print(&table, stdout);
}

/* Ends the current round, at once or, with `when_due`, only when its time is up. `document` gets what the
 * validator answered. */
static int finalize(struct run *run, bool when_due, cJSON *document, struct error *err)
{
	struct api_round round = {0};
	struct api_round_result final = {0};
	int result = api_current_round(run->api, &round, err);

	if (!result && (!when_due || round.time_remaining_seconds <= 0)) {
		result = api_finalize_round(run->api, round.id, &final, err);
		if (!result && !run->invocation->json)
			print_result(&final);
		if (!result)
			cJSON_AddItemToObject(
				document, "round", cJSON_Duplicate(final.memory.document, true));
	}
	api_release(&final.memory);
	api_release(&round.memory);
	return result;
}

/* --- the command ------------------------------------------------------------------------------- */

static int run_once(struct run *run, struct error *err)
{
	cJSON *document = cJSON_CreateObject();
	int result = judge_all(run, err);

	if (!result && arg_flag(run->invocation, "finalize"))
		result = finalize(run, false, document, err);
	if (result || !run->invocation->json) {
		cJSON_Delete(document);
	} else {
		cJSON_AddStringToObject(document, "benchmark", "quasar's own, native");
		cJSON_AddStringToObject(document, "device", run->judge.device.description);
		cJSON_AddItemReferenceToObject(document, "judged", run->judged);
		cJSON_AddNumberToObject(document, "unrevealed", (double)run->unrevealed);
		output_json(document);
	}
	if (!result && !run->invocation->json)
		printf("\n%zu judged, %zu not revealed yet.\n", run->judged_count, run->unrevealed);
	return result;
}

/* Until somebody stops it. What goes wrong on the way is said, and tried again at the next turn. */
static int run_forever(struct run *run, struct error *err)
{
	for (;;) {
		cJSON *document = cJSON_CreateObject();
		int result = judge_all(run, err);

		if (!result && arg_flag(run->invocation, "finalize"))
			result = finalize(run, true, document, err);
		cJSON_Delete(document);
		cJSON_Delete(run->judged);
		run->judged = cJSON_CreateArray();
		if (result && err->status != STATUS_INTERRUPTED)
			log_warn("%s", err->message);
		if (interrupted() || clock_sleep(run->interval, err) < 0)
			return 0; /* stopping it is how it ends */
	}
}

/* Whether the URL names this machine. */
static bool is_local(const char *url)
{
	static const char *const names[] = {"localhost", "127.0.0.1", "[::1]"};
	const char *host = strstr(url, "://");

	for (size_t i = 0; host && i < sizeof(names) / sizeof(*names); i++) {
		size_t length = strlen(names[i]);

		if (!strncmp(host + 3, names[i], length) &&
			strspn(host + 3 + length, ":/") + !host[3 + length])
			return true;
	}
	return false;
}

static int read_options(struct run *run, struct error *err)
{
	const struct invocation *invocation = run->invocation;
	bool any = arg_flag(invocation, "local-forks"), rehearsal = is_local(arg_string(invocation, "api"));

	if (invocation->json && !arg_flag(invocation, "once"))
		return error_set(err, STATUS_USAGE, "--json needs --once");
	run->judge.local_forks = any || rehearsal;
	run->judge.reach = any ? FORK_REACH_ANY : rehearsal ? FORK_REACH_LOOPBACK : FORK_REACH_PUBLIC;
	run->judge.report = invocation->json ? NULL : report_check;
	run->judge.measure = measurement_run;
	if (arg_real(invocation, "interval", 1, 86400, &run->interval, err) < 0 ||
		arg_real(invocation, "budget", 0.1, 86400, &run->judge.budget, err) < 0)
		return -1;
	return command_device(invocation, arg_string(invocation, "device"), &run->judge.device, err);
}

static int run_validate(struct invocation *invocation, struct error *err)
{
	struct run run = {.invocation = invocation};
	int result = read_options(&run, err);

	if (result)
		return result;
	run.api = require_api(invocation, NULL, err);
	if (!run.api) {
		device_close(&run.judge.device);
		return -1;
	}
	run.judged = cJSON_CreateArray();
	if (!invocation->json)
		printf("Judging for %s. The benchmark runs quasar's native implementation on this "
		       "machine (%s),\nnot the fork's Python.\n",
			arg_string(invocation, "api"), run.judge.device.description);
	result = arg_flag(invocation, "once") ? run_once(&run, err) : run_forever(&run, err);
	cJSON_Delete(run.judged);
	api_close(run.api);
	device_close(&run.judge.device);
	return result;
}

const struct command cmd_validate = {
	.name = "validate",
	.summary = "judge submissions as a validator: clone, check, benchmark, score",
	.description =
		"Judges submissions as a validator does, for any validator API. It takes revealed "
		"submissions that are not validated yet, the oldest first, clones the fork at its commit "
		"(at most 120 s and 512 MiB, into a temporary directory that is always removed), checks "
		"files and imports as the deployed validators do, measures, and scores: 1 + (measured - "
		"claimed) / claimed, or 0 below 90% of the claim. Like the reference validator, it "
		"reports half of that, at most 1. A fork that cannot be cloned or that fails the import "
		"check scores 0. Its verification is recorded as failed, with the reason, which excludes "
		"its claim from the ranking.\n\n"
		"The benchmark runs quasar's native implementation on this machine, not the fork's "
		"Python. It measures the target length and the lengths that the submission has benchmarks "
		"for, by default 512, 1024 and 2048, as far as --budget and memory allow. If the target "
		"does not fit, the longest length measured counts.\n\n"
		"Forks are cloned over http and https, without a proxy, and only from public addresses: a "
		"stranger's URL must not reach this machine, its network or its cloud services. If the "
		"API is on this machine, forks may be too. Cloning uses at most 512 MiB of memory. No "
		"code of a fork is run, and its symbolic links are not followed.",
	.opts =
		(const struct opt[]){
			{"once", 0, NULL, NULL, NULL, NULL, "Judge what is waiting, then exit."},
			{"interval", 0, "SECONDS", NULL, "60", NULL,
				"Time between two checks for new submissions."},
			{"finalize", 0, NULL, NULL, NULL, NULL,
				"End the round: immediately with --once, otherwise when its time is up."},
			{"budget", 0, "SECONDS", NULL, "60", NULL,
				"Time limit for each submission's benchmark."},
			{"local-forks", 0, NULL, NULL, NULL, NULL,
				"Clone from any address, including file:// and paths, for any API."},
			OPT_DEVICE,
			OPTS_API,
			{0},
		},
	.examples =
		(const struct example[]){
			{"quasar validate --once", "judge what is waiting at VALIDATOR_API_URL"},
			{"quasar validate --once --finalize",
				"the same, then end the round and show the ranking"},
			{"quasar validate --api http://localhost:8000 --interval 5",
				"judge for `quasar localnet`"},
			{"quasar validate --once --json | jq '.judged[] | {submission_id, score, reason}'",
				"the scores, for a script"},
			{0},
		},
	.exits = (const enum status[]){STATUS_ENVIRONMENT, STATUS_NETWORK, STATUS_REFUSED, 0},
	.run = run_validate,
};
