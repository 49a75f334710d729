/* log: what is not the answer goes to stderr: notices, progress, debug lines. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum log_level { LOG_QUIET, LOG_NORMAL, LOG_VERBOSE };

void log_set_level(enum log_level level);

/* A line on stderr, at normal level; shown unless --quiet. */
void log_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* "warning: …", shown even with --quiet. */
void log_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Shown with --verbose only. */
void log_debug(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Whether it is a terminal that follows escape sequences (TERM is set, and not "dumb"). */
bool is_terminal(FILE *stream);

/* Terminal attributes: empty strings unless `stream` is such a terminal and NO_COLOR is unset. */
enum color { COLOR_NONE, COLOR_RED, COLOR_GREEN, COLOR_YELLOW, COLOR_BOLD, COLOR_DIM };
const char *color(FILE *stream, enum color color);

/* A progress bar with rate and time left on a terminal; on anything else, a line every ten seconds. */
struct progress {
	const char *what, *unit;
	double total; /* 0 when not known */
	double started, shown;
	bool on_terminal, drawn, spoken;
};
void progress_begin(struct progress *progress, const char *what, double total, const char *unit);
void progress_update(struct progress *progress, double done);
/* Says in words where things stand, instead of a bar: redrawn on a terminal, elsewhere a line a minute. */
void progress_status(struct progress *progress, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
void progress_end(struct progress *progress);
