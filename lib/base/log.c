#include "base/log.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

static enum log_level current_level = LOG_NORMAL;

void log_set_level(enum log_level level)
{
	current_level = level;
}

static void line(const char *prefix, const char *format, va_list args)
{
	char text[2048];

	vsnprintf(text, sizeof(text), format, args);
	fprintf(stderr, "%s%s\n", prefix, text); /* one write a line, so that processes do not mix */
}

void log_note(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	if (current_level >= LOG_NORMAL)
		line("", format, args);
	va_end(args);
}

void log_warn(const char *format, ...)
{
	char prefix[64];
	va_list args;

	snprintf(prefix, sizeof(prefix), "%swarning:%s ", color(stderr, COLOR_YELLOW),
		color(stderr, COLOR_NONE));
	va_start(args, format);
	line(prefix, format, args);
	va_end(args);
}

void log_debug(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	if (current_level >= LOG_VERBOSE)
		line("debug: ", format, args);
	va_end(args);
}

bool is_terminal(FILE *stream)
{
	const char *terminal = getenv("TERM");

	return terminal && strcmp(terminal, "dumb") && isatty(fileno(stream));
}

const char *color(FILE *stream, enum color wanted)
{
	static const char *const codes[] = {
		[COLOR_NONE] = "\033[0m",
		[COLOR_RED] = "\033[31m",
		[COLOR_GREEN] = "\033[32m",
		[COLOR_YELLOW] = "\033[33m",
		[COLOR_BOLD] = "\033[1m",
		[COLOR_DIM] = "\033[2m",
	};
	const char *no_color = getenv("NO_COLOR");

	return (no_color && no_color[0]) || !is_terminal(stream) ? "" : codes[wanted];
}

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

	if (current_level < LOG_NORMAL || now - progress->shown < (progress->on_terminal ? 0.1 : 10))
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

	if (current_level < LOG_NORMAL || (!progress->on_terminal && progress->spoken &&
						  now - progress->shown < 60))
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
