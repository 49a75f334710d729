/* bench: how fast the fork's layer, or quasar's own, or the operation run on this machine. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/version.h"
#include "cli/device.h"
#include "cli/measurement.h"
#include "cmd/commands.h"
#include "fork/fork.h"
#include "measure/fixture.h"
#include "measure/measure.h"
#include "score/score.h"
#include "space/benchmarks.h"
#include "space/workspace.h"

#define MOST_LENGTHS 32
#define TEXT_OF(number) #number
#define TEXT(number) TEXT_OF(number)
#define MOST_EARLIER 5 /* results that --compare shows for each length */

struct run {
	struct invocation *invocation;
	struct device device;
	struct measure_plan plan; /* for each length anew, but for its tokens */
	char workload[32];        /* "layer", "python", "op", or for another family "op.linear" */
	char semantics[64];
	int64_t lengths[MOST_LENGTHS];
	int count;
	struct workspace workspace; /* store NULL: outside of a workspace */
	char commit[41];            /* of the fork; "": none, or other files than its were measured */
	cJSON *results;
};

/* --- the workspace ------------------------------------------------------------------------------- */

static int open_workspace(struct run *run, struct error *err)
{
	struct fork_state fork = {0};
	struct error no_fork = {0};

	if (!run->invocation->workspace)
		return 0;
	if (workspace_open(run->invocation->workspace, run->invocation->settings, &run->workspace, err) < 0)
		return -1;
	if (fork_state_read(run->workspace.fork_path, &fork, &no_fork) == 0) {
		if (fork.changed && run->plan.workload == WORKLOAD_PYTHON)
			log_warn("the fork has uncommitted changes, for example in %s: no claim can be "
				 "made from this result. Commit them and measure again",
				fork.changed_name);
		else
			memcpy(run->commit, fork.commit, sizeof(run->commit));
	}
	fork_state_free(&fork);
	run->plan.fork_path = run->workspace.fork_path;
	return 0;
}

/* What the fork's own layer computes is the fork's affair. */
static const char *semantics_of(const struct run *run)
{
	return run->plan.workload == WORKLOAD_PYTHON ? "" : run->semantics;
}

static struct benchmark benchmark_of(struct run *run, const struct measurement *measurement)
{
	const struct measure_plan *plan = &run->plan;

	return (struct benchmark){
		.when = clock_now(),
		.code = plan->workload == WORKLOAD_PYTHON ? BENCHMARK_FORK : BENCHMARK_NATIVE,
		.operation = plan->workload == WORKLOAD_OP ? (char *)plan->family->name : NULL,
		.semantics = (char *)semantics_of(run),
		.weights = (char *)plan->weights,
		.device = run->device.index < 0 ? BENCHMARK_CPU : BENCHMARK_CUDA,
		.device_index = run->device.index < 0 ? 0 : run->device.index,
		.device_name = run->device.description,
		.seq = plan->tokens,
		.runs = measurement->runs,
		.tokens_per_sec = measurement->tokens_per_second,
		.spread = measurement->spread,
		.memory_mb = measurement->memory_mb,
		.fork_commit = run->commit[0] ? run->commit : NULL,
		.version = QUASAR_VERSION,
	};
}

/* Shows or lists what was measured earlier of the same thing. */
static int compare(struct run *run, const struct benchmark *now, cJSON *document, struct error *err)
{
	const struct benchmark_filter filter = {.like = now};
	struct benchmark_list list = {0};
	cJSON *earlier = cJSON_AddArrayToObject(document, "earlier");

	if (benchmark_list(run->workspace.store, &filter, MOST_EARLIER, &list, err) < 0)
		return -1;
	for (size_t i = 0; i < list.count; i++) {
		const struct benchmark *old = &list.items[i];
		double ratio = now->tokens_per_sec / old->tokens_per_sec;
		char when[32], rate[48];
		cJSON *item = cJSON_CreateObject();

		clock_format(old->when, when);
		number_grouped(round(old->tokens_per_sec), rate);
		cJSON_AddStringToObject(item, "when", when);
		cJSON_AddNumberToObject(item, "tokens_per_sec", old->tokens_per_sec);
		cJSON_AddNumberToObject(item, "ratio", ratio);
		cJSON_AddStringToObject(item, "device", old->device_name);
		cJSON_AddStringToObject(item, "fork_commit", old->fork_commit ? old->fork_commit : "");
		cJSON_AddItemToArray(earlier, item);
		if (!run->invocation->json)
			printf("%12s %.16s: %s tokens/s at commit %.8s on %s; now %+.1f %%\n", "", when, rate,
				old->fork_commit ? old->fork_commit : "none", old->device_name,
				(ratio - 1) * 100);
	}
	benchmark_list_free(&list);
	return 0;
}

/* --- measuring ----------------------------------------------------------------------------------- */

