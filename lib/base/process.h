/* process: another program beside this one, that is never waited for longer than one wants. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/buffer.h"
#include "base/error.h"

struct process {
	pid_t pid;          /* 0: none runs */
	int output;         /* for clock_poll(): readable when it has written; -1: it has closed its stdout */
	struct buffer text; /* what it wrote to stdout so far, at most the first 1 MiB */
	int talk;           /* of process_talk(); -1: it is not talked with, or does not talk any more */
	struct buffer heard; /* what came that way and is no whole line yet */
};

/* Starts argv[0] (a path) in a process group of its own. It reads `input` from stdin, which lies in memory
 * whole, and dies with this process. Of this process's environment it sees what programs need to run and
 * no secret (the lists are in process.c), and `more`: "NAME=value" each, ends with NULL, may be NULL. Of its files it
 * gets none, not even connections that libraries left open.
 * STATUS_ENVIRONMENT when it cannot be started; a path that cannot be executed shows as exit status 127. */
int process_start(struct process *process, const char *const *argv, char *const *more, const char *input,
	struct error *err);

/* The same for a program that is talked with: what process_say() says it reads from stdin, process_hear() hears
 * what it writes to stdout, and `output` and `text` are its stderr, of which the last is kept. `files` are those of
 * ours that it gets, under the same numbers: ends with -1, may be NULL. */
int process_talk(struct process *process, const char *const *argv, char *const *more, const int *files,
	struct error *err);

/* Says a line, which has to be shorter than 64 KiB. STATUS_FAILED when the program does not listen. */
int process_say(struct process *process, const char *line, struct error *err);

/* Waits at most so many seconds for a line, of at most 1 MiB and without its line break. The caller frees. NULL,
 * with the program still there: STATUS_ENVIRONMENT when the time is up, STATUS_FAILED when it ended or talks without
 * end, STATUS_INTERRUPTED. */
char *process_hear(struct process *process, double seconds, struct error *err);

/* Says no more: it reads the end of its stdin. */
void process_hush(struct process *process);

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
