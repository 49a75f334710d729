/* quasar validate: the judging side of a validator. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/http.h"
#include "api/version.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/number.h"
#include "cli/connect.h"
#include "cli/device.h"
#include "cli/hotkey.h"
#include "cli/measurement.h"
#include "cli/python.h"
#include "cli/report.h"
#include "cli/table.h"
#include "cmd/commands.h"
#include "cmd/validate/judging.h"
#include "cmd/validate/verification.h"
#include "gpu/gpu.h"
#include "probe/sandbox.h"
#include "score/gpu.h"
#include "validator/docket.h"

struct run {
	const struct invocation *invocation;
	struct keypair *keypair; /* a validator's; NULL where judges need not sign */
	struct api *api;
	struct python python; /* reads the forks and, but for --native, runs them */
	struct judge *judges; /* one on each device */
	size_t judge_count;
	bool live; /* checks are shown as they are made */
	struct verification verification;
	char reference_device[16]; /* of the verification */
	double interval;
	double gpu_factor;       /* 0: by each device's name */
	int64_t finalized;       /* the round that was finalized last; 0: none */
	cJSON *judged, *pending; /* a verdict each; those that this machine could not judge */
	size_t judged_count, pending_count, unrevealed;
};

/* --- submissions ------------------------------------------------------------------------------- */

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
	cJSON_AddNumberToObject(document, "normalized_score", verdict->told_score);
	json_add_real(document, "normalized_tokens_per_sec", verdict->tokens_per_second);
	json_add_text(document, "reason", verdict->reason);
	return document;
}

static void print_heading(const struct api_submission *submission, const struct judge *judge)
{
	char length[48];

	number_grouped((double)submission->target_sequence_length, length);
	printf("\nSubmission %lld by %s, %s tokens, on %s\n", (long long)submission->id,
		submission->miner_hotkey, length, judge->device.description);
}

/* It stays pending: the fork may be fine. */
static void leave_pending(
	struct run *run, const struct api_submission *submission, const struct error *problem)
{
	cJSON *entry = cJSON_CreateObject();

	cJSON_AddNumberToObject(entry, "submission_id", (double)submission->id);
	cJSON_AddStringToObject(entry, "reason", problem->message);
	cJSON_AddItemToArray(run->pending, entry);
	run->pending_count++;
	log_warn("submission %lld stays pending: %s%s%s", (long long)submission->id, problem->message,
		*problem->hint ? "\n" : "", problem->hint);
}

/* What keeps one verdict from being taken need not keep the others: but for an outage. */
static bool concerns_it_alone(const struct run *run, const struct error *untold)
{
	const struct api_exchange *last = api_last(run->api);

	if (untold->status == STATUS_NETWORK)
		return last->http_status && last->refusal != REFUSAL_DOWN && last->refusal != REFUSAL_LIMIT;
	return untold->status != STATUS_INTERRUPTED;
}

static int tell(const struct judge *judge, const struct api_submission *submission, struct verdict *verdict,
	const struct error *problem, void *context, struct error *err)
{
	struct run *run = context;
	struct docket_logits found = {NAN, NAN, NAN};
	struct error untold;
	int result = 0;

	if (!problem && !arg_flag(run->invocation, "assume-verified") &&
		docket_wants_logits(run->api, submission, verdict)) {
		result = verification_run(&run->verification, submission, verdict, &found, &untold);
		if (result && untold.status != STATUS_INTERRUPTED)
			problem = &untold;
	}
	if (!run->live && !run->invocation->json) {
		print_heading(submission, judge);
		for (size_t i = 0; i < verdict->checks.count; i++)
			report_check(&verdict->checks.items[i], NULL);
	}
	if (problem) {
		leave_pending(run, submission, problem);
		return 0;
	}
	if (!result)
		result = docket_tell(run->api, submission, verdict, &found, &untold);
	if (!result) {
		cJSON_AddItemToArray(run->judged, verdict_json(submission, verdict));
		run->judged_count++;
	} else if (concerns_it_alone(run, &untold)) {
		leave_pending(run, submission, &untold);
		result = 0;
	} else {
		*err = untold;
	}
	return result;
}

