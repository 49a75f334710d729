#include "web/svg.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/number.h"
#include "base/text.h"
#include "web/html.h"

#define LETTER 7.4 /* width of a letter, of 12 px in a wide face */
#define LINE 18.0
#define COLOURS 4 /* of series, in chart.css */
#define TICKS 64
#define LARGEST 1e30 /* values that a scale stretches for */
#define SMALLEST 1e-30

static double text_length(const char *text)
{
	double length = LETTER * (double)text_width(text);

	for (; *text; text++)
		length += *text >= 'A' && *text <= 'Z' ? 2 : 0;
	return length;
}

static void begin(struct buffer *out, const char *title, double width, double height)
{
	html_add(out,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" role=\"img\" viewBox=\"0 0 %.0f %.0f\" "
		"aria-label=\"%s\">\n",
		width, height, title);
}

static void end(struct buffer *out)
{
	buffer_text(out, "</svg>\n");
}

double svg_height(const char *svg)
{
	const char *box = strstr(svg, "viewBox=\"0 0 ");
	double height = 0;

	if (box)
		sscanf(box, "viewBox=\"0 0 %*f %lf", &height);
	return height;
}

/* "1.5M", "250k", "4,096": short enough for an axis, and exact. */
static void short_number(double value, char text[48])
{
	static const struct {
		double unit;
		const char *suffix;
	} units[] = {{1e9, "G"}, {1e6, "M"}, {1e3, "k"}};

	for (size_t i = 0; i < sizeof(units) / sizeof(*units); i++) {
		double part = value / units[i].unit;

		if (fabs(part) >= 1 && fabs(part * 100 - round(part * 100)) < 1e-6) {
			snprintf(text, 48, "%g%s", part, units[i].suffix);
			return;
		}
	}
	if (fabs(value) >= 1000)
		number_grouped(value, text);
	else
		snprintf(text, 48, "%.3g", value);
}

/* --- scales -------------------------------------------------------------------------------------- */

struct scale {
	const struct svg_axis *axis;
	double least, most; /* values */
	double from, to;    /* where those are drawn */
	double ticks[TICKS];
	size_t tick_count;
};

/* Within the scale, whatever the value. */
static double place(const struct scale *scale, double value)
{
	double part;

	value = fmin(fmax(value, scale->least), scale->most);
	part = scale->axis->scale == SVG_LOG ? log(value / scale->least) / log(scale->most / scale->least)
					     : (value - scale->least) / (scale->most - scale->least);
	return scale->from + part * (scale->to - scale->from);
}

static void take(struct scale *scale, double value)
{
	if (!(fabs(value) <= LARGEST) || (scale->axis->scale == SVG_LOG && !(value >= SMALLEST)))
		return;
	scale->least = fmin(scale->least, value);
	scale->most = fmax(scale->most, value);
}

static void tick(struct scale *scale, double value)
{
	if (scale->tick_count < TICKS && value >= scale->least * (1 - 1e-9) &&
		value <= scale->most * (1 + 1e-9))
		scale->ticks[scale->tick_count++] = value;
}

/* Round values, about `wanted` of them. */
static void tick_linear(struct scale *scale, double wanted)
{
	double rough = (scale->most - scale->least) / wanted, unit = pow(10, floor(log10(rough)));
	double step = rough / unit < 1.5 ? unit
		: rough / unit < 3.5     ? 2 * unit
		: rough / unit < 7.5     ? 5 * unit
					 : 10 * unit;

	for (double value = ceil(scale->least / step) * step;
		value <= scale->most && scale->tick_count < TICKS; value += step)
		tick(scale, value);
}

static void tick_log(struct scale *scale, double wanted)
{
	bool few = log10(scale->most / scale->least) < 2;

	for (double decade = pow(10, floor(log10(scale->least))); decade <= scale->most; decade *= 10) {
		tick(scale, decade);
		if (few) {
			tick(scale, 2 * decade);
			tick(scale, 5 * decade);
		}
	}
	if (scale->tick_count < 3) {
		scale->tick_count = 0;
		tick_linear(scale, wanted);
	}
}

