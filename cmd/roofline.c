/* quasar roofline: how near each operation comes to what this device's memory and arithmetic allow. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/layout.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/number.h"
#include "cli/device.h"
#include "cli/measurement.h"
#include "cli/picture.h"
#include "cli/table.h"
#include "cmd/commands.h"
#include "measure/fixture.h"
#include "score/score.h"
#include "web/roofline.h"

/* Without --seq: long enough for a GPU to be filled, and short enough for a CPU. */
#define GPU_TOKENS 65536
#define CPU_TOKENS 4096

/* Families, each with the values of its first option. */
#define MOST_RESULTS 32

struct result {
	const struct family *family;
	char semantics[64];
	struct measurement measurement;
};

struct run {
	struct invocation *invocation;
	struct device device;
	struct measure_plan plan; /* but for the operation */
	double copy_rate;         /* bytes per second */
	double product_rate;      /* operations per second; NAN: not known */
	struct result results[MOST_RESULTS];
	int count;
	struct table table; /* of the text */
};

/* --- what is found ------------------------------------------------------------------------------------- */

static double intensity(const struct result *result)
{
	return result->measurement.operations / result->measurement.bytes;
}

static double rate(const struct result *result)
{
	return result->measurement.operations / result->measurement.seconds;
}

/* As pictures have them: TB/s, TFLOP/s. */
static struct roofline roofline_of(const struct run *run)
{
	return (struct roofline){.bandwidth = run->copy_rate / 1e12, .rate = run->product_rate / 1e12};
}

/* Of what the device allows at this intensity. */
static double share(const struct run *run, const struct result *result)
{
	const struct roofline roofline = roofline_of(run);

	return rate(result) / 1e12 / roofline_at(&roofline, intensity(result));
}

static const char *bound(const struct run *run, const struct result *result)
{
	return intensity(result) * run->copy_rate > run->product_rate ? "arithmetic" : "memory";
}

/* --- text ---------------------------------------------------------------------------------------------- */

static void print_heading(struct run *run)
{
	static const char *const headings[] = {
		"operation", "semantics", "time", "op/byte", "GB/s", "TFLOP/s", "bound", "of it"};
	static const size_t widths[] = {15, 30, 9, 7, 7, 7, 10, 8};
	static const int spare[] = {4, 3, 1, -1};

	char tokens[48];

	number_grouped((double)run->plan.tokens, tokens);
	layout_format(stdout, 0, "%s tokens, batch 1, 8 heads of 64, bf16, on %s.\n", tokens,
		run->device.description);
	layout_format(stdout, 0, "Measured just now: memory copies %.1f GB/s, read and written.%s",
		run->copy_rate / 1e9, isnan(run->product_rate) ? "\n" : "");
	if (!isnan(run->product_rate))
		layout_format(stdout, 0, "A product of bf16 matrices makes %.3g TFLOP/s.\n",
			run->product_rate / 1e12);
	table_begin(&run->table, headings, "llrrrrlr");
	table_reserve(&run->table, widths);
	table_spare(&run->table, spare);
}

static void print_row(struct run *run, const struct result *result)
{
	char median[32];

	clock_measured(result->measurement.seconds, median);
	table_cell(&run->table, "%s", result->family->name);
	table_cell(&run->table, "%s", result->semantics);
	table_cell(&run->table, "%s", median);
	table_cell(&run->table, "%.1f", intensity(result));
	table_cell(&run->table, "%.1f", result->measurement.bytes / result->measurement.seconds / 1e9);
	table_cell(&run->table, "%.*f", rate(result) < 1e13 ? 4 : 1, rate(result) / 1e12);
	table_cell(&run->table, "%s", bound(run, result));
	table_cell(&run->table, "%.1f %%", share(run, result) * 100);
	table_flush(&run->table, stdout);
}

static void print_end(void)
{
	layout_format(stdout, 0,
		"\nTimes are medians. Each input and output counts once, and of the operations those that are needed "
		"at least. \"of it\": of the rate that the bound allows: as fast as memory copies, or as a product of "
		"matrices.");
}

/* --- measuring ----------------------------------------------------------------------------------------- */

static int measure_roofs(struct run *run, struct error *err)
{
	struct error why;

	if (run->device.copy_rate(&run->device, &run->copy_rate, err) < 0)
		return -1;
	if (run->device.product_rate(&run->device, &run->product_rate, &why) == 0)
		return 0;
	log_warn("only memory bounds what follows: %s", why.message);
	run->product_rate = NAN;
	return 0;
}