static int judge_one(
	struct run *run, struct judging *judging, const struct api_submission *submission, struct error *err)
{
	if (run->live)
		print_heading(submission, run->judges);
	if (judging_add(judging, submission, err) < 0)
		return -1;
	return run->judge_count == 1 ? judging_finish(judging, err) : 0;
}

/* Whether it was left so in this turn. */
static bool is_pending(const struct run *run, const struct api_submission *submission)
{
	const cJSON *entry;

	cJSON_ArrayForEach (entry, run->pending)
		if (cJSON_GetObjectItem(entry, "submission_id")->valuedouble == (double)submission->id)
			return true;
	return false;
}

/* Judges a docket: what is revealed and not validated yet, the oldest first. */
static int judge_docket(struct run *run, const struct docket *docket, struct error *err)
{
	struct judging *judging;
	int result = 0;

	for (size_t i = 0; i < run->judge_count; i++) {
		run->judges[i].rules = inspect_rules_of(api_version(run->api));
		run->judges[i].ranks_measured = api_version(run->api)->docket;
	}
	judging = judging_open(run->judges, run->judge_count, tell, run);
	for (size_t i = 0; !result && i < docket->count; i++)
		if (!is_pending(run, docket->submissions[i]))
			result = judge_one(run, judging, docket->submissions[i], err);
	if (!result)
		result = judging_finish(judging, err);
	judging_close(judging);
	return result;
}

