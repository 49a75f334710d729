#include "web/tuning.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"
#include "web/roofline.h"

#define DRAWN 4    /* tunings that pictures are drawn of */
#define ROOFS 2    /* devices */
#define ROWS 150   /* of a page's table */
#define HISTORY 40 /* tunings in a picture */
#define KERNELS 4  /* beside each other in it */
#define LETTERS 24 /* of a name in a picture */

/* A kernel's name where there is little room: of one in a file the function's. The caller frees. */
static char *short_name(const char *kernel)
{
	const char *colon = strrchr(kernel, ':'), *name = colon && colon[1] ? colon + 1 : kernel;
	size_t length = text_prefix(name, LETTERS);

	return xprintf("%.*s%s", (int)length, name, name[length] ? "…" : "");
}

/* Which tuning a picture is of: "quasar_chunk on H200, upstream, bf16, …"; the caller frees. */
static char *describe(const struct tuning *tuning)
{
	return xprintf(
		"%s on %s%s%s", tuning->kernel, tuning->device, *tuning->class ? ", " : "", tuning->class);
}

/* --- heat maps ----------------------------------------------------------------------------------- */

static void draw_heat(const struct tuning *tuning, const char *const axes[2], struct part *part)
{
	struct tuning_grid grid;
	struct part_picture *picture;
	struct svg_heat heat;
	char *of, *title;

	if (!tuning_grid_make(tuning, axes[0], axes[1], &grid))
		return;
	of = describe(tuning);
	title = xprintf("%s: the best time in ms by %s and %s", of, grid.names[0], grid.names[1]);
	heat = (struct svg_heat){title, grid.names[0], grid.names[1], grid.labels[0], grid.labels[1],
		grid.counts[0], grid.counts[1], grid.ms, "ms"};
	picture = part_picture(part, title);
	svg_heat(&heat, PART_WIDE, &picture->wide);
	svg_heat(&heat, PART_NARROW, &picture->narrow);
	free(title);
	free(of);
}

/* --- the fastest, and the roofline --------------------------------------------------------------- */

static void draw_best(const struct tuning *tuning, struct part *part)
{
	struct svg_bar bars[TUNING_BEST + 1];
	char texts[TUNING_BEST + 1][64];
	struct tuning_best best;
	size_t count;
	char *of = describe(tuning), *title;

	tuning_best_make(tuning, &best);
	title = best.names[0] ? xprintf("%s: the fastest configurations, by %s", of, best.names)
			      : xprintf("%s: the fastest configuration", of);
	for (count = 0; count < best.count; count++) {
		const struct tune_row *row = &tuning->rows[count];
		double error = isfinite(row->error) ? row->error * row->ms : NAN;

		snprintf(texts[count], sizeof(texts[count]), "%.3f ms", row->ms);
		bars[count] = (struct svg_bar){.label = *best.labels[count] ? best.labels[count] : "tuned",
			.value = row->ms,
			.low = row->ms - error,
			.high = row->ms + error,
			.strong = !count,
			.text = texts[count]};
	}
	if (!isnan(tuning->usual_ms)) {
		snprintf(texts[count], sizeof(texts[count]), "%.3f ms", tuning->usual_ms);
		bars[count] = (struct svg_bar){"untuned", tuning->usual_ms, NAN, NAN, false, texts[count]};
		count++;
	}
	part_bars(part, title, bars, count);
	free(title);
	free(of);
}

static bool has_roof(const struct tuning *tuning)
{
	return tuning->bytes > 0 && tuning->operations > 0 && tuning->bandwidth_gbs > 0 && tuning->tflops > 0;
}

/* Where the fastest of a tuning stands. */
static struct svg_point roof_point(const struct tuning *tuning, const char *label)
{
	return (struct svg_point){tuning->operations / tuning->bytes,
		tuning->operations / tuning->rows[0].ms / 1e9, NAN, NAN, label};
}

/* Whether an earlier one of the list is of the same device and, with `kernel`, of the same kernel. */
static bool is_repeated(const struct tuning_list *list, size_t index, bool kernel)
{
	const struct tuning *own = &list->items[index];

	for (size_t i = 0; i < index; i++)
		if (has_roof(&list->items[i]) && !strcmp(list->items[i].device, own->device) &&
			(!kernel || !strcmp(list->items[i].kernel, own->kernel)))
			return true;
	return false;
}

