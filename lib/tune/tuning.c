#include "tune/tuning.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"
#include "base/text.h"
#include "gpu/models.h"

#define LEAST_MS 1e-6 /* times that can be meant */
#define MOST_MS 1e9
#define MOST_ROWS 4096 /* of a document */
#define MOST_TUNINGS 1000
#define BETWEEN " · "

/* --- lists ----------------------------------------------------------------------------------------- */

static void tuning_free(struct tuning *tuning)
{
	for (size_t i = 0; i < tuning->count; i++) {
		free((char *)tuning->rows[i].limited_by);
		free((char *)tuning->rows[i].bound);
	}
	free(tuning->rows);
}

void tuning_list_free(struct tuning_list *list)
{
	for (size_t i = 0; i < list->count; i++)
		tuning_free(&list->items[i]);
	free(list->items);
	*list = (struct tuning_list){0};
}

static struct tuning *add_tuning(struct tuning_list *list, const char *device, const char *kernel)
{
	const struct gpu_model *model = gpu_model_find(device);
	struct tuning *tuning;

	list->items = xrealloc(list->items, (list->count + 1) * sizeof(*list->items));
	tuning = &list->items[list->count++];
	*tuning = (struct tuning){.usual_ms = NAN,
		.bytes = NAN,
		.operations = NAN,
		.bandwidth_gbs = model ? model->bandwidth_gbs : NAN,
		.tflops = model ? model->bf16_tflops : NAN};
	snprintf(tuning->device, sizeof(tuning->device), "%s", device);
	snprintf(tuning->kernel, sizeof(tuning->kernel), "%s", kernel);
	return tuning;
}

/* Takes over the row's texts. */
static void add_row(struct tuning *tuning, const struct tune_row *row)
{
	tuning->rows = xrealloc(tuning->rows, (tuning->count + 1) * sizeof(*row));
	tuning->rows[tuning->count++] = *row;
}

static int by_time(const void *a, const void *b)
{
	const struct tune_row *x = a, *y = b;

	return (x->ms > y->ms) - (x->ms < y->ms);
}

/* --- JSON ------------------------------------------------------------------------------------------ */

/* The next "NAME=VALUE" of a text; false at its end. */
static bool next_parameter(const char **text, char name[64], double *value)
{
	size_t length, whole;

	*text += strspn(*text, " ");
	length = strcspn(*text, " =");
	whole = strcspn(*text, " ");
	if (!whole)
		return false;
	snprintf(name, 64, "%.*s", (int)length, *text);
	*value = (*text)[length] == '=' ? atof(*text + length + 1) : 0;
	*text += whole;
	return true;
}

/* {"CHUNK": 64, "NUM_STAGES": 2} */
static cJSON *parameters_json(const char *text)
{
	cJSON *object = cJSON_CreateObject();
	char name[64];
	double value;

	while (next_parameter(&text, name, &value))
		cJSON_AddNumberToObject(object, name, value);
	return object;
}

static void add_count(cJSON *object, const char *name, int value)
{
	json_add_real(object, name, value < 0 ? NAN : value);
}

cJSON *tuning_row_json(const struct tune_row *row)
{
	cJSON *object = cJSON_CreateObject();

	cJSON_AddStringToObject(object, "kernel", row->kernel);
	cJSON_AddItemToObject(object, "parameters", parameters_json(row->parameters));
	json_add_real(object, "ms", row->ms);
	json_add_real(object, "error", row->error);
	json_add_real(object, "occupancy", row->occupancy);
	json_add_text(object, "limited_by", row->limited_by);
	add_count(object, "registers", row->registers);
	add_count(object, "shared_bytes", row->shared_bytes);
	add_count(object, "spills", row->spills);
	json_add_text(object, "bound", row->bound);
	return object;
}

cJSON *tuning_document(
	const char *device, bool predicted, const struct tune_row *rows, size_t count, cJSON *more)
{
	cJSON *document = cJSON_CreateObject(), *list;

	cJSON_AddStringToObject(document, "device", device);
	cJSON_AddBoolToObject(document, "predicted", predicted);
	while (more->child) {
		cJSON *field = cJSON_DetachItemViaPointer(more, more->child);

		cJSON_AddItemToObject(document, field->string, field);
	}
	cJSON_Delete(more);
	list = cJSON_AddArrayToObject(document, "kernels");
	for (size_t i = 0; i < count; i++)
		cJSON_AddItemToArray(list, tuning_row_json(&rows[i]));
	return document;
}

