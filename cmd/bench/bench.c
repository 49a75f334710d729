/* quasar bench: how fast the fork's layer, or quasar's own, or an operation runs on this machine. */
#include "cmd/bench/bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/version.h"
#include "cli/measurement.h"
#include "cli/picture.h"
#include "cmd/commands.h"
#include "measure/fixture.h"
#include "score/score.h"
#include "space/claim.h"

#define TEXT_OF(number) #number
#define TEXT(number) TEXT_OF(number)

/* --- the fork ------------------------------------------------------------------------------------ */

/* What is no clone has no commit. */
static void look_at_fork(const char *path, struct fork_state *state)
{
	struct error none;

	if (fork_state_read(path, state, &none) < 0)
		*state = (struct fork_state){0};
}

/* Whether other files than the commit's may have been measured: there are changes, or there were. */
static bool is_dirty(const struct run *run)
{
	return run->fork.commit[0] && (run->fork.changed || !fork_is_still(run->fork_path, &run->fork));
}

/* What keeps claims from being made, said before the minutes that measuring may take. */
static void tell_state(const struct fork_state *fork)
{
	struct error err;

	if (fork->changed) {
		claim_refuse_changes(fork->changed_name, &err);
		log_warn("%s. %s", err.message, err.hint);
	} else if (fork->ahead) {
		log_note("%zu commit%s of the fork %s not pushed: no claim is sent before. Run `quasar push`",
			fork->ahead, fork->ahead == 1 ? "" : "s", fork->ahead == 1 ? "is" : "are");
	}
}

static int find_fork(struct run *run, struct error *err)
{
	const struct invocation *invocation = run->invocation;

	run->fork_path = arg_string(invocation, "fork");
	if (!run->fork_path && invocation->workspace) {
		if (workspace_open(invocation->workspace, invocation->settings, &run->workspace, err) < 0)
			return -1;
		run->fork_path = run->workspace.fork_path;
	}
	if (run->fork_path && run->of_fork) {
		char *root = fork_root(run->fork_path, err);

		if (!root)
			return -1;
		free(root);
	}
	if (run->fork_path) {
		look_at_fork(run->fork_path, &run->fork);
		return 0;
	}
	if (!run->of_fork)
		return 0;
	require_workspace(invocation, err);
	return error_hint(err,
		"Name a fork with --fork DIR, create a workspace with `quasar init DIR`, or measure quasar's own "
		"layer with --native.");
}

/* The Python for it, which has to have PyTorch. */
static int find_python(struct run *run, struct error *err)
{
	char remedy[sizeof(err->hint)];

	if (command_python(run->invocation, run->fork_path, &run->python, err) == 0 &&
		python_require_torch(&run->python, err) == 0)
		return 0;
	if (err->status == STATUS_INTERRUPTED)
		return -1;
	memcpy(remedy, err->hint, sizeof(remedy));
	return error_hint(err, "--native measures quasar's own layer instead. %s", remedy);
}

/* --- measuring ----------------------------------------------------------------------------------- */

static struct benchmark benchmark_of(const struct run *run, const struct measurement *measurement)
{
	const struct measure_plan *plan = &run->plan;

	return (struct benchmark){
		.when = clock_now(),
		.code = run->of_fork ? BENCHMARK_FORK : BENCHMARK_NATIVE,
		.operation = plan->workload == WORKLOAD_OP ? (char *)plan->family->name : NULL,
		.semantics = (char *)run->semantics,
		.weights = (char *)plan->weights,
		.device = run->device.index < 0 ? BENCHMARK_CPU : BENCHMARK_CUDA,
		.device_index = run->device.index < 0 ? 0 : run->device.index,
		.device_name = (char *)run->device.description,
		.seq = plan->tokens,
		.runs = measurement->runs,
		.tokens_per_sec = measurement->tokens_per_second,
		.spread = measurement->spread,
		.noise = measurement->noise,
		.memory_mb = measurement->memory_mb,
		.fork_commit = run->fork.commit[0] ? (char *)run->fork.commit : NULL,
		.dirty = is_dirty(run),
		.version = (char *)QUASAR_VERSION,
	};
}

