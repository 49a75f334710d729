/* tune: what is stored: listed, shown, exchanged with others, forgotten. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/layout.h"
#include "base/log.h"
#include "cli/table.h"
#include "cmd/tune/tune.h"
#include "tune/results.h"

/* --- showing --------------------------------------------------------------------------------------- */

static cJSON *result_json(const struct tune_result *result)
{
	const struct tune_row row = tune_result_row(result);
	cJSON *object = tuning_row_json(&row);
	char class[160];

	shape_class_format(&result->key.class, class, sizeof(class));
	json_add_id(object, "id", result->id);
	json_add_time(object, "when", result->when);
	cJSON_AddStringToObject(object, "device", result->key.device);
	cJSON_AddStringToObject(object, "driver", result->key.driver);
	cJSON_AddNumberToObject(object, "compute_capability", result->key.capability / 10.0);
	cJSON_AddStringToObject(object, "source", result->key.source);
	cJSON_AddStringToObject(object, "class", class);
	json_add_real(object, "untuned_ms", result->usual_ms);
	cJSON_AddNumberToObject(object, "tried", result->tried);
	cJSON_AddNumberToObject(object, "failed", result->failed);
	cJSON_AddBoolToObject(object, "complete", result->complete);
	cJSON_AddBoolToObject(object, "imported", result->imported);
	cJSON_AddStringToObject(object, "version", result->version);
	return object;
}

static void print_table(const struct tune_result_list *list)
{
	static const char *const headings[] = {
		"id", "GPU", "kernel", "class", "time", "gain", "configuration"};
	static const int spare[] = {2, 3, -1};
	struct table table;

	table_begin(&table, headings, "rlllrrl");
	table_spare(&table, spare);
	for (size_t i = 0; i < list->count; i++) {
		const struct tune_result *result = &list->items[i];
		char class[160];

		shape_class_format(&result->key.class, class, sizeof(class));
		if (result->shipped)
			table_cell(&table, "shipped");
		else
			table_cell(&table, "%lld", (long long)result->id);
		table_cell(&table, "%s", result->key.device);
		table_cell(&table, "%s", result->key.kernel);
		table_cell(&table, "%s", class);
		table_cell(&table, "%.4f ms", result->ms);
		if (isnan(result->usual_ms))
			table_cell(&table, "?");
		else
			table_cell(&table, "%+.1f %%", (result->usual_ms / result->ms - 1) * 100);
		table_cell(&table, "%s", result->parameters);
	}
	table_print(&table, stdout);
}

static void print_details(const struct tune_result *result)
{
	char id[24], when[32], class[160];
	const char *const headings[] = {"tuning", id};
	struct table table;

	snprintf(id, sizeof(id), "%lld", (long long)result->id);
	clock_minute(result->when, when);
	shape_class_format(&result->key.class, class, sizeof(class));
	table_begin(&table, headings, "ll");
	table_cell(&table, "class");
	table_cell(&table, "%s", class);
	table_cell(&table, "GPU");
	table_cell(&table, "%s, driver %s, compute capability %d.%d", result->key.device, result->key.driver,
		result->key.capability / 10, result->key.capability % 10);
	table_cell(&table, result->imported ? "imported" : "found");
	table_cell(&table, "%s UTC by version %s", when, result->version);
	table_cell(&table, "tried");
	table_cell(&table, "%d configurations, %d failed%s", result->tried, result->failed,
		result->complete ? "" : "; not finished");
	table_print(&table, stdout);
	printf("\n");
}

static void print_tuning(
	const struct tune_request *request, const struct tune_result *result, const struct tuning *tuning)
{
	print_details(result);
	tune_print_table(tuning->rows, tuning->count, TUNING_BEST);
	tune_draw(tuning, request->axes.names);
	if (!isnan(result->usual_ms))
		printf("\nUntuned: %.4f ms; %+.1f %% with the first configuration.\n", result->usual_ms,
			(result->usual_ms / result->ms - 1) * 100);
}

/* --report, of all that counts now. */
static int write_current(const struct tune_request *request, struct error *err)
{
	struct tuning_list tunings = {0};
	int result = arg_given(request->invocation, "report") ? tuning_load_current(&tunings, err) : 0;

	if (!result)
		result = tune_write_page(request, &tunings, err);
	tuning_list_free(&tunings);
	return result;
}

static void add_results(cJSON *document, const char *name, const struct tune_result_list *list)
{
	cJSON *items = cJSON_AddArrayToObject(document, name);

	for (size_t i = 0; i < list->count; i++)
		cJSON_AddItemToArray(items, result_json(&list->items[i]));
}

