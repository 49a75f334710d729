/* progress: how far long work has come, on stderr. */
#pragma once

#include <stdbool.h>

/* A progress bar with rate and time left on a terminal; on anything else, a line every ten seconds. */
struct progress {
	const char *what, *unit;
	double total; /* 0 when not known */
	double started, shown;
	bool on_terminal, spoken;
};
void progress_begin(struct progress *progress, const char *what, double total, const char *unit);
void progress_update(struct progress *progress, double done);
/* Says in words where things stand, instead of a bar: redrawn on a terminal, elsewhere a line a minute. */
void progress_status(struct progress *progress, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
void progress_end(struct progress *progress);
