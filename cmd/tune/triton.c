/* tune: the Triton kernels of a fork, one after the other, each timed in place within the whole layer. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/version.h"
#include "cli/progress.h"
#include "cli/python.h"
#include "cmd/tune/tune.h"
#include "fork/triton_source.h"
#include "gpu/cache.h"
#include "gpu/clock.h"
#include "layer/layer.h"
#include "probe/probe.h"
#include "tensor/compare.h"
#include "tensor/random.h"
#include "tune/results.h"
#include "tune/triton.h"
#include "tune/worker.h"

#define MOST_KERNELS 32
#define OPENING_SECONDS                                                                                      \
	600.0 /* for the first call, in which all kernels are compiled and tuned as the fork says */
#define TRIAL_SECONDS 120.0 /* for a candidate's compilation and its calls */
#define SEARCH_SHARE 0.9    /* of the budget; the rest is to compare what was found with the untuned layer */
#define MOST_COMPILERS 8    /* processes, with PyTorch in each */
#define ROUND_SECONDS 0.02  /* of calls one behind the other, which hide the host's part from the GPU, */
#define MOST_CALLS 10       /* and these are as many as validators make */
#define LEAST_COSINE 0.9999 /* with the output of the untuned layer */
#define INPUT "x"
#define SOURCE_BYTES ((size_t)16 << 20)
#define WEIGHTS_BYTES ((size_t)256 << 20)

enum { UNTUNED = 1, TUNED }; /* values of a parameter */

struct triton_tuning {
	const struct tune_request *request;
	struct probe_options options;
	struct python python;
	char *fork, script[64];
	struct gpu_properties properties; /* name "": Triton's interpreter, on the CPU */
	struct gpu_clock *clock;          /* of the GPU */
	struct probe *probe;              /* NULL: to be opened */
	struct buffer weights;            /* of the first session's layer, as a file */
	float *input, *untuned, *output;  /* [tokens, LAYER_HIDDEN] */
	int calls;                        /* of a round */
	struct triton_kernel kernels[MOST_KERNELS];
	char sources[MOST_KERNELS][65];      /* hashes of their files, before they are tuned */
	struct config winners[MOST_KERNELS]; /* of those that are done; the others run as they are */
	int kernel_count, done;
	bool complete; /* each of these searches */
	struct tune_row rows[MOST_KERNELS];
	struct tune_found compared; /* the layer as the fork has it, and with the winners if there are any */
	struct progress progress;

	const char *compiler_argv[4];
	cJSON *compiler_opening;
	struct tune_worker *compilers[MOST_COMPILERS];
	bool compiling[MOST_COMPILERS];
	int compiler_count; /* 0: nothing is compiled ahead */
	pthread_mutex_t mutex;
};

static size_t numbers(const struct triton_tuning *it)
{
	return (size_t)it->request->shape.tokens * LAYER_HIDDEN;
}

/* --- the session ----------------------------------------------------------------------------------- */

/* Whether a configuration is another one than that which the fork chooses itself. */
static bool is_change(const struct triton_kernel *kernel, const struct config *config)
{
	return memcmp(config, &kernel->configs[0], sizeof(*config)) != 0;
}

static void choose(const struct triton_kernel *kernel, const struct config *config, cJSON *choices)
{
	cJSON_AddItemToObject(choices, kernel->name, triton_config_json(kernel, config));
}

static void choose_change(const struct triton_kernel *kernel, const struct config *config, cJSON *choices)
{
	if (is_change(kernel, config))
		choose(kernel, config, choices);
}

/* The kernels that are done run in what was found for them, the next one in a candidate. When all are done there are two
 * candidates: the layer as the fork has it, and as it was tuned. */
