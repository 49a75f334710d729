/* validator: the validator's API (spec: docs/validator-api.md) as a service of one machine, for trying a
 * submission out and for tests. Its state is a SQLite file.
 *
 * To be served by net/server: validator_routes and validator_transaction, with the validator as context.
 * Everything but `check` runs in one thread. */
#pragma once

#include <stdint.h>

#include "base/error.h"
#include "net/server.h"

struct validator_options {
	const char *database;        /* path; ":memory:" is forgotten at the end */
	double block_seconds;        /* how long a block takes: 12 on the real chain */
	int64_t blocks_until_reveal; /* from commitment to reveal: 100 */
	int64_t rate_limit;          /* signed requests of a hotkey in 60 s; 0: no limit */
	double (*now)(void);         /* Unix time; NULL: clock_now */
};

struct validator;

/* NULL on error, with STATUS_ENVIRONMENT: the file cannot be had, or is not such a database. */
struct validator *validator_open(const struct validator_options *options, struct error *err);
void validator_close(struct validator *validator);

extern const struct server_route validator_routes[];
extern const struct server_transaction validator_transaction;
