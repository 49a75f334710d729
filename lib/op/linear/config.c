#include "op/linear/config.h"

#include <string.h>

#include "kernels/linear/choice.h"

const struct parameter linear_parameters[] = {
	[LINEAR_VALUE_TILE] = {"VALUE_TILE", true, {64, 32, 16, 0}},
	[LINEAR_NUM_WARPS] = {"NUM_WARPS", true, {4, 8, 2, 0}},
	[LINEAR_NUM_STAGES] = {"NUM_STAGES", true, {3, 4, 2, 0}},
	[LINEAR_MIN_BLOCKS] = {"MIN_BLOCKS", true, {1, 2, 3, 4, 0}},
	[LINEAR_GROUPS] = {"GROUPS", false, {0}},
	{0},
};

static struct linear_shape shape_of(const struct linear_pass *pass)
{
	return (struct linear_shape){pass->kind, (int)pass->x.dtype, pass->key_dim, pass->value_dim,
		pass->causal, pass->normalised, pass->batch * pass->heads, pass->tokens};
}

static struct linear_choice choice_of(const struct config *config)
{
	const int *value = config->value;

	return (struct linear_choice){value[LINEAR_VALUE_TILE], value[LINEAR_NUM_WARPS],
		value[LINEAR_NUM_STAGES], value[LINEAR_MIN_BLOCKS], value[LINEAR_GROUPS]};
}

static struct config config_of(const struct linear_choice *choice)
{
	return (struct config){{choice->value_tile, choice->num_warps, choice->num_stages, choice->min_blocks,
		choice->groups}};
}

int linear_chunks_per_group(const struct linear_pass *pass, const struct config *config)
{
	const struct linear_shape shape = shape_of(pass);
	const struct linear_choice choice = choice_of(config);

	return linear_chunks_of_group(&shape, &choice);
}

/* --- what fits -------------------------------------------------------------------------------------- */

static int check_pass(const struct linear_pass *pass, const struct gpu_properties *properties,
	const struct config *config, struct error *err)
{
	const struct linear_shape shape = shape_of(pass);
	const struct linear_choice choice = choice_of(config);
	const struct choice_machine machine = machine_of(properties);
	int shared;

	if (config_check_values("linear/attention.cu", linear_parameters, config, err) < 0)
		return -1;
	if (choice.value_tile > shape.value_dim)
		return error_set(err, STATUS_USAGE, "VALUE_TILE=%d is wider than a row of %d",
			choice.value_tile, shape.value_dim);
	if (choice.groups < 1 || linear_cut(&shape, choice.groups) != choice.groups)
		return error_set(err, STATUS_USAGE, "%lld chunks cannot be cut into %d groups",
			linear_chunks(&shape), choice.groups);
	shared = linear_most_shared(&shape, &choice);
	if (shared > properties->shared_per_block) {
		error_set(err, STATUS_ENVIRONMENT,
			"NUM_WARPS=%d NUM_STAGES=%d take %d KiB of shared memory a block; %s has %d",
			choice.num_warps, choice.num_stages, shared / 1024, properties->name,
			properties->shared_per_block / 1024);
		return error_hint(err, "Fewer warps or stages take less.");
	}
	return linear_has_room(&shape, &machine, &choice)
		? 0
		: error_set(
			  err, STATUS_USAGE, "MIN_BLOCKS=%d has not enough shared memory", choice.min_blocks);
}

int linear_config_check(const struct linear_pass *passes, int count, const struct gpu_properties *properties,
	const struct config *config, struct error *err)
{
	for (int i = 0; i < count; i++)
		if (check_pass(&passes[i], properties, config, err) < 0)
			return -1;
	return 0;
}

/* --- the choice ------------------------------------------------------------------------------------- */

struct config linear_config_default(
	const struct linear_pass *passes, int count, const struct gpu_properties *properties)
{
	const struct choice_machine machine = machine_of(properties);
	struct linear_shape shapes[LINEAR_GRADIENT_PASSES];
	struct linear_choice choice;

	for (int i = 0; i < count; i++)
		shapes[i] = shape_of(&passes[i]);
	choice = linear_choose(shapes, count, &machine);
	return config_of(&choice);
}

struct config linear_config_fit(const struct linear_pass *pass, const struct config *wanted)
{
	const struct linear_shape shape = shape_of(pass);
	struct config config = *wanted;

	config.value[LINEAR_GROUPS] = linear_cut(&shape, config.value[LINEAR_GROUPS]);
	return config;
}

