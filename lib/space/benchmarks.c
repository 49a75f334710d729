#include "space/benchmarks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "space/store_private.h"

/* Older stores have the device's description only, and one word for whose code it was. What is not known to have
 * run on a CPU is taken for a GPU's: from that less may be claimed. */
const char benchmarks_table[] =
	"CREATE TABLE benchmark ("
	" id INTEGER PRIMARY KEY, at REAL NOT NULL,"
	" code TEXT NOT NULL CHECK (code IN ('fork', 'native')),"
	" operation TEXT, semantics TEXT NOT NULL, weights TEXT,"
	" device_kind TEXT NOT NULL CHECK (device_kind IN ('cpu', 'cuda')),"
	" device_index INTEGER, device_name TEXT NOT NULL,"
	" seq INTEGER NOT NULL, runs INTEGER NOT NULL,"
	" tokens_per_sec REAL NOT NULL, spread REAL NOT NULL, memory_mb REAL,"
	" fork_commit TEXT, version TEXT NOT NULL,"
	" CHECK ((device_kind = 'cuda') = (device_index IS NOT NULL)));"
	"CREATE INDEX benchmark_by_commit ON benchmark (fork_commit);"

	"INSERT INTO benchmark SELECT id, at,"
	" iif(what = 'python', 'fork', 'native'),"
	" CASE what WHEN 'python' THEN NULL WHEN 'layer' THEN NULL WHEN 'op' THEN 'quasar'"
	"  ELSE substr(what, 1 + length('op.')) END,"
	" semantics, NULL,"
	" iif(device LIKE 'cpu%', 'cpu', 'cuda'),"
	" iif(device LIKE 'cpu%', NULL, CAST(substr(device, 1 + length('cuda:')) AS INTEGER)), device,"
	" seq, runs, tokens_per_sec, spread, memory_mb, fork_commit, version FROM bench;"
	"DROP TABLE bench;";

/* Older benchmarks were made from commits alone: what ran of uncommitted files was stored without one. */
const char benchmarks_noise[] =
	"ALTER TABLE benchmark ADD COLUMN dirty INTEGER NOT NULL DEFAULT 0 CHECK (dirty IN (0, 1));"
	"ALTER TABLE benchmark ADD COLUMN noise REAL;";

static const char *const codes[] = {[BENCHMARK_FORK] = "fork", [BENCHMARK_NATIVE] = "native"};

#define COLUMNS                                                                                              \
	"at, code, operation, semantics, weights, device_kind, device_index, device_name, seq, runs,"        \
	" tokens_per_sec, spread, memory_mb, fork_commit, version, dirty, noise"

int benchmark_insert(struct store *store, const struct benchmark *benchmark, struct error *err)
{
	bool on_gpu = benchmark->device == BENCHMARK_CUDA;

	return database_run(store->database, err,
		"INSERT INTO benchmark (" COLUMNS
		") VALUES (?1, ?2, ?3, ?4, ?5, iif(?6, 'cuda', 'cpu'), iif(?6, ?7, NULL),"
		" ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)",
		"rssssiisiirrrssir", benchmark->when, codes[benchmark->code], benchmark->operation,
		benchmark->semantics, benchmark->weights, (int64_t)on_gpu, (int64_t)benchmark->device_index,
		benchmark->device_name, benchmark->seq, (int64_t)benchmark->runs, benchmark->tokens_per_sec,
		benchmark->spread, benchmark->memory_mb, benchmark->fork_commit, benchmark->version,
		(int64_t)benchmark->dirty, benchmark->noise);
}

static struct benchmark read_row(sqlite3_stmt *query)
{
	return (struct benchmark){
		.id = sqlite3_column_int64(query, 0),
		.when = sqlite3_column_double(query, 1),
		.code = strcmp(database_text(query, 2), codes[BENCHMARK_FORK]) ? BENCHMARK_NATIVE
									       : BENCHMARK_FORK,
		.operation = database_copy_text(query, 3),
		.semantics = database_copy_text(query, 4),
		.weights = database_copy_text(query, 5),
		.device = strcmp(database_text(query, 6), "cpu") ? BENCHMARK_CUDA : BENCHMARK_CPU,
		.device_index = sqlite3_column_int(query, 7),
		.device_name = database_copy_text(query, 8),
		.seq = sqlite3_column_int64(query, 9),
		.runs = sqlite3_column_int(query, 10),
		.tokens_per_sec = sqlite3_column_double(query, 11),
		.spread = sqlite3_column_double(query, 12),
		.memory_mb = database_real(query, 13),
		.fork_commit = database_copy_text(query, 14),
		.version = database_copy_text(query, 15),
		.dirty = sqlite3_column_int(query, 16),
		.noise = database_real(query, 17),
	};
}

int benchmark_list(struct store *store, const struct benchmark_filter *filter, size_t limit,
	struct benchmark_list *list, struct error *err)
{
	static const struct benchmark anything;
	const struct benchmark *like = filter->like ? filter->like : &anything;
	sqlite3_stmt *query = database_query(store->database, err,
		"SELECT id, " COLUMNS " FROM benchmark WHERE (?1 IS NULL OR fork_commit = ?1) AND (NOT ?2 OR"
		" (code = ?3 AND operation IS ?4 AND semantics = ?5 AND weights IS ?6 AND seq = ?7"
		" AND device_name = ?8))"
		" ORDER BY id DESC LIMIT ?9",
		"sissssisi", filter->fork_commit, (int64_t)(filter->like != NULL), codes[like->code],
		like->operation, like->semantics, like->weights, like->seq, like->device_name,
		limit ? (int64_t)limit : INT64_C(-1));
	int found = query ? 1 : -1;

	*list = (struct benchmark_list){0};
	while (found > 0 && (found = database_step(store->database, query, err)) > 0) {
		if (!(list->count & (list->count - 1))) /* a power of two: it is full */
			list->items = xrealloc(list->items, (2 * list->count + 1) * sizeof(*list->items));
		list->items[list->count++] = read_row(query);
	}
	if (found < 0)
		benchmark_list_free(list);
	return found;
}

void benchmark_list_free(struct benchmark_list *list)
{
	for (size_t i = 0; i < list->count; i++) {
		struct benchmark *benchmark = &list->items[i];

		free(benchmark->operation);
		free(benchmark->semantics);
		free(benchmark->weights);
		free(benchmark->device_name);
		free(benchmark->fork_commit);
		free(benchmark->version);
	}
	free(list->items);
	*list = (struct benchmark_list){0};
}

static double noise_of(const struct benchmark *benchmark)
{
	return isnan(benchmark->noise) ? benchmark->spread : benchmark->noise;
}

struct benchmark_change benchmark_compare(const struct benchmark *now, const struct benchmark *then)
{
	struct benchmark_change change = {
		.change = now->tokens_per_sec / then->tokens_per_sec - 1,
		.noise = noise_of(now) + noise_of(then),
	};

	change.real = fabs(change.change) > change.noise;
	return change;
}

const struct benchmark *benchmark_best(const struct benchmark_list *list)
{
	const struct benchmark *best = NULL;

	for (size_t i = 0; i < list->count; i++)
		if (!best || list->items[i].tokens_per_sec > best->tokens_per_sec)
			best = &list->items[i];
	return best;
}