static int configure(struct triton_tuning *it, const struct config *config, struct error *err)
{
	bool last = it->done == it->kernel_count;
	cJSON *choices = cJSON_CreateObject();
	int result;

	for (int i = 0; i < it->done && (!last || config->value[0] == TUNED); i++)
		choose_change(&it->kernels[i], &it->winners[i], choices);
	if (!last)
		choose_change(&it->kernels[it->done], config, choices);
	result = probe_configure(it->probe, choices, INPUT, err);
	cJSON_Delete(choices);
	return result;
}

static void close_session(struct triton_tuning *it)
{
	probe_close(it->probe);
	it->probe = NULL;
}

/* A layer is constructed with random weights: those of later sessions get the first one's. */
static int share_weights(struct triton_tuning *it, struct error *err)
{
	const char *path;

	if (probe_save_weights(it->probe, &path, err) < 0)
		return -1;
	if (!it->weights.length)
		return file_read(path, WEIGHTS_BYTES, &it->weights, err);
	return file_write(path, it->weights.data, it->weights.length, 0600, FILE_REPLACE, err) < 0
		? -1
		: probe_load_weights(it->probe, path, err);
}

/* Starts the layer, and has it called once: `kernels` receives what there is to tune. The caller deletes it. */
static int open_session(struct triton_tuning *it, cJSON **kernels, struct error *err)
{
	int64_t tokens = it->request->shape.tokens;

	it->probe = probe_open(&it->options, err);
	if (!it->probe)
		return -1;
	probe_limit(it->probe, OPENING_SECONDS);
	if (probe_load(it->probe, err) < 0 || share_weights(it, err) < 0 ||
		probe_input(it->probe, INPUT, it->input, tokens, err) < 0)
		return -1;
	*kernels = probe_autotuners(it->probe, INPUT, err);
	return *kernels ? 0 : -1;
}

static int make_ready(struct triton_tuning *it, struct error *err)
{
	cJSON *kernels = NULL;
	int result;

	if (it->probe && !probe_alive(it->probe))
		close_session(it);
	if (it->probe)
		return 0;
	result = open_session(it, &kernels, err);
	cJSON_Delete(kernels);
	if (result < 0 &&
		err->status ==
			STATUS_FAILED) /* what ran before does not run any more: no candidate's fault */
		err->status = STATUS_ENVIRONMENT;
	return result;
}

/* --- trials ---------------------------------------------------------------------------------------- */

/* One that has nothing to do. There are as many as there are threads that build. */
static size_t take_compiler(struct triton_tuning *it)
{
	size_t at = 0;

	pthread_mutex_lock(&it->mutex);
	while (it->compiling[at])
		at++;
	it->compiling[at] = true;
	pthread_mutex_unlock(&it->mutex);
	return at;
}

static bool is_compiling_ahead(struct triton_tuning *it)
{
	bool result;

	pthread_mutex_lock(&it->mutex);
	result = it->compiler_count > 0;
	pthread_mutex_unlock(&it->mutex);
	return result;
}

static void give_compiler(struct triton_tuning *it, size_t at)
{
	pthread_mutex_lock(&it->mutex);
	it->compiling[at] = false;
	pthread_mutex_unlock(&it->mutex);
}

/* Nothing is lost without: Triton compiles at the first call, which is not timed. */
static int compile_no_more(struct triton_tuning *it, const struct error *why)
{
	pthread_mutex_lock(&it->mutex);
	if (it->compiler_count)
		log_note("kernels are not compiled ahead: %s", why->message);
	it->compiler_count = 0;
	pthread_mutex_unlock(&it->mutex);
	return 0;
}

static int judge_build(
	const struct triton_tuning *it, const cJSON *answer, struct tune_build *found, struct error *err)
{
	int64_t shared;

	if (json_integer(answer, "shared_bytes", JSON_REQUIRED, &shared, err) < 0 || shared < 0 ||
		shared > INT32_MAX)
		return error_set(err, STATUS_ENVIRONMENT, "the compiling process answers with nonsense");
	*found = TUNE_BUILD_UNKNOWN;
	found->shared_bytes = (int)shared;
	return shared <= it->properties.shared_per_block
		? 0
		: error_set(err, STATUS_FAILED, "needs %lld bytes of shared memory a block; there are %d",
			  (long long)shared, it->properties.shared_per_block);
}

