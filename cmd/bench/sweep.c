/* bench --sweep: an operation over the lengths beside the other kind of attention, linear beside softmax; and, on a GPU,
 * what each tunable of its kernels does at the longest of them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/layout.h"
#include "base/memory.h"
#include "cli/measurement.h"
#include "cli/picture.h"
#include "cmd/bench/bench.h"
#include "measure/fixture.h"
#include "op/tuned.h"

#define SHORTEST 4096
#define LONGEST 65536

enum { OWN, RIVAL, SIDES };

/* An operation, and which of its functions. */
struct side {
	const struct family *family;
	int options[FAMILY_OPTIONS];
	char semantics[64];
};

struct row {
	int64_t tokens;
	double seconds[SIDES]; /* medians */
	double bytes;          /* OWN's, at least */
};

/* The usual configuration, with another value of a tunable. */
struct variant {
	int parameter, value;
	bool usual; /* that value is */
	double seconds;
};

struct sweep {
	struct run *run;
	struct side sides[SIDES];
	struct row rows[MOST_LENGTHS];
	int row_count;
	struct variant variants[CONFIG_PARAMETERS * CONFIG_VALUES];
	int variant_count;
	char usual[256]; /* configuration at the longest length; "": on the CPU */
};

/* --- measuring ----------------------------------------------------------------------------------------- */

/* In a configuration, on a GPU: what gpu_time() calls. */
struct queued {
	struct gpu *gpu;
	struct gpu_workspace workspace;
	const struct fixture *fixture;
	const struct config *config;
};

static int queue(int call, void *context, struct error *err)
{
	struct queued *it = context;

	(void)call;
	return tuned_run(
		it->fixture->plan.family, it->gpu, &it->workspace, &it->fixture->problem, it->config, err);
}

static int time_on_gpu(const struct run *run, const struct side *side, int64_t tokens,
	const struct config *config, double *seconds, struct error *err)
{
	struct fixture_plan plan = {.family = side->family,
		.shape = fixture_shape(tokens),
		.dtype = DTYPE_BF16,
		.seed = run->plan.seed};
	int runs = run->plan.runs;
	double *times = xcalloc((size_t)runs, sizeof(*times));
	struct fixture fixture;
	struct queued queued = {device_gpu(&run->device), {0}, &fixture, config};
	int result;

	memcpy(plan.options, side->options, sizeof(plan.options));
	result = fixture_make(&fixture, &run->device, &plan, err);
	if (!result)
		result = gpu_time(queued.gpu, queue, &queued, run->plan.warmups, runs, times, err);
	if (!result && interrupted())
		result = error_set(err, STATUS_INTERRUPTED, "interrupted");
	*seconds = times[runs / 2];
	gpu_workspace_free(queued.gpu, &queued.workspace);
	fixture_free(&fixture);
	free(times);
	return result;
}

static int time_side(const struct run *run, const struct side *side, int64_t tokens,
	struct measurement *measurement, struct error *err)
{
	struct measure_plan plan = run->plan;

	plan.family = side->family;
	memcpy(plan.options, side->options, sizeof(plan.options));
	plan.tokens = tokens;
	plan.settle = false;
	return measurement_run(&run->device, &plan, measurement, err);
}

static int measure_lengths(struct sweep *it, struct error *err)
{
	for (int i = 0; i < it->row_count; i++) {
		struct row *row = &it->rows[i];
		struct measurement measured[SIDES];

		for (int side = 0; side < SIDES; side++) {
			if (time_side(it->run, &it->sides[side], row->tokens, &measured[side], err) < 0)
				return -1;
			row->seconds[side] = measured[side].seconds;
		}
		row->bytes = measured[OWN].bytes;
	}
	return 0;
}