/* A function of a family, unless this device has no version of it. */
static int measure_function(struct run *run, const struct family *family, int function, struct error *err)
{
	struct result *result = &run->results[run->count];
	struct measure_plan plan = run->plan;

	if ((device_gpu(&run->device) ? family->cuda == NULL : family->cpu == NULL) ||
		run->count == MOST_RESULTS)
		return 0;
	plan.family = family;
	plan.options[0] = function;
	result->family = family;
	family_options_format(family, plan.options, result->semantics, sizeof(result->semantics));
	run->count++;
	if (measurement_run(&run->device, &plan, &result->measurement, err) < 0)
		return -1;
	if (!run->invocation->json)
		print_row(run, result);
	return 0;
}

static int measure(struct run *run, struct error *err)
{
	const struct family *only = arg_given(run->invocation, "op") ? command_family(run->invocation) : NULL;

	if (measure_roofs(run, err) < 0)
		return -1;
	if (!run->invocation->json)
		print_heading(run);
	for (int i = 0; families[i]; i++)
		for (int n = 0; families[i]->options[0].values[n]; n++)
			if ((!only || families[i] == only) && measure_function(run, families[i], n, err) < 0)
				return -1;
	return 0;
}

/* --- JSON ------------------------------------------------------------------------------------- */

static void print_document(const struct run *run)
{
	cJSON *document = cJSON_CreateObject(), *results;

	cJSON_AddStringToObject(document, "device", run->device.description);
	cJSON_AddNumberToObject(document, "seq", (double)run->plan.tokens);
	cJSON_AddNumberToObject(document, "copy_bytes_per_second", run->copy_rate);
	json_add_real(document, "product_operations_per_second", run->product_rate);
	results = cJSON_AddArrayToObject(document, "results");
	for (int i = 0; i < run->count; i++) {
		const struct result *result = &run->results[i];
		cJSON *object = cJSON_CreateObject();

		cJSON_AddStringToObject(object, "op", result->family->name);
		cJSON_AddStringToObject(object, "semantics", result->semantics);
		cJSON_AddNumberToObject(object, "seconds", result->measurement.seconds);
		cJSON_AddNumberToObject(object, "bytes", result->measurement.bytes);
		cJSON_AddNumberToObject(object, "operations", result->measurement.operations);
		cJSON_AddNumberToObject(object, "operations_per_byte", intensity(result));
		cJSON_AddNumberToObject(
			object, "bytes_per_second", result->measurement.bytes / result->measurement.seconds);
		cJSON_AddNumberToObject(object, "operations_per_second", rate(result));
		cJSON_AddStringToObject(object, "bound", bound(run, result));
		cJSON_AddNumberToObject(object, "roof_fraction", share(run, result));
		cJSON_AddItemToArray(results, object);
	}
	output_json(document);
}

/* --- the picture --------------------------------------------------------------------------------------- */

/* The operation that a family is, or is the gradient of. */
static const struct family *root_of(const struct family *family)
{
	return family->gradient_of ? family->gradient_of : family;
}

/* A series for each operation, its gradient among it. */
static void draw_roofline(const struct run *run, char *const *names, struct part *part)
{
	struct roofline roofline = roofline_of(run);
	struct svg_point points[ROOFLINE_SERIES][MOST_RESULTS];
	char title[256];
	int count = 0;

	for (int i = 0; i < run->count; i++) {
		const struct result *result = &run->results[i];
		const char *name = root_of(result->family)->title;
		struct svg_series *series = roofline.series;
		int at = 0;

		while (at < count && strcmp(series[at].name, name))
			at++;
		if (at == ROOFLINE_SERIES)
			continue;
		count += at == count;
		series[at].name = name;
		series[at].points = points[at];
		points[at][series[at].count++] = (struct svg_point){
			intensity(result), rate(result) / 1e12, NAN, NAN, names[i]};
	}
	snprintf(title, sizeof(title), "Roofline of %s, %lld tokens", run->device.description,
		(long long)run->plan.tokens);
	roofline.title = title;
	roofline_draw(&roofline, part);
}