static int measure_fork(const struct run *run, struct measurement *measurement, struct error *err)
{
	const struct probe_options options = {
		.fork = run->fork_path,
		.python = run->python.path,
		.gpu = run->device.index,
		.seconds = PROBE_SECONDS,
	};

	if (measurement_run_fork(&options, &run->plan, measurement, err) == 0)
		return 0;
	if (err->status != STATUS_FAILED)
		return -1;
	error_context(err, "the fork's layer does not run at %lld tokens", (long long)run->plan.tokens);
	return error_hint(err,
		"Validators run it the same way; `quasar verify` says more. --native measures quasar's own layer.");
}

/* More than a CPU does in a minute or two, and no budget cuts a call short: attention's operations grow with the
 * square of the length. */
#define MANY_OPERATIONS 1e13

static void warn_of_long_call(const struct run *run)
{
	const struct op_shape shape = fixture_shape(run->plan.tokens);
	const struct op_problem problem = family_problem(
		run->plan.family, &shape, DTYPE_BF16, run->plan.options);
	double operations = run->plan.family->operations(&problem);

	if (run->plan.workload == WORKLOAD_OP && run->device.index < 0 && operations > MANY_OPERATIONS)
		log_warn("%lld tokens: %.0e operations a call, which may take a CPU very long. Ask for fewer "
			 "tokens with --seq",
			(long long)run->plan.tokens, operations);
}

static int measure_native(const struct run *run, struct measurement *measurement, struct error *err)
{
	int64_t tokens = run->plan.tokens;
	double needed = run->device.index < 0 ? measure_memory(run->plan.workload, tokens) : 0;
	double available = memory_available();

	if (needed > available) {
		error_set(err, STATUS_ENVIRONMENT,
			"%lld tokens need about %.0f MiB of memory, but only %.0f MiB are free",
			(long long)tokens, needed, available);
		return error_hint(err, "Free some, or measure fewer tokens with --seq.");
	}
	warn_of_long_call(run);
	return measurement_run(&run->device, &run->plan, measurement, err);
}

/* What a reader of the numbers should know of them. */
static void tell_quality(const struct run *run, const struct result *result)
{
	const struct measurement *measurement = &result->measurement;
	/* a time of the fork's sample is that of a round */
	int runs = measurement->runs / (run->of_fork ? (int)result->sample.count : 1);
	char tokens[48];
	double margin = 0;

	number_grouped((double)result->benchmark.seq, tokens);
	if (measurement->shortened)
		log_note("%s tokens: only %d warm-up%s and %d run%s%s, to stay within --budget", tokens,
			measurement->warmups, measurement->warmups == 1 ? "" : "s", runs,
			runs == 1 ? "" : "s", run->of_fork ? " a round" : "");
	if (measurement->processes > 1)
		log_note(
			"%s tokens: times differ, so these are the first rounds of %d processes, as validators "
			"take them",
			tokens, measurement->processes);
	if (isnan(measurement->noise))
		log_note("%s tokens: the median is not settled: too few runs to tell how far it may be off",
			tokens);
	else if (!sample_settled(&result->sample))
		log_note("%s tokens: the median is not settled: it may be off by %.1f %%. %s", tokens,
			measurement->noise * 100,
			measurement->processes > 1 ? "Less load on this machine helps"
						   : "A larger --budget helps, or less load on this machine");
	if (!run->of_fork ||
		number_parse_percent(settings_get(run->invocation->settings, "CLAIM_MARGIN", NULL), &margin) <
			0)
		return;
	if (claim_margin(margin, measurement->spread) > margin)
		log_note(
			"%s tokens: the runs differ by %.1f %%, so a claim will be %.1f %% below the median, not only "
			"the margin of %.3g %%",
			tokens, measurement->spread * 100, claim_margin(margin, measurement->spread) * 100,
			margin * 100);
}

