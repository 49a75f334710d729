/* store: what a workspace must not forget, in SQLite (DIRECTORY/.quasar/state.db).
 *
 * Submissions are rows, each with an append-only journal of its steps; a change and its journal line are
 * one transaction, and in that file, on disk, when the function returns. Benchmarks have a table of their own
 * beside them (space/benchmarks.h). Errors are STATUS_ENVIRONMENT; a file that is damaged, newer than this
 * program or not ours is named and left alone. Several processes may use one store: a writer waits for another. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct store;

/* True when DIRECTORY holds a state store, whatever its condition. */
bool store_exists(const char *directory);

/* Makes DIRECTORY/.quasar (0700) and in it an empty store (0600), which appears whole or not at all. An
 * existing store is left as it is. */
int store_create(const char *directory, struct error *err);

/* Opens an existing store, brings an older schema up to date. NULL on error. */
struct store *store_open(const char *directory, struct error *err);
void store_close(struct store *store);

/* True when the store was moved, removed or replaced since it was opened: it can be read but not written. */
bool store_moved(const struct store *store);

/* What became of a damaged store. */
struct store_repair {
	bool missing;      /* there was none */
	char *aside;       /* its new name; NULL: the store was sound, or missing. Free it */
	size_t taken;      /* submissions that were read from stores set aside, now or earlier, and added */
	size_t lost;       /* of those stores, the ones that could not be read */
	size_t unreadable; /* stores of which nothing could be read */
};

/* Gives a damaged store and its log another name in the same directory, .quasar/state.db.damaged-TIME, and
 * makes a new one of what can be read of it. Nothing is deleted; run again, it goes on where it was
 * interrupted. A commitment counts as read when its salt gives its hash. */
int store_repair(const char *directory, struct store_repair *repair, struct error *err);

/* --- submissions --------------------------------------------------------------------------------- */

enum submission_kind {
	SUBMISSION_COMMIT, /* commit, wait, reveal */
	SUBMISSION_DIRECT, /* submitted in one step */
};

/* prepared → committed → revealed, or prepared → submitted. Refused and abandoned end either way; a
 * refused one goes on when a later attempt succeeds. */
enum submission_step {
	STEP_PREPARED,  /* durable here, nothing known to have reached the server */
	STEP_COMMITTED, /* the server gave it an id and a reveal block */
	STEP_REVEALED,
	STEP_SUBMITTED,
	STEP_REFUSED,   /* by the validator, `reason` says why */
	STEP_ABANDONED, /* by the miner, `reason` says why */
};

struct submission {
	int64_t id; /* ours, from 1 */
	enum submission_kind kind;
	enum submission_step step;
	char *api_url, *hotkey;
	char *fork_url, *commit_hash;
	char *repo_hash;    /* NULL: none */
	char *docker_image; /* NULL: none */
	int64_t target_sequence_length;
	double tokens_per_sec;        /* the claim */
	double vram_mb;               /* NAN: not claimed */
	char *benchmarks;             /* JSON text; NULL: none */
	char *salt, *commitment_hash; /* SUBMISSION_COMMIT; `salt` is secret until the reveal */
	int64_t server_id;            /* 0: not known */
	int64_t reveal_block;         /* 0: not known */
	double reveal_time; /* when that may be, Unix time by the validator's clock; NAN: not known */
	/* it was sent then, and may have arrived; NAN: it was not, or did not. Unix time by the validator's clock */
	double doubt_since;
	double score;      /* that a validator gave it, 0 … 1, as was seen last; NAN: none was seen */
	char *reason;      /* NULL: none */
	double created_at; /* Unix time by the validator's clock; a direct one is known by it in other stores */
	double sent_at; /* when it was sent last or, by the validator's word, came; NAN: not known; as above */
	double updated_at; /* Unix time by ours */
};

/* Writes a new submission, its step being prepared, and gives it an id. On disk when this returns: only
 * then may its commitment leave the machine. `id`, `step`, `server_id`, `reveal_block`, `reveal_time`, `doubt_since`,
 * `score`, `reason`, `sent_at` and `updated_at` are not read. The strings stay the caller's. */
int store_submission_prepare(
	struct store *store, const struct submission *submission, int64_t *id, struct error *err);

/* The next step. Telling the store again what it knows changes nothing; a step that cannot follow (a
 * direct submission revealed, an abandoned one committed) is an error. A committed submission may be
 * told a new reveal block, and another server id when the validator lists it under that one. */
