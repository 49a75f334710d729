#include "base/database.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/secret.h"

struct prepared {
	const char *sql; /* compared by address */
	sqlite3_stmt *statement;
};

struct database {
	sqlite3 *handle;
	char *path;
	const struct database_format *format;
	struct prepared *prepared;
	size_t prepared_count;
};

static int hint_rescue(const struct database *database, struct error *err)
{
	const char *rescue = database->format->rescue;

	return error_hint(err, "%s", rescue ? rescue : "Move the file away, or name another one.");
}

static int failed(struct database *database, struct error *err, const char *attempt)
{
	int code = sqlite3_errcode(database->handle);
	bool moved = sqlite3_extended_errcode(database->handle) == SQLITE_READONLY_DBMOVED;
	int reason = code == SQLITE_IOERR || code == SQLITE_CANTOPEN ? sqlite3_system_errno(database->handle)
								     : 0;

	error_set(err, STATUS_ENVIRONMENT, "cannot %s database %s: %s", attempt, database->path,
		moved            ? "the file was moved, removed or replaced in the meantime"
			: reason ? strerror(reason)
				 : sqlite3_errmsg(database->handle));
	if (moved)
		return error_hint(
			err, "Nothing was written. Run this again to use the file that is there now.");
	if (code == SQLITE_BUSY)
		return error_hint(
			err, "Another process has it open. Stop that process, or name another file.");
	if (code == SQLITE_NOTADB || code == SQLITE_CORRUPT)
		return hint_rescue(database, err);
	return error_hint_system(err,
		code == SQLITE_FULL               ? ENOSPC
			: code == SQLITE_READONLY ? EROFS
						  : reason);
}

static int execute(struct database *database, struct error *err, const char *attempt, const char *sql)
{
	return sqlite3_exec(database->handle, sql, NULL, NULL, NULL) == SQLITE_OK
		? 0
		: failed(database, err, attempt);
}

int database_begin(struct database *database, struct error *err)
{
	/* a transaction that begins by reading and writes later could find itself outrun, and fail */
	return execute(database, err, "write to", "BEGIN IMMEDIATE");
}

int database_commit(struct database *database, struct error *err)
{
	return execute(database, err, "write to", "COMMIT");
}

void database_rollback(struct database *database)
{
	if (!sqlite3_get_autocommit(database->handle))
		sqlite3_exec(database->handle, "ROLLBACK", NULL, NULL, NULL);
}

int database_script(struct database *database, const char *sql, struct error *err)
{
	return execute(database, err, "query", sql);
}

/* The value of a PRAGMA that answers with one number. */
static int pragma(struct database *database, const char *sql, int64_t *value, struct error *err)
{
	sqlite3_stmt *query;
	int found = database_row(database, &query, err, sql, "");

	if (found > 0) {
		*value = sqlite3_column_int64(query, 0);
		sqlite3_reset(query);
	}
	return found < 0 ? -1 : 0;
}

/* Is the file ours, or empty? Only reads: somebody else's file stays as it is. */
static int recognize(struct database *database, int64_t *version, struct error *err)
{
	const struct database_format *format = database->format;
	int64_t application = 0, newest = 0, tables = 0;

	while (format->migrations[newest])
		newest++;
	if (pragma(database, "PRAGMA user_version", version, err) < 0 ||
		pragma(database, "PRAGMA application_id", &application, err) < 0 ||
		pragma(database, "SELECT count(*) FROM sqlite_schema", &tables, err) < 0)
		return -1;
	if (tables && application != format->application) {
		error_set(err, STATUS_ENVIRONMENT, "%s is not %s", database->path, format->what);
		return hint_rescue(database, err);
	}
	if (*version > newest) {
		error_set(err, STATUS_ENVIRONMENT, "%s was made by a newer version of this program",
			database->path);
		return error_hint(err, "Use that version or a newer one.");
	}
	return 0;
}

static int migrate(struct database *database, struct error *err)
{
	const struct database_format *format = database->format;
	int64_t version = 0;
	int result = recognize(database, &version, err);

	for (; !result && format->migrations[version]; version++) {
		char *stamp = xprintf("PRAGMA application_id = %d; PRAGMA user_version = %lld",
			format->application, (long long)version + 1);

		result = execute(database, err, "set up", format->migrations[version]);
		if (!result)
			result = execute(database, err, "set up", stamp);
		free(stamp);
	}
	return result;
}

/* How a transaction becomes durable. With a rollback journal whatever was committed is in the file itself, and
 * nothing that lies beside it can be lost. The write-ahead log takes one sync where that takes five. */
