#include "space/store_private.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/message.h"
#include "base/clock.h"
#include "base/database.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/secret.h"

static const char *const migrations[] = {
	"CREATE TABLE submission ("
	" id INTEGER PRIMARY KEY AUTOINCREMENT,"
	" kind TEXT NOT NULL CHECK (kind IN ('commit', 'direct')),"
	" step TEXT NOT NULL CHECK (step IN"
	"  ('prepared', 'committed', 'revealed', 'submitted', 'refused', 'abandoned')),"
	" api_url TEXT NOT NULL, hotkey TEXT NOT NULL,"
	" fork_url TEXT NOT NULL, commit_hash TEXT NOT NULL, repo_hash TEXT,"
	" target_sequence_length INTEGER NOT NULL, tokens_per_sec REAL NOT NULL, vram_mb REAL,"
	" benchmarks TEXT, salt TEXT, commitment_hash TEXT UNIQUE,"
	" server_id INTEGER, reveal_block INTEGER, reason TEXT,"
	" created_at REAL NOT NULL, updated_at REAL NOT NULL,"
	" CHECK (kind = 'direct' OR (salt IS NOT NULL AND commitment_hash IS NOT NULL)));"

	"CREATE TABLE journal ("
	" id INTEGER PRIMARY KEY,"
	" submission INTEGER NOT NULL REFERENCES submission (id),"
	" at REAL NOT NULL, text TEXT NOT NULL);"
	"CREATE INDEX journal_by_submission ON journal (submission);"
	"CREATE TRIGGER journal_is_kept BEFORE DELETE ON journal"
	" BEGIN SELECT RAISE (ABORT, 'the journal only grows'); END;"
	"CREATE TRIGGER journal_is_not_rewritten BEFORE UPDATE ON journal"
	" BEGIN SELECT RAISE (ABORT, 'the journal only grows'); END;"

	"CREATE TABLE bench ("
	" id INTEGER PRIMARY KEY, at REAL NOT NULL, device TEXT NOT NULL, what TEXT NOT NULL,"
	" semantics TEXT NOT NULL, seq INTEGER NOT NULL, runs INTEGER NOT NULL,"
	" tokens_per_sec REAL NOT NULL, spread REAL NOT NULL, memory_mb REAL,"
	" fork_commit TEXT, version TEXT NOT NULL);"
	"CREATE INDEX bench_by_seq ON bench (seq);",

	benchmarks_table,
	benchmarks_noise,

	"ALTER TABLE submission ADD COLUMN docker_image TEXT;"
	"ALTER TABLE submission ADD COLUMN reveal_time REAL;"
	"ALTER TABLE submission ADD COLUMN doubt_since REAL;"
	"UPDATE submission SET doubt_since = updated_at WHERE step = 'prepared';"
	"CREATE TABLE validator ("
	" api_url TEXT PRIMARY KEY, version TEXT NOT NULL, seen_at REAL NOT NULL);",

	"ALTER TABLE submission ADD COLUMN score REAL;",

	"ALTER TABLE submission ADD COLUMN sent_at REAL;",

	NULL,
};

static const struct database_format format = {
	.what = "a workspace's state store",
	.rescue = "Nothing was changed. The file holds your submissions and their salts. Restore it from a "
		  "backup, or run `quasar recover`, which renames it and recovers what can still be read.",
	.application = 0x51535754, /* "QSWT" */
	.migrations = migrations,
};

/* Ids that are looked for in a damaged store at most: the highest one may be damaged itself. */
#define MOST_SUBMISSIONS 1000000

static const char *const kind_names[] = {"commit", "direct"};
static const char *const step_names[] = {
	"prepared", "committed", "revealed", "submitted", "refused", "abandoned"};

const char *submission_kind_name(enum submission_kind kind)
{
	return kind_names[kind];
}

const char *submission_step_name(enum submission_step step)
{
	return step_names[step];
}

/* The index of a name that the table's CHECK let in. */
static unsigned name_index(const char *const *names, unsigned count, const char *name)
{
	unsigned i = 0;

	while (i + 1 < count && strcmp(names[i], name))
		i++;
	return i;
}

/* --- the file ------------------------------------------------------------------------------------ */

static char *store_path(const char *directory)
{
	return path_join(directory, ".quasar/state.db");
}

bool store_exists(const char *directory)
{
	char *path = store_path(directory);
	bool exists = path_exists(path);

	free(path);
	return exists;
}

/* SQLite's own files go with the database. */
static const char *const suffixes[] = {"", "-wal", "-shm", "-journal"};
enum { SUFFIXES = sizeof(suffixes) / sizeof(suffixes[0]) };