/* A tunable at a time, each of its values that can run. */
static int measure_variants(struct sweep *it, struct error *err)
{
	const struct side *side = &it->sides[OWN];
	const struct family_configs *configs = side->family->configs;
	const struct gpu_properties *properties = gpu_properties_of(device_gpu(&it->run->device));
	const int64_t tokens = it->rows[it->row_count - 1].tokens;
	const struct op_shape shape = fixture_shape(tokens);
	const struct op_problem problem = family_problem(side->family, &shape, DTYPE_BF16, side->options);
	const struct config usual = configs->usual(&problem, properties);

	config_format(configs->parameters, &usual, it->usual, sizeof(it->usual));
	for (int i = 0; configs->parameters[i].name; i++)
		for (const int *value = configs->parameters[i].values; *value; value++) {
			struct variant variant = {i, *value, usual.value[i] == *value, 0};
			struct config config = usual;
			struct error cannot;

			config.value[i] = *value;
			if (configs->check(&problem, properties, &config, &cannot) < 0)
				continue;
			if (time_on_gpu(it->run, side, tokens, &config, &variant.seconds, err) < 0)
				return -1;
			it->variants[it->variant_count++] = variant;
		}
	return 0;
}

/* --- what came of it ----------------------------------------------------------------------------------- */

static double rate(const struct row *row)
{
	return row->bytes / row->seconds[OWN];
}

/* The rival's time by the operation's. */
static double ratio(const struct row *row)
{
	return row->seconds[RIVAL] / row->seconds[OWN];
}

/* The length at which one overtakes the other, on a straight line between logarithms; NAN: within the lengths neither
 * does. */
static double crossing(const struct sweep *it)
{
	for (int i = 1; i < it->row_count; i++) {
		const struct row *before = &it->rows[i - 1], *behind = &it->rows[i];
		double from = log(ratio(before)), to = log(ratio(behind));

		if ((from < 0) != (to < 0))
			return exp(log((double)before->tokens) +
				log((double)behind->tokens / (double)before->tokens) * from / (from - to));
	}
	return NAN;
}

/* With a variant, by the traffic of the longest length. */
static double variant_rate(const struct sweep *it, const struct variant *variant)
{
	return it->rows[it->row_count - 1].bytes / variant->seconds;
}

static const char *tunable_name(const struct sweep *it, const struct variant *variant)
{
	return it->sides[OWN].family->configs->parameters[variant->parameter].name;
}

static void print_lengths(const struct sweep *it)
{
	char own[64], rival[64];
	const char *const headings[] = {"tokens", own, "bandwidth", rival, "ratio"};
	struct table table;

	snprintf(own, sizeof(own), "%s", it->sides[OWN].family->name);
	snprintf(rival, sizeof(rival), "%s", it->sides[RIVAL].family->name);
	table_begin(&table, headings, "rrrrr");
	for (int i = 0; i < it->row_count; i++) {
		const struct row *row = &it->rows[i];

		table_cell(&table, "%lld", (long long)row->tokens);
		table_cell(&table, "%.3f ms", row->seconds[OWN] * 1e3);
		table_cell(&table, "%.1f GB/s", rate(row) / 1e9);
		table_cell(&table, "%.3f ms", row->seconds[RIVAL] * 1e3);
		table_cell(&table, "%.2f x", ratio(row));
	}
	table_print(&table, stdout);
}

static void print_variants(const struct sweep *it)
{
	static const char *const headings[] = {"tunable", "value", "time", "bandwidth"};
	const struct row *longest = &it->rows[it->row_count - 1];
	struct table table;

	layout_format(stdout, 0, "\nThe kernels at %lld tokens; the others as in %s.\n",
		(long long)longest->tokens, it->usual);
	table_begin(&table, headings, "lrrr");
	for (int i = 0; i < it->variant_count; i++) {
		const struct variant *variant = &it->variants[i];

		table_cell(&table, "%s", tunable_name(it, variant));
		table_cell(&table, "%d", variant->value);
		table_cell(&table, "%.3f ms", variant->seconds * 1e3);
		table_cell(&table, "%.1f GB/s", variant_rate(it, variant) / 1e9);
	}
	table_print(&table, stdout);
}

