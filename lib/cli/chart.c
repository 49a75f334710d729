#include "cli/chart.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/number.h"
#include "base/terminal.h"
#include "base/text.h"

#define LONGEST_BAR 48
#define GAP 2 /* columns between a bar and the texts beside it */

/* What a stream can show. */
enum style { STYLE_ASCII, STYLE_BLOCKS, STYLE_COLOR };

static bool locale_is_utf8(void)
{
	static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		const char *value = getenv(names[i]);

		if (value && *value)
			return strcasestr(value, "utf-8") || strcasestr(value, "utf8");
	}
	return false;
}

static enum style style_of(FILE *out)
{
	if (!is_terminal(out) || !locale_is_utf8())
		return STYLE_ASCII;
	return *color(out, COLOR_NONE) ? STYLE_COLOR : STYLE_BLOCKS;
}

struct range {
	double least, most;
	size_t best; /* where the first of the largest is */
	size_t count;
};

/* Of those that were measured. */
static struct range range_of(const double *values, size_t count)
{
	struct range range = {.least = INFINITY, .most = -INFINITY};

	for (size_t i = 0; i < count; i++) {
		if (isnan(values[i]))
			continue;
		if (values[i] > range.most) {
			range.most = values[i];
			range.best = i;
		}
		range.least = fmin(range.least, values[i]);
		range.count++;
	}
	return range;
}

/* Which of so many levels a value belongs to, from 0. */
static size_t level(double value, double least, double most, size_t levels)
{
	double part = most > least ? (value - least) / (most - least) : 1;

	return (size_t)fmin((double)(levels - 1), fmax(0, part) * (double)levels);
}

static size_t widest(size_t width, const char *text)
{
	size_t needed = text_width(text);

	return needed > width ? needed : width;
}

/* --- sparklines ---------------------------------------------------------------------------------- */

void chart_sparkline(FILE *out, const double *values, size_t count, size_t width)
{
	static const char *const ascii[] = {"_", ".", ":", "-", "=", "+", "*", "#"};
	static const char *const blocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
	const char *const *marks = style_of(out) == STYLE_ASCII ? ascii : blocks;
	size_t first = width && count > width ? count - width : 0;
	struct range range = range_of(values + first, count - first);
	double least = fmin(range.least, 0.8 * range.most);

	for (size_t i = first; i < count; i++)
		fputs(isnan(values[i]) ? " " : marks[level(values[i], least, range.most, 8)], out);
}

/* --- bars ---------------------------------------------------------------------------------------- */

/* A bar of `length` columns, which may end within one. */
static void print_bar(FILE *out, double length, enum style style)
{
	static const char *const eighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
	int steps = (int)lround(length * (style == STYLE_ASCII ? 1 : 8));
	int whole = style == STYLE_ASCII ? steps : steps / 8;

	for (int i = 0; i < whole; i++)
		fputs(style == STYLE_ASCII ? "#" : "█", out);
	if (style != STYLE_ASCII)
		fputs(eighths[steps % 8], out);
}

void chart_bars(FILE *out, const struct chart_bar *bars, size_t count)
{
	enum style style = style_of(out);
	size_t label_width = 0, text_columns = 0, taken, columns = terminal_width(out);
	double most = 0, room = LONGEST_BAR;

	for (size_t i = 0; i < count; i++) {
		label_width = widest(label_width, bars[i].label);
		text_columns = widest(text_columns, bars[i].text);
		most = fmax(most, bars[i].value);
	}
	taken = label_width + text_columns + 2 * GAP;
	if (columns < taken + LONGEST_BAR)
		room = columns > taken ? (double)(columns - taken) : 0;
	for (size_t i = 0; i < count; i++) {
		const struct chart_bar *bar = &bars[i];

		fprintf(out, "%*s%s%*s%s", (int)(label_width - text_width(bar->label)), "", bar->label, GAP,
			"", color(out, bar->marked ? COLOR_GREEN : COLOR_DIM));
		print_bar(out, most > 0 && bar->value > 0 ? room * bar->value / most : 0, style);
		fprintf(out, "%s%*s%s\n", color(out, COLOR_NONE), GAP, "", bar->text);
	}
}

/* --- heat maps ----------------------------------------------------------------------------------- */

/* From low to high: in the 256 colours of terminals, their lightness rising, so that they can be told apart without
 * seeing colours; in blocks; in ASCII. */
static const struct shade {
	int background, foreground;
	const char *block, *letter;
} shades[] = {
	{17, 231, "·", "."},
	{54, 231, "░", ":"},
	{97, 231, "▒", "-"},
	{168, 16, "▓", "+"},
	{215, 16, "█", "#"},
};
#define SHADES (sizeof(shades) / sizeof(*shades))

