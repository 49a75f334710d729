#include "op/quasar_backward/config.h"

#include <string.h>

#include "kernels/quasar/choice.h"
#include "op/quasar/config.h"

const struct parameter quasar_gradient_parameters[] = {
	[GRADIENT_PART_CHUNKS] = {"PART_CHUNKS", false, {0}},
	[GRADIENT_CHUNKS_PER_GROUP] = {"CHUNKS_PER_GROUP", false, {0}},
	{0},
};

static int64_t sequences_of(const struct quasar_problem *problem)
{
	return problem->batch * problem->heads;
}

static struct gradient_choice choice_of(
	const struct quasar_gradient *gradient, const struct gpu_properties *properties)
{
	const struct quasar_problem *problem = &gradient->problem;
	const struct chunk_problem chunk = {problem->dim, (int)problem->q.dtype,
		problem->semantics == SEMANTICS_UPSTREAM, sequences_of(problem), quasar_rows(problem)};

	const struct choice_machine machine = machine_of(properties);

	return gradient_choose(&chunk, &machine);
}

int quasar_gradient_chunks(const struct quasar_gradient *gradient)
{
	return (int)(upstream_padded(gradient->problem.tokens) / UPSTREAM_CHUNK);
}

/* --- what fits --------------------------------------------------------------------------------------- */

static int most_shared(const struct quasar_problem *problem)
{
	bool upstream = problem->semantics == SEMANTICS_UPSTREAM;
	int maps = GRADIENT_MAPS_SHARED(problem->dim, upstream),
	    others = GRADIENT_SHARED(problem->dim, upstream);

	return maps > others ? maps : others;
}

int quasar_gradient_config_check(const struct quasar_gradient *gradient,
	const struct gpu_properties *properties, const struct config *config, struct error *err)
{
	const struct quasar_problem *problem = &gradient->problem;
	int group = config->value[GRADIENT_CHUNKS_PER_GROUP], part = config->value[GRADIENT_PART_CHUNKS];

	if (config_check_values(QUASAR_GRADIENT_SOURCE, quasar_gradient_parameters, config, err) < 0)
		return -1;
	if (problem->q.dtype != DTYPE_BF16)
		return error_set(err, STATUS_USAGE, "on a GPU the gradient is of bf16 tensors, not of %s",
			dtype_name(problem->q.dtype));
	if (part < 1 || part > quasar_gradient_chunks(gradient))
		return error_set(err, STATUS_USAGE, "%d chunks cannot be cut into parts of %d",
			quasar_gradient_chunks(gradient), part);
	if (group < 1 || group > part)
		return error_set(
			err, STATUS_USAGE, "parts of %d chunks cannot be cut into groups of %d", part, group);
	if (most_shared(problem) > properties->shared_per_block)
		return error_set(err, STATUS_ENVIRONMENT,
			"head dimension %d takes %d KiB of shared memory a block; %s has %d", problem->dim,
			most_shared(problem) / 1024, properties->name, properties->shared_per_block / 1024);
	return 0;
}

/* --- the choice -------------------------------------------------------------------------------------- */

static int lesser(int a, int b)
{
	return a < b ? a : b;
}

struct config quasar_gradient_config_default(
	const struct quasar_gradient *gradient, const struct gpu_properties *properties)
{
	const struct gradient_choice choice = choice_of(gradient, properties);

	return (struct config){{choice.part_chunks, choice.chunks_per_group}};
}

struct config quasar_gradient_config_adopt(const struct quasar_gradient *gradient,
	const struct gpu_properties *properties, const struct config *tuned)
{
	struct config config = quasar_gradient_config_default(gradient, properties);
	int group = tuned->value[GRADIENT_CHUNKS_PER_GROUP];

	if (group > 0)
		config.value[GRADIENT_CHUNKS_PER_GROUP] = lesser(group, config.value[GRADIENT_PART_CHUNKS]);
	return config;
}

void quasar_gradient_values(const struct quasar_gradient *gradient, const struct gpu_properties *properties,
	const struct config *config, int parameter, int values[CONFIG_VALUES])
{
	const struct gradient_choice usual = choice_of(gradient, properties);

	memset(values, 0, CONFIG_VALUES * sizeof(*values));
	if (parameter == GRADIENT_PART_CHUNKS) {
		config_add_value(values, usual.part_chunks);
		return;
	}
	for (int quarters = 1; quarters <= 16; quarters *= 2)
		config_add_value(values,
			lesser((usual.chunks_per_group * quarters + 3) / 4,
				config->value[GRADIENT_PART_CHUNKS]));
}

