/* tune: candidates of quasar's own kernels, built here and tried in worker processes on the GPUs. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/version.h"
#include "cli/progress.h"
#include "cmd/tune/tune.h"
#include "gpu/compile.h"
#include "predict/cubin.h"
#include "predict/occupancy.h"
#include "tune/results.h"
#include "tune/space.h"
#include "tune/worker.h"

#define OPENING_SECONDS 300.0 /* for a worker: tensors and their reference */
#define TRIAL_SECONDS 60.0    /* mostly for a kernel that has to be compiled again */

static const char *const worker_argv[] = {"/proc/self/exe", "tune", TUNE_WORKER, NULL};

struct measuring {
	const struct tune_request *request;
	const struct family_configs *configs;
	struct op_problem problem;
	struct tuning_cost cost;
	struct gpu_properties properties; /* of the first GPU; the others are of the same kind */
	cJSON *openings[TUNE_MOST_DEVICES];
	struct tune_worker *workers[TUNE_MOST_DEVICES];
	double mhz[TUNE_MOST_DEVICES]; /* as it was at the last time */
	struct tune_store *store;      /* NULL: it cannot be used */
	struct tune_result result;
	bool unsaved; /* the store has failed, and the user knows */
	struct progress progress;
	double first_seconds; /* of a call without tuning */
};

/* --- a candidate's trials -------------------------------------------------------------------------- */

/* What the machine code of the last launch, which takes longest, needs of a multiprocessor. Of code that the driver
 * finishes nothing is known. STATUS_FAILED when not even one block has room. */
static int look_at(const struct measuring *it, const struct config_launch *launch, const struct buffer *image,
	struct tune_build *found, struct error *err)
{
	struct cubin_kernel kernel;
	struct occupancy occupancy;
	struct error none;

	if (cubin_read(image->data, image->length, launch->name, it->properties.capability, &kernel, &none) <
		0)
		return 0;
	occupancy = occupancy_of(&it->properties, kernel.registers, launch->threads,
		kernel.shared_bytes + launch->shared_bytes);
	*found = (struct tune_build){.registers = kernel.registers,
		.shared_bytes = kernel.shared_bytes + launch->shared_bytes,
		.spills = kernel.spilled_bytes,
		.occupancy = occupancy.part,
		.limited_by = occupancy.limited_by};
	return occupancy.blocks
		? 0
		: error_set(err, STATUS_FAILED, "does not fit a multiprocessor: %s", occupancy.limited_by);
}

static int build(void *context, const struct config *config, struct tune_build *found, struct error *err)
{
	const struct measuring *it = context;
	struct config_launch launches[CONFIG_LAUNCHES];
	int count = it->configs->launches(&it->problem, config, launches);
	const struct config_launch *last = &launches[count - 1];
	struct buffer image = {0};
	int result = kernel_compile(last->source, last->parameters, it->properties.capability, &image, err);

	if (result && it->first_seconds > 0)
		err->status =
			STATUS_FAILED; /* the first one was compiled: it is not for want of a compiler */
	if (!result)
		result = look_at(it, last, &image, found, err);
	buffer_free(&image);
	return result;
}

static int time_candidate(
	void *context, int device, const struct config *config, int runs, double *seconds, struct error *err)
{
	struct measuring *it = context;
	char parameters[256];

	config_format(it->configs->parameters, config, parameters, sizeof(parameters));
	return tune_worker_time(it->workers[device], parameters, runs, seconds, &it->mhz[device], err);
}

static double mhz(void *context, int device)
{
	const struct measuring *it = context;

	return it->mhz[device];
}

static int verify(void *context, int device, const struct config *config, struct error *err)
{
	const struct measuring *it = context;
	char parameters[256];

	config_format(it->configs->parameters, config, parameters, sizeof(parameters));
	return tune_worker_verify(it->workers[device], parameters, err);
}

/* The search goes on without the store: what was found is shown in the end. */
static void keep(struct measuring *it, int result, const struct error *err)
{
	if (result < 0 && !it->unsaved)
		log_warn("results cannot be stored from here on: %s", err->message);
	it->unsaved |= result < 0;
}

