/* validator: the validator's API as a service of one machine, for trying a submission out and for tests;
 * docs/deployed-validator.md says what it is held against. Its state is a SQLite file.
 *
 * To be served by net/server: its version's routes, dialect and body limit, and validator_transaction, with
 * the validator as context.
 * Everything but `check` runs in one thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "net/fields.h"
#include "net/server.h"

/* What one version of the validator does and another does otherwise. Zero is the strict way. */
struct validator_version {
	const char *name;
	const struct server_route *routes;

	/* who may do what */
	int64_t rate_limit;  /* signed requests of a hotkey in 60 s, unless the options say; 0: no limit */
	double cooldown;     /* seconds between submissions of a hotkey, unless the options say; 0: none */
	bool timed_requests; /* with a Timestamp header, the signature covers that, too, and expires */
	bool wrapped_signatures;   /* takes those over "<Bytes>" SS58 "</Bytes>", too */
	bool prefixed_signatures;  /* and hexadecimal digits after "0x" */
	bool registers_signer;     /* whomever the body names */
	bool registers_once;       /* for another model or league: a fault */
	bool registers_submitters; /* who submits needs no registration */
	bool lax_reveals;          /* registration and bans count for submissions alone */
	bool forgives_zero;        /* a score of 0 makes good for earlier failures, as any other does */
	bool forwarded_addresses;  /* a client's address is what X-Forwarded-For or X-Real-IP says */
	/* A person has one hotkey, told by GitHub name, public address and coldkey; others are flagged. */
	bool flags;

	/* submissions */
	bool networks;                  /* miners and rounds belong to one of two; else all are finney's */
	double least_claim, most_claim; /* tokens/s of a submission; 0: any */
	bool submits_images;            /* /submit_kernel takes a docker_image; a reveal always does */
	bool hides_forks;               /* in the lists */

	/* rounds */
	double block_genesis;    /* Unix time of block 0 */
	bool ranks_measurements; /* of what was validated and verified, and not the claim */
	/* A round whose time is up is finalized by the next submission, or who asks; not before. */
	bool timed_rounds;
	/* Begins a round when asked for it. A submission begins the first one only; later, without a round, it
	 * is a fault until somebody asks. */
	bool waits_for_round;
	/* What has to be beaten is the previous round's winner, which the weights know and the round does not
	 * tell. Else it is the last winner there was, and stands in the round. */
	bool baseline_one_round;
	bool finalizes_blindly; /* without knowing what has to be beaten */
	bool tells_rounds; /* /get_weights says of which one, and takes the active one before any is completed */
	bool creation_faults; /* /create_round makes the round and answers 500 */
	bool bare_results;    /* of a round without validated submissions: {"status", "winners"} */

	/* requests */
	struct field_rules fields;
	bool loose_objects; /* /mark_validated and /record_failure take values of other types */
	bool all_rows;      /* ?limit= has no upper bound but the rules' */
	size_t body_limit;  /* bytes */
	struct server_dialect dialect;
};

/* The default first; ends with a name that is NULL. */
extern const struct validator_version validator_versions[];

/* The version of that name, or NULL. */
const struct validator_version *validator_version(const char *name);

struct validator_options {
	const struct validator_version *version;
	const char *database;        /* path; ":memory:" is forgotten at the end */
	double block_seconds;        /* how long a block takes: 12 on the real chain */
	int64_t blocks_until_reveal; /* from commitment to reveal: 100 */
	int64_t rate_limit;          /* signed requests of a hotkey in 60 s; 0: no limit */
	double cooldown;             /* seconds between submissions of a hotkey; 0: none */
	double round_seconds;        /* how long a round takes, unless it is told: 48 hours */
	/* Of versions that do not show everything to anybody: who may judge, and who may read. Separated by
	 * commas; what follows a key's colon, its role, makes no difference. NULL: nobody. */
	const char *validator_hotkeys, *api_keys;
	double (*now)(void); /* Unix time; NULL: clock_now */
};

struct validator;

/* NULL on error, with STATUS_ENVIRONMENT: the file cannot be had, is not such a database, or belongs to
 * another version. */
struct validator *validator_open(const struct validator_options *options, struct error *err);
void validator_close(struct validator *validator);

extern const struct server_transaction validator_transaction;