static void print_text(const struct sweep *it)
{
	const struct side *own = &it->sides[OWN], *rival = &it->sides[RIVAL];
	double at = crossing(it);

	layout_format(stdout, 0, "%s (%s) beside %s (%s), batch 1, 8 heads of 64, bf16, on %s.\n",
		own->family->title, own->semantics, rival->family->title, rival->semantics,
		it->run->device.description);
	print_lengths(it);
	if (isnan(at))
		layout_format(stdout, 0, "\nNeither overtakes the other at these lengths.");
	else
		layout_format(stdout, 0, "\nThey are equally fast at about %.0f tokens.", at);
	if (it->variant_count)
		print_variants(it);
	layout_format(stdout, 0,
		"\nTimes are medians. The bandwidth counts each input and output of %s once; the ratio is the time "
		"of %s by that of %s.",
		own->family->name, rival->family->name, own->family->name);
}

static void print_document(const struct sweep *it)
{
	cJSON *document = cJSON_CreateObject(), *array;

	cJSON_AddStringToObject(document, "device", it->run->device.description);
	cJSON_AddStringToObject(document, "op", it->sides[OWN].family->name);
	cJSON_AddStringToObject(document, "semantics", it->sides[OWN].semantics);
	cJSON_AddStringToObject(document, "beside", it->sides[RIVAL].family->name);
	cJSON_AddStringToObject(document, "beside_semantics", it->sides[RIVAL].semantics);
	array = cJSON_AddArrayToObject(document, "lengths");
	for (int i = 0; i < it->row_count; i++) {
		const struct row *row = &it->rows[i];
		cJSON *object = cJSON_CreateObject();

		cJSON_AddNumberToObject(object, "seq", (double)row->tokens);
		cJSON_AddNumberToObject(object, "seconds", row->seconds[OWN]);
		cJSON_AddNumberToObject(object, "bytes", row->bytes);
		cJSON_AddNumberToObject(object, "bytes_per_second", rate(row));
		cJSON_AddNumberToObject(object, "beside_seconds", row->seconds[RIVAL]);
		cJSON_AddNumberToObject(object, "ratio", ratio(row));
		cJSON_AddItemToArray(array, object);
	}
	if (isnan(crossing(it)))
		cJSON_AddNullToObject(document, "crossing");
	else
		cJSON_AddNumberToObject(document, "crossing", crossing(it));
	array = cJSON_AddArrayToObject(document, "configurations");
	for (int i = 0; i < it->variant_count; i++) {
		const struct variant *variant = &it->variants[i];
		cJSON *object = cJSON_CreateObject();

		cJSON_AddStringToObject(object, "tunable", tunable_name(it, variant));
		cJSON_AddNumberToObject(object, "value", variant->value);
		cJSON_AddNumberToObject(object, "seconds", variant->seconds);
		cJSON_AddNumberToObject(object, "bytes_per_second", variant_rate(it, variant));
		cJSON_AddItemToArray(array, object);
	}
	output_json(document);
}

/* --- the picture --------------------------------------------------------------------------------------- */

/* Both by the length; a label for each mark. */
static void draw_lengths(const struct sweep *it, struct part *part)
{
	struct svg_point points[SIDES][MOST_LENGTHS];
	char labels[SIDES][MOST_LENGTHS][64], equal[64], title[256];
	struct svg_series series[SIDES];
	const struct svg_rule rule = {crossing(it), equal};

	for (int side = 0; side < SIDES; side++) {
		for (int i = 0; i < it->row_count; i++) {
			const struct row *row = &it->rows[i];

			snprintf(labels[side][i], sizeof(labels[side][i]), "%lld tokens: %.3f ms",
				(long long)row->tokens, row->seconds[side] * 1e3);
			points[side][i] = (struct svg_point){
				(double)row->tokens, row->seconds[side] * 1e3, NAN, NAN, labels[side][i]};
		}
		series[side] = (struct svg_series){
			it->sides[side].family->title, points[side], (size_t)it->row_count, .line = true};
	}
	snprintf(equal, sizeof(equal), "equal at %.0f", rule.at);
	snprintf(title, sizeof(title), "%s and %s on %s", it->sides[OWN].family->title,
		it->sides[RIVAL].family->title, it->run->device.description);
	part_plot(part,
		&(struct svg_plot){.title = title,
			.x = {.title = "tokens", .scale = SVG_LOG},
			.y = {.title = "ms", .scale = SVG_LOG},
			.series = series,
			.series_count = SIDES,
			.x_rules = &rule,
			.x_rule_count = !isnan(rule.at)});
}

