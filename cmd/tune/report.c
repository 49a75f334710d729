/* tune: rows as a table and as JSON. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "cli/table.h"
#include "cmd/tune/tune.h"

/* --- JSON ---------------------------------------------------------------------------------------- */

/* {"CHUNK": 64, "NUM_STAGES": 2} */
static cJSON *parameters_json(const char *text)
{
	cJSON *object = cJSON_CreateObject();
	char name[64];

	for (text += strspn(text, " "); *text; text += strspn(text, " ")) {
		size_t length = strcspn(text, " ="), whole = strcspn(text, " ");

		snprintf(name, sizeof(name), "%.*s", (int)length, text);
		cJSON_AddNumberToObject(object, name, text[length] == '=' ? atof(text + length + 1) : 0);
		text += whole;
	}
	return object;
}

static void add_count(cJSON *object, const char *name, int value)
{
	json_add_real(object, name, value < 0 ? NAN : value);
}

cJSON *tune_row_json(const struct tune_row *row)
{
	cJSON *object = cJSON_CreateObject();

	cJSON_AddStringToObject(object, "kernel", row->kernel);
	cJSON_AddItemToObject(object, "parameters", parameters_json(row->parameters));
	json_add_real(object, "ms", row->ms);
	json_add_real(object, "error", row->error);
	json_add_real(object, "occupancy", row->occupancy);
	json_add_text(object, "limited_by", row->limited_by);
	add_count(object, "registers", row->registers);
	add_count(object, "shared_bytes", row->shared_bytes);
	add_count(object, "spills", row->spills);
	json_add_text(object, "bound", row->bound);
	return object;
}

void tune_print_json(
	const char *device, bool predicted, const struct tune_row *rows, size_t count, cJSON *more)
{
	cJSON *document = cJSON_CreateObject(), *list;

	cJSON_AddStringToObject(document, "device", device);
	cJSON_AddBoolToObject(document, "predicted", predicted);
	while (more && more->child) {
		cJSON *field = cJSON_DetachItemViaPointer(more, more->child);

		cJSON_AddItemToObject(document, field->string, field);
	}
	cJSON_Delete(more);
	list = cJSON_AddArrayToObject(document, "kernels");
	for (size_t i = 0; i < count; i++)
		cJSON_AddItemToArray(list, tune_row_json(&rows[i]));
	output_json(document);
}

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
	table_cell(table, "%s", row->parameters);
	count_cell(table, row->registers, "");
	count_cell(table, row->spills, " B");
	count_cell(table, row->shared_bytes, " B");
	if (isnan(row->occupancy))
		table_cell(table, "?");
	else
		table_cell(table, "%.0f %%", row->occupancy * 100);
	table_cell(table, "%s", row->limited_by ? row->limited_by : "?");
	table_cell(table, "%s", row->bound ? row->bound : "?");
}

void tune_print_table(const struct tune_row *rows, size_t count, size_t most)
{
	static const char *const headings[] = {
		"time", "configuration", "registers", "spills", "shared", "occupancy", "limited by", "bound"};
	struct table table;

	for (size_t first = 0; first < count;) { /* a table for each kernel */
		size_t shown = 0, end = first;

		printf("%s%s, %s\n\n", first ? "\n" : "", rows[first].kernel,
			rows[first].predicted ? "predicted" : "measured");
		table_begin(&table, headings, "rlrrrrll");
		for (; end < count && !strcmp(rows[end].kernel, rows[first].kernel); end++)
			if (shown++ < most)
				row_cells(&table, &rows[end]);
		table_print(&table, stdout);
		if (shown > most)
			printf("and %zu more\n", shown - most);
		first = end;
	}
}
