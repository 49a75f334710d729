/* database: durable files, versions, locks */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/database.h"
#include "base/file.h"

static const char *const first_version[] = {"CREATE TABLE t (a INTEGER, b REAL, c TEXT)", NULL};
static const char *const second_version[] = {
	"CREATE TABLE t (a INTEGER, b REAL, c TEXT)", "ALTER TABLE t ADD d TEXT DEFAULT 'new'", NULL};
static const struct database_format format = {
	.what = "a test", .application = 0x7e57, .migrations = first_version};
static const struct database_format newer = {
	.what = "a test", .application = 0x7e57, .migrations = second_version};
static const struct database_format other = {
	.what = "another thing", .application = 0x7e58, .migrations = first_version};

static char directory[64], *path;

static int set_up(void **state)
{
	(void)state;
	strcpy(directory, "/tmp/quasar-database-XXXXXX");
	if (!mkdtemp(directory))
		return -1;
	path = path_join(directory, "x.db");
	return 0;
}

static int tear_down(void **state)
{
	struct error err;

	(void)state;
	free(path);
	return directory_remove(directory, &err);
}

static void what_is_committed_is_there_again(void **state)
{
	struct error err = {0};
	struct database *database = database_open(path, &format, DATABASE_EXCLUSIVE, &err);
	sqlite3_stmt *query;
	struct stat status;

	(void)state;
	assert_non_null(database);
	assert_int_equal(stat(path, &status), 0);
	assert_int_equal(status.st_mode & 0777, 0600);
	assert_int_equal(database_begin(database, &err), 0);
	assert_int_equal(database_run(database, &err, "INSERT INTO t VALUES (?, ?, ?)", "irs",
				 (int64_t)1 << 40, NAN, "kept"),
		0);
	assert_int_equal(database_commit(database, &err), 0);
	assert_int_equal(database_begin(database, &err), 0);
	assert_int_equal(database_run(database, &err, "INSERT INTO t VALUES (2, 2, 'dropped')", ""), 0);
	database_close(database);

	database = database_open(path, &newer, DATABASE_SHARED, &err);
	assert_non_null(database);
	query = database_query(database, &err, "SELECT a, b, c, d FROM t WHERE c = ?", "s", "kept");
	assert_int_equal(database_step(database, query, &err), 1);
	assert_true(sqlite3_column_int64(query, 0) == (int64_t)1 << 40);
	assert_int_equal(sqlite3_column_type(query, 1), SQLITE_NULL);
	assert_string_equal(database_text(query, 2), "kept");
	assert_string_equal(database_text(query, 3), "new");
	assert_int_equal(database_step(database, query, &err), 0);
	assert_int_equal(database_row(database, &query, &err, "SELECT count(*) FROM t", ""), 1);
	assert_int_equal(sqlite3_column_int64(query, 0), 1);
	assert_int_equal(database_run(database, &err, "INSERT INTO missing VALUES (1)", ""), -1);
	assert_non_null(strstr(err.message, "missing"));
	database_close(database);
	assert_null(database_open(path, &format, DATABASE_SHARED, &err)); /* older than the file */
	assert_non_null(strstr(err.message, "newer version"));
}

static void other_files_are_refused(void **state)
{
	struct error err = {0};
	struct database *database = database_open(path, &format, DATABASE_EXCLUSIVE, &err);

	(void)state;
	assert_non_null(database);
	assert_null(database_open(path, &format, DATABASE_EXCLUSIVE, &err));
	assert_non_null(strstr(err.hint, "Another process"));
	database_close(database);

	assert_null(database_open(path, &other, DATABASE_SHARED, &err));
	assert_non_null(strstr(err.message, "is not another thing"));
	assert_int_equal(
		file_write(path, "this is a text, and no database at all", 38, 0600, FILE_REPLACE, &err), 0);
	assert_null(database_open(path, &format, DATABASE_SHARED, &err));
	assert_int_equal(err.status, STATUS_ENVIRONMENT);
	assert_null(database_open("/nonexistent/x.db", &format, DATABASE_SHARED, &err));
	assert_non_null(strstr(err.message, "/nonexistent/x.db"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(what_is_committed_is_there_again, set_up, tear_down),
		cmocka_unit_test_setup_teardown(other_files_are_refused, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
