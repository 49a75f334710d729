/* table: aligned columns for people, no wider than the terminal. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

struct table {
	const char *const *headings; /* as many as there are letters in `align` */
	const char *align;           /* 'l' or 'r' for each column */
	size_t columns, rows, cell_count;
	char **cells;
	bool *marked;     /* rows to stand out */
	const int *spare; /* NULL: none */
	size_t limit;     /* 0: the terminal's width */
	size_t *widths;   /* a column's width; 0: it is left out */
	bool has_heading; /* printed already */
};

/* `align` has a letter for each column, `headings` as many texts. Both stay the caller's. */
void table_begin(struct table *table, const char *const *headings, const char *align);

/* Columns, ending with -1, that are left out one after the other while the table is too wide. What is too wide still
 * loses the ends of its texts; but the last column, if it is a text, is broken into lines. */
void table_spare(struct table *table, const int *spare);

/* It may be so wide, whatever it is printed to. */
void table_narrow(struct table *table, size_t width);

/* Columns are at least so wide: for rows that are printed one by one. Counted like the headings. */
void table_reserve(struct table *table, const size_t *widths);

/* Adds the next cell; rows fill from left to right. */
void table_cell(struct table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The row that the last cell belongs to is shown bold. */
void table_mark_row(struct table *table);

/* Prints the heading, unless it was, and the rows that were added since. */
void table_flush(struct table *table, FILE *out);

/* Prints the rest and releases it. */
void table_print(struct table *table, FILE *out);
void table_free(struct table *table);