/* Ahead of its first call, into the cache that this will look into. */
static int build(void *context, const struct config *config, struct tune_build *found, struct error *err)
{
	struct triton_tuning *it = context;
	const struct triton_kernel *kernel = &it->kernels[it->done];
	cJSON *request = is_compiling_ahead(it) ? triton_build_request(kernel, config) : NULL, *answer;
	size_t at;
	int result;

	if (!request)
		return 0;
	at = take_compiler(it);
	answer = tune_worker_ask(it->compilers[at], request, err);
	give_compiler(it, at);
	result = answer ? judge_build(it, answer, found, err) : -1;
	cJSON_Delete(answer);
	if (!result || err->status == STATUS_INTERRUPTED)
		return result;
	/* what has run already can be compiled */
	if (err->status != STATUS_FAILED || !is_change(kernel, config))
		return compile_no_more(it, err);
	return -1;
}

/* Whatever failed may have left the GPU's context unusable, or have written anywhere. */
static int give_up(struct triton_tuning *it)
{
	close_session(it);
	return -1;
}

/* Whether all kernels run as they are told, by what the fork itself chose last. */
static int try_configuring(struct triton_tuning *it, struct error *err)
{
	cJSON *choices = cJSON_CreateObject();
	int result;

	for (int i = 0; i < it->kernel_count; i++)
		choose(&it->kernels[i], &it->kernels[i].configs[0], choices);
	result = probe_configure(it->probe, choices, INPUT, err);
	cJSON_Delete(choices);
	return result;
}

/* Of calls of the session's layer, as it is configured. */
static int time_calls(
	const struct triton_tuning *it, int calls, int rounds, struct probe_times *times, struct error *err)
{
	const char *inputs[] = {INPUT, NULL};
	const struct probe_timing timing = {.tokens = it->request->shape.tokens,
		.inputs = inputs,
		.warmups = 2,
		.calls = calls,
		.rounds = rounds < PROBE_ROUNDS ? rounds : PROBE_ROUNDS,
		.seconds = TRIAL_SECONDS};

	return probe_time(it->probe, &timing, times, err);
}

/* How many calls a round has, from what one takes by itself. The interpreter works on the host alone. */
static int choose_calls(struct triton_tuning *it, struct error *err)
{
	struct probe_times times;

	it->calls = 1;
	if (!it->properties.name[0])
		return 0;
	if (time_calls(it, 1, 1, &times, err) < 0)
		return -1;
	it->calls = (int)fmax(1, fmin(MOST_CALLS, ceil(ROUND_SECONDS / times.process[0])));
	return 0;
}

static int time_layer(
	void *context, int device, const struct config *config, int runs, double *seconds, struct error *err)
{
	struct triton_tuning *it = context;
	struct probe_times times;

	(void)device;
	if (make_ready(it, err) < 0)
		return -1;
	probe_limit(it->probe, TRIAL_SECONDS);
	if (configure(it, config, err) < 0 || time_calls(it, it->calls, runs, &times, err) < 0)
		return give_up(it);
	for (int i = 0; i < runs; i++)
		seconds[i] = times.process[i % times.rounds] / it->calls;
	return 0;
}

static double mhz(void *context, int device)
{
	const struct triton_tuning *it = context;

	(void)device;
	return gpu_clock_mhz(it->clock);
}

