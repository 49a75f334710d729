/* log: what is not the answer goes to stderr: notices, warnings, debug lines. */
#pragma once

#include <stdbool.h>

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
