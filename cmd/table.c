#include "table.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"

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
		table->cells = xrealloc(
			table->cells, table->rows * table->columns * sizeof(*table->cells));
		table->marked = xrealloc(table->marked, table->rows * sizeof(*table->marked));
		table->marked[table->rows - 1] = false;
	}
	table->cells[table->cell_count++] = text;
}

void table_mark_row(struct table *table)
{
	table->marked[table->rows - 1] = true;
}

/* Characters, of UTF-8 text. */
static int width(const char *text)
{
	int count = 0;

	for (; *text; text++)
		count += ((unsigned char)*text & 0xc0) != 0x80;
	return count;
}

static void print_cell(
	const struct table *table, size_t column, const char *text, int column_width, FILE *out)
{
	int padding = column_width - width(text);
	bool is_last = column + 1 == table->columns;

	if (table->align[column] == 'r')
		fprintf(out, "%*s%s", padding, "", text);
	else
		fprintf(out, "%s%*s", text, is_last ? 0 : padding, "");
	fputs(is_last ? "\n" : "  ", out);
}

void table_print(struct table *table, FILE *out)
{
	int *widths = xcalloc(table->columns, sizeof(*widths));

	for (size_t i = 0; i < table->columns; i++)
		widths[i] = width(table->headings[i]);
	for (size_t i = 0; i < table->cell_count; i++)
		if (width(table->cells[i]) > widths[i % table->columns])
			widths[i % table->columns] = width(table->cells[i]);
	fputs(color(out, COLOR_DIM), out);
	for (size_t i = 0; i < table->columns; i++)
		print_cell(table, i, table->headings[i], widths[i], out);
	fputs(color(out, COLOR_NONE), out);
	for (size_t i = 0; i < table->cell_count; i++) {
		bool marked = table->marked[i / table->columns];

		if (marked && i % table->columns == 0)
			fputs(color(out, COLOR_BOLD), out);
		print_cell(table, i % table->columns, table->cells[i], widths[i % table->columns],
			out);
		if (marked && (i + 1) % table->columns == 0)
			fputs(color(out, COLOR_NONE), out);
		free(table->cells[i]);
	}
	free(widths);
	free(table->cells);
	free(table->marked);
	*table = (struct table){0};
}
