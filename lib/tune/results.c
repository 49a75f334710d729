#include "tune/results.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/database.h"
#include "base/embed.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "gpu/cache.h"

#define APPLICATION 0x51747565
#define APPLICATION_AT 68 /* bytes into a SQLite file, big endian */
#define FORMAT "quasar tuning results"
#define FORMAT_VERSION 1
#define MOST_RESULTS 100000 /* of a file */

static const char *const migrations[] = {
	"CREATE TABLE tuning ("
	" id INTEGER PRIMARY KEY, at REAL NOT NULL,"
	" device TEXT NOT NULL, driver TEXT NOT NULL, capability INTEGER NOT NULL,"
	" kernel TEXT NOT NULL, source TEXT NOT NULL,"
	" function TEXT NOT NULL, dtype TEXT NOT NULL, sequences INTEGER NOT NULL,"
	" key_dim INTEGER NOT NULL, value_dim INTEGER NOT NULL, length INTEGER NOT NULL,"
	" parameters TEXT NOT NULL, ms REAL, noise REAL, usual_ms REAL,"
	" registers INTEGER NOT NULL, shared_bytes INTEGER NOT NULL, spills INTEGER NOT NULL,"
	" occupancy REAL, limited_by TEXT NOT NULL,"
	" tried INTEGER NOT NULL, failed INTEGER NOT NULL,"
	" complete INTEGER NOT NULL CHECK (complete IN (0, 1)),"
	" imported INTEGER NOT NULL CHECK (imported IN (0, 1)), version TEXT NOT NULL);"
	"CREATE INDEX tuning_by_key ON tuning (kernel, device, source);"
	"CREATE TABLE trial ("
	" tuning INTEGER NOT NULL REFERENCES tuning ON DELETE CASCADE,"
	" parameters TEXT NOT NULL, outcome TEXT NOT NULL, ms REAL, noise REAL, problem TEXT NOT NULL,"
	" PRIMARY KEY (tuning, parameters)) WITHOUT ROWID;",
	"ALTER TABLE tuning ADD COLUMN bytes REAL;"
	"ALTER TABLE tuning ADD COLUMN operations REAL;",
	NULL,
};

static const struct database_format format = {
	.what = "a store of tuning results",
	.application = APPLICATION,
	.migrations = migrations,
};

struct tune_store {
	struct database *database;
};

/* --- the file -------------------------------------------------------------------------------------- */

static char *default_path(void)
{
	char *kernels = cache_directory(), *path;

	*strrchr(kernels, '/') = '\0';
	path = path_join(kernels, "tuning.db");
	free(kernels);
	return path;
}

/* Whether a file says of itself that it is a store of ours. */
static bool is_ours(const char *path)
{
	const uint8_t expected[] = {
		APPLICATION >> 24, APPLICATION >> 16 & 255, APPLICATION >> 8 & 255, APPLICATION & 255};
	uint8_t found[sizeof(expected)];
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	bool whole = fd >= 0 && pread(fd, found, sizeof(found), APPLICATION_AT) == sizeof(found);

	if (fd >= 0)
		close(fd);
	return whole && !memcmp(found, expected, sizeof(found));
}

/* Moves the file out of the way, with the journal that belongs to it. */
static int set_aside(const char *path, const char *why, struct error *err)
{
	char *aside = xprintf("%s.aside-%.0f", path, clock_now()), *journal = xprintf("%s-journal", path);
	char *journal_aside = xprintf("%s-journal", aside);
	int result = 0;

	if (rename(path, aside) < 0)
		result = error_set(err, STATUS_ENVIRONMENT, "%s is %s, and cannot be moved aside", path, why);
	else
		log_warn("%s was %s; it is now %s, and tuning results start anew", path, why, aside);
	if (!result)
		rename(journal, journal_aside); /* mostly there is none */
	free(aside);
	free(journal);
	free(journal_aside);
	return result;
}

