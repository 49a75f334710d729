/* bench: its results as text, JSON, CSV and Markdown. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/layout.h"
#include "base/number.h"
#include "base/terminal.h"
#include "cli/chart.h"
#include "cli/measurement.h"
#include "cmd/bench/bench.h"
#include "gpu/gpu.h"
#include "measure/fixture.h"
#include "score/gpu.h"
#include "score/score.h"

#define HISTORY 32 /* results, at most */

/* --- text ---------------------------------------------------------------------------------------- */

/* What was measured, on what: a sentence. */
static void print_subject(const struct run *run)
{
	if (run->of_fork)
		layout_format(stdout, 0, "The fork's own layer, by PyTorch %s, on %s.", run->python.torch,
			run->device.description);
	else
		layout_format(stdout, 0, "Quasar's own %s%s%s, %s semantics, on %s.",
			run->plan.workload == WORKLOAD_OP ? "operation" : "layer",
			run->plan.workload == WORKLOAD_OP ? " " : "",
			run->plan.workload == WORKLOAD_OP ? run->plan.family->title : "", run->semantics,
			run->device.description);
}

void bench_print_heading(struct run *run)
{
	char input[160];

	print_subject(run);
	fixture_describe(run->plan.family, run->plan.options, input, sizeof(input));
	if (run->plan.weights)
		layout_format(stdout, 0, "Batch 1, weights from %s.\n", run->plan.weights);
	else if (run->plan.workload == WORKLOAD_OP)
		layout_format(stdout, 0, "Batch 1, 8 heads of 64, bf16; %s.\n", input);
	else
		layout_format(
			stdout, 0, "Batch 1, hidden 512, 8 heads of 64, bf16, as validators time it.\n");
	if (run->plan.copy_rate > 0)
		layout_format(stdout, 0,
			"Copying within device memory runs at %.0f GB/s. \"of floor\": the time to move q, k, v and o "
			"once at that rate, as a percentage of the time measured.\n",
			run->plan.copy_rate / 1e9);
	measurement_table(&run->table, run->plan.copy_rate > 0);
	table_flush(&run->table, stdout);
}

static void print_change(const char *which, const struct benchmark *now, const struct benchmark *then)
{
	struct benchmark_change change = benchmark_compare(now, then);
	char when[32], rate[48];

	clock_minute(then->when, when);
	number_grouped(round(then->tokens_per_sec), rate);
	layout_format(stdout, 4,
		"  %s, %s: %s tokens/s at commit %.8s%s; now %+.1f %%, %s the noise of %.1f %%", which, when,
		rate, then->fork_commit ? then->fork_commit : "none", then->dirty ? " (changed)" : "",
		change.change * 100, change.real ? "more than" : "within", change.noise * 100);
}

/* The GPU by whose factor validators of the newer service divide what is measured of a layer here: this one, or the one
 * that it is to stand for. NULL: none. */
static const char *ranking_gpu(const struct run *run)
{
	const char *name = arg_string(run->invocation, "validator-gpu");

	if (run->plan.workload == WORKLOAD_OP)
		return NULL;
	return name || run->device.index < 0 ? name : gpu_properties_of(device_gpu(&run->device))->name;
}

static void print_normalised(const char *gpu, const struct measurement *measurement)
{
	char text[48];

	number_grouped(round(measurement->tokens_per_second / gpu_factor(gpu)), text);
	layout_format(stdout, 4,
		"  %s tokens/s normalised, as it ranks since April 2026: divided by %g for %s%s", text,
		gpu_factor(gpu), gpu, gpu_find(gpu) ? "" : ", which validators do not know");
}

void bench_print_result(struct run *run, const struct result *result)
{
	const struct benchmark *last = result->earlier.items, *best = benchmark_best(&result->earlier);
	const char *gpu = ranking_gpu(run);

	measurement_row(&run->table, result->benchmark.seq, &result->measurement);
	table_flush(&run->table, stdout);
	if (gpu)
		print_normalised(gpu, &result->measurement);
	if (last)
		print_change(best == last ? "last and best" : "last", &result->benchmark, last);
	else if (arg_flag(run->invocation, "compare"))
		layout_format(stdout, 4, "  nothing of this was measured earlier on this device");
	if (best != last)
		print_change("best", &result->benchmark, best);
}