static void remove_database(const char *path)
{
	for (size_t i = 0; i < SUFFIXES; i++) {
		char *name = xprintf("%s%s", path, suffixes[i]);

		unlink(name);
		free(name);
	}
}

#define ASIDE ".damaged-" /* followed by the time */

/* Gives a database and what SQLite keeps beside it another name. `aside` receives the database's; NULL when
 * there was nothing. The caller frees. */
static int set_aside(const char *path, char **aside, struct error *err)
{
	char now[32], *base;
	int result = 0;

	clock_format(clock_now(), now);
	base = xprintf("%s" ASIDE "%s", path, now);
	*aside = NULL;
	for (size_t i = 0; !result && i < SUFFIXES; i++) {
		char *from = xprintf("%s%s", path, suffixes[i]), *to = xprintf("%s%s", base, suffixes[i]);

		if (path_exists(from)) {
			result = file_publish(from, to, err);
			if (!*aside)
				*aside = xstrdup(base);
		}
		free(from);
		free(to);
	}
	free(base);
	return result;
}

int store_create(const char *directory, struct error *err)
{
	char *folder = path_join(directory, ".quasar"), *path = store_path(directory);
	char *unfinished = xprintf("%s.new", path), *aside = NULL;
	struct database *database;
	int result = -1;

	if (path_exists(path)) {
		result = 0;
		goto done;
	}
	/* SQLite would take the log of a store that is gone for the new one's */
	if (directory_make(folder, 0700, err) < 0 || set_aside(path, &aside, err) < 0)
		goto done;
	remove_database(unfinished);
	database = database_open(unfinished, &format, DATABASE_SHARED, err);
	if (!database)
		goto done;
	database_close(database);
	result = file_publish(unfinished, path, err);
done:
	free(aside);
	free(unfinished);
	free(path);
	free(folder);
	return result;
}

static int damaged(const char *path, const char *how, struct error *err)
{
	error_set(err, STATUS_ENVIRONMENT, "%s is damaged: %s", path, how);
	return error_hint(err, "%s", format.rescue);
}

/* Finds damage now rather than halfway through a submission. */
static int check_content(struct database *database, const char *path, struct error *err)
{
	sqlite3_stmt *query;
	int found = database_row(database, &query, err, "PRAGMA quick_check(1)", "");

	if (found > 0 && strcmp(database_text(query, 0), "ok"))
		found = damaged(path, database_text(query, 0), err);
	if (found > 0)
		sqlite3_reset(query);
	return found < 0 ? -1 : 0;
}

struct store *store_open(const char *directory, struct error *err)
{
	char *folder = path_join(directory, ".quasar"), *path = store_path(directory);
	struct store *store = xcalloc(1, sizeof(*store));
	struct stat status;

	if (stat(path, &status) < 0) {
		error_set(err, STATUS_ENVIRONMENT, "the state store is missing: %s", path);
		error_hint(err,
			"Put it back if you have it. Otherwise `quasar recover` creates a new one from "
			"the validator's lists, and `quasar import-state` adds submissions from a backup.");
		goto failed;
	}
	path_warn_if_open(folder);
	path_warn_if_open(path);
	/* SQLite takes an empty file for a new database, but ours are never empty */
	if (status.st_size == 0)
		damaged(path, "it is empty", err);
	else
		store->database = database_open(path, &format, DATABASE_SHARED, err);
	if (!store->database || check_content(store->database, path, err) < 0)
		goto failed;
	free(path);
	free(folder);
	return store;
failed:
	store_close(store);
	free(path);
	free(folder);
	return NULL;
}

void store_close(struct store *store)
{
	if (!store)
		return;
	database_close(store->database);
	free(store);
}

bool store_moved(const struct store *store)
{
	return database_moved(store->database);
}

/* --- submissions --------------------------------------------------------------------------------- */

static int add_journal(struct store *store, int64_t id, const char *text, struct error *err)
{
	return database_run(store->database, err,
		"INSERT INTO journal (submission, at, text) VALUES (?, ?, ?)", "irs", id, clock_now(), text);
}

