/* quasar verify: the checks of a fork, or of quasar's own code, and how fast what they checked is. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/version.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/terminal.h"
#include "cli/device.h"
#include "cli/measurement.h"
#include "cli/python.h"
#include "cli/report.h"
#include "cli/verification.h"
#include "cmd/commands.h"
#include "cmd/verify/verify.h"
#include "fork/fork.h"
#include "image/image.h"
#include "measure/accuracy.h"
#include "measure/fixture.h"
#include "score/score.h"
#include "space/workspace.h"

#define MOST_LENGTHS 16

struct length {
	int64_t tokens;
	struct measurement measurement;
	bool measured;
};

struct run {
	struct invocation *invocation;
	struct verify_request request;
	bool native; /* quasar's own code, not the fork's */
	struct device device;
	struct check_list checks;
	struct checks_found found; /* of the fork */
	char commit[41];           /* whose files were checked; "": others, or other code */
	enum semantics wanted;
	struct length lengths[MOST_LENGTHS];
	int count;
	double started;
	char semantics[64];
};

/* --- quasar's own code -------------------------------------------------------------------------- */

static double time_left(const struct run *run)
{
	return run->request.budget - (clock_elapsed() - run->started);
}

static int measure(struct run *run, struct length *length, struct error *err)
{
	struct measure_plan plan = {
		.workload = run->request.op ? WORKLOAD_OP : WORKLOAD_LAYER,
		.family = run->request.op,
		.semantics = (enum semantics)run->request.options[0],
		.tokens = length->tokens,
		.warmups = MEASURE_WARMUPS,
		.runs = MEASURE_RUNS,
		.weights = run->request.weights,
		.budget = fmax(time_left(run) / 2, 0.1),
		.seed = run->request.seed,
	};
	int result;

	memcpy(plan.options, run->request.options, sizeof(plan.options));
	result = measurement_run(&run->device, &plan, &length->measurement, err);
	length->measured = !result;
	return result;
}

/* What the time that a length takes goes with: operations, of a gradient too. Attention's grow with its square. */
static double work_of(const struct run *run, int64_t tokens)
{
	const struct op_shape shape = fixture_shape(tokens);
	double operations = 0;

	for (const struct family *family = run->request.op ? run->request.op : families[0]; family;
		family = family_gradient(family, run->request.options)) {
		const struct op_problem problem = family_problem(
			family, &shape, DTYPE_BF16, run->request.options);

		operations += family->operations(&problem);
	}
	return operations;
}

/* Everything at one more length, unless time or memory does not suffice: then a check that says so. */
static int full_length(
	struct run *run, struct length *length, double seconds_per_operation, struct error *err)
{
	struct verify_request request = run->request;
	char *suffix = xprintf(".%lld", (long long)length->tokens), *name = xprintf("length%s", suffix);
	double seconds = seconds_per_operation * work_of(run, length->tokens);
	double needed = accuracy_memory(length->tokens), available = memory_available();
	char time[32], left[32], tokens[48];
	int result = 0;

	request.tokens = length->tokens;
	clock_duration(seconds, time);
	clock_duration(time_left(run), left);
	if (seconds > time_left(run)) {
		check_add(&run->checks, name, CHECK_SKIP, "Allow more time with --budget SECONDS.",
			"skipped: it takes about %s, but only %s is left", time, left);
	} else if (needed > available) {
		check_add(&run->checks, name, CHECK_SKIP, NULL,
			"skipped: the fp64 reference takes about %.0f MiB, but only %.0f MiB are free",
			needed, available);
	} else {
		number_grouped((double)length->tokens, tokens);
		log_note("%s tokens …", tokens);
		result = verify_native(run->invocation, &request, &run->device, suffix, &run->checks, err);
		if (!result)
			result = measure(run, length, err);
	}
	free(name);
	free(suffix);
	return result;
}

static int by_tokens(const void *a, const void *b)
{
	int64_t x = ((const struct length *)a)->tokens, y = ((const struct length *)b)->tokens;

	return (x > y) - (x < y);
}