static const char *const journals[] = {
	[DATABASE_SHARED] = "PRAGMA journal_mode = DELETE; PRAGMA synchronous = EXTRA",
	[DATABASE_EXCLUSIVE] = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL",
};

/* Makes sure that what was opened is ours and of the newest version. */
static int adopt(struct database *database, enum database_sharing sharing, struct error *err)
{
	int64_t version;

	if (recognize(database, &version, err) < 0 || execute(database, err, "open", journals[sharing]) < 0 ||
		execute(database, err, "open",
			"PRAGMA foreign_keys = ON; PRAGMA temp_store = MEMORY; BEGIN IMMEDIATE") < 0)
		return -1;
	if (migrate(database, err) < 0) {
		database_rollback(database);
		return -1;
	}
	return database_commit(database, err);
}

static int set_up(struct database *database, enum database_sharing sharing, struct error *err)
{
	if (sqlite3_open_v2(database->path, &database->handle, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX,
		    NULL) != SQLITE_OK)
		return failed(database, err, "open");
	sqlite3_busy_timeout(database->handle, sharing == DATABASE_SHARED ? 10000 : 0);
	if (sharing == DATABASE_EXCLUSIVE &&
		execute(database, err, "lock", "PRAGMA locking_mode = EXCLUSIVE") < 0)
		return -1;
	return adopt(database, sharing, err);
}

/* SQLite would create it readable for all. */
static int make_private(const char *path, struct error *err)
{
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	if (fd >= 0) {
		close(fd);
	} else if (errno != EEXIST) {
		int reason = errno;

		error_set(err, STATUS_ENVIRONMENT, "cannot create database %s: %s", path, strerror(reason));
		return error_hint_system(err, reason);
	}
	return 0;
}

struct database *database_open(const char *path, const struct database_format *format,
	enum database_sharing sharing, struct error *err)
{
	struct database *database;

	if (strcmp(path, ":memory:") && make_private(path, err) < 0)
		return NULL;
	database = xcalloc(1, sizeof(*database));
	database->path = xstrdup(path);
	database->format = format;
	if (set_up(database, sharing, err) < 0) {
		database_close(database);
		return NULL;
	}
	return database;
}

struct database *database_open_damaged(
	const char *path, const struct database_format *format, struct error *err)
{
	struct database *database = xcalloc(1, sizeof(*database));

	database->path = xstrdup(path);
	database->format = format;
	/* with a writable schema SQLite reads a file that is shorter than its header says */
	if (sqlite3_open_v2(path, &database->handle, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL) ==
			SQLITE_OK &&
		sqlite3_db_config(database->handle, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL) == SQLITE_OK &&
		execute(database, err, "read", "PRAGMA writable_schema = ON; PRAGMA query_only = ON") == 0)
		return database;
	failed(database, err, "read");
	database_close(database);
	return NULL;
}

bool database_moved(const struct database *database)
{
	int moved = 0;

	sqlite3_file_control(database->handle, "main", SQLITE_FCNTL_HAS_MOVED, &moved);
	return moved;
}

bool database_damaged(const char *path)
{
	static const struct database_format any = {.what = "a database"};
	struct error ignored;
	struct database *database = database_open_damaged(path, &any, &ignored);
	sqlite3_stmt *query;
	bool damaged = false;

	if (!database)
		return false;
	sqlite3_exec(database->handle, "PRAGMA writable_schema = OFF", NULL, NULL, NULL);
	if (database_row(database, &query, &ignored, "PRAGMA quick_check(1)", "") > 0) {
		damaged = strcmp(database_text(query, 0), "ok") != 0;
	} else {
		int code = sqlite3_errcode(database->handle);

		damaged = code == SQLITE_CORRUPT || code == SQLITE_NOTADB;
	}
	database_close(database);
	return damaged;
}

void *database_save(struct database *database, size_t *length, struct error *err)
{
	sqlite3_int64 size = 0;
	unsigned char *bytes = sqlite3_serialize(database->handle, "main", &size, 0), *copy;

	if (!bytes) {
		failed(database, err, "copy");
		return NULL;
	}
	*length = (size_t)size;
	copy = memcpy(secret_alloc(*length), bytes, *length);
	sodium_memzero(bytes, *length);
	sqlite3_free(bytes);
	return copy;
}