int store_submission_prepare(
	struct store *store, const struct submission *submission, int64_t *id, struct error *err)
{
	if (database_begin(store->database, err) < 0)
		return -1;
	if (database_run(store->database, err,
		    "INSERT INTO submission (kind, step, api_url, hotkey, fork_url, commit_hash, repo_hash,"
		    " docker_image, target_sequence_length, tokens_per_sec, vram_mb, benchmarks, salt,"
		    " commitment_hash, created_at, updated_at)"
		    " VALUES (?, 'prepared', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
		    "sssssssirrsssrr", kind_names[submission->kind], submission->api_url, submission->hotkey,
		    submission->fork_url, submission->commit_hash, submission->repo_hash,
		    submission->docker_image, submission->target_sequence_length, submission->tokens_per_sec,
		    submission->vram_mb, submission->benchmarks, submission->salt,
		    submission->commitment_hash, submission->created_at, clock_now()) < 0)
		goto failed;
	*id = database_last_id(store->database);
	if (add_journal(store, *id, "prepared", err) == 0 && database_commit(store->database, err) == 0)
		return 0;
failed:
	database_rollback(store->database);
	return -1;
}

/* What a submission had at first, and what came with later formats. */
#define OLDEST_COLUMNS                                                                                       \
	"id, kind, step, api_url, hotkey, fork_url, commit_hash, repo_hash, target_sequence_length,"         \
	" tokens_per_sec, vram_mb, benchmarks, salt, commitment_hash, server_id, reveal_block, reason,"      \
	" created_at, updated_at"
#define OLDER_COLUMNS OLDEST_COLUMNS ", docker_image, reveal_time, doubt_since"
#define OLD_COLUMNS OLDER_COLUMNS ", score"
#define SUBMISSION_COLUMNS OLD_COLUMNS ", sent_at"

static char *copy_secret(sqlite3_stmt *query, int column)
{
	const char *text = database_text(query, column);
	size_t size = text ? strlen(text) + 1 : 0;

	return text ? memcpy(secret_alloc(size), text, size) : NULL;
}

/* Reads a row of SUBMISSION_COLUMNS. */
static struct submission read_submission(sqlite3_stmt *query)
{
	return (struct submission){
		.id = sqlite3_column_int64(query, 0),
		.kind = name_index(kind_names, 2, database_text(query, 1)),
		.step = name_index(step_names, 6, database_text(query, 2)),
		.api_url = database_copy_text(query, 3),
		.hotkey = database_copy_text(query, 4),
		.fork_url = database_copy_text(query, 5),
		.commit_hash = database_copy_text(query, 6),
		.repo_hash = database_copy_text(query, 7),
		.target_sequence_length = sqlite3_column_int64(query, 8),
		.tokens_per_sec = sqlite3_column_double(query, 9),
		.vram_mb = database_real(query, 10),
		.benchmarks = database_copy_text(query, 11),
		.salt = copy_secret(query, 12),
		.commitment_hash = database_copy_text(query, 13),
		.server_id = sqlite3_column_int64(query, 14),
		.reveal_block = sqlite3_column_int64(query, 15),
		.reason = database_copy_text(query, 16),
		.created_at = sqlite3_column_double(query, 17),
		.updated_at = sqlite3_column_double(query, 18),
		.docker_image = database_copy_text(query, 19),
		.reveal_time = database_real(query, 20),
		.doubt_since = database_real(query, 21),
		.score = database_real(query, 22),
		.sent_at = database_real(query, 23),
	};
}

double submission_came_at(const struct submission *submission)
{
	return isnan(submission->sent_at) ? submission->created_at : submission->sent_at;
}

void submission_free(struct submission *submission)
{
	free(submission->api_url);
	free(submission->hotkey);
	free(submission->fork_url);
	free(submission->commit_hash);
	free(submission->repo_hash);
	free(submission->docker_image);
	free(submission->benchmarks);
	sodium_free(submission->salt);
	free(submission->commitment_hash);
	free(submission->reason);
	*submission = (struct submission){0};
}

void submission_list_free(struct submission_list *list)
{
	for (size_t i = 0; i < list->count; i++)
		submission_free(&list->items[i]);
	free(list->items);
	*list = (struct submission_list){0};
}

int store_submission_get(struct store *store, int64_t id, struct submission *submission, struct error *err)
{
	sqlite3_stmt *query;
	int found = database_row(store->database, &query, err,
		"SELECT " SUBMISSION_COLUMNS " FROM submission WHERE id = ?", "i", id);

	if (found == 0) {
		error_set(err, STATUS_USAGE, "there is no submission %lld", (long long)id);
		return error_hint(err, "`quasar status` lists them.");
	}
	if (found < 0)
		return -1;
	*submission = read_submission(query);
	sqlite3_reset(query);
	return 0;
}

int store_submissions(struct store *store, const struct submission_filter *filter,
	struct submission_list *list, struct error *err)
{
	static const struct submission_filter everything;
	const struct submission_filter *wanted = filter ? filter : &everything;
	sqlite3_stmt *query = database_query(store->database, err,
		"SELECT " SUBMISSION_COLUMNS " FROM submission WHERE api_url = ifnull(?, api_url)"
		" AND hotkey = ifnull(?, hotkey)"
		" AND (?3 IS NULL OR substr(commitment_hash, 1, length(?3)) = ?3)"
		" AND (?4 = 0 OR server_id = ?4) ORDER BY id",
		"sssi", wanted->api_url, wanted->hotkey, wanted->commitment_hash, wanted->server_id);
	int found = query ? 1 : -1;

