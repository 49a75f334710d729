/* choice: how chunk.cu is built and cut up for a problem; see common/choice.h. */
#pragma once

#include "common/choice.h"
#include "quasar/layout.h"

/* Values of CHUNK and NUM_STAGES (3: with warps of their own for a chunk's matrices); each list ends with 0. Upstream semantics have UPSTREAM_CHUNK alone. */
#define CHUNK_VALUES                                                                                         \
	{                                                                                                    \
		UPSTREAM_CHUNK, 32, 0                                                                        \
	}
#define NUM_STAGES_VALUES                                                                                    \
	{                                                                                                    \
		2, 1, 3, 0                                                                                   \
	}

/* Of MIN_BLOCKS: blocks on a multiprocessor that the compiler leaves registers for. */
#define MIN_BLOCKS_VALUES                                                                                    \
	{                                                                                                    \
		1, 2, 3, 4, 0                                                                                \
	}

/* Of PRODUCT_WARPS: by how many warps together the products with a state are made, by mma.sync or, by four, wgmma. */
#define PRODUCT_WARPS_VALUES                                                                                 \
	{                                                                                                    \
		1, 4, 0                                                                                      \
	}

/* Of NUM_LAUNCHES: each pass makes what it needs of a chunk, or T is made by a launch of its own beforehand. */
#define NUM_LAUNCHES_VALUES                                                                                  \
	{                                                                                                    \
		2, 3, 0                                                                                      \
	}

struct chunk_problem {
	int dim, input, upstream; /* HEAD_DIM, INPUT, UPSTREAM */
	long long sequences;      /* batch · heads */
	long long rows;           /* of a head */
};

struct chunk_choice {
	int chunk, num_stages, min_blocks, product_warps, num_launches, groups;
};

/* --- how it is built -------------------------------------------------------------------------------- */

/* Blocks on a multiprocessor, by the shared memory of the second pass, which needs more than the first. */
CHOICE_FUNCTION int chunk_blocks_that_fit(const struct chunk_problem *problem,
	const struct choice_machine *machine, int chunk, int num_stages, int num_launches)
{
	int shared = CHUNK_OUTPUT_SHARED(problem->dim, chunk, CHUNK_PLANES(problem->input), num_stages,
		num_launches, problem->upstream);

	return shared > machine->shared_per_block
		? 0
		: machine->shared_per_multiprocessor / (shared + GPU_DRIVER_SHARED);
}

/* Whether wgmma can make the products: its tiles have rows of 64, and a left factor has 64 rows. */
CHOICE_FUNCTION int chunk_has_wgmma(
	const struct chunk_problem *problem, const struct choice_machine *machine, int chunk)
{
	return machine->capability == WGMMA_CAPABILITY && problem->dim >= 64 && chunk == 64;
}

/* Three launches spare each pass the making of T, for the price of moving it through memory: with S = 128 a multiprocessor
 * has room for one block, whose makers are then what the others wait for, and it pays. */
CHOICE_FUNCTION int chunk_wanted_launches(const struct chunk_problem *problem, int wgmma)
{
	return wgmma && problem->input == INPUT_BF16 && problem->dim == 128 ? 3 : 2;
}

/* Blocks to aim at: more hide more latency, fewer leave more registers. */
CHOICE_FUNCTION int chunk_wanted_blocks(const struct chunk_problem *problem, int wgmma, int num_stages)
{
	if (problem->dim == 32)
		return 4;
	if (problem->dim == 64 && problem->input == INPUT_BF16)
		return num_stages == 3 || (problem->upstream && !wgmma) ? 2 : 3;
	return 1;
}

/* Of two builds that a GPU can run: the larger chunk, then the one with enough blocks; with enough of them two buffers
 * pay, else the memory does more for a cache. */
CHOICE_FUNCTION int chunk_is_better(const struct chunk_choice *a, const struct chunk_choice *b, int wanted)
{
	int a_enough = a->min_blocks >= wanted, b_enough = b->min_blocks >= wanted;

	if (a->chunk != b->chunk)
		return a->chunk > b->chunk;
	if (a_enough != b_enough)
		return a_enough;
	return a_enough == (a->num_stages > b->num_stages);
}

