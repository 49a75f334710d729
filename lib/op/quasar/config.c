#include "op/quasar/config.h"

#include <math.h>

const struct parameter quasar_parameters[] = {
	[QUASAR_CHUNK] = {"CHUNK", true, {64, 32}},
	[QUASAR_NUM_STAGES] = {"NUM_STAGES", true, {2, 1}},
	[QUASAR_MIN_BLOCKS] = {"MIN_BLOCKS", true, {1, 2, 3, 4}},
	[QUASAR_GROUPS] = {"GROUPS", false, {0}},
	{0},
};

/* --- what fits -------------------------------------------------------------------------------------- */

int quasar_chunks(const struct quasar_problem *problem, const struct config *config)
{
	int chunk = config->value[QUASAR_CHUNK];

	return (int)((quasar_rows(problem) + chunk - 1) / chunk);
}

int quasar_chunks_per_group(const struct quasar_problem *problem, const struct config *config)
{
	int groups = config->value[QUASAR_GROUPS];

	return (quasar_chunks(problem, config) + groups - 1) / groups;
}

/* Of a block of the second pass, which needs more. */
static int shared_bytes(const struct quasar_problem *problem, const struct config *config)
{
	return CHUNK_OUTPUT_SHARED(problem->dim, config->value[QUASAR_CHUNK], CHUNK_PLANES((int)problem->q.dtype),
		config->value[QUASAR_NUM_STAGES], problem->semantics == SEMANTICS_UPSTREAM);
}

#define DRIVER_SHARED 1024 /* what the driver takes of each block's share */

static int blocks_that_fit(const struct gpu_properties *properties, int shared)
{
	if (shared > properties->shared_per_block)
		return 0;
	return properties->shared_per_multiprocessor / (shared + DRIVER_SHARED);
}

static bool is_value(int parameter, int value)
{
	const int *values = quasar_parameters[parameter].values;

	while (*values && *values != value)
		values++;
	return *values;
}

int quasar_config_check(const struct quasar_problem *problem, const struct gpu_properties *properties,
	const struct config *config, struct error *err)
{
	int groups = config->value[QUASAR_GROUPS], cut;

	for (int i = 0; i < QUASAR_GROUPS; i++)
		if (!is_value(i, config->value[i]))
			return error_set(err, STATUS_USAGE, "quasar/chunk.cu has no %s=%d", quasar_parameters[i].name,
				config->value[i]);
	if (problem->semantics == SEMANTICS_UPSTREAM && config->value[QUASAR_CHUNK] != UPSTREAM_CHUNK)
		return error_set(err, STATUS_USAGE, "upstream semantics have chunks of %d, not of %d", UPSTREAM_CHUNK,
			config->value[QUASAR_CHUNK]);
	if (groups < 1 || groups > quasar_chunks(problem, config))
		return error_set(err, STATUS_USAGE, "%d chunks cannot be cut into %d groups",
			quasar_chunks(problem, config), groups);
	cut = (quasar_chunks(problem, config) - 1) / quasar_chunks_per_group(problem, config) + 1;
	if (cut != groups)
		return error_set(err, STATUS_USAGE, "%d chunks cannot be cut into %d groups, but into %d",
			quasar_chunks(problem, config), groups, cut);
	if (!blocks_that_fit(properties, shared_bytes(problem, config))) {
		error_set(err, STATUS_ENVIRONMENT,
			"%s, head dimension %d, %s semantics take %d KiB of shared memory a block; %s has %d",
			dtype_name(problem->q.dtype), problem->dim, semantics_name(problem->semantics),
			shared_bytes(problem, config) / 1024, properties->name, properties->shared_per_block / 1024);
		return error_hint(err, "bf16 takes half as much.");
	}
	return 0;
}

/* --- how it is built -------------------------------------------------------------------------------- */

/* Blocks to aim at: more hide more latency, fewer leave more registers. */
static int wanted_blocks(const struct quasar_problem *problem)
{
	if (problem->dim == 32)
		return 4;
	if (problem->dim == 64 && problem->q.dtype == DTYPE_BF16)
		return problem->semantics == SEMANTICS_CAUSAL ? 3 : 2;
	return 1;
}

