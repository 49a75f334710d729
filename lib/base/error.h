/* error: what went wrong, on what, and what to do next.
 *
 * Every fallible function takes a `struct error *` as its last argument and returns 0, or -1 with the
 * error filled in. The status is the process's exit code, so a command only passes the error on. */
#pragma once

enum status {
	STATUS_OK = 0,
	STATUS_FAILED = 1,      /* a check failed */
	STATUS_USAGE = 2,       /* the command line is wrong */
	STATUS_ENVIRONMENT = 3, /* no GPU, no wallet, not a workspace, unwritable directory */
	STATUS_NETWORK = 4,     /* network or server fault: worth retrying */
	STATUS_REFUSED = 5,     /* the validator said no: not worth retrying */
	STATUS_EARLY = 6,       /* the reveal block is not reached yet */
	STATUS_INTERRUPTED = 130,
};

struct error {
	enum status status;
	char message[1024];
	char hint[512]; /* what to do next; may be empty */
};

/* Both return -1, so that `return error_set(err, …)` reads as one step. error_set clears the hint. A
 * message may be empty: then the status is all there is to say, and nothing is printed. Messages are
 * UTF-8, and never carry secrets. */
int error_set(struct error *err, enum status status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
int error_hint(struct error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Hints at what can be done about a system error (errno), where that can be told. Returns -1. */
int error_hint_system(struct error *err, int reason);

/* Puts "what: " before the message: used where a caller knows what the whole attempt was. Returns -1. */
int error_context(struct error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Puts more words behind the message, as they stand. Returns -1. */
int error_append(struct error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* "failed", "usage", "environment", "network", "refused", "early", "interrupted" */
const char *status_name(enum status status);
