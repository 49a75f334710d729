/* sheet: a table whose cells know what they are, so that a page, CSV, Markdown and JSON tell the same. */
#pragma once

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/buffer.h"

enum sheet_kind {
	SHEET_TEXT,
	SHEET_CODE,    /* text as a machine has it: a commit, a hotkey */
	SHEET_COUNT,   /* shown as a whole number, "1,234,567" */
	SHEET_SCORE,   /* the same, with a bar as long as its part of the column's largest */
	SHEET_REAL,    /* three or four digits */
	SHEET_PERCENT, /* a part of one */
	SHEET_TIME,    /* Unix time */
	SHEET_FLAG,    /* 1: yes */
};

struct sheet_column {
	const char *key;     /* in CSV and JSON */
	const char *heading; /* for people */
	enum sheet_kind kind;
};

struct sheet_cell {
	char *text;    /* NULL: none */
	double number; /* NAN: none */
};

/* Zero-initialised, it is an empty table without columns. */
struct sheet {
	const struct sheet_column *columns; /* ends with a key that is NULL */
	size_t width;                       /* columns */
	struct sheet_cell *cells;
	size_t count, capacity; /* cells */
	bool *marked;           /* rows that stand out */
};

/* The columns stay the caller's. */
void sheet_begin(struct sheet *sheet, const struct sheet_column *columns);
void sheet_free(struct sheet *sheet);

/* Adds the next cell; rows fill from left to right. NULL and NAN leave it empty. */
void sheet_text(struct sheet *sheet, const char *text);
void sheet_number(struct sheet *sheet, double number);
/* The row that the last cell belongs to stands out. */
void sheet_mark(struct sheet *sheet);

size_t sheet_rows(const struct sheet *sheet);

/* All rows, or for people the first `most`, with a word on the rest. */
void sheet_html(const struct sheet *sheet, const char *caption, size_t most, struct buffer *out);
/* Text as Markdown that says the same; with `prose`, what stands between backticks is code and stays as it is. */
void sheet_markdown_text(const char *text, bool prose, struct buffer *out);
void sheet_markdown(const struct sheet *sheet, struct buffer *out);
void sheet_csv(const struct sheet *sheet, struct buffer *out);
cJSON *sheet_json(const struct sheet *sheet);
