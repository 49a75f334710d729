#include "web/tuning.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"
#include "web/svg.h"

#define BEST 10       /* bars */
#define LEAST_MS 1e-6 /* times that can be meant */
#define MOST_MS 1e9
#define KERNELS 8 /* that pictures are drawn of */
#define ROWS 4096 /* that are read */
#define VALUES 16 /* of a parameter, in a heat map */

struct row {
	const char *kernel, *limited_by, *bound;
	char *parameters; /* "CHUNK=64 NUM_STAGES=2" */
	const cJSON *values;
	double ms, error, occupancy, registers, shared_bytes, spills, intensity, tflops;
};

struct rows {
	struct row *items;
	size_t count;
};

static double number(const cJSON *item, const char *name)
{
	const cJSON *field = cJSON_GetObjectItemCaseSensitive(item, name);

	return cJSON_IsNumber(field) ? field->valuedouble : NAN;
}

static const char *text(const cJSON *item, const char *name)
{
	return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(item, name));
}

static char *describe_parameters(const cJSON *parameters)
{
	struct buffer out = {0};
	const cJSON *value;

	buffer_text(&out, "");
	cJSON_ArrayForEach (value, parameters)
		if (cJSON_IsNumber(value))
			buffer_printf(
				&out, "%s%s=%g", out.length ? " " : "", value->string, value->valuedouble);
	return out.data;
}

static int by_kernel_and_time(const void *left, const void *right)
{
	const struct row *a = left, *b = right;
	int order = strcmp(a->kernel, b->kernel);

	return order ? order : (a->ms > b->ms) - (a->ms < b->ms);
}

static void read_rows(const cJSON *document, struct rows *rows)
{
	const cJSON *item;

	cJSON_ArrayForEach (item, cJSON_GetObjectItemCaseSensitive(document, "kernels")) {
		const char *kernel = text(item, "kernel");
		double ms = number(item, "ms");

		if (!kernel || !(ms >= LEAST_MS && ms <= MOST_MS) || rows->count == ROWS)
			continue;
		rows->items = xrealloc(rows->items, (rows->count + 1) * sizeof(*rows->items));
		rows->items[rows->count++] = (struct row){
			.kernel = kernel,
			.limited_by = text(item, "limited_by"),
			.bound = text(item, "bound"),
			.values = cJSON_GetObjectItemCaseSensitive(item, "parameters"),
			.parameters = describe_parameters(
				cJSON_GetObjectItemCaseSensitive(item, "parameters")),
			.ms = ms,
			.error = number(item, "error"),
			.occupancy = number(item, "occupancy"),
			.registers = number(item, "registers"),
			.shared_bytes = number(item, "shared_bytes"),
			.spills = number(item, "spills"),
			.intensity = number(item, "intensity"),
			.tflops = number(item, "tflops"),
		};
	}
	if (rows->count)
		qsort(rows->items, rows->count, sizeof(*rows->items), by_kernel_and_time);
}

static void rows_free(struct rows *rows)
{
	for (size_t i = 0; i < rows->count; i++)
		free(rows->items[i].parameters);
	free(rows->items);
}

/* --- heat maps ----------------------------------------------------------------------------------- */

/* A parameter's values, in order. */
struct parameter {
	const char *name;
	double values[VALUES];
	size_t count;
};

static void take_value(struct parameter *parameter, double value)
{
	size_t at = 0;

	while (at < parameter->count && parameter->values[at] < value)
		at++;
	if (!isfinite(value) || parameter->count == VALUES ||
		(at < parameter->count && parameter->values[at] == value))
		return;
	memmove(&parameter->values[at + 1], &parameter->values[at],
		(parameter->count - at) * sizeof(*parameter->values));
	parameter->values[at] = value;
	parameter->count++;
}