static int measure_length(struct run *run, int64_t tokens, struct error *err)
{
	struct measurement measurement;
	struct benchmark benchmark;
	cJSON *document = cJSON_CreateObject();
	bool ours = run->device.index < 0 && run->plan.workload != WORKLOAD_PYTHON;
	double needed = ours ? measure_memory(run->plan.workload, tokens) : 0, available = memory_available();

	cJSON_AddItemToArray(run->results, document);
	if (needed > available)
		return error_set(err, STATUS_ENVIRONMENT,
			"%lld tokens need about %.0f MiB of memory, but only %.0f MiB are free",
			(long long)tokens, needed, available);
	run->plan.tokens = tokens;
	if (measurement_run(&run->device, &run->plan, &measurement, err) < 0)
		return -1;
	measurement_json(document, tokens, &measurement);
	if (!run->invocation->json)
		measurement_print(tokens, &measurement);
	if (measurement.shortened)
		log_note("%lld tokens: only %d warm-up%s and %d run%s, to stay within --budget",
			(long long)tokens, measurement.warmups, measurement.warmups == 1 ? "" : "s",
			measurement.runs, measurement.runs == 1 ? "" : "s");
	benchmark = benchmark_of(run, &measurement);
	if (arg_flag(run->invocation, "compare") && compare(run, &benchmark, document, err) < 0)
		return -1;
	return run->workspace.store ? benchmark_insert(run->workspace.store, &benchmark, err) : 0;
}

/* On a GPU a workspace's fork is what counts: that is what validators run there. */
static int choose_workload(struct run *run, struct error *err)
{
	const struct invocation *invocation = run->invocation;
	bool op = arg_given(invocation, "op"), layer = arg_flag(invocation, "layer"),
	     python = arg_flag(invocation, "python");

	if (op + layer + python > 1)
		return error_set(err, STATUS_USAGE, "use only one of --op, --layer and --python");
	if (python && !require_workspace(invocation, err))
		return -1;
	if (!op && !layer && invocation->workspace && run->device.index >= 0 && !run->plan.weights)
		python = true;
	run->plan.workload = op ? WORKLOAD_OP : python ? WORKLOAD_PYTHON : WORKLOAD_LAYER;
	snprintf(run->workload, sizeof(run->workload), "%s", workload_name(run->plan.workload));
	if (run->plan.family != families[0])
		snprintf(run->workload, sizeof(run->workload), "op.%s", run->plan.family->name);
	if (run->plan.workload != WORKLOAD_LAYER && run->plan.weights)
		return error_set(err, STATUS_USAGE, "--weights needs --layer: it is for quasar's own layer");
	return 0;
}

static int read_options(struct run *run, struct error *err)
{
	const struct invocation *invocation = run->invocation;
	int64_t runs = MEASURE_RUNS, seed = 1;

	run->plan = (struct measure_plan){
		.family = command_family(invocation),
		.warmups = MEASURE_WARMUPS,
		.weights = arg_string(invocation, "weights"),
	};
	run->count = arg_integers(invocation, arg_given(invocation, "seq") ? "seq" : "target", 1, MOST_TOKENS,
		run->lengths, MOST_LENGTHS, err);
	if (run->count < 0 || arg_integer(invocation, "runs", 1, 10000, &runs, err) < 0 ||
		arg_integer(invocation, "seed", 0, (int64_t)1 << 53, &seed, err) < 0 ||
		arg_real(invocation, "budget", 0, 1e9, &run->plan.budget, err) < 0)
		return -1;
	if (command_semantics(invocation, run->plan.family, run->plan.options, err) < 0)
		return -1;
	family_options_format(run->plan.family, run->plan.options, run->semantics, sizeof(run->semantics));
	run->plan.semantics = (enum semantics)
				      run->plan.options[0]; /* of the layer, which has the first family's */
	run->plan.runs = (int)runs;
	run->plan.seed = (uint64_t)seed;
	if (arg_flag(invocation, "compare") && !require_workspace(invocation, err))
		return -1;
	if (command_device(invocation, arg_string(invocation, "device"), &run->device, err) < 0)
		return -1;
	return choose_workload(run, err);
}

static void print_heading(const struct run *run)
{
	char input[160];

	if (run->plan.workload == WORKLOAD_PYTHON)
		printf("The fork's own layer, in Python, on %s.\n", run->device.description);
	else
		printf("Quasar's own %s%s%s, %s semantics, on %s.\n",
			run->plan.workload == WORKLOAD_OP ? "operation" : "layer",
			run->plan.workload == WORKLOAD_OP ? " " : "",
			run->plan.workload == WORKLOAD_OP ? run->plan.family->title : "", run->semantics,
			run->device.description);
	fixture_describe(run->plan.family, input, sizeof(input));
	if (run->plan.weights)
		printf("Batch 1, weights from %s.\n\n", run->plan.weights);
	else if (run->plan.workload == WORKLOAD_OP)
		printf("Batch 1, 8 heads of 64, bf16; %s.\n\n", input);
	else
		printf("Batch 1, hidden 512, 8 heads of 64, bf16, as validators time it.\n\n");
	if (run->plan.copy_rate > 0)
		printf("Copying within device memory runs at %.0f GB/s. \"of floor\": the time to move "
		       "q, k, v and o\nonce at that rate, as a percentage of the time measured.\n\n",
			run->plan.copy_rate / 1e9);
	measurement_print_heading(run->plan.copy_rate > 0);
}