/* The kernels on the device of a tuning. */
static void draw_roofline(const struct tuning_list *list, const struct tuning *of, struct part *part)
{
	struct svg_point *newest = xcalloc(list->count, sizeof(*newest)),
			 *others = xcalloc(list->count, sizeof(*others));
	size_t newest_count = 0, other_count = 0;
	char *title = xprintf("Roofline of %s", of->device);

	for (size_t i = 0; i < list->count; i++) {
		const struct tuning *tuning = &list->items[i];

		if (!has_roof(tuning) || strcmp(tuning->device, of->device))
			continue;
		if (is_repeated(list, i, true))
			others[other_count++] = roof_point(tuning, tuning->class);
		else
			newest[newest_count++] = roof_point(tuning, short_name(tuning->kernel));
	}
	roofline_draw(&(struct roofline){.title = title,
			      .bandwidth = of->bandwidth_gbs * 1e-3,
			      .rate = of->tflops,
			      .series = {{"the fastest of each kernel", newest, newest_count, .named = true},
				      {"for other shapes", others, other_count, .line = false}}},
		part);
	for (size_t i = 0; i < newest_count; i++)
		free((char *)newest[i].label);
	free(newest);
	free(others);
	free(title);
}

static void draw_rooflines(const struct tuning_list *list, struct part *part)
{
	size_t drawn = 0;

	for (size_t i = 0; i < list->count && drawn < ROOFS; i++) {
		if (!has_roof(&list->items[i]) || is_repeated(list, i, false))
			continue;
		draw_roofline(list, &list->items[i], part);
		drawn++;
	}
}

/* --- the part ------------------------------------------------------------------------------------ */