/* Room around the values, and round numbers among them. */
static void settle(struct scale *scale, double length)
{
	const struct svg_axis *axis = scale->axis;

	if (axis->scale == SVG_ORDINAL) {
		scale->least = -0.5;
		scale->most = (double)axis->name_count - 0.5;
		return;
	}
	if (!(scale->least <= scale->most))
		scale->least = scale->most = 1;
	if (axis->scale == SVG_LOG) {
		double room = fmax(pow(scale->most / scale->least, 0.06), 1.1);

		scale->least /= room;
		scale->most *= room;
		tick_log(scale, 5);
	} else {
		double room = fmax((scale->most - scale->least) * 0.1, fabs(scale->most) * 0.02);

		scale->least = scale->least >= 0 ? fmax(0, scale->least - room) : scale->least - room;
		scale->most += room > 0 ? room : 1;
		tick_linear(scale, fmax(2, length / 60));
	}
}

/* --- points and lines ---------------------------------------------------------------------------- */

struct plot {
	const struct svg_plot *chart;
	struct scale x, y;
	double width, height;
};

static void take_all(struct plot *plot)
{
	const struct svg_plot *chart = plot->chart;

	for (size_t i = 0; i < chart->series_count; i++)
		for (size_t n = 0; n < chart->series[i].count; n++) {
			const struct svg_point *point = &chart->series[i].points[n];

			take(&plot->x, point->x);
			take(&plot->y, point->y);
			take(&plot->y, point->low);
			take(&plot->y, point->high);
		}
	for (size_t i = 0; i < chart->y_rule_count; i++)
		take(&plot->y, chart->y_rules[i].at);
}

static void mark(struct buffer *out, size_t series, double x, double y, const char *label)
{
	static const char *const shapes[COLOURS] = {"M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0z",
		"M-3.5,-3.5h7v7h-7z", "M0,-5l5,5l-5,5l-5,-5z", "M0,-4.5l4.8,8h-9.6z"};

	html_add(out, "<path class=\"mark s%zu\" transform=\"translate(%.1f,%.1f)\" d=\"%s\">",
		series % COLOURS, x, y, shapes[series % COLOURS]);
	if (label)
		html_add(out, "<title>%s</title>", label);
	buffer_text(out, "</path>\n");
}

/* The names of the series, above the plot; returns the height that they take. */
static double draw_legend(const struct plot *plot, struct buffer *out)
{
	double x = 0, y = 12;

	if (plot->chart->series_count < 2)
		return LINE;
	for (size_t i = 0; i < plot->chart->series_count; i++) {
		const char *name = plot->chart->series[i].name;
		double length = text_length(name) + 34;

		if (x > 0 && x + length > plot->width) {
			x = 0;
			y += LINE;
		}
		if (out) {
			mark(out, i, x + 6, y - 4, NULL);
			html_add(out, "<text x=\"%.1f\" y=\"%.1f\">%s</text>\n", x + 16, y, name);
		}
		x += length;
	}
	return y + LINE + 6;
}

static void draw_y_axis(const struct plot *plot, struct buffer *out)
{
	for (size_t i = 0; i < plot->y.tick_count; i++) {
		double y = place(&plot->y, plot->y.ticks[i]);
		char text[48];

		short_number(plot->y.ticks[i], text);
		html_add(out,
			"<path class=\"grid\" d=\"M%.1f,%.1fH%.1f\"/><text class=\"quiet number end\" x=\"%.1f\" "
			"y=\"%.1f\">%s</text>\n",
			plot->x.from, y, plot->x.to, plot->x.from - 8, y + 4, text);
	}
}

static void draw_x_label(const struct plot *plot, double value, const char *text, struct buffer *out)
{
	html_add(out, "<text class=\"quiet number middle\" x=\"%.1f\" y=\"%.1f\">%s</text>\n",
		place(&plot->x, value), plot->y.from + LINE, text);
}

