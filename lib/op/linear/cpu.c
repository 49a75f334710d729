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

/* S and, forward, z, before a part of a head's sequence or behind all of them. */
struct sums {
	float *state;
	double *sum;
};

/* A head's sequence is cut where there are fewer heads than threads. First every part's own sums are made,
 * then those before each part, then the outputs. Causal: nobody asks for the last part's. */
struct work {
	const struct linear_pass *pass;
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
	int64_t parts = cpu_threads() / work->heads, most = work->pass->tokens / SHORTEST_PART;

	parts = parts < most ? parts : most;
	work->parts = parts < 1 ? 1 : (int)parts;
	work->length = (work->pass->tokens + work->parts - 1) / work->parts;
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

/* The place of a state's number in the operation's: a gradient's state may be its transpose. */
static size_t place_of(const struct linear_pass *pass, size_t number)
{
	size_t keys = (size_t)pass->key_dim, values = (size_t)pass->value_dim;

	return pass_is_augmented(pass) ? number % values * keys + number / values : number;
}

static void read_initial(const struct work *work, int64_t head)
{
	const struct linear_pass *pass = work->pass;
	size_t square = (size_t)pass->key_dim * (size_t)pass->value_dim, sums = (size_t)pass_sums(pass);
	const float *state = pass->initial_state ? pass->initial_state + (size_t)head * square : NULL;
	const float *sum = pass->initial_sum ? pass->initial_sum + (size_t)head * sums : NULL;
	struct sums *first = sums_before(work, head, 0);

	for (size_t i = 0; state && i < square; i++)
		first->state[i] = state[place_of(pass, i)];
	for (size_t i = 0; sum && i < sums; i++)
		if (pass_is_augmented(pass))
			first->state[square + i] = sum[i];
		else
			first->sum[i] = (double)sum[i];
}

static void write_final(const struct work *work, int64_t head, const struct sums *last)
{
	const struct linear_pass *pass = work->pass;
	size_t square = (size_t)pass->key_dim * (size_t)pass->value_dim, sums = (size_t)pass_sums(pass);

	for (size_t i = 0; pass->final_state && i < square; i++)
		pass->final_state[(size_t)head * square + place_of(pass, i)] = last->state[i];
	for (size_t i = 0; pass->final_sum && i < sums; i++)
		pass->final_sum[(size_t)head * sums + i] = pass_is_augmented(pass) ? last->state[square + i]
										   : (float)last->sum[i];
}

typedef void kernel_function(const struct linear_pass *pass, int64_t batch, int head, int64_t first,
	int64_t last, float *state, double *sum);

static void run_part(
	const struct work *work, kernel_function *function, int64_t head, int part, const struct sums *sums)
{
	const struct linear_pass *pass = work->pass;
	int64_t first = part * work->length, last = first + work->length;

	function(pass, head / pass->heads, (int)(head % pass->heads), first,
		last < pass->tokens ? last : pass->tokens, sums->state, sums->sum);
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
	bool causal = work->pass->causal;
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

static int run_pass(const struct linear_pass *pass, struct error *err)
{
	struct work work = {.pass = pass, .kernel = kernels[cpu_variant()]};
	int result;

	work.heads = pass->batch * pass->heads;
	work.keys = (size_t)pass->key_dim;
	work.square = (size_t)pass_rows(pass) * (size_t)pass->value_dim;
	cut(&work);
	result = allocate(&work, err);
	if (!result)
		run(&work);
	free(work.sums);
	free(work.states);
	free(work.vectors);
	return result;
}

int linear_cpu(const struct linear_problem *problem, struct error *err)
{
	struct linear_pass pass = linear_forward_pass(problem);

	return linear_check(problem, err) < 0 ? -1 : run_pass(&pass, err);
}

/* --- the gradient ----------------------------------------------------------------------------------- */

static double product_of_rows(
	const struct tensor *a, const struct tensor *b, int64_t a_row, int64_t b_row, int dim)
{
	double sum = 0;

	for (int i = 0; i < dim; i++)
		sum += (double)dtype_load(a->data, a->dtype, a_row + i * a->stride[3]) *
			(double)dtype_load(b->data, b->dtype, b_row + i * b->stride[3]);
	return sum;
}

static int64_t row_start(const struct tensor *tensor, int64_t batch, int64_t token, int64_t head)
{
	return batch * tensor->stride[0] + token * tensor->stride[1] + head * tensor->stride[2];
}

/* Every row's r and f: with o = n / d, dn = r do and dd = f = −r (do · o) with r = 1 / d. */
static void make_rows(const struct linear_gradient *gradient, float *scales, float *offsets)
{
	const struct linear_problem *problem = &gradient->problem;
	const struct tensor *o = &problem->o, *d_o = &gradient->d_o;
	int64_t tokens = problem->tokens, heads = problem->heads;

#pragma omp parallel for num_threads(cpu_threads())
	for (int64_t row = 0; row < problem->batch * heads * tokens; row++) {
		int64_t token = row % tokens, head = row / tokens % heads, batch = row / tokens / heads;
		double divisor = (double)problem->divisor[row];
		double scale = !problem->normalised ? 1 : divisor == 0 ? 0 : 1 / divisor;

		scales[row] = (float)scale;
		offsets[row] = !problem->normalised
			? 0
			: (float)(-scale *
				  product_of_rows(o, d_o, row_start(o, batch, token, head),
					  row_start(d_o, batch, token, head), problem->value_dim));
	}
}

int linear_gradient_cpu(const struct linear_gradient *gradient, struct error *err)
{
	const struct linear_problem *problem = &gradient->problem;
	size_t rows = (size_t)problem->batch * (size_t)problem->heads * (size_t)problem->tokens;
	float *scales;
	int result = 0;

	if (linear_gradient_check(gradient, err) < 0)
		return -1;
	scales = malloc(2 * rows * sizeof(*scales));
	if (!scales)
		return error_set(
			err, STATUS_ENVIRONMENT, "not enough memory for the gradient of %zu rows", rows);
	make_rows(gradient, scales, scales + rows);
	for (int i = 0; i < LINEAR_GRADIENT_PASSES && !result; i++) {
		struct linear_pass pass = linear_gradient_pass(
			gradient, linear_gradient_order[i], scales, scales + rows);

		result = run_pass(&pass, err);
	}
	free(scales);
	return result;
}
