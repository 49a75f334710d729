/* table: aligned columns for people. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

struct table {
	const char *const *headings; /* as many as there are letters in `align` */
	const char *align;           /* 'l' or 'r' for each column */
	size_t columns, rows, cell_count;
	char **cells;
	bool *marked;     /* rows to stand out */
	size_t limit;     /* see table_narrow() */
	const int *spare; /* NULL: none */
};

/* `align` has a letter for each column, `headings` as many texts. Both stay the caller's. */
void table_begin(struct table *table, const char *const *headings, const char *align);

/* Adds the next cell; rows fill from left to right. */
void table_cell(struct table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The row that the last cell belongs to is shown bold. */
void table_mark_row(struct table *table);

/* Should the columns before the last need more than `limit` characters, some are left out: those of `spare`,
 * which ends with -1, one after the other. */
void table_narrow(struct table *table, size_t limit, const int *spare);

/* Prints and releases it. */
void table_print(struct table *table, FILE *out);
