/* results: what tuning found is kept, found again by those whom it concerns, and survives bad files and full disks. */
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

#include "base/database.h"
#include "tests/unit/directory.h"
#include "tune/results.h"

static const struct gpu_properties h200 = {.name = "NVIDIA H200", .driver = "580.1", .capability = 90};

static struct tune_result example(const char *parameters)
{
	const struct op_shape shape = {1, 100000, 8, 64, 64, 0, 0};
	struct tune_result result = {
		.when = 1763800000,
		.bytes = 4e8,
		.operations = NAN,
		.ms = 0.25,
		.noise = 0.01,
		.usual_ms = 0.3,
		.registers = 128,
		.shared_bytes = 65536,
		.spills = -1,
		.occupancy = NAN,
		.tried = 12,
		.failed = 1,
		.complete = true,
		.version = "0.1.0",
	};

	tune_key_of(&h200, families[0], &result.key);
	result.key.class = shape_class_of("upstream", DTYPE_BF16, &shape);
	snprintf(result.parameters, sizeof(result.parameters), "%s", parameters);
	return result;
}

#define FIRST "CHUNK=64 NUM_STAGES=2 MIN_BLOCKS=3 PRODUCT_WARPS=4 NUM_LAUNCHES=2 GROUPS=49"
#define SECOND "CHUNK=64 NUM_STAGES=1 MIN_BLOCKS=2 PRODUCT_WARPS=4 NUM_LAUNCHES=3 GROUPS=33"

static struct tune_store *open_store(void **state)
{
	char *path = path_join(*state, "tuning.db");
	struct error err = {0};
	struct tune_store *store = tune_store_open(path, &err);

	if (!store)
		fail_msg("%s", err.message);
	free(path);
	return store;
}

static void add(struct tune_store *store, struct tune_result *result)
{
	struct error err = {0};

	if (tune_store_begin(store, result, &err) < 0)
		fail_msg("%s", err.message);
}

static void assert_same(const struct tune_result *a, const struct tune_result *b)
{
	assert_string_equal(a->key.device, b->key.device);
	assert_string_equal(a->key.driver, b->key.driver);
	assert_string_equal(a->key.kernel, b->key.kernel);
	assert_string_equal(a->key.source, b->key.source);
	assert_int_equal(a->key.capability, b->key.capability);
	assert_true(shape_class_equal(&a->key.class, &b->key.class));
	assert_string_equal(a->parameters, b->parameters);
	assert_true(a->when == b->when && a->ms == b->ms && a->noise == b->noise);
	assert_true(a->bytes == b->bytes && isnan(a->operations) && isnan(b->operations));
	assert_true(a->usual_ms == b->usual_ms && isnan(a->occupancy) == isnan(b->occupancy));
	assert_int_equal(a->registers, b->registers);
	assert_int_equal(a->spills, b->spills);
	assert_int_equal(a->tried, b->tried);
	assert_int_equal(a->complete, b->complete);
	assert_string_equal(a->version, b->version);
}

static size_t count_results(struct tune_store *store, bool current)
{
	struct tune_result_list list;
	struct error err;
	size_t count;

	assert_int_equal(tune_store_list(store, current, &list, &err), 0);
	count = list.count;
	tune_result_list_free(&list);
	return count;
}

/* --- the store --------------------------------------------------------------------------------------- */

static void the_newest_of_a_key_counts(void **state)
{
	struct tune_result first = example(FIRST), second = example(SECOND), other = example(FIRST),
			   unfinished = example("");
	struct tune_store *store = open_store(state);
	struct tune_result_list list;
	struct error err = {0};

	other.key.class.length++;
	add(store, &first);
	add(store, &other);
	add(store, &second);
	add(store, &unfinished);
	tune_store_close(store);
	store = open_store(state);
	assert_int_equal(count_results(store, false), 3);
	assert_int_equal(tune_store_list(store, true, &list, &err), 0);
	assert_int_equal(list.count, 2);
	assert_same(&list.items[0], &second);
	assert_same(&list.items[1], &other);
	tune_result_list_free(&list);
	assert_int_equal(tune_store_forget(store, second.id, &err), 1);
	assert_int_equal(tune_store_list(store, true, &list, &err), 0);
	assert_same(&list.items[1], &first);
	tune_result_list_free(&list);
	assert_int_equal(tune_store_forget(store, 4711, &err), 0);
	assert_int_equal(tune_store_forget(store, 0, &err), 3);
	assert_int_equal(count_results(store, false), 0);
	tune_store_close(store);
}

struct seen {
	int timed, failed;
	double seconds;
	char problem[64];
};

