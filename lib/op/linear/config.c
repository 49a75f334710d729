#include "op/linear/config.h"

#include <string.h>

/* What the driver takes of each block's share of shared memory. */

const struct parameter linear_parameters[] = {
	[LINEAR_VALUE_TILE] = {"VALUE_TILE", true, {64, 32, 16, 0}},
	[LINEAR_NUM_WARPS] = {"NUM_WARPS", true, {4, 8, 2, 0}},
	[LINEAR_NUM_STAGES] = {"NUM_STAGES", true, {3, 4, 2, 0}},
	[LINEAR_MIN_BLOCKS] = {"MIN_BLOCKS", true, {1, 2, 3, 4, 0}},
	[LINEAR_GROUPS] = {"GROUPS", false, {0}},
	{0},
};

static int64_t sequences_of(const struct linear_pass *pass)
{
	return pass->batch * pass->heads;
}

static int64_t chunks_of(const struct linear_pass *pass)
{
	return (pass->tokens + LINEAR_CHUNK - 1) / LINEAR_CHUNK;
}

/* --- what fits -------------------------------------------------------------------------------------- */

int linear_chunks_per_group(const struct linear_pass *pass, const struct config *config)
{
	int groups = config->value[LINEAR_GROUPS];

	return (int)((chunks_of(pass) + groups - 1) / groups);
}

/* The number of groups nearest to `wanted` that chunks can be cut into. */
static int cut(const struct linear_pass *pass, int64_t wanted)
{
	int64_t chunks = chunks_of(pass), groups = wanted < 1 ? 1 : wanted < chunks ? wanted : chunks;
	int64_t length = (chunks + groups - 1) / groups;

	return (int)((chunks + length - 1) / length);
}

static int output_stage(const struct linear_pass *pass, int value_tile)
{
	return LINEAR_OUTPUT_STAGE((int)pass->x.dtype, pass->key_dim, value_tile, pass->causal, pass->kind);
}

static int output_shared(const struct linear_pass *pass, const struct config *config)
{
	return config->value[LINEAR_NUM_WARPS] * config->value[LINEAR_NUM_STAGES] *
		output_stage(pass, config->value[LINEAR_VALUE_TILE]);
}

/* Columns of the state of its pass that a warp of linear_sum owns. */
static int sum_tile(const struct linear_pass *sum, const struct config *config)
{
	int tile = config->value[LINEAR_VALUE_TILE];

	return tile < sum->value_dim ? tile : sum->value_dim;
}

static int sum_stage(const struct linear_pass *sum, const struct config *config)
{
	return LINEAR_SUM_STAGE(
		(int)sum->x.dtype, sum->key_dim, sum_tile(sum, config), sum->kind, sum->normalised);
}

static int sum_shared(const struct linear_pass *sum, const struct config *config)
{
	int stages = config->value[LINEAR_NUM_WARPS] * config->value[LINEAR_NUM_STAGES] *
		sum_stage(sum, config);
	int exchange = sum->causal ? 0 : LINEAR_EXCHANGE_BYTES(sum->key_dim, sum_tile(sum, config));

	return stages > exchange ? stages : exchange;
}

static int most_shared(const struct linear_pass *pass, const struct config *config)
{
	const struct linear_pass sum = linear_sum_pass(pass);
	int output = output_shared(pass, config), summing = sum_shared(&sum, config);

	return output > summing ? output : summing;
}

