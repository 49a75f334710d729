#include "web/sheet.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/text.h"
#include "web/html.h"

void sheet_begin(struct sheet *sheet, const struct sheet_column *columns)
{
	*sheet = (struct sheet){.columns = columns};
	while (columns[sheet->width].key)
		sheet->width++;
}

void sheet_free(struct sheet *sheet)
{
	for (size_t i = 0; i < sheet->count; i++)
		free(sheet->cells[i].text);
	free(sheet->cells);
	free(sheet->marked);
	*sheet = (struct sheet){0};
}

size_t sheet_rows(const struct sheet *sheet)
{
	return sheet->width ? sheet->count / sheet->width : 0;
}

static void add(struct sheet *sheet, struct sheet_cell cell)
{
	if (sheet->count == sheet->capacity) {
		size_t rows = 2 * sheet->capacity / sheet->width + 16;

		sheet->capacity = rows * sheet->width;
		sheet->cells = xrealloc(sheet->cells, sheet->capacity * sizeof(*sheet->cells));
		sheet->marked = xrealloc(sheet->marked, rows * sizeof(*sheet->marked));
	}
	if (sheet->count % sheet->width == 0)
		sheet->marked[sheet->count / sheet->width] = false;
	sheet->cells[sheet->count++] = cell;
}

void sheet_text(struct sheet *sheet, const char *text)
{
	add(sheet, (struct sheet_cell){text ? xstrdup(text) : NULL, NAN});
}

void sheet_number(struct sheet *sheet, double number)
{
	add(sheet, (struct sheet_cell){NULL, number});
}

void sheet_mark(struct sheet *sheet)
{
	sheet->marked[(sheet->count - 1) / sheet->width] = true;
}

static bool is_text(enum sheet_kind kind)
{
	return kind == SHEET_TEXT || kind == SHEET_CODE;
}

static bool is_number(enum sheet_kind kind)
{
	return kind >= SHEET_COUNT && kind <= SHEET_PERCENT;
}

static bool is_empty(const struct sheet_cell *cell, enum sheet_kind kind)
{
	return is_text(kind) ? !cell->text : !isfinite(cell->number);
}

/* For people. The caller frees. */
static char *describe(const struct sheet_cell *cell, enum sheet_kind kind)
{
	char text[48] = "";

	if (is_empty(cell, kind))
		return xstrdup("");
	switch (kind) {
	case SHEET_TEXT:
	case SHEET_CODE:
		return xstrdup(cell->text);
	case SHEET_COUNT:
	case SHEET_SCORE:
		number_grouped(round(cell->number), text);
		break;
	case SHEET_REAL:
		snprintf(text, sizeof(text), "%.4g", cell->number);
		break;
	case SHEET_PERCENT:
		snprintf(text, sizeof(text), "%.1f %%", cell->number * 100);
		break;
	case SHEET_TIME:
		clock_format(cell->number, text);
		text[16] = '\0';
		text[strcspn(text, "T")] = ' ';
		break;
	case SHEET_FLAG:
		snprintf(text, sizeof(text), "%s", cell->number ? "yes" : "");
		break;
	}
	return xstrdup(text);
}

/* --- a page -------------------------------------------------------------------------------------- */

static double largest(const struct sheet *sheet, size_t column)
{
	double most = 0;

	for (size_t i = column; i < sheet->count; i += sheet->width)
		if (isfinite(sheet->cells[i].number))
			most = fmax(most, sheet->cells[i].number);
	return most;
}

static const char *cell_class(enum sheet_kind kind)
{
	return is_number(kind)       ? "number"
		: kind == SHEET_TEXT ? "text"
		: kind == SHEET_CODE ? "code"
				     : "short";
}

static void add_bar(struct buffer *out, double part)
{
	if (isfinite(part) && part > 0)
		html_add(out,
			"<svg class=\"bar\" aria-hidden=\"true\"><rect width=\"%.1f%%\" height=\"100%%\"/></svg>",
			part * 100);
}

static void add_cell(const struct sheet *sheet, size_t i, double most, struct buffer *out)
{
	enum sheet_kind kind = sheet->columns[i % sheet->width].kind;
	char *text = describe(&sheet->cells[i], kind);

	html_add(out, kind == SHEET_CODE ? "<td class=\"%s\"><code>%s</code>" : "<td class=\"%s\">%s",
		cell_class(kind), text);
	if (kind == SHEET_SCORE)
		add_bar(out, sheet->cells[i].number / most);
	buffer_text(out, "</td>");
	free(text);
}

static void add_head(const struct sheet *sheet, struct buffer *out)
{
	buffer_text(out, "<thead><tr>");
	for (size_t i = 0; i < sheet->width; i++)
		html_add(out, "<th scope=\"col\" class=\"%s\">%s</th>", cell_class(sheet->columns[i].kind),
			sheet->columns[i].heading);
	buffer_text(out, "</tr></thead>\n");
}