static int show_list(const struct tune_request *request, struct tune_store *store, struct error *err)
{
	struct tune_result_list list, shipped;
	int result = tune_store_list(store, false, &list, err);

	tune_results_shipped(&shipped);
	if (!result && request->invocation->json) {
		cJSON *document = cJSON_CreateObject();

		add_results(document, "results", &list);
		add_results(document, "shipped", &shipped);
		output_json(document);
	} else if (!result) {
		if (list.count)
			print_table(&list);
		else
			layout_format(stdout, 0,
				"No tuning results are stored yet. `quasar tune` makes some, on a machine with a GPU.");
		if (shipped.count) {
			printf("\nShipped with quasar, used where you have none:\n\n");
			print_table(&shipped);
		}
	}
	tune_result_list_free(&shipped);
	tune_result_list_free(&list);
	return result ? result : write_current(request, err);
}

static int no_result(int64_t id, struct error *err)
{
	error_set(err, STATUS_ENVIRONMENT, "there is no tuning result %lld", (long long)id);
	return error_hint(err, "`quasar tune --list` lists the results.");
}

static int show_one(
	const struct tune_request *request, struct tune_store *store, int64_t id, struct error *err)
{
	struct tune_result_list list;
	struct tuning_list tunings = {0};
	int result = tune_store_list(store, false, &list, err);
	size_t at = 0;

	while (at < list.count && list.items[at].id != id)
		at++;
	if (!result && at == list.count)
		result = no_result(id, err);
	if (!result)
		result = tuning_load(store, &list.items[at], &tunings, err);
	if (!result && request->invocation->json)
		output_json(result_json(&list.items[at]));
	else if (!result)
		print_tuning(request, &list.items[at], tunings.items);
	if (!result)
		result = tune_write_page(request, &tunings, err);
	tuning_list_free(&tunings);
	tune_result_list_free(&list);
	return result;
}

/* --- exchanging ------------------------------------------------------------------------------------ */

static int export_to(const char *path, struct tune_store *store, struct error *err)
{
	struct tune_result_list list;
	struct buffer text = {0};
	int result = tune_store_list(store, true, &list, err);

	if (!result && !list.count) {
		error_set(err, STATUS_FAILED, "there are no tuning results to export");
		result = error_hint(err, "`quasar tune` finds them, on a machine with a GPU.");
	} else if (!result) {
		tune_results_write(&list, &text);
		result = file_write(path, text.data, text.length, 0644, FILE_REPLACE, err);
	}
	if (!result)
		log_note("%zu result%s written to %s", list.count, list.count == 1 ? "" : "s", path);
	buffer_free(&text);
	tune_result_list_free(&list);
	return result;
}

static int import_from(const char *path, struct tune_store *store, struct error *err)
{
	struct tune_result_list list = {0};
	struct buffer text = {0};
	struct error problem;
	cJSON *document = NULL;
	size_t skipped = 0;
	int64_t added = -1;

	if (file_read(path, TUNE_FILE_BYTES, &text, err) < 0) {
		buffer_free(&text);
		return -1;
	}
	document = json_parse(text.data, text.length, err);
	if (tune_results_read(document, &list, &skipped, &problem, err) == 0)
		added = tune_store_import(store, &list, err);
	else
		error_context(err, "%s", path);
	if (skipped)
		log_warn("%s: %zu item%s left out, the first because %s", path, skipped,
			skipped == 1 ? " is" : "s are", problem.message);
	if (added >= 0)
		log_note("%lld result%s added, %lld already there", (long long)added, added == 1 ? "" : "s",
			(long long)list.count - (long long)added);
	tune_result_list_free(&list);
	cJSON_Delete(document);
	buffer_free(&text);
	return added < 0 ? -1 : 0;
}

static int forget(int64_t id, struct tune_store *store, struct error *err)
{
	int64_t count = tune_store_forget(store, id, err);

	if (count == 0 && id)
		return no_result(id, err);
	if (count >= 0)
		log_note("%lld result%s forgotten", (long long)count, count == 1 ? "" : "s");
	return count < 0 ? -1 : 0;
}

int tune_stored(const struct tune_request *request, bool *done, struct error *err)
{
	const struct invocation *invocation = request->invocation;
	const char *to = arg_string(invocation, "export"), *from = arg_string(invocation, "import");
	const char *forgotten = arg_string(invocation, "forget");
	bool list = arg_flag(invocation, "list"), show = arg_given(invocation, "show");
	int64_t shown = 0, id = 0;
	struct tune_store *store;
	int result = 0;

	*done = list || show || to || from || forgotten;
	if (!*done)
		return 0;
	if (list + show + !!to + !!from + !!forgotten > 1)
		return error_set(
			err, STATUS_USAGE, "use only one of --list, --show, --export, --import and --forget");
	if (arg_integer(invocation, "show", 1, INT64_MAX, &shown, err) < 0)
		return -1;
	if (forgotten && strcmp(forgotten, "all") &&
		arg_integer(invocation, "forget", 1, INT64_MAX, &id, err) < 0)
		return -1;
	store = tune_store_open(NULL, err);
	if (!store)
		return -1;
	if (list)
		result = show_list(request, store, err);
	else if (show)
		result = show_one(request, store, shown, err);
	else if (to)
		result = export_to(to, store, err);
	else if (from)
		result = import_from(from, store, err);
	else
		result = forget(id, store, err);
	tune_store_close(store);
	return result;
}
