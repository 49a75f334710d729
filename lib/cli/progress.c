#include "cli/progress.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/terminal.h"
#include "base/text.h"

#define BAR 24 /* columns at the most */

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

/* The bar takes what the rest of the line leaves of the terminal. */
static void draw_bar(const struct progress *progress, double done, double rate, const char *left)
{
	char bar[BAR + 1], rest[160];
	double part = fmin(1, fmax(0, done / progress->total));
	size_t columns = terminal_width(stderr), taken, length;

	snprintf(rest, sizeof(rest), "%.0f/%.0f %s, %.3g/s, %s left", done, progress->total, progress->unit,
		rate, left);
	taken = text_width(progress->what) + text_width(rest) + strlen(" [] ") + 1;
	length = columns > taken + BAR ? BAR : columns > taken ? columns - taken : 0;
	memset(bar, '.', length);
	memset(bar, '#', (size_t)((double)length * part));
	bar[length] = '\0';
	log_passing("%s [%s] %s", progress->what, bar, rest);
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
	if (!progress->on_terminal && progress->total > 0)
		log_note("%s: %.0f of %.0f %s", progress->what, done, progress->total, progress->unit);
	else if (!progress->on_terminal)
		log_note("%s: %.0f %s", progress->what, done, progress->unit);
	else if (progress->total > 0)
		draw_bar(progress, done, rate, left[0] ? left : "?");
	else
		log_passing("%s: %.0f %s, %.3g/s", progress->what, done, progress->unit, rate);
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
	log_passing("%s", text);
}

void progress_end(struct progress *progress)
{
	if (progress->on_terminal)
		log_passing_end();
}
