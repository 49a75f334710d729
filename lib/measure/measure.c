#include "measure/measure.h"

#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "layer/layer.h"
#include "measure/python_layer.h"
#include "tensor/random.h"

const char *workload_name(enum workload workload)
{
	static const char *const names[] = {"layer", "op", "python"};

	return names[workload];
}

double measure_memory(enum workload workload, int64_t tokens)
{
	/* the op: q, k, v and o in bf16; the layer: x in fp32, out in bf16, and its segments */
	double bytes = workload == WORKLOAD_OP ? 4.0 * 2 * LAYER_HIDDEN : 6.0 * LAYER_HIDDEN;

	return 64 + bytes * (double)tokens / (1 << 20);
}

double measure_traffic(int64_t tokens)
{
	return 4.0 * 2 * LAYER_HEADS * LAYER_DIM * (double)tokens;
}

double measure_operations(int64_t tokens)
{
	/* a token and head: three products with the state (K St, Kᵀ N, Q St), and four with the rows of its
	 * chunk, half of which are masked (K Kᵀ, T Y, Q Kᵀ, and that times N); T itself is a sixth of C² */
	double state = 3.0 * LAYER_DIM * LAYER_DIM, chunk = 4.0 / 2 * UPSTREAM_CHUNK * LAYER_DIM;
	double inverse = UPSTREAM_CHUNK * UPSTREAM_CHUNK / 6.0;

	return 2 * (state + chunk + inverse) * LAYER_HEADS * (double)tokens;
}

/* What a run needs; made once. */
struct setup {
	const struct device *device;
	struct layer *layer;
	void *placed; /* the layer on the device */
	float *x;     /* its input, and its output, there */
	uint16_t *out;
	struct layer_call call;
	struct quasar_problem problem;
};

#define SLICE ((size_t)1 << 20)

/* Random numbers to the device, a slice at a time. */
static int upload_normal(const struct device *device, uint64_t seed, float *to, size_t count, struct error *err)
{
	float *slice = malloc(SLICE * sizeof(*slice));
	int result = slice ? 0 : error_set(err, STATUS_ENVIRONMENT, "not enough memory for random numbers");

	for (size_t at = 0; at < count && !result; at += SLICE) {
		size_t length = count - at < SLICE ? count - at : SLICE;

		random_normal(seed, 1000 + at / SLICE, 1, slice, length);
		result = device->upload(to + at, slice, length * sizeof(*slice), err);
	}
	free(slice);
	return result;
}

static int prepare_layer(struct setup *setup, const struct measure_plan *plan, struct error *err)
{
	const struct device *device = setup->device;
	size_t elements;

	setup->layer = plan->weights ? layer_load(plan->weights, err)
				     : layer_random(LAYER_HIDDEN, LAYER_HEADS, LAYER_DIM, plan->seed, err);
	setup->placed = setup->layer ? device->layer_place(setup->layer, err) : NULL;
	if (!setup->placed)
		return -1;
	elements = (size_t)plan->tokens * (size_t)setup->layer->hidden;
	setup->x = device->allocate(elements * sizeof(*setup->x), err);
	setup->out = setup->x ? device->allocate(elements * sizeof(*setup->out), err) : NULL;
	setup->call = (struct layer_call){
		.semantics = plan->semantics,
		.batch = 1,
		.tokens = plan->tokens,
		.x = setup->x,
		.out = setup->out,
	};
	return setup->out ? upload_normal(device, plan->seed, setup->x, elements, err) : -1;
}