void linear_groups_values(const struct linear_pass *pass, const struct gpu_properties *properties,
	const struct config *config, int values[CONFIG_VALUES])
{
	const struct linear_shape shape = shape_of(pass);
	const struct linear_choice choice = choice_of(config);
	const struct choice_machine machine = machine_of(properties);

	memset(values, 0, CONFIG_VALUES * sizeof(*values));
	if (choice.value_tile > shape.value_dim)
		return; /* which no number of groups mends */
	for (int halves = 1; halves <= 6; halves++)
		config_add_value(values, linear_usual_groups(&shape, &machine, &choice, halves));
}

/* --- what is launched ------------------------------------------------------------------------------- */

static bool is_vector(const struct linear_pass *pass)
{
	return tensor_is_vector(&pass->x) && tensor_is_vector(&pass->y) && tensor_is_vector(&pass->w) &&
		tensor_is_vector(&pass->out) && (!pass_is_augmented(pass) || tensor_is_vector(&pass->at)) &&
		(pass->kind != PASS_DK || tensor_is_vector(&pass->o));
}

/* The constants of the problem, then those of the configuration. */
static void list_parameters(const struct linear_pass *pass, const struct config *config,
	struct kernel_parameter list[LAUNCH_PARAMETERS + 1])
{
	const struct kernel_parameter constants[] = {
		{"PASS", pass->kind},
		{"FEATURE", (int)pass->feature},
		{"KEY_DIM", pass->key_dim},
		{"VALUE_DIM", pass->value_dim},
		{"CAUSAL", pass->causal},
		{"NORMALISED", pass->normalised},
		{"INPUT", (int)pass->x.dtype},
		{"VECTOR", is_vector(pass)},
	};
	int count = sizeof(constants) / sizeof(*constants);

	memcpy(list, constants, sizeof(constants));
	for (int i = 0; linear_parameters[i].name; i++)
		if (linear_parameters[i].compiled)
			list[count++] = (struct kernel_parameter){
				linear_parameters[i].name, config->value[i]};
	list[count] = (struct kernel_parameter){0};
}

/* A kernel whose warps go through groups with so many columns of the state each. */
static struct config_launch walk_launch(
	const struct linear_pass *pass, const struct config *config, const char *name, int tile)
{
	const struct linear_shape shape = shape_of(pass);
	const struct linear_choice choice = choice_of(config);
	int warps = choice.num_warps, longest = linear_chunks_of_group(&shape, &choice);
	struct config_launch launch = {.source = "linear/attention.cu",
		.name = name,
		.threads = warps * 32,
		.blocks = linear_blocks(&shape, &choice, tile),
		.trips = pass->causal ? longest : (longest + warps - 1) / warps,
		.ahead = choice.num_stages - 1,
		.by_warp = true};
	struct config own = *config;

	own.value[LINEAR_VALUE_TILE] = tile;
	list_parameters(pass, &own, launch.parameters);
	return launch;
}

int linear_launches(const struct linear_pass *pass, const struct config *config,
	struct config_launch launches[LINEAR_PASS_LAUNCHES])
{
	const struct linear_pass sum_pass = linear_sum_pass(pass);
	const struct linear_shape shape = shape_of(pass), sum = shape_of(&sum_pass);
	const struct linear_choice choice = choice_of(config);
	int tile = choice.value_tile, warps = choice.num_warps, count = 0;
	struct config_launch *launch;

	/* blocks that go through the same rows for other columns of the state do so at a time, from the L2: each counts for its
	 * part of them */
	if (pass->kind != PASS_DV) { /* which PASS_DK was run before */
		launch = &launches[count++];
		*launch = walk_launch(&sum_pass, config, "linear_sum", linear_sum_tile(&sum, &choice));
		launch->shared_bytes = linear_sum_shared(&sum, &choice);
		launch->bytes = launch->trips * warps *
			LINEAR_SUM_STAGE(sum.input, sum.key_dim, sum.value_dim, sum.pass, sum.normalised) /
			(sum.value_dim / linear_sum_tile(&sum, &choice));
		launch = &launches[count++];
		*launch = launches[0];
		launch->name = "linear_scan";
		launch->threads = SCAN_THREADS;
		launch->blocks = linear_scan_blocks(&sum);
		launch->trips = (double)choice.groups / SCAN_AT_ONCE;
		launch->bytes = SCAN_THREADS * 4.0 * choice.groups * (pass->causal ? 2 : 1);
		launch->ahead = 0;
	}
	launch = &launches[count++];
	*launch = walk_launch(pass, config, "linear_output", tile);
	launch->shared_bytes = linear_output_shared(&shape, &choice);
	launch->bytes = launch->trips * warps *
		(linear_output_stage(&shape, shape.value_dim) +
			LINEAR_ROWS_BYTES((int)pass->x.dtype, shape.value_dim)) /
		(shape.value_dim / tile);
	return count;
}
