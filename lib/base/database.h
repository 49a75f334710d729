/* database: a SQLite file. What was committed survives a crash of the process and a loss of power. A struct
 * database is used by one thread at a time. */
#pragma once

#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct database;

enum database_sharing {
	DATABASE_SHARED,    /* other processes may read and write in turn */
	DATABASE_EXCLUSIVE, /* nobody else can open the file meanwhile, and what is beside it belongs to it */
};

/* What a file holds and how older files become today's. */
struct database_format {
	const char *what;              /* "a local validator's database": for messages */
	const char *rescue;            /* hint for a file that is damaged or not ours; NULL: a general one */
	int32_t application;           /* SQLite's application_id: tells our files from other ones */
	const char *const *migrations; /* SQL that leads from version i to i + 1; ends with NULL */
};

/* Opens the file, or makes it with mode 0600, and brings it to the newest version. ":memory:" is a
 * database that nobody keeps. NULL on error, with STATUS_ENVIRONMENT. */
struct database *database_open(const char *path, const struct database_format *format,
	enum database_sharing sharing, struct error *err);
void database_close(struct database *database);

/* True when its path has ceased to lead to the file that was opened. What it holds can still be read; a
 * shared one is no longer written to. */
bool database_moved(const struct database *database);

/* True when the file's content is not what SQLite wrote: too short, overwritten, or no database at all. Nothing
 * is done to the file but undoing a transaction that was cut off. */
bool database_damaged(const char *path);
/* Opens such a file to read what can still be read, without changing it: any step may fail. NULL on error. */
struct database *database_open_damaged(
	const char *path, const struct database_format *format, struct error *err);

/* Everything in it at one moment, whoever else writes: free with sodium_free. NULL on error. */
void *database_save(struct database *database, size_t *length, struct error *err);
/* Opens what database_save made, in memory. `name` stands for it in errors. */
struct database *database_load(const void *bytes, size_t length, const char *name,
	const struct database_format *format, struct error *err);

int database_begin(struct database *database, struct error *err);
/* 0: durable. On failure the transaction is still open; roll it back. */
int database_commit(struct database *database, struct error *err);
/* Does nothing when no transaction is open. */
void database_rollback(struct database *database);

/* Runs statements without parameters, separated by semicolons. */
int database_script(struct database *database, const char *sql, struct error *err);

/* Binds parameters to a statement, which is prepared once and kept: `sql` must be a string literal, or
 * live as long as the database. `types` has a letter for each parameter: 'i' int64_t, 'r' double (NaN
 * stores NULL), 's' const char * (NULL stores NULL). Read the columns with sqlite3_column_*. */
sqlite3_stmt *database_query(
	struct database *database, struct error *err, const char *sql, const char *types, ...);
/* 1: a row is there; 0: no more rows; -1: error. After 0 and -1 the statement is reset. */
int database_step(struct database *database, sqlite3_stmt *query, struct error *err);
/* Query and first step in one, for a statement without rows or of which only the first row counts.
 * 1: a row is there, until the statement is used again or `sqlite3_reset`; 0: none; -1: error. */
int database_row(struct database *database, sqlite3_stmt **query, struct error *err, const char *sql,
	const char *types, ...);
/* Runs a statement to its end. 0, or -1. */
int database_run(struct database *database, struct error *err, const char *sql, const char *types, ...);

/* The row id of the latest INSERT. */
int64_t database_last_id(const struct database *database);
/* How many rows the latest INSERT, UPDATE or DELETE touched. */
int64_t database_changes(const struct database *database);

/* A column as text, NULL when it is NULL, valid until the statement moves on. */
const char *database_text(sqlite3_stmt *query, int column);
/* A copy of it, the caller's; NULL when the column is NULL. */
char *database_copy_text(sqlite3_stmt *query, int column);
/* A number, NAN when the column is NULL: the inverse of binding a NaN. */
double database_real(sqlite3_stmt *query, int column);
