/* benchmarks and claims: what was measured is kept, and what may be claimed from it */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <sodium.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/memory.h"
#include "space/benchmarks.h"
#include "space/claim.h"
#include "directory.h"

#define COMMIT "0123456789abcdef0123456789abcdef01234567"
#define OTHER "89abcdef0123456789abcdef0123456789abcdef"
#define TARGET 4096

/* --- the store ----------------------------------------------------------------------------------- */

static struct store *open_store(const char *directory)
{
	struct error err = {0};
	struct store *store = store_open(directory, &err);

	if (!store)
		fail_msg("%s", err.message);
	return store;
}

static struct store *make_store(const char *directory)
{
	struct error err = {0};

	if (store_create(directory, &err) < 0)
		fail_msg("%s", err.message);
	return open_store(directory);
}

/* The fork's layer on a GPU; a test changes what it is about. */
static struct benchmark measured(double tokens_per_sec)
{
	return (struct benchmark){
		.when = 1.5,
		.code = BENCHMARK_FORK,
		.semantics = (char *)"",
		.device = BENCHMARK_CUDA,
		.device_index = 1,
		.device_name = (char *)"cuda:1 (NVIDIA H200)",
		.seq = TARGET,
		.runs = 30,
		.tokens_per_sec = tokens_per_sec,
		.spread = 0.01,
		.noise = 0.005,
		.memory_mb = 512,
		.fork_commit = (char *)COMMIT,
		.version = (char *)"0.1.0",
	};
}

static struct benchmark native(double tokens_per_sec, enum benchmark_device device)
{
	struct benchmark benchmark = measured(tokens_per_sec);

	benchmark.code = BENCHMARK_NATIVE;
	benchmark.semantics = (char *)"upstream";
	benchmark.device = device;
	benchmark.device_index = 0;
	benchmark.device_name = (char *)(device == BENCHMARK_CPU ? "cpu (EPYC)" : "cuda:0 (NVIDIA H200)");
	return benchmark;
}

static void insert(struct store *store, struct benchmark benchmark)
{
	struct error err = {0};

	if (benchmark_insert(store, &benchmark, &err) < 0)
		fail_msg("%s", err.message);
}

static struct benchmark_list list_of(struct store *store, struct benchmark_filter filter, size_t limit)
{
	struct benchmark_list list;
	struct error err = {0};

	if (benchmark_list(store, &filter, limit, &list, &err) < 0)
		fail_msg("%s", err.message);
	return list;
}

static size_t count_like(struct store *store, struct benchmark like)
{
	struct benchmark_list list = list_of(store, (struct benchmark_filter){.like = &like}, 0);
	size_t count = list.count;

	benchmark_list_free(&list);
	return count;
}

static void a_benchmark_is_kept_as_it_was(void **state)
{
	struct store *store = make_store(*state);
	struct benchmark operation = native(7, BENCHMARK_CPU);
	struct benchmark_list list;

	operation.operation = (char *)"linear";
	operation.weights = (char *)"layer.safetensors";
	operation.memory_mb = operation.noise = NAN;
	operation.fork_commit = NULL;
	operation.dirty = true;
	insert(store, measured(1000));
	insert(store, operation);
	list = list_of(store, (struct benchmark_filter){0}, 0);
	assert_int_equal(list.count, 2); /* the newest first */
	assert_true(list.items[0].id > list.items[1].id);
	assert_string_equal(list.items[0].operation, "linear");
	assert_string_equal(list.items[0].semantics, "upstream");
	assert_string_equal(list.items[0].weights, "layer.safetensors");
	assert_int_equal(list.items[0].code, BENCHMARK_NATIVE);
	assert_int_equal(list.items[0].device, BENCHMARK_CPU);
	assert_true(isnan(list.items[0].memory_mb));
	assert_null(list.items[0].fork_commit);
	assert_true(isnan(list.items[0].noise) && list.items[0].dirty);
	assert_true(list.items[1].noise == 0.005 && !list.items[1].dirty);
	assert_int_equal(list.items[1].code, BENCHMARK_FORK);
	assert_int_equal(list.items[1].device, BENCHMARK_CUDA);
	assert_int_equal(list.items[1].device_index, 1);
	assert_string_equal(list.items[1].device_name, "cuda:1 (NVIDIA H200)");
	assert_null(list.items[1].operation);
	assert_null(list.items[1].weights);
	assert_true(list.items[1].when == 1.5 && list.items[1].tokens_per_sec == 1000);
	assert_true(list.items[1].spread == 0.01 && list.items[1].memory_mb == 512);
	assert_int_equal(list.items[1].seq, TARGET);
	assert_int_equal(list.items[1].runs, 30);
	assert_string_equal(list.items[1].fork_commit, COMMIT);
	assert_string_equal(list.items[1].version, "0.1.0");
	benchmark_list_free(&list);
	store_close(store);
}