/* --- what is launched -------------------------------------------------------------------------------- */

static bool are_vectors(const struct quasar_gradient *gradient)
{
	const struct quasar_problem *problem = &gradient->problem;

	return tensor_is_vector(&problem->q) && tensor_is_vector(&problem->k) &&
		tensor_is_vector(&problem->v) && tensor_is_vector(&gradient->d_o) &&
		tensor_is_vector(&gradient->d_q) && tensor_is_vector(&gradient->d_k) &&
		tensor_is_vector(&gradient->d_v);
}

static bool are_compact(const struct quasar_gradient *gradient)
{
	const struct quasar_problem *problem = &gradient->problem;

	return problem->semantics == SEMANTICS_UPSTREAM && quasar_is_compact(problem, &problem->q) &&
		quasar_is_compact(problem, &problem->k) && quasar_is_compact(problem, &problem->v) &&
		quasar_is_compact(problem, &gradient->d_q) && quasar_is_compact(problem, &gradient->d_k) &&
		quasar_is_compact(problem, &gradient->d_v);
}

int quasar_gradient_launches(const struct quasar_gradient *gradient, const struct config *config, int chunks,
	enum gradient_purpose purpose, struct config_launch launches[CONFIG_LAUNCHES])
{
	const struct quasar_problem *problem = &gradient->problem;
	const bool upstream = problem->semantics == SEMANTICS_UPSTREAM,
		   gradients = purpose == PURPOSE_GRADIENTS;
	const int dim = problem->dim, group = config->value[GRADIENT_CHUNKS_PER_GROUP];
	const int64_t sequences = sequences_of(problem), groups = gradient_groups(chunks, group);
	const double tile = UPSTREAM_CHUNK * dim * 2.0, state = GRADIENT_STATE(dim);
	const double square = GRADIENT_SQUARE * 10 / 16.0; /* its blocks that are not zero */
	const struct config_launch any = {.source = QUASAR_GRADIENT_SOURCE,
		.threads = GRADIENT_THREADS(dim),
		.ahead = GRADIENT_CHAIN_TILES(dim) / 2 - 1,
		.parameters = {{"HEAD_DIM", dim}, {"UPSTREAM", upstream}, {"INPUT", (int)problem->q.dtype},
			{"VECTOR", are_vectors(gradient)}, {"COMPACT", are_compact(gradient)}}};
	struct config_launch *launch = launches;

	*launch = any;
	launch->name = "quasar_gradient_maps";
	launch->shared_bytes = GRADIENT_MAPS_SHARED(dim, upstream);
	launch->blocks = sequences * chunks;
	launch++->bytes = gradients ? 4 * tile + square + 3 * state : 2 * tile + 2 * state;
	if (groups > 1) {
		*launch = any;
		launch->name = "quasar_gradient_compose";
		launch->shared_bytes = GRADIENT_CHAIN_SHARED(dim);
		launch->blocks = sequences * groups * (gradients ? 2 : 1);
		launch->trips = group;
		launch->ahead = (GRADIENT_CHAIN_TILES(dim) - 1) / 2 - 1;
		launch++->bytes = (2.0 * group + 1) * state;
	}
	*launch = any;
	launch->name = "quasar_gradient_states";
	launch->shared_bytes = GRADIENT_CHAIN_SHARED(dim);
	launch->blocks = sequences * groups * (gradients ? 2 : 1);
	launch->trips = group + (double)groups - 1;
	launch->bytes = (3.0 * group + (double)(groups - 1)) * state; /* of an average one */
	launch++;
	if (gradients) {
		*launch = any;
		launch->name = "quasar_gradient_rows";
		launch->shared_bytes = GRADIENT_ROWS_SHARED(dim, upstream);
		launch->blocks = sequences * chunks;
		launch++->bytes = 7 * tile + square + 2 * state;
		*launch = any;
		launch->name = "quasar_gradient_beta";
		launch->threads = GRADIENT_BETA_THREADS;
		launch->blocks = problem->heads;
		launch->trips = (double)problem->batch * chunks / GRADIENT_BETA_THREADS;
		launch++->bytes = (double)problem->batch * chunks * sizeof(float);
	}
	return (int)(launch - launches);
}