static void draw_shares(const struct run *run, char *const *names, struct part *part)
{
	struct svg_bar bars[MOST_RESULTS];
	char texts[MOST_RESULTS][64];

	for (int i = 0; i < run->count; i++) {
		const struct result *result = &run->results[i];
		char median[32];

		clock_measured(result->measurement.seconds, median);
		snprintf(texts[i], sizeof(texts[i]), "%.0f %%, %s", share(run, result) * 100, median);
		bars[i] = (struct svg_bar){names[i], share(run, result) * 100, NAN, NAN, true, texts[i]};
	}
	part_bars(part, "Of what the device allows", bars, (size_t)run->count);
}

static int write_picture(const struct run *run, struct error *err)
{
	struct part part = {.name = "roofline", .title = "Roofline"};
	char *names[MOST_RESULTS];
	int result;

	for (int i = 0; i < run->count; i++)
		names[i] = xprintf("%s, %.*s", run->results[i].family->name,
			(int)strcspn(run->results[i].semantics, ","), run->results[i].semantics);
	draw_roofline(run, names, &part);
	draw_shares(run, names, &part);
	result = command_picture(run->invocation, &part, err);
	for (int i = 0; i < run->count; i++)
		free(names[i]);
	part_free(&part);
	return result;
}

/* --- the command --------------------------------------------------------------------------------------- */

static int read_options(struct run *run, struct error *err)
{
	const struct invocation *invocation = run->invocation;
	int64_t runs = MEASURE_RUNS, seed = 1;

	if (command_device(invocation, arg_string(invocation, "device"), &run->device, err) < 0)
		return -1;
	run->plan = (struct measure_plan){
		.workload = WORKLOAD_OP,
		.tokens = device_gpu(&run->device) ? GPU_TOKENS : CPU_TOKENS,
		.warmups = MEASURE_WARMUPS,
	};
	if (arg_integer(invocation, "seq", 1, MOST_TOKENS, &run->plan.tokens, err) < 0 ||
		arg_integer(invocation, "runs", 1, 10000, &runs, err) < 0 ||
		arg_integer(invocation, "seed", 0, (int64_t)1 << 53, &seed, err) < 0 ||
		arg_real(invocation, "budget", 0, 1e9, &run->plan.budget, err) < 0 ||
		arg_try_file(invocation, "svg", err) < 0)
		return -1;
	run->plan.runs = (int)runs;
	run->plan.seed = (uint64_t)seed;
	return 0;
}

static int run_roofline(struct invocation *invocation, struct error *err)
{
	struct run run = {.invocation = invocation};
	int result = read_options(&run, err);

	if (!result)
		result = measure(&run, err);
	if (!result && invocation->json)
		print_document(&run);
	else if (!result)
		print_end();
	if (!result)
		result = write_picture(&run, err);
	table_free(&run.table);
	device_close(&run.device);
	return result;
}

const struct command cmd_roofline = {
	.name = "roofline",
	.summary = "show how near each operation comes to what this machine allows",
	.description =
		"Measures every operation and gradient, each in its variants, and beside them what bounds any kernel on "
		"this device: how fast its memory copies, and how fast it multiplies large matrices of bf16. An "
		"operation that makes few multiplications and additions for each byte that it reads or writes is bound "
		"by memory, one that makes many by arithmetic. The last column says how much of that bound is reached: "
		"where it is low, a better kernel may exist.",
	.opts =
		(const struct opt[]){
			{"seq", 0, "N", NULL, NULL, NULL,
				"Sequence length. Default: 65,536 on a GPU, 4,096 on a CPU."},
			OPT_OP("Measure only this operation."),
			OPT_SVG("it"),
			OPT_DEVICE,
			{"runs", 0, "N", NULL, NULL, NULL, "Number of timed calls of each. Default: 10."},
			{"budget", 0, "SECONDS", NULL, "10", NULL,
				"Time limit for each: fewer calls when it would be exceeded."},
			{"seed", 0, "N", NULL, "1", NULL, "Seed for random input."},
			{0},
		},
	.examples =
		(const struct example[]){
			{"quasar roofline", "all operations on this device"},
			{"quasar roofline --svg roofline.svg", "as a picture, too"},
			{"quasar roofline --op quasar --seq 1M --json | jq '.results[].roof_fraction'",
				"one operation, for a script"},
			{0},
		},
	.exits = (const enum status[]){STATUS_ENVIRONMENT, 0},
	.run = run_roofline,
};