/* The lengths that --full adds to the first one. */
static int full_lengths(struct run *run, double seconds_per_operation, struct error *err)
{
	static const int64_t usual[] = {512, 1024, 2048, 4096, 16384, 65536, 262144};
	size_t usual_count = sizeof(usual) / sizeof(*usual);

	for (size_t i = 0; i <= usual_count; i++) {
		int64_t tokens = i < usual_count ? usual[i] : run->request.target;
		bool known = !tokens;

		for (int n = 0; n < run->count; n++)
			known |= run->lengths[n].tokens == tokens;
		if (!known)
			run->lengths[run->count++].tokens = tokens;
	}
	qsort(run->lengths + 1, (size_t)run->count - 1, sizeof(*run->lengths), by_tokens);
	for (int i = 1; i < run->count; i++)
		if (full_length(run, &run->lengths[i], seconds_per_operation, err) < 0)
			return -1;
	return 0;
}

static void print_native_setting(const struct run *run)
{
	const struct family *family = run->request.op ? run->request.op : families[0];
	char input[160];

	fixture_describe(family, run->request.options, input, sizeof(input));
	printf("On %s, seed %llu, %s semantics; %s.\n"
	       "This is quasar's own native implementation of %s, not the fork's Python.\n\n",
		run->device.description, (unsigned long long)run->request.seed, run->semantics, input,
		run->request.op ? family->title : "the operation");
}

static int compute_native(struct run *run, struct error *err)
{
	double started = clock_elapsed();

	if (!run->invocation->json)
		print_native_setting(run);
	if (verify_native(run->invocation, &run->request, &run->device, "", &run->checks, err) < 0)
		return -1;
	run->count = 1;
	run->lengths[0].tokens = run->request.tokens;
	if (measure(run, &run->lengths[0], err) < 0)
		return -1;
	return run->request.more_lengths
		? full_lengths(run, (clock_elapsed() - started) / work_of(run, run->request.tokens), err)
		: 0;
}

/* --- the fork ------------------------------------------------------------------------------------ */

/* The lengths that were timed as validators do. */
static void take_lengths(struct run *run)
{
	for (int i = 0; i < run->found.length_count; i++) {
		const struct checks_length *from = &run->found.lengths[i];
		struct length *length = &run->lengths[run->count];

		if (from->times.calls < MEASURE_RUNS)
			continue;
		*length = (struct length){.tokens = from->tokens, .measured = true};
		checks_measurement(from, &length->measurement);
		run->count++;
	}
}

/* A claim is for the target; where that was not measured, it is not kept. */
static void check_claim(struct run *run)
{
	double claimed = run->request.claimed;

	for (int i = 0; i < run->count; i++)
		if (run->lengths[i].tokens == run->request.target) {
			verify_claim(run->lengths[i].measurement.tokens_per_second, claimed, &run->checks);
			return;
		}
	check_add(&run->checks, "claim", CHECK_FAIL,
		"Give it more time with --budget SECONDS, or a shorter target with --target N.",
		"not measured: the target, %lld tokens, was left out", (long long)run->request.target);
}

static int check_fork(struct run *run, const struct fork_verification *verification, struct error *err)
{
	if (!run->invocation->json && !run->request.static_only)
		printf("\nOn %s, seed %llu.\n\n", run->device.description,
			(unsigned long long)run->request.seed);
	if (verify_fork(&run->request, verification, &run->checks, &run->found, err) < 0)
		return -1;
	take_lengths(run);
	if (run->request.claimed > 0 && run->found.ran)
		check_claim(run);
	return 0;
}

/* --- the result ---------------------------------------------------------------------------------- */

/* Whether the fork was to be run and was not, through no fault of its own. */
static bool not_run(const struct run *run)
{
	return !run->native && !run->request.static_only && *run->found.why_not;
}

static void print_result(const struct run *run)
{
	size_t failures = check_count(&run->checks, CHECK_FAIL);
	size_t warnings = check_count(&run->checks, CHECK_WARN);
	const char *result = failures ? "failed" : not_run(run) ? "NOT RUN" : "passed";
	enum color shown = failures ? COLOR_RED : not_run(run) ? COLOR_YELLOW : COLOR_GREEN;
	struct table table;

	if (run->count && run->lengths[0].measured) {
		putchar('\n');
		measurement_table(&table, false);
		for (int i = 0; i < run->count; i++)
			if (run->lengths[i].measured)
				measurement_row(&table, run->lengths[i].tokens, &run->lengths[i].measurement);
		table_print(&table, stdout);
	}
	printf("\n%s%s%s: %zu ok, %zu warning%s, %zu failed, %zu skipped\n", color(stdout, shown), result,
		color(stdout, COLOR_NONE), check_count(&run->checks, CHECK_OK), warnings,
		warnings == 1 ? "" : "s", failures, check_count(&run->checks, CHECK_SKIP));
	if (not_run(run))
		printf("The fork was NOT RUN: %s\n", run->found.why_not);
	else if (!failures && !run->native && !run->request.foreign)
		puts(run->request.static_only ? "Next: quasar verify" : "Next: quasar bench");
}

