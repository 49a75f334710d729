#include "base/log.h"

#include <stdarg.h>

#include "base/layout.h"
#include "base/terminal.h"
#include "base/text.h"

#define CLEAR_LINE "\r\033[K"

static enum log_level current_level = LOG_NORMAL;
static bool passing; /* a line is there that gives way */

void log_set_level(enum log_level level)
{
	current_level = level;
}

bool log_is_quiet(void)
{
	return current_level < LOG_NORMAL;
}

static void line(const char *prefix, const char *format, va_list args)
{
	char text[2048], seen[64];

	vsnprintf(text, sizeof(text), format, args);
	log_passing_end();
	if (terminal_width(stderr) == SIZE_MAX) {
		fprintf(stderr, "%s%s\n", prefix, text); /* one write a line, so that processes do not mix */
		return;
	}
	snprintf(seen, sizeof(seen), "%s", prefix);
	text_clean(seen);
	fputs(prefix, stderr);
	layout_words(stderr, text, text_width(seen), 0);
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

void log_passing(const char *format, ...)
{
	char text[1024];
	va_list args;

	if (log_is_quiet() || !is_terminal(stderr))
		return;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	fprintf(stderr, CLEAR_LINE "%.*s", (int)text_prefix(text, terminal_width(stderr) - 1), text);
	fflush(stderr);
	passing = true;
}

void log_passing_end(void)
{
	if (passing)
		fputs(CLEAR_LINE, stderr);
	passing = false;
}