static void draw_x_axis(const struct plot *plot, struct buffer *out)
{
	const struct svg_axis *axis = &plot->chart->x;
	char text[48];

	html_add(out, "<path class=\"axis\" d=\"M%.1f,%.1fH%.1f\"/>\n", plot->x.from, plot->y.from,
		plot->x.to);
	for (size_t i = 0; i < plot->x.tick_count; i++) {
		short_number(plot->x.ticks[i], text);
		draw_x_label(plot, plot->x.ticks[i], text, out);
	}
	if (axis->scale == SVG_ORDINAL && axis->name_count) {
		double room = (plot->x.to - plot->x.from) / (double)axis->name_count, longest = 1;
		size_t every;

		for (size_t i = 0; i < axis->name_count; i++)
			longest = fmax(longest, text_length(axis->names[i]) + 10);
		every = (size_t)ceil(longest / room);
		/* the last one is the one that matters */
		for (size_t i = (axis->name_count - 1) % every; i < axis->name_count; i += every)
			draw_x_label(plot, (double)i, axis->names[i], out);
	}
	html_add(out, "<text class=\"quiet middle\" x=\"%.1f\" y=\"%.1f\">%s</text>\n",
		(plot->x.from + plot->x.to) / 2, plot->y.from + 2 * LINE + 2, axis->title);
}

static void draw_rules(const struct plot *plot, struct buffer *out)
{
	double last = -INFINITY;

	for (size_t i = 0; i < plot->chart->y_rule_count; i++) {
		double y = place(&plot->y, plot->chart->y_rules[i].at);

		html_add(out,
			"<path class=\"rule\" d=\"M%.1f,%.1fH%.1f\"/><text class=\"end halo\" x=\"%.1f\" "
			"y=\"%.1f\">%s</text>\n",
			plot->x.from, y, plot->x.to, plot->x.to - 4, y - 5, plot->chart->y_rules[i].label);
	}
	for (size_t i = 0; i < plot->chart->x_rule_count; i++) {
		const struct svg_rule *rule = &plot->chart->x_rules[i];
		double x = place(&plot->x, rule->at);

		if (rule->at < plot->x.least || rule->at > plot->x.most)
			continue;
		html_add(out, "<path class=\"rule\" d=\"M%.1f,%.1fV%.1f\"/>", x, plot->y.from, plot->y.to);
		if (x - last > text_length(rule->label) + 6) {
			html_add(out, "<text class=\"quiet number middle\" x=\"%.1f\" y=\"%.1f\">%s</text>",
				x, plot->y.to - 5, rule->label);
			last = x;
		}
		buffer_text(out, "\n");
	}
}

static void draw_series(const struct plot *plot, size_t which, struct buffer *out)
{
	const struct svg_series *series = &plot->chart->series[which];
	const char *command = "M";

	for (size_t i = 0; i < series->count; i++) {
		const struct svg_point *point = &series->points[i];

		if (isfinite(point->low) && isfinite(point->high))
			html_add(out, "<path class=\"whisker s%zu\" d=\"M%.1f,%.1fV%.1f\"/>\n",
				which % COLOURS, place(&plot->x, point->x), place(&plot->y, point->low),
				place(&plot->y, point->high));
	}
	if (series->line && series->count) {
		html_add(out, "<path class=\"line s%zu\" d=\"", which % COLOURS);
		for (size_t i = 0; i < series->count; i++) {
			html_add(out, "%s%.1f,%.1f", command, place(&plot->x, series->points[i].x),
				place(&plot->y, series->points[i].y));
			command = "L";
		}
		buffer_text(out, "\"/>\n");
	}
	for (size_t i = 0; i < series->count; i++) {
		const struct svg_point *point = &series->points[i];
		double x = place(&plot->x, point->x), y = place(&plot->y, point->y);

		if (point->label)
			mark(out, which, x, y, point->label);
		if (point->label && series->named)
			html_add(out, "<text class=\"halo middle\" x=\"%.1f\" y=\"%.1f\">%s</text>\n", x,
				y + 22 < plot->y.from ? y + 18 : y - 10, point->label);
	}
}