static const struct sheet_column columns[] = {
	{"device", "GPU", SHEET_TEXT},
	{"kernel", "Kernel", SHEET_TEXT},
	{"class", "Shapes", SHEET_TEXT},
	{"predicted", "Predicted", SHEET_FLAG},
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

static void fill_sheet(const struct tuning *tuning, struct sheet *sheet)
{
	for (size_t i = 0; i < tuning->count && i < TUNING_BEST; i++) {
		const struct tune_row *row = &tuning->rows[i];

		sheet_text(sheet, tuning->device);
		sheet_text(sheet, tuning->kernel);
		sheet_text(sheet, *tuning->class ? tuning->class : NULL);
		sheet_number(sheet, tuning->predicted);
		sheet_number(sheet, row->ms);
		sheet_number(sheet, row->error);
		sheet_text(sheet, row->parameters);
		sheet_number(sheet, row->registers < 0 ? NAN : row->registers);
		sheet_number(sheet, row->spills < 0 ? NAN : row->spills);
		sheet_number(sheet, row->shared_bytes < 0 ? NAN : row->shared_bytes);
		sheet_number(sheet, row->occupancy);
		sheet_text(sheet, row->limited_by);
		sheet_text(sheet, row->bound);
		if (!i)
			sheet_mark(sheet);
	}
}

static char *summarize(const struct tuning_list *list)
{
	const struct tuning *first = list->items;
	size_t configurations = 0, predicted = 0;

	for (size_t i = 0; i < list->count; i++) {
		configurations += list->items[i].count;
		predicted += list->items[i].predicted;
	}
	if (list->count == 1)
		return xprintf("%zu configuration%s of %s on %s%s%s, %s. The fastest stands out.",
			first->count, first->count == 1 ? "" : "s", first->kernel, first->device,
			*first->class ? ", for " : "", first->class,
			predicted ? "predicted, not measured" : "as measured");
	return xprintf("%zu configurations in %zu tunings, %s. The fastest of each stands out.",
		configurations, list->count,
		!predicted                         ? "as measured"
			: predicted == list->count ? "predicted, not measured"
						   : "some as measured, others predicted, not measured");
}

void tuning_part(const struct tuning_list *list, const char *const axes[2], struct part *part)
{
	*part = (struct part){.name = "tuning",
		.title = "Tuning",
		.empty = xstrdup(
			"Nothing has been tuned on this machine yet. `quasar tune` does that, where there is "
			"a GPU."),
		.most = ROWS};
	sheet_begin(&part->sheet, columns);
	if (!list->count)
		return;
	part->summary = summarize(list);
	for (size_t i = 0; i < list->count && i < DRAWN; i++) {
		draw_heat(&list->items[i], axes, part);
		draw_best(&list->items[i], part);
	}
	draw_rooflines(list, part);
	for (size_t i = 0; i < list->count; i++)
		fill_sheet(&list->items[i], &part->sheet);
}

/* --- the history --------------------------------------------------------------------------------- */

static const struct sheet_column history_columns[] = {
	{"when", "When (UTC)", SHEET_TIME},
	{"device", "GPU", SHEET_TEXT},
	{"kernel", "Kernel", SHEET_TEXT},
	{"class", "Shapes", SHEET_TEXT},
	{"ms", "ms", SHEET_REAL},
	{"error", "±", SHEET_PERCENT},
	{"untuned_ms", "Untuned, ms", SHEET_REAL},
	{"speedup", "Speedup", SHEET_REAL},
	{"parameters", "Configuration", SHEET_TEXT},
	{"tried", "Tried", SHEET_COUNT},
	{"failed", "Failed", SHEET_COUNT},
	{"complete", "Complete", SHEET_FLAG},
	{"imported", "Imported", SHEET_FLAG},
	{"version", "Version", SHEET_TEXT},
	{0},
};

static double speedup(const struct tune_result *result)
{
	return result->usual_ms / result->ms;
}

static void add_history(const struct tune_result *result, struct sheet *sheet)
{
	char class[160];

	shape_class_format(&result->key.class, class, sizeof(class));
	sheet_number(sheet, result->when);
	sheet_text(sheet, result->key.device);
	sheet_text(sheet, result->key.kernel);
	sheet_text(sheet, class);
	sheet_number(sheet, result->ms);
	sheet_number(sheet, result->noise);
	sheet_number(sheet, result->usual_ms);
	sheet_number(sheet, speedup(result));
	sheet_text(sheet, result->parameters);
	sheet_number(sheet, result->tried);
	sheet_number(sheet, result->failed);
	sheet_number(sheet, result->complete);
	sheet_number(sheet, result->imported);
	sheet_text(sheet, result->version);
}

/* A kernel's points among those of a history. */
struct history {
	const char *kernels[KERNELS];
	struct svg_point points[KERNELS][HISTORY];
	size_t counts[KERNELS], kernel_count;
};

static void add_point(struct history *history, const struct tune_result *result, size_t place)
{
	char class[160], *label;
	size_t at = 0;

	while (at < history->kernel_count && strcmp(history->kernels[at], result->key.kernel))
		at++;
	if (at == KERNELS)
		return;
	history->kernels[at] = result->key.kernel;
	history->kernel_count += at == history->kernel_count;
	shape_class_format(&result->key.class, class, sizeof(class));
	label = xprintf("%s, %s: %.2f times as fast", result->key.device, class, speedup(result));
	history->points[at][history->counts[at]++] = (struct svg_point){
		(double)place, speedup(result), NAN, NAN, label};
}

static void draw_history(const struct tune_result_list *results, struct part *part)
{
	struct history history = {0};
	struct svg_series series[KERNELS];
	size_t count = results->count < HISTORY ? results->count : HISTORY;
	char days[HISTORY][32];
	const char *names[HISTORY];
	const struct svg_rule same = {1, "untuned"};

	for (size_t i = 0; i < count; i++) {
		const struct tune_result *result = &results->items[count - 1 - i];

		clock_format(result->when, days[i]);
		days[i][10] = '\0';
		names[i] = days[i] + 5;
		if (isfinite(speedup(result)))
			add_point(&history, result, i);
	}
	for (size_t i = 0; i < history.kernel_count; i++)
		series[i] = (struct svg_series){
			short_name(history.kernels[i]), history.points[i], history.counts[i], .line = false};
	if (history.kernel_count)
		part_plot(part,
			&(struct svg_plot){.title = "What each tuning gained",
				.x = {.title = "month and day of the tuning, oldest first",
					.scale = SVG_ORDINAL,
					.names = names,
					.name_count = count},
				.y = {.title = "times as fast as untuned"},
				.series = series,
				.series_count = history.kernel_count,
				.y_rules = &same,
				.y_rule_count = 1});
	for (size_t i = 0; i < history.kernel_count; i++) {
		free((char *)series[i].name);
		for (size_t n = 0; n < history.counts[i]; n++)
			free((char *)history.points[i][n].label);
	}
}

void tuning_history_part(const struct tune_result_list *results, struct part *part)
{
	*part = (struct part){.name = "history",
		.title = "History of tunings",
		.empty = xstrdup("Nothing is stored yet. `quasar tune` stores what it measures."),
		.most = ROWS};
	sheet_begin(&part->sheet, history_columns);
	for (size_t i = 0; i < results->count; i++)
		add_history(&results->items[i], &part->sheet);
	if (results->count)
		draw_history(results, part);
}