static int measure_length(struct run *run, int64_t tokens, struct error *err)
{
	struct result *result = &run->results[run->done++];
	const struct benchmark_filter same = {.like = &result->benchmark};

	run->plan.tokens = tokens;
	run->plan.sample = &result->sample;
	if ((run->of_fork ? measure_fork(run, &result->measurement, err)
			  : measure_native(run, &result->measurement, err)) < 0)
		return -1;
	result->benchmark = benchmark_of(run, &result->measurement);
	if (arg_flag(run->invocation, "compare") &&
		benchmark_list(run->workspace.store, &same, 0, &result->earlier, err) < 0)
		return -1;
	if (run->format == FORMAT_TEXT)
		bench_print_result(run, result);
	tell_quality(run, result);
	return run->workspace.store ? benchmark_insert(run->workspace.store, &result->benchmark, err) : 0;
}

/* --- the command --------------------------------------------------------------------------------- */

static int choose_workload(struct run *run, struct error *err)
{
	const struct invocation *invocation = run->invocation;
	bool op = arg_given(invocation, "op"), native = arg_flag(invocation, "native");

	if (op && native)
		return error_set(err, STATUS_USAGE, "use only one of --op and --native");
	run->of_fork = !op && !native;
	run->plan.workload = op ? WORKLOAD_OP : WORKLOAD_LAYER;
	snprintf(run->workload, sizeof(run->workload), "%s",
		run->of_fork ? "fork" : workload_name(run->plan.workload));
	if (run->plan.family != families[0])
		snprintf(run->workload, sizeof(run->workload), "op.%s", run->plan.family->name);
	if (run->plan.weights && !native)
		return error_set(err, STATUS_USAGE, "--weights needs --native: it is for quasar's own layer");
	if (run->of_fork && arg_given(invocation, "semantics"))
		return error_set(err, STATUS_USAGE,
			"--semantics needs --native or --op: the fork computes what it computes");
	if (!run->of_fork && arg_given(invocation, "fork"))
		return error_set(err, STATUS_USAGE, "--fork cannot be combined with --native or --op");
	if (arg_given(invocation, "svg") && !arg_flag(invocation, "sweep"))
		return error_set(err, STATUS_USAGE, "--svg draws what --sweep measures");
	if (arg_flag(invocation, "compare") && arg_given(invocation, "fork"))
		return error_set(
			err, STATUS_USAGE, "--compare is for the workspace's own fork, not for --fork");
	return 0;
}

static int choose_format(struct run *run, struct error *err)
{
	const bool chosen[] = {
		[FORMAT_JSON] = run->invocation->json,
		[FORMAT_CSV] = arg_flag(run->invocation, "csv"),
		[FORMAT_MARKDOWN] = arg_flag(run->invocation, "markdown"),
	};

	for (int format = FORMAT_JSON; format <= FORMAT_MARKDOWN; format++) {
		if (chosen[format] && run->format != FORMAT_TEXT)
			return error_set(err, STATUS_USAGE, "use only one of --json, --csv and --markdown");
		if (chosen[format])
			run->format = (enum format)format;
	}
	return 0;
}