/* A text that fits, is not empty and holds nothing but what is seen; else "", and false. */
static bool read_text(const cJSON *item, const char *name, char *to, size_t size)
{
	const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(item, name));

	*to = '\0';
	if (!text || strlen(text) >= size)
		return false;
	strcpy(to, text);
	text_clean(to);
	return *to;
}

/* The same as a string of its own; NULL for none. */
static char *copy_text(const cJSON *item, const char *name)
{
	char text[64];

	return read_text(item, name, text, sizeof(text)) ? xstrdup(text) : NULL;
}

/* NAN for what is no number between these. */
static double read_number(const cJSON *item, const char *name, double least, double most)
{
	const cJSON *field = cJSON_GetObjectItemCaseSensitive(item, name);

	return cJSON_IsNumber(field) && field->valuedouble >= least && field->valuedouble <= most
		? field->valuedouble
		: NAN;
}

static int read_count(const cJSON *item, const char *name)
{
	double count = read_number(item, name, 0, 1e9);

	return isnan(count) ? -1 : (int)count;
}

static bool read_parameters(const cJSON *parameters, char *to, size_t size)
{
	const cJSON *value;
	size_t length = 0;

	*to = '\0';
	cJSON_ArrayForEach (value, parameters) {
		if (!tune_is_name(value->string) || !cJSON_IsNumber(value) ||
			!(fabs(value->valuedouble) < 1e8))
			return false;
		length += (size_t)snprintf(to + length, size - length, "%s%s=%.0f", length ? " " : "",
			value->string, value->valuedouble);
		if (length >= size)
			return false;
	}
	return length;
}

static bool read_row(const cJSON *item, struct tune_row *row)
{
	*row = (struct tune_row){
		.ms = read_number(item, "ms", LEAST_MS, MOST_MS),
		.error = read_number(item, "error", 0, 1e3),
		.occupancy = read_number(item, "occupancy", 0, 1),
		.registers = read_count(item, "registers"),
		.shared_bytes = read_count(item, "shared_bytes"),
		.spills = read_count(item, "spills"),
	};
	if (isnan(row->ms) || !read_text(item, "kernel", row->kernel, sizeof(row->kernel)) ||
		!read_parameters(cJSON_GetObjectItemCaseSensitive(item, "parameters"), row->parameters,
			sizeof(row->parameters)))
		return false;
	row->limited_by = copy_text(item, "limited_by");
	row->bound = copy_text(item, "bound");
	return true;
}

/* The one of a kernel, among those of this document. */
static struct tuning *tuning_of(
	struct tuning_list *list, size_t first, const cJSON *document, const char *device, const char *kernel)
{
	struct tuning *tuning;

	for (size_t i = first; i < list->count; i++)
		if (!strcmp(list->items[i].kernel, kernel))
			return &list->items[i];
	if (list->count - first == MOST_TUNINGS)
		return NULL;
	tuning = add_tuning(list, device, kernel);
	tuning->predicted = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(document, "predicted"));
	tuning->usual_ms = read_number(document, "untuned_ms", LEAST_MS, MOST_MS);
	tuning->bytes = read_number(document, "bytes", 1, 1e18);
	tuning->operations = read_number(document, "operations", 1, 1e24);
	read_text(document, "class", tuning->class, sizeof(tuning->class));
	return tuning;
}

static void read_document(const cJSON *document, const cJSON *kernels, struct tuning_list *list)
{
	size_t first = list->count, rows = 0;
	const cJSON *item;
	char device[sizeof(list->items->device)];

	if (!read_text(document, "device", device, sizeof(device)))
		strcpy(device, "a device without a name");
	cJSON_ArrayForEach (item, kernels) {
		struct tune_row row;
		struct tuning *tuning = NULL;

		if (rows == MOST_ROWS || !read_row(item, &row))
			continue;
		tuning = tuning_of(list, first, document, device, row.kernel);
		if (!tuning) {
			free((char *)row.limited_by);
			free((char *)row.bound);
			continue;
		}
		row.predicted = tuning->predicted;
		add_row(tuning, &row);
		rows++;
	}
	for (size_t i = first; i < list->count; i++)
		qsort(list->items[i].rows, list->items[i].count, sizeof(*list->items[i].rows), by_time);
}

