/* clock: wall time, elapsed time, waiting, and the user's wish to stop. */
#pragma once

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* Unix time, seconds with a fraction. */
double clock_now(void);

/* Seconds since some fixed point, unaffected by changes of the wall clock. For measuring and deadlines. */
double clock_elapsed(void);

/* The same, the time that the machine slept included. For what goes on elsewhere meanwhile: blocks, rounds. */
double clock_uptime(void);

/* "2026-11-20T18:14:00.123456", UTC without a zone, as the validator writes times. `text` holds 32 bytes.
 * "?", and zeros behind it, for what is no time between the years 1000 and 9999. */
void clock_format(double unix_time, char text[32]);
/* The same for people: "2026-11-20 at 18:14". */
void clock_minute(double unix_time, char text[32]);

/* Reads ISO 8601 with or without fraction, "Z" or offset; no zone means UTC. -1 when it is not a time. */
int clock_parse(const char *text, double *unix_time);

/* "2 min 05 s", "3 h 04 min": a duration for people. `text` holds 32 bytes. */
void clock_duration(double seconds, char text[32]);
/* The same for what was measured: "0.123 ms", "45.67 ms", "12.35 s", and as above from ten minutes on. */
void clock_measured(double seconds, char text[32]);

/* Makes SIGINT and SIGTERM set a flag that waiting and long work look at; a second one ends the process. */
void interrupt_install(void);
bool interrupted(void);

/* Waits. -1 with STATUS_INTERRUPTED when the user asked to stop before the time was up. */
int clock_sleep(double seconds, struct error *err);

/* Has `turn` called while this process waits, in clock_sleep() or for an answer over HTTP: at least once a
 * second, and when a signal came. It must not wait itself. NULL: no more. */
void clock_while_waiting(void (*turn)(void *context), void *context);
/* For what waits by other means: calls it. */
void clock_turn(void);

/* poll() for at most so many seconds (INFINITY: no bound). 0 also when nothing happened; the `revents` tell. -1 with
 * STATUS_INTERRUPTED when the user asked to stop. */
int clock_poll(struct pollfd *fds, size_t count, double seconds, struct error *err);

/* Makes SIGHUP set a flag too. */
void hangup_install(void);
/* True once after each SIGHUP. */
bool hangup_taken(void);
/* clock_poll() for whoever asks hangup_taken() next: it does not wait when there was one, and one that comes ends it. */
int hangup_poll(struct pollfd *fds, size_t count, double seconds, struct error *err);

/* Waits until `fd` has something to read, or has ended. -1 with STATUS_INTERRUPTED as above. */
int clock_wait_readable(int fd, struct error *err);
