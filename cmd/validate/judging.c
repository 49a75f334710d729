#include "cmd/validate/judging.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"

/* A judge and what it has before it. Cloning and telling is the main thread's: while others measure, it alone talks to
 * the network and to people. */
struct seat {
	const struct judge *judge;
	const struct api_submission *submission; /* NULL: free */
	struct verdict verdict;
	int result;
	struct error err;
	pthread_t thread;
	int done; /* an eventfd: readable when the thread has measured */
};

struct judging {
	struct seat *seats;
	size_t count;
	judged *tell;
	void *context;
};

struct judging *judging_open(const struct judge *judges, size_t count, judged *done, void *context)
{
	struct judging *judging = xcalloc(1, sizeof(*judging));

	*judging = (struct judging){.seats = xcalloc(count, sizeof(*judging->seats)),
		.count = count,
		.tell = done,
		.context = context};
	for (size_t i = 0; i < count; i++)
		judging->seats[i] = (struct seat){.judge = &judges[i], .done = -1};
	return judging;
}

static void *measure(void *context)
{
	struct seat *seat = context;

	seat->result = judge_measure(seat->judge, seat->submission, &seat->verdict, &seat->err);
	eventfd_write(seat->done, 1);
	return NULL;
}

static void clear(struct seat *seat)
{
	verdict_free(&seat->verdict);
	seat->submission = NULL;
}

static int settle(struct judging *judging, struct seat *seat, struct error *err)
{
	int result;

	if (seat->result && seat->err.status == STATUS_INTERRUPTED) {
		*err = seat->err;
		result = -1;
	} else {
		result = judging->tell(seat->judge, seat->submission, &seat->verdict,
			seat->result ? &seat->err : NULL, judging->context, err);
	}
	clear(seat);
	return result;
}

/* Waits for its thread. */
static void leave(struct seat *seat)
{
	if (seat->done < 0)
		return;
	pthread_join(seat->thread, NULL);
	close(seat->done);
	seat->done = -1;
}

/* Waits until one of those that measure is done, and tells. */
static int settle_one(struct judging *judging, struct error *err)
{
	struct pollfd *waits = xcalloc(judging->count, sizeof(*waits));
	struct seat *seat = NULL;
	int result = 0;

	for (size_t i = 0; i < judging->count; i++)
		waits[i] = (struct pollfd){.fd = judging->seats[i].done, .events = POLLIN};
	while (!result && !seat) {
		result = clock_poll(waits, judging->count, INFINITY, err);
		for (size_t i = 0; !result && i < judging->count; i++)
			if (waits[i].revents)
				seat = &judging->seats[i];
	}
	free(waits);
	if (!seat)
		return result;
	leave(seat);
	return settle(judging, seat, err);
}

static struct seat *free_seat(struct judging *judging)
{
	for (size_t i = 0; i < judging->count; i++)
		if (!judging->seats[i].submission)
			return &judging->seats[i];
	return NULL;
}

static bool is_busy(const struct judging *judging)
{
	for (size_t i = 0; i < judging->count; i++)
		if (judging->seats[i].submission)
			return true;
	return false;
}

static int start(struct seat *seat, struct error *err)
{
	int reason;

	seat->done = eventfd(0, EFD_CLOEXEC);
	reason = seat->done < 0 ? errno : pthread_create(&seat->thread, NULL, measure, seat);
	if (!reason)
		return 0;
	if (seat->done >= 0)
		close(seat->done);
	seat->done = -1;
	return error_set(err, STATUS_ENVIRONMENT, "cannot start a thread: %s", strerror(reason));
}

int judging_add(struct judging *judging, const struct api_submission *submission, struct error *err)
{
	struct seat *seat;

	while (!(seat = free_seat(judging)))
		if (settle_one(judging, err) < 0)
			return -1;
	seat->submission = submission;
	seat->result = judge_examine(seat->judge, submission, &seat->verdict, &seat->err);
	if (!seat->result && !seat->verdict.invalid)
		seat->result = start(seat, &seat->err);
	return seat->done >= 0 ? 0 : settle(judging, seat, err);
}

int judging_finish(struct judging *judging, struct error *err)
{
	while (is_busy(judging))
		if (settle_one(judging, err) < 0)
			return -1;
	return 0;
}

void judging_close(struct judging *judging)
{
	for (size_t i = 0; i < judging->count; i++)
		if (judging->seats[i].submission) {
			leave(&judging->seats[i]);
			clear(&judging->seats[i]);
		}
	free(judging->seats);
	free(judging);
}