static bool has_content(const char *path)
{
	struct stat status;

	return stat(path, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0;
}

static struct database *open_or_replace(const char *path, struct error *err)
{
	if (has_content(path) && access(path, R_OK) == 0) {
		const char *why = !is_ours(path) ? "not a store of tuning results"
			: database_damaged(path) ? "damaged"
						 : NULL;

		if (why && set_aside(path, why, err) < 0)
			return NULL;
	}
	return database_open(path, &format, DATABASE_SHARED, err);
}

struct tune_store *tune_store_open(const char *path, struct error *err)
{
	char *own = path ? xstrdup(path) : default_path(), *folder = xstrdup(own);
	struct database *database = NULL;
	struct tune_store *store = NULL;

	*strrchr(folder, '/') = '\0';
	if (directory_make(folder, 0700, err) < 0)
		error_hint(err, "Tuning results are kept there; XDG_CACHE_HOME chooses another folder.");
	else
		database = open_or_replace(own, err);
	if (database) {
		store = xmalloc(sizeof(*store));
		*store = (struct tune_store){database};
	}
	free(folder);
	free(own);
	return store;
}

int tune_store_find(struct tune_store **store, struct error *err)
{
	char *path = default_path();
	bool exists = has_content(path);

	*store = exists ? tune_store_open(path, err) : NULL;
	free(path);
	return exists && !*store ? -1 : 0;
}

void tune_store_close(struct tune_store *store)
{
	if (store)
		database_close(store->database);
	free(store);
}

/* --- rows ------------------------------------------------------------------------------------------ */

#define COLUMNS                                                                                              \
	"at, device, driver, capability, kernel, source, function, dtype, sequences, key_dim, value_dim,"    \
	" length, parameters, ms, noise, usual_ms, registers, shared_bytes, spills, occupancy, limited_by,"  \
	" tried, failed, complete, imported, version, bytes, operations"
#define VALUES                                                                                               \
	"?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21,"    \
	" ?22, ?23, ?24, ?25, ?26, ?27, ?28"

/* `id` 0: a new row. */
static int put(struct tune_store *store, const struct tune_result *result, struct error *err)
{
	const struct tune_key *key = &result->key;
	const struct shape_class *class = &key->class;

	return database_run(store->database, err,
		"INSERT INTO tuning (" COLUMNS ", id) VALUES (" VALUES ", nullif(?29, 0))"
		" ON CONFLICT (id) DO UPDATE SET at = ?1, parameters = ?13, ms = ?14, noise = ?15,"
		" usual_ms = ?16, registers = ?17, shared_bytes = ?18, spills = ?19, occupancy = ?20,"
		" limited_by = ?21, tried = ?22, failed = ?23, complete = ?24, bytes = ?27, operations = ?28",
		"rssissssiiiisrrriiirsiiiisrri", result->when, key->device, key->driver,
		(int64_t)key->capability, key->kernel, key->source, class->function, dtype_name(class->dtype),
		class->sequences, (int64_t) class->key_dim, (int64_t) class->value_dim,
		(int64_t) class->length, result->parameters, result->ms, result->noise, result->usual_ms,
		(int64_t)result->registers, (int64_t)result->shared_bytes, (int64_t)result->spills,
		result->occupancy, result->limited_by, (int64_t)result->tried, (int64_t)result->failed,
		(int64_t)result->complete, (int64_t)result->imported, result->version, result->bytes,
		result->operations, result->id);
}

static void take_text(sqlite3_stmt *query, int column, char *to, size_t size)
{
	const char *text = database_text(query, column);

	snprintf(to, size, "%s", text ? text : "");
}

/* The type of that name; false when there is none. */
static bool dtype_parse(const char *name, enum dtype *dtype)
{
	for (*dtype = DTYPE_F32; *dtype <= DTYPE_F16; ++*dtype)
		if (!strcmp(name, dtype_name(*dtype)))
			return true;
	return false;
}

/* Of "SELECT id, COLUMNS". */
static void take_row(sqlite3_stmt *query, struct tune_result *result)
{
	struct tune_key *key = &result->key;
	char dtype[8];

	*result = (struct tune_result){
		.id = sqlite3_column_int64(query, 0),
		.when = sqlite3_column_double(query, 1),
		.key.capability = sqlite3_column_int(query, 4),
		.key.class.sequences = sqlite3_column_int64(query, 9),
		.key.class.key_dim = sqlite3_column_int(query, 10),
		.key.class.value_dim = sqlite3_column_int(query, 11),
		.key.class.length = sqlite3_column_int(query, 12),
		.ms = database_real(query, 14),
		.noise = database_real(query, 15),
		.usual_ms = database_real(query, 16),
		.registers = sqlite3_column_int(query, 17),
		.shared_bytes = sqlite3_column_int(query, 18),
		.spills = sqlite3_column_int(query, 19),
		.occupancy = database_real(query, 20),
		.tried = sqlite3_column_int(query, 22),
		.failed = sqlite3_column_int(query, 23),
		.complete = sqlite3_column_int(query, 24),
		.imported = sqlite3_column_int(query, 25),
		.bytes = database_real(query, 27),
		.operations = database_real(query, 28),
	};
	take_text(query, 2, key->device, sizeof(key->device));
	take_text(query, 3, key->driver, sizeof(key->driver));
	take_text(query, 5, key->kernel, sizeof(key->kernel));
	take_text(query, 6, key->source, sizeof(key->source));
	take_text(query, 7, key->class.function, sizeof(key->class.function));
	take_text(query, 8, dtype, sizeof(dtype));
	take_text(query, 13, result->parameters, sizeof(result->parameters));
	take_text(query, 21, result->limited_by, sizeof(result->limited_by));
	take_text(query, 26, result->version, sizeof(result->version));
	dtype_parse(dtype, &key->class.dtype);
}

#define KEY_IS                                                                                               \
	"device = ?1 AND driver = ?2 AND capability = ?3 AND kernel = ?4 AND source = ?5 AND function = ?6"  \
	" AND dtype = ?7 AND sequences = ?8 AND key_dim = ?9 AND value_dim = ?10 AND length = ?11"
#define KEY_TYPES "ssissssiiii"
#define KEY_VALUES(key)                                                                                      \
	(key)->device, (key)->driver, (int64_t)(key)->capability, (key)->kernel, (key)->source,              \
		(key)->class.function, dtype_name((key)->class.dtype), (key)->class.sequences,               \
		(int64_t)(key)->class.key_dim, (int64_t)(key)->class.value_dim, (int64_t)(key)->class.length

int tune_store_begin(struct tune_store *store, struct tune_result *result, struct error *err)
{
	result->id = 0;
	if (put(store, result, err) < 0)
		return -1;
	result->id = database_last_id(store->database);
	return 0;
}

int tune_store_update(struct tune_store *store, const struct tune_result *result, struct error *err)
{
	return put(store, result, err);
}

int tune_store_trial(struct tune_store *store, int64_t id, const char *parameters,
	const struct tune_candidate *candidate, struct error *err)
{
	return database_run(store->database, err,
		"INSERT OR REPLACE INTO trial VALUES (?1, ?2, ?3, ?4, ?5, ?6)", "issrrs", id, parameters,
		tune_outcome_name(candidate->outcome), candidate->seconds * 1e3, candidate->noise,
		candidate->problem);
}

int tune_store_unfinished(
	struct tune_store *store, const struct tune_key *key, struct tune_result *result, struct error *err)
{
	sqlite3_stmt *query;
	int found = database_row(store->database, &query, err,
		"SELECT id, " COLUMNS " FROM (SELECT * FROM tuning WHERE " KEY_IS
		" AND NOT imported ORDER BY id DESC LIMIT 1) WHERE NOT complete",
		KEY_TYPES, KEY_VALUES(key));

	if (found <= 0)
		return found;
	take_row(query, result);
	sqlite3_reset(query);
	return 1;
}

/* Of "SELECT parameters, outcome, ms, noise, problem"; false for an outcome that this version does not know. */
static bool take_trial(sqlite3_stmt *query, struct tune_candidate *candidate)
{
	const char *outcome = database_text(query, 1);

	*candidate = (struct tune_candidate){.seconds = database_real(query, 2) / 1e3,
		.noise = database_real(query, 3),
		.build = TUNE_BUILD_UNKNOWN};
	take_text(query, 4, candidate->problem, sizeof(candidate->problem));
	for (candidate->outcome = TUNE_TIMED; candidate->outcome <= TUNE_FAILED; candidate->outcome++)
		if (!strcmp(outcome, tune_outcome_name(candidate->outcome)))
			return true;
	return false;
}

int tune_store_trials(struct tune_store *store, const struct tune_key *key, int64_t id,
	tune_trial_visit *visit, void *context, struct error *err)
{
	sqlite3_stmt *query = database_query(store->database, err,
		"SELECT trial.parameters, outcome, trial.ms, trial.noise, problem FROM trial"
		" JOIN tuning ON tuning.id = trial.tuning WHERE " KEY_IS
		" AND (tuning.id = ?12 OR outcome = 'failed') ORDER BY trial.tuning",
		KEY_TYPES "i", KEY_VALUES(key), id);
	int found = query ? 1 : -1;

	while (found > 0 && (found = database_step(store->database, query, err)) > 0) {
		struct tune_candidate candidate;

		if (take_trial(query, &candidate))
			visit(context, database_text(query, 0), &candidate);
	}
	return found;
}

static void list_add(struct tune_result_list *list, const struct tune_result *result)
{
	if (!(list->count & (list->count - 1))) /* its room is a power of two, and full */
		list->items = xrealloc(list->items, (list->count ? 2 * list->count : 1) * sizeof(*result));
	list->items[list->count++] = *result;
}

int tune_store_list(struct tune_store *store, bool current, struct tune_result_list *list, struct error *err)
{
	sqlite3_stmt *query = database_query(store->database, err,
		"SELECT id, " COLUMNS " FROM tuning AS own WHERE parameters <> ''"
		" AND (NOT ?1 OR NOT EXISTS (SELECT 1 FROM tuning AS other WHERE parameters <> ''"
		" AND (other.at, other.id) > (own.at, own.id)"
		" AND other.kernel = own.kernel AND other.device = own.device AND other.driver = own.driver"
		" AND other.capability = own.capability AND other.source = own.source"
		" AND other.function = own.function AND other.dtype = own.dtype"
		" AND other.sequences = own.sequences AND other.key_dim = own.key_dim"
		" AND other.value_dim = own.value_dim AND other.length = own.length))"
		" ORDER BY at DESC, id DESC",
		"i", (int64_t)current);
	int found = query ? 1 : -1;

	*list = (struct tune_result_list){0};
	while (found > 0 && (found = database_step(store->database, query, err)) > 0) {
		struct tune_result result;

		take_row(query, &result);
		list_add(list, &result);
	}
	return found;
}

void tune_result_list_free(struct tune_result_list *list)
{
	free(list->items);
	*list = (struct tune_result_list){0};
}

struct tune_row tune_result_row(const struct tune_result *result)
{
	struct tune_row row = {
		.ms = result->ms,
		.error = result->noise,
		.occupancy = result->occupancy,
		.limited_by = result->limited_by[0] ? result->limited_by : NULL,
		.registers = result->registers,
		.shared_bytes = result->shared_bytes,
		.spills = result->spills,
	};

	snprintf(row.kernel, sizeof(row.kernel), "%s", result->key.kernel);
	snprintf(row.parameters, sizeof(row.parameters), "%s", result->parameters);
	return row;
}

int64_t tune_store_forget(struct tune_store *store, int64_t id, struct error *err)
{
	return database_run(store->database, err, "DELETE FROM tuning WHERE id = ?1 OR ?1 = 0", "i", id) < 0
		? -1
		: database_changes(store->database);
}

/* --- in other hands -------------------------------------------------------------------------------- */

static cJSON *result_json(const struct tune_result *result)
{
	const struct tune_key *key = &result->key;
	cJSON *object = cJSON_CreateObject();

	json_add_time(object, "when", result->when);
	cJSON_AddStringToObject(object, "device", key->device);
	cJSON_AddStringToObject(object, "driver", key->driver);
	cJSON_AddNumberToObject(object, "capability", key->capability);
	cJSON_AddStringToObject(object, "kernel", key->kernel);
	cJSON_AddStringToObject(object, "source", key->source);
	cJSON_AddStringToObject(object, "function", key->class.function);
	cJSON_AddStringToObject(object, "dtype", dtype_name(key->class.dtype));
	cJSON_AddNumberToObject(object, "sequences", (double)key->class.sequences);
	cJSON_AddNumberToObject(object, "key_dim", key->class.key_dim);
	cJSON_AddNumberToObject(object, "value_dim", key->class.value_dim);
	cJSON_AddNumberToObject(object, "length", key->class.length);
	cJSON_AddStringToObject(object, "parameters", result->parameters);
	cJSON_AddNumberToObject(object, "ms", result->ms);
	json_add_real(object, "noise", result->noise);
	json_add_real(object, "usual_ms", result->usual_ms);
	json_add_real(object, "bytes", result->bytes);
	json_add_real(object, "operations", result->operations);
	cJSON_AddNumberToObject(object, "registers", result->registers);
	cJSON_AddNumberToObject(object, "shared_bytes", result->shared_bytes);
	cJSON_AddNumberToObject(object, "spills", result->spills);
	json_add_real(object, "occupancy", result->occupancy);
	cJSON_AddStringToObject(object, "limited_by", result->limited_by);
	cJSON_AddNumberToObject(object, "tried", result->tried);
	cJSON_AddNumberToObject(object, "failed", result->failed);
	cJSON_AddBoolToObject(object, "complete", result->complete);
	cJSON_AddStringToObject(object, "version", result->version);
	return object;
}

void tune_results_write(const struct tune_result_list *list, struct buffer *out)
{
	cJSON *document = cJSON_CreateObject(), *items;
	char *text;

	cJSON_AddStringToObject(document, "format", FORMAT);
	cJSON_AddNumberToObject(document, "version", FORMAT_VERSION);
	items = cJSON_AddArrayToObject(document, "results");
	for (size_t i = 0; i < list->count; i++)
		cJSON_AddItemToArray(items, result_json(&list->items[i]));
	text = cJSON_Print(document);
	buffer_text(out, text);
	buffer_text(out, "\n");
	cJSON_free(text);
	cJSON_Delete(document);
}

/* A string of a hostile object that fits and holds nothing but what is seen. */
static int read_text(const cJSON *item, const char *name, char *to, size_t size, struct error *err)
{
	const char *text;
	char *clean;
	bool same;

	if (json_string(item, name, JSON_REQUIRED, &text, err) < 0)
		return -1;
	clean = xstrdup(text);
	text_clean(clean);
	same = !strcmp(clean, text);
	free(clean);
	if (!same || strlen(text) >= size)
		return error_set(err, STATUS_USAGE, "%s is too long, or not plain text", name);
	memcpy(to, text, strlen(text) + 1);
	return 0;
}

static int read_count(
	const cJSON *item, const char *name, int64_t least, int64_t most, int *to, struct error *err)
{
	int64_t value;

	if (json_integer(item, name, JSON_REQUIRED, &value, err) < 0)
		return -1;
	if (value < least || value > most)
		return error_set(err, STATUS_USAGE, "%s is not between %lld and %lld", name, (long long)least,
			(long long)most);
	*to = (int)value;
	return 0;
}

/* A positive time or a part of one; NAN where it may be left out, and is. */
static int read_positive(
	const cJSON *item, const char *name, enum json_need need, double *to, struct error *err)
{
	*to = NAN;
	if (json_real(item, name, need, to, err) < 0)
		return -1;
	return isnan(*to) || (*to >= 0 && *to < 1e12 && (need == JSON_OPTIONAL || *to > 0))
		? 0
		: error_set(err, STATUS_USAGE, "%s is not positive", name);
}

#define NAME_LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_"

bool tune_is_name(const char *text)
{
	return *text && !text[strspn(text, NAME_LETTERS)];
}

/* "NAME=1 OTHER=2" */
static bool is_parameters(const char *text)
{
	int count = 0;

	for (text += strspn(text, " "); *text; text += strspn(text, " "), count++) {
		size_t name = strspn(text, NAME_LETTERS);
		size_t digits = text[name] == '=' ? strspn(text + name + 1, "0123456789") : 0;

		if (!name || !digits || digits > 8 || !strchr(" ", text[name + 1 + digits]))
			return false;
		text += name + 1 + digits;
	}
	return count > 0;
}

static int read_key(const cJSON *item, struct tune_key *key, struct error *err)
{
	int sequences;
	char dtype[8];

	if (read_text(item, "device", key->device, sizeof(key->device), err) < 0 ||
		read_text(item, "driver", key->driver, sizeof(key->driver), err) < 0 ||
		read_count(item, "capability", 10, 999, &key->capability, err) < 0 ||
		read_text(item, "kernel", key->kernel, sizeof(key->kernel), err) < 0 ||
		read_text(item, "source", key->source, sizeof(key->source), err) < 0 ||
		read_text(item, "function", key->class.function, sizeof(key->class.function), err) < 0 ||
		read_text(item, "dtype", dtype, sizeof(dtype), err) < 0 ||
		read_count(item, "sequences", 1, INT32_MAX, &sequences, err) < 0 ||
		read_count(item, "key_dim", 1, 65536, &key->class.key_dim, err) < 0 ||
		read_count(item, "value_dim", 1, 65536, &key->class.value_dim, err) < 0 ||
		read_count(item, "length", 0, 62, &key->class.length, err) < 0)
		return -1;
	key->class.sequences = sequences;
	if (!dtype_parse(dtype, &key->class.dtype))
		return error_set(err, STATUS_USAGE, "dtype \"%s\" is not known", dtype);
	if (!key->device[0] || !key->kernel[0] || strlen(key->source) != sizeof(key->source) - 1 ||
		strspn(key->source, "0123456789abcdef") != sizeof(key->source) - 1)
		return error_set(err, STATUS_USAGE, "device, kernel or source is empty or not whole");
	return 0;
}

static int read_result(const cJSON *item, struct tune_result *result, struct error *err)
{
	const char *when;

	*result = (struct tune_result){.imported = true};
	if (read_key(item, &result->key, err) < 0 ||
		json_string(item, "when", JSON_REQUIRED, &when, err) < 0 ||
		read_text(item, "parameters", result->parameters, sizeof(result->parameters), err) < 0 ||
		read_positive(item, "ms", JSON_REQUIRED, &result->ms, err) < 0 ||
		read_positive(item, "noise", JSON_OPTIONAL, &result->noise, err) < 0 ||
		read_positive(item, "usual_ms", JSON_OPTIONAL, &result->usual_ms, err) < 0 ||
		read_positive(item, "bytes", JSON_OPTIONAL, &result->bytes, err) < 0 ||
		read_positive(item, "operations", JSON_OPTIONAL, &result->operations, err) < 0 ||
		read_count(item, "registers", -1, 255, &result->registers, err) < 0 ||
		read_count(item, "shared_bytes", -1, 1 << 20, &result->shared_bytes, err) < 0 ||
		read_count(item, "spills", -1, 1 << 20, &result->spills, err) < 0 ||
		read_positive(item, "occupancy", JSON_OPTIONAL, &result->occupancy, err) < 0 ||
		read_text(item, "limited_by", result->limited_by, sizeof(result->limited_by), err) < 0 ||
		read_count(item, "tried", 0, INT32_MAX, &result->tried, err) < 0 ||
		read_count(item, "failed", 0, INT32_MAX, &result->failed, err) < 0 ||
		json_bool(item, "complete", JSON_REQUIRED, &result->complete, err) < 0 ||
		read_text(item, "version", result->version, sizeof(result->version), err) < 0)
		return -1;
	if (clock_parse(when, &result->when) < 0)
		return error_set(err, STATUS_USAGE, "when is not a time");
	return is_parameters(result->parameters)
		? 0
		: error_set(err, STATUS_USAGE, "parameters are not numbers with names");
}

static int take_result(const cJSON *item, struct tune_result_list *list, struct error *err)
{
	struct tune_result result;

	if (list->count == MOST_RESULTS)
		return error_set(err, STATUS_USAGE, "there are more than %d of them", MOST_RESULTS);
	if (read_result(item, &result, err) < 0)
		return -1;
	list_add(list, &result);
	return 0;
}

int tune_results_read(const cJSON *document, struct tune_result_list *list, size_t *skipped,
	struct error *problem, struct error *err)
{
	const cJSON *items = NULL, *item;
	const char *name = "";
	int64_t version = 0;

	*list = (struct tune_result_list){0};
	*skipped = 0;
	if (!document || json_string(document, "format", JSON_REQUIRED, &name, err) < 0 ||
		strcmp(name, FORMAT) || json_integer(document, "version", JSON_REQUIRED, &version, err) < 0 ||
		version != FORMAT_VERSION || json_array(document, "results", JSON_REQUIRED, &items, err) < 0)
		return error_set(err, STATUS_USAGE, "this is not a file that `quasar tune --export` wrote");
	cJSON_ArrayForEach (item, items) {
		struct error own;

		if (take_result(item, list, &own) < 0 && !(*skipped)++)
			*problem = own;
	}
	return 0;
}

/* Whether the same result is there: found at the same time for the same key. */
static int is_stored(struct tune_store *store, const struct tune_result *result, struct error *err)
{
	sqlite3_stmt *query;
	int found = database_row(store->database, &query, err,
		"SELECT 1 FROM tuning WHERE " KEY_IS " AND parameters = ?12 AND abs(at - ?13) < 1e-3",
		KEY_TYPES "sr", KEY_VALUES(&result->key), result->parameters, result->when);

	if (found > 0)
		sqlite3_reset(query);
	return found;
}

int64_t tune_store_import(struct tune_store *store, const struct tune_result_list *list, struct error *err)
{
	int64_t added = 0;
	int found = 0;

	if (database_begin(store->database, err) < 0)
		return -1;
	for (size_t i = 0; i < list->count && found >= 0; i++) {
		found = is_stored(store, &list->items[i], err);
		if (found)
			continue;
		found = put(store, &list->items[i], err);
		added++;
	}
	if (found >= 0 && database_commit(store->database, err) == 0)
		return added;
	database_rollback(store->database);
	return -1;
}

/* --- in use ---------------------------------------------------------------------------------------- */

void tune_key_of(const struct gpu_properties *properties, const struct family *family, struct tune_key *key)
{
	snprintf(key->device, sizeof(key->device), "%s", properties->name);
	snprintf(key->driver, sizeof(key->driver), "%s", properties->driver);
	key->capability = properties->capability;
	snprintf(key->kernel, sizeof(key->kernel), "%s", family->configs->kernel);
	kernel_source_hash(family->configs->source, key->source);
}

EMBED(source_shipped, "lib/tune/shipped.json");

/* Whether it is of a family's kernels as they are now. */
static bool is_of_present(const struct tune_result *result)
{
	char source[KERNEL_SOURCE_HASH];

	for (int i = 0; families[i]; i++) {
		const struct family_configs *configs = families[i]->configs;

		if (!configs || strcmp(configs->kernel, result->key.kernel) != 0)
			continue;
		kernel_source_hash(configs->source, source);
		return !strcmp(source, result->key.source);
	}
	return false;
}

void tune_results_shipped(struct tune_result_list *list)
{
	struct tune_result_list all;
	struct error problem, err;
	size_t skipped;
	cJSON *document = cJSON_Parse(source_shipped);

	*list = (struct tune_result_list){0};
	if (tune_results_read(document, &all, &skipped, &problem, &err) < 0 || skipped)
		log_debug("shipped tuning results: %s", skipped ? problem.message : err.message);
	cJSON_Delete(document);
	for (size_t i = 0; i < all.count; i++) {
		all.items[i].shipped = true;
		if (is_of_present(&all.items[i]))
			list_add(list, &all.items[i]);
	}
	tune_result_list_free(&all);
}

/* Puts those of a family to use. */
static void use(const struct tune_result_list *list, const struct gpu_properties *properties,
	const struct family *family)
{
	struct tune_key wanted = {0};

	tune_key_of(properties, family, &wanted);
	for (size_t i = list->count; i > 0; i--) { /* what counts most last */
		const struct tune_result *result = &list->items[i - 1];
		const struct tune_key *key = &result->key;
		struct config config;
		struct error err;

		if (strcmp(key->device, wanted.device) ||
			(!result->shipped && strcmp(key->driver, wanted.driver) != 0) ||
			strcmp(key->kernel, wanted.kernel) || strcmp(key->source, wanted.source) ||
			key->capability != wanted.capability)
			continue;
		if (config_parse(family->configs->parameters, result->parameters, &config, &err) == 0)
			tuned_put(key->device, key->kernel, &key->class, &config);
		else
			log_debug("tuning result %lld: %s", (long long)result->id, err.message);
	}
}

int tune_results_current(struct tune_result_list *list, struct error *err)
{
	struct tune_store *store;
	struct tune_result_list shipped;
	int result = tune_store_find(&store, err);

	*list = (struct tune_result_list){0};
	if (store)
		result = tune_store_list(store, true, list, err);
	tune_store_close(store);
	tune_results_shipped(&shipped);
	for (size_t i = 0; i < shipped.count; i++)
		list_add(list, &shipped.items[i]);
	tune_result_list_free(&shipped);
	return result;
}

void tune_use_results(const struct gpu_properties *properties)
{
	struct tune_result_list list;
	struct error err;

	if (tune_results_current(&list, &err) < 0)
		log_warn("tuning results are not used: %s", err.message);
	for (int i = 0; families[i]; i++)
		if (families[i]->configs)
			use(&list, properties, families[i]);
	tune_result_list_free(&list);
}

/* --- in a fork --------------------------------------------------------------------------------------- */

/* A string of Python's, which takes JSON's. */
static void add_string(struct buffer *out, const char *text)
{
	cJSON *string = cJSON_CreateString(text);
	char *quoted = cJSON_PrintUnformatted(string);

	buffer_text(out, quoted);
	cJSON_free(quoted);
	cJSON_Delete(string);
}

/* ("NVIDIA H200", "upstream", "bfloat16", 64, 8, 16): (64, 2, 3, 4, 2, 49), */
static void add_configuration(struct buffer *out, const struct tune_key *key,
	const struct parameter *parameters, const struct config *config)
{
	static const char *const dtypes[] = {
		[DTYPE_F32] = "float32", [DTYPE_BF16] = "bfloat16", [DTYPE_F16] = "float16"};

	buffer_text(out, "    (");
	add_string(out, key->device);
	buffer_text(out, ", ");
	add_string(out, key->class.function);
	buffer_printf(out, ", \"%s\", %d, %lld, %d): (", dtypes[key->class.dtype], key->class.key_dim,
		(long long)key->class.sequences, key->class.length);
	for (int i = 0; parameters[i].name; i++)
		buffer_printf(out, "%s%d", i ? ", " : "", config->value[i]);
	buffer_text(out, "),\n");
}

/* Whether a result that counts more is for the same GPU, by its name, and class. */
static bool is_outdated(const struct tune_result_list *list, size_t index)
{
	const struct tune_key *key = &list->items[index].key;

	for (size_t i = 0; i < index; i++) {
		const struct tune_key *newer = &list->items[i].key;

		if (!strcmp(key->device, newer->device) && !strcmp(key->kernel, newer->kernel) &&
			!strcmp(key->source, newer->source) && shape_class_equal(&key->class, &newer->class))
			return true;
	}
	return false;
}

size_t tune_fork_file(
	const struct tune_result_list *list, const char *header, const char *kernels_hash, struct buffer *out)
{
	const struct family_configs *configs = families[0]->configs; /* a fork has the first one's kernels */
	const char *end = strstr(header, "\nKERNELS = ");
	size_t count = 0, before = out->length;
	char source[KERNEL_SOURCE_HASH];

	kernel_source_hash(configs->source, source);
	buffer_append(out, header, end ? (size_t)(end - header) + 1 : strlen(header));
	buffer_printf(out, "KERNELS = \"%s\"\nCONFIGURATIONS = {\n", kernels_hash);
	for (size_t i = 0; i < list->count; i++) {
		const struct tune_result *result = &list->items[i];
		struct config config;
		struct error none;

		if (strcmp(result->key.kernel, configs->kernel) || strcmp(result->key.source, source) ||
			is_outdated(list, i) ||
			config_parse(configs->parameters, result->parameters, &config, &none) < 0)
			continue;
		add_configuration(out, &result->key, configs->parameters, &config);
		count++;
	}
	buffer_text(out, "}\n");
	if (!count)
		out->length = before;
	return count;
}
