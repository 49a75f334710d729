#include "op/flash/config.h"

#include <string.h>

#include "kernels/flash/choice.h"

const struct flash_kernels flash_forward_kernels = {FLASH_FORWARD, .gradient = false};
const struct flash_kernels flash_backward_kernels = {FLASH_BACKWARD, .gradient = true};

const struct parameter flash_parameters[] = {
	[FLASH_BLOCK_M] = {"BLOCK_M", true, {128, 64, 192, 0}},
	[FLASH_BLOCK_N] = {"BLOCK_N", true, {64, 128, 32, 0}},
	[FLASH_NUM_WARPS] = {"NUM_WARPS", true, {4, 8, 12, 0}},
	[FLASH_NUM_STAGES] = {"NUM_STAGES", true, {2, 1, 3, 4, 0}},
	[FLASH_PRODUCT_WARPS] = {"PRODUCT_WARPS", true, {1, 4, 0}},
	{0},
};

/* --- what fits -------------------------------------------------------------------------------------- */

static struct flash_choice choice_of(const struct config *config)
{
	const int *value = config->value;

	return (struct flash_choice){value[FLASH_BLOCK_M], value[FLASH_BLOCK_N], value[FLASH_NUM_WARPS],
		value[FLASH_NUM_STAGES], value[FLASH_PRODUCT_WARPS]};
}

/* Whether the copy engine can load a tensor: for dimensions of one element strides do not count. */
static bool is_mapped(const struct tensor *tensor, const int64_t size[3])
{
	for (int i = 0; i < 3; i++) {
		const int64_t bytes = tensor->stride[i] * (int64_t)dtype_size(tensor->dtype);

		if (size[i] > 1 && (bytes <= 0 || bytes >= GPU_MAP_STRIDE_END))
			return false;
	}
	return tensor_is_vector(tensor);
}

/* All those that are loaded. */
static bool are_mapped(const struct flash_kernels *kernels, const struct flash_problem *problem)
{
	const int64_t queries[] = {problem->batch, problem->tokens, problem->heads};
	const int64_t keys[] = {problem->batch, problem->tokens, problem->key_heads};

	return is_mapped(&problem->q, queries) && is_mapped(&problem->k, keys) &&
		is_mapped(&problem->v, keys) && (!kernels->gradient || is_mapped(&problem->d_o, queries));
}

/* What products by wgmma need. */
static int check_wgmma(const struct flash_kernels *kernels, const struct flash_problem *problem,
	const struct choice_machine *machine, const struct flash_choice *choice, struct error *err)
{
	if (!flash_has_wgmma(problem->dim, machine))
		return error_set(err, STATUS_USAGE,
			"PRODUCT_WARPS=4 needs compute capability 9.0 and a head dimension of 64 or 128");
	if (choice->num_warps < 8 || choice->block_m != 16 * choice->num_warps || choice->num_stages < 2)
		return error_set(err, STATUS_USAGE,
			"PRODUCT_WARPS=4 needs 8 warps or 12, 16 rows for each, and 2 stages or more");
	if (!are_mapped(kernels, problem))
		return error_set(err, STATUS_USAGE,
			"PRODUCT_WARPS=4 needs contiguous rows, 16-byte aligned, and positive strides");
	return 0;
}

static int check_type(const struct flash_problem *problem, struct error *err)
{
	if (problem->q.dtype == DTYPE_BF16 || problem->q.dtype == DTYPE_F16)
		return 0;
	error_set(err, STATUS_USAGE, "the GPU's attention does not compute in %s",
		dtype_name(problem->q.dtype));
	return error_hint(err, "It takes all tensors in bf16, or all in fp16; the CPU takes fp32 too.");
}

int flash_config_check(const struct flash_kernels *kernels, const struct flash_problem *problem,
	const struct gpu_properties *properties, const struct config *config, struct error *err)
{
	const struct flash_choice choice = choice_of(config);
	const struct choice_machine machine = machine_of(properties);
	int m = choice.block_m, warps = choice.num_warps, needed, room;

	if (flash_check_shape(problem, err) < 0 || check_type(problem, err) < 0)
		return -1;
	if (config_check_values(kernels->source, flash_parameters, config, err) < 0)
		return -1;
	if (m % (16 * warps))
		return error_set(err, STATUS_USAGE,
			"BLOCK_M=%d leaves less than 16 rows for each of %d warps", m, warps);
	if (choice.product_warps == 4 && check_wgmma(kernels, problem, &machine, &choice, err) < 0)
		return -1;
	needed = flash_registers(kernels->gradient, problem->dim, &choice);
	room = FLASH_ROOM(warps, choice.product_warps);
	if (needed > room)
		return error_set(err, STATUS_USAGE,
			"its tiles take %d registers of a thread; there is room for %d", needed, room);
	needed = flash_shared(kernels->gradient, problem->dim, &choice);
	if (needed > properties->shared_per_block)
		return error_set(err, STATUS_ENVIRONMENT, "%d KiB of shared memory a block; %s has %d",
			needed / 1024, properties->name, properties->shared_per_block / 1024);
	return 0;
}