	*list = (struct submission_list){0};
	while (found > 0 && (found = database_step(store->database, query, err)) > 0) {
		unsigned step = name_index(step_names, 6, database_text(query, 2));

		if (wanted->steps && !(wanted->steps & STEP_BIT(step)))
			continue;
		list->items = xrealloc(list->items, (list->count + 1) * sizeof(*list->items));
		list->items[list->count++] = read_submission(query);
	}
	if (found < 0)
		submission_list_free(list);
	return found;
}

/* Whether a submission at `from` may be told that it is at `to`. */
static bool may_follow(const struct submission *now, enum submission_step to)
{
	static const unsigned before[] = {
		[STEP_COMMITTED] = STEP_BIT(STEP_PREPARED) | STEP_BIT(STEP_COMMITTED) |
			STEP_BIT(STEP_REFUSED),
		[STEP_REVEALED] = STEP_BIT(STEP_COMMITTED) | STEP_BIT(STEP_REVEALED) | STEP_BIT(STEP_REFUSED),
		[STEP_SUBMITTED] = STEP_BIT(STEP_PREPARED) | STEP_BIT(STEP_SUBMITTED) |
			STEP_BIT(STEP_REFUSED),
		[STEP_REFUSED] = STEP_BIT(STEP_PREPARED) | STEP_BIT(STEP_COMMITTED) | STEP_BIT(STEP_REFUSED),
		[STEP_ABANDONED] = STEP_BIT(STEP_PREPARED) | STEP_BIT(STEP_COMMITTED) |
			STEP_BIT(STEP_REFUSED) | STEP_BIT(STEP_ABANDONED),
	};

	if (to == STEP_SUBMITTED
			? now->kind != SUBMISSION_DIRECT
			: (to == STEP_COMMITTED || to == STEP_REVEALED) && now->kind != SUBMISSION_COMMIT)
		return false;
	if (to == STEP_REVEALED && !now->server_id)
		return false;
	return before[to] & STEP_BIT(now->step);
}

/* What a step brings with it. */
struct news {
	enum submission_step step;
	int64_t server_id, reveal_block; /* 0: none */
	const char *reason;              /* NULL: none */
};

static bool is_known(const struct submission *now, const struct news *news)
{
	return now->step == news->step && (!news->server_id || news->server_id == now->server_id) &&
		(!news->reveal_block || news->reveal_block == now->reveal_block) &&
		(!news->reason || (now->reason && !strcmp(news->reason, now->reason)));
}

static int write_step(
	struct store *store, const struct submission *now, const struct news *news, struct error *err)
{
	int64_t server_id = news->server_id ? news->server_id : now->server_id;
	int64_t reveal_block = news->reveal_block ? news->reveal_block : now->reveal_block;
	struct buffer line = {0};
	int result;

	buffer_text(&line, step_names[news->step]);
	if (news->server_id)
		buffer_printf(&line, ", the server's submission %lld", (long long)news->server_id);
	if (news->reveal_block)
		buffer_printf(&line, ", reveal block %lld", (long long)news->reveal_block);
	if (news->reason)
		buffer_printf(&line, ": %s", news->reason);
	result = database_run(store->database, err,
		"UPDATE submission SET step = ?, server_id = nullif(?, 0), reveal_block = nullif(?, 0),"
		" reason = ?, updated_at = ? WHERE id = ?",
		"siisri", step_names[news->step], server_id, reveal_block, news->reason, clock_now(),
		now->id);
	if (!result)
		result = add_journal(store, now->id, line.data, err);
	buffer_free(&line);
	return result;
}

static int advance(struct store *store, int64_t id, struct news news, struct error *err)
{
	struct submission now = {0};
	int result = database_begin(store->database, err);

	if (!result)
		result = store_submission_get(store, id, &now, err);
	if (!result && !may_follow(&now, news.step))
		result = error_set(err, STATUS_ENVIRONMENT, "submission %lld (%s) is %s and cannot become %s",
			(long long)id, kind_names[now.kind], step_names[now.step], step_names[news.step]);
	if (!result && news.step != STEP_COMMITTED && news.server_id && now.server_id &&
		news.server_id != now.server_id)
		result = error_set(err, STATUS_ENVIRONMENT,
			"submission %lld is the server's submission %lld, not %lld", (long long)id,
			(long long)now.server_id, (long long)news.server_id);
	if (!result && !is_known(&now, &news))
		result = write_step(store, &now, &news, err);
	if (!result)
		result = database_commit(store->database, err);
	database_rollback(store->database);
	submission_free(&now);
	return result;
}