/* Docket by docket, while any of it gets its verdict: what stays pending comes again. */
static int judge_all(struct run *run, struct error *err)
{
	struct docket docket;
	bool more = true;
	int result = 0;

	while (!result && more) {
		const size_t before = run->judged_count;

		result = docket_read(run->api, &docket, err);
		if (!result)
			result = judge_docket(run, &docket, err);
		run->unrevealed = docket.unrevealed;
		more = docket.more && run->judged_count > before;
		docket_free(&docket);
	}
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

/* What the validator answered; its list is not in the document. */
static cJSON *result_json(const struct api_round_result *result)
{
	cJSON *document = cJSON_Duplicate(result->memory.document, true), *list;

	cJSON_DeleteItemFromObjectCaseSensitive(document, "rankings");
	list = cJSON_AddArrayToObject(document, "rankings");
	for (size_t i = 0; i < result->count; i++) {
		cJSON *entry = cJSON_CreateObject();

		cJSON_AddItemToArray(list, entry);
		cJSON_AddNumberToObject(entry, "rank", (double)i + 1);
		json_add_id(entry, "submission_id", result->rankings[i].submission_id);
		json_add_text(entry, "miner_hotkey", result->rankings[i].miner_hotkey);
		json_add_real(entry, "weighted_score", result->rankings[i].weighted_score);
	}
	return document;
}

/* Ends the current round, at once or, with `when_due`, only when its time is up. */
static int finalize_current(struct run *run, bool when_due, struct api_round_result *final, struct error *err)
{
	struct api_round round = {0};
	int result = api_current_round(run->api, &round, err);

	if (!result && (!when_due || round.time_remaining_seconds <= 0))
		result = api_finalize_round(run->api, round.id, final, err);
	api_release(&round.memory);
	return result;
}

/* Where rounds end by themselves when their time is up: ranks the one that ended last with what has been judged by
 * now. With `when_due` only if that may make a difference. */
static int finalize_completed(
	struct run *run, bool when_due, struct api_round_result *final, struct error *err)
{
	struct api_round round = {0};
	struct api_weights weights = {0};
	char left[32];
	int result = api_current_round(run->api, &round, err); /* which also makes it end */

	if (!result)
		result = api_weights(run->api, 0, &weights, err);
	clock_duration((double)round.time_remaining_seconds, left);
	if (!result && weights.round_id &&
		(!when_due || run->judged_count || weights.round_id != run->finalized))
		result = api_refinalize_round(run->api, weights.round_id, final, err);
	else if (!result && !weights.round_id && !when_due)
		result = error_set(
			err, STATUS_EARLY, "no round has ended yet: the first one ends in %s", left);
	if (!result)
		run->finalized = weights.round_id;
	api_release(&weights.memory);
	api_release(&round.memory);
	return result;
}

/* `document` gets what the validator answered. */
static int finalize(struct run *run, bool when_due, cJSON *document, struct error *err)
{
	struct api_round_result final = {0};
	int result = api_learn_version(run->api)->docket ? finalize_completed(run, when_due, &final, err)
							 : finalize_current(run, when_due, &final, err);

	if (!result && final.memory.document) {
		if (!run->invocation->json)
			print_result(&final);
		cJSON_AddItemToObject(document, "round", result_json(&final));
	}
	api_release(&final.memory);
	return result;
}

/* --- the command ------------------------------------------------------------------------------- */

static void add_devices(cJSON *document, const struct run *run)
{
	cJSON *devices = cJSON_AddArrayToObject(document, "devices");

	for (size_t i = 0; i < run->judge_count; i++)
		cJSON_AddItemToArray(devices, cJSON_CreateString(run->judges[i].device.description));
}

static int run_once(struct run *run, struct error *err)
{
	cJSON *document = cJSON_CreateObject();
	int result = judge_all(run, err);

	if (!result && arg_flag(run->invocation, "finalize"))
		result = finalize(run, false, document, err);
	if (result || !run->invocation->json) {
		cJSON_Delete(document);
	} else {
		cJSON_AddStringToObject(document, "benchmark",
			run->judges->python ? "the fork's layer" : "quasar's own layer, native");
		cJSON_AddBoolToObject(document, "sandbox", run->judges->sandboxed);
		add_devices(document, run);
		cJSON_AddItemReferenceToObject(document, "judged", run->judged);
		cJSON_AddItemReferenceToObject(document, "pending", run->pending);
		cJSON_AddNumberToObject(document, "unrevealed", (double)run->unrevealed);
		output_json(document);
	}
	if (!result && !run->invocation->json)
		printf("\n%zu judged, %zu not revealed yet.\n", run->judged_count, run->unrevealed);
	if (!result && run->pending_count)
		result = run->invocation->json
			? error_set(err, STATUS_ENVIRONMENT, "%s", "")
			: error_set(err, STATUS_ENVIRONMENT, "%zu stayed pending", run->pending_count);
	return result;
}

/* Forgets the last turn. */
static void start_turn(struct run *run)
{
	cJSON_Delete(run->judged);
	cJSON_Delete(run->pending);
	run->judged = cJSON_CreateArray();
	run->pending = cJSON_CreateArray();
	run->judged_count = run->pending_count = 0;
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
		start_turn(run);
		if (result && err->status != STATUS_INTERRUPTED)
			log_warn("%s", err->message);
		if (interrupted() || clock_sleep(run->interval, err) < 0)
			return 0; /* stopping it is how it ends */
	}
}

/* "cuda:0,cuda:1": every GPU there is. NULL on error; the caller frees. */
static char *list_gpus(struct error *err)
{
	struct buffer list = {0};
	int count = gpu_count(err);

	for (int i = 0; i < count; i++)
		buffer_printf(&list, "%scuda:%d", i ? "," : "", i);
	if (!count) {
		error_set(err, STATUS_ENVIRONMENT, "--device all: the driver finds no GPU");
		error_hint(err, "`quasar gpus` shows what is found. To judge on the CPU: --device cpu");
	}
	return list.data;
}

/* Of a device that is no GPU: 1, as of an unknown one. */
static double device_factor(const struct device *device)
{
	return device->gpu ? gpu_factor(gpu_properties_of(device_gpu(device))->name) : 1;
}

/* A judge on that device. What runs forks has the GPU to itself: of our own we keep
 * nothing there but the reference model of verifications. */
