#include "cli/event.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/service.h"
#include "base/text.h"

#define COMMAND_SECONDS 30.0 /* for each event */
#define LAST_SECONDS 10.0    /* for what still waits at the end */

static void print_text(const char *name, const char *time, const char *message, const cJSON *event)
{
	const char *hint = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(event, "hint"));

	printf("%.10s %.8s %-10s %s\n", time, time + 11, name, message);
	if (hint && *hint)
		printf("%31s%s\n", "", hint);
}

static void enqueue(struct event_log *log, const char *name, const char *message, const char *line)
{
	if (log->waiting == EVENT_QUEUE) {
		if (!log->dropped++)
			log_warn("--notify: the command is too slow; events are skipped");
		return;
	}
	log->queue[log->waiting].name = xprintf("QUASAR_EVENT=%s", name);
	log->queue[log->waiting].message = xprintf("QUASAR_MESSAGE=%s", message);
	log->queue[log->waiting++].line = xprintf("%s\n", line);
	event_turn(log);
}

void event_emit(struct event_log *log, const char *name, cJSON *fields, const char *format, ...)
{
	cJSON *event = cJSON_CreateObject(), *field;
	char message[2048], time[32], *line;
	double now = clock_now();
	va_list args;

	va_start(args, format);
	vsnprintf(message, sizeof(message), format, args);
	va_end(args);
	clock_format(now, time);
	json_add_time(event, "time", now);
	cJSON_AddStringToObject(event, "event", name);
	cJSON_AddStringToObject(event, "message", message);
	while (fields && (field = cJSON_DetachItemFromArray(fields, 0)))
		cJSON_AddItemToObject(event, field->string, field);
	cJSON_Delete(fields);
	line = cJSON_PrintUnformatted(event);
	if (log->text)
		print_text(name, time, message, event);
	else
		puts(line);
	fflush(stdout);
	clearerr(stdout); /* a full disk or a reader that left must not end the miner */
	service_notify("STATUS=%s: %s", name, message);
	if (log->command)
		enqueue(log, name, message, line);
	cJSON_free(line);
	cJSON_Delete(event);
}

cJSON *event_error(const struct error *err)
{
	cJSON *fields = cJSON_CreateObject();

	cJSON_AddStringToObject(fields, "kind", status_name(err->status));
	cJSON_AddStringToObject(fields, "hint", err->hint);
	return fields;
}

static void dequeue(struct event_log *log)
{
	free(log->queue[0].name);
	free(log->queue[0].message);
	free(log->queue[0].line);
	log->waiting--;
	memmove(log->queue, log->queue + 1, log->waiting * sizeof(*log->queue));
}

/* Starts the command for the oldest event. */
static int start(struct event_log *log, struct error *err)
{
	const char *argv[] = {"/bin/sh", "-c", log->command, NULL};
	char *const more[] = {log->queue[0].name, log->queue[0].message, NULL};

	log->deadline = clock_elapsed() + COMMAND_SECONDS;
	return process_start(&log->process, argv, more, log->queue[0].line, err);
}

/* Ends the command, or notices that it has ended. */
static void finish(struct event_log *log)
{
	int status = 0;

	if (process_ended(&log->process, &status)) {
		if (status)
			log_warn("--notify: the command failed with exit code %d", status);
		if (log->process.text.length) {
			text_clean(log->process.text.data);
			log_note("--notify: %.500s", log->process.text.data);
		}
		buffer_free(&log->process.text);
	} else if (clock_elapsed() >= log->deadline) {
		log_warn("--notify: the command took longer than %.0f s and was killed", COMMAND_SECONDS);
		process_kill(&log->process);
	}
	if (!log->process.pid)
		dequeue(log);
}

void event_turn(struct event_log *log)
{
	struct error err;

	if (log->process.pid)
		finish(log);
	while (!log->process.pid && log->waiting) {
		if (start(log, &err) == 0)
			return;
		log_warn("--notify: %s", err.message);
		dequeue(log);
	}
}

double event_pause(const struct event_log *log)
{
	double left = fmax(0, log->deadline - clock_elapsed());

	return log->process.pid ? fmin(left, process_pause(&log->process)) : INFINITY;
}

void event_close(struct event_log *log)
{
	double until = clock_elapsed() + LAST_SECONDS;

	while (log->process.pid && clock_elapsed() < until) {
		struct pollfd ended = {.fd = log->process.output, .events = POLLIN};

		poll(&ended, 1, (int)(1000 * fmin(0.1, process_pause(&log->process))));
		event_turn(log);
	}
	process_kill(&log->process);
	while (log->waiting)
		dequeue(log);
}