int store_submission_committed(
	struct store *store, int64_t id, int64_t server_id, int64_t reveal_block, struct error *err)
{
	struct news news = {.step = STEP_COMMITTED, .server_id = server_id, .reveal_block = reveal_block};

	return advance(store, id, news, err);
}

int store_submission_revealed(struct store *store, int64_t id, struct error *err)
{
	return advance(store, id, (struct news){.step = STEP_REVEALED}, err);
}

int store_submission_submitted(struct store *store, int64_t id, int64_t server_id, struct error *err)
{
	return advance(store, id, (struct news){.step = STEP_SUBMITTED, .server_id = server_id}, err);
}

int store_submission_refused(struct store *store, int64_t id, const char *reason, struct error *err)
{
	return advance(store, id, (struct news){.step = STEP_REFUSED, .reason = reason}, err);
}

int store_submission_abandoned(struct store *store, int64_t id, const char *reason, struct error *err)
{
	return advance(store, id, (struct news){.step = STEP_ABANDONED, .reason = reason}, err);
}

/* Sets a column, perhaps with a line of the journal. `sql` has the value, then the id. */
static int set_time(
	struct store *store, int64_t id, const char *sql, double value, const char *line, struct error *err)
{
	int result = database_begin(store->database, err);

	if (!result)
		result = database_run(store->database, err, sql, "ri", value, id);
	if (!result && line)
		result = add_journal(store, id, line, err);
	if (!result)
		result = database_commit(store->database, err);
	database_rollback(store->database);
	return result;
}

int store_submission_sending(struct store *store, int64_t id, double now, const char *text, struct error *err)
{
	return set_time(store, id,
		"UPDATE submission SET sent_at = ?1, doubt_since = ifnull(doubt_since, ?1) WHERE id = ?2",
		now, text, err);
}

int store_submission_sent_at(struct store *store, int64_t id, double unix_time, struct error *err)
{
	return set_time(store, id, "UPDATE submission SET sent_at = ? WHERE id = ?", unix_time, NULL, err);
}

int store_submission_not_sent(struct store *store, int64_t id, struct error *err)
{
	return set_time(
		store, id, "UPDATE submission SET doubt_since = ? WHERE id = ?", NAN, "not delivered", err);
}

int store_submission_reveal_time(struct store *store, int64_t id, double unix_time, struct error *err)
{
	return set_time(
		store, id, "UPDATE submission SET reveal_time = ? WHERE id = ?", unix_time, NULL, err);
}

/* Within a transaction. */
static int write_score(struct store *store, int64_t id, double score, struct error *err)
{
	char *line = xprintf("judged: score %g", score);
	int result = database_run(
		store->database, err, "UPDATE submission SET score = ? WHERE id = ?", "ri", score, id);

	if (!result)
		result = add_journal(store, id, line, err);
	free(line);
	return result;
}

int store_submission_judged(struct store *store, int64_t id, double score, struct error *err)
{
	int result = database_begin(store->database, err);

	if (!result)
		result = write_score(store, id, score, err);
	if (!result)
		result = database_commit(store->database, err);
	database_rollback(store->database);
	return result;
}

const char *submission_hidden(const struct submission *submission)
{
	return submission->docker_image ? submission->docker_image : submission->fork_url;
}

int store_submission_note(struct store *store, int64_t id, const char *text, struct error *err)
{
	return add_journal(store, id, text, err);
}

int store_journal(struct store *store, int64_t id, struct journal *journal, struct error *err)
{
	sqlite3_stmt *query = database_query(store->database, err,
		"SELECT at, text FROM journal WHERE submission = ? ORDER BY id", "i", id);
	int found = query ? 1 : -1;

	*journal = (struct journal){0};
	while (found > 0 && (found = database_step(store->database, query, err)) > 0) {
		journal->entries = xrealloc(
			journal->entries, (journal->count + 1) * sizeof(*journal->entries));
		journal->entries[journal->count++] = (struct journal_entry){
			sqlite3_column_double(query, 0), database_copy_text(query, 1)};
	}
	if (found < 0)
		journal_free(journal);
	return found;
}

void journal_free(struct journal *journal)
{
	for (size_t i = 0; i < journal->count; i++)
		free(journal->entries[i].text);
	free(journal->entries);
	*journal = (struct journal){0};
}

