#include <stdlib.h>

#include "base/clock.h"
#include "cpu/cpu.h"
#include "op/flash/kernel.h"

static const struct flash_kernel *const kernels[CPU_VARIANTS] = {
	[CPU_BASELINE] = &flash_kernel_baseline,
#ifdef __x86_64__
	[CPU_X86_64_V3] = &flash_kernel_x86_64_v3,
	[CPU_X86_64_V4] = &flash_kernel_x86_64_v4,
	[CPU_X86_64_AMX] = &flash_kernel_x86_64_v4,
#endif
};

/* Blocks of all heads of the longest sequence; shorter ones have fewer. */
struct grid {
	int64_t sequences, blocks, count;
	int heads;
};

static struct grid grid_of(const struct flash_problem *problem, int heads)
{
	struct grid grid = {.sequences = flash_sequences(problem),
		.blocks = (flash_longest(problem) + FLASH_BLOCK - 1) / FLASH_BLOCK,
		.heads = heads};

	grid.count = grid.sequences * grid.blocks * heads;
	return grid;
}

/* The last blocks of queries, which causal ones see most of, first; false: the sequence has no such block, or nobody
 * waits for it any more: a long call ends when it is asked to. */
static bool block_of(const struct flash_problem *problem, const struct grid *grid, int64_t number,
	struct flash_block *block)
{
	int64_t others = grid->sequences * grid->heads, other = number % others;

	*block = (struct flash_block){
		.sequence = flash_sequence(problem, other / grid->heads),
		.head = (int)(other % grid->heads),
		.row = (grid->blocks - 1 - number / others) * FLASH_BLOCK,
	};
	return block->row < block->sequence.tokens && !interrupted();
}

static int conclude(struct error *err)
{
	return interrupted() ? error_set(err, STATUS_INTERRUPTED, "interrupted") : 0;
}

int flash_cpu(const struct flash_problem *problem, struct error *err)
{
	const struct flash_kernel *kernel = kernels[cpu_variant()];
	struct grid grid;

	if (flash_check(problem, err) < 0)
		return -1;
	grid = grid_of(problem, problem->heads);
#pragma omp parallel for schedule(dynamic, 1) num_threads(cpu_threads())
	for (int64_t i = 0; i < grid.count; i++) {
		struct flash_block block;

		if (block_of(problem, &grid, i, &block))
			kernel->forward(problem, &block);
	}
	return conclude(err);
}

int flash_cpu_gradient(const struct flash_problem *problem, struct error *err)
{
	const struct flash_kernel *kernel = kernels[cpu_variant()];
	struct grid queries, keys;
	size_t count;
	float *d;

	if (flash_check_gradient(problem, err) < 0)
		return -1;
	count = (size_t)(problem->batch * problem->heads * problem->tokens);
	d = malloc(count * sizeof(*d));
	if (!d)
		return error_set(err, STATUS_ENVIRONMENT, "not enough memory for %zu sums of rows", count);
	queries = grid_of(problem, problem->heads);
	keys = grid_of(problem, problem->key_heads);
#pragma omp parallel num_threads(cpu_threads())
	{
		struct flash_block block;

#pragma omp for schedule(dynamic, 1)
		for (int64_t i = 0; i < queries.count; i++)
			if (block_of(problem, &queries, i, &block))
				kernel->query_gradient(problem, &block, d);
#pragma omp for schedule(dynamic, 1)
		for (int64_t i = keys.count - 1; i >= 0; i--) /* the first keys are seen by most */
			if (block_of(problem, &keys, i, &block))
				kernel->key_gradient(problem, &block, d);
	}
	free(d);
	return conclude(err);
}
