/* layout: text for people, broken between words so that it fits the terminal. What is no terminal gets lines as long as
 * they are, for programs that read them. */
#pragma once

#include <stdio.h>

/* Prints words and a line break; the first line begins at `column`, where the cursor is, the others at `indent`. Line
 * breaks in the text stay. A word that is wider than a line is not broken: it may be an address. */
void layout_words(FILE *out, const char *text, size_t column, size_t indent);

/* The same for a text that begins a line. */
void layout_format(FILE *out, size_t indent, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* As layout_words(), and no line is longer than is easy to read, wherever it goes. */
void layout_prose(FILE *out, const char *text, size_t column, size_t indent);

/* A line "name      value": the value begins at `column`. */
void layout_field(FILE *out, size_t column, const char *name, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
