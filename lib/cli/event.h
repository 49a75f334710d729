/* event: what a running miner has to say: a line each on stdout, and to a command of the user's. */
#pragma once

#include <cjson/cJSON.h>
#include <poll.h>
#include <stdbool.h>

#include "base/error.h"
#include "base/process.h"

#define EVENT_QUEUE 64

struct event_log {
	bool text;              /* lines for people instead of JSON */
	const char *command;    /* run with /bin/sh -c for each event; NULL: none */
	struct process process; /* the command, for the oldest event of the queue */
	double deadline;
	struct {
		char *name, *message, *line;
	} queue[EVENT_QUEUE];
	size_t waiting, dropped;
};

/* Says that something happened: a name for programs, a sentence for people. `fields` (NULL: none) are taken
 * over. The command gets the same JSON line on its stdin, and in its environment QUASAR_EVENT, the name, and
 * QUASAR_MESSAGE. */
void event_emit(struct event_log *log, const char *name, cJSON *fields, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

/* The fields of an event about an error: its kind and what to do about it. */
cJSON *event_error(const struct error *err);

/* Runs the command for the events that wait, one at a time, and ends one that takes longer than 30 s. Never
 * blocks: to be called again when `process.output` is readable or after event_pause() seconds. */
void event_turn(struct event_log *log);
double event_pause(const struct event_log *log);

/* Gives the waiting commands some seconds more, then ends them. */
void event_close(struct event_log *log);