static int run_bench(struct invocation *invocation, struct error *err)
{
	struct run run = {.invocation = invocation, .results = cJSON_CreateArray()};
	int result = read_options(&run, err);

	if (!result)
		result = open_workspace(&run, err);
	if (!result && run.plan.workload == WORKLOAD_OP)
		result = run.device.copy_rate(&run.device, &run.plan.copy_rate, err);
	if (!result && !invocation->json)
		print_heading(&run);
	for (int i = 0; i < run.count && !result; i++)
		result = measure_length(&run, run.lengths[i], err);
	if (!result && !run.workspace.store)
		log_note("Not in a workspace, so nothing was stored.");
	if (!result && invocation->json) {
		cJSON *document = cJSON_CreateObject();

		cJSON_AddStringToObject(document, "device", run.device.description);
		cJSON_AddStringToObject(document, "workload", run.workload);
		json_add_text(document, "semantics", *semantics_of(&run) ? semantics_of(&run) : NULL);
		if (run.plan.workload == WORKLOAD_OP) {
			char input[160];

			fixture_describe(run.plan.family, input, sizeof(input));
			cJSON_AddStringToObject(document, "op", run.plan.family->name);
			cJSON_AddStringToObject(document, "input", input);
		}
		cJSON_AddBoolToObject(document, "stored", run.workspace.store != NULL);
		if (run.commit[0])
			cJSON_AddStringToObject(document, "fork_commit", run.commit);
		cJSON_AddItemToObject(document, "results", run.results);
		run.results = NULL;
		output_json(document);
	}
	cJSON_Delete(run.results);
	workspace_close(&run.workspace);
	device_close(&run.device);
	return result;
}

const struct command cmd_bench = {
	.name = "bench",
	.summary = "measure the speed of the fork, of quasar's own layer or of an operation",
	.description = "Times a layer as validators do, on random input of the same shape: " TEXT(MEASURE_WARMUPS) " warm-up calls, then " TEXT(
		MEASURE_RUNS) " timed calls.\n\n"
			      "In a workspace on a machine with a GPU, this is the fork's own layer, in Python, because that is what "
			      "validators run. It needs a python3 with torch in the PATH; the result is the median of up to three "
			      "rounds of 10 calls. Otherwise, or with --layer, it is quasar's own layer, and the result is the "
			      "median call. On a slow machine, --budget reduces the number of calls.\n\n"
			      "--device auto uses the first GPU if there is one, or else the CPU. Memory is the peak of the "
			      "process or, on a GPU, of what was allocated there. For an operation, the last column compares with "
			      "the least time that memory allows: reading every input and writing every output once, at the "
			      "speed of a copy measured in the same run.\n\n"
			      "In a workspace, results are stored with the fork's commit, and `quasar commit` makes its claim from "
			      "the newest one at the target length: of the fork on a GPU, or else of the fork on the CPU, or else "
			      "of quasar's layer on the CPU. Quasar's layer on a GPU never counts, as the fork may be slower; nor "
			      "does it with --weights or with semantics other than upstream. Commit the fork's changes first: "
			      "what is measured of uncommitted files counts for no commit.",
	.opts =
		(const struct opt[]){
			{"seq", 's', "N[,N...]", NULL, NULL, NULL,
				"Sequence length in tokens; several give a table. Default: the target."},
			{"target", 0, "N", "TARGET_SEQUENCE_LENGTH", NULL, NULL,
				"Sequence length to measure without --seq."},
			{"python", 0, NULL, NULL, NULL, NULL, "Measure the fork's own layer, in Python."},
			{"layer", 0, NULL, NULL, NULL, NULL, "Measure quasar's own layer."},
			OPT_OP("Measure only an operation, quasar's own."),
			OPT_SEMANTICS,
			{"runs", 0, "N", NULL, TEXT(MEASURE_RUNS), NULL, "Number of timed calls."},
			{"budget", 0, "SECONDS", NULL, "60", NULL, "Time limit for each length."},
			{"compare", 0, NULL, NULL, NULL, NULL, "Compare each result with earlier ones."},
			OPT_WEIGHTS,
			OPT_DEVICE,
			{"seed", 0, "N", NULL, "1", NULL, "Seed for random weights and input."},
			{0},
		},
	.examples =
		(const struct example[]){
			{"quasar bench", "measure what a claim is made from, at the target length"},
			{"quasar bench --seq 2048,16384,100k --compare",
				"three lengths, compared with earlier results"},
			{"quasar bench --layer --seq 1M", "quasar's own layer at a million tokens"},
			{"quasar bench --op --semantics causal --seq 65536", "the operation alone"},
			{"quasar bench --op linear --seq 16384", "another operation"},
			{"quasar bench --op --device cuda:1 --seq 100k,1M",
				"the operation on the second GPU"},
			{"quasar bench --json | jq '.results[0].tokens_per_sec'", "one number for a script"},
			{0},
		},
	.exits = (const enum status[]){STATUS_ENVIRONMENT, 0},
	.run = run_bench,
};
