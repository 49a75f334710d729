/* retry: when to try a failed request again.
 *
 *	struct retry retry;
 *
 *	retry_begin(&retry, timeout);
 *	while (attempt(…, err) < 0)
 *		if (!worth_retrying || retry_wait(&retry, 0, err) < 0)
 *			return -1;
 */
#pragma once

#include "base/error.h"

struct retry {
	double began, deadline; /* clock_elapsed() */
	unsigned failures;
};

/* `timeout`: seconds for everything, attempts and waits. */
void retry_begin(struct retry *retry, double timeout);

/* Seconds left, not below 0. */
double retry_left(const struct retry *retry);

/* Call after a failed attempt, with the attempt's error in `err`. Waits a random time between 0 and
 * min(20 s, 0.5 s · 2^failures) — or, when the server asked for a time, that time and up to a second more —
 * and returns 0: try again. Waits of more than a second are announced on stderr with the error's message; on a terminal, each is
 * a line that counts down and gives way to what comes next.
 * -1 when the time left is not enough for that and half a second of an attempt (the error is kept, with the number of attempts
 * added) or when the user interrupted (STATUS_INTERRUPTED). `retry_after`: seconds the server asked for; 0: none. */
int retry_wait(struct retry *retry, double retry_after, struct error *err);