static void draw_variants(const struct sweep *it, struct part *part)
{
	struct svg_bar bars[CONFIG_PARAMETERS * CONFIG_VALUES];
	char labels[CONFIG_PARAMETERS * CONFIG_VALUES][64], texts[CONFIG_PARAMETERS * CONFIG_VALUES][64];
	char title[512];

	for (int i = 0; i < it->variant_count; i++) {
		const struct variant *variant = &it->variants[i];

		snprintf(labels[i], sizeof(labels[i]), "%s=%d", tunable_name(it, variant), variant->value);
		snprintf(texts[i], sizeof(texts[i]), "%.1f GB/s, %.3f ms", variant_rate(it, variant) / 1e9,
			variant->seconds * 1e3);
		bars[i] = (struct svg_bar){
			labels[i], variant_rate(it, variant) / 1e9, NAN, NAN, variant->usual, texts[i]};
	}
	snprintf(title, sizeof(title), "GB/s at %lld tokens by the kernels' tunables, the others as usual",
		(long long)it->rows[it->row_count - 1].tokens);
	part_bars(part, title, bars, (size_t)it->variant_count);
}

static int write_picture(const struct sweep *it, struct error *err)
{
	struct part part = {.name = "sweep", .title = "Sweep over lengths"};
	int result;

	draw_lengths(it, &part);
	if (it->variant_count)
		draw_variants(it, &part);
	result = command_picture(it->run->invocation, &part, err);
	part_free(&part);
	return result;
}

/* --- the command --------------------------------------------------------------------------------------- */

static int find_sides(struct sweep *it, struct error *err)
{
	struct side *own = &it->sides[OWN], *rival = &it->sides[RIVAL];
	const struct family *linear = family_find("linear"), *softmax = family_find("flash");

	own->family = it->run->plan.family;
	memcpy(own->options, it->run->plan.options, sizeof(own->options));
	if (function_is_packed(own->family, own->options))
		return error_set(err, STATUS_USAGE, "--sweep is of whole sequences, not of packed ones");
	family_options_format(own->family, own->options, own->semantics, sizeof(own->semantics));
	rival->family = own->family == softmax ? linear : softmax;
	if (own->family->gradient_of)
		rival->family = family_gradient(
			own->family->gradient_of == softmax ? linear : softmax, rival->options);
	if (family_options_parse(rival->family,
		    !strncmp(own->semantics, "bidirectional", 13) ? "bidirectional" : "causal",
		    rival->options, err) < 0)
		return -1;
	family_options_format(rival->family, rival->options, rival->semantics, sizeof(rival->semantics));
	return 0;
}

static int by_length(const void *a, const void *b)
{
	const struct row *first = a, *second = b;

	return (first->tokens > second->tokens) - (first->tokens < second->tokens);
}

static void find_lengths(struct sweep *it)
{
	if (!arg_given(it->run->invocation, "seq"))
		for (int64_t tokens = SHORTEST; tokens <= LONGEST; tokens *= 2)
			it->rows[it->row_count++].tokens = tokens;
	else
		while (it->row_count < it->run->count) {
			it->rows[it->row_count].tokens = it->run->lengths[it->row_count];
			it->row_count++;
		}
	qsort(it->rows, (size_t)it->row_count, sizeof(*it->rows), by_length);
}

int bench_sweep(struct run *run, struct error *err)
{
	struct sweep it = {.run = run};

	if (run->plan.workload != WORKLOAD_OP || (run->format != FORMAT_TEXT && run->format != FORMAT_JSON))
		return error_set(err, STATUS_USAGE, "--sweep is of an operation, --op, as text or --json");
	find_lengths(&it);
	if (find_sides(&it, err) < 0 || measure_lengths(&it, err) < 0)
		return -1;
	if (device_gpu(&run->device) && measure_variants(&it, err) < 0)
		return -1;
	if (run->format == FORMAT_JSON)
		print_document(&it);
	else
		print_text(&it);
	return write_picture(&it, err);
}
