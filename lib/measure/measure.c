#include "measure/measure.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "layer/layer.h"
#include "measure/fixture.h"

const char *workload_name(enum workload workload)
{
	static const char *const names[] = {"layer", "op"};

	return names[workload];
}

double measure_memory(enum workload workload, int64_t tokens)
{
	/* the op: q, k, v and o in bf16; the layer: x in fp32, out in bf16, and its segments */
	double bytes = workload == WORKLOAD_OP ? 4.0 * 2 * LAYER_HIDDEN : 6.0 * LAYER_HIDDEN;

	return 64 + bytes * (double)tokens / (1 << 20);
}

/* What a run needs; made once. */
struct setup {
	const struct device *device;
	const struct measure_plan *plan;
	struct layer_fixture layer;
	struct fixture op;
};

static int prepare(struct setup *setup, struct error *err)
{
	const struct measure_plan *plan = setup->plan;
	struct fixture_plan op = {
		.family = plan->family,
		.shape = fixture_shape(plan->tokens),
		.dtype = DTYPE_BF16,
		.seed = plan->seed,
	};

	if (plan->workload == WORKLOAD_LAYER)
		return layer_fixture_make(
			&setup->layer, setup->device, plan->weights, plan->seed, plan->tokens, err);
	memcpy(op.options, plan->options, sizeof(op.options));
	return fixture_make(&setup->op, setup->device, &op, err);
}

/* A layer's call is timed as validators time it: with all that the host does for it, and waits for. */
static int time_layer(const struct setup *setup, double *seconds, struct error *err)
{
	const struct measure_plan *plan = setup->plan;
	const struct layer_call call = {
		.semantics = plan->semantics,
		.batch = 1,
		.tokens = plan->tokens,
		.x = setup->layer.x,
		.out = setup->layer.out,
	};
	double start = clock_elapsed();
	int result = setup->device->layer(setup->device, setup->layer.placed, &call, err);

	*seconds = clock_elapsed() - start;
	return result;
}

/* What an operation must do at least. */
static void find_floor(const struct setup *setup, struct measurement *result)
{
	const struct measure_plan *plan = setup->plan;

	result->bytes = family_traffic(plan->family, &setup->op.problem);
	result->operations = plan->family->operations(&setup->op.problem);
	if (plan->copy_rate > 0)
		result->floor_seconds = result->bytes / plan->copy_rate;
}

static int run_once(const struct setup *setup, double *seconds, struct error *err)
{
	const struct measure_plan *plan = setup->plan;
	int result = plan->workload == WORKLOAD_LAYER
		? time_layer(setup, seconds, err)
		: setup->device->time(setup->device, plan->family, &setup->op.problem, seconds, err);

	if (!result && interrupted())
		return error_set(err, STATUS_INTERRUPTED, "interrupted");
	return result;
}

void measure_conclude(const struct measure_plan *plan, struct sample *sample, struct measurement *result)
{
	struct sample_summary summary = sample_summarise(sample);

	result->seconds = summary.median;
	result->spread = summary.spread;
	result->noise = summary.noise;
	result->tokens_per_second = (double)plan->tokens / summary.median;
	if (plan->sample)
		*plan->sample = *sample;
	else
		sample_free(sample);
}

/* Whether the planned runs are done, and as many more as it takes. Looks at them once for every ten. */
static bool is_enough(const struct measure_plan *plan, const struct sample *sample)
{
	if (sample->count < (size_t)plan->runs)
		return false;
	return !plan->settle || sample->count >= MEASURE_MOST_RUNS ||
		(sample->count % MEASURE_RUNS == 0 && sample_settled(sample));
}

static int time_runs(const struct setup *setup, struct measurement *result, struct error *err)
{
	const struct measure_plan *plan = setup->plan;
	double started = clock_elapsed(), last = 0;
	int planned = plan->warmups + plan->runs, failed = 0;
	struct sample sample = {0};

	for (int i = 0; !failed && !is_enough(plan, &sample); i++) {
		bool warmup = i < plan->warmups;
		double spent = clock_elapsed() - started;

		/* warm-ups may take a quarter of the time; one is enough to have touched everything */
		if (plan->budget > 0 && result->warmups && warmup && spent + last > plan->budget / 4)
			continue;
		if (plan->budget > 0 && sample.count && spent + last > plan->budget)
			break;
		failed = run_once(setup, &last, err);
		if (failed)
			break;
		if (warmup)
			result->warmups++;
		else
			sample_add(&sample, last);
		if (plan->progress)
			plan->progress(i + 1, planned, plan->context);
	}
	result->runs = (int)sample.count;
	result->shortened = result->warmups + result->runs < planned;
	if (failed)
		sample_free(&sample);
	else
		measure_conclude(plan, &sample, result);
	return failed;
}

int measure_run(const struct device *device, const struct measure_plan *plan, struct measurement *result,
	struct error *err)
{
	struct setup setup = {.device = device, .plan = plan};
	int status;

	*result = (struct measurement){0};
	status = prepare(&setup, err);
	if (!status) {
		device->memory_reset(device);
		status = time_runs(&setup, result, err);
		result->memory_mb = device->memory_peak(device);
	}
	if (!status && plan->workload == WORKLOAD_OP)
		find_floor(&setup, result);
	fixture_free(&setup.op);
	layer_fixture_free(&setup.layer);
	return status;
}
