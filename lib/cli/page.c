#include "cli/page.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/terminal.h"
#include "base/text.h"

#define ENTER "\033[?1049h\033[?25l\033[?7l" /* the alternate screen, no cursor, no wrapping */
#define LEAVE "\033[?7h\033[?25h\033[?1049l"
#define GO_TO_ROW "\033[%zuH"
#define CLEAR_LINE "\033[K" /* from the cursor on */

static struct termios modes; /* the terminal's, as they were */
static struct buffer shown;  /* what the terminal was told last */
static volatile sig_atomic_t entered, stale;

bool page_possible(void)
{
	return is_terminal(stdout);
}

/* Also for signal handlers. -1 when the terminal is gone, or the user asked to stop while it was stuck. */
static int tell(const char *text, size_t length)
{
	while (length) {
		ssize_t count = write(STDOUT_FILENO, text, length);

		if (count < 0 && (errno != EINTR || interrupted()))
			return -1;
		if (count > 0) {
			text += count;
			length -= (size_t)count;
		}
	}
	return 0;
}

static int enter(void)
{
	struct termios quiet = modes;

	quiet.c_lflag &= ~(tcflag_t)ECHO;
	tcsetattr(STDOUT_FILENO, TCSANOW, &quiet);
	entered = stale = 1;
	return tell(ENTER, strlen(ENTER));
}

static void leave(void)
{
	if (!entered)
		return;
	entered = 0;
	tcflush(STDOUT_FILENO, TCIFLUSH);
	tcsetattr(STDOUT_FILENO, TCSANOW, &modes);
	tell(LEAVE, strlen(LEAVE));
}

/* A terminal that is not this session's has no foreground. */
static bool in_foreground(void)
{
	pid_t group = tcgetpgrp(STDOUT_FILENO);

	return group < 0 || group == getpgrp();
}

/* --- signals -------------------------------------------------------------------------------------- */

static void on_end(int signal_number)
{
	leave();
	raise(signal_number); /* for which there is no handler any more */
}

static void on_suspend(int signal_number)
{
	int before = errno;

	(void)signal_number;
	leave();
	raise(SIGSTOP);
	errno = before;
}

static void on_resize(int signal_number)
{
	(void)signal_number;
	stale = 1;
}

/* After SIGSTOP, which cannot be handled, the screen may be another. */
static void on_continue(int signal_number)
{
	(void)signal_number;
	entered = 0;
}

static void handle(int signal_number, void (*handler)(int signal_number), int flags)
{
	struct sigaction action = {.sa_handler = handler, .sa_flags = flags}, before;

	sigaction(signal_number, NULL, &before);
	if (before.sa_handler != SIG_IGN)
		sigaction(signal_number, &action, NULL);
}

/* --- the page ------------------------------------------------------------------------------------- */

void page_open(void)
{
	tcgetattr(STDOUT_FILENO, &modes);
	handle(SIGHUP, on_end, SA_RESETHAND);
	handle(SIGQUIT, on_end, SA_RESETHAND);
	handle(SIGABRT, on_end, SA_RESETHAND);
	handle(SIGTSTP, on_suspend, 0);
	handle(SIGCONT, on_continue, 0);
	handle(SIGWINCH, on_resize, 0);
}

void page_close(void)
{
	leave();
	buffer_free(&shown);
}

struct page_size page_size(void)
{
	struct winsize window = {0};

	ioctl(STDOUT_FILENO, TIOCGWINSZ, &window);
	return (struct page_size){window.ws_row ? window.ws_row : 24, window.ws_col ? window.ws_col : 80};
}

static void add_line(struct buffer *frame, const char *line, size_t columns)
{
	size_t width = text_width(line);

	if (width > columns) {
		buffer_append(frame, line, text_prefix(line, columns - 1));
		buffer_text(frame, "…");
	} else {
		buffer_text(frame, line);
		buffer_text(frame, width < columns ? CLEAR_LINE : "");
	}
}

/* Writes every row anew, over what was there. */
static void build_frame(struct buffer *frame, char *text, struct page_size size)
{
	size_t lines = 0;

	for (const char *at = text; (at = strchr(at, '\n')); at++)
		lines++;
	for (size_t row = 1; row <= size.rows; row++) {
		const char *line = lines ? strsep(&text, "\n") : "";
		char more[32];

		if (row == size.rows && lines > 1) {
			snprintf(more, sizeof(more), "… %zu more", lines);
			line = more;
		}
		buffer_printf(frame, GO_TO_ROW, row); /* a line end could scroll while the window shrinks */
		add_line(frame, line, size.columns);
		lines -= lines > 0;
	}
}

static int update(const char *text)
{
	struct buffer frame = {0};
	char *copy = xstrdup(text);
	int result = entered ? 0 : enter();
	bool anew = stale;

	stale = 0;
	build_frame(&frame, copy, page_size());
	if (!result && (anew || strcmp(shown.data, frame.data)))
		result = tell(frame.data, frame.length);
	buffer_free(&shown);
	shown = frame;
	free(copy);
	return result;
}

void page_show(const char *text)
{
	sigset_t suspend, before;
	int result;

	if (!in_foreground())
		return;
	sigemptyset(&suspend);
	sigaddset(&suspend, SIGTSTP); /* which would leave the screen halfway */
	pthread_sigmask(SIG_BLOCK, &suspend, &before);
	result = update(text);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (result < 0 && !interrupted())
		raise(SIGTERM);
}