CHOICE_FUNCTION struct chunk_choice chunk_choose_build(
	const struct chunk_problem *problem, const struct choice_machine *machine)
{
	const int chunks[] = CHUNK_VALUES, stages[] = NUM_STAGES_VALUES;
	struct chunk_choice best = {UPSTREAM_CHUNK, 1, 1, 1, 2, 1};
	int found = 0;

	for (int c = 0; chunks[c]; c++) {
		int wgmma = chunk_has_wgmma(problem, machine, chunks[c]);
		int launches = chunk_wanted_launches(problem, wgmma);

		if (problem->upstream && chunks[c] != UPSTREAM_CHUNK)
			continue;
		for (int s = 0; stages[s]; s++) {
			int wanted = chunk_wanted_blocks(problem, wgmma, stages[s]);
			int fit = chunk_blocks_that_fit(problem, machine, chunks[c], stages[s], launches);
			struct chunk_choice candidate = {chunks[c], stages[s], fit < wanted ? fit : wanted,
				wgmma ? 4 : 1, launches, 1};

			/* makers want registers of their own, which only Hopper shares out, and one product for one */
			if (stages[s] == 3 && !(wgmma && problem->input == INPUT_BF16))
				continue;
			if (fit && (!found || chunk_is_better(&candidate, &best, wanted)))
				best = candidate;
			found |= fit > 0;
		}
	}
	return best;
}

/* --- how it is cut up ------------------------------------------------------------------------------- */

/* Chunks after which usual keys have made the past forgotten: longer groups need no more of the first pass,
 * and no steps over groups. */
#define FADING_CHUNKS 36

/* What a group's way takes when up to three, or more, groups are on each multiprocessor: a chunk of the first pass, one of the
 * second, and a step over a group. Only proportions count. Microseconds on an H200: S = 64, without makers and with them, and
 * S = 128 with them, where it takes twice as many rows to forget; last where tensor cores are slow, so that groups beside each
 * other hardly hide anything: by the model of `quasar tune --gpu`. */
enum chunk_costs { COSTS_USUAL, COSTS_MAKERS, COSTS_MAKERS_128, COSTS_SLOW_PRODUCTS, COSTS_OF_GPUS };

CHOICE_FUNCTION double chunk_cost(enum chunk_costs costs, int groups, int longest, long long sharing)
{
	const double first[COSTS_OF_GPUS][3] = {
		{1.8, 3.5, 4.3}, {1.5, 2.4, 3.6}, {1.8, 2.9, 4.3}, {1.8, 3.4, 5.1}};
	const double second[COSTS_OF_GPUS][3] = {
		{3.2, 4.1, 5.7}, {2.1, 3.3, 5.0}, {3.7, 5.8, 8.8}, {3.2, 6.1, 9.1}};
	const double step[COSTS_OF_GPUS][3] = {
		{0.5, 0.7, 1.0}, {0.5, 0.5, 0.7}, {2.2, 2.2, 3.1}, {0.5, 1.0, 1.4}};
	const int fading = costs == COSTS_MAKERS_128 ? 2 * FADING_CHUNKS : FADING_CHUNKS;
	int row = sharing > 3 ? 2 : (int)sharing - 1;
	double cost = longest * second[costs][row];

	if (groups > 1)
		cost += (longest < fading ? longest : fading) * first[costs][row];
	if (longest < fading)
		cost += groups * step[costs][row];
	return cost;
}

/* GPUs that are not a data center's have a half or a quarter of the tensor cores' rate. Heads of 32 wait for something else. */
CHOICE_FUNCTION enum chunk_costs chunk_costs_on(
	const struct chunk_problem *problem, const struct choice_machine *machine, int makers)
{
	const int of_data_center = machine->capability == 80 || machine->capability / 10 == 9 ||
		machine->capability / 10 == 10;

	if (makers)
		return problem->dim == 128 ? COSTS_MAKERS_128 : COSTS_MAKERS;
	return problem->dim == 32 || of_data_center ? COSTS_USUAL : COSTS_SLOW_PRODUCTS;
}

/* The groups that chunks are cut into where so many are asked for: none of them is empty. */
CHOICE_FUNCTION int chunk_cut(int chunks, long long groups)
{
	int longest;

	groups = groups < 1 ? 1 : groups > chunks ? chunks : groups;
	longest = (int)((chunks + groups - 1) / groups);
	return (chunks - 1) / longest + 1;
}

/* How many groups the chunks of a head are cut into: more groups have fewer chunks each, but more groups
 * before them to step over, and share the multiprocessors with more blocks. */
CHOICE_FUNCTION int chunk_choose_groups(const struct chunk_problem *problem, enum chunk_costs costs,
	int chunks, int resident_blocks, int multiprocessors)
{
	double least = 0;
	int best = 0;

	for (int groups = 1;
		groups == 1 || (groups <= chunks && groups * problem->sequences <= resident_blocks);
		groups++) {
		long long sharing = (groups * problem->sequences + multiprocessors - 1) / multiprocessors;
		double cost;

		cost = chunk_cost(costs, groups, (chunks + groups - 1) / groups, sharing);
		if (!best || cost < least) {
			least = cost;
			best = groups;
		}
	}
	return chunk_cut(chunks, best);
}