static void benchmarks_are_found_by_what_was_measured(void **state)
{
	struct store *store = make_store(*state);
	struct benchmark other = native(3, BENCHMARK_CUDA);
	struct benchmark_list list;

	insert(store, measured(1));
	insert(store, native(2, BENCHMARK_CPU));
	other.fork_commit = (char *)OTHER;
	insert(store, other);
	assert_int_equal(count_like(store, measured(0)), 1);
	assert_int_equal(count_like(store, native(0, BENCHMARK_CPU)), 1);
	assert_int_equal(count_like(store, native(0, BENCHMARK_CUDA)), 1); /* of whatever commit */
	other = native(0, BENCHMARK_CPU);
	other.semantics = (char *)"causal";
	assert_int_equal(count_like(store, other), 0);
	other = native(0, BENCHMARK_CPU);
	other.operation = (char *)"quasar";
	assert_int_equal(count_like(store, other), 0);
	other = native(0, BENCHMARK_CPU);
	other.weights = (char *)"mine";
	assert_int_equal(count_like(store, other), 0);
	other = native(0, BENCHMARK_CPU);
	other.seq++;
	assert_int_equal(count_like(store, other), 0);
	list = list_of(store, (struct benchmark_filter){.fork_commit = COMMIT}, 0);
	assert_int_equal(list.count, 2);
	benchmark_list_free(&list);
	list = list_of(store, (struct benchmark_filter){.fork_commit = COMMIT}, 1);
	assert_int_equal(list.count, 1);
	assert_true(list.items[0].tokens_per_sec == 2);
	benchmark_list_free(&list);
	store_close(store);
}

/* A store as the first version wrote it: the words of its schema, and rows. */
static const char first_version[] =
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
	"CREATE INDEX bench_by_seq ON bench (seq);"
	"PRAGMA application_id = 1364416340; PRAGMA user_version = 1;"

	"INSERT INTO submission VALUES (7, 'commit', 'committed', 'http://localhost:8000', '5Hotkey',"
	" 'https://github.com/you/fork', '" COMMIT "', NULL, 4096, 970.0, NULL, NULL, 'the salt', 'the hash',"
	" 3, 100, NULL, 1.0, 2.0);"
	"INSERT INTO journal VALUES (1, 7, 1.0, 'prepared');"
	"INSERT INTO bench VALUES"
	" (1, 1.5, 'cpu (AMD EPYC 7763, 2 threads)', 'layer', 'upstream', 4096, 10, 100.0, 0.1, NULL, '" COMMIT
	"', '0.1.0'),"
	" (2, 2.5, 'cuda:3 (NVIDIA H200, 132 multiprocessors, 140 GiB)', 'layer', 'upstream', 4096, 10, 9000.0, 0.1, 5.0,"
	"  '" COMMIT "', '0.1.0'),"
	" (3, 3.5, 'cuda:12 (NVIDIA H200)', 'python', '', 4096, 30, 1000.0, 0.1, 6.0, '" COMMIT "', '0.1.0'),"
	" (4, 4.5, 'cpu (x)', 'op', 'causal', 64, 1, 5.0, 0.1, 7.0, NULL, '0.1.0'),"
	" (5, 5.5, 'cpu (x)', 'op.linear', 'causal,relu,normalised', 64, 1, 6.0, 0.1, 7.0, NULL, '0.1.0'),"
	" (6, 6.5, 'Tesla T4', 'layer', 'upstream', 4096, 1, 7.0, 0.1, 7.0, '" COMMIT "', '0.1.0');";

