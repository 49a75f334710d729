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

/* `cells`: one for each column. Nothing is printed behind the last that is not empty. */
static void print_row(const struct table *table, const char *const *cells, const int *widths, FILE *out)
{
	size_t count = table->columns;

	while (count && !cells[count - 1][0])
		count--;
	for (size_t i = 0; i < count; i++) {
		int padding = widths[i] - width(cells[i]);

		if (table->align[i] == 'r')
			fprintf(out, "%*s%s", padding, "", cells[i]);
		else
			fprintf(out, "%s%*s", cells[i], i + 1 < count ? padding : 0, "");
		fputs(i + 1 < count ? "  " : "", out);
	}
	fputc('\n', out);
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