CHOICE_FUNCTION struct chunk_choice chunk_choose(
	const struct chunk_problem *problem, const struct choice_machine *machine)
{
	struct chunk_choice choice = chunk_choose_build(problem, machine);
	int chunks = (int)((problem->rows + choice.chunk - 1) / choice.chunk);

	/* the compiler leaves registers for min_blocks, and hardly ever for more */
	choice.groups = chunk_choose_groups(problem, chunk_costs_on(problem, machine, choice.num_stages == 3),
		chunks, choice.min_blocks * machine->multiprocessors, machine->multiprocessors);
	return choice;
}

/* --- what was measured elsewhere --------------------------------------------------------------------- */

CHOICE_FUNCTION int chunk_has_value(const int *values, int value)
{
	while (*values && *values != value)
		values++;
	return *values != 0;
}

/* Whether a build is one that there is, and that this problem and this machine can use. */
CHOICE_FUNCTION int chunk_can_build(const struct chunk_problem *problem, const struct choice_machine *machine,
	const struct chunk_choice *choice)
{
	const int chunks[] = CHUNK_VALUES, stages[] = NUM_STAGES_VALUES, blocks[] = MIN_BLOCKS_VALUES,
		  warps[] = PRODUCT_WARPS_VALUES, launches[] = NUM_LAUNCHES_VALUES;

	return chunk_has_value(chunks, choice->chunk) && chunk_has_value(stages, choice->num_stages) &&
		chunk_has_value(blocks, choice->min_blocks) &&
		chunk_has_value(warps, choice->product_warps) &&
		chunk_has_value(launches, choice->num_launches) &&
		!(problem->upstream && choice->chunk != UPSTREAM_CHUNK) &&
		!(choice->product_warps == 4 && !chunk_has_wgmma(problem, machine, choice->chunk)) &&
		chunk_blocks_that_fit(
			problem, machine, choice->chunk, choice->num_stages, choice->num_launches);
}

/* A choice that tuning made for a sequence of about this length, with the groups that this one can be cut into. Where it
 * cannot be used, the usual one. */
CHOICE_FUNCTION struct chunk_choice chunk_adopt(const struct chunk_problem *problem,
	const struct choice_machine *machine, const struct chunk_choice *tuned)
{
	struct chunk_choice choice = *tuned;

	if (!chunk_can_build(problem, machine, tuned))
		return chunk_choose(problem, machine);
	choice.groups = chunk_cut((int)((problem->rows + choice.chunk - 1) / choice.chunk), tuned->groups);
	return choice;
}

/* --- the gradient ------------------------------------------------------------------------------------ */

/* Bytes of working memory that parts of sequences keep to, unless a chunk of each takes more. */
#define GRADIENT_MEMORY (1ll << 30)

/* How gradient.cu goes through sequences: parts of so many chunks of each head, the last one maybe of fewer, and these in groups. */
struct gradient_choice {
	int part_chunks, chunks_per_group;
};

CHOICE_FUNCTION int gradient_groups(int part_chunks, int chunks_per_group)
{
	return (part_chunks + chunks_per_group - 1) / chunks_per_group;
}

/* A group is gone through twice, and then the groups: that is least where a group has the root of half the chunks. But more groups
 * than run at a time, of each two chains, would only be gone through for nothing. */
CHOICE_FUNCTION struct gradient_choice gradient_choose(
	const struct chunk_problem *problem, const struct choice_machine *machine)
{
	const long long chains = (long long)machine->multiprocessors *
		(machine->shared_per_multiprocessor /
			(GRADIENT_CHAIN_SHARED(problem->dim) + GPU_DRIVER_SHARED));
	const long long groups = chains / (2 * problem->sequences) > 1 ? chains / (2 * problem->sequences)
								       : 1;
	const int chunks = (int)((problem->rows + UPSTREAM_CHUNK - 1) / UPSTREAM_CHUNK);
	const long long most = GRADIENT_MEMORY /
		(problem->sequences * GRADIENT_WORKING_BYTES(problem->dim, 1, 0));
	const int parts = most < 1 ? chunks : (int)((chunks + most - 1) / most);
	struct gradient_choice choice = {(chunks + parts - 1) / parts, 1};

	while (choice.chunks_per_group * groups < choice.part_chunks ||
		2ll * choice.chunks_per_group * choice.chunks_per_group < choice.part_chunks)
		choice.chunks_per_group++;
	return choice;
}
