/* log: what is not the answer goes to stderr: notices, warnings, debug lines. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum log_level { LOG_QUIET, LOG_NORMAL, LOG_VERBOSE };

void log_set_level(enum log_level level);
bool log_is_quiet(void);

/* A line on stderr, at normal level; shown unless --quiet. */
void log_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* "warning: …", shown even with --quiet. */
void log_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Shown with --verbose only. */
void log_debug(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A line on stderr that gives way to the next one, and to whatever is logged: how far something has come. Cut to the
 * terminal's width; nothing with --quiet, or where there is no terminal. */
void log_passing(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Takes it away, before something else is printed. */
void log_passing_end(void);

/* Whether it is a terminal that follows escape sequences (TERM is set, and not "dumb"). */
bool is_terminal(FILE *stream);

/* The columns of the terminal that it is; SIZE_MAX: it is none, or one that does not tell, and text may be as wide as
 * it likes. */
size_t terminal_width(FILE *stream);

/* Terminal attributes: empty strings unless `stream` is such a terminal and NO_COLOR is unset. */
enum color { COLOR_NONE, COLOR_RED, COLOR_GREEN, COLOR_YELLOW, COLOR_BOLD, COLOR_DIM };
const char *color(FILE *stream, enum color color);