static int add_judge(struct run *run, const struct judge *judge, const char *name, struct error *err)
{
	struct judge *added;

	run->judges = xrealloc(run->judges, (run->judge_count + 1) * sizeof(*run->judges));
	added = &run->judges[run->judge_count];
	*added = *judge;
	if (command_device(run->invocation, name, &added->device, err) < 0)
		return -1;
	run->judge_count++;
	added->gpu_factor = run->gpu_factor ? run->gpu_factor : device_factor(&added->device);
	if (judge->python) {
		struct device known = {.index = added->device.index};

		memcpy(known.description, added->device.description, sizeof(known.description));
		device_close(&added->device);
		added->device = known;
	}
	if (judge->python && added->device.index >= 0 && !run->python.cuda) {
		error_set(err, STATUS_ENVIRONMENT, "the PyTorch of %s is made for the CPU only",
			run->python.path);
		return error_hint(err, "Install PyTorch for CUDA, or use --device cpu.");
	}
	return 0;
}

/* One on each device of the list. */
static int open_judges(struct run *run, const struct judge *judge, struct error *err)
{
	const char *given = arg_string(run->invocation, "device");
	bool all = given && !strcmp(given, "all");
	char *list = all ? list_gpus(err) : given ? xstrdup(given) : NULL, *rest = list, *name;
	int result = all && !list ? -1 : 0;

	while (!result && (!run->judge_count || rest)) {
		name = strsep(&rest, ",");
		result = add_judge(run, judge, name, err);
	}
	free(list);
	for (size_t i = 0; i < run->judge_count; i++)
		run->judges[i].share = (int)run->judge_count;
	if (!result && !judge->python && run->judge_count > 1)
		result = error_set(err, STATUS_USAGE, "--native measures on one device");
	return result;
}

/* The reference model is where the forks run, one after the other. Where they run side by side it would disturb them: there
 * it is on the CPU. */
static int open_verification(struct run *run, struct error *err)
{
	int index = run->judge_count == 1 ? run->judges->device.index : -1;

	snprintf(run->reference_device, sizeof(run->reference_device), "cpu");
	if (index >= 0)
		snprintf(run->reference_device, sizeof(run->reference_device), "cuda:%d", index);
	return verification_open(run->invocation, run->reference_device, &run->verification, err);
}

/* What runs strangers' code is found, and found to work, before any of it is fetched. */
static int prepare_python(struct run *run, bool sandboxed, struct error *err)
{
	if (python_require_torch(&run->python, err) < 0)
		return -1;
	if (!sandboxed)
		log_warn("forks run without a sandbox: they can do on this machine whatever you can");
	return sandboxed ? sandbox_works(err) : 0;
}

static int read_options(struct run *run, struct error *err)
{
	const struct invocation *invocation = run->invocation;
	bool any = arg_flag(invocation, "local-forks"),
	     rehearsal = http_is_this_machine(arg_string(invocation, "api"));
	bool native = arg_flag(invocation, "native");
	struct judge judge = {
		.python = native ? NULL : &run->python,
		.sandboxed = !native && !arg_flag(invocation, "no-sandbox"),
		.local_forks = any || rehearsal,
		.reach = any        ? FORK_REACH_ANY
			: rehearsal ? FORK_REACH_LOOPBACK
				    : FORK_REACH_PUBLIC,
		.measure = measurement_run,
	};
	int found;

	if ((arg_flag(invocation, "assume-verified") || arg_given(invocation, "inference")) && !rehearsal)
		return error_set(err, STATUS_USAGE,
			"--%s is for rehearsals, with a validator on this machine",
			arg_given(invocation, "inference") ? "inference" : "assume-verified");
	if (arg_flag(invocation, "assume-verified") && arg_given(invocation, "inference"))
		return error_set(err, STATUS_USAGE, "use only one of --inference and --assume-verified");
	if (invocation->json && !arg_flag(invocation, "once"))
		return error_set(err, STATUS_USAGE, "--json needs --once");
	if (native && !rehearsal)
		return error_set(err, STATUS_USAGE,
			"--native judges no fork: it is for rehearsals, with a validator on this machine");
	if (arg_real(invocation, "interval", 1, 86400, &run->interval, err) < 0 ||
		arg_real(invocation, "gpu-factor", 1e-6, 1e6, &run->gpu_factor, err) < 0 ||
		arg_real(invocation, "budget", 0.1, 86400, &judge.seconds, err) < 0)
		return -1;
	found = command_python(invocation, NULL, &run->python, err);
	if (!native && (found < 0 || prepare_python(run, judge.sandboxed, err) < 0))
		return -1;
	judge.reader = run->python.path;
	if (open_judges(run, &judge, err) < 0 || open_verification(run, err) < 0)
		return -1;
	run->live = run->judge_count == 1 && !invocation->json;
	if (run->live)
		run->judges->report = report_check;
	return 0;
}