static void print_json(const struct run *run)
{
	cJSON *document = cJSON_CreateObject(), *measurements;

	cJSON_AddBoolToObject(document, "passed", !check_count(&run->checks, CHECK_FAIL) && !not_run(run));
	json_add_text(document, "commit", *run->commit ? run->commit : NULL);
	cJSON_AddItemToObject(document, "checks", check_json(&run->checks));
	if (!run->request.static_only) {
		cJSON_AddStringToObject(document, "device", run->device.description);
		cJSON_AddStringToObject(document, "implementation", run->native ? "native" : "fork");
		if (run->request.op)
			cJSON_AddStringToObject(document, "op", run->request.op->name);
		if (!run->native) {
			cJSON_AddBoolToObject(document, "ran", run->found.ran);
			json_add_text(document, "torch", *run->found.torch ? run->found.torch : NULL);
		}
		json_add_text(document, "semantics", run->native ? run->semantics : run->found.function);
		cJSON_AddNumberToObject(document, "seed", (double)run->request.seed);
		measurements = cJSON_AddArrayToObject(document, "measurements");
		for (int i = 0; i < run->count; i++) {
			cJSON *object;

			if (!run->lengths[i].measured)
				continue;
			object = cJSON_CreateObject();
			measurement_json(object, run->lengths[i].tokens, &run->lengths[i].measurement);
			cJSON_AddItemToArray(measurements, object);
		}
	}
	output_json(document);
}

/* What the options say, but for the fork. */
static int read_request(struct run *run, struct error *err)
{
	const struct invocation *invocation = run->invocation;
	const struct family *family = command_family(invocation);
	int64_t seed = (int64_t)command_seed();

	run->request = (struct verify_request){
		.version = api_version_oldest(),
		.foreign = arg_given(invocation, "fork"),
		.strict = arg_flag(invocation, "strict"),
		.static_only = arg_flag(invocation, "static"),
		.more_lengths = arg_flag(invocation, "full"),
		.op = arg_given(invocation, "op") ? family : NULL,
		.device = arg_string(invocation, "device"),
		.weights = arg_string(invocation, "weights"),
	};
	run->native = arg_flag(invocation, "native") || run->request.op;
	if (arg_integer(invocation, "seq", 1, MOST_TOKENS, &run->request.tokens, err) < 0 ||
		arg_integer(invocation, "seed", 0, (int64_t)1 << 53, &seed, err) < 0 ||
		arg_integer(invocation, "target", 1, MOST_TOKENS, &run->request.target, err) < 0 ||
		arg_real(invocation, "budget", 0, 1e9, &run->request.budget, err) < 0 ||
		arg_real(invocation, "claimed", 0, 1e15, &run->request.claimed, err) < 0 ||
		command_semantics(invocation, family, run->request.options, err) < 0)
		return -1;
	if (run->native &&
		(run->request.static_only || run->request.claimed > 0 || arg_given(invocation, "fork") ||
			arg_given(invocation, "python")))
		return error_set(err, STATUS_USAGE,
			"%s cannot be combined with --fork, --python, --static or --claimed",
			run->request.op ? "--op" : "--native");
	if (run->request.op && run->request.weights)
		return error_set(err, STATUS_USAGE, "--op cannot be combined with --weights: it has none");
	if (run->request.weights && !run->native)
		return error_set(
			err, STATUS_USAGE, "--weights needs --native: the fork is checked at its own");
	if (!run->request.op && command_layer_semantics(run->request.options, &run->wanted, err) < 0)
		return -1;
	if (arg_given(invocation, "semantics"))
		run->request.wanted = &run->wanted;
	run->request.target_required = run->request.more_lengths || run->request.claimed > 0 ||
		arg_given(invocation, "target");
	family_options_format(family, run->request.options, run->semantics, sizeof(run->semantics));
	run->request.seed = (uint64_t)seed;
	run->started = clock_elapsed();
	if (run->request.static_only)
		return 0;
	return command_device(invocation, run->request.device, &run->device, err);
}

