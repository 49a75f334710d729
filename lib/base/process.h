/* process: another program beside this one, that is never waited for longer than one wants. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/buffer.h"
#include "base/error.h"

struct process {
	pid_t pid;          /* 0: none runs */
	int output;         /* for clock_poll(): readable when it has written; -1: it has closed its stdout */
	struct buffer text; /* what it wrote to stdout so far, at most 1 MiB */
};

/* Starts argv[0] (a path) in a process group of its own. It reads `input` from stdin, which lies in memory
 * whole, and dies with this process. Of this process's environment it sees what programs need to run and
 * no secret (the lists are in process.c), and `more`: "NAME=value" each, ends with NULL, may be NULL.
 * STATUS_ENVIRONMENT when it cannot be started; a path that cannot be executed shows as exit status 127. */
int process_start(struct process *process, const char *const *argv, char *const *more, const char *input,
	struct error *err);

/* Takes what it has written. True when it has ended and nobody can write any more: then `status` is its exit
 * status, 128 and more for a signal. The text is the caller's to free. Never waits: to be called when
 * `output` is readable, and after process_pause() seconds. */
bool process_ended(struct process *process, int *status);
double process_pause(const struct process *process);

/* Waits for its end, at most so many seconds. -1, having killed it, when the time is up (STATUS_ENVIRONMENT) or
 * the user asked to stop (STATUS_INTERRUPTED). */
int process_finish(struct process *process, double seconds, int *status, struct error *err);

/* What a program says, on stdout and stderr together, when it ends well: one that answers a question. argv[0] may be a
 * name in the PATH. NULL when it does not, or not in time, with the last line that it said. The caller frees. */
char *process_ask(const char *const *argv, char *const *more, double seconds, struct error *err);

/* Ends it, and whatever else is in its group, and frees its text: asks with SIGTERM, and does not wait longer
 * than a second for that. Does nothing when none runs. */
void process_kill(struct process *process);

/* Kills and takes away a child of this process. Does not wait long for one that cannot die, as when a disk or
 * a device hangs: such a one is left behind. */
void process_reap(pid_t child);