/* --- validators ------------------------------------------------------------------------------ */

char *store_validator_version(struct store *store, const char *api_url)
{
	struct error ignored;
	sqlite3_stmt *query;
	char *version;

	if (database_row(store->database, &query, &ignored, "SELECT version FROM validator WHERE api_url = ?",
		    "s", api_url) <= 0)
		return NULL;
	version = database_copy_text(query, 0);
	sqlite3_reset(query);
	return version;
}

int store_set_validator_version(
	struct store *store, const char *api_url, const char *version, struct error *err)
{
	return database_run(store->database, err,
		"INSERT INTO validator (api_url, version, seen_at) VALUES (?, ?, ?)"
		" ON CONFLICT (api_url) DO UPDATE SET version = excluded.version, seen_at = excluded.seen_at",
		"ssr", api_url, version, clock_now());
}

/* --- copies ------------------------------------------------------------------------------------- */

void *store_save(struct store *store, size_t *length, struct error *err)
{
	return database_save(store->database, length, err);
}

/* A commitment is worth keeping with its very salt only: anything else cannot be revealed. */
static bool is_intact(const struct submission *submission)
{
	if (!submission->api_url || !submission->hotkey || !submission->fork_url || !submission->commit_hash)
		return false;
	return submission->kind == SUBMISSION_DIRECT ||
		message_salt_fits(
			submission->salt, submission_hidden(submission), submission->commitment_hash);
}

/* 1: the store has this submission of another store, as `id`; 0: not; -1: error. One that was taken from the
 * validator's list is known by the id there. */
static int find_known(
	struct store *store, const struct submission *submission, int64_t *id, struct error *err)
{
	sqlite3_stmt *query;
	int found = database_row(store->database, &query, err,
		"SELECT id FROM submission WHERE commitment_hash = ?1 OR (kind = 'direct'"
		" AND api_url = ?2 AND hotkey = ?3 AND ((?1 IS NULL AND created_at = ?4)"
		" OR (server_id = nullif(?5, 0) AND commit_hash = ?6)))"
		" ORDER BY commitment_hash IS NULL LIMIT 1",
		"sssris", submission->commitment_hash, submission->api_url, submission->hotkey,
		submission->created_at, submission->server_id, submission->commit_hash);

	if (found > 0) {
		*id = sqlite3_column_int64(query, 0);
		sqlite3_reset(query);
	}
	return found;
}

/* `how` is what the journal says of it. */
static int copy_submission(struct store *store, const struct submission *submission,
	const struct journal *journal, const char *how, struct error *err)
{
	/* it may have been sent since, from where it comes from */
	double doubt_since = submission->step == STEP_PREPARED && isnan(submission->doubt_since)
		? submission->created_at
		: submission->doubt_since;
	int64_t id;
	int result = database_run(store->database, err,
		"INSERT INTO submission (kind, step, api_url, hotkey, fork_url, commit_hash, repo_hash,"
		" target_sequence_length, tokens_per_sec, vram_mb, benchmarks, salt, commitment_hash, server_id,"
		" reveal_block, reason, created_at, updated_at, docker_image, reveal_time, doubt_since, score, sent_at)"
		" VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, nullif(?, 0), nullif(?, 0), ?, ?, ?, ?, ?, ?, ?, ?)",
		"sssssssirrsssiisrrsrrrr", kind_names[submission->kind], step_names[submission->step],
		submission->api_url, submission->hotkey, submission->fork_url, submission->commit_hash,
		submission->repo_hash, submission->target_sequence_length, submission->tokens_per_sec,
		submission->vram_mb, submission->benchmarks, submission->salt, submission->commitment_hash,
		submission->server_id, submission->reveal_block, submission->reason, submission->created_at,
		submission->updated_at, submission->docker_image, submission->reveal_time, doubt_since,
		submission->score, submission->sent_at);

	id = database_last_id(store->database);
	for (size_t i = 0; !result && i < journal->count; i++)
		result = database_run(store->database, err,
			"INSERT INTO journal (submission, at, text) VALUES (?, ?, ?)", "irs", id,
			journal->entries[i].when, journal->entries[i].text);
	return result ? result : add_journal(store, id, how, err);
}

/* Gives submission `id` the salt of `from`, which is the same one. */
static int copy_salt(
	struct store *store, int64_t id, const struct submission *from, const char *how, struct error *err)
{
	char *line = xprintf("salt %s", how);
	int result = database_run(store->database, err,
		"UPDATE submission SET kind = 'commit', step = iif(step = 'submitted', 'revealed', step),"
		" fork_url = ?, docker_image = ?, salt = ?, commitment_hash = ?,"
		" reveal_block = ifnull(reveal_block, nullif(?, 0)), updated_at = ? WHERE id = ?",
		"ssssiri", from->fork_url, from->docker_image, from->salt, from->commitment_hash,
		from->reveal_block, clock_now(), id);