/* Of two builds that a GPU can run: the larger chunk, then the one with enough blocks; with enough of them
 * two buffers pay, else the memory does more for a cache. */
static bool is_better(
	const struct config *a, const struct config *b, const struct quasar_problem *problem)
{
	int wanted = wanted_blocks(problem);
	bool a_enough = a->value[QUASAR_MIN_BLOCKS] >= wanted, b_enough = b->value[QUASAR_MIN_BLOCKS] >= wanted;

	if (a->value[QUASAR_CHUNK] != b->value[QUASAR_CHUNK])
		return a->value[QUASAR_CHUNK] > b->value[QUASAR_CHUNK];
	if (a_enough != b_enough)
		return a_enough;
	return a_enough == (a->value[QUASAR_NUM_STAGES] > b->value[QUASAR_NUM_STAGES]);
}

static struct config choose_build(const struct quasar_problem *problem, const struct gpu_properties *properties)
{
	const int *chunks = quasar_parameters[QUASAR_CHUNK].values;
	const int *stages = quasar_parameters[QUASAR_NUM_STAGES].values;
	struct config best = {{UPSTREAM_CHUNK, 1, 1}};
	bool found = false;

	for (int c = 0; chunks[c]; c++)
		for (int s = 0; stages[s]; s++) {
			struct config candidate = {{chunks[c], stages[s]}};
			int fit = blocks_that_fit(properties, shared_bytes(problem, &candidate));
			int wanted = wanted_blocks(problem);

			if (!fit || (problem->semantics == SEMANTICS_UPSTREAM && chunks[c] != UPSTREAM_CHUNK))
				continue;
			candidate.value[QUASAR_MIN_BLOCKS] = fit < wanted ? fit : wanted;
			if (!found || is_better(&candidate, &best, problem))
				best = candidate;
			found = true;
		}
	return best;
}

/* --- how it is cut up ------------------------------------------------------------------------------- */

/* Microseconds on an H200, S = 64, with 1, 2, and 3 or more blocks on a multiprocessor: of a chunk in each
 * pass, and of a step over a group before one's own. Their proportions decide. */
static const struct {
	double first, second, step;
} block_costs[] = {{1.8, 3.2, 0.5}, {3.5, 4.1, 0.7}, {4.3, 5.7, 1.0}};

/* Chunks after which usual keys have made the past forgotten: longer groups need no more of the first pass,
 * and no steps over groups. */
#define FADING_CHUNKS 36

/* How many groups the chunks of a head are cut into: more groups have fewer chunks each, but more groups
 * before them to step over, and share the multiprocessors with more blocks. */
static int choose_groups(
	const struct quasar_problem *problem, int chunks, int resident_blocks, int multiprocessors)
{
	int64_t sequences = problem->batch * problem->heads;
	double least = INFINITY;
	int best = 1;

	for (int groups = 1; groups <= chunks && groups * sequences <= resident_blocks; groups++) {
		int64_t sharing = (groups * sequences + multiprocessors - 1) / multiprocessors;
		size_t row = sharing > 3 ? 2 : (size_t)sharing - 1;
		int longest = (chunks + groups - 1) / groups;
		double cost = longest * block_costs[row].second;

		if (groups > 1)
			cost += (longest < FADING_CHUNKS ? longest : FADING_CHUNKS) * block_costs[row].first;
		if (longest < FADING_CHUNKS)
			cost += groups * block_costs[row].step;
		if (cost < least) {
			least = cost;
			best = groups;
		}
	}
	return best;
}

struct config quasar_config_default(
	const struct quasar_problem *problem, const struct gpu_properties *properties)
{
	struct config config = choose_build(problem, properties);
	int chunks = quasar_chunks(problem, &config);

	/* the compiler leaves registers for MIN_BLOCKS, and hardly ever for more */
	config.value[QUASAR_GROUPS] = choose_groups(problem, chunks,
		config.value[QUASAR_MIN_BLOCKS] * properties->multiprocessors, properties->multiprocessors);
	config.value[QUASAR_GROUPS] = (chunks - 1) / quasar_chunks_per_group(problem, &config) + 1;
	return config;
}
