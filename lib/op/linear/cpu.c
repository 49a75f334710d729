#include <stdlib.h>
#include <string.h>

#include "cpu/cpu.h"
#include "op/linear/kernel.h"

static const struct linear_kernel *const kernels[CPU_VARIANTS] = {
	[CPU_BASELINE] = &linear_kernel_baseline,
#ifdef __x86_64__
	[CPU_X86_64_V3] = &linear_kernel_x86_64_v3,
	[CPU_X86_64_V4] = &linear_kernel_x86_64_v4,
	[CPU_X86_64_AMX] = &linear_kernel_x86_64_v4,
#endif
};

/* S and z, before a part of a head's sequence or behind all of them. */
struct sums {
	float *state;
	double *sum;
};

/* A head's sequence is cut where there are fewer heads than threads. First every part's own sums are made,
 * then those before each part, then the outputs. Causal: nobody asks for the last part's. */
struct work {
	const struct linear_problem *problem;
	const struct linear_kernel *kernel;
	int64_t heads; /* batch · heads */
	int parts;
	int64_t length; /* of a part */
	size_t square, keys;
	struct sums *sums; /* [heads][parts + 1] */
	float *states;     /* their memory */
	double *vectors;
};

/* Shorter parts are not worth their sums. */
#define SHORTEST_PART 256

static void cut(struct work *work)
{
	int64_t parts = cpu_threads() / work->heads, most = work->problem->tokens / SHORTEST_PART;

	parts = parts < most ? parts : most;
	work->parts = parts < 1 ? 1 : (int)parts;
	work->length = (work->problem->tokens + work->parts - 1) / work->parts;
}

static int allocate(struct work *work, struct error *err)
{
	size_t count = (size_t)work->heads * (size_t)(work->parts + 1);

	work->sums = calloc(count, sizeof(*work->sums));
	work->states = aligned_alloc(64, count * work->square * sizeof(*work->states));
	work->vectors = calloc(count * work->keys, sizeof(*work->vectors));
	if (!work->sums || !work->states || !work->vectors)
		return error_set(err, STATUS_ENVIRONMENT, "not enough memory for %zu states", count);
	memset(work->states, 0, count * work->square * sizeof(*work->states));
	for (size_t i = 0; i < count; i++)
		work->sums[i] = (struct sums){
			work->states + i * work->square, work->vectors + i * work->keys};
	return 0;
}

static struct sums *sums_before(const struct work *work, int64_t head, int part)
{
	return &work->sums[head * (work->parts + 1) + part];
}

static void read_initial(const struct work *work, int64_t head)
{
	const struct linear_problem *problem = work->problem;
	struct sums *first = sums_before(work, head, 0);

	if (problem->initial_state)
		memcpy(first->state, problem->initial_state + (size_t)head * work->square,
			work->square * sizeof(*first->state));
	for (size_t i = 0; problem->initial_sum && i < work->keys; i++)
		first->sum[i] = (double)problem->initial_sum[(size_t)head * work->keys + i];
}

static void write_final(const struct work *work, int64_t head, const struct sums *last)
{
	const struct linear_problem *problem = work->problem;

	if (problem->final_state)
		memcpy(problem->final_state + (size_t)head * work->square, last->state,
			work->square * sizeof(*last->state));
	for (size_t i = 0; problem->final_sum && i < work->keys; i++)
		problem->final_sum[(size_t)head * work->keys + i] = (float)last->sum[i];
}

typedef void kernel_pass(const struct linear_problem *problem, int64_t batch, int head, int64_t first,
	int64_t last, float *state, double *sum);

static void run_part(
	const struct work *work, kernel_pass *pass, int64_t head, int part, const struct sums *sums)
{
	const struct linear_problem *problem = work->problem;
	int64_t first = part * work->length, last = first + work->length;

	pass(problem, head / problem->heads, (int)(head % problem->heads), first,
		last < problem->tokens ? last : problem->tokens, sums->state, sums->sum);
}

/* From the sums of each part to those before each. */
static void scan(const struct work *work, int64_t head, int parts)
{
	for (int part = 0; part < parts; part++) {
		const struct sums *before = sums_before(work, head, part), *behind = before + 1;

		for (size_t i = 0; i < work->square; i++)
			behind->state[i] += before->state[i];
		for (size_t i = 0; i < work->keys; i++)
			behind->sum[i] += before->sum[i];
	}
}

static void run(const struct work *work)
{
	bool causal = work->problem->mask == LINEAR_CAUSAL;
	int parts = work->parts, summed = causal ? parts - 1 : parts;

#pragma omp parallel num_threads(cpu_threads())
	{
#pragma omp for
		for (int64_t head = 0; head < work->heads; head++)
			read_initial(work, head);
#pragma omp for schedule(dynamic, 1) collapse(2)
		for (int64_t head = 0; head < work->heads; head++)
			for (int part = 0; part < summed; part++)
				run_part(work, work->kernel->accumulate, head, part,
					sums_before(work, head, part + 1));
#pragma omp for
		for (int64_t head = 0; head < work->heads; head++)
			scan(work, head, summed);
#pragma omp for schedule(dynamic, 1) collapse(2)
		for (int64_t head = 0; head < work->heads; head++)
			for (int part = 0; part < parts; part++)
				run_part(work, work->kernel->forward, head, part,
					sums_before(work, head, causal ? part : parts));
#pragma omp for
		for (int64_t head = 0; head < work->heads; head++)
			write_final(work, head, sums_before(work, head, causal ? parts - 1 : parts));
	}
}

int linear_cpu(const struct linear_problem *problem, struct error *err)
{
	struct work work = {.problem = problem, .kernel = kernels[cpu_variant()]};
	int result = linear_check(problem, err);

	if (result)
		return -1;
	work.heads = problem->batch * problem->heads;
	work.keys = (size_t)problem->key_dim;
	work.square = work.keys * (size_t)problem->value_dim;
	cut(&work);
	result = allocate(&work, err);
	if (!result)
		run(&work);
	free(work.sums);
	free(work.states);
	free(work.vectors);
	return result;
}
