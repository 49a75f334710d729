/* tune: what came of it, for people: as a table, in colours, as a page. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/version.h"
#include "cli/chart.h"
#include "cli/table.h"
#include "cmd/tune/tune.h"
#include "web/html.h"
#include "web/tuning.h"

/* --- text ---------------------------------------------------------------------------------------- */

/* A number, or "?" where it is not known. */
static void count_cell(struct table *table, int value, const char *unit)
{
	if (value < 0)
		table_cell(table, "?");
	else
		table_cell(table, "%d%s", value, unit);
}

static void row_cells(struct table *table, const struct tune_row *row)
{
	if (isnan(row->ms))
		table_cell(table, "?");
	else if (isnan(row->error))
		table_cell(table, "%.3f ms", row->ms);
	else
		table_cell(table, "%.3f ms ±%.1f %%", row->ms, row->error * 100);
	count_cell(table, row->registers, "");
	count_cell(table, row->spills, " B");
	count_cell(table, row->shared_bytes, " B");
	if (isnan(row->occupancy))
		table_cell(table, "?");
	else
		table_cell(table, "%.0f %%", row->occupancy * 100);
	table_cell(table, "%s", row->limited_by ? row->limited_by : "?");
	table_cell(table, "%s", row->bound ? row->bound : "?");
	table_cell(table, "%s", row->parameters);
}

void tune_print_table(const struct tune_row *rows, size_t count, size_t most)
{
	static const char *const headings[] = {
		"time", "registers", "spills", "shared", "occupancy", "limited by", "bound", "configuration"};
	static const int spare[] = {6, 3, 2, 5, 1, 4, -1};
	struct table table;

	for (size_t first = 0; first < count;) { /* a table for each kernel */
		size_t shown = 0, end = first;

		printf("%s%s, %s\n\n", first ? "\n" : "", rows[first].kernel,
			rows[first].predicted ? "predicted" : "measured");
		table_begin(&table, headings, "rrrrrlll");
		table_spare(&table, spare);
		for (; end < count && !strcmp(rows[end].kernel, rows[first].kernel); end++)
			if (shown++ < most)
				row_cells(&table, &rows[end]);
		table_print(&table, stdout);
		if (shown > most)
			printf("and %zu more\n", shown - most);
		first = end;
	}
}

/* --- pictures in the terminal --------------------------------------------------------------------- */

/* How fast each pair of values can be, as percentages of the fastest. */
static void draw_heat_map(const struct tuning *tuning, const char *const axes[2])
{
	struct tuning_grid grid;
	struct chart_map map;
	double least = INFINITY;

	if (!tuning_grid_make(tuning, axes[0], axes[1], &grid))
		return;
	for (size_t i = 0; i < grid.counts[0] * grid.counts[1]; i++)
		least = fmin(least, grid.ms[i]);
	for (size_t i = 0; i < grid.counts[0] * grid.counts[1]; i++)
		grid.ms[i] = round(100 * least / grid.ms[i]);
	map = (struct chart_map){grid.names[0], grid.names[1], grid.labels[0], grid.labels[1], grid.counts[0],
		grid.counts[1], grid.ms, "% of the best speed"};
	printf("\n");
	chart_heat_map(stdout, &map);
}

static void draw_bars(const struct tuning *tuning)
{
	struct chart_bar bars[TUNING_BEST + 1];
	char texts[TUNING_BEST + 1][32];
	struct tuning_best best;
	size_t count;

	tuning_best_make(tuning, &best);
	for (count = 0; count < best.count; count++) {
		snprintf(texts[count], sizeof(texts[count]), "%.4f ms", tuning->rows[count].ms);
		bars[count] = (struct chart_bar){*best.labels[count] ? best.labels[count] : "tuned",
			tuning->rows[count].ms, texts[count], !count};
	}
	if (!isnan(tuning->usual_ms)) {
		snprintf(texts[count], sizeof(texts[count]), "%.4f ms", tuning->usual_ms);
		bars[count] = (struct chart_bar){"untuned", tuning->usual_ms, texts[count], false};
		count++;
	}
	if (best.names[0])
		printf("\nThe fastest, by %s:\n", best.names);
	else
		printf("\n");
	chart_bars(stdout, bars, count);
}

void tune_draw(const struct tuning *tuning, const char *const axes[2])
{
	draw_heat_map(tuning, axes);
	draw_bars(tuning);
}

/* --- the page -------------------------------------------------------------------------------------- */

int tune_read_axes(const struct invocation *invocation, struct tune_axes *axes, struct error *err)
{
	const char *text = arg_string(invocation, "axes"), *comma = text ? strchr(text, ',') : NULL;

	*axes = (struct tune_axes){0};
	if (!text)
		return 0;
	if (!comma || comma == text || !comma[1] || strchr(comma + 1, ',') ||
		(size_t)(comma - text) >= sizeof(axes->texts[0]) ||
		strlen(comma + 1) >= sizeof(axes->texts[1]))
		return error_set(
			err, STATUS_USAGE, "--axes takes the names of two parameters: CHUNK,NUM_STAGES");
	snprintf(axes->texts[0], sizeof(axes->texts[0]), "%.*s", (int)(comma - text), text);
	snprintf(axes->texts[1], sizeof(axes->texts[1]), "%s", comma + 1);
	axes->names[0] = axes->texts[0];
	axes->names[1] = axes->texts[1];
	return 0;
}

static void make_page(const struct tuning_list *tunings, const struct tune_result_list *history,
	const struct tune_axes *axes, struct buffer *out)
{
	char *title = tunings->count ? xprintf("Tuning of %s", tunings->items[0].device) : xstrdup("Tuning");
	struct part part;
	char when[32];

	clock_minute(clock_now(), when);
	html_begin(out, title, HTML_STILL);
	html_add(out,
		"<header>\n<h1>%s</h1>\n<p class=\"quiet\">Made by quasar %s on %s UTC.</p>\n"
		"</header>\n",
		title, QUASAR_VERSION, when);
	tuning_part(tunings, axes->names, &part);
	part_html(&part, out);
	part_free(&part);
	tuning_history_part(history, &part);
	part_html(&part, out);
	part_free(&part);
	html_end(out);
	free(title);
}

/* All that is stored. A page without it is worth having. */
static void read_history(struct tune_result_list *history)
{
	struct tune_store *store;
	struct error err;

	*history = (struct tune_result_list){0};
	if (tune_store_find(&store, &err) < 0 || (store && tune_store_list(store, false, history, &err) < 0))
		log_warn("the history is left out: %s", err.message);
	tune_store_close(store);
}

int tune_write_page(const struct tune_request *request, const struct tuning_list *tunings, struct error *err)
{
	const char *path = arg_string(request->invocation, "report");
	struct tune_result_list history;
	struct buffer out = {0};
	int result;

	if (!path)
		return 0;
	read_history(&history);
	make_page(tunings, &history, &request->axes, &out);
	result = file_write(path, out.data, out.length, 0644, FILE_REPLACE, err);
	if (!result)
		log_note("wrote %s, %zu KiB", path, (out.length + 1023) / 1024);
	buffer_free(&out);
	tune_result_list_free(&history);
	return result;
}

int tune_publish(const struct tune_request *request, cJSON *document, struct error *err)
{
	struct tuning_list tunings = {0};
	int result = tuning_read(document, &tunings, err);

	if (!result)
		result = tune_write_page(request, &tunings, err);
	tuning_list_free(&tunings);
	if (request->invocation->json)
		output_json(document);
	else
		cJSON_Delete(document);
	return result;
}