/* The two that vary the most; false when fewer do. */
static bool choose_parameters(const struct row *rows, size_t count, struct parameter chosen[2])
{
	const cJSON *name;

	memset(chosen, 0, 2 * sizeof(*chosen));
	cJSON_ArrayForEach (name, rows[0].values) {
		struct parameter parameter = {.name = name->string};

		for (size_t i = 0; i < count; i++)
			take_value(&parameter, number(rows[i].values, parameter.name));
		if (parameter.count > chosen[0].count) {
			chosen[1] = chosen[0];
			chosen[0] = parameter;
		} else if (parameter.count > chosen[1].count) {
			chosen[1] = parameter;
		}
	}
	return chosen[1].count > 1;
}

static size_t find_value(const struct parameter *parameter, double value)
{
	size_t at = 0;

	while (at < parameter->count && parameter->values[at] != value)
		at++;
	return at;
}

static void name_values(const struct parameter *parameter, char texts[VALUES][24], const char *names[VALUES])
{
	for (size_t i = 0; i < parameter->count; i++) {
		snprintf(texts[i], sizeof(texts[i]), "%g", parameter->values[i]);
		names[i] = texts[i];
	}
}

/* The best time of each pair of values, whatever the other parameters are. */
static void draw_heat(const struct row *rows, size_t count, struct part *part)
{
	struct parameter chosen[2];
	char texts[2][VALUES][24];
	const char *names[2][VALUES];
	double values[VALUES * VALUES];
	struct svg_heat heat;
	struct part_picture *picture;
	char *title;

	if (!choose_parameters(rows, count, chosen))
		return;
	for (size_t i = 0; i < VALUES * VALUES; i++)
		values[i] = NAN;
	for (size_t i = 0; i < count; i++) {
		size_t row = find_value(&chosen[0], number(rows[i].values, chosen[0].name));
		size_t column = find_value(&chosen[1], number(rows[i].values, chosen[1].name));
		double *value = &values[row * chosen[1].count + column];

		if (row < chosen[0].count && column < chosen[1].count)
			*value = fmin(isnan(*value) ? INFINITY : *value, rows[i].ms);
	}
	name_values(&chosen[0], texts[0], names[0]);
	name_values(&chosen[1], texts[1], names[1]);
	title = xprintf(
		"%s: the best time in ms by %s and %s", rows[0].kernel, chosen[0].name, chosen[1].name);
	heat = (struct svg_heat){title, chosen[0].name, chosen[1].name, names[0], names[1], chosen[0].count,
		chosen[1].count, values, "ms"};
	picture = part_picture(part, title);
	svg_heat(&heat, PART_WIDE, &picture->wide);
	svg_heat(&heat, PART_NARROW, &picture->narrow);
	free(title);
}

/* --- the fastest, and the roofline --------------------------------------------------------------- */

static void draw_best(const struct row *rows, size_t count, struct part *part)
{
	struct svg_bar bars[BEST];
	char texts[BEST][64];
	struct part_picture *picture;
	char *title = xprintf("%s: the fastest configurations", rows[0].kernel);

	count = count < BEST ? count : BEST;
	for (size_t i = 0; i < count; i++) {
		double error = isfinite(rows[i].error) ? rows[i].error * rows[i].ms : NAN;

		snprintf(texts[i], sizeof(texts[i]), "%.3f ms", rows[i].ms);
		bars[i] = (struct svg_bar){.label = rows[i].parameters,
			.value = rows[i].ms,
			.low = rows[i].ms - error,
			.high = rows[i].ms + error,
			.strong = !i,
			.text = texts[i]};
	}
	picture = part_picture(part, title);
	svg_bars(title, bars, count, PART_WIDE, &picture->wide);
	svg_bars(title, bars, count, PART_NARROW, &picture->narrow);
	free(title);
}