/* Where only validators are shown what waits, a validator's hotkey signs. */
static int connect_to_api(struct run *run, struct error *err)
{
	run->api = require_api(run->invocation, NULL, err);
	if (!run->api || api_learn_version(run->api)->lists)
		return run->api ? 0 : -1;
	run->keypair = require_hotkey(run->invocation, err);
	if (!run->keypair)
		return -1;
	api_close(run->api);
	run->api = require_api(run->invocation, run->keypair, err);
	if (!run->api)
		return -1;
	api_set_validator(run->api);
	return 0;
}

static void introduce(const struct run *run)
{
	const char *api = arg_string(run->invocation, "api");

	if (!run->judges->python)
		printf("A rehearsal for %s: quasar's own layer stands in for the forks, none of which is run.\n",
			api);
	else
		printf("Judging for %s. Forks are run by %s (PyTorch %s)%s.\n", api, run->python.path,
			run->python.torch, run->judges->sandboxed ? ", in a sandbox" : "");
}

static int run_validate(struct invocation *invocation, struct error *err)
{
	struct run run = {.invocation = invocation};
	int result = read_options(&run, err);

	if (!result)
		result = connect_to_api(&run, err);
	if (!result) {
		start_turn(&run);
		if (!invocation->json)
			introduce(&run);
		result = arg_flag(invocation, "once") ? run_once(&run, err) : run_forever(&run, err);
	}
	cJSON_Delete(run.judged);
	cJSON_Delete(run.pending);
	api_close(run.api);
	keypair_free(run.keypair);
	for (size_t i = 0; i < run.judge_count; i++)
		device_close(&run.judges[i].device);
	free(run.judges);
	verification_close(&run.verification);
	python_free(&run.python);
	return result;
}