/* Against the output of the layer as the fork has it. */
static int compare_output(struct triton_tuning *it, const struct config *config, struct error *err)
{
	struct comparison found;

	if (make_ready(it, err) < 0)
		return -1;
	probe_limit(it->probe, TRIAL_SECONDS);
	if (configure(it, config, err) < 0 ||
		probe_call(it->probe, INPUT, it->request->shape.tokens, 0x7f, it->output, err) < 0)
		return give_up(it);
	found = compare_float(it->output, it->untuned, numbers(it));
	if (found.finite && found.cosine >= LEAST_COSINE)
		return 0;
	error_set(err, STATUS_FAILED, "computes something else: cosine %.6f with the untuned layer",
		found.finite ? found.cosine : NAN);
	return give_up(it);
}

/* In a new session once more: whatever ran before in this one may have written anywhere. */
static int verify(void *context, int device, const struct config *config, struct error *err)
{
	struct error first = {0};

	(void)device;
	if (compare_output(context, config, &first) == 0)
		return 0;
	if (first.status == STATUS_FAILED)
		return compare_output(context, config, err);
	*err = first;
	return -1;
}

static void record(void *context, const struct tune_candidate *candidate)
{
	const struct triton_tuning *it = context;
	char parameters[256];

	config_format(it->kernels[it->done].parameters, &candidate->config, parameters, sizeof(parameters));
	if (candidate->outcome == TUNE_FAILED)
		log_note("%s %s %s", it->kernels[it->done].name, parameters, candidate->problem);
}

static void show_progress(void *context, size_t done, size_t planned, double left, double best)
{
	struct triton_tuning *it = context;
	char duration[32];

	clock_duration(left, duration);
	if (it->done == it->kernel_count)
		return progress_status(&it->progress, "comparing with the untuned layer");
	progress_status(&it->progress, "tuning %s (%d of %d): %zu of %zu, best %.3f ms, %s left",
		it->kernels[it->done].name, it->done + 1, it->kernel_count, done, planned, best * 1e3,
		duration);
}

/* --- a kernel -------------------------------------------------------------------------------------- */

/* A hash of the file that a kernel stands in; "" where that cannot be read. */
static void hash_source(const struct triton_tuning *it, const struct triton_kernel *kernel, char hash[65])
{
	struct buffer text = {0};
	struct error none;
	size_t length;
	char *path;

	triton_function(kernel, &length);
	path = xprintf("%s/%.*s", it->fork, (int)length, kernel->name);
	hash[0] = '\0';
	if (file_read(path, SOURCE_BYTES, &text, &none) == 0 && text.length)
		cache_key(hash, (const char *const[]){text.data, NULL});
	buffer_free(&text);
	free(path);
}

/* Sessions import the fork anew: of a file that was changed meanwhile nobody knows which state was timed. */
static int require_unchanged(const struct triton_tuning *it, int index, struct error *err)
{
	const struct triton_kernel *kernel = &it->kernels[index];
	char hash[65];
	size_t length;

	hash_source(it, kernel, hash);
	if (!strcmp(hash, it->sources[index]))
		return 0;
	triton_function(kernel, &length);
	error_set(
		err, STATUS_FAILED, "%.*s was changed while its kernel was tuned", (int)length, kernel->name);
	return error_hint(err, "Tune again what it is now.");
}

static void store(const struct triton_tuning *it, const struct tune_row *row, const struct tune_found *found)
{
	struct tune_result result = {.when = clock_now(),
		.key.capability = it->properties.capability,
		.key.class = shape_class_of("layer", DTYPE_BF16, &it->request->shape),
		.ms = row->ms,
		.noise = row->error,
		.usual_ms = found->first_seconds * 1e3,
		.registers = -1,
		.shared_bytes = -1,
		.spills = -1,
		.occupancy = NAN,
		.bytes = NAN,
		.operations = NAN,
		.tried = (int)found->tried,
		.failed = (int)found->failed,
		.complete = found->complete};
	struct tune_store *kept = NULL;
	struct error err;

	snprintf(result.key.device, sizeof(result.key.device), "%s", it->properties.name);
	snprintf(result.key.driver, sizeof(result.key.driver), "%s", it->properties.driver);
	snprintf(result.key.kernel, sizeof(result.key.kernel), "%.127s", it->kernels[it->done].name);
	snprintf(result.key.source, sizeof(result.key.source), "%s", it->sources[it->done]);
	snprintf(result.parameters, sizeof(result.parameters), "%s", row->parameters);
	snprintf(result.version, sizeof(result.version), "%s", QUASAR_VERSION);
	if (require_unchanged(it, it->done, &err) == 0)
		kept = tune_store_open(NULL, &err);
	if (!kept || tune_store_begin(kept, &result, &err) < 0)
		log_warn("this result is not stored: %s", err.message);
	tune_store_close(kept);
}

