/* svg: pictures as SVG, in the colours of the page that they stand in. Each is drawn for a width, so that its
 * letters are as large as the page's; what is drawn is told by a table beside it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/buffer.h"

/* A picture's height, which it says itself. */
double svg_height(const char *svg);

enum svg_scale { SVG_LINEAR, SVG_LOG, SVG_ORDINAL };

struct svg_axis {
	const char *title;
	enum svg_scale scale;
	const char *const *names; /* of an ordinal axis, at 0, 1, 2 … */
	size_t name_count;
};

struct svg_point {
	double x, y;
	double low, high; /* NAN: not known */
	const char *
		label; /* what is said of it when it is pointed at; NULL: it has no mark, and only bends the line */
};

struct svg_series {
	const char *name;
	const struct svg_point *points; /* from left to right */
	size_t count;
	bool line;  /* joins them */
	bool named; /* with its label beside each mark */
};

/* A line across at a value, with a word beside it. */
struct svg_rule {
	double at;
	const char *label;
};

/* Points and lines over two axes. */
struct svg_plot {
	const char *title;
	struct svg_axis x, y; /* `y` is not ordinal */
	const struct svg_series *series;
	size_t series_count;
	const struct svg_rule *x_rules, *y_rules;
	size_t x_rule_count, y_rule_count;
};

/* Appends it, so many px wide. */
void svg_plot(const struct svg_plot *chart, double width, struct buffer *out);

struct svg_bar {
	const char *label;
	double value, low, high; /* of the whisker; NAN: none */
	bool strong;
	const char *text; /* behind it */
};

/* Bars from zero, one below the other. */
void svg_bars(const char *title, const struct svg_bar *bars, size_t count, double width, struct buffer *out);

/* A grid of values, the least of which is the best. */
struct svg_heat {
	const char *title;
	const char *row_title, *column_title;
	const char *const *rows, *const *columns;
	size_t row_count, column_count;
	const double *values; /* row by row; NAN: not tried */
	const char *unit;
};

/* Appends it, so many px wide; the best value is marked. */
void svg_heat(const struct svg_heat *heat, double width, struct buffer *out);

/* How far something has come, a step after the other. */
struct svg_way {
	const char *label;
	const char *const *steps; /* their names */
	const char *const *texts; /* below each: when that was; NULL: nothing */
	size_t count, reached;    /* steps, and those that are done */
	bool failed;              /* it went no further */
};

/* A line for each. */
void svg_ways(const char *title, const struct svg_way *ways, size_t count, double width, struct buffer *out);