static void draw_roofline(const cJSON *document, const struct rows *rows, struct part *part)
{
	double bandwidth = number(document, "bandwidth_gbs") * 1e-3, peak = number(document, "peak_tflops");
	double ridge = peak / bandwidth, least = ridge / 4, most = ridge * 4;
	struct svg_point *points = xcalloc(rows->count, sizeof(*points)), roof[3];
	struct svg_series series[2];
	struct svg_plot plot;
	struct part_picture *picture;
	size_t count = 0;

	for (size_t i = 0; i < rows->count; i++) {
		const struct row *row = &rows->items[i];

		if (!(row->intensity > 0 && row->tflops > 0) || (i && !strcmp(row->kernel, row[-1].kernel)))
			continue; /* the fastest of each kernel stands for it */
		points[count++] = (struct svg_point){row->intensity, row->tflops, NAN, NAN, row->kernel};
		least = fmin(least, row->intensity / 2);
		most = fmax(most, row->intensity * 2);
	}
	if (count && bandwidth > 0 && peak > 0 && isfinite(ridge)) {
		roof[0] = (struct svg_point){least, least * bandwidth, NAN, NAN, NULL};
		roof[1] = (struct svg_point){ridge, peak, NAN, NAN, NULL};
		roof[2] = (struct svg_point){most, peak, NAN, NAN, NULL};
		series[0] = (struct svg_series){"what the device allows", roof, 3, .line = true};
		series[1] = (struct svg_series){"the fastest of each kernel", points, count, .named = true};
		plot = (struct svg_plot){.title = "Roofline",
			.x = {.title = "operations per byte of memory", .scale = SVG_LOG},
			.y = {.title = "TFLOP/s", .scale = SVG_LOG},
			.series = series,
			.series_count = 2};
		picture = part_picture(part, plot.title);
		svg_plot(&plot, PART_WIDE, &picture->wide);
		svg_plot(&plot, PART_NARROW, &picture->narrow);
	}
	free(points);
}

/* --- the part ------------------------------------------------------------------------------------ */

static const struct sheet_column columns[] = {
	{"kernel", "Kernel", SHEET_TEXT},
	{"ms", "ms", SHEET_REAL},
	{"error", "±", SHEET_PERCENT},
	{"parameters", "Configuration", SHEET_TEXT},
	{"registers", "Registers", SHEET_COUNT},
	{"spills", "Spills, B", SHEET_COUNT},
	{"shared_bytes", "Shared, B", SHEET_COUNT},
	{"occupancy", "Occupancy", SHEET_PERCENT},
	{"limited_by", "Limited by", SHEET_TEXT},
	{"bound", "Bound", SHEET_TEXT},
	{0},
};

static void fill_sheet(const struct rows *rows, struct sheet *sheet)
{
	for (size_t i = 0; i < rows->count; i++) {
		const struct row *row = &rows->items[i];

		sheet_text(sheet, row->kernel);
		sheet_number(sheet, row->ms);
		sheet_number(sheet, row->error);
		sheet_text(sheet, row->parameters);
		sheet_number(sheet, row->registers);
		sheet_number(sheet, row->spills);
		sheet_number(sheet, row->shared_bytes);
		sheet_number(sheet, row->occupancy);
		sheet_text(sheet, row->limited_by);
		sheet_text(sheet, row->bound);
		if (!i || strcmp(row->kernel, row[-1].kernel))
			sheet_mark(sheet);
	}
}

void tuning_part(const cJSON *document, struct part *part)
{
	const char *device = text(document, "device");
	struct rows rows = {0};
	size_t kernels = 0;

	*part = (struct part){.name = "tuning",
		.title = "Tuning",
		.empty = xstrdup("Nothing has been tuned on this machine yet."),
		.most = 100};
	sheet_begin(&part->sheet, columns);
	read_rows(document, &rows);
	if (rows.count)
		part->summary = xprintf(
			"%zu configurations for %s, %s. The fastest of each kernel stands out.", rows.count,
			device ? device : "this device",
			cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(document, "predicted"))
				? "predicted, not measured"
				: "as measured");
	for (size_t first = 0, end; first < rows.count && kernels < KERNELS; first = end, kernels++) {
		for (end = first;
			end < rows.count && !strcmp(rows.items[end].kernel, rows.items[first].kernel);)
			end++;
		draw_heat(&rows.items[first], end - first, part);
		draw_best(&rows.items[first], end - first, part);
	}
	draw_roofline(document, &rows, part);
	fill_sheet(&rows, &part->sheet);
	rows_free(&rows);
}
