#include "cli/table.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"

#define GAP "  " /* between columns */

void table_begin(struct table *table, const char *const *headings, const char *align)
{
	*table = (struct table){.headings = headings, .align = align, .columns = strlen(align)};
}

void table_cell(struct table *table, const char *format, ...)
{
	va_list args;
	char *text = NULL;

	va_start(args, format);
	if (vasprintf(&text, format, args) < 0)
		text = xstrdup("");
	va_end(args);
	if (table->cell_count == table->rows * table->columns) {
		table->rows++;
		table->cells = xrealloc(table->cells, table->rows * table->columns * sizeof(*table->cells));
		table->marked = xrealloc(table->marked, table->rows * sizeof(*table->marked));
		table->marked[table->rows - 1] = false;
	}
	table->cells[table->cell_count++] = text;
}

void table_mark_row(struct table *table)
{
	table->marked[table->rows - 1] = true;
}

void table_narrow(struct table *table, size_t limit, const int *spare)
{
	table->limit = limit;
	table->spare = spare;
}

/* A column's width; 0: it is not shown. The caller frees. */
static size_t *measure(const struct table *table)
{
	size_t *widths = xcalloc(table->columns, sizeof(*widths));

	for (size_t i = 0; i < table->columns; i++)
		widths[i] = text_width(table->headings[i]);
	for (size_t i = 0; i < table->cell_count; i++) {
		size_t needed = text_width(table->cells[i]), *width = &widths[i % table->columns];

		*width = needed > *width ? needed : *width;
	}
	return widths;
}

static void leave_out(const struct table *table, size_t *widths)
{
	size_t total = 0;

	for (size_t i = 0; i + 1 < table->columns; i++)
		total += widths[i] + strlen(GAP);
	for (const int *spare = table->spare; spare && *spare >= 0 && total > table->limit; spare++) {
		total -= widths[*spare] + strlen(GAP);
		widths[*spare] = 0;
	}
}

/* `cells`: one for each column. Nothing is printed behind the last that is not empty. */
static void print_row(const struct table *table, const char *const *cells, const size_t *widths, FILE *out)
{
	size_t count = table->columns;
	const char *gap = "";

	while (count && !cells[count - 1][0])
		count--;
	for (size_t i = 0; i < count; i++) {
		int padding = (int)(widths[i] - text_width(cells[i]));

		if (!widths[i])
			continue;
		if (table->align[i] == 'r')
			fprintf(out, "%s%*s%s", gap, padding, "", cells[i]);
		else
			fprintf(out, "%s%s%*s", gap, cells[i], i + 1 < count ? padding : 0, "");
		gap = GAP;
	}
	fputc('\n', out);
}

void table_print(struct table *table, FILE *out)
{
	size_t *widths = measure(table);

	leave_out(table, widths);
	fputs(color(out, COLOR_DIM), out);
	print_row(table, table->headings, widths, out);
	fputs(color(out, COLOR_NONE), out);
	for (size_t row = 0; row < table->rows; row++) {
		fputs(table->marked[row] ? color(out, COLOR_BOLD) : "", out);
		print_row(table, (const char *const *)&table->cells[row * table->columns], widths, out);
		fputs(table->marked[row] ? color(out, COLOR_NONE) : "", out);
	}
	for (size_t i = 0; i < table->cell_count; i++)
		free(table->cells[i]);
	free(widths);
	free(table->cells);
	free(table->marked);
	*table = (struct table){0};
}
