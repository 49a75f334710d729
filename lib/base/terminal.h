/* terminal: whether people see a stream, how wide it is for them, and colours. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Whether it is a terminal that follows escape sequences (TERM is set, and not "dumb"). */
bool is_terminal(FILE *stream);

/* The columns of the terminal that it is; SIZE_MAX: it is none, or one that does not tell, and text may be as wide as
 * it likes. */
size_t terminal_width(FILE *stream);

/* Terminal attributes: empty strings unless `stream` is such a terminal and NO_COLOR is unset. */
enum color { COLOR_NONE, COLOR_RED, COLOR_GREEN, COLOR_YELLOW, COLOR_BOLD, COLOR_DIM };
const char *color(FILE *stream, enum color color);
