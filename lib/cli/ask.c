#include "cli/ask.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"

bool ask_possible(const struct invocation *invocation)
{
	return !invocation->json && isatty(STDIN_FILENO) && isatty(STDERR_FILENO);
}

/* The caller frees. */
static char *read_line(struct error *err)
{
	char *line = NULL, *text;
	size_t capacity = 0;

	/* a Ctrl-C before the reading begins would not end it */
	if (clock_wait_readable(STDIN_FILENO, err) < 0 || getline(&line, &capacity, stdin) < 0 ||
		interrupted()) {
		free(line);
		fputc('\n', stderr);
		error_set(err, STATUS_INTERRUPTED, "interrupted");
		return NULL;
	}
	text = line + strspn(line, " \t");
	for (size_t length = strlen(text); length && strchr(" \t\r\n", text[length - 1]);)
		text[--length] = '\0';
	text = xstrdup(text);
	free(line);
	return text;
}

char *ask(const char *question, const char *choices, const char *fallback, struct error *err)
{
	for (;;) {
		char *answer;

		fprintf(stderr, "%s%s%s%s%s%s%s: ", question, choices ? " (" : "", choices ? choices : "",
			choices ? ")" : "", fallback ? " [" : "", fallback ? fallback : "",
			fallback ? "]" : "");
		answer = read_line(err);
		if (answer && !*answer && fallback) {
			free(answer);
			answer = xstrdup(fallback);
		}
		if (!answer || !choices || is_choice(choices, answer, strlen(answer)))
			return answer;
		free(answer);
	}
}

int ask_whether(const char *question, bool fallback, struct error *err)
{
	char *answer = ask(question, "y|n", fallback ? "y" : "n", err);
	int result = answer ? *answer == 'y' : -1;

	free(answer);
	return result;
}