static int check_pass(const struct linear_pass *pass, const struct gpu_properties *properties,
	const struct config *config, struct error *err)
{
	int groups = config->value[LINEAR_GROUPS], shared, wanted = config->value[LINEAR_MIN_BLOCKS];

	if (config_check_values("linear/attention.cu", linear_parameters, config, err) < 0)
		return -1;
	if (config->value[LINEAR_VALUE_TILE] > pass->value_dim)
		return error_set(err, STATUS_USAGE, "VALUE_TILE=%d is wider than a row of %d",
			config->value[LINEAR_VALUE_TILE], pass->value_dim);
	if (groups < 1 || cut(pass, groups) != groups)
		return error_set(err, STATUS_USAGE, "%lld chunks cannot be cut into %d groups",
			(long long)chunks_of(pass), groups);
	shared = most_shared(pass, config);
	if (shared > properties->shared_per_block) {
		error_set(err, STATUS_ENVIRONMENT,
			"NUM_WARPS=%d NUM_STAGES=%d take %d KiB of shared memory a block; %s has %d",
			config->value[LINEAR_NUM_WARPS], config->value[LINEAR_NUM_STAGES], shared / 1024,
			properties->name, properties->shared_per_block / 1024);
		return error_hint(err, "Fewer warps or stages take less.");
	}
	if (wanted * (shared + GPU_DRIVER_SHARED) > properties->shared_per_multiprocessor)
		return error_set(err, STATUS_USAGE, "MIN_BLOCKS=%d has not enough shared memory", wanted);
	return 0;
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

/* Columns of the state that a warp's registers hold: a state of 64 × 64 takes half of them, and each further bf16 that
 * carries a value takes its part. */
static int usual_tile(const struct linear_pass *pass)
{
	int planes = LINEAR_PLANES((int)pass->x.dtype);
	int tile = 64 * 64 / pass->key_dim / (planes == 1 ? 1 : planes == 2 ? 2 : 4);

	if (tile > 64)
		tile = 64;
	if (tile < 16)
		tile = 16;
	return tile < pass->value_dim ? tile : pass->value_dim;
}

/* As many units of work as run at a time, none of them so short that its state costs more than its rows. */
#define SHORTEST_GROUP 4 /* chunks a warp */

static int usual_groups(const struct linear_pass *pass, const struct gpu_properties *properties,
	const struct config *config, int halves)
{
	int64_t warps = config->value[LINEAR_NUM_WARPS];
	int64_t blocks = (int64_t)properties->multiprocessors * config->value[LINEAR_MIN_BLOCKS] * halves / 2;
	int64_t tiles = pass->value_dim / config->value[LINEAR_VALUE_TILE];
	int64_t groups = blocks * (pass->causal ? warps : 1) / (sequences_of(pass) * tiles);
	int64_t most = chunks_of(pass) / (SHORTEST_GROUP * (pass->causal ? 1 : warps));

	return cut(pass, groups < most ? groups : most);
}

static struct config usual_config(const struct linear_pass *pass, const struct gpu_properties *properties)
{
	struct config config = {{usual_tile(pass), 4, 3, 2, 1}};

	/* fewer stages, then one block, then fewer warps where shared memory is short */
	while (config.value[LINEAR_MIN_BLOCKS] * (most_shared(pass, &config) + GPU_DRIVER_SHARED) >
			properties->shared_per_multiprocessor ||
		most_shared(pass, &config) > properties->shared_per_block) {
		if (config.value[LINEAR_NUM_STAGES] > 2)
			config.value[LINEAR_NUM_STAGES]--;
		else if (config.value[LINEAR_MIN_BLOCKS] > 1)
			config.value[LINEAR_MIN_BLOCKS]--;
		else if (config.value[LINEAR_NUM_WARPS] > 2)
			config.value[LINEAR_NUM_WARPS] /= 2;
		else
			break;
	}
	config.value[LINEAR_GROUPS] = usual_groups(pass, properties, &config, 2);
	return config;
}

struct config linear_config_default(
	const struct linear_pass *passes, int count, const struct gpu_properties *properties)
{
	struct config config = {{0}};
	struct error none;

	for (int i = 0; i < count; i++) {
		config = usual_config(&passes[i], properties);
		if (linear_config_check(passes, count, properties, &config, &none) == 0)
			break;
	}
	return config;
}

struct config linear_config_fit(const struct linear_pass *pass, const struct config *wanted)
{
	struct config config = *wanted;

	config.value[LINEAR_GROUPS] = cut(pass, config.value[LINEAR_GROUPS]);
	return config;
}

void linear_groups_values(const struct linear_pass *pass, const struct gpu_properties *properties,
	const struct config *config, int values[CONFIG_VALUES])
{
	memset(values, 0, CONFIG_VALUES * sizeof(*values));
	for (int halves = 1; halves <= 6; halves++)
		config_add_value(values, usual_groups(pass, properties, config, halves));
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
	int warps = config->value[LINEAR_NUM_WARPS], longest = linear_chunks_per_group(pass, config);
	int64_t units = sequences_of(pass) * config->value[LINEAR_GROUPS] * (pass->value_dim / tile);
	struct config_launch launch = {.source = "linear/attention.cu",
		.name = name,
		.threads = warps * 32,
		.blocks = pass->causal ? (units + warps - 1) / warps : units,
		.trips = pass->causal ? longest : (longest + warps - 1) / warps};
	struct config own = *config;

	own.value[LINEAR_VALUE_TILE] = tile;
	list_parameters(pass, &own, launch.parameters);
	return launch;
}

int linear_launches(const struct linear_pass *pass, const struct config *config,
	struct config_launch launches[LINEAR_PASS_LAUNCHES])
{
	const struct linear_pass sum = linear_sum_pass(pass);
	int tile = config->value[LINEAR_VALUE_TILE], warps = config->value[LINEAR_NUM_WARPS];
	int groups = config->value[LINEAR_GROUPS], count = 0;
	int64_t numbers = sequences_of(&sum) * LINEAR_RECORD(sum.key_dim, sum.value_dim, sum.kind);
	struct config_launch *launch;

	if (pass->kind != PASS_DV) { /* which PASS_DK was run before */
		launch = &launches[count++];
		*launch = walk_launch(&sum, config, "linear_sum", sum_tile(&sum, config));
		launch->shared_bytes = sum_shared(&sum, config);
		launch->bytes = launch->trips * warps * sum_stage(&sum, config);
		launch = &launches[count++];
		*launch = launches[0];
		launch->name = "linear_scan";
		launch->threads = SCAN_THREADS;
		launch->blocks = (numbers + SCAN_THREADS - 1) / SCAN_THREADS;
		launch->trips = (double)groups / SCAN_AT_ONCE;
		launch->bytes = SCAN_THREADS * 4.0 * groups * (pass->causal ? 2 : 1);
		launch->waits = true;
	}
	launch = &launches[count++];
	*launch = walk_launch(pass, config, "linear_output", tile);
	launch->shared_bytes = output_shared(pass, config);
	launch->bytes = launch->trips * warps *
		(output_stage(pass, tile) + LINEAR_ROWS_BYTES((int)pass->x.dtype, tile));
	return count;
}
