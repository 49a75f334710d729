#include "op/quasar/config.h"

#include <string.h>

#include "kernels/quasar/choice.h"

const struct parameter quasar_parameters[] = {
	[QUASAR_CHUNK] = {"CHUNK", true, CHUNK_VALUES},
	[QUASAR_NUM_STAGES] = {"NUM_STAGES", true, NUM_STAGES_VALUES},
	[QUASAR_MIN_BLOCKS] = {"MIN_BLOCKS", true, MIN_BLOCKS_VALUES},
	[QUASAR_PRODUCT_WARPS] = {"PRODUCT_WARPS", true, PRODUCT_WARPS_VALUES},
	[QUASAR_NUM_LAUNCHES] = {"NUM_LAUNCHES", true, NUM_LAUNCHES_VALUES},
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

int64_t quasar_parts(const struct quasar_problem *problem, int64_t tokens, bool last_too)
{
	int64_t rows = quasar_rows(problem);

	if (problem->sequences)
		return problem->heads * (rows / tokens + (last_too ? problem->sequences : 0));
	return problem->batch * problem->heads * ((rows - 1) / tokens + last_too);
}

/* Of a block of the second pass, which needs more. */
static int shared_bytes(const struct quasar_problem *problem, const struct config *config)
{
	return CHUNK_OUTPUT_SHARED(problem->dim, config->value[QUASAR_CHUNK],
		CHUNK_PLANES((int)problem->q.dtype), config->value[QUASAR_NUM_STAGES],
		config->value[QUASAR_NUM_LAUNCHES], problem->semantics == SEMANTICS_UPSTREAM);
}

static struct chunk_problem chunk_problem(const struct quasar_problem *problem)
{
	return (struct chunk_problem){problem->dim, (int)problem->q.dtype,
		problem->semantics == SEMANTICS_UPSTREAM, problem->batch * problem->heads,
		quasar_rows(problem)};
}

static bool has_wgmma(const struct quasar_problem *problem, const struct gpu_properties *properties,
	const struct config *config)
{
	const struct chunk_problem chunk = chunk_problem(problem);
	const struct choice_machine machine = machine_of(properties);

	return chunk_has_wgmma(&chunk, &machine, config->value[QUASAR_CHUNK]);
}

int quasar_config_check(const struct quasar_problem *problem, const struct gpu_properties *properties,
	const struct config *config, struct error *err)
{
	int groups = config->value[QUASAR_GROUPS], cut;

	if (config_check_values(QUASAR_SOURCE, quasar_parameters, config, err) < 0)
		return -1;
	if (problem->semantics == SEMANTICS_UPSTREAM && config->value[QUASAR_CHUNK] != UPSTREAM_CHUNK)
		return error_set(err, STATUS_USAGE, "upstream semantics have chunks of %d, not of %d",
			UPSTREAM_CHUNK, config->value[QUASAR_CHUNK]);
	if (config->value[QUASAR_PRODUCT_WARPS] == 4 && !has_wgmma(problem, properties, config))
		return error_set(err, STATUS_USAGE,
			"PRODUCT_WARPS=4 needs compute capability 9.0, a head dimension of 64 or 128 and CHUNK=64");
	if (groups < 1 || groups > quasar_chunks(problem, config))
		return error_set(err, STATUS_USAGE, "%d chunks cannot be cut into %d groups",
			quasar_chunks(problem, config), groups);
	cut = (quasar_chunks(problem, config) - 1) / quasar_chunks_per_group(problem, config) + 1;
	if (cut != groups)
		return error_set(err, STATUS_USAGE, "%d chunks cannot be cut into %d groups, but into %d",
			quasar_chunks(problem, config), groups, cut);
	if (shared_bytes(problem, config) > properties->shared_per_block) {
		error_set(err, STATUS_ENVIRONMENT,
			"%s, head dimension %d, %s semantics take %d KiB of shared memory a block; %s has %d",
			dtype_name(problem->q.dtype), problem->dim, semantics_name(problem->semantics),
			shared_bytes(problem, config) / 1024, properties->name,
			properties->shared_per_block / 1024);
		return error_hint(err, "bf16 takes half as much.");
	}
	return 0;
}

int quasar_config_worthwhile(const struct quasar_problem *problem, const struct gpu_properties *properties,
	const struct config *config, struct error *err)
{
	const struct chunk_problem chunk = chunk_problem(problem);
	const struct choice_machine machine = machine_of(properties);
	int wanted = config->value[QUASAR_MIN_BLOCKS];
	int fit = chunk_blocks_that_fit(&chunk, &machine, config->value[QUASAR_CHUNK],
		config->value[QUASAR_NUM_STAGES], config->value[QUASAR_NUM_LAUNCHES]);

	return wanted <= fit
		? 0
		: error_set(err, STATUS_USAGE, "MIN_BLOCKS=%d has shared memory for %d", wanted, fit);
}

/* --- the choice ------------------------------------------------------------------------------------- */

static struct config config_of(const struct chunk_choice *choice)
{
	return (struct config){{choice->chunk, choice->num_stages, choice->min_blocks, choice->product_warps,
		choice->num_launches, choice->groups}};
}

struct config quasar_config_default(
	const struct quasar_problem *problem, const struct gpu_properties *properties)
{
	const struct chunk_problem chunk = chunk_problem(problem);
	const struct choice_machine machine = machine_of(properties);
	const struct chunk_choice choice = chunk_choose(&chunk, &machine);

	return config_of(&choice);
}

struct config quasar_config_adopt(const struct quasar_problem *problem,
	const struct gpu_properties *properties, const struct config *tuned)
{
	const struct chunk_problem chunk = chunk_problem(problem);
	const struct choice_machine machine = machine_of(properties);
	const int *value = tuned->value;
	const struct chunk_choice wanted = {value[QUASAR_CHUNK], value[QUASAR_NUM_STAGES],
		value[QUASAR_MIN_BLOCKS], value[QUASAR_PRODUCT_WARPS], value[QUASAR_NUM_LAUNCHES],
		value[QUASAR_GROUPS]};
	const struct chunk_choice choice = chunk_adopt(&chunk, &machine, &wanted);

	return config_of(&choice);
}

void quasar_groups_values(const struct quasar_problem *problem, const struct gpu_properties *properties,
	const struct config *config, int values[CONFIG_VALUES])
{
	int64_t sequences = problem->batch * problem->heads;
	int chunks = quasar_chunks(problem, config);

	memset(values, 0, CONFIG_VALUES * sizeof(*values));
	for (int halves = 0; halves <= 8; halves++)
		config_add_value(
			values, chunk_cut(chunks, halves * properties->multiprocessors / 2 / sequences));
}

/* --- what is launched ------------------------------------------------------------------------------- */

bool quasar_is_compact(const struct quasar_problem *problem, const struct tensor *tensor)
{
	return tensor->stride[1] == problem->heads * tensor->stride[2];
}

/* The constants of the problem, then those of the configuration. */
static void list_parameters(const struct quasar_problem *problem, const struct config *config,
	struct kernel_parameter list[LAUNCH_PARAMETERS + 1])
{
	bool upstream = problem->semantics == SEMANTICS_UPSTREAM;
	const struct kernel_parameter constants[] = {
		{"HEAD_DIM", problem->dim},
		{"UPSTREAM", upstream},
		{"INPUT", (int)problem->q.dtype},
		{"VECTOR",
			tensor_is_vector(&problem->q) && tensor_is_vector(&problem->k) &&
				tensor_is_vector(&problem->v) && tensor_is_vector(&problem->o)},
		{"COMPACT",
			upstream && quasar_is_compact(problem, &problem->q) &&
				quasar_is_compact(problem, &problem->k) &&
				quasar_is_compact(problem, &problem->v)},
		{"GATED", problem->gated},
		{"PACKED", problem->sequences > 0},
	};
	int count = sizeof(constants) / sizeof(*constants);

	memcpy(list, constants, sizeof(constants));
	for (int i = 0; quasar_parameters[i].name; i++)
		if (quasar_parameters[i].compiled)
			list[count++] = (struct kernel_parameter){
				quasar_parameters[i].name, config->value[i]};
	list[count] = (struct kernel_parameter){0};
}

int quasar_launches(const struct quasar_problem *problem, const struct config *config,
	struct config_launch launches[CONFIG_LAUNCHES])
{
	int dim = problem->dim, planes = CHUNK_PLANES((int)problem->q.dtype), count = 0;
	int chunk = config->value[QUASAR_CHUNK], stages = config->value[QUASAR_NUM_STAGES];
	int separate = config->value[QUASAR_NUM_LAUNCHES], groups = config->value[QUASAR_GROUPS];
	int longest = quasar_chunks_per_group(problem, config);
	/* FADING_CHUNKS is of chunks of 64 and S = 64; rows to forget grow with S */
	int forgets = FADING_CHUNKS * dim / chunk, fading = longest < forgets ? longest : forgets;
	double tile = (double)chunk * dim * (double)dtype_size(problem->q.dtype);
	double square = CHUNK_SQUARE_BYTES(chunk, planes), loaded = separate == 3 ? square : 0;
	struct config_launch any = {.source = QUASAR_SOURCE,
		.threads = CHUNK_THREADS(dim, stages),
		.ahead = stages == 1 ? 0 : 1,
		.beside = stages == 3 ? 0.5 : 0};

	list_parameters(problem, config, any.parameters);
	if (separate == 3) {
		struct config alone = *config;

		alone.value[QUASAR_NUM_STAGES] = 2; /* it has no stages, and nobody to make what they take */
		launches[count] = any;
		launches[count].threads = CHUNK_THREADS(dim, 2);
		launches[count].beside = 0;
		list_parameters(problem, &alone, launches[count].parameters);
		launches[count].name = "quasar_chunk_inverse";
		launches[count].shared_bytes = CHUNK_INVERSE_SHARED(dim, chunk, planes);
		launches[count].bytes = CHUNKS_AT_ONCE(dim, chunk) * (tile + square);
		launches[count++].blocks = quasar_parts(problem, CHUNKS_AT_ONCE(dim, chunk) * chunk, true);
	}
	if (groups > 1) { /* nobody asks for the transition of a last group */
		launches[count] = any;
		launches[count].name = "quasar_chunk_transition";
		launches[count].shared_bytes = CHUNK_TRANSITION_SHARED(dim, chunk, planes, stages, separate);
		launches[count].trips = fading;
		launches[count].bytes = fading * (2 * tile + loaded);
		launches[count++].blocks = quasar_parts(problem, (int64_t)longest * chunk, false);
	}
	launches[count] = any;
	launches[count].name = "quasar_chunk_output";
	launches[count].shared_bytes = shared_bytes(problem, config);
	/* where no group forgets the past, those before are stepped over: a product of [S, S] by [S, S], where a chunk has six
	 * of [S, S] by [S, C] */
	launches[count].trips = longest + (longest < forgets ? (groups - 1) * dim / (6.0 * chunk) : 0);
	launches[count].bytes = longest * (4 * tile + loaded);
	launches[count++].blocks = quasar_parts(problem, (int64_t)longest * chunk, true);
	return count;
}