static int tune_kernel(struct triton_tuning *it, struct tune_found *found, struct error *err)
{
	const struct triton_kernel *kernel = &it->kernels[it->done];
	const struct tune_work work = {.context = it,
		.build = build,
		.time = time_layer,
		.mhz = mhz,
		.verify = verify,
		.record = record,
		.progress = show_progress,
		.clock = clock_elapsed};
	struct tune_search search = {.work = &work,
		.parameters = kernel->parameters,
		.candidates = xcalloc(kernel->count, sizeof(*search.candidates)),
		.count = kernel->count,
		.strategy = it->request->strategy,
		.budget = it->request->budget * SEARCH_SHARE / it->kernel_count,
		.seed = it->request->seed,
		.devices = 1,
		.builders = it->compiler_count ? it->compiler_count : 1};
	struct tune_row *row = &it->rows[it->done];
	int result;

	for (size_t i = 0; i < kernel->count; i++)
		search.candidates[i] = (struct tune_candidate){.config = kernel->configs[i],
			.build = TUNE_BUILD_UNKNOWN,
			.seconds = NAN,
			.noise = NAN};
	result = tune_search_run(&search, found, err);
	if (!result) {
		*row = (struct tune_row){.ms = found->best_seconds * 1e3,
			.error = search.candidates[found->best].noise,
			.occupancy = NAN,
			.registers = -1,
			.shared_bytes = -1,
			.spills = -1};
		snprintf(row->kernel, sizeof(row->kernel), "%.63s", strchr(kernel->name, ':') + 1);
		config_format(kernel->parameters, &search.candidates[found->best].config, row->parameters,
			sizeof(row->parameters));
		it->complete = it->complete && found->complete;
		if (it->properties.name[0])
			store(it, row, found);
		it->winners[it->done++] = search.candidates[found->best].config;
	}
	free(search.candidates);
	return result;
}

/* --- all of them ----------------------------------------------------------------------------------- */

static int build_nothing(
	void *context, const struct config *config, struct tune_build *found, struct error *err)
{
	(void)context;
	(void)config;
	(void)found;
	(void)err;
	return 0;
}

static bool has_changes(const struct triton_tuning *it)
{
	for (int i = 0; i < it->done; i++)
		if (is_change(&it->kernels[i], &it->winners[i]))
			return true;
	return false;
}

/* Each kernel's configuration has won among hundreds. Whether all of them make the layer faster than it is as the fork has
 * it, another duel tells, in a new session, which knows nothing of the others. No budget ends it. */
static int compare(struct triton_tuning *it, struct tune_found *found, struct error *err)
{
	static const struct parameter parameters[] = {{"layer", true, {UNTUNED, TUNED}}, {0}};
	const struct tune_work work = {.context = it,
		.build = build_nothing,
		.time = time_layer,
		.mhz = mhz,
		.verify = verify,
		.progress = show_progress,
		.clock = clock_elapsed};
	struct tune_candidate candidates[] = {
		{.config = {{UNTUNED}}, .build = TUNE_BUILD_UNKNOWN, .seconds = NAN, .noise = NAN},
		{.config = {{TUNED}}, .build = TUNE_BUILD_UNKNOWN, .seconds = NAN, .noise = NAN}};
	const struct tune_search search = {.work = &work,
		.parameters = parameters,
		.candidates = candidates,
		.count = 2,
		.strategy = TUNE_EXHAUSTIVE,
		.budget = INFINITY,
		.devices = 1,
		.builders = 1};

	close_session(it);
	return tune_search_run(&search, found, err);
}

