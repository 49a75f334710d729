#include "base/clock.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Unix times of the years that have four digits */
#define YEAR_1000 (-30610224000.0)
#define YEAR_10000 253402300800.0

#define TURN_SECONDS 1.0

static volatile sig_atomic_t stop_requested, hangup_requested;

static struct {
	void (*turn)(void *context);
	void *context;
} waiting;

static double read_clock(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

double clock_now(void)
{
	return read_clock(CLOCK_REALTIME);
}

double clock_elapsed(void)
{
	return read_clock(CLOCK_MONOTONIC);
}

double clock_uptime(void)
{
	return read_clock(CLOCK_BOOTTIME);
}

void clock_format(double unix_time, char text[32])
{
	double whole = floor(unix_time);
	struct tm parts;
	time_t seconds;
	size_t used;

	if (!(whole >= YEAR_1000 && whole < YEAR_10000)) {
		strncpy(text, "?", 32); /* with zeros wherever the parts of a time would begin */
		return;
	}
	seconds = (time_t)whole;
	gmtime_r(&seconds, &parts);
	used = strftime(text, 32, "%Y-%m-%dT%H:%M:%S", &parts);
	snprintf(text + used, 32 - used, ".%06d", (int)((unix_time - whole) * 1e6));
}

void clock_minute(double unix_time, char text[32])
{
	char time[32];

	clock_format(unix_time, time);
	snprintf(text, 32, "%.10s at %.5s", time, time + 11);
}

int clock_parse(const char *text, double *unix_time)
{
	struct tm parts = {0};
	double fraction = 0, scale = 0.1;
	unsigned hours, minutes;
	const char *rest = strptime(text, "%Y-%m-%d", &parts);

	if (!rest || (*rest != 'T' && *rest != ' '))
		return -1;
	rest = strptime(rest + 1, "%H:%M:%S", &parts);
	if (!rest)
		return -1;
	if (*rest == '.')
		for (rest++; *rest >= '0' && *rest <= '9'; rest++, scale /= 10)
			fraction += (*rest - '0') * scale;
	*unix_time = (double)timegm(&parts) + fraction;
	if (*rest == '\0' || !strcmp(rest, "Z"))
		return 0;
	if ((*rest != '+' && *rest != '-') || strspn(rest + 1, "0123456789") != 2 || rest[3] != ':' ||
		strspn(rest + 4, "0123456789") != 2 || rest[6])
		return -1;
	hours = (unsigned)atoi(rest + 1);
	minutes = (unsigned)atoi(rest + 4);
	*unix_time += (*rest == '+' ? -60.0 : 60.0) * (hours * 60 + minutes);
	return hours < 24 && minutes < 60 ? 0 : -1;
}

void clock_duration(double seconds, char text[32])
{
	long whole = seconds > 0 ? lround(fmin(seconds, 1e15)) : 0; /* a server may ask for any time */

	if (whole < 60)
		snprintf(text, 32, "%ld s", whole);
	else if (whole < 3600)
		snprintf(text, 32, "%ld min %02ld s", whole / 60, whole % 60);
	else
		snprintf(text, 32, "%ld h %02ld min", whole / 3600, whole / 60 % 60);
}

void clock_measured(double seconds, char text[32])
{
	if (seconds < 1)
		snprintf(text, 32, "%.*f ms", seconds < 1e-3 ? 3 : 2, seconds * 1e3);
	else if (seconds < 600)
		snprintf(text, 32, "%.2f s", seconds);
	else
		clock_duration(seconds, text);
}

static void on_stop(int signal_number)
{
	stop_requested = 1;
	signal(signal_number, SIG_DFL);
}

void interrupt_install(void)
{
	/* without SA_RESTART, so that a blocked read or wait returns */
	struct sigaction action = {.sa_handler = on_stop};

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
}

bool interrupted(void)
{
	return stop_requested;
}

static void on_hangup(int signal_number)
{
	(void)signal_number;
	hangup_requested = 1;
}

void hangup_install(void)
{
	struct sigaction action = {.sa_handler = on_hangup, .sa_flags = SA_RESTART};

	sigaction(SIGHUP, &action, NULL);
}

bool hangup_taken(void)
{
	bool taken = hangup_requested;

	hangup_requested = 0;
	return taken;
}

/* Holds the flag-setting signals back but for a wait itself, which takes `before` as its mask: one that comes
 * just after the flag is read then ends the wait too. */
static void hold_signals(sigset_t *before)
{
	sigset_t held;

	sigemptyset(&held);
	sigaddset(&held, SIGINT);
	sigaddset(&held, SIGTERM);
	sigaddset(&held, SIGHUP);
	pthread_sigmask(SIG_BLOCK, &held, before);
}

void clock_while_waiting(void (*turn)(void *context), void *context)
{
	waiting.turn = turn;
	waiting.context = context;
}

void clock_turn(void)
{
	if (waiting.turn)
		waiting.turn(waiting.context);
}

int clock_sleep(double seconds, struct error *err)
{
	double until = clock_elapsed() + seconds, left = seconds;

	for (; !stop_requested && left > 0; left = until - clock_elapsed()) {
		double step = waiting.turn ? fmin(left, TURN_SECONDS) : left;
		struct timespec wait = {(time_t)step, (long)((step - floor(step)) * 1e9)};
		sigset_t before;

		clock_turn();
		hold_signals(&before);
		if (!stop_requested)
			ppoll(NULL, 0, &wait, &before);
		pthread_sigmask(SIG_SETMASK, &before, NULL);
	}
	if (stop_requested)
		return error_set(err, STATUS_INTERRUPTED, "interrupted");
	return 0;
}

/* `hangup`: one that is not taken yet ends it. */
static int poll_until(bool hangup, struct pollfd *fds, size_t count, double seconds, struct error *err)
{
	struct timespec wait = {0};
	sigset_t before;
	bool bounded = isfinite(seconds);

	if (bounded && seconds > 0)
		wait = (struct timespec){(time_t)seconds, (long)((seconds - floor(seconds)) * 1e9)};
	for (size_t i = 0; i < count; i++)
		fds[i].revents = 0; /* they stay as they are when a signal comes */
	hold_signals(&before);
	if (!stop_requested && !(hangup && hangup_requested))
		ppoll(fds, count, bounded ? &wait : NULL, &before);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (stop_requested)
		return error_set(err, STATUS_INTERRUPTED, "interrupted");
	return 0;
}

int clock_poll(struct pollfd *fds, size_t count, double seconds, struct error *err)
{
	return poll_until(false, fds, count, seconds, err);
}

int hangup_poll(struct pollfd *fds, size_t count, double seconds, struct error *err)
{
	return poll_until(true, fds, count, seconds, err);
}

int clock_wait_readable(int fd, struct error *err)
{
	struct pollfd wanted = {.fd = fd, .events = POLLIN};
	sigset_t before;

	hold_signals(&before);
	while (!stop_requested && ppoll(&wanted, 1, NULL, &before) < 0)
		continue; /* a signal that stops nothing */
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (stop_requested)
		return error_set(err, STATUS_INTERRUPTED, "interrupted");
	return 0;
}