/* --- the store ------------------------------------------------------------------------------------- */

struct tuning_cost tuning_cost_of(const struct family *family, const struct op_shape *shape, enum dtype dtype,
	const int options[FAMILY_OPTIONS])
{
	const struct op_problem problem = family_problem(family, shape, dtype, options);
	struct tuning_cost cost = {.operations = family->operations(&problem)};

	for (int i = 0; family->tensors[i].name; i++) {
		int64_t size[4], count = family_tensor_size(&family->tensors[i], shape, size);

		if (function_has_tensor(family, options, i) && family->tensors[i].role != TENSOR_INITIAL &&
			family->tensors[i].role != TENSOR_FINAL)
			cost.bytes += (double)count * (double)dtype_size(problem.tensors[i].dtype);
	}
	return cost;
}

static struct tuning *add_result(struct tuning_list *list, const struct tune_result *result)
{
	struct tuning *tuning = add_tuning(list, result->key.device, result->key.kernel);
	struct tune_row row = tune_result_row(result);

	row.limited_by = row.limited_by ? xstrdup(row.limited_by) : NULL;
	tuning->id = result->id;
	tuning->usual_ms = result->usual_ms;
	shape_class_format(&result->key.class, tuning->class, sizeof(tuning->class));
	tuning->bytes = result->bytes;
	tuning->operations = result->operations;
	add_row(tuning, &row);
	return tuning;
}

static void take_trial(void *context, const char *parameters, const struct tune_candidate *trial)
{
	struct tuning *tuning = context;
	struct tune_row row = tuning->rows[0];

	if (trial->outcome == TUNE_FAILED || !(trial->seconds > 0) || !strcmp(parameters, row.parameters))
		return;
	row.ms = trial->seconds * 1e3;
	row.error = trial->noise;
	row.occupancy = NAN;
	row.limited_by = NULL;
	row.registers = row.shared_bytes = row.spills = -1;
	snprintf(row.parameters, sizeof(row.parameters), "%s", parameters);
	add_row(tuning, &row);
}

int tuning_load(struct tune_store *store, const struct tune_result *result, struct tuning_list *list,
	struct error *err)
{
	struct tuning *tuning = add_result(list, result);

	if (tune_store_trials(store, &result->key, result->id, take_trial, tuning, err) < 0)
		return -1;
	/* the first one has won duels, which say more than times that others were taken at */
	qsort(tuning->rows + 1, tuning->count - 1, sizeof(*tuning->rows), by_time);
	return 0;
}

int tuning_load_current(struct tuning_list *list, struct error *err)
{
	struct tune_result_list results = {0};
	struct tune_store *store;
	int result = tune_store_find(&store, err);

	if (!result && store)
		result = tune_store_list(store, true, &results, err);
	for (size_t i = 0; i < results.count && !result; i++)
		result = tuning_load(store, &results.items[i], list, err);
	tune_result_list_free(&results);
	tune_store_close(store);
	return result;
}

int tuning_read(const cJSON *document, struct tuning_list *list, struct error *err)
{
	const cJSON *kernels = cJSON_GetObjectItemCaseSensitive(document, "kernels");
	struct tune_result_list results;
	struct error problem;
	size_t skipped;
	int result = 0;

	if (cJSON_IsArray(kernels)) {
		read_document(document, kernels, list);
		return 0;
	}
	result = tune_results_read(document, &results, &skipped, &problem, err);
	for (size_t i = 0; i < results.count && i < MOST_TUNINGS; i++)
		add_result(list, &results.items[i]);
	tune_result_list_free(&results);
	return result;
}

/* --- grids ----------------------------------------------------------------------------------------- */

/* A parameter's values, in order. */
struct values {
	char name[64];
	double items[TUNING_VALUES];
	size_t count;
};

static void take_value(struct values *values, double value)
{
	size_t at = 0;

	while (at < values->count && values->items[at] < value)
		at++;
	if (values->count == TUNING_VALUES || (at < values->count && values->items[at] == value))
		return;
	memmove(&values->items[at + 1], &values->items[at], (values->count - at) * sizeof(*values->items));
	values->items[at] = value;
	values->count++;
}