/* Whether the layer is faster with what was found. */
static bool is_better(const struct triton_tuning *it)
{
	return it->compared.best == 1;
}

/* --- into the source ------------------------------------------------------------------------------- */

/* A kernel's file, without and with a configuration. */
struct source {
	char *name, *path, *after; /* within the fork; in all; the text with it */
	struct buffer before;
};

static void free_source(struct source *source)
{
	free(source->name);
	free(source->path);
	free(source->after);
	buffer_free(&source->before);
}

/* Free with free_source(), also when this fails. */
static int rewrite(const struct triton_tuning *it, const struct triton_kernel *kernel,
	const struct config *config, struct source *source, struct error *err)
{
	cJSON *object = triton_config_json(kernel, config);
	size_t length;
	const char *function = triton_function(kernel, &length);
	char *path;

	*source = (struct source){.name = xprintf("%.*s", (int)length, kernel->name)};
	path = path_join(it->fork, source->name);
	source->path = realpath(path, NULL); /* of what a link leads to, which stays one */
	if (!source->path)
		source->path = xstrdup(path);
	free(path);
	if (file_read(source->path, SOURCE_BYTES, &source->before, err) == 0)
		source->after = triton_source_rewrite(
			it->python.path, source->before.data, function, object, err);
	cJSON_Delete(object);
	return source->after ? 0 : -1;
}

/* Puts a kernel's configuration into its file, and shows what that changes. */
static int write_kernel(const struct triton_tuning *it, int index, bool write, struct error *err)
{
	struct source source;
	struct stat status;
	char *diff = NULL;
	int result = rewrite(it, &it->kernels[index], &it->winners[index], &source, err);

	if (!result)
		diff = triton_source_diff(source.name, source.before.data, source.after, err);
	result = diff ? 0 : -1;
	if (!result && !it->request->invocation->json)
		fputs(diff, stdout);
	if (!result && write)
		result = stat(source.path, &status) < 0
			? error_set(err, STATUS_ENVIRONMENT, "%s is not there any more", source.path)
			: file_write(source.path, source.after, strlen(source.after), status.st_mode & 0777,
				  FILE_REPLACE, err);
	free(diff);
	free_source(&source);
	return result;
}

static int write_all(const struct triton_tuning *it, struct error *err)
{
	bool write = arg_flag(it->request->invocation, "write");
	int result = 0;

	for (int i = 0; i < it->done && write && !result; i++) /* all of them first: they may share a file */
		result = require_unchanged(it, i, err);
	for (int i = 0; i < it->done && !result; i++)
		if (is_change(&it->kernels[i], &it->winners[i]))
			result = write_kernel(it, i, write, err);
	return result;
}

static cJSON *document_of(const struct triton_tuning *it)
{
	cJSON *more = cJSON_CreateObject(), *changed;

	cJSON_AddNumberToObject(more, "seq", (double)it->request->shape.tokens);
	cJSON_AddNumberToObject(more, "untuned_ms", it->compared.first_seconds * 1e3);
	cJSON_AddNumberToObject(more, "tuned_ms", it->compared.best_seconds * 1e3);
	cJSON_AddBoolToObject(more, "complete", it->complete);
	cJSON_AddBoolToObject(more, "written", is_better(it) && arg_flag(it->request->invocation, "write"));
	changed = cJSON_AddArrayToObject(more, "changed");
	for (int i = 0; i < it->done && is_better(it); i++)
		if (is_change(&it->kernels[i], &it->winners[i]))
			cJSON_AddItemToArray(changed, cJSON_CreateString(it->kernels[i].name));
	return tuning_document(it->properties.name[0] ? it->properties.name : "cpu", false, it->rows,
		(size_t)it->done, more);
}