/* The version of the validator that the workspace submits to, as far as it is known. */
static const struct api_version *version_of(
	const struct invocation *invocation, const struct workspace *workspace)
{
	const char *url = settings_get(invocation->settings, "VALIDATOR_API_URL", NULL);
	const char *forced = settings_get(invocation->settings, "API_VERSION", NULL);
	char *kept = url ? store_validator_version(workspace->store, url) : NULL;
	const struct api_version *version = forced ? api_version_named(forced) : NULL;

	if (!version && kept)
		version = api_version_named(kept);
	free(kept);
	return version ? version : api_version_oldest();
}

/* The fork that --fork or the workspace names, and what validators would clone. */
static int find_fork(const struct invocation *invocation, struct workspace *workspace,
	struct verify_request *request, struct error *err)
{
	request->fork_path = arg_string(invocation, "fork");
	if (request->fork_path)
		return 0;
	if (!require_workspace(invocation, err))
		return error_hint(
			err, "Name a fork with --fork DIR, or create a workspace with `quasar init DIR`.");
	if (workspace_open(invocation->workspace, invocation->settings, workspace, err) < 0)
		return -1;
	request->fork_path = workspace->fork_path;
	request->fork_url = workspace->fork_url;
	request->version = version_of(invocation, workspace);
	return 0;
}

/* The image that goes with submissions, where the workspace's validator ranks none without. */
static void check_image(struct run *run)
{
	char *image = workspace_docker_image(run->invocation->settings);

	if (image && run->request.version->images)
		image_check(image, NULL, run->request.static_only ? 0 : run->request.budget, &run->checks);
	free(image);
}

/* All that is the fork's. */
static int verify_whole_fork(struct run *run, struct error *err)
{
	struct fork_verification verification;
	struct fork_state fork;
	struct error none; /* what is no clone has no commit */
	bool clean = fork_state_read(run->request.fork_path, &fork, &none) == 0 && !fork.changed;
	int result = verify_open(run->invocation, &run->request, &run->device, &verification, err);

	if (!result)
		result = verify_static(&run->request, &verification, &run->checks, err);
	if (!result) {
		check_image(run);
		result = check_fork(run, &verification, err);
	}
	if (clean && fork_is_still(run->request.fork_path, &fork))
		memcpy(run->commit, fork.commit, sizeof(run->commit));
	fork_state_free(&fork);
	verify_close(&verification);
	return result;
}

static int run_verify(struct invocation *invocation, struct error *err)
{
	struct run run = {.invocation = invocation};
	struct workspace workspace = {0};
	int result = -1;

	if (arg_given(invocation, "logits") || arg_given(invocation, "image"))
		return verify_logits(invocation, err);
	if (read_request(&run, err) < 0)
		goto done;
	if (!run.native && find_fork(invocation, &workspace, &run.request, err) < 0)
		goto done;
	if (!invocation->json)
		run.checks.report = report_check;
	result = run.native ? compute_native(&run, err) : verify_whole_fork(&run, err);
	if (result)
		goto done;
	if (invocation->json)
		print_json(&run);
	else
		print_result(&run);
	if (check_count(&run.checks, CHECK_FAIL))
		result = error_set(err, STATUS_FAILED, "%s", "");
	else if (not_run(&run))
		result = error_set(err, STATUS_ENVIRONMENT, "%s", "");
done:
	check_free(&run.checks);
	workspace_close(&workspace);
	device_close(&run.device);
	return result;
}