static int prepare_op(struct setup *setup, const struct measure_plan *plan, struct error *err)
{
	const struct device *device = setup->device;
	size_t elements = (size_t)plan->tokens * LAYER_HEADS * LAYER_DIM, bytes = elements * sizeof(uint16_t);
	struct quasar_problem *problem = &setup->problem;
	struct tensor *inputs[] = {&problem->q, &problem->k, &problem->v};
	float beta[LAYER_HEADS];
	uint16_t *values;
	int result = 0;

	*problem = (struct quasar_problem){
		.semantics = plan->semantics,
		.batch = 1,
		.tokens = plan->tokens,
		.heads = LAYER_HEADS,
		.dim = LAYER_DIM,
		.beta = device->allocate(sizeof(beta), err),
		.o = tensor_contiguous(
			device->allocate(bytes, err), DTYPE_BF16, plan->tokens, LAYER_HEADS, LAYER_DIM),
	};
	values = malloc(bytes);
	if (!values)
		return error_set(err, STATUS_ENVIRONMENT, "not enough memory for %lld tokens",
			(long long)plan->tokens);
	for (uint64_t i = 0; i < 3 && !result; i++) {
		*inputs[i] = tensor_contiguous(device->allocate(bytes, err), DTYPE_BF16, plan->tokens,
			LAYER_HEADS, LAYER_DIM);
		random_normal_bf16(plan->seed, 102 + i, 0.3f, values, elements);
		result = inputs[i]->data ? device->upload(inputs[i]->data, values, bytes, err) : -1;
	}
	free(values);
	if (result || !problem->beta || !problem->o.data)
		return -1;
	random_uniform(plan->seed, 101, 0.7f, 2.8f, beta, LAYER_HEADS);
	return device->upload((void *)problem->beta, beta, sizeof(beta), err);
}

static void release(struct setup *setup)
{
	struct quasar_problem *problem = &setup->problem;

	setup->device->release(problem->q.data);
	setup->device->release(problem->k.data);
	setup->device->release(problem->v.data);
	setup->device->release(problem->o.data);
	setup->device->release((void *)problem->beta);
	setup->device->release(setup->x);
	setup->device->release(setup->out);
	setup->device->layer_remove(setup->placed);
	layer_free(setup->layer);
}

static int run_once(const struct setup *setup, double *seconds, struct error *err)
{
	double start = clock_elapsed();
	int result = setup->placed ? setup->device->layer(setup->placed, &setup->call, err)
				   : setup->device->quasar(&setup->problem, err);

	*seconds = clock_elapsed() - start;
	if (!result && interrupted())
		return error_set(err, STATUS_INTERRUPTED, "interrupted");
	return result;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

void measure_summarise(const struct measure_plan *plan, double *times, int count, struct measurement *result)
{
	qsort(times, (size_t)count, sizeof(*times), by_value);
	result->seconds = (times[(count - 1) / 2] + times[count / 2]) / 2;
	result->spread = (times[count - 1] - times[0]) / result->seconds;
	result->tokens_per_second = (double)plan->tokens / result->seconds;
	if (plan->workload == WORKLOAD_OP && plan->copy_rate > 0)
		result->floor_seconds = measure_traffic(plan->tokens) / plan->copy_rate;
}

static int time_runs(const struct setup *setup, const struct measure_plan *plan,
	struct measurement *result, struct error *err)
{
	double *times = xcalloc((size_t)plan->runs, sizeof(*times)), started = clock_elapsed(), last = 0;
	int planned = plan->warmups + plan->runs, failed = 0;

	for (int i = 0; i < planned && !failed; i++) {
		bool warmup = i < plan->warmups;
		double spent = clock_elapsed() - started;

		/* warm-ups may take a quarter of the time; one is enough to have touched everything */
		if (plan->budget > 0 && result->warmups && warmup && spent + last > plan->budget / 4)
			continue;
		if (plan->budget > 0 && result->runs && spent + last > plan->budget)
			break;
		failed = run_once(setup, &last, err);
		if (warmup)
			result->warmups++;
		else
			times[result->runs++] = last;
		if (plan->progress)
			plan->progress(i + 1, planned, plan->context);
	}
	result->shortened = result->warmups + result->runs < planned;
	if (!failed)
		measure_summarise(plan, times, result->runs, result);
	free(times);
	return failed;
}

int measure_run(const struct device *device, const struct measure_plan *plan, struct measurement *result,
	struct error *err)
{
	struct setup setup = {.device = device};
	int status;

	if (plan->workload == WORKLOAD_PYTHON)
		return python_layer_measure(device, plan, result, err);
	*result = (struct measurement){0};
	status = plan->workload == WORKLOAD_LAYER ? prepare_layer(&setup, plan, err)
						  : prepare_op(&setup, plan, err);
	if (!status) {
		device->memory_reset();
		status = time_runs(&setup, plan, result, err);
		result->memory_mb = device->memory_peak();
	}
	release(&setup);
	return status;
}