static void see(void *context, const char *parameters, const struct tune_candidate *candidate)
{
	struct seen *seen = context;

	assert_true(parameters[0]);
	if (candidate->outcome == TUNE_TIMED) {
		seen->timed++;
		seen->seconds = candidate->seconds;
	} else {
		assert_int_equal(candidate->outcome, TUNE_FAILED);
		seen->failed++;
		snprintf(seen->problem, sizeof(seen->problem), "%s", candidate->problem);
	}
}

static void what_was_tried_is_not_lost(void **state)
{
	struct tune_candidate timed = {.outcome = TUNE_TIMED, .seconds = 0.25e-3, .noise = 0.01},
			      hung = {.outcome = TUNE_FAILED,
				      .seconds = NAN,
				      .noise = NAN,
				      .problem = "no response"};
	struct tune_result begun = example(""), again = {0}, none = {0};
	struct tune_store *store = open_store(state);
	struct seen seen = {0}, of_others = {0};
	struct error err = {0};

	assert_int_equal(tune_store_unfinished(store, &begun.key, &again, &err), 0);
	begun.complete = false;
	add(store, &begun);
	assert_int_equal(tune_store_trial(store, begun.id, FIRST, &timed, &err), 0);
	timed.seconds = 0.5e-3; /* again, in a duel */
	assert_int_equal(tune_store_trial(store, begun.id, FIRST, &timed, &err), 0);
	assert_int_equal(tune_store_trial(store, begun.id, SECOND, &hung, &err), 0);
	tune_store_close(store);
	store = open_store(state);
	assert_int_equal(tune_store_unfinished(store, &begun.key, &again, &err), 1);
	assert_int_equal(again.id, begun.id);
	assert_int_equal(tune_store_trials(store, &begun.key, again.id, see, &seen, &err), 0);
	assert_int_equal(seen.timed, 1);
	assert_int_equal(seen.failed, 1);
	assert_true(fabs(seen.seconds - 0.5e-3) < 1e-12);
	assert_string_equal(seen.problem, "no response");
	/* another tuning does not try the failed one again, but times the others anew */
	assert_int_equal(tune_store_trials(store, &begun.key, 0, see, &of_others, &err), 0);
	assert_int_equal(of_others.timed, 0);
	assert_int_equal(of_others.failed, 1);
	again.complete = true;
	snprintf(again.parameters, sizeof(again.parameters), FIRST);
	assert_int_equal(tune_store_update(store, &again, &err), 0);
	/* what is complete is not handed over for another one to begin with */
	assert_int_equal(tune_store_unfinished(store, &begun.key, &none, &err), 0);
	assert_true(!none.id && !none.parameters[0]);
	assert_int_equal(count_results(store, true), 1);
	tune_store_close(store);
}

static size_t files_aside(const char *directory)
{
	char *command = xprintf("ls '%s' | grep -c aside", directory);
	FILE *output = popen(command, "r");
	size_t count = 0;

	assert_int_equal(fscanf(output, "%zu", &count), 1);
	pclose(output);
	free(command);
	return count;
}

static void a_file_that_is_none_is_set_aside(void **state)
{
	static const char *const texts[] = {"no database", "SQLite format 3"};
	struct tune_result result = example(FIRST);
	struct tune_store *store;

	for (size_t i = 0; i < 2; i++) {
		put_text(*state, "tuning.db", texts[i]);
		store = open_store(state);
		assert_int_equal(count_results(store, false), 0);
		add(store, &result);
		assert_int_equal(count_results(store, false), 1);
		tune_store_close(store);
	}
	assert_true(files_aside(*state) >= 1); /* of one second, one name */
}

/* Another program's database, and one of ours that lost its middle. */
static void a_foreign_or_damaged_store_is_set_aside(void **state)
{
	static const char *const migrations[] = {"CREATE TABLE theirs (a)", NULL};
	static const struct database_format theirs = {"theirs", NULL, 12345, migrations};
	char *path = path_join(*state, "tuning.db");
	struct tune_result result = example(FIRST);
	struct error err = {0};
	struct database *foreign = database_open(path, &theirs, DATABASE_SHARED, &err);
	struct tune_store *store;
	struct buffer whole = {0};

	assert_non_null(foreign);
	database_close(foreign);
	store = open_store(state);
	assert_int_equal(files_aside(*state), 1);
	for (int i = 0; i < 100; i++)
		add(store, &result);
	tune_store_close(store);
	assert_int_equal(file_read(path, 1 << 24, &whole, &err), 0);
	memset(whole.data + 4096, 0x5a, whole.length - 4096);
	put(*state, "tuning.db", whole.data, whole.length);
	store = open_store(state);
	assert_int_equal(count_results(store, false), 0);
	add(store, &result);
	tune_store_close(store);
	buffer_free(&whole);
	free(path);
}