const struct command cmd_verify = {
	.group = "Make it fast",
	.name = "verify",
	.summary = "run every check that a validator runs",
	.description =
		"Checks the fork's files, imports and git state as validators do. Then it runs the fork's own "
		"layer, with the miner's Python: whether it imports, and computes the right function at every "
		"length, in every call and whoever calls; whether the time that it seems to take is the time "
		"that it takes. Finally it shows tokens/s and memory, league and weighted score. docs/checks.md "
		"lists what makes each check fail.\n\n"
		"imports.ast is the import rule of April 2026, on the syntax tree of every Python file under "
		"fla/. The miner's Python parses the files; without one, quasar reads them itself and cannot "
		"tell whether their syntax is right.\n\n"
		"Without PyTorch, or if the fork needs a GPU and there is none, the fork is not run: verify says so "
		"and exits with 3.\n\n"
		"--native checks quasar's own implementation instead, which needs no fork and no Python: the "
		"operation and the layer, three times on random tensors, against an fp64 reference.\n\n"
		"VERIFY_COSINE_THRESHOLD and VERIFY_MAX_ABS_DIFF set the thresholds between runs.\n\n"
		"--logits checks an inference server, or another model, instead: whether its logits are the reference "
		"model's, as validators find out. Each challenge is a random prompt of 128 tokens and asks for 512 more, "
		"with the logits of one step (2026-02) or three (2026-04). The reference runs on this machine. "
		"Every vector of logits needs a cosine similarity of LOGIT_COSINE_THRESHOLD and may differ by "
		"LOGIT_MAX_ABS_DIFF at most. The tokens are compared too, but do not count: where the reference's "
		"best two are close, rounding chooses.",
	.opts =
		(const struct opt[]){
			{"seq", 's', "N", NULL, "4096", NULL,
				"Sequence length for most of the checks, in tokens."},
			{"fork", 0, "DIR", NULL, NULL, NULL, "Path of the fork. Default: the workspace's."},
			OPT_PYTHON,
			{"full", 0, NULL, NULL, NULL, NULL,
				"Look at lengths up to 262144 tokens and at the target, as far as time and "
				"memory allow."},
			{"target", 0, "N", "TARGET_SEQUENCE_LENGTH", NULL, NULL,
				"Target sequence length. Left out if it takes long, unless given here, with "
				"--full or --claimed."},
			{"budget", 0, "SECONDS", NULL, "300", NULL, "Time limit for all computations."},
			{"static", 0, NULL, NULL, NULL, NULL,
				"Only check files, imports, git and Python's syntax; run nothing."},
			{"strict", 0, NULL, NULL, NULL, NULL,
				"Fail instead of warning if chunk.py lacks one of the twelve import lines."},
			{"claimed", 0, "N", NULL, NULL, NULL,
				"Tokens/s that you want to claim: fail if less than 90% of it is measured at "
				"the target."},
			OPT_SEMANTICS,
			{"native", 0, NULL, NULL, NULL, NULL, "Check quasar's own code, not a fork."},
			OPT_OP("Check only an operation of quasar's own."),
			OPT_WEIGHTS,
			{"logits", 0, "URL|DIR", NULL, NULL, NULL,
				"Check the logits of an inference server, or of a model, against the reference's."},
			{"image", 0, "[NAME]", NULL, NULL, NULL,
				"The same for a container image: run it as validators do, and challenge the server "
				"in it. Without NAME: MINER_DOCKER_IMAGE."},
			{"reference", 0, "NAME|DIR", "REFERENCE_MODEL", NULL, NULL,
				"Reference model: a name in the Hugging Face cache, or a folder. If unset: that of the "
				"validator's version, for images Qwen/Qwen3-4B-Instruct-2507."},
			{"challenges", 0, "N", NULL, "1", NULL,
				"Challenges of each version; API_VERSION chooses one version."},
			OPT_DEVICE,
			{"seed", 0, "N", NULL, NULL, NULL, "Seed of an earlier run, to repeat it."},
			{0},
		},
	.examples =
		(const struct example[]){
			{"quasar verify", "check the workspace's fork"},
			{"quasar verify --semantics upstream", "require the reference fork's function"},
			{"quasar verify --static --fork ~/flash-linear-attention",
				"check only the files, of any clone"},
			{"quasar verify --full --budget 600 --claimed 50k",
				"every length within ten minutes, and a claim"},
			{"quasar verify --op linear --semantics causal,relu",
				"one operation of quasar's own"},
			{"quasar verify --logits http://localhost:8001",
				"whether an inference server would be accepted"},
			{"quasar verify --json | jq -r '.checks[] | select(.status == \"fail\").name'",
				"the names of failed checks"},
			{0},
		},
	.exits = (const enum status[]){STATUS_FAILED, STATUS_ENVIRONMENT, 0},
	.run = run_verify,
};
