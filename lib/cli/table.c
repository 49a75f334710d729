#include "cli/table.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/layout.h"
#include "base/memory.h"
#include "base/terminal.h"
#include "base/text.h"

#define GAP "  "      /* between columns */
#define LAST_WIDTH 40 /* of the last column, which can be broken, while others can be left out */
#define LEAST_WIDTH 8 /* that is left of a text */

static size_t min(size_t a, size_t b)
{
	return a < b ? a : b;
}

static size_t max(size_t a, size_t b)
{
	return a > b ? a : b;
}

void table_begin(struct table *table, const char *const *headings, const char *align)
{
	*table = (struct table){.headings = headings, .align = align, .columns = strlen(align)};
	table->widths = xcalloc(table->columns, sizeof(*table->widths));
}

void table_cell(struct table *table, const char *format, ...)
{
	va_list args;

	if (table->cell_count == table->rows * table->columns) {
		table->rows++;
		table->cells = xrealloc(table->cells, table->rows * table->columns * sizeof(*table->cells));
		table->marked = xrealloc(table->marked, table->rows * sizeof(*table->marked));
		table->marked[table->rows - 1] = false;
	}
	va_start(args, format);
	table->cells[table->cell_count++] = xvprintf(format, args);
	va_end(args);
}

void table_mark_row(struct table *table)
{
	table->marked[table->rows - 1] = true;
}

void table_spare(struct table *table, const int *spare)
{
	table->spare = spare;
}

void table_narrow(struct table *table, size_t width)
{
	table->limit = width;
}

void table_reserve(struct table *table, const size_t *widths)
{
	for (size_t i = 0; i < table->columns; i++)
		table->widths[i] = widths[i];
}

static bool breaks(const struct table *table, size_t column)
{
	return column + 1 == table->columns && table->align[column] == 'l';
}

static void measure(const struct table *table)
{
	size_t *widths = table->widths;

	for (size_t i = 0; i < table->columns; i++)
		widths[i] = max(widths[i], text_width(table->headings[i]));
	for (size_t i = 0; i < table->cell_count; i++)
		widths[i % table->columns] = max(widths[i % table->columns], text_width(table->cells[i]));
}

/* With the gaps, and as much of the last column as it needs to be read well. */
static size_t total_width(const struct table *table)
{
	const size_t *widths = table->widths;
	size_t total = 0;

	for (size_t i = 0; i < table->columns; i++)
		if (widths[i])
			total += strlen(GAP) + (breaks(table, i) ? min(widths[i], LAST_WIDTH) : widths[i]);
	return total ? total - strlen(GAP) : 0;
}

/* The widest text that may be cut, or the number of columns. */
static size_t widest_text(const struct table *table)
{
	const size_t *widths = table->widths;
	size_t widest = table->columns;

	for (size_t i = 0; i < table->columns; i++)
		if (table->align[i] == 'l' && !breaks(table, i) && widths[i] > LEAST_WIDTH &&
			(widest == table->columns || widths[i] > widths[widest]))
			widest = i;
	return widest;
}

static void fit(const struct table *table, size_t limit)
{
	size_t widest;

	for (const int *spare = table->spare; spare && *spare >= 0 && total_width(table) > limit; spare++)
		table->widths[*spare] = 0;
	while (total_width(table) > limit && (widest = widest_text(table)) < table->columns)
		table->widths[widest]--;
}

static void print_cell(FILE *out, const char *text, size_t width, char align)
{
	bool cut = text_width(text) > width;
	int length = (int)(cut ? text_prefix(text, width - 1) : strlen(text));
	int padding = cut ? 0 : (int)(width - text_width(text));

	fprintf(out, "%*s%.*s%s%*s", align == 'r' ? padding : 0, "", length, text, cut ? "…" : "",
		align == 'l' ? padding : 0, "");
}

/* `cells`: one for each column. Nothing is printed behind the last that is not empty. */
static void print_row(const struct table *table, const char *const *cells, FILE *out)
{
	size_t count = table->columns, column = 0;

	while (count && (!cells[count - 1][0] || !table->widths[count - 1]))
		count--;
	for (size_t i = 0; i < count; i++) {
		size_t width = table->widths[i];

		if (!width)
			continue;
		if (column)
			column += (size_t)fprintf(out, GAP);
		if (breaks(table, i)) {
			layout_words(out, cells[i], column, column);
			return;
		}
		if (i + 1 == count && table->align[i] == 'l')
			width = min(width, text_width(cells[i]));
		print_cell(out, cells[i], width, table->align[i]);
		column += width;
	}
	fputc('\n', out);
}

static void print_heading(struct table *table, FILE *out)
{
	measure(table);
	fit(table, table->limit ? table->limit : terminal_width(out));
	fputs(color(out, COLOR_DIM), out);
	print_row(table, table->headings, out);
	fputs(color(out, COLOR_NONE), out);
	table->has_heading = true;
}

static void print_rows(const struct table *table, FILE *out)
{
	for (size_t row = 0; row < table->rows; row++) {
		fputs(table->marked[row] ? color(out, COLOR_BOLD) : "", out);
		print_row(table, (const char *const *)&table->cells[row * table->columns], out);
		fputs(table->marked[row] ? color(out, COLOR_NONE) : "", out);
	}
}

static void forget_rows(struct table *table)
{
	for (size_t i = 0; i < table->cell_count; i++)
		free(table->cells[i]);
	table->rows = table->cell_count = 0;
}

void table_flush(struct table *table, FILE *out)
{
	if (!table->has_heading)
		print_heading(table, out);
	print_rows(table, out);
	forget_rows(table);
}

void table_print(struct table *table, FILE *out)
{
	table_flush(table, out);
	table_free(table);
}

void table_free(struct table *table)
{
	forget_rows(table);
	free(table->widths);
	free(table->cells);
	free(table->marked);
	*table = (struct table){0};
}