/* Of a row; NAN: it has no such parameter. */
static double value_of(const struct tune_row *row, const char *wanted)
{
	const char *text = row->parameters;
	char name[64];
	double value;

	while (next_parameter(&text, name, &value))
		if (!strcmp(name, wanted))
			return value;
	return NAN;
}

static struct values values_of(const struct tuning *tuning, const char *name)
{
	struct values values = {0};

	snprintf(values.name, sizeof(values.name), "%s", name);
	for (size_t i = 0; i < tuning->count; i++) {
		double value = value_of(&tuning->rows[i], name);

		if (!isnan(value))
			take_value(&values, value);
	}
	return values;
}

/* The two that have the most values; false when fewer than two vary. */
static bool choose(const struct tuning *tuning, struct values chosen[2])
{
	const char *text = tuning->rows[0].parameters;
	char name[64];
	double first;

	memset(chosen, 0, 2 * sizeof(*chosen));
	while (next_parameter(&text, name, &first)) {
		struct values values = values_of(tuning, name);

		if (values.count > chosen[0].count) {
			chosen[1] = chosen[0];
			chosen[0] = values;
		} else if (values.count > chosen[1].count) {
			chosen[1] = values;
		}
	}
	return chosen[1].count > 1;
}

static size_t find_value(const struct values *values, double value)
{
	size_t at = 0;

	while (at < values->count && values->items[at] != value)
		at++;
	return at;
}

static void name_values(const struct values *values, int axis, struct tuning_grid *grid)
{
	snprintf(grid->names[axis], sizeof(grid->names[axis]), "%s", values->name);
	grid->counts[axis] = values->count;
	for (size_t i = 0; i < values->count; i++) {
		snprintf(grid->texts[axis][i], sizeof(grid->texts[axis][i]), "%.0f", values->items[i]);
		grid->labels[axis][i] = grid->texts[axis][i];
	}
}

bool tuning_grid_make(
	const struct tuning *tuning, const char *first, const char *second, struct tuning_grid *grid)
{
	struct values chosen[2] = {0};

	if (first && second) {
		chosen[0] = values_of(tuning, first);
		chosen[1] = values_of(tuning, second);
	}
	if ((chosen[0].count < 2 || chosen[1].count < 2) && !choose(tuning, chosen))
		return false;
	name_values(&chosen[0], 0, grid);
	name_values(&chosen[1], 1, grid);
	for (size_t i = 0; i < TUNING_VALUES * TUNING_VALUES; i++)
		grid->ms[i] = NAN;
	for (size_t i = 0; i < tuning->count; i++) {
		const struct tune_row *tried = &tuning->rows[i];
		size_t row = find_value(&chosen[0], value_of(tried, chosen[0].name));
		size_t column = find_value(&chosen[1], value_of(tried, chosen[1].name));

		if (row < chosen[0].count && column < chosen[1].count) {
			double *ms = &grid->ms[row * chosen[1].count + column];

			*ms = fmin(*ms, tried->ms); /* which takes the other one where one is NAN */
		}
	}
	return true;
}

/* --- the fastest ----------------------------------------------------------------------------------- */

static void append(char *text, size_t size, const char *more)
{
	size_t length = strlen(text);

	snprintf(text + length, size - length, "%s%s", length ? BETWEEN : "", more);
}

void tuning_best_make(const struct tuning *tuning, struct tuning_best *best)
{
	const char *text = tuning->rows[0].parameters;
	char name[64], number[24];
	double first;

	*best = (struct tuning_best){.count = tuning->count < TUNING_BEST ? tuning->count : TUNING_BEST};
	while (next_parameter(&text, name, &first)) {
		bool differs = false;

		for (size_t i = 1; i < best->count; i++)
			differs |= value_of(&tuning->rows[i], name) != first;
		if (!differs)
			continue;
		append(best->names, sizeof(best->names), name);
		for (size_t i = 0; i < best->count; i++) {
			snprintf(number, sizeof(number), "%.0f", value_of(&tuning->rows[i], name));
			append(best->labels[i], sizeof(best->labels[i]), number);
		}
	}
}
