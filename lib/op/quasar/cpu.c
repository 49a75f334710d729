#include "op/quasar/cpu.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/cpu.h"
#include "op/quasar/kernel.h"

static const struct quasar_kernel *const kernels[CPU_VARIANTS] = {
	[CPU_BASELINE] = &quasar_kernel_baseline,
#ifdef __x86_64__
	[CPU_X86_64_V3] = &quasar_kernel_x86_64_v3,
	[CPU_X86_64_V4] = &quasar_kernel_x86_64_v4,
	[CPU_X86_64_AMX] = &quasar_kernel_x86_64_amx,
#endif
};

/* --- the sequence in parts ----------------------------------------------------------------------- */

/* A head's sequence is cut where there are fewer heads than threads. Part 0 is computed from the initial
 * state while for the parts 1 … n−1 only their maps state → P state + R are; then every part's initial
 * state is known, and the parts 1 … n are computed. Part n needs no map, and part 0's length is such
 * that the first round ends for all threads at once. */
struct head {
	int64_t batch;
	int head;
	float *states; /* [parts + 1][S·S]: before each part, and at the end */
	float *maps;   /* [parts][2][S·S]: P, R of the parts that need them; then working memory */
};

struct plan {
	const struct quasar_kernel *kernel;
	const struct quasar_problem *problem;
	size_t square; /* S·S */
	int64_t rows;
	int parts;                    /* of each head: 1, or 3 and more */
	int64_t length, first_length; /* rows of a part, of part 0 */
};

/* Shorter parts are not worth their maps. */
#define SHORTEST_PART 256

/* What a row costs in products of a row and a state, computed with its output and for its map. */
static int cost_forward(enum semantics semantics)
{
	return semantics == SEMANTICS_CAUSAL ? 3 : 5;
}
#define COST_MAP 4

static void plan_parts(struct plan *plan, int64_t heads, int threads)
{
	int64_t concurrent = threads / heads, granules = plan->rows / UPSTREAM_CHUNK;
	int cost = cost_forward(plan->problem->semantics);

	plan->parts = 1;
	plan->first_length = plan->length = plan->rows;
	if (concurrent > plan->rows / SHORTEST_PART)
		concurrent = plan->rows / SHORTEST_PART;
	if (concurrent < 2)
		return;
	/* first_length · cost = length · COST_MAP, in whole upstream chunks; the last part takes the rest */
	plan->length = granules * cost / (concurrent * cost + COST_MAP) * UPSTREAM_CHUNK;
	plan->first_length = plan->length * COST_MAP / cost / UPSTREAM_CHUNK * UPSTREAM_CHUNK;
	plan->parts = (int)concurrent + 1;
}

static int64_t part_start(const struct plan *plan, int part)
{
	if (part == plan->parts)
		return plan->rows;
	return part ? plan->first_length + (part - 1) * plan->length : 0;
}

static void forward_part(const struct plan *plan, const struct head *head, int part)
{
	/* other parts still read the states between the parts; the maps have done their duty by then */
	float *state = part ? head->maps + (size_t)part * 2 * plan->square : head->states + plan->square;

	memcpy(state, head->states + (size_t)part * plan->square, plan->square * sizeof(*state));
	plan->kernel->forward(plan->problem, head->batch, head->head, part_start(plan, part),
		part_start(plan, part + 1), state);
	if (part && part == plan->parts - 1)
		memcpy(head->states + (size_t)plan->parts * plan->square, state,
			plan->square * sizeof(*state));
}

static void map_part(const struct plan *plan, const struct head *head, int part)
{
	float *p = head->maps + (size_t)part * 2 * plan->square, *r = p + plan->square;

	memset(p, 0, 2 * plan->square * sizeof(*p));
	for (int i = 0; i < plan->problem->dim; i++)
		p[i * plan->problem->dim + i] = 1;
	plan->kernel->advance(plan->problem, head->batch, head->head, part_start(plan, part),
		part_start(plan, part + 1), r, p);
}

/* The states between the parts, by the maps. */
static void scan_parts(const struct plan *plan, const struct head *head)
{
	for (int part = 1; part + 1 < plan->parts; part++) {
		const float *p = head->maps + (size_t)part * 2 * plan->square;
		float *state = head->states + (size_t)part * plan->square;

		plan->kernel->apply(plan->problem->dim, p, p + plan->square, state, state + plan->square);
	}
}

/* Rows of one head that are worked off before the next head's turn. */
#define TURN 512

/* Each thread has some heads, and goes along the sequence with all of them: the heads of a token share pages
 * of memory, and finding a page costs as much time as computing a row. */