static void record(void *context, const struct tune_candidate *candidate)
{
	struct measuring *it = context;
	char parameters[256];
	struct error err;

	config_format(it->configs->parameters, &candidate->config, parameters, sizeof(parameters));
	if (candidate->outcome == TUNE_FAILED)
		log_note("%s %s", parameters, candidate->problem);
	if (it->store)
		keep(it, tune_store_trial(it->store, it->result.id, parameters, candidate, &err), &err);
}

static void show_progress(void *context, size_t done, size_t planned, double left, double best)
{
	struct measuring *it = context;
	char duration[32];

	if (it->first_seconds <= 0)
		it->first_seconds = best;
	clock_duration(left, duration);
	progress_status(&it->progress,
		"tuning: %zu of %zu, best %.4f ms, %.1f %% faster than untuned, %s left", done, planned,
		best * 1e3, (it->first_seconds / best - 1) * 100, duration);
}

/* --- what was tried before ------------------------------------------------------------------------- */

struct earlier {
	const struct family_configs *configs;
	struct tune_search *search;
};

static void take_trial(void *context, const char *parameters, const struct tune_candidate *trial)
{
	const struct earlier *earlier = context;
	struct config config;
	struct error err;

	if (config_parse(earlier->configs->parameters, parameters, &config, &err) < 0)
		return;
	for (size_t i = 0; i < earlier->search->count; i++) {
		struct tune_candidate *candidate = &earlier->search->candidates[i];

		if (memcmp(&candidate->config, &config, sizeof(config)))
			continue;
		*candidate = *trial;
		candidate->config = config;
	}
}

/* Begins a row of the store, or goes on with one. */
static int begin(struct measuring *it, struct tune_search *search, struct error *err)
{
	struct earlier earlier = {it->configs, search};
	bool resume = arg_flag(it->request->invocation, "resume");
	int unfinished = 0;

	if (resume)
		unfinished = tune_store_unfinished(it->store, &it->result.key, &it->result, err);
	if (unfinished < 0)
		return -1;
	if (resume && !unfinished)
		log_note("no tuning of this was left unfinished: starting a new one");
	if (tune_store_trials(it->store, &it->result.key, unfinished ? it->result.id : 0, take_trial,
		    &earlier, err) < 0)
		return -1;
	return unfinished ? 0 : tune_store_begin(it->store, &it->result, err);
}

/* --- the tuning ------------------------------------------------------------------------------------ */

static int open_workers(struct measuring *it, struct error *err)
{
	const struct tune_request *request = it->request;
	char semantics[64];

	family_options_format(request->family, request->options, semantics, sizeof(semantics));
	for (int i = 0; i < request->device_count; i++) {
		cJSON *opening = it->openings[i] = cJSON_CreateObject();
		struct gpu_properties other;

		if (gpu_query(request->devices[i], &other, err) < 0)
			return -1;
		if (strcmp(other.name, it->properties.name))
			return error_set(err, STATUS_USAGE,
				"--devices: %s and %s are different GPUs, which are tuned one after the other",
				it->properties.name, other.name);
		cJSON_AddStringToObject(opening, "op", request->family->name);
		cJSON_AddStringToObject(opening, "semantics", semantics);
		cJSON_AddNumberToObject(opening, "device", request->devices[i]);
		cJSON_AddNumberToObject(opening, "tokens", (double)request->shape.tokens);
		cJSON_AddNumberToObject(opening, "heads", request->shape.heads);
		cJSON_AddNumberToObject(opening, "head_dim", request->shape.key_dim);
		cJSON_AddNumberToObject(opening, "dtype", request->dtype);
		cJSON_AddNumberToObject(opening, "seed", (double)request->seed);
		it->workers[i] = tune_worker_make(&(struct tune_worker_options){
			.argv = worker_argv,
			.opening = opening,
			.opening_seconds = OPENING_SECONDS,
			.trial_seconds = TRIAL_SECONDS,
		});
	}
	return 0;
}

static struct tune_row row_of(const struct measuring *it, const struct tune_candidate *candidate)
{
	struct tune_row row = {
		.ms = candidate->seconds * 1e3,
		.error = candidate->noise,
		.occupancy = candidate->build.occupancy,
		.limited_by = candidate->build.limited_by,
		.registers = candidate->build.registers,
		.shared_bytes = candidate->build.shared_bytes,
		.spills = candidate->build.spills,
	};