static int read_options(struct run *run, struct error *err)
{
	const struct invocation *invocation = run->invocation;
	int64_t runs = MEASURE_RUNS, seed = 1;

	run->plan = (struct measure_plan){
		.family = command_family(invocation),
		.warmups = MEASURE_WARMUPS,
		.settle = !arg_given(invocation, "runs"),
		.weights = arg_string(invocation, "weights"),
	};
	if (arg_given(invocation, "seq"))
		run->count = arg_integers(invocation, "seq", 1, MOST_TOKENS, run->lengths, MOST_LENGTHS, err);
	else
		run->count = arg_integer(invocation, "target", 1, MOST_TOKENS, run->lengths, err) < 0 ? -1
												      : 1;
	if (run->count < 0 || arg_integer(invocation, "runs", 1, 10000, &runs, err) < 0 ||
		arg_integer(invocation, "seed", 0, (int64_t)1 << 53, &seed, err) < 0 ||
		arg_real(invocation, "budget", 0, 1e9, &run->plan.budget, err) < 0 ||
		command_semantics(invocation, run->plan.family, run->plan.options, err) < 0 ||
		choose_workload(run, err) < 0 || choose_format(run, err) < 0 ||
		arg_try_file(invocation, "svg", err) < 0)
		return -1;
	if (!run->of_fork)
		family_options_format(
			run->plan.family, run->plan.options, run->semantics, sizeof(run->semantics));
	if (run->plan.workload == WORKLOAD_LAYER &&
		command_layer_semantics(run->plan.options, &run->plan.semantics, err) < 0)
		return -1;
	run->plan.runs = (int)runs;
	run->plan.seed = (uint64_t)seed;
	if (arg_flag(invocation, "compare") && !require_workspace(invocation, err))
		return -1;
	return command_device(invocation, arg_string(invocation, "device"), &run->device, err);
}

static int prepare(struct run *run, struct error *err)
{
	if (find_fork(run, err) < 0 || (run->of_fork && find_python(run, err) < 0))
		return -1;
	if (run->of_fork)
		tell_state(&run->fork);
	if (run->plan.workload == WORKLOAD_OP)
		return run->device.copy_rate(&run->device, &run->plan.copy_rate, err);
	return 0;
}

static void close_run(struct run *run)
{
	for (int i = 0; i < run->done; i++) {
		sample_free(&run->results[i].sample);
		benchmark_list_free(&run->results[i].earlier);
	}
	table_free(&run->table);
	python_free(&run->python);
	fork_state_free(&run->fork);
	workspace_close(&run->workspace);
	device_close(&run->device);
}

static int run_bench(struct invocation *invocation, struct error *err)
{
	struct run run = {.invocation = invocation};
	int result = read_options(&run, err);

	if (!result && (arg_flag(invocation, "leaderboard") || arg_flag(invocation, "sweep"))) {
		result = arg_flag(invocation, "sweep") ? bench_sweep(&run, err)
						       : bench_leaderboard(&run, err);
		close_run(&run);
		return result;
	}
	if (!result)
		result = prepare(&run, err);
	if (!result && run.format == FORMAT_TEXT)
		bench_print_heading(&run);
	for (int i = 0; i < run.count && !result; i++)
		result = measure_length(&run, run.lengths[i], err);
	if (!result && !run.workspace.store)
		log_note("Not %s, so nothing was stored.",
			invocation->workspace ? "the workspace's own fork" : "in a workspace");
	if (!result && run.format == FORMAT_TEXT)
		bench_print_end(&run);
	else if (!result)
		bench_print_all(&run);
	close_run(&run);
	return result;
}

