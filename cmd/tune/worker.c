/* tune: the process that tries candidates of quasar's own kernels on a GPU. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"
#include "cmd/tune/tune.h"
#include "gpu/clock.h"
#include "gpu/gpu.h"
#include "measure/fixture.h"
#include "op/tuned.h"
#include "tensor/compare.h"
#include "tune/worker.h"

#define WARMUPS 2
#define CHECKED_TOKENS 16384    /* against the fp64 reference, at most */
#define CHECKED_OPERATIONS 2e10 /* where the host computes it: a few seconds on two cores */
#define MOST_RELATIVE_ERROR 0.02

struct own {
	struct device device;
	const struct family *family;
	struct gpu_workspace workspace;
	struct fixture fixture,
		small;        /* as long as it is tuned for, and as long as the reference is had for */
	void *usual;          /* outputs without tuning, as they are */
	double *reference;    /* of the small one */
	struct config config; /* in work */
	struct gpu_clock *clock;
	double mhz; /* as it was then */
};

/* --- opening --------------------------------------------------------------------------------------- */

static const struct gpu_properties *properties(const struct own *own)
{
	return gpu_properties_of(device_gpu(&own->device));
}

static int read_plan(const cJSON *opening, struct own *own, struct fixture_plan *plan, struct error *err)
{
	const char *op, *semantics;
	int64_t device, tokens, heads, dim, dtype, seed;

	if (json_string(opening, "op", JSON_REQUIRED, &op, err) < 0 ||
		json_string(opening, "semantics", JSON_REQUIRED, &semantics, err) < 0 ||
		json_integer(opening, "device", JSON_REQUIRED, &device, err) < 0 ||
		json_integer(opening, "tokens", JSON_REQUIRED, &tokens, err) < 0 ||
		json_integer(opening, "heads", JSON_REQUIRED, &heads, err) < 0 ||
		json_integer(opening, "head_dim", JSON_REQUIRED, &dim, err) < 0 ||
		json_integer(opening, "dtype", JSON_REQUIRED, &dtype, err) < 0 ||
		json_integer(opening, "seed", JSON_REQUIRED, &seed, err) < 0)
		return -1;
	own->family = family_find(op);
	*plan = (struct fixture_plan){
		.family = own->family,
		.shape = {1, tokens, (int)heads, (int)dim, (int)dim, 0, 0},
		.dtype = (enum dtype)dtype,
		.seed = (uint64_t)seed,
	};
	if (!own->family || !own->family->configs)
		return error_set(err, STATUS_USAGE, "%s cannot be tuned", op);
	if (family_options_parse(own->family, semantics, plan->options, err) < 0)
		return -1;
	return device_open_cuda((int)device, &own->device, err);
}

static int operate(struct own *own, const struct fixture *fixture, const struct config *config, void *output,
	struct error *err)
{
	if (fixture_poison(fixture, err) < 0 ||
		own->device.operate(&own->device, own->family, &fixture->problem, config, err) < 0)
		return -1;
	return fixture_download_outputs(fixture, output, err);
}

static size_t output_bytes(const struct fixture *fixture)
{
	return fixture_outputs(fixture) * dtype_size(fixture->plan.dtype);
}

static int allocate(void **memory, size_t bytes, struct error *err)
{
	*memory = malloc(bytes);
	return *memory ? 0
		       : error_set(err, STATUS_ENVIRONMENT, "not enough memory: %.0f MiB are needed",
				 (double)bytes / 0x1p20);
}

/* As many as the reference can be had for in a moment: all pairs of tokens take the host long. */
static int64_t checked_tokens(const struct fixture_plan *plan)
{
	const struct family *family = plan->family;
	struct op_shape shape = plan->shape;
	struct op_problem problem;

	if (shape.tokens > CHECKED_TOKENS)
		shape.tokens = CHECKED_TOKENS;
	for (; !family->cuda_reference && shape.tokens > 1; shape.tokens /= 2) {
		problem = family_problem(family, &shape, plan->dtype, plan->options);
		if (family->operations(&problem) <= CHECKED_OPERATIONS)
			break;
	}
	return shape.tokens;
}

static int open_all(void *context, const cJSON *opening, struct error *err)
{
	struct own *own = context;
	struct fixture_plan plan, small;
	double *results[FAMILY_TENSORS] = {0};
	struct config usual;
	void *reference;

	if (read_plan(opening, own, &plan, err) < 0)
		return -1;
	small = plan;
	small.shape.tokens = checked_tokens(&plan);
	if (fixture_make(&own->fixture, &own->device, &plan, err) < 0 ||
		fixture_make(&own->small, &own->device, &small, err) < 0 ||
		allocate(&own->usual, output_bytes(&own->fixture), err) < 0 ||
		allocate(&reference, fixture_outputs(&own->small) * sizeof(double), err) < 0)
		return -1;
	own->reference = reference;
	fixture_place_results(&own->small, own->reference, results);
	own->clock = gpu_clock_open(properties(own));
	usual = own->family->configs->usual(&own->fixture.problem, properties(own));
	if (operate(own, &own->fixture, &usual, own->usual, err) < 0)
		return -1;
	return own->device.reference(&own->device, own->family, &own->small.problem, results, err);
}

