/* chart: pictures made of characters, as a pipe and as a terminal get them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/text.h"
#include "cli/chart.h"

static const double history[] = {100, 101, 99, 120, NAN, 200};

static void draw_sparkline(FILE *out)
{
	chart_sparkline(out, history, 6, 0);
}

static void draw_bars(FILE *out)
{
	static const struct chart_bar bars[] = {
		{"4,096", 100, "100/s", false}, {"65,536", 200, "200/s", true}, {"1M", NAN, "?", false}};

	chart_bars(out, bars, 3);
}

static void draw_map(FILE *out)
{
	static const char *const rows[] = {"16", "64"}, *const columns[] = {"32", "64", "128"};
	static const double values[] = {1e6, 2e6, NAN, 4e6, 5.25e6, 3e6};

	chart_heat_map(
		out, &(struct chart_map){"BLOCK_M", "BLOCK_N", rows, columns, 2, 3, values, "tokens/s"});
}

/* What it draws into a pipe or a file. The caller frees. */
static char *drawn(void (*draw)(FILE *out))
{
	char *text;
	size_t length;
	FILE *out = xmemstream(&text, &length);

	draw(out);
	xmemstream_close(out);
	return text;
}

/* What it draws on a terminal that is so wide. The caller frees. */
static char *drawn_on_terminal(void (*draw)(FILE *out), unsigned short columns)
{
	struct winsize window = {.ws_row = 24, .ws_col = columns};
	int here = posix_openpt(O_RDWR | O_NOCTTY), there;
	struct termios modes;
	struct buffer text = {0};
	char part[4096];
	ssize_t count;
	FILE *out;

	assert_true(here >= 0 && grantpt(here) == 0 && unlockpt(here) == 0);
	there = open(ptsname(here), O_RDWR | O_NOCTTY);
	assert_true(there >= 0 && tcgetattr(there, &modes) == 0);
	modes.c_oflag &= ~(tcflag_t)OPOST; /* line breaks as they are */
	assert_int_equal(tcsetattr(there, TCSANOW, &modes), 0);
	assert_int_equal(ioctl(there, TIOCSWINSZ, &window), 0);
	out = fdopen(there, "w");
	draw(out);
	fclose(out);
	while ((count = read(here, part, sizeof(part))) > 0)
		buffer_append(&text, part, (size_t)count);
	close(here);
	return text.data;
}

static int on_a_good_terminal(void **state)
{
	(void)state;
	setenv("TERM", "xterm-256color", 1);
	setenv("LC_ALL", "C.UTF-8", 1);
	return unsetenv("NO_COLOR");
}

/* The longest line, as seen. */
static size_t widest_line(char *text)
{
	size_t widest = 0, width;

	for (char *line; (line = strsep(&text, "\n"));) {
		text_clean(line);
		width = text_width(line);
		widest = width > widest ? width : widest;
	}
	return widest;
}

static void numbers_are_shortened(void **state)
{
	static const struct {
		double value;
		const char *text;
	} cases[] = {{0, "0"}, {7, "7"}, {987, "987"}, {999.4, "999"}, {999.6, "1k"}, {1234, "1.23k"},
		{45.6e6, "45.6M"}, {-2.5e9, "-2.5G"}, {0.00123, "0.00123"}, {1e18, "1e+06T"}};
	char text[16];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		number_short(cases[i].value, text);
		assert_string_equal(text, cases[i].text);
	}
}

static void assert_drawn(void (*draw)(FILE *out), const char *expected)
{
	char *text = drawn(draw);

	assert_string_equal(text, expected);
	free(text);
}

static void a_pipe_gets_ascii(void **state)
{
	(void)state;
	assert_drawn(draw_sparkline, "___. #");
	assert_drawn(draw_bars,
		" 4,096  ########################  100/s\n"
		"65,536  ################################################  200/s\n"
		"    1M    ?\n");
	assert_drawn(draw_map,
		"BLOCK_M \\ BLOCK_N    32       64      128   \n"
		"               16    1M  .    2M  :         \n"
		"               64    4M  + 5.25M* #    3M  -\n"
		"1M  . : - + # 5.25M tokens/s\n"
		"* BLOCK_M 64, BLOCK_N 64\n");
}

static void assert_shows(void (*draw)(FILE *out), unsigned short columns, const char *expected)
{
	char *text = drawn_on_terminal(draw, columns);

	assert_non_null(strstr(text, expected));
	assert_in_range(widest_line(text), 1, columns);
	free(text);
}

static void a_terminal_gets_coloured_blocks_that_fit(void **state)
{
	(void)state;
	assert_shows(draw_sparkline, 80, "▁▁▁▂ █");
	for (unsigned short columns = 45; columns <= 120; columns += 15) {
		assert_shows(draw_bars, columns, "\033[32m█");
		assert_shows(draw_map, columns, "\033[48;5;215m\033[38;5;16m 5.25M*  \033[0m");
	}
	assert_shows(draw_bars, 20, "█\033[0m  200/s");
	assert_shows(draw_map, 30, "… and 2 more, up to 128");
}

static void without_colours_there_are_blocks(void **state)
{
	(void)state;
	setenv("NO_COLOR", "1", 1);
	assert_shows(draw_bars, 80, "█  200/s");
	assert_shows(draw_map, 80, "5.25M* █");
	setenv("LC_ALL", "C", 1);
	assert_shows(draw_bars, 80, "#  200/s");
	assert_shows(draw_map, 80, "5.25M* #");
}

static void draw_nothing(FILE *out)
{
	static const char *const labels[] = {"16"};
	static const double nothing = NAN;

	chart_sparkline(out, NULL, 0, 10);
	chart_bars(out, NULL, 0);
	chart_heat_map(out, &(struct chart_map){"a", "b", labels, labels, 1, 1, &nothing, "s"});
}

static void what_was_not_measured_is_no_picture(void **state)
{
	(void)state;
	assert_drawn(draw_nothing, "a \\ b 16   \n   16      \nNothing was measured.\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(numbers_are_shortened),
		cmocka_unit_test_setup(a_pipe_gets_ascii, on_a_good_terminal),
		cmocka_unit_test_setup(a_terminal_gets_coloured_blocks_that_fit, on_a_good_terminal),
		cmocka_unit_test_setup(without_colours_there_are_blocks, on_a_good_terminal),
		cmocka_unit_test_setup(what_was_not_measured_is_no_picture, on_a_good_terminal),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