/* What the second version did to it, and a row of its own. */
static const char second_version[] =
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
	"DROP TABLE bench;"
	"PRAGMA user_version = 2;"
	"INSERT INTO benchmark VALUES (9, 1.5, 'fork', NULL, '', NULL, 'cuda', 1, 'cuda:1 (NVIDIA H200)', 4096, 30,"
	" 1000.0, 0.01, 512.0, '" COMMIT "', '0.1.0');";

static void write_store(const char *directory, const char *const *scripts, size_t count)
{
	char *folder = path_join(directory, ".quasar"), *path = path_join(folder, "state.db");
	struct error err;
	sqlite3 *database;

	assert_int_equal(directory_make(folder, 0700, &err), 0);
	assert_int_equal(sqlite3_open(path, &database), SQLITE_OK);
	for (size_t i = 0; i < count; i++)
		if (sqlite3_exec(database, scripts[i], NULL, NULL, NULL) != SQLITE_OK)
			fail_msg("%s", sqlite3_errmsg(database));
	sqlite3_close(database);
	assert_int_equal(chmod(path, 0600), 0);
	free(path);
	free(folder);
}

static void a_store_of_the_first_version_is_brought_up_to_date(void **state)
{
	static const struct {
		enum benchmark_code code;
		enum benchmark_device device;
		int index;
		const char *operation;
	} expected[] = {
		{BENCHMARK_NATIVE, BENCHMARK_CPU, 0, NULL}, {BENCHMARK_NATIVE, BENCHMARK_CUDA, 3, NULL},
		{BENCHMARK_FORK, BENCHMARK_CUDA, 12, NULL}, {BENCHMARK_NATIVE, BENCHMARK_CPU, 0, "quasar"},
		{BENCHMARK_NATIVE, BENCHMARK_CPU, 0, "linear"},
		{BENCHMARK_NATIVE, BENCHMARK_CUDA, 0,
			NULL}, /* not known, so of the kind that nothing is claimed from */
	};
	enum { ROWS = sizeof(expected) / sizeof(expected[0]) };
	struct submission_list submissions;
	struct benchmark_list list;
	struct error err = {0};
	struct store *store;

	write_store(*state, (const char *const[]){first_version}, 1);
	store_close(open_store(*state)); /* and a second time, when there is nothing to do */
	store = open_store(*state);
	list = list_of(store, (struct benchmark_filter){0}, 0);
	assert_int_equal(list.count, ROWS);
	for (size_t i = 0; i < ROWS; i++) {
		const struct benchmark *row = &list.items[ROWS - 1 - i];

		assert_int_equal(row->id, i + 1);
		assert_int_equal(row->code, expected[i].code);
		assert_int_equal(row->device, expected[i].device);
		assert_int_equal(row->device_index, expected[i].index);
		if (expected[i].operation)
			assert_string_equal(row->operation, expected[i].operation);
		else
			assert_null(row->operation);
		assert_null(row->weights);
		assert_true(!row->dirty && isnan(row->noise));
		assert_true(row->when == i + 1.5);
	}
	assert_true(isnan(list.items[ROWS - 1].memory_mb) && list.items[0].memory_mb == 7);
	assert_string_equal(list.items[1].semantics, "causal,relu,normalised");
	assert_string_equal(list.items[4].device_name, "cuda:3 (NVIDIA H200, 132 multiprocessors, 140 GiB)");
	assert_string_equal(list.items[5].fork_commit, COMMIT);
	benchmark_list_free(&list);

	assert_int_equal(store_submissions(store, NULL, &submissions, &err), 0);
	assert_int_equal(submissions.count, 1);
	assert_int_equal(submissions.items[0].id, 7);
	assert_string_equal(submissions.items[0].salt, "the salt");
	submission_list_free(&submissions);
	insert(store, measured(1));
	store_close(store);
}

static void a_store_of_the_second_version_is_brought_up_to_date(void **state)
{
	struct benchmark_list list;
	struct benchmark dirty = measured(1);
	struct store *store;

	write_store(*state, (const char *const[]){first_version, second_version}, 2);
	store_close(open_store(*state));
	store = open_store(*state);
	dirty.dirty = true;
	insert(store, dirty);
	list = list_of(store, (struct benchmark_filter){0}, 0);
	assert_int_equal(list.count, 2);
	assert_true(list.items[0].dirty && list.items[0].noise == 0.005);
	assert_int_equal(list.items[1].id, 9);
	assert_true(
		!list.items[1].dirty && isnan(list.items[1].noise) && list.items[1].tokens_per_sec == 1000);
	assert_string_equal(list.items[1].fork_commit, COMMIT);
	benchmark_list_free(&list);
	store_close(store);
}