static void a_full_disk_loses_nothing(void **state)
{
	struct tune_store *store = open_store(state);
	struct tune_result result = example(FIRST);
	struct rlimit limit, full;
	struct error err = {0};
	size_t kept = 0;

	add(store, &result);
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
	full = (struct rlimit){65536, limit.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &full), 0);
	for (kept = 1; kept < 10000 && tune_store_begin(store, &result, &err) == 0;)
		kept++;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	assert_int_equal(err.status, STATUS_ENVIRONMENT);
	assert_true(kept > 1 && kept < 10000);
	assert_int_equal(count_results(store, false), kept);
	add(store, &result); /* there is room again */
	tune_store_close(store);
	store = open_store(state);
	assert_int_equal(count_results(store, false), kept + 1);
	tune_store_close(store);
}

/* --- in other hands ---------------------------------------------------------------------------------- */

static int read_text(const char *text, struct tune_result_list *list, size_t *skipped, struct error *problem,
	struct error *err)
{
	cJSON *document = cJSON_Parse(text);
	int result = tune_results_read(document, list, skipped, problem, err);

	cJSON_Delete(document);
	return result;
}

static void results_travel(void **state)
{
	struct tune_result first = example(FIRST), second = example(SECOND);
	struct tune_store *store = open_store(state);
	struct tune_result_list list, read;
	struct buffer text = {0};
	struct error err = {0}, problem = {0};
	size_t skipped;

	second.key.class.length = 3;
	second.when++;
	add(store, &first);
	add(store, &second);
	assert_int_equal(tune_store_list(store, true, &list, &err), 0);
	tune_results_write(&list, &text);
	assert_int_equal(read_text(text.data, &read, &skipped, &problem, &err), 0);
	assert_int_equal(skipped, 0);
	assert_int_equal(read.count, 2);
	for (size_t i = 0; i < 2; i++)
		assert_same(&read.items[i], &list.items[i]);
	assert_int_equal(tune_store_import(store, &read, &err), 0); /* they are there */
	assert_int_equal(tune_store_forget(store, 0, &err), 2);
	assert_int_equal(tune_store_import(store, &read, &err), 2);
	tune_result_list_free(&read);
	assert_int_equal(tune_store_list(store, true, &read, &err), 0);
	assert_int_equal(read.count, 2);
	assert_true(read.items[0].imported);
	assert_same(&read.items[0], &list.items[0]);
	tune_result_list_free(&read);
	tune_result_list_free(&list);
	tune_store_close(store);
	buffer_free(&text);
}

/* One bad item does not hide the good ones. */
static void bad_items_are_left_out(void **state)
{
	static const char *const changes[][2] = {
		{"\"ms\":\t0.25", "\"ms\":\t-1"},
		{"\"ms\":\t0.25", "\"ms\":\t\"0.25\""},
		{"\"dtype\":\t\"bf16\"", "\"dtype\":\t\"int8\""},
		{"GROUPS=49", "GROUPS=49; DROP"},
		{"GROUPS=49", "GROUPS=4900000000"},
		{"NVIDIA H200", "\\u001b[31mH200"},
		{"\"length\":\t16", "\"length\":\t63"},
		{"\"bytes\":\t400000000", "\"bytes\":\t-4"},
		{"\"bytes\":\t400000000", "\"bytes\":\t\"many\""},
		{"\"registers\":\t128", "\"registers\":\t1e9"},
		{"\"source\":\t\"", "\"source\":\t\"G"},
		{"\"kernel\":\t\"quasar_chunk\"", "\"kernel\":\t\"\""},
		{"\"complete\":\ttrue", "\"complete\":\t1"},
		{"\"when\":\t\"2025", "\"when\":\t\"then"},
	};
	struct tune_result results[] = {example(FIRST), example(SECOND)};
	struct tune_result_list list = {results, 2}, read;
	struct buffer text = {0};
	struct error err, problem;
	size_t skipped;

	(void)state;
	tune_results_write(&list, &text);
	for (size_t i = 0; i < sizeof(changes) / sizeof(*changes); i++) {
		char *at = strstr(text.data, changes[i][0]), *changed;

		assert_non_null(at);
		changed = xprintf("%.*s%s%s", (int)(at - text.data), text.data, changes[i][1],
			at + strlen(changes[i][0]));
		assert_int_equal(read_text(changed, &read, &skipped, &problem, &err), 0);
		assert_int_equal(skipped, 1);
		assert_true(problem.message[0]);
		assert_int_equal(read.count, 1);
		assert_string_equal(read.items[0].parameters, SECOND);
		tune_result_list_free(&read);
		free(changed);
	}
	buffer_free(&text);
}