static void run_heads(const struct plan *plan, const struct head *heads, int64_t count, int threads)
{
#pragma omp parallel num_threads(threads)
	{
		int64_t thread = omp_get_thread_num(), all = omp_get_num_threads();
		int64_t first = count * thread / all, last = count * (thread + 1) / all;

		for (int64_t i = first; i < last; i++)
			memcpy(heads[i].states + plan->square, heads[i].states, plan->square * sizeof(float));
		for (int64_t row = 0; row < plan->rows; row += TURN)
			for (int64_t i = first; i < last; i++)
				plan->kernel->forward(plan->problem, heads[i].batch, heads[i].head, row,
					row + TURN < plan->rows ? row + TURN : plan->rows,
					heads[i].states + plan->square);
	}
}

static void run_parts(const struct plan *plan, const struct head *heads, int64_t count, int threads)
{
	int parts = plan->parts;

#pragma omp parallel num_threads(threads)
	{
#pragma omp for schedule(dynamic, 1) collapse(2)
		for (int64_t i = 0; i < count; i++)
			for (int part = 0; part < parts - 1; part++)
				if (part)
					map_part(plan, &heads[i], part);
				else
					forward_part(plan, &heads[i], 0);
#pragma omp for
		for (int64_t i = 0; i < count; i++)
			scan_parts(plan, &heads[i]);
#pragma omp for schedule(dynamic, 1) collapse(2)
		for (int64_t i = 0; i < count; i++)
			for (int part = 1; part < parts; part++)
				forward_part(plan, &heads[i], part);
	}
}

/* The state that sequence and head number `number` start with. */
static void start_state(const struct quasar_problem *problem, int64_t number, float *state)
{
	size_t square = (size_t)(problem->dim * problem->dim);

	for (size_t n = 0; n < square; n++) {
		float value = problem->initial_state ? problem->initial_state[(size_t)number * square + n]
						     : 0;

		state[n] = isnan(value) ? NAN : value; /* in the form that no kernel rounds away */
	}
}

/* Packed sequences are many, and as long as they like: each head of each is a task of its own, and keeps no state when it
 * is done. */
static void run_packed(const struct quasar_problem *problem, int threads)
{
	size_t square = (size_t)(problem->dim * problem->dim);

#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
	for (int64_t i = 0; i < problem->sequences * problem->heads; i++) {
		struct quasar_span span = quasar_span(problem, i / problem->heads);
		float state[128 * 128] __attribute__((aligned(64)));

		start_state(problem, i, state);
		kernels[cpu_variant()]->forward(
			problem, span.batch, (int)(i % problem->heads), span.first, span.end, state);
		if (problem->final_state)
			memcpy(problem->final_state + (size_t)i * square, state, square * sizeof(*state));
	}
}

int quasar_cpu(const struct quasar_problem *problem, struct error *err)
{
	struct plan plan = {.kernel = kernels[cpu_variant()], .problem = problem};
	int threads = cpu_threads();
	int64_t count;
	size_t per_head;
	struct head *heads;
	float *memory = NULL;

	if (quasar_check(problem, err) < 0 || quasar_check_starts(problem, err) < 0)
		return -1;
	if (problem->sequences) {
		run_packed(problem, threads);
		return 0;
	}
	count = problem->batch * problem->heads;
	plan.square = (size_t)(problem->dim * problem->dim);
	plan.rows = quasar_rows(problem);
	plan_parts(&plan, count, threads);
	per_head = (size_t)(plan.parts > 1 ? 3 * plan.parts + 1 : 2) * plan.square;
	heads = calloc((size_t)count, sizeof(*heads));
	if (heads)
		memory = aligned_alloc(64, (size_t)count * per_head * sizeof(*memory));
	if (!memory) {
		free(heads);
		return error_set(err, STATUS_ENVIRONMENT, "not enough memory for %lld states",
			(long long)count * (plan.parts + 1));
	}
	for (int64_t i = 0; i < count; i++) {
		float *states = memory + (size_t)i * per_head;

		heads[i] = (struct head){i / problem->heads, (int)(i % problem->heads), states,
			states + (size_t)(plan.parts + 1) * plan.square};
		start_state(problem, i, states);
	}
	if (plan.parts > 1)
		run_parts(&plan, heads, count, threads);
	else
		run_heads(&plan, heads, count, threads);
	for (int64_t i = 0; i < count && problem->final_state; i++)
		memcpy(problem->final_state + (size_t)i * plan.square,
			heads[i].states + (size_t)plan.parts * plan.square, plan.square * sizeof(*memory));
	free(memory);
	free(heads);
	return 0;
}