static int tell(const struct triton_tuning *it, struct error *err)
{
	double untuned = it->compared.first_seconds * 1e3, tuned = it->compared.best_seconds * 1e3;

	if (!it->request->invocation->json) {
		printf("\n");
		tune_print_table(it->rows, (size_t)it->done, 1);
		printf("\nThe whole layer at %lld tokens: %.3f ms", (long long)it->request->shape.tokens,
			tuned);
		if (!is_better(it))
			printf(" as the fork has it. Nothing better was found, so nothing is changed.\n");
		else
			printf(", untuned %.3f ms (%+.1f %%).\n%s\n", untuned, (untuned / tuned - 1) * 100,
				arg_flag(it->request->invocation, "write")
					? "Written. Next: quasar verify && quasar push"
					: "Nothing was written; with --write, the changes above are made.");
	}
	return tune_publish(it->request, document_of(it), err);
}

/* --- all of it ------------------------------------------------------------------------------------- */

static int find_device(struct triton_tuning *it, struct error *err)
{
	const char *interpreter = getenv("TRITON_INTERPRET");

	it->options.gpu = it->request->devices[0];
	if (interpreter && !strcmp(interpreter, "1")) {
		it->options.gpu = -1;
		log_warn(
			"TRITON_INTERPRET=1: Triton's interpreter runs on the CPU, and its times say nothing of a GPU");
		return 0;
	}
	if (gpu_query(it->request->devices[0], &it->properties, err) < 0)
		return -1;
	it->clock = gpu_clock_open(&it->properties);
	return 0;
}

static int prepare(struct triton_tuning *it, struct error *err)
{
	size_t bytes = numbers(it) * sizeof(float);

	it->fork = tune_fork_path(it->request->invocation, err);
	if (!it->fork || find_device(it, err) < 0 ||
		command_python(it->request->invocation, it->fork, &it->python, err) < 0 ||
		python_require_torch(&it->python, err) < 0)
		return -1;
	snprintf(it->script, sizeof(it->script), PROBE_SCRIPT, (long long)it->request->shape.tokens);
	it->options.fork = it->fork;
	it->options.python = it->python.path;
	it->options.script = it->script;
	it->options.seconds = OPENING_SECONDS;
	it->input = malloc(bytes);
	it->untuned = malloc(bytes);
	it->output = malloc(bytes);
	if (!it->input || !it->untuned || !it->output)
		return error_set(err, STATUS_ENVIRONMENT, "not enough memory for %lld tokens",
			(long long)it->request->shape.tokens);
	random_normal(it->request->seed, 0, 1, it->input, numbers(it));
	return 0;
}

/* The processes that compile, which import PyTorch and the fork while the layer does. They are started by the thread that
 * stays. */
static void start_compilers(struct triton_tuning *it)
{
	long most = sysconf(_SC_NPROCESSORS_ONLN) - 1;
	struct error err;

	it->compiler_argv[0] = it->python.path;
	it->compiler_argv[1] = "-c";
	it->compiler_argv[2] = triton_compiler;
	it->compiler_opening = cJSON_CreateObject();
	cJSON_AddStringToObject(it->compiler_opening, "fork", it->fork);
	while (it->compiler_count < MOST_COMPILERS && it->compiler_count < most) {
		struct tune_worker *compiler = tune_worker_make(&(struct tune_worker_options){
			.argv = it->compiler_argv,
			.opening = it->compiler_opening,
			.opening_seconds = OPENING_SECONDS,
			.trial_seconds = TRIAL_SECONDS,
		});

		it->compilers[it->compiler_count++] = compiler;
		if (tune_worker_start(compiler, &err) < 0)
			return (void)compile_no_more(it, &err);
	}
}