/* As many as anybody can have found, and a few more. */
static void too_many_items_are_left_out(void **state)
{
	struct tune_result result = example(FIRST);
	struct tune_result_list list = {&result, 1}, read;
	struct buffer text = {0};
	struct error err, problem;
	cJSON *document, *items, *item;
	size_t skipped;

	(void)state;
	tune_results_write(&list, &text);
	document = cJSON_Parse(text.data);
	items = cJSON_GetObjectItemCaseSensitive(document, "results");
	item = cJSON_GetArrayItem(items, 0);
	for (int i = 0; i < 100002; i++)
		cJSON_AddItemReferenceToArray(items, item);
	memset(&problem, '?', sizeof(problem));
	assert_int_equal(tune_results_read(document, &read, &skipped, &problem, &err), 0);
	assert_int_equal(read.count, 100000);
	assert_int_equal(skipped, 3);
	assert_string_equal(problem.message, "there are more than 100000 of them");
	tune_result_list_free(&read);
	cJSON_Delete(document);
	buffer_free(&text);
}

static void what_is_no_such_file_is_refused(void **state)
{
	static const char *const texts[] = {"", "[]", "{}", "{\"format\":\"quasar tuning results\"}",
		"{\"format\":\"quasar tuning results\",\"version\":2,\"results\":[]}",
		"{\"format\":\"another\",\"version\":1,\"results\":[]}",
		"{\"format\":\"quasar tuning results\",\"version\":1,\"results\":{}}"};
	struct tune_result_list list;
	struct error err, problem;
	size_t skipped;

	(void)state;
	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		assert_int_equal(read_text(texts[i], &list, &skipped, &problem, &err), -1);
		assert_int_equal(err.status, STATUS_USAGE);
		tune_result_list_free(&list);
	}
}

/* --- in use ------------------------------------------------------------------------------------------ */

static void results_are_used_where_they_belong(void **state)
{
	const char *folders[] = {"quasar", NULL};
	struct tune_result mine = example(FIRST), another_driver = example(SECOND), older = example(SECOND),
			   nonsense = example("CHUNK=64");
	char *path = xprintf("%s/%s/tuning.db", (char *)*state, folders[0]);
	struct error err = {0};
	struct tune_store *store;
	struct config found;

	setenv("XDG_CACHE_HOME", *state, 1);
	tune_use_results(&h200); /* there is none */
	assert_false(path_exists(path));
	store = tune_store_open(NULL, &err);
	assert_non_null(store);
	assert_true(path_exists(path));
	snprintf(another_driver.key.driver, sizeof(another_driver.key.driver), "579.1");
	another_driver.key.class.length = 10;
	nonsense.key.class.length = 11;
	older.key.class.length = 12;
	older.key.source[0] = older.key.source[0] == '0' ? '1' : '0'; /* of another version of the kernel */
	add(store, &another_driver);
	add(store, &older);
	add(store, &nonsense);
	add(store, &mine);
	tune_store_close(store);
	tune_use_results(&h200);
	assert_true(tuned_find(h200.name, mine.key.kernel, &mine.key.class, &found));
	assert_int_equal(found.value[5], 49);
	assert_false(tuned_find(h200.name, mine.key.kernel, &another_driver.key.class, &found));
	assert_false(tuned_find(h200.name, mine.key.kernel, &nonsense.key.class, &found));
	assert_false(tuned_find(h200.name, mine.key.kernel, &older.key.class, &found));
	tuned_clear();
	free(path);
}

int main(void)
{
#define IN_DIRECTORY(test) cmocka_unit_test_setup_teardown(test, make_directory, remove_directory)
	const struct CMUnitTest tests[] = {
		IN_DIRECTORY(the_newest_of_a_key_counts),
		IN_DIRECTORY(what_was_tried_is_not_lost),
		IN_DIRECTORY(a_file_that_is_none_is_set_aside),
		IN_DIRECTORY(a_foreign_or_damaged_store_is_set_aside),
		IN_DIRECTORY(a_full_disk_loses_nothing),
		IN_DIRECTORY(results_travel),
		cmocka_unit_test(bad_items_are_left_out),
		cmocka_unit_test(too_many_items_are_left_out),
		cmocka_unit_test(what_is_no_such_file_is_refused),
		IN_DIRECTORY(results_are_used_where_they_belong),
	};

	return cmocka_run_group_tests_name("results", tests, NULL, NULL);
}
