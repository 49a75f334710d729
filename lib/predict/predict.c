#include "predict/predict.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/memory.h"
#include "gpu/cuda.h"

/* What launches have in common that differ only in how they are launched. */
struct build {
	struct config_launch launch; /* the first of them */
	struct buffer code;          /* nothing: it could not be compiled */
	struct error problem;
};

struct compiling {
	const struct predict_request *request;
	struct build *builds;
	size_t count, next, done;
	pthread_mutex_t lock; /* of the two above */
};

/* --- compiling ------------------------------------------------------------------------------------- */

static bool is_same_build(const struct config_launch *a, const struct config_launch *b)
{
	int i = 0;

	if (strcmp(a->source, b->source) != 0)
		return false;
	for (; a->parameters[i].name && b->parameters[i].name; i++)
		if (strcmp(a->parameters[i].name, b->parameters[i].name) != 0 ||
			a->parameters[i].value != b->parameters[i].value)
			return false;
	return a->parameters[i].name == b->parameters[i].name;
}

static struct build *find_build(struct compiling *compiling, const struct config_launch *launch)
{
	for (size_t i = 0; i < compiling->count; i++)
		if (is_same_build(&compiling->builds[i].launch, launch))
			return &compiling->builds[i];
	return NULL;
}

static void list_builds(struct compiling *compiling)
{
	const struct predict_request *request = compiling->request;
	struct config_launch launches[CONFIG_LAUNCHES];

	compiling->builds = xcalloc(request->count * CONFIG_LAUNCHES, sizeof(*compiling->builds));
	for (size_t i = 0; i < request->count; i++) {
		int count = request->family->configs->launches(
			request->problem, &request->configs[i], launches);

		for (int launch = 0; launch < count; launch++)
			if (!find_build(compiling, &launches[launch]))
				compiling->builds[compiling->count++].launch = launches[launch];
	}
}

static void compile(const struct predict_request *request, struct build *build)
{
	if (kernel_compile(build->launch.source, build->launch.parameters, request->gpu->capability,
		    &build->code, &build->problem) < 0)
		buffer_free(&build->code);
}

static void *compile_next(void *context)
{
	struct compiling *compiling = context;
	const struct predict_request *request = compiling->request;

	pthread_mutex_lock(&compiling->lock);
	while (compiling->next < compiling->count && !interrupted()) {
		struct build *build = &compiling->builds[compiling->next++];

		pthread_mutex_unlock(&compiling->lock);
		compile(request, build);
		pthread_mutex_lock(&compiling->lock);
		compiling->done++;
		if (request->progress)
			request->progress(request->context, compiling->done, compiling->count);
	}
	pthread_mutex_unlock(&compiling->lock);
	return NULL;
}

static size_t core_count(void)
{
	cpu_set_t cores;

	return sched_getaffinity(0, sizeof(cores), &cores) == 0 ? (size_t)CPU_COUNT(&cores) : 1;
}

/* This thread is one of those that compile. */
static void compile_all(struct compiling *compiling)
{
	size_t wanted = core_count() < compiling->count ? core_count() : compiling->count, helpers = 0;
	pthread_t *threads = xcalloc(wanted, sizeof(*threads));

	while (helpers + 1 < wanted && !pthread_create(&threads[helpers], NULL, compile_next, compiling))
		helpers++;
	compile_next(compiling);
	while (helpers)
		pthread_join(threads[--helpers], NULL);
	free(threads);
}

/* --- looking at what came out ---------------------------------------------------------------------- */

static int predict_launch(const struct predict_request *request, const struct config_launch *launch,
	const struct buffer *code, double *longest, struct prediction *prediction, struct error *err)
{
	struct gpu_properties properties = gpu_model_properties(request->gpu);
	struct cubin_kernel kernel;
	struct occupancy occupancy;
	struct model_time time;
	int shared;

	if (cubin_read(code->data, code->length, launch->name, request->gpu->capability, &kernel, err) < 0)
		return -1;
	shared = kernel.shared_bytes + launch->shared_bytes;
	occupancy = occupancy_of(&properties, kernel.registers, launch->threads, shared);
	if (!occupancy.blocks)
		return error_set(err, STATUS_ENVIRONMENT, "%s has too few %s for a block of %s",
			properties.name, occupancy.limited_by, launch->name);
	time = model_launch(request->gpu, launch, &kernel, &occupancy);
	prediction->seconds += time.seconds;
	if (time.seconds < *longest)
		return 0;
	*longest = time.seconds;
	prediction->bound = time.bound;
	prediction->occupancy = occupancy;
	prediction->registers = kernel.registers;
	prediction->shared_bytes = shared;
	prediction->spilled_bytes = kernel.spilled_bytes;
	return 0;
}

static int predict(struct compiling *compiling, const struct config *config, struct prediction *prediction,
	struct error *err)
{
	const struct predict_request *request = compiling->request;
	struct config_launch launches[CONFIG_LAUNCHES];
	int count = request->family->configs->launches(request->problem, config, launches);
	double longest = 0;

	*prediction = (struct prediction){.config = *config};
	for (int i = 0; i < count; i++) {
		const struct build *build = find_build(compiling, &launches[i]);

		if (!build->code.data) {
			*err = build->problem;
			return -1;
		}
		if (predict_launch(request, &launches[i], &build->code, &longest, prediction, err) < 0)
			return -1;
	}
	return 0;
}

static int by_time(const void *a, const void *b)
{
	const struct prediction *x = a, *y = b;

	if (x->seconds != y->seconds)
		return x->seconds < y->seconds ? -1 : 1;
	return memcmp(&x->config, &y->config, sizeof(x->config));
}

int predict_run(const struct predict_request *request, struct prediction *predictions, struct error *err)
{
	struct compiling compiling = {.request = request, .lock = PTHREAD_MUTEX_INITIALIZER};
	int found = 0;

	if (!nvrtc_library(err)) /* opened before there are threads */
		return -1;
	list_builds(&compiling);
	compile_all(&compiling);
	if (interrupted())
		found = error_set(err, STATUS_INTERRUPTED, "interrupted");
	for (size_t i = 0; i < request->count && found >= 0; i++)
		if (predict(&compiling, &request->configs[i], &predictions[found], err) == 0)
			found++;
	for (size_t i = 0; i < compiling.count; i++)
		buffer_free(&compiling.builds[i].code);
	free(compiling.builds);
	if (!found)
		return -1; /* `err` is the last one's */
	if (found > 0)
		qsort(predictions, (size_t)found, sizeof(*predictions), by_time);
	return found;
}