int store_submission_committed(
	struct store *store, int64_t id, int64_t server_id, int64_t reveal_block, struct error *err);
int store_submission_revealed(struct store *store, int64_t id, struct error *err);
int store_submission_submitted(struct store *store, int64_t id, int64_t server_id, struct error *err);
int store_submission_refused(struct store *store, int64_t id, const char *reason, struct error *err);
int store_submission_abandoned(struct store *store, int64_t id, const char *reason, struct error *err);

/* To be called before a prepared one is sent, with the time by the validator's clock and a line for the journal
 * ("sending the commitment"); and when it turned out not to have arrived. */
int store_submission_sending(
	struct store *store, int64_t id, double now, const char *text, struct error *err);
int store_submission_not_sent(struct store *store, int64_t id, struct error *err);

/* When it came, as the validator says. */
int store_submission_sent_at(struct store *store, int64_t id, double unix_time, struct error *err);

/* When a committed one may be revealed, as the validator says. */
int store_submission_reveal_time(struct store *store, int64_t id, double unix_time, struct error *err);

/* A validator gave it that score. It is kept because the dashboard shows it for a hotkey's newest submissions only. */
int store_submission_judged(struct store *store, int64_t id, double score, struct error *err);

/* Adds a journal line without a step ("revealing", "the answer was lost"). No secrets. */
int store_submission_note(struct store *store, int64_t id, const char *text, struct error *err);

/* When it came to the validator, by its clock, as far as is known: what counts for rounds and pauses. It may have been
 * made long before. */
double submission_came_at(const struct submission *submission);

/* What the commitment hides besides its salt: the image, or else the fork's URL. */
const char *submission_hidden(const struct submission *submission);

struct submission_filter {
	unsigned steps;              /* STEP_BIT(…) | …; 0: every step */
	const char *api_url;         /* NULL: any */
	const char *hotkey;          /* NULL: any */
	const char *commitment_hash; /* NULL: any; compared over the given digits ("0123456789abcdef") */
	int64_t server_id;           /* 0: any */
};
#define STEP_BIT(step) (1u << (step))

struct submission_list {
	struct submission *items;
	size_t count;
};

/* Those that pass the filter (NULL: all), oldest first. Free with submission_list_free. */
int store_submissions(struct store *store, const struct submission_filter *filter,
	struct submission_list *list, struct error *err);

/* One by its id; an unknown id is an error. Free with submission_free. */
int store_submission_get(struct store *store, int64_t id, struct submission *submission, struct error *err);

struct journal_entry {
	double when; /* Unix time */
	char *text;
};
struct journal {
	struct journal_entry *entries;
	size_t count;
};

/* What happened to a submission, oldest first. Free with journal_free. */
int store_journal(struct store *store, int64_t id, struct journal *journal, struct error *err);

/* Which version of the service a validator was when it last told; NULL: not known. The caller frees. */
char *store_validator_version(struct store *store, const char *api_url);
int store_set_validator_version(
	struct store *store, const char *api_url, const char *version, struct error *err);

/* Everything in the store at one moment, salts included: free with sodium_free. NULL on error. */
void *store_save(struct store *store, size_t *length, struct error *err);

struct store_merge {
	size_t added, known; /* submissions that came, and that were there before */
	size_t salts;        /* of those that were there, which got their salt */
	size_t unrevealed;   /* of those that came, which still wait for their reveal */
};

/* Adds the submissions, with their journals, that bytes of store_save hold and this store does not: all of
 * them or, on an error, none. A commitment is recognised by its hash, a direct submission by its making or
 * the server's id. What is there stays as it is, except that a commitment without its salt gets it: its own
 * was spoilt, or it is known from the validator's list only; and that one of which no score was seen gets the other
 * store's. */
int store_merge(
	struct store *store, const void *bytes, size_t length, struct store_merge *merged, struct error *err);

/* Goes on with the store that is now in the place of one that was moved, having added to it what only that one
 * knows. On an error the old one stays open. */
int store_reopen(struct store **store, const char *directory, struct store_merge *merged, struct error *err);

void submission_free(struct submission *submission); /* wipes the salt; the struct is the caller's */
void submission_list_free(struct submission_list *list);
void journal_free(struct journal *journal);

const char *submission_kind_name(enum submission_kind kind); /* "commit", "direct" */
const char *submission_step_name(enum submission_step step); /* "prepared", "committed", … */