const struct command cmd_validate = {
	.name = "validate",
	.summary = "judge submissions as a validator: clone, check, run in a sandbox, score",
	.description =
		"Judges submissions as a validator does, for any validator API. It takes revealed "
		"submissions that are not validated yet, the oldest first, clones the fork at its commit "
		"(at most 120 s and 512 MiB, into a temporary directory that is always removed), checks "
		"files and imports as the deployed validators do, runs the fork's layer, and scores: 1 + "
		"(measured - claimed) / claimed, or 0 below 90% of the claim. Like the reference "
		"validator, it reports half of that, at most 1. A fork that cannot be cloned, fails the "
		"import check or does not run at the target's length scores 0. Its verification is "
		"recorded as failed, with the reason, which excludes its claim from the ranking. What this "
		"machine could not judge, for want of memory or a GPU, stays pending.\n\n"
		"With a validator of version 2026-04, it is a validator's hotkey that asks (--wallet), and a "
		"fork that runs scores 1. Its speed at the target's length, divided by a factor for this "
		"GPU, is reported with it, and ranks. So is whether the logits of the "
		"submission's image are right: it is pulled and run, with podman or docker, without network, and challenged "
		"against the reference model. A submission without an image, or whose image fails, scores 0. In a rehearsal, "
		"--inference can name a server that is challenged in their place.\n\n"
		"The layer is run at the target's length and those that the submission has benchmarks for, "
		"by default 512, 1024 and 2048: each in a Python of its own, with 3 calls to warm up and 10 "
		"that are timed. That Python needs PyTorch. On a CPU, lengths that memory or --budget "
		"will not do for are skipped; if the target is one of them, the longest length measured "
		"counts.\n\n"
		"Forks are strangers' code. They run in a sandbox, which needs bubblewrap 0.8 or later: "
		"without network, home, keys or other processes, with a read-only system, and with "
		"memory, files and processes bounded; of GPUs they see the one they are judged on. Where "
		"no sandbox can be made, nothing is judged, unless --no-sandbox is given.\n\n"
		"Forks are cloned over http and https, without a proxy, and only from public addresses: a "
		"stranger's URL must not reach this machine, its network or its cloud services. If the "
		"API is on this machine, forks may be too. Cloning uses at most 512 MiB of memory, runs "
		"none of the fork's code, and does not follow its symbolic links.",
	.opts =
		(const struct opt[]){
			{"once", 0, NULL, NULL, NULL, NULL, "Judge what is waiting, then exit."},
			{"interval", 0, "SECONDS", NULL, "60", NULL,
				"Time between two checks for new submissions."},
			{"finalize", 0, NULL, NULL, NULL, NULL,
				"End the round: immediately with --once, otherwise when its time is up. With "
				"2026-04, where rounds end by themselves: rank the last one anew."},
			{"budget", 0, "SECONDS", NULL, "300", NULL, "Time limit for each length."},
			{"device", 0, "DEVICE,...", "DEVICE", NULL, NULL,
				"Where to run forks: auto, cpu, cuda:N, or all (GPUs). With several, "
				"submissions are judged side by side, one on each."},
			OPT_PYTHON,
			{"no-sandbox", 0, NULL, NULL, NULL, NULL,
				"Run forks as you, without a sandbox: only for forks that you trust."},
			{"native", 0, NULL, NULL, NULL, NULL,
				"In a rehearsal, measure quasar's own layer instead of the fork's."},
			{"gpu-factor", 0, "X", "GPU_NORMALIZATION_FACTOR", NULL, NULL,
				"With 2026-04: divide measured speeds by this. Default: what validators take "
				"for this GPU, 1 for the RTX 5090."},
			{"inference", 0, "URL", NULL, NULL, NULL,
				"With 2026-04, in a rehearsal: an inference server to challenge in the place of images, "
				"as `quasar verify --logits` does."},
			{"reference", 0, "NAME|DIR", "REFERENCE_MODEL", NULL, NULL,
				"With 2026-04: the reference model, a name in the Hugging Face cache, or a folder. If "
				"unset: Qwen/Qwen3-4B-Instruct-2507. It runs where the forks run; with several "
				"devices, on the CPU."},
			{"assume-verified", 0, NULL, NULL, NULL, NULL,
				"With 2026-04, in a rehearsal: take the logits of images for right."},
			{"local-forks", 0, NULL, NULL, NULL, NULL,
				"Clone from any address, including file:// and paths, for any API."},
			OPTS_WALLET,
			OPTS_API,
			{0},
		},
	.examples =
		(const struct example[]){
			{"quasar validate --once", "judge what is waiting at VALIDATOR_API_URL"},
			{"quasar validate --once --finalize",
				"the same, then end the round and show the ranking"},
			{"quasar validate --device all",
				"one submission on each GPU at a time, until stopped"},
			{"quasar validate --api http://localhost:8000 --interval 5",
				"judge for `quasar localnet`"},
			{"quasar validate --once --json | jq '.judged[] | {submission_id, score, reason}'",
				"the scores, for a script"},
			{0},
		},
	.exits = (const enum status[]){STATUS_ENVIRONMENT, STATUS_NETWORK, STATUS_REFUSED, STATUS_EARLY, 0},
	.run = run_validate,
};