/* --- changes ------------------------------------------------------------------------------------- */

static void expect_change(double then, double now, double noise_then, double noise_now, bool real)
{
	struct benchmark before = measured(then), after = measured(now);
	struct benchmark_change change;

	before.noise = noise_then;
	before.spread = 0.1; /* counts where the noise is not known */
	after.noise = noise_now;
	change = benchmark_compare(&after, &before);
	assert_true(fabs(change.change - (now / then - 1)) < 1e-12);
	assert_int_equal(change.real, real);
}

static void a_change_is_held_against_the_noise_of_both(void **state)
{
	(void)state;
	expect_change(1000, 1020, 0.005, 0.005, true);
	expect_change(1000, 980, 0.005, 0.005, true);
	expect_change(1000, 1020, 0.005, 0.02, false);
	expect_change(1000, 1020, 0.02, 0.005, false);
	expect_change(1000, 1000, 0, 0, false);
	expect_change(1000, 1090, NAN, 0.005, false);
	expect_change(1000, 1110, NAN, 0.005, true);
}

static void the_best_is_the_fastest(void **state)
{
	struct benchmark items[] = {measured(2), measured(5), measured(5), measured(3)};

	(void)state;
	assert_ptr_equal(benchmark_best(&(struct benchmark_list){items, 4}), &items[1]);
	assert_null(benchmark_best(&(struct benchmark_list){items, 0}));
}

/* --- the rule ------------------------------------------------------------------------------------ */

#define MOST_BENCHMARKS 4

static bool rehearsal; /* each test says so itself, and forgets it */

/* What claim_make() says of up to four benchmarks, the newest first. */
static int make(const struct benchmark *benchmarks, size_t count, struct claim *claim, struct error *err)
{
	struct benchmark items[MOST_BENCHMARKS];
	const struct benchmark_list list = {items, count};

	assert_true(count <= MOST_BENCHMARKS);
	for (size_t i = 0; i < count; i++)
		items[i] = benchmarks[i];
	*err = (struct error){0};
	return claim_make(&list,
		&(struct claim_terms){COMMIT, TARGET, .margin = 0.03, .rehearsal = rehearsal}, claim, err);
}

static void expect_claim(const struct benchmark *benchmarks, size_t count, double median)
{
	struct claim claim;
	struct error err;

	if (make(benchmarks, count, &claim, &err) < 0)
		fail_msg("%s", err.message);
	assert_true(claim.measured == median);
	assert_true(claim.tokens_per_sec == floor(median * 0.97) && claim.margin == 0.03);
	claim_free(&claim);
}

static void expect_none(const struct benchmark *benchmarks, size_t count, const char *why)
{
	struct claim claim;
	struct error err;

	assert_int_equal(make(benchmarks, count, &claim, &err), -1);
	assert_int_equal(err.status, STATUS_ENVIRONMENT);
	if (!strstr(err.message, why) || !strstr(err.hint, "quasar bench --seq 4096"))
		fail_msg("%s (%s)", err.message, err.hint);
	assert_true(claim.tokens_per_sec == 0 && claim.measured == 0 && isnan(claim.memory_mb));
	claim_free(&claim);
}

/* All that a claim can rest on, every subset of it: the best one that is there counts, whatever its speed
 * and its age. */
static void the_best_basis_counts(void **state)
{
	const struct benchmark fork_on_gpu = measured(2000), native_on_cpu = native(900, BENCHMARK_CPU);
	struct benchmark fork_on_cpu = measured(100);

	(void)state;
	fork_on_cpu.device = BENCHMARK_CPU;
	rehearsal = true;
	for (int there = 1; there < 8; there++) {
		struct benchmark newest_first[3], oldest_first[3];
		int count = 0;

		if (there & 1)
			newest_first[count++] = native_on_cpu;
		if (there & 2)
			newest_first[count++] = fork_on_cpu;
		if (there & 4)
			newest_first[count++] = fork_on_gpu;
		for (int i = 0; i < count; i++)
			oldest_first[i] = newest_first[count - 1 - i];
		expect_claim(newest_first, count, there & 4 ? 2000 : there & 2 ? 100 : 900);
		expect_claim(oldest_first, count, there & 4 ? 2000 : there & 2 ? 100 : 900);
	}
	rehearsal = false;
}