/* --- trials ---------------------------------------------------------------------------------------- */

static int take_config(struct own *own, const char *parameters, struct error *err)
{
	const struct family_configs *configs = own->family->configs;

	if (config_parse(configs->parameters, parameters, &own->config, err) < 0)
		return -1;
	return configs->check(&own->fixture.problem, properties(own), &own->config, err);
}

/* The clock is read while the GPU works, in a call that is not timed. */
static int queue(int call, void *context, struct error *err)
{
	struct own *own = context;
	int result = tuned_run(own->family, device_gpu(&own->device), &own->workspace, &own->fixture.problem,
		&own->config, err);

	if (call == WARMUPS - 1)
		own->mhz = gpu_clock_mhz(own->clock);
	return result;
}

/* What fails here is the candidate's fault: without one everything has worked. */
static int blame(struct error *err)
{
	err->status = STATUS_FAILED;
	return -1;
}

static int time_candidate(
	void *context, const char *parameters, int runs, double *seconds, double *mhz, struct error *err)
{
	struct own *own = context;

	if (take_config(own, parameters, err) < 0 ||
		gpu_time(device_gpu(&own->device), queue, own, WARMUPS, runs, seconds, err) < 0)
		return blame(err);
	*mhz = own->mhz;
	return 0;
}

/* Numbers of a tensor as fp32, the caller's; NULL without memory. */
static float *widen(const void *elements, enum dtype dtype, size_t count)
{
	float *wide = malloc(count * sizeof(*wide));

	for (size_t i = 0; wide && i < count; i++)
		wide[i] = dtype_load(elements, dtype, (int64_t)i);
	return wide;
}

static int judge(const struct own *own, const struct comparison *found, const char *with, struct error *err)
{
	if (comparison_agrees(found, own->family->least_cosine, MOST_RELATIVE_ERROR))
		return 0;
	if (!found->finite)
		return error_set(err, STATUS_FAILED, "outputs are not finite, or were not written");
	return error_set(
		err, STATUS_FAILED, "computes something else: cosine %.6f with %s", found->cosine, with);
}

/* Each output of a fixture against `usual` (fp32) or, where that is NULL, the fp64 reference. */
static int compare_each(const struct own *own, const struct fixture *fixture, const float *outputs,
	const float *usual, struct error *err)
{
	const struct family_tensor *tensors = own->family->tensors;
	size_t at = 0;

	for (int i = 0; tensors[i].name; i++) {
		size_t count = fixture->count[i];
		struct comparison found;

		if (tensors[i].role != TENSOR_OUTPUT)
			continue;
		found = usual ? compare_float(outputs + at, usual + at, count)
			      : compare_float_double(outputs + at, own->reference + at, count);
		if (judge(own, &found, usual ? "the output without tuning" : "the fp64 reference", err) < 0)
			return -1;
		at += count;
	}
	return 0;
}

/* Both outputs are of the same call, one without tuning. */
static int compare_with_usual(struct own *own, const void *output, struct error *err)
{
	size_t count = fixture_outputs(&own->fixture);
	enum dtype dtype = own->fixture.plan.dtype;
	float *a = widen(output, dtype, count), *b = widen(own->usual, dtype, count);
	int result = a && b ? compare_each(own, &own->fixture, a, b, err)
			    : error_set(err, STATUS_ENVIRONMENT, "not enough memory to compare outputs");

	free(a);
	free(b);
	return result;
}

static int compare_with_reference(struct own *own, const void *output, struct error *err)
{
	float *wide = widen(output, own->fixture.plan.dtype, fixture_outputs(&own->small));
	int result = wide ? compare_each(own, &own->small, wide, NULL, err)
			  : error_set(err, STATUS_ENVIRONMENT, "not enough memory to compare outputs");

	free(wide);
	return result;
}

static int verify_candidate(void *context, const char *parameters, struct error *err)
{
	struct own *own = context;
	struct config fitted;
	void *output;
	int result;

	if (take_config(own, parameters, err) < 0)
		return blame(err);
	if (allocate(&output, output_bytes(&own->fixture), err) < 0)
		return -1;
	fitted = own->family->configs->adopt(&own->small.problem, properties(own), &own->config);
	result = operate(own, &own->fixture, &own->config, output, err);
	if (!result)
		result = compare_with_usual(own, output, err);
	if (!result)
		result = operate(own, &own->small, &fitted, output, err);
	if (!result)
		result = compare_with_reference(own, output, err);
	free(output);
	return result ? blame(err) : 0;
}

void tune_work(void)
{
	struct own own = {0};
	const struct tune_server server = {&own, open_all, time_candidate, verify_candidate};

	tune_serve(&server);
	gpu_clock_close(own.clock);
	free(own.usual);
	free(own.reference);
	fixture_free(&own.small);
	fixture_free(&own.fixture);
	if (own.device.gpu)
		gpu_workspace_free(device_gpu(&own.device), &own.workspace);
	device_close(&own.device);
}