void svg_plot(const struct svg_plot *chart, double width, struct buffer *out)
{
	struct plot plot = {.chart = chart,
		.x = {.axis = &chart->x, .least = INFINITY, .most = -INFINITY},
		.y = {.axis = &chart->y, .least = INFINITY, .most = -INFINITY},
		.width = width,
		.height = fmax(220, width * 0.5)};
	double legend = draw_legend(&plot, NULL), top = legend + LINE + (chart->x_rule_count ? LINE : 0);
	double widest = 0;
	char text[48];

	take_all(&plot);
	plot.y.from = top + plot.height;
	plot.y.to = top;
	settle(&plot.y, plot.height);
	for (size_t i = 0; i < plot.y.tick_count; i++) {
		short_number(plot.y.ticks[i], text);
		widest = fmax(widest, text_length(text));
	}
	plot.x.from = widest + 12;
	plot.x.to = width - 24;
	settle(&plot.x, plot.x.to - plot.x.from);
	begin(out, chart->title, width, plot.y.from + 2 * LINE + 10);
	draw_legend(&plot, out);
	html_add(out, "<text class=\"quiet\" x=\"0\" y=\"%.1f\">%s</text>\n", legend, chart->y.title);
	draw_y_axis(&plot, out);
	draw_x_axis(&plot, out);
	draw_rules(&plot, out);
	for (size_t i = 0; i < chart->series_count; i++)
		draw_series(&plot, i, out);
	end(out);
}

/* --- bars ---------------------------------------------------------------------------------------- */

void svg_bars(const char *title, const struct svg_bar *bars, size_t count, double width, struct buffer *out)
{
	bool narrow = width < 480; /* then the words stand above their bar */
	double step = narrow ? 46 : 30, left = 0, right = 0, most = 0;

	for (size_t i = 0; i < count; i++) {
		left = fmax(left, narrow ? 0 : text_length(bars[i].label) + 14);
		right = fmax(right, text_length(bars[i].text) + 14);
		most = fmax(most, fmax(bars[i].value, isfinite(bars[i].high) ? bars[i].high : 0));
	}
	begin(out, title, width, step * (double)count + 6);
	for (size_t i = 0; i < count; i++) {
		const struct svg_bar *bar = &bars[i];
		double y = step * (double)i + (narrow ? 22 : 6),
		       unit = (width - left - right) / (most > 0 ? most : 1);
		double tip = left + unit * fmax(bar->value, isfinite(bar->high) ? bar->high : 0);

		html_add(out, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\">%s</text>\n", narrow ? "" : "end",
			narrow ? 0 : left - 10, narrow ? y - 6 : y + 14, bar->label);
		html_add(out,
			"<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"18\" rx=\"2\"/>\n",
			bar->strong ? "bar s0" : "bar", left, y, fmax(1, unit * bar->value));
		if (isfinite(bar->low) && isfinite(bar->high))
			html_add(out, "<path class=\"over\" d=\"M%.1f,%.1fH%.1fm0,-4v8M%.1f,%.1fv8\"/>\n",
				left + unit * bar->low, y + 9, left + unit * bar->high,
				left + unit * bar->low, y + 5);
		html_add(out, "<text class=\"number\" x=\"%.1f\" y=\"%.1f\">%s</text>\n", tip + 8, y + 14,
			bar->text);
	}
	end(out);
}

/* --- heat maps ----------------------------------------------------------------------------------- */

#define SHADES 8 /* in chart.css */

/* The words of a cell, and its shade: by the logarithm, for times differ by factors. */
static size_t shade(double value, double least, double most)
{
	double part = most > least ? log(value / least) / log(most / least) : 0;

	return (size_t)fmin(SHADES - 1, floor(part * SHADES));
}