/* Tokens/s over the lengths. */
static void print_lengths(const struct run *run)
{
	struct chart_bar bars[MOST_LENGTHS];
	char labels[MOST_LENGTHS][48], texts[MOST_LENGTHS][48];
	int fastest = 0;

	for (int i = 0; i < run->done; i++) {
		const struct benchmark *now = &run->results[i].benchmark;

		number_grouped((double)now->seq, labels[i]);
		number_grouped(round(now->tokens_per_sec), texts[i]);
		bars[i] = (struct chart_bar){labels[i], now->tokens_per_sec, texts[i], false};
		if (now->tokens_per_sec > bars[fastest].value)
			fastest = i;
	}
	bars[fastest].marked = true;
	puts("\nTokens/s at each length:");
	chart_bars(stdout, bars, (size_t)run->done);
}

/* What was measured of the same on this device, the latest last. */
static void print_history(const struct run *run)
{
	const struct benchmark *now = &run->results[0].benchmark;
	const struct benchmark_filter same = {.like = now};
	struct benchmark_list list;
	struct error ignored;
	double values[HISTORY], slowest = INFINITY;
	char count[48], least[16], most[16];
	char before[80], after[80];
	const char *between;

	if (benchmark_list(run->workspace.store, &same, HISTORY, &list, &ignored) < 0)
		return;
	for (size_t i = 0; i < list.count; i++)
		values[list.count - 1 - i] = list.items[i].tokens_per_sec;
	if (list.count > 1) {
		number_grouped((double)now->seq, count);
		for (size_t i = 0; i < list.count; i++)
			slowest = fmin(slowest, values[i]);
		number_short(slowest, least);
		number_short(benchmark_best(&list)->tokens_per_sec, most);
		snprintf(before, sizeof(before), "History at %s tokens:", count);
		snprintf(after, sizeof(after), "%s to %s tokens/s, %zu results", least, most, list.count);
		/* on a line, if there is room */
		between = strlen(before) + list.count + strlen(after) + 2 <= terminal_width(stdout) ? " "
												    : "\n";
		printf("\n%s%s", before, between);
		chart_sparkline(stdout, values, list.count, 0);
		printf("%s%s\n", between, after);
	}
	benchmark_list_free(&list);
}

/* What a miner does with it. */
static void print_next(const struct run *run)
{
	if (!run->of_fork || !run->workspace.store)
		return;
	puts(run->fork.changed            ? "Next: quasar push, then quasar bench again"
			: run->fork.ahead ? "Next: quasar push && quasar commit"
					  : "Next: quasar commit");
}

void bench_print_end(const struct run *run)
{
	if (run->done > 1)
		print_lengths(run);
	else if (run->workspace.store)
		print_history(run);
	print_next(run);
}

/* --- JSON ---------------------------------------------------------------------------------------- */

/* null when there is nothing to compare with. */
static cJSON *change_json(const struct benchmark *now, const struct benchmark *then)
{
	struct benchmark_change change;
	cJSON *object;

	if (!then)
		return cJSON_CreateNull();
	change = benchmark_compare(now, then);
	object = cJSON_CreateObject();
	json_add_time(object, "when", then->when);
	cJSON_AddNumberToObject(object, "tokens_per_sec", then->tokens_per_sec);
	json_add_text(object, "fork_commit", then->fork_commit);
	cJSON_AddBoolToObject(object, "dirty", then->dirty);
	cJSON_AddNumberToObject(object, "change", change.change);
	cJSON_AddNumberToObject(object, "noise", change.noise);
	cJSON_AddBoolToObject(object, "more_than_noise", change.real);
	return object;
}

static cJSON *result_json(const struct run *run, const struct result *result)
{
	const struct benchmark *now = &result->benchmark;
	const char *gpu = ranking_gpu(run);
	cJSON *object = cJSON_CreateObject();

	measurement_json(object, now->seq, &result->measurement);
	if (gpu) {
		cJSON_AddNumberToObject(object, "normalization_factor", gpu_factor(gpu));
		cJSON_AddNumberToObject(object, "normalized_tokens_per_sec",
			result->measurement.tokens_per_second / gpu_factor(gpu));
	}
	cJSON_AddBoolToObject(object, "settled", sample_settled(&result->sample));
	cJSON_AddItemToObject(
		object, "times", cJSON_CreateDoubleArray(result->sample.seconds, (int)result->sample.count));
	cJSON_AddBoolToObject(object, "dirty", now->dirty);
	if (arg_flag(run->invocation, "compare")) {
		cJSON_AddItemToObject(object, "last", change_json(now, result->earlier.items));
		cJSON_AddItemToObject(object, "best", change_json(now, benchmark_best(&result->earlier)));
	}
	return object;
}