const struct command cmd_bench = {
	.name = "bench",
	.summary = "measure the speed of the fork, of quasar's own layer or of an operation",
	.description =
		"Times the fork's own layer as validators do: in Python, by PyTorch, on random input of the same "
		"shape, " TEXT(MEASURE_WARMUPS) " warm-up calls, then rounds of " TEXT(
			MEASURE_RUNS) " calls, until the median is known to within 1% or "
				      "--budget is used up; on a slow machine that also reduces the number of calls. A GPU rests for a "
				      "second before each round, as it has done when a validator's process begins: one that is busy all "
				      "the time is slower. Validators take the first round of a process. So where times differ by more "
				      "than 3%, the result is the median of the first rounds of six new processes, which --budget "
				      "does not limit.\n\n"
				      "--native measures quasar's own layer, which needs no PyTorch, and --op one of quasar's own "
				      "operations. Validators run neither.\n\n"
				      "--device auto uses the first GPU if there is one, or else the CPU. Memory is the peak of the "
				      "process or, on a GPU, of what was allocated there. An operation on a GPU is timed by "
				      "the GPU itself; the last column compares "
				      "its time with the least that memory allows: reading every input and writing every output once, at "
				      "the speed of a copy measured in the same run.\n\n"
				      "In a workspace, results are stored with the fork's commit, and `quasar commit` makes its claim "
				      "from the newest one of the fork at the target length, on a GPU or else on the CPU. If its runs "
				      "differ by more than the margin, the claim is lower, so that the slow runs reach it, too. What was "
				      "measured with uncommitted changes is stored as such, and no claim is made from it. Quasar's own layer counts "
				      "only in a rehearsal: on the CPU, where there is no PyTorch, for a validator on this machine.\n\n"
				      "--compare compares each result with the last and the best earlier one of the same on this device, "
				      "and says whether they differ by more than noise.",
	.opts =
		(const struct opt[]){
			{"seq", 's', "N[,N...]", NULL, NULL, NULL,
				"Sequence length in tokens; several give a table. Default: the target."},
			{"target", 0, "N", "TARGET_SEQUENCE_LENGTH", NULL, NULL,
				"Sequence length to measure without --seq."},
			{"fork", 0, "DIR", NULL, NULL, NULL,
				"Path of a fork other than the workspace's; nothing is stored."},
			OPT_PYTHON,
			{"native", 0, NULL, NULL, NULL, NULL, "Measure quasar's own layer."},
			OPT_OP("Measure only an operation, quasar's own."),
			OPT_SEMANTICS,
			{"runs", 0, "N", NULL, NULL, NULL,
				"Number of timed calls, whether or not the median is settled."},
			{"budget", 0, "SECONDS", NULL, "60", NULL, "Time limit for each length."},
			{"compare", 0, NULL, NULL, NULL, NULL,
				"Compare with the last and the best earlier result."},
			{"leaderboard", 0, NULL, NULL, NULL, NULL,
				"With --op flash, on a GPU: forward and backward at 16,384 tokens (or --seq), 16 "
				"heads of 64, beside versions without some of the steps that made it fast."},
			{"sweep", 0, NULL, NULL, NULL, NULL,
				"With --op: linear attention beside softmax attention at 4,096 to 65,536 tokens (or "
				"--seq), and where one overtakes the other; on a GPU also what each tunable of the "
				"kernels does."},
			OPT_SVG("what --sweep measures"),
			{"validator-gpu", 0, "NAME", NULL, NULL, NULL,
				"Normalise as validators of 2026-04 do on this GPU. Default: the one that is "
				"measured on."},
			{"csv", 0, NULL, NULL, NULL, NULL, "Print CSV: a row for each length and run."},
			{"markdown", 0, NULL, NULL, NULL, NULL, "Print a table in Markdown."},
			OPT_WEIGHTS,
			OPT_DEVICE,
			{"seed", 0, "N", NULL, "1", NULL,
				"Seed for random weights and input of --native and --op."},
			{0},
		},
	.examples =
		(const struct example[]){
			{"quasar bench", "measure what a claim is made from, at the target length"},
			{"quasar bench --seq 2048,16384,100k --compare",
				"three lengths, compared with earlier results"},
			{"quasar bench --fork ~/flash-linear-attention --markdown",
				"another fork, as a table to paste"},
			{"quasar bench --native --seq 1M", "quasar's own layer at a million tokens"},
			{"quasar bench --op --semantics causal --seq 65536", "the operation alone"},
			{"quasar bench --op linear --seq 16384", "another operation"},
			{"quasar bench --op linear --sweep --svg sweep.svg",
				"from which length on linear attention is faster, as a picture too"},
			{"quasar bench --op flash --leaderboard", "attention, step by step"},
			{"quasar bench --op --device cuda:1 --seq 100k,1M",
				"the operation on the second GPU"},
			{"quasar bench --json | jq '.results[0].tokens_per_sec'", "one number for a script"},
			{0},
		},
	.exits = (const enum status[]){STATUS_FAILED, STATUS_ENVIRONMENT, 0},
	.run = run_bench,
};