/* Quasar's layer stands in on the CPU of a rehearsal, and says so; elsewhere nothing rests on it. */
static void quasars_layer_counts_in_a_rehearsal_alone(void **state)
{
	const struct benchmark on_cpu = native(900, BENCHMARK_CPU), on_gpu = native(900, BENCHMARK_CUDA);
	const struct benchmark forks = measured(800);
	struct claim claim;
	struct error err;

	(void)state;
	expect_none(&on_cpu, 1, "only of quasar's own layer, which validators do not run");
	rehearsal = true;
	expect_none(&on_gpu, 1, "only of quasar's own layer, which validators do not run");
	assert_int_equal(make(&on_cpu, 1, &claim, &err), 0);
	assert_true(claim.stands_in && claim.tokens_per_sec == 873);
	claim_free(&claim);
	assert_int_equal(make(&forks, 1, &claim, &err), 0);
	assert_false(claim.stands_in);
	claim_free(&claim);
	rehearsal = false;
}

static void uncommitted_files_do_not_count(void **state)
{
	struct benchmark benchmarks[] = {measured(9000), measured(1000)};

	(void)state;
	benchmarks[0].dirty = true;
	expect_none(benchmarks, 1, "only with changes that are not committed");
	expect_claim(benchmarks, 2, 1000);
}

static void expect_margin(double spread, double margin)
{
	struct benchmark benchmarks[] = {measured(1000), measured(1000)};
	struct claim claim;
	struct error err;

	benchmarks[0].spread = spread;
	benchmarks[1].spread = 0.5; /* an older one does not count */
	assert_int_equal(make(benchmarks, 2, &claim, &err), 0);
	assert_true(fabs(claim.margin - margin) < 1e-12 && claim.measured == 1000);
	assert_true(claim.tokens_per_sec == floor(1000 * (1 - claim.margin)));
	claim_free(&claim);
}

static void a_spread_beyond_the_margin_widens_it(void **state)
{
	(void)state;
	expect_margin(0, 0.03);
	expect_margin(0.03, 0.03);
	expect_margin(0.05, 0.05 / 1.05);
	expect_margin(0.25, 0.2); /* a run that takes 1.25 times as long does 0.8 of the speed */
	expect_margin(1, 0.5);
	expect_margin(9, 0.9);
}

static void the_newest_counts(void **state)
{
	const struct benchmark benchmarks[] = {measured(500), measured(1000)};

	(void)state;
	expect_claim(benchmarks, 2, 500);
}

static void what_validators_do_not_run_does_not_count(void **state)
{
	struct benchmark other[MOST_BENCHMARKS] = {native(9000, BENCHMARK_CUDA), native(9000, BENCHMARK_CPU),
		native(9000, BENCHMARK_CPU), native(9000, BENCHMARK_CPU)};
	struct benchmark with_ours[2] = {[1] = measured(1000)};

	(void)state;
	other[1].semantics = (char *)"causal";
	other[2].weights = (char *)"small.safetensors";
	other[3].operation = (char *)"quasar";
	rehearsal = true;
	expect_none(&other[0], 1, "which validators do not run");
	expect_none(&other[1], 1, "other semantics or weights");
	expect_none(&other[2], 1, "other semantics or weights");
	expect_none(&other[3], 1, "an operation by itself");
	expect_none(other, MOST_BENCHMARKS, "which validators do not run");
	for (int i = 0; i < MOST_BENCHMARKS; i++) {
		with_ours[0] = other[i];
		expect_claim(with_ours, 2, 1000);
	}
	rehearsal = false;
}

/* The description is for people: no claim hangs on its words. */
static void the_words_of_a_description_mean_nothing(void **state)
{
	struct benchmark on_gpu = native(9000, BENCHMARK_CUDA), on_cpu = native(900, BENCHMARK_CPU);

	(void)state;
	on_gpu.device_name = (char *)"cpu (by name)";
	on_cpu.device_name = (char *)"cuda:0 (by name)";
	rehearsal = true;
	expect_none(&on_gpu, 1, "which validators do not run");
	expect_claim(&on_cpu, 1, 900);
	rehearsal = false;
}