#define FIELD_EDGE 4 /* columns beside a field's value: a gap, its mark and its shade */

struct heat_map {
	const struct chart_map *map;
	FILE *out;
	enum style style;
	struct range range;
	size_t label_width, field_width, columns; /* those of the columns that fit */
};

static double value_at(const struct heat_map *heat, size_t row, size_t column)
{
	return heat->map->values[row * heat->map->column_count + column];
}

static void measure(struct heat_map *heat)
{
	const struct chart_map *map = heat->map;
	size_t width = terminal_width(heat->out), room;
	char text[16];

	heat->label_width = text_width(map->row_name) + text_width(map->column_name) + 3;
	for (size_t row = 0; row < map->row_count; row++)
		heat->label_width = widest(heat->label_width, map->rows[row]);
	for (size_t column = 0; column < map->column_count; column++)
		heat->field_width = widest(heat->field_width, map->columns[column]);
	for (size_t i = 0; i < map->row_count * map->column_count; i++) {
		number_short(map->values[i], text);
		heat->field_width = widest(heat->field_width, isnan(map->values[i]) ? "" : text);
	}
	heat->field_width += FIELD_EDGE;
	room = width > heat->label_width ? (width - heat->label_width) / heat->field_width : 0;
	heat->columns = room < map->column_count ? room : map->column_count;
	heat->columns += !heat->columns && map->column_count;
}

/* `text` to the right of so many columns, in a shade. */
static void print_shaded(const struct heat_map *heat, size_t number, const char *text, size_t width)
{
	const struct shade *shade = &shades[number];
	int padding = (int)(width - text_width(text));

	if (heat->style == STYLE_COLOR)
		fprintf(heat->out, "\033[48;5;%dm\033[38;5;%dm%*s%s  \033[0m", shade->background,
			shade->foreground, padding - 2, "", text);
	else
		fprintf(heat->out, "%*s%s %s", padding - 2, "", text,
			heat->style == STYLE_BLOCKS ? shade->block : shade->letter);
}

static void print_field(const struct heat_map *heat, size_t row, size_t column)
{
	double value = value_at(heat, row, column);
	bool is_best = row * heat->map->column_count + column == heat->range.best;
	char number[16], text[20];

	if (isnan(value)) {
		fprintf(heat->out, "%*s", (int)heat->field_width, "");
		return;
	}
	number_short(value, number);
	snprintf(text, sizeof(text), "%s%s", number, is_best ? "*" : " ");
	print_shaded(
		heat, level(value, heat->range.least, heat->range.most, SHADES), text, heat->field_width);
}

static void print_heading(const struct heat_map *heat)
{
	const struct chart_map *map = heat->map;
	size_t names = text_width(map->row_name) + text_width(map->column_name) + 3;

	fprintf(heat->out, "%s%s \\ %s%*s", color(heat->out, COLOR_DIM), map->row_name, map->column_name,
		(int)(heat->label_width - names), "");
	for (size_t column = 0; column < heat->columns; column++)
		fprintf(heat->out, "%*s%s%*s",
			(int)(heat->field_width - text_width(map->columns[column])) - FIELD_EDGE + 1, "",
			map->columns[column], FIELD_EDGE - 1, "");
	fprintf(heat->out, "%s\n", color(heat->out, COLOR_NONE));
}

static void print_legend(const struct heat_map *heat)
{
	const struct chart_map *map = heat->map;
	char least[16], most[16];

	if (heat->columns < map->column_count)
		fprintf(heat->out, "… and %zu more, up to %s\n", map->column_count - heat->columns,
			map->columns[map->column_count - 1]);
	if (!heat->range.count) {
		fputs("Nothing was measured.\n", heat->out);
		return;
	}
	number_short(heat->range.least, least);
	number_short(heat->range.most, most);
	fprintf(heat->out, "%s ", least);
	for (size_t i = 0; i < SHADES; i++)
		print_shaded(heat, i, "", 2);
	fprintf(heat->out, " %s %s\n* %s %s, %s %s\n", most, map->unit, map->row_name,
		map->rows[heat->range.best / map->column_count], map->column_name,
		map->columns[heat->range.best % map->column_count]);
}

void chart_heat_map(FILE *out, const struct chart_map *map)
{
	struct heat_map heat = {
		.map = map,
		.out = out,
		.style = style_of(out),
		.range = range_of(map->values, map->row_count * map->column_count),
	};

	measure(&heat);
	print_heading(&heat);
	for (size_t row = 0; row < map->row_count; row++) {
		fprintf(out, "%*s%s", (int)(heat.label_width - text_width(map->rows[row])), "",
			map->rows[row]);
		for (size_t column = 0; column < heat.columns; column++)
			print_field(&heat, row, column);
		fputc('\n', out);
	}
	print_legend(&heat);
}
