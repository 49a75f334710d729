#include "base/terminal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

bool is_terminal(FILE *stream)
{
	const char *terminal = getenv("TERM");

	return terminal && strcmp(terminal, "dumb") && isatty(fileno(stream));
}

size_t terminal_width(FILE *stream)
{
	struct winsize window = {0};

	ioctl(fileno(stream), TIOCGWINSZ, &window);
	return window.ws_col ? window.ws_col : SIZE_MAX;
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