	snprintf(row.kernel, sizeof(row.kernel), "%s", it->configs->kernel);
	config_format(it->configs->parameters, &candidate->config, row.parameters, sizeof(row.parameters));
	return row;
}

static int by_time(const void *a, const void *b)
{
	const struct tune_row *x = a, *y = b;

	return (x->ms > y->ms) - (x->ms < y->ms);
}

/* The best one, then the others of which times are known, the fastest first. The caller frees. */
static struct tune_row *list_rows(
	const struct measuring *it, const struct tune_search *search, size_t best, size_t *count)
{
	struct tune_row *rows = xcalloc(search->count + 1, sizeof(*rows));

	*count = 0;
	rows[(*count)++] = row_of(it, &search->candidates[best]);
	for (size_t i = 0; i < search->count; i++)
		if (i != best && search->candidates[i].seconds > 0)
			rows[(*count)++] = row_of(it, &search->candidates[i]);
	qsort(rows + 1, *count - 1, sizeof(*rows), by_time);
	return rows;
}

static void save(struct measuring *it, const struct tune_search *search, const struct tune_found *found)
{
	const struct tune_candidate *best = &search->candidates[found->best];
	struct tune_result *result = &it->result;
	struct error err;

	config_format(it->configs->parameters, &best->config, result->parameters, sizeof(result->parameters));
	result->when = clock_now();
	result->bytes = it->cost.bytes;
	result->operations = it->cost.operations;
	result->ms = found->best_seconds * 1e3;
	result->noise = best->noise;
	result->usual_ms = found->first_seconds * 1e3;
	result->registers = best->build.registers;
	result->shared_bytes = best->build.shared_bytes;
	result->spills = best->build.spills;
	result->occupancy = best->build.occupancy;
	snprintf(result->limited_by, sizeof(result->limited_by), "%s",
		best->build.limited_by ? best->build.limited_by : "");
	result->tried = (int)found->tried;
	result->failed = (int)found->failed;
	result->complete = found->complete;
	if (it->store)
		keep(it, tune_store_update(it->store, result, &err), &err);
}

static cJSON *document_of(
	const struct measuring *it, const struct tune_found *found, const struct tune_row *rows, size_t count)
{
	const struct tune_request *request = it->request;
	cJSON *more = cJSON_CreateObject();
	char class[160];

	shape_class_format(&it->result.key.class, class, sizeof(class));
	cJSON_AddStringToObject(more, "class", class);
	cJSON_AddNumberToObject(more, "seq", (double)request->shape.tokens);
	cJSON_AddNumberToObject(more, "bytes", it->cost.bytes);
	cJSON_AddNumberToObject(more, "operations", it->cost.operations);
	cJSON_AddNumberToObject(more, "untuned_ms", found->first_seconds * 1e3);
	cJSON_AddNumberToObject(more, "tried", (double)found->tried);
	cJSON_AddNumberToObject(more, "failed", (double)found->failed);
	cJSON_AddBoolToObject(more, "complete", found->complete);
	cJSON_AddBoolToObject(more, "stored", it->store && !it->unsaved);
	if (arg_flag(request->invocation, "explain"))
		tune_explain_json(request, gpu_model_find(it->properties.name), rows,
			cJSON_AddObjectToObject(more, "explanation"));
	return tuning_document(it->properties.name, false, rows, count, more);
}

static void print(const struct measuring *it, const struct tune_search *search,
	const struct tune_found *found, const struct tune_row *rows, size_t count)
{
	char class[160];

	shape_class_format(&it->result.key.class, class, sizeof(class));
	tune_print_table(rows, count, 10);
	if (arg_flag(it->request->invocation, "explain"))
		tune_explain(it->request, gpu_model_find(it->properties.name), rows);
	printf("\nUntuned: %.4f ms. ", found->first_seconds * 1e3);
	if (found->best)
		printf("The first configuration is %.1f %% faster.\n",
			(found->first_seconds / found->best_seconds - 1) * 100);
	else
		printf("Nothing is faster than that by more than the noise.\n");
	printf("%zu of %zu configurations were tried, %zu failed.\n", found->tried, search->count,
		found->failed);
	if (it->store && !it->unsaved)
		printf("Stored for %s: %s. It is used from now on.\n", it->properties.name, class);
}