void sheet_html(const struct sheet *sheet, const char *caption, size_t most, struct buffer *out)
{
	size_t rows = sheet_rows(sheet), shown = most && most < rows ? most : rows;
	double *largests = xcalloc(sheet->width, sizeof(*largests));

	for (size_t i = 0; i < sheet->width; i++)
		largests[i] = largest(sheet, i);
	/* what is wider than the window scrolls by itself, with the keyboard, too */
	html_add(out, "<div class=\"scroll\" role=\"region\" aria-label=\"%s\" tabindex=\"0\">\n<table>\n",
		caption);
	add_head(sheet, out);
	buffer_text(out, "<tbody>\n");
	for (size_t i = 0; i < shown * sheet->width; i++) {
		if (i % sheet->width == 0)
			buffer_text(out, sheet->marked[i / sheet->width] ? "<tr class=\"marked\">" : "<tr>");
		add_cell(sheet, i, largests[i % sheet->width], out);
		if ((i + 1) % sheet->width == 0)
			buffer_text(out, "</tr>\n");
	}
	buffer_text(out, "</tbody>\n</table>\n</div>\n");
	if (shown < rows)
		html_add(out, "<p class=\"quiet\">… and %zu more.</p>\n", rows - shown);
	free(largests);
}

/* --- for programs and documents ------------------------------------------------------------------ */

void sheet_markdown_text(const char *text, bool prose, struct buffer *out)
{
	char *clean = xstrdup(text);
	bool code = false;

	text_clean(clean);
	for (const char *at = clean; *at; at++) {
		code ^= prose && *at == '`';
		if (!code && strchr(prose ? "\\*_[]<>|" : "\\`*_[]<>|", *at))
			buffer_text(out, "\\");
		buffer_append(out, at, 1);
	}
	free(clean);
}

void sheet_markdown(const struct sheet *sheet, struct buffer *out)
{
	for (size_t i = 0; i < sheet->width; i++)
		buffer_printf(out, "| %s ", sheet->columns[i].heading);
	buffer_text(out, "|\n");
	for (size_t i = 0; i < sheet->width; i++)
		buffer_text(out, is_number(sheet->columns[i].kind) ? "| ---: " : "| --- ");
	buffer_text(out, "|\n");
	for (size_t i = 0; i < sheet->count; i++) {
		char *text = describe(&sheet->cells[i], sheet->columns[i % sheet->width].kind);

		buffer_text(out, "| ");
		sheet_markdown_text(text, false, out);
		buffer_text(out, (i + 1) % sheet->width ? " " : " |\n");
		free(text);
	}
}

/* A text that begins like a formula is kept from being one in a spreadsheet. */
static void add_quoted(struct buffer *out, const char *text)
{
	buffer_text(out, *text && strchr("=+-@\t\r", *text) ? "\"'" : "\"");
	for (; *text; text++) {
		if (*text == '"')
			buffer_text(out, "\"");
		buffer_append(out, text, 1);
	}
	buffer_text(out, "\"");
}

static void add_value(struct buffer *out, const struct sheet_cell *cell, enum sheet_kind kind)
{
	char text[32];

	if (is_empty(cell, kind))
		return;
	if (is_text(kind)) {
		add_quoted(out, cell->text);
	} else if (kind == SHEET_TIME) {
		clock_format(cell->number, text);
		buffer_printf(out, "%sZ", text);
	} else {
		buffer_printf(out, "%.15g", cell->number);
	}
}

void sheet_csv(const struct sheet *sheet, struct buffer *out)
{
	for (size_t i = 0; i < sheet->width; i++)
		buffer_printf(out, "%s%s", i ? "," : "", sheet->columns[i].key);
	buffer_text(out, "\n");
	for (size_t i = 0; i < sheet->count; i++) {
		add_value(out, &sheet->cells[i], sheet->columns[i % sheet->width].kind);
		buffer_text(out, (i + 1) % sheet->width ? "," : "\n");
	}
}

cJSON *sheet_json(const struct sheet *sheet)
{
	cJSON *list = cJSON_CreateArray(), *row = NULL;

	for (size_t i = 0; i < sheet->count; i++) {
		const struct sheet_column *column = &sheet->columns[i % sheet->width];
		const struct sheet_cell *cell = &sheet->cells[i];

		if (i % sheet->width == 0)
			cJSON_AddItemToArray(list, row = cJSON_CreateObject());
		if (is_text(column->kind))
			json_add_text(row, column->key, cell->text);
		else if (is_empty(cell, column->kind))
			json_add_real(row, column->key, NAN);
		else if (column->kind == SHEET_TIME)
			json_add_time(row, column->key, cell->number);
		else if (column->kind == SHEET_FLAG)
			cJSON_AddBoolToObject(row, column->key, cell->number != 0);
		else
			cJSON_AddNumberToObject(row, column->key, cell->number);
	}
	return list;
}
