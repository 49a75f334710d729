/* chart: numbers as pictures made of characters: sparklines, bars and heat maps.
 *
 * On a terminal they are blocks, coloured unless NO_COLOR is set, and no wider than it is; anywhere else, and in a
 * locale that is not UTF-8, ASCII. A value that is NAN was not measured: its place stays empty. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

/* A character for each value, without a line break; the highest is the largest. The lowest is the least, or 20 % less
 * than the largest, so that noise does not look like mountains. Of values that are too many for `width` (0: no bound)
 * only the last are drawn. */
void chart_sparkline(FILE *out, const double *values, size_t count, size_t width);

struct chart_bar {
	const char *label;
	double value;     /* not negative */
	const char *text; /* behind the bar: the value as people read it */
	bool marked;      /* stands out */
};

/* A line for each bar, beginning at zero; the longest belongs to the largest value. */
void chart_bars(FILE *out, const struct chart_bar *bars, size_t count);

struct chart_map {
	const char *row_name, *column_name; /* what changes from row to row, and from column to column */
	const char *const *rows, *const *columns; /* the labels */
	size_t row_count, column_count;
	const double *values; /* row after row; the larger, the better */
	const char *unit;     /* of the values: "TFLOP/s" */
};

/* A field for each value, with the value on it, the best marked with "*", and below them what the shades mean and which
 * the best is. Columns that the terminal has no room for are left out, from the right, and counted. */
void chart_heat_map(FILE *out, const struct chart_map *map);