static void end_compilers(struct triton_tuning *it)
{
	for (int i = 0; i < MOST_COMPILERS; i++)
		tune_worker_free(it->compilers[i]);
	cJSON_Delete(it->compiler_opening);
}

/* By its function, or the file too. */
static bool is_called(const struct triton_kernel *kernel, const char *name)
{
	return !strcmp(name, kernel->name) || !strcmp(name, strchr(kernel->name, ':') + 1);
}

/* What could not be written must not be tuned: the others are tuned beside it. */
static int require_writable(
	const struct triton_tuning *it, const struct triton_kernel *kernel, struct error *err)
{
	struct source source;
	int result = rewrite(it, kernel, &kernel->configs[0], &source, err);

	free_source(&source);
	return result;
}

/* Those of the fork's kernels that the layer runs and that can be tuned, or the one that --kernel names. */
static int take_kernels(struct triton_tuning *it, const cJSON *list, struct error *err)
{
	const char *wanted = arg_string(it->request->invocation, "kernel");
	const cJSON *item;

	cJSON_ArrayForEach (item, list) {
		struct triton_kernel *kernel = &it->kernels[it->kernel_count];
		struct error why;
		int result;

		if (it->kernel_count == MOST_KERNELS)
			break;
		result = triton_kernel_read(item, kernel, &why);
		if (!result && wanted && !is_called(kernel, wanted)) {
			triton_kernel_free(kernel);
			continue;
		}
		if (!result)
			result = require_writable(it, kernel, &why);
		if (!result) {
			hash_source(it, kernel, it->sources[it->kernel_count]);
			it->kernel_count++;
		} else {
			log_note("%s", why.message);
			triton_kernel_free(kernel);
		}
	}
	if (it->kernel_count)
		return 0;
	error_set(err, STATUS_FAILED,
		wanted ? "the fork's layer runs no kernel %s that Triton's autotuner chooses configurations for"
		       : "the fork's layer runs no kernel that Triton's autotuner chooses configurations for%s",
		wanted ? wanted : "");
	return error_hint(err, "quasar's own CUDA kernels are tuned without --triton.");
}

static int tune_all(struct triton_tuning *it, struct error *err)
{
	struct tune_found found = {0};
	int result = 0;

	progress_begin(&it->progress, "tuning", 0, "configurations");
	while (it->done < it->kernel_count && !result && !found.interrupted)
		result = tune_kernel(it, &found, err);
	if (!result && !found.interrupted && has_changes(it))
		result = compare(it, &found, err);
	progress_end(&it->progress);
	close_session(it);
	if (!result && found.interrupted)
		result = error_set(err, STATUS_INTERRUPTED, "interrupted: nothing was written");
	it->compared = found;
	if (!result && is_better(it))
		result = write_all(it, err);
	return result ? result : tell(it, err);
}

int tune_triton(const struct tune_request *request, struct error *err)
{
	struct triton_tuning it = {.request = request, .complete = true, .mutex = PTHREAD_MUTEX_INITIALIZER};
	cJSON *kernels = NULL;
	int result = prepare(&it, err);

	if (!result && it.properties.name[0])
		start_compilers(&it);
	if (!result)
		result = open_session(&it, &kernels, err);
	if (!result)
		result = take_kernels(&it, kernels, err);
	if (!result)
		result = probe_call(it.probe, INPUT, request->shape.tokens, 0, it.untuned, err);
	if (!result)
		result = try_configuring(&it, err);
	if (!result)
		result = choose_calls(&it, err);
	if (!result)
		result = tune_all(&it, err);
	cJSON_Delete(kernels);
	close_session(&it);
	end_compilers(&it);
	for (int i = 0; i < it.kernel_count; i++)
		triton_kernel_free(&it.kernels[i]);
	gpu_clock_close(it.clock);
	python_free(&it.python);
	free(it.fork);
	buffer_free(&it.weights);
	free(it.input);
	free(it.untuned);
	free(it.output);
	return result;
}