struct database *database_load(const void *bytes, size_t length, const char *name,
	const struct database_format *format, struct error *err)
{
	struct database *database = xcalloc(1, sizeof(*database));
	unsigned char *copy = sqlite3_malloc64(length + 1);
	int result;

	database->path = xstrdup(name);
	database->format = format;
	if (copy)
		memcpy(copy, bytes, length);
	result = sqlite3_open(":memory:", &database->handle);
	/* takes the copy over, also when it fails */
	if (result == SQLITE_OK && copy)
		result = sqlite3_deserialize(database->handle, "main", copy, (sqlite3_int64)length,
			(sqlite3_int64)length,
			SQLITE_DESERIALIZE_FREEONCLOSE | SQLITE_DESERIALIZE_RESIZEABLE);
	if (result == SQLITE_OK && copy ? adopt(database, DATABASE_SHARED, err) < 0
					: failed(database, err, "open") < 0) {
		database_close(database);
		return NULL;
	}
	return database;
}

void database_close(struct database *database)
{
	if (!database)
		return;
	database_rollback(database);
	for (size_t i = 0; i < database->prepared_count; i++)
		sqlite3_finalize(database->prepared[i].statement);
	sqlite3_close(database->handle);
	free(database->prepared);
	free(database->path);
	free(database);
}

static sqlite3_stmt *prepare(struct database *database, const char *sql, struct error *err)
{
	struct prepared entry = {.sql = sql};

	for (size_t i = 0; i < database->prepared_count; i++)
		if (database->prepared[i].sql == sql) {
			sqlite3_reset(database->prepared[i].statement);
			return database->prepared[i].statement;
		}
	if (sqlite3_prepare_v3(database->handle, sql, -1, SQLITE_PREPARE_PERSISTENT, &entry.statement,
		    NULL) != SQLITE_OK) {
		failed(database, err, "query");
		return NULL;
	}
	database->prepared = xrealloc(
		database->prepared, (database->prepared_count + 1) * sizeof(*database->prepared));
	database->prepared[database->prepared_count++] = entry;
	return entry.statement;
}

static sqlite3_stmt *query_values(
	struct database *database, struct error *err, const char *sql, const char *types, va_list values)
{
	sqlite3_stmt *query = prepare(database, sql, err);
	int code = SQLITE_OK;

	for (int i = 0; query && types[i] && code == SQLITE_OK; i++) {
		if (types[i] == 'i')
			code = sqlite3_bind_int64(query, i + 1, va_arg(values, int64_t));
		else if (types[i] == 'r')
			code = sqlite3_bind_double(query, i + 1, va_arg(values, double));
		else
			code = sqlite3_bind_text(
				query, i + 1, va_arg(values, const char *), -1, SQLITE_TRANSIENT);
	}
	if (code == SQLITE_OK)
		return query;
	failed(database, err, "query");
	return NULL;
}

sqlite3_stmt *database_query(
	struct database *database, struct error *err, const char *sql, const char *types, ...)
{
	sqlite3_stmt *query;
	va_list values;

	va_start(values, types);
	query = query_values(database, err, sql, types, values);
	va_end(values);
	return query;
}

int database_step(struct database *database, sqlite3_stmt *query, struct error *err)
{
	int code = sqlite3_step(query);

	if (code == SQLITE_ROW)
		return 1;
	if (code != SQLITE_DONE)
		failed(database, err, sqlite3_stmt_readonly(query) ? "read" : "write to");
	sqlite3_reset(query);
	return code == SQLITE_DONE ? 0 : -1;
}

int database_row(struct database *database, sqlite3_stmt **query, struct error *err, const char *sql,
	const char *types, ...)
{
	va_list values;

	va_start(values, types);
	*query = query_values(database, err, sql, types, values);
	va_end(values);
	return *query ? database_step(database, *query, err) : -1;
}

int database_run(struct database *database, struct error *err, const char *sql, const char *types, ...)
{
	sqlite3_stmt *query;
	va_list values;
	int stepped;

	va_start(values, types);
	query = query_values(database, err, sql, types, values);
	va_end(values);
	if (!query)
		return -1;
	do
		stepped = database_step(database, query, err);
	while (stepped > 0);
	return stepped;
}

int64_t database_last_id(const struct database *database)
{
	return sqlite3_last_insert_rowid(database->handle);
}

int64_t database_changes(const struct database *database)
{
	return sqlite3_changes64(database->handle);
}

const char *database_text(sqlite3_stmt *query, int column)
{
	return (const char *)sqlite3_column_text(query, column);
}

char *database_copy_text(sqlite3_stmt *query, int column)
{
	const char *text = database_text(query, column);

	return text ? xstrdup(text) : NULL;
}

double database_real(sqlite3_stmt *query, int column)
{
	return sqlite3_column_type(query, column) == SQLITE_NULL ? NAN : sqlite3_column_double(query, column);
}
