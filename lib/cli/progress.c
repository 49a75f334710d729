#include "cli/progress.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"

void progress_begin(struct progress *progress, const char *what, double total, const char *unit)
{
	*progress = (struct progress){
		.what = what,
		.unit = unit,
		.total = total,
		.started = clock_elapsed(),
		.on_terminal = is_terminal(stderr),
	};
	progress->shown = progress->started;
}

void progress_update(struct progress *progress, double done)
{
	double now = clock_elapsed(), spent = now - progress->started;
	double rate = spent > 0 ? done / spent : 0;
	char left[32] = "";

	if (log_is_quiet() || now - progress->shown < (progress->on_terminal ? 0.1 : 10))
		return;
	progress->shown = now;
	if (progress->total > 0 && rate > 0)
		clock_duration((progress->total - done) / rate, left);
	if (!progress->on_terminal) {
		log_note("%s: %.0f of %.0f %s", progress->what, done, progress->total, progress->unit);
		return;
	}
	if (progress->total > 0) {
		char bar[25] = "........................";
		double part = done / progress->total;

		memset(bar, '#', (size_t)(24 * (part < 0 ? 0 : part > 1 ? 1 : part)));
		fprintf(stderr, "\r\033[K%s [%s] %.0f/%.0f %s, %.3g/s, %s left", progress->what, bar, done,
			progress->total, progress->unit, rate, left[0] ? left : "?");
	} else {
		fprintf(stderr, "\r\033[K%s: %.0f %s, %.3g/s", progress->what, done, progress->unit, rate);
	}
	fflush(stderr);
	progress->drawn = true;
}

void progress_status(struct progress *progress, const char *format, ...)
{
	double now = clock_elapsed();
	char text[512];
	va_list args;

	if (log_is_quiet() || (!progress->on_terminal && progress->spoken && now - progress->shown < 60))
		return;
	progress->shown = now;
	progress->spoken = true;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (!progress->on_terminal) {
		log_note("%s", text);
		return;
	}
	fprintf(stderr, "\r\033[K%s", text);
	fflush(stderr);
	progress->drawn = true;
}

void progress_end(struct progress *progress)
{
	if (progress->drawn)
		fputs("\r\033[K", stderr);
	progress->drawn = false;
}