static void print_json(const struct run *run)
{
	cJSON *document = cJSON_CreateObject(), *results;
	char input[160];

	cJSON_AddStringToObject(document, "device", run->device.description);
	cJSON_AddStringToObject(document, "workload", run->workload);
	json_add_text(document, "semantics", *run->semantics ? run->semantics : NULL);
	if (run->of_fork) {
		cJSON_AddStringToObject(document, "python", run->python.path);
		cJSON_AddStringToObject(document, "torch", run->python.torch);
	} else if (run->plan.workload == WORKLOAD_OP) {
		fixture_describe(run->plan.family, run->plan.options, input, sizeof(input));
		cJSON_AddStringToObject(document, "op", run->plan.family->name);
		cJSON_AddStringToObject(document, "input", input);
	}
	cJSON_AddBoolToObject(document, "stored", run->workspace.store != NULL);
	if (run->fork.commit[0]) {
		cJSON_AddStringToObject(document, "fork_commit", run->fork.commit);
		cJSON_AddNumberToObject(document, "unpushed_commits", (double)run->fork.ahead);
	}
	results = cJSON_AddArrayToObject(document, "results");
	for (int i = 0; i < run->done; i++)
		cJSON_AddItemToArray(results, result_json(run, &run->results[i]));
	output_json(document);
}

/* --- tables -------------------------------------------------------------------------------------- */

/* A field of CSV: quotes are doubled. */
static void print_field(const char *text)
{
	putchar('"');
	for (; *text; text++) {
		if (*text == '"')
			putchar('"');
		putchar(*text);
	}
	putchar('"');
}

static void print_csv(const struct run *run)
{
	printf("seq,run,seconds,tokens_per_sec,workload,semantics,device,fork_commit,dirty\n");
	for (int i = 0; i < run->done; i++) {
		const struct result *result = &run->results[i];

		for (size_t n = 0; n < result->sample.count; n++) {
			double seconds = result->sample.seconds[n];

			printf("%lld,%zu,%.9g,%.9g,%s,", (long long)result->benchmark.seq, n + 1, seconds,
				(double)result->benchmark.seq / seconds, run->workload);
			print_field(run->semantics);
			putchar(',');
			print_field(run->device.description);
			printf(",%s,%d\n", run->fork.commit, result->benchmark.dirty);
		}
	}
}

static void print_markdown_row(const struct result *result)
{
	const struct measurement *measurement = &result->measurement;
	int64_t tokens = result->benchmark.seq;
	char count[48], rate[48], weighted[48], noise[32] = "?", memory[32] = "?";

	number_grouped((double)tokens, count);
	number_grouped(round(measurement->tokens_per_second), rate);
	number_grouped(round(score_weighted(measurement->tokens_per_second, tokens)), weighted);
	if (isfinite(measurement->noise))
		snprintf(noise, sizeof(noise), "±%.1f %%", measurement->noise * 100);
	if (isfinite(measurement->memory_mb))
		snprintf(memory, sizeof(memory), "%.0f MiB", measurement->memory_mb);
	printf("| %s | %s | %.3f ms | %s | %.1f %% | %d | %s | %s | %s |\n", count, rate,
		measurement->seconds * 1e3, noise, measurement->spread * 100, measurement->runs, memory,
		league_for(tokens)->name, weighted);
}

static void print_markdown(const struct run *run)
{
	print_subject(run);
	if (run->of_fork && run->fork.commit[0])
		printf("Commit %s%s.\n", run->fork.commit,
			run->fork.changed ? ", with changes that are not committed" : "");
	printf("\n| tokens | tokens/s | median | noise | spread | runs | memory | league | weighted score |\n"
	       "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n");
	for (int i = 0; i < run->done; i++)
		print_markdown_row(&run->results[i]);
}

void bench_print_all(const struct run *run)
{
	if (run->format == FORMAT_JSON)
		print_json(run);
	else if (run->format == FORMAT_CSV)
		print_csv(run);
	else
		print_markdown(run);
}
