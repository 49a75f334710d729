#include "base/layout.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/terminal.h"
#include "base/text.h"

#define READABLE ((size_t)96) /* columns */
#define LEAST 12              /* that an indented line must have; else it is not indented */

static void break_line(FILE *out, size_t indent, size_t *column)
{
	fprintf(out, "\n%*s", (int)indent, "");
	*column = indent;
}

/* Up to the next space, but a number keeps its "%". NULL at the end. */
static char *next_word(char **rest)
{
	char *word = strsep(rest, " ");

	while (word && *rest && **rest == '%') {
		(*rest)[-1] = ' ';
		strsep(rest, " ");
	}
	return word;
}

static void print_words(FILE *out, char *text, size_t column, size_t indent, size_t width)
{
	bool begins = true; /* a line of the text */

	for (char *line = text, *next; line; line = next) {
		next = strchr(line, '\n');
		if (next)
			*next++ = '\0';
		for (char *word; (word = next_word(&line));) {
			size_t needed = text_width(word);

			if (!begins && column + 1 + needed > width)
				break_line(out, indent, &column);
			else if (!begins)
				column += (size_t)fprintf(out, " ");
			fputs(word, out);
			column += needed;
			begins = false;
		}
		if (next)
			break_line(out, *next && *next != '\n' ? indent : 0, &column);
		begins = true;
	}
	fputc('\n', out);
}

static void print_broken(FILE *out, const char *text, size_t column, size_t indent, size_t width)
{
	char *copy = xstrdup(text);

	print_words(out, copy, column, indent + LEAST > width ? 0 : indent, width);
	free(copy);
}

void layout_words(FILE *out, const char *text, size_t column, size_t indent)
{
	print_broken(out, text, column, indent, terminal_width(out));
}

void layout_format(FILE *out, size_t indent, const char *format, ...)
{
	char *text;
	va_list args;

	va_start(args, format);
	text = xvprintf(format, args);
	va_end(args);
	layout_words(out, text, 0, indent);
	free(text);
}

void layout_prose(FILE *out, const char *text, size_t column, size_t indent)
{
	size_t width = terminal_width(out);

	print_broken(out, text, column, indent, width < READABLE ? width : READABLE);
}

void layout_field(FILE *out, size_t column, const char *name, const char *format, ...)
{
	char *text;
	va_list args;

	va_start(args, format);
	text = xvprintf(format, args);
	va_end(args);
	fprintf(out, "%-*s", (int)column, name);
	layout_words(out, text, column, column);
	free(text);
}
