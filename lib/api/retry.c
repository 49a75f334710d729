#include "api/retry.h"

#include <math.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/terminal.h"

#define FIRST_WAIT 0.5
#define LONGEST_WAIT 20.0
#define SILENT_WAIT 1.0
/* With less time left an attempt would end in a timeout of our own, and hide what the server had said before. */
#define LEAST_LEFT 0.5

void retry_begin(struct retry *retry, double timeout)
{
	double now = clock_elapsed();

	*retry = (struct retry){.began = now, .deadline = now + timeout};
}

double retry_left(const struct retry *retry)
{
	return fmax(0, retry->deadline - clock_elapsed());
}

static double random_unit(void)
{
	return randombytes_uniform(1 << 24) / 0x1p24;
}

static int give_up(const struct retry *retry, double retry_after, struct error *err)
{
	char spent[32], asked[32];

	clock_duration(clock_elapsed() - retry->began, spent);
	clock_duration(retry_after, asked);
	return error_append(err, "%s%s (gave up after %u attempt%s in %s)",
		retry_after > 0 ? "; it asks to wait " : "", retry_after > 0 ? asked : "", retry->failures,
		retry->failures == 1 ? "" : "s", spent);
}

/* Counts the seconds down on a terminal; elsewhere says once how many they are. */
static int sit_out(double wait, struct error *err)
{
	char text[32];

	clock_duration(ceil(wait), text);
	if (!is_terminal(stderr)) {
		if (wait > SILENT_WAIT)
			log_note("%s; trying again in %s", err->message, text);
		return clock_sleep(wait, err);
	}
	for (; wait > 0; wait--) {
		clock_duration(ceil(wait), text);
		log_passing("%s; trying again in %s", err->message, text);
		if (clock_sleep(fmin(1, wait), err) < 0)
			return -1;
	}
	return 0;
}

int retry_wait(struct retry *retry, double retry_after, struct error *err)
{
	double wait = fmin(LONGEST_WAIT, FIRST_WAIT * exp2(fmin(retry->failures, 10))) * random_unit();

	if (retry_after > 0)
		wait = retry_after + random_unit();
	retry->failures++;
	if (wait + LEAST_LEFT > retry_left(retry))
		return give_up(retry, retry_after, err);
	return sit_out(wait, err);
}