static int tell(const struct measuring *it, const struct tune_search *search, const struct tune_found *found,
	struct error *err)
{
	size_t count;
	struct tune_row *rows = list_rows(it, search, found->best, &count);
	cJSON *document = document_of(it, found, rows, count);
	int result;

	if (!it->request->invocation->json)
		print(it, search, found, rows, count);
	result = tune_publish(it->request, document, err);
	free(rows);
	return result;
}

static int search_and_tell(struct measuring *it, struct tune_search *search, struct error *err)
{
	struct tune_found found;
	int result;

	progress_begin(&it->progress, "tuning", 0, "configurations");
	result = tune_search_run(search, &found, err);
	progress_end(&it->progress);
	if (result < 0)
		return -1;
	save(it, search, &found);
	result = tell(it, search, &found, err);
	if (!found.interrupted)
		return result;
	log_note(
		"interrupted: what was found until then is kept; `quasar tune --resume` with the same options goes on");
	return error_set(err, STATUS_INTERRUPTED, "%s", ""); /* all is said */
}

static void close_all(struct measuring *it)
{
	for (int i = 0; i < it->request->device_count; i++) {
		tune_worker_free(it->workers[i]);
		cJSON_Delete(it->openings[i]);
	}
	tune_store_close(it->store);
}

static void fill_key(struct measuring *it)
{
	const struct tune_request *request = it->request;
	char function[64];

	tune_key_of(&it->properties, request->family, &it->result.key);
	family_options_format(request->family, request->options, function, sizeof(function));
	it->result.key.class = shape_class_of(function, request->dtype, &request->shape);
	snprintf(it->result.version, sizeof(it->result.version), "%s", QUASAR_VERSION);
	it->result.when = clock_now();
	it->result.ms = it->result.noise = it->result.usual_ms = it->result.occupancy = NAN;
	it->result.bytes = it->result.operations = NAN;
}

static void list_candidates(const struct tune_space *space, struct tune_search *search)
{
	search->count = space->count;
	search->candidates = xcalloc(space->count, sizeof(*search->candidates));
	for (size_t i = 0; i < space->count; i++)
		search->candidates[i] = (struct tune_candidate){.config = space->configs[i],
			.build = TUNE_BUILD_UNKNOWN,
			.seconds = NAN,
			.noise = NAN};
}

/* It is searched without a store, too, and with one that takes nothing more. */
static void open_store(struct measuring *it, struct tune_search *search)
{
	struct error err;

	fill_key(it);
	it->store = tune_store_open(NULL, &err);
	if (it->store && begin(it, search, &err) == 0)
		return;
	log_warn("results will not be stored: %s", err.message);
	tune_store_close(it->store);
	it->store = NULL;
}

int tune_measure(const struct tune_request *request, struct error *err)
{
	struct measuring it = {.request = request, .configs = request->family->configs};
	const struct tune_work work = {.context = &it,
		.build = build,
		.time = time_candidate,
		.mhz = mhz,
		.verify = verify,
		.record = record,
		.progress = show_progress,
		.clock = clock_elapsed};
	struct tune_search search = {
		.work = &work,
		.parameters = it.configs->parameters,
		.strategy = request->strategy,
		.budget = request->budget,
		.seed = request->seed,
		.devices = request->device_count,
		.builders = (int)sysconf(_SC_NPROCESSORS_ONLN),
	};
	struct tune_space space = {0};
	int result;

	it.problem = family_problem(request->family, &request->shape, request->dtype, request->options);
	it.cost = tuning_cost_of(request->family, &request->shape, request->dtype, request->options);
	result = gpu_query(request->devices[0], &it.properties, err);
	if (!result)
		result = tune_space_make(request->family, &it.problem, &it.properties, &space, err);
	if (!result)
		result = open_workers(&it, err);
	if (!result) {
		list_candidates(&space, &search);
		open_store(&it, &search);
		result = search_and_tell(&it, &search, err);
	}
	free(search.candidates);
	tune_space_free(&space);
	close_all(&it);
	return result;
}
