#include "base/secret.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <termios.h>
#include <unistd.h>

#include "base/clock.h"

/* The longest line that a terminal hands over. */
#define LINE_MAX_LENGTH 4096

void secret_guard_process(void)
{
	prctl(PR_SET_DUMPABLE, 0);
}

void *secret_alloc(size_t size)
{
	void *memory = sodium_malloc(size);

	secret_guard_process();
	if (!memory) {
		fprintf(stderr, "out of memory: cannot allocate %zu locked bytes\n", size);
		exit(STATUS_ENVIRONMENT);
	}
	sodium_memzero(memory, size);
	return memory;
}

static ssize_t read_some(int fd, char *data, size_t length, const char *name, struct error *err)
{
	ssize_t got;

	if (clock_wait_readable(fd, err) < 0)
		return -1;
	do
		got = read(fd, data, length);
	while (got < 0 && errno == EINTR);
	if (got < 0)
		return error_set(err, STATUS_ENVIRONMENT, "cannot read %s: %s", name, strerror(errno));
	return got;
}

char *secret_read(int fd, const char *name, size_t limit, size_t *length, struct error *err)
{
	char *data = secret_alloc(limit + 2); /* a byte to notice what is too long, and the zero byte */
	size_t used = 0;
	ssize_t got;

	while (used <= limit && (got = read_some(fd, data + used, limit + 1 - used, name, err)) != 0) {
		if (got < 0)
			goto failed;
		used += (size_t)got;
	}
	if (used > limit) {
		error_set(err, STATUS_ENVIRONMENT, "%s is larger than %zu bytes", name, limit);
		goto failed;
	}
	*length = used;
	return data;
failed:
	sodium_free(data);
	return NULL;
}

static void trim(char *text)
{
	size_t start = 0, length;

	while (isspace((unsigned char)text[start]))
		start++;
	length = strlen(text + start);
	memmove(text, text + start, length + 1);
	while (length && isspace((unsigned char)text[length - 1]))
		text[--length] = '\0';
}

/* A line of the terminal, which is in canonical mode: one read, one line. */
static char *read_line(int terminal, struct error *err)
{
	char *line = secret_alloc(LINE_MAX_LENGTH + 1);

	if (read_some(terminal, line, LINE_MAX_LENGTH, "the terminal", err) < 0) {
		sodium_free(line);
		return NULL;
	}
	trim(line);
	return line;
}

char *secret_ask(const char *prompt, struct error *err)
{
	int terminal = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
	struct termios before, silent;
	char *answer = NULL;

	if (terminal < 0 || tcgetattr(terminal, &before) < 0) {
		error_set(err, STATUS_ENVIRONMENT, "there is no terminal to ask on: %s", strerror(errno));
		goto done;
	}
	silent = before;
	silent.c_lflag &= ~(tcflag_t)ECHO;
	silent.c_lflag |= ECHONL;
	/* what was typed ahead of the question is no answer to it */
	tcsetattr(terminal, TCSAFLUSH, &silent);
	dprintf(terminal, "%s", prompt);
	answer = read_line(terminal, err);
	tcsetattr(terminal, TCSADRAIN, &before);
	if (!answer)
		dprintf(terminal, "\n");
done:
	if (terminal >= 0)
		close(terminal);
	return answer;
}