/* --- the choice ------------------------------------------------------------------------------------- */

struct config flash_config_default(const struct flash_kernels *kernels, const struct flash_problem *problem,
	const struct gpu_properties *properties)
{
	const struct choice_machine machine = machine_of(properties);
	const struct flash_shape shape = {kernels->gradient, problem->dim, problem->causal,
		!kernels->no_wgmma && are_mapped(kernels, problem), flash_sequences(problem) * problem->heads,
		flash_longest(problem)};
	const struct flash_choice choice = flash_choose(&shape, &machine);

	return (struct config){
		{choice.block_m, choice.block_n, choice.num_warps, choice.num_stages, choice.product_warps}};
}

struct config flash_config_adopt(const struct flash_kernels *kernels, const struct flash_problem *problem,
	const struct gpu_properties *properties, const struct config *tuned)
{
	struct error why;

	return flash_config_check(kernels, problem, properties, tuned, &why) == 0
		? *tuned
		: flash_config_default(kernels, problem, properties);
}

/* --- what is launched ------------------------------------------------------------------------------- */

static bool is_vector(const struct flash_kernels *kernels, const struct flash_problem *problem)
{
	const struct tensor *tensors[] = {&problem->q, &problem->k, &problem->v, &problem->o, &problem->d_o,
		&problem->dq, &problem->dk, &problem->dv};
	int count = kernels->gradient ? 8 : 4;

	for (int i = 0; i < count; i++)
		if (!tensor_is_vector(tensors[i]))
			return false;
	return true;
}

/* The constants of the problem, then the configuration, whose parameters are all constants. */
static void list_parameters(const struct flash_kernels *kernels, const struct flash_problem *problem,
	const struct config *config, struct kernel_parameter list[LAUNCH_PARAMETERS + 1])
{
	const struct kernel_parameter constants[] = {
		{"HEAD_DIM", problem->dim},
		{"CAUSAL", problem->causal},
		{"INPUT", (int)problem->q.dtype},
		{"VECTOR", is_vector(kernels, problem)},
		{"EARLY_END", !kernels->no_early_end},
		{"ATOMICS", kernels->atomics},
	};
	int count = sizeof(constants) / sizeof(*constants);

	memcpy(list, constants, sizeof(constants));
	for (int i = 0; flash_parameters[i].name; i++)
		list[count++] = (struct kernel_parameter){flash_parameters[i].name, config->value[i]};
	list[count] = (struct kernel_parameter){0};
}

/* A launch with a block for each BLOCK_M rows of so many heads, each of which walks through so many tiles of a head. */
static struct config_launch launch_of(const struct flash_kernels *kernels,
	const struct flash_problem *problem, const struct config *config, const char *name, int heads)
{
	const struct flash_choice choice = choice_of(config);
	int m = choice.block_m, n = choice.block_n;
	double row = (double)problem->dim * 2, tokens = (double)flash_longest(problem);
	double seen = flash_pairs(problem) / ((double)problem->batch * (double)problem->tokens);
	bool has_loaders = choice.product_warps == 4;
	struct config_launch launch = {
		.source = kernels->source,
		.name = name,
		.threads = FLASH_THREADS(choice.num_warps, choice.product_warps),
		.shared_bytes = flash_shared(kernels->gradient, problem->dim, &choice),
		.blocks = flash_sequences(problem) * heads * (((int64_t)tokens + m - 1) / m),
		.trips = seen / n * problem->heads / heads,
		.ahead = choice.num_stages -
			(has_loaders ? 2 : 1), /* by wgmma two tiles are multiplied at a time */
		.beside = has_loaders ? (double)FLASH_LOADERS / (choice.num_warps + FLASH_LOADERS) : 0,
	};

	/* the kept rows and what is made of them; blocks that walk through the same rows do so at a time, from the L2 */
	launch.bytes = 4 * row * m;
	list_parameters(kernels, problem, config, launch.parameters);
	return launch;
}

int flash_launches(const struct flash_kernels *kernels, const struct flash_problem *problem,
	const struct config *config, struct config_launch launches[CONFIG_LAUNCHES])
{
	int count = 0;

	if (!kernels->gradient) {
		launches[count++] = launch_of(kernels, problem, config, "flash_forward", problem->heads);
		return count;
	}
	launches[count++] = launch_of(kernels, problem, config,
		kernels->atomics ? "flash_backward_begin" : "flash_backward_queries", problem->heads);
	launches[count++] = launch_of(kernels, problem, config, "flash_backward_keys", problem->key_heads);
	if (kernels->atomics)
		launches[count++] = launch_of(kernels, problem, config, "flash_backward_end", problem->heads);
	return count;
}