void svg_heat(const struct svg_heat *heat, double width, struct buffer *out)
{
	double least = INFINITY, most = -INFINITY, left = text_length(heat->row_title);
	double cell, top = 2 * LINE + 6;

	for (size_t i = 0; i < heat->row_count * heat->column_count; i++)
		if (isfinite(heat->values[i]) && heat->values[i] > 0) {
			least = fmin(least, heat->values[i]);
			most = fmax(most, heat->values[i]);
		}
	for (size_t i = 0; i < heat->row_count; i++)
		left = fmax(left, text_length(heat->rows[i]));
	left += 10;
	cell = fmin(96, (width - left) / (double)heat->column_count);
	begin(out, heat->title, width, top + 32 * (double)heat->row_count + 4);
	html_add(out, "<text class=\"quiet\" x=\"%.1f\" y=\"12\">%s</text>\n", left, heat->column_title);
	html_add(out, "<text class=\"quiet end\" x=\"%.1f\" y=\"%.1f\">%s</text>\n", left - 10, top - 8,
		heat->row_title);
	for (size_t i = 0; i < heat->column_count; i++)
		html_add(out, "<text class=\"number middle\" x=\"%.1f\" y=\"%.1f\">%s</text>\n",
			left + cell * ((double)i + 0.5), top - 8, heat->columns[i]);
	for (size_t row = 0; row < heat->row_count; row++) {
		double y = top + 32 * (double)row;

		html_add(out, "<text class=\"number end\" x=\"%.1f\" y=\"%.1f\">%s</text>\n", left - 10,
			y + 20, heat->rows[row]);
		for (size_t column = 0; column < heat->column_count; column++) {
			double value = heat->values[row * heat->column_count + column];
			double x = left + cell * (double)column;
			bool tried = isfinite(value) && value > 0;

			buffer_text(out, "<g>");
			html_add(out,
				"<rect class=\"heat h%zu%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"30\"/>",
				tried ? shade(value, least, most) : SHADES,
				tried && value <= least ? " best" : "", x + 1, y, cell - 2);
			if (tried && cell > 36)
				html_add(out,
					"<text class=\"middle number h%zu\" x=\"%.1f\" y=\"%.1f\">%.3f</text>",
					shade(value, least, most), x + cell / 2, y + 20, value);
			if (tried)
				html_add(out, "<title>%.4f %s</title>", value, heat->unit);
			buffer_text(out, "</g>\n");
		}
	}
	end(out);
}

/* --- ways ---------------------------------------------------------------------------------------- */

static void draw_way(const struct svg_way *way, double left, double width, double y, struct buffer *out)
{
	double step = (width - left) / (double)way->count;

	html_add(out, "<text x=\"0\" y=\"%.1f\">%s</text>\n", y + 4, way->label);
	for (size_t i = 0; i < way->count; i++) {
		double x = left + step * (double)i + 8;
		bool done = i < way->reached, stopped = way->failed && i + 1 == way->reached;

		if (i + 1 < way->count)
			html_add(out, "<path class=\"%s\" d=\"M%.1f,%.1fH%.1f\"/>",
				i + 1 < way->reached ? "line s0" : "grid", x + 6, y, x + step - 6);
		html_add(out, "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"5\"/>",
			stopped        ? "failed"
				: done ? "mark s0"
				       : "open",
			x, y);
		html_add(out, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\">%s</text>", done ? "" : "quiet",
			x - 5, y + 20, way->steps[i]);
		if (way->texts[i])
			html_add(out, "<text class=\"quiet number\" x=\"%.1f\" y=\"%.1f\">%s</text>", x - 5,
				y + 35, way->texts[i]);
		buffer_text(out, "\n");
	}
}

void svg_ways(const char *title, const struct svg_way *ways, size_t count, double width, struct buffer *out)
{
	double left = 0;

	for (size_t i = 0; i < count; i++)
		left = fmax(left, text_length(ways[i].label) + 12);
	begin(out, title, width, 58 * (double)count);
	for (size_t i = 0; i < count; i++)
		draw_way(&ways[i], left, width, 58 * (double)i + 12, out);
	end(out);
}
