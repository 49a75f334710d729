#include "base/json_rows.h"

#include <stdio.h>
#include <string.h>

/* Only brackets, commas and quotes matter here. Whether what stands between them is JSON, the parser says: of
 * each row, and of the frame. */

static bool is_space(char c)
{
	return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static bool too_large(const struct json_rows *rows)
{
	return rows->row.length > JSON_ROW_BYTES || rows->values > JSON_ROW_VALUES;
}

static bool is_structural(char c)
{
	switch (c) {
	case '"':
	case '{':
	case '}':
	case '[':
	case ']':
	case ',':
		return true;
	default:
		return false;
	}
}

static int keep(struct json_rows *rows, const char *data, size_t length)
{
	if (!rows->in_list) {
		if (length > JSON_FRAME_BYTES - rows->frame.length)
			return -1;
		buffer_append(&rows->frame, data, length);
		return 0;
	}
	while (!rows->row.length && length && is_space(*data))
		data++, length--;
	if (too_large(rows) || !length)
		return 0;
	/* one byte too many says that it is too large */
	if (length > JSON_ROW_BYTES + 1 - rows->row.length)
		length = JSON_ROW_BYTES + 1 - rows->row.length;
	buffer_append(&rows->row, data, length);
	return 0;
}

/* `last`: the list ends behind it, which may have no rows at all. */
static void end_row(struct json_rows *rows, bool last)
{
	if (!last || rows->more || rows->row.length) {
		buffer_append(&rows->row, "", 0);
		if (too_large(rows))
			rows->take(rows->context, rows->list, NULL, 0);
		else
			rows->take(rows->context, rows->list, rows->row.data, rows->row.length);
	}
	rows->more = !last;
	rows->row.length = rows->values = 0;
}

static int begin_list(struct json_rows *rows)
{
	int result = keep(rows, "[", 1);

	snprintf(rows->list, sizeof(rows->list), "%.*s", (int)(rows->name_end - rows->name),
		rows->frame.data + rows->name);
	rows->in_list = true;
	rows->depth++;
	return result;
}

static int end_list(struct json_rows *rows)
{
	end_row(rows, true);
	rows->in_list = false;
	rows->depth--;
	return keep(rows, "]", 1);
}

static int in_string(struct json_rows *rows, char c)
{
	if (rows->escaped)
		rows->escaped = false;
	else if (c == '\\')
		rows->escaped = true;
	else if (c == '"')
		rows->in_string = false;
	if (!rows->in_string && !rows->in_list && rows->depth == 1)
		rows->name_end = rows->frame.length;
	return keep(rows, &c, 1);
}

/* A character that changes where we are. */
static int step(struct json_rows *rows, char c)
{
	bool between_rows = rows->in_list && rows->depth == 2;

	if (rows->in_string)
		return in_string(rows, c);
	if (c == '[' && rows->depth == 1)
		return begin_list(rows);
	if (between_rows && c == ']')
		return end_list(rows);
	if (between_rows && c == ',') {
		end_row(rows, false);
		return 0;
	}
	if (c == '"') {
		rows->in_string = true;
		if (!rows->in_list && rows->depth == 1)
			rows->name = rows->name_end = rows->frame.length + 1;
	} else if (c == '{' || c == '[') {
		rows->depth++;
	} else if (c != ',' && rows->depth > 0 && !between_rows) {
		rows->depth--;
	}
	rows->values += c != '"';
	return keep(rows, &c, 1);
}

int json_rows_feed(struct json_rows *rows, const char *data, size_t length)
{
	const char *end = data + length;

	while (data < end) {
		const char *from = data;

		while (data < end && !rows->escaped &&
			!(rows->in_string ? *data == '"' || *data == '\\' : is_structural(*data)))
			data++;
		if (keep(rows, from, (size_t)(data - from)) < 0 || (data < end && step(rows, *data++) < 0))
			return -1;
	}
	return 0;
}

void json_rows_reset(struct json_rows *rows)
{
	json_rows_free(rows);
	*rows = (struct json_rows){.take = rows->take, .context = rows->context};
}

void json_rows_free(struct json_rows *rows)
{
	buffer_free(&rows->frame);
	buffer_free(&rows->row);
}