static void other_commits_and_lengths_do_not_count(void **state)
{
	struct benchmark benchmarks[] = {measured(1), measured(2), measured(3)};

	(void)state;
	benchmarks[0].fork_commit = (char *)OTHER;
	benchmarks[1].fork_commit = NULL;
	benchmarks[2].seq = 2 * TARGET;
	expect_none(benchmarks, 3, "has no benchmark at 4096 tokens to make a claim from");
	expect_none(NULL, 0, "has no benchmark at 4096 tokens to make a claim from");
}

static void nothing_is_claimed_from_less_than_a_token_a_second(void **state)
{
	const struct benchmark crawling = measured(0.5);
	struct claim claim;
	struct error err;

	(void)state;
	assert_int_equal(make(&crawling, 1, &claim, &err), -1);
	assert_true(claim.tokens_per_sec == 0);
	assert_non_null(strstr(err.message, "nothing is left to claim of the 0.5 tokens/s measured"));
	claim_free(&claim);
}

/* `sent` is what goes to the validator beside the claim. */
static void expect_sent(const struct claim *claim, const char *sent)
{
	char *text = cJSON_PrintUnformatted(claim->benchmarks);

	assert_string_equal(text, sent);
	cJSON_free(text);
}

static void what_is_sent_is_of_one_kind(void **state)
{
	struct benchmark benchmarks[] = {
		measured(1000), measured(3000), native(5000, BENCHMARK_CPU), measured(800)};
	struct claim claim;
	struct error err;

	(void)state;
	benchmarks[0].memory_mb = NAN;
	benchmarks[1].seq = 512;
	benchmarks[2].seq = 1024; /* quasar's: not sent with the fork's */
	benchmarks[3].spread = 0.2;
	assert_int_equal(make(benchmarks, 4, &claim, &err), 0);
	assert_true(claim.spread == 0.2);
	assert_true(isnan(claim.memory_mb));
	expect_sent(&claim,
		"{\"4096\":{\"tokens_per_sec\":1000},\"512\":{\"tokens_per_sec\":3000,\"vram_mb\":512}}");
	claim_free(&claim);

	/* without one at the target length they still go with a claim by hand */
	assert_int_equal(make(&benchmarks[1], 2, &claim, &err), -1);
	expect_sent(&claim, "{\"512\":{\"tokens_per_sec\":3000,\"vram_mb\":512}}");
	claim_free(&claim);
	assert_int_equal(make(benchmarks, 0, &claim, &err), -1);
	expect_sent(&claim, "{}");
	claim_free(&claim);
}

#define IN_DIRECTORY(test) cmocka_unit_test_setup_teardown(test, make_directory, remove_directory)

int main(void)
{
	const struct CMUnitTest tests[] = {
		IN_DIRECTORY(a_benchmark_is_kept_as_it_was),
		IN_DIRECTORY(benchmarks_are_found_by_what_was_measured),
		IN_DIRECTORY(a_store_of_the_first_version_is_brought_up_to_date),
		IN_DIRECTORY(a_store_of_the_second_version_is_brought_up_to_date),
		cmocka_unit_test(a_change_is_held_against_the_noise_of_both),
		cmocka_unit_test(the_best_is_the_fastest),
		cmocka_unit_test(the_best_basis_counts),
		cmocka_unit_test(quasars_layer_counts_in_a_rehearsal_alone),
		cmocka_unit_test(uncommitted_files_do_not_count),
		cmocka_unit_test(a_spread_beyond_the_margin_widens_it),
		cmocka_unit_test(the_newest_counts),
		cmocka_unit_test(what_validators_do_not_run_does_not_count),
		cmocka_unit_test(the_words_of_a_description_mean_nothing),
		cmocka_unit_test(other_commits_and_lengths_do_not_count),
		cmocka_unit_test(nothing_is_claimed_from_less_than_a_token_a_second),
		cmocka_unit_test(what_is_sent_is_of_one_kind),
	};

	if (sodium_init() < 0)
		return 1;
	return cmocka_run_group_tests_name("claim", tests, NULL, NULL);
}