	if (!result)
		result = add_journal(store, id, line, err);
	free(line);
	return result;
}

/* What became of another store's submission. */
enum take { TAKE_FAILED = -1, TAKE_KNOWN, TAKE_SALT, TAKE_ALL };

/* Brings in what is not here yet: all of it, or the score that was seen of it there, and the salt of one that is
 * known from the validator's list or whose own salt was spoilt. */
static enum take take(struct store *store, const struct submission *from, const struct journal *journal,
	const char *how, struct error *err)
{
	struct submission here;
	int64_t id;
	int known = find_known(store, from, &id, err);
	bool wanting, unjudged;

	if (known == 0)
		return copy_submission(store, from, journal, how, err) < 0 ? TAKE_FAILED : TAKE_ALL;
	if (known < 0 || store_submission_get(store, id, &here, err) < 0)
		return TAKE_FAILED;
	wanting = from->kind == SUBMISSION_COMMIT && is_intact(from) &&
		(here.kind == SUBMISSION_DIRECT || !is_intact(&here));
	unjudged = isnan(here.score) && !isnan(from->score);
	submission_free(&here);
	if (unjudged && write_score(store, id, from->score, err) < 0)
		return TAKE_FAILED;
	if (!wanting)
		return TAKE_KNOWN;
	return copy_salt(store, id, from, how, err) < 0 ? TAKE_FAILED : TAKE_SALT;
}

static int merge(struct store *store, struct store *from, struct store_merge *merged, struct error *err)
{
	struct submission_list list;
	int result = store_submissions(from, NULL, &list, err);

	for (size_t i = 0; !result && i < list.count; i++) {
		const struct submission *submission = &list.items[i];
		struct journal journal;
		enum take taken;

		result = store_journal(from, submission->id, &journal, err);
		taken = result ? TAKE_FAILED : take(store, submission, &journal, "imported", err);
		journal_free(&journal);
		if (taken == TAKE_FAILED)
			result = -1;
		merged->added += taken == TAKE_ALL;
		merged->known += taken == TAKE_KNOWN || taken == TAKE_SALT;
		merged->salts += taken == TAKE_SALT;
		merged->unrevealed += taken == TAKE_ALL && submission->kind == SUBMISSION_COMMIT &&
			(submission->step == STEP_PREPARED || submission->step == STEP_COMMITTED);
	}
	submission_list_free(&list);
	return result;
}

/* All of it, or nothing. */
static int merge_at_once(
	struct store *store, struct store *from, struct store_merge *merged, struct error *err)
{
	int result = database_begin(store->database, err);

	*merged = (struct store_merge){0};
	if (!result)
		result = merge(store, from, merged, err);
	if (!result)
		result = database_commit(store->database, err);
	database_rollback(store->database);
	return result;
}

int store_merge(
	struct store *store, const void *bytes, size_t length, struct store_merge *merged, struct error *err)
{
	static const char name[] = "the exported state";
	struct store from = {.database = database_load(bytes, length, name, &format, err)};
	int result = -1;

	if (from.database && check_content(from.database, name, err) == 0)
		result = merge_at_once(store, &from, merged, err);
	database_close(from.database);
	return result;
}

int store_reopen(struct store **store, const char *directory, struct store_merge *merged, struct error *err)
{
	struct store *here = store_open(directory, err);

	if (!here || merge_at_once(here, *store, merged, err) < 0) {
		store_close(here);
		return -1;
	}
	store_close(*store);
	*store = here;
	return 0;
}

/* --- damage ------------------------------------------------------------------------------------- */

static bool is_damaged(const char *path)
{
	struct stat status;

	return stat(path, &status) == 0 && (status.st_size == 0 || database_damaged(path));
}

static bool is_one_of(const char *const *names, unsigned count, const char *name)
{
	return name && !strcmp(names[name_index(names, count, name)], name);
}

/* 1: it is whole; 0: it is not there; -1: it cannot be read, or makes no sense. */
static int read_damaged(struct store *from, int64_t id, struct submission *submission)
{
	static const char *const queries[] = {"SELECT " SUBMISSION_COLUMNS " FROM submission WHERE id = ?",
		/* of a store from before the later columns */
		"SELECT " OLD_COLUMNS ", NULL FROM submission WHERE id = ?",
		"SELECT " OLDER_COLUMNS ", NULL, NULL FROM submission WHERE id = ?",
		"SELECT " OLDEST_COLUMNS ", NULL, NULL, NULL, NULL, NULL FROM submission WHERE id = ?"};
	struct error ignored;
	sqlite3_stmt *query;
	int found = -1;

	for (size_t i = 0; found < 0 && i < sizeof(queries) / sizeof(queries[0]); i++)
		found = database_row(from->database, &query, &ignored, queries[i], "i", id);
	*submission = (struct submission){0};
	if (found <= 0)
		return found;
	if (is_one_of(kind_names, 2, database_text(query, 1)) &&
		is_one_of(step_names, 6, database_text(query, 2)))
		*submission = read_submission(query);
	sqlite3_reset(query);
	return is_intact(submission) ? 1 : -1;
}

static int keep_submission(struct store *store, struct store *from, const struct submission *submission,
	size_t *taken, struct error *err)
{
	struct journal journal = {0};
	struct error ignored;
	enum take result;

	if (database_begin(store->database, err) < 0)
		return -1;
	/* a journal that cannot be read takes nothing away from the submission */
	store_journal(from, submission->id, &journal, &ignored);
	result = take(store, submission, &journal, "read from a damaged store", err);
	journal_free(&journal);
	if (result != TAKE_FAILED && database_commit(store->database, err) < 0)
		result = TAKE_FAILED;
	database_rollback(store->database);
	*taken += result == TAKE_ALL || result == TAKE_SALT;
	return result == TAKE_FAILED ? -1 : 0;
}

/* The highest id that a submission of the damaged store can have; 0: not even that can be read. */
static int64_t last_submission(struct store *from)
{
	static const char *const queries[] = {"SELECT seq FROM sqlite_sequence WHERE name = 'submission'",
		"SELECT max(id) FROM submission"};
	int64_t last = 0;

	for (size_t i = 0; i < sizeof(queries) / sizeof(queries[0]); i++) {
		struct error ignored;
		sqlite3_stmt *query;

		if (database_row(from->database, &query, &ignored, queries[i], "") <= 0)
			continue;
		if (sqlite3_column_int64(query, 0) > last)
			last = sqlite3_column_int64(query, 0);
		sqlite3_reset(query);
	}
	return last < MOST_SUBMISSIONS ? last : MOST_SUBMISSIONS;
}

static int read_aside(struct store *store, const char *path, struct store_repair *repair, struct error *err)
{
	struct error unreadable;
	struct store from = {.database = database_open_damaged(path, &format, &unreadable)};
	int64_t last = from.database ? last_submission(&from) : 0;
	int result = 0;

	repair->unreadable += !last;
	for (int64_t id = 1; !result && id <= last; id++) {
		struct submission submission;
		int found = read_damaged(&from, id, &submission);

		if (found > 0)
			result = keep_submission(store, &from, &submission, &repair->taken, err);
		repair->lost += found <= 0; /* rows are never deleted: one that is not there went missing */
		submission_free(&submission);
	}
	database_close(from.database);
	return result;
}

/* The names end with the time, so that the log's name beside it is told by its length. */
static int is_set_aside(const struct dirent *entry)
{
	static const char prefix[] = "state.db" ASIDE, time[] = "2026-11-20T18:14:00.123456";

	return !strncmp(entry->d_name, prefix, sizeof(prefix) - 1) &&
		strlen(entry->d_name) == sizeof(prefix) - 1 + sizeof(time) - 1;
}

/* Every store that was ever set aside, the newest first: what one lacks another may have. */
static int read_all_aside(
	struct store *store, const char *folder, struct store_repair *repair, struct error *err)
{
	struct dirent **found = NULL;
	int count = scandir(folder, &found, is_set_aside, alphasort), result = 0;

	if (count < 0)
		return error_set(
			err, STATUS_ENVIRONMENT, "cannot list directory %s: %s", folder, strerror(errno));
	while (count-- > 0) {
		char *path = path_join(folder, found[count]->d_name);

		if (!result)
			result = read_aside(store, path, repair, err);
		free(path);
		free(found[count]);
	}
	free(found);
	return result;
}

int store_repair(const char *directory, struct store_repair *repair, struct error *err)
{
	char *folder = path_join(directory, ".quasar"), *path = store_path(directory);
	struct store *store = NULL;
	int result = 0;

	*repair = (struct store_repair){.missing = !path_exists(path)};
	if (is_damaged(path))
		result = set_aside(path, &repair->aside, err);
	if (!result)
		result = store_create(directory, err);
	if (!result)
		store = store_open(directory, err);
	result = store ? read_all_aside(store, folder, repair, err) : -1;
	store_close(store);
	free(path);
	free(folder);
	return result;
}
