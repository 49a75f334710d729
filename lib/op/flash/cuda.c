#include "op/flash/ladder.h"

#include <limits.h>

#include "kernels/flash/arguments.h"
#include "kernels/flash/layout.h"
#include "op/flash/config.h"
#include "op/launch.h"

static int check_problem(
	const struct flash_kernels *kernels, const struct flash_problem *problem, struct error *err)
{
	const struct tensor *tensors[] = {&problem->k, &problem->v, &problem->o, &problem->d_o, &problem->dq,
		&problem->dk, &problem->dv};
	int count = kernels->gradient ? 7 : 3;

	if ((kernels->gradient ? flash_check_gradient(problem, err) : flash_check(problem, err)) < 0)
		return -1;
	for (int i = 0; i < count; i++)
		if (tensors[i]->dtype != problem->q.dtype) {
			error_set(err, STATUS_USAGE, "the tensors are not of one type");
			return error_hint(err, "The GPU takes all in bf16, or all in fp16.");
		}
	/* 64 rows a block at least */
	if (problem->tokens > INT_MAX / 2 ||
		flash_sequences(problem) * problem->heads > INT_MAX / (flash_longest(problem) / 64 + 1)) {
		error_set(err, STATUS_USAGE,
			"%lld tokens of %d heads in a batch of %lld are too many for one call",
			(long long)problem->tokens, problem->heads, (long long)problem->batch);
		return error_hint(err, "Split the batch.");
	}
	return 0;
}

/* Working memory: for the gradient statistics of all queries, and sums of dQ where these go there; then cu_seqlens. */
static int lay_out(struct gpu *gpu, struct gpu_workspace *workspace, const struct flash_kernels *kernels,
	const struct flash_problem *problem, struct flash_arguments *arguments, struct error *err)
{
	size_t queries = (size_t)(problem->batch * problem->heads * problem->tokens);
	size_t statistics = kernels->gradient ? queries * sizeof(*arguments->statistics) : 0;
	size_t sums = kernels->atomics ? queries * (size_t)problem->dim * sizeof(*arguments->dq_sums) : 0;
	size_t sequences = problem->cu_seqlens ? ((size_t)problem->sequences + 1) * sizeof(int32_t) : 0;
	char *memory;

	if (gpu_workspace_reserve(gpu, workspace, statistics + sums + sequences, err) < 0)
		return -1;
	memory = workspace->memory;
	arguments->statistics = (void *)memory;
	arguments->dq_sums = (void *)(memory + statistics);
	if (!sequences)
		return 0;
	memory += statistics + sums;
	arguments->cu_seqlens = (void *)memory;
	return gpu_upload(gpu, memory, problem->cu_seqlens, sequences, err);
}

/* A tensor as flash_arguments' maps have it: as many rows at a time as a box has. */
static int map_rows(struct gpu *gpu, const struct flash_problem *problem, const struct tensor *tensor,
	int heads, uint32_t rows, struct tensor_map *map, struct error *err)
{
	const int64_t size[] = {problem->batch, problem->tokens, heads};
	const uint64_t columns = FLASH_BOX_COLUMNS, parts = (uint64_t)problem->dim / columns;
	uint64_t stride[3];
	struct gpu_map wanted;

	for (int i = 0; i < 3; i++)
		stride[i] = size[i] > 1 ? (uint64_t)tensor->stride[i] * dtype_size(tensor->dtype)
					: TENSOR_VECTOR_BYTES;
	wanted = (struct gpu_map){
		.data = (uint64_t)tensor->data,
		.size = {columns, (uint64_t)problem->tokens, parts, (uint64_t)heads,
			(uint64_t)problem->batch},
		.stride = {stride[1], columns * dtype_size(tensor->dtype), stride[2], stride[0]},
		.box = {(uint32_t)columns, rows, (uint32_t)parts, 1, 1},
	};
	if (problem->cu_seqlens) {
		wanted.data -= rows * stride[1];
		wanted.size[1] = rows;
		wanted.size[4] = (uint64_t)problem->tokens + 1;
		wanted.stride[3] = stride[1];
	}
	return gpu_map_tensor(gpu, &wanted, map, err);
}

static int map_tensors(struct gpu *gpu, const struct flash_kernels *kernels,
	const struct flash_problem *problem, const struct config *config, struct flash_arguments *arguments,
	struct error *err)
{
	const int heads = problem->heads, key_heads = problem->key_heads;
	const uint32_t rows = FLASH_BOX_ROWS((uint32_t)problem->dim, (uint32_t)config->value[FLASH_BLOCK_N]);

	if (config->value[FLASH_PRODUCT_WARPS] != 4)
		return 0;
	return map_rows(gpu, problem, &problem->q, heads, rows, &arguments->q_map, err) < 0 ||
			map_rows(gpu, problem, &problem->k, key_heads, rows, &arguments->k_map, err) < 0 ||
			map_rows(gpu, problem, &problem->v, key_heads, rows, &arguments->v_map, err) < 0 ||
			(kernels->gradient &&
				map_rows(gpu, problem, &problem->d_o, heads, rows, &arguments->d_o_map, err) <
					0)
		? -1
		: 0;
}

/* In a configuration that the GPU can run. */
static int run(struct gpu *gpu, struct gpu_workspace *workspace, const struct flash_kernels *kernels,
	const struct flash_problem *problem, const struct config *config, struct error *err)
{
	struct flash_arguments arguments = {
		.q = device_tensor(&problem->q),
		.k = device_tensor(&problem->k),
		.v = device_tensor(&problem->v),
		.o = device_tensor(&problem->o),
		.d_o = device_tensor(&problem->d_o),
		.dq = device_tensor(&problem->dq),
		.dk = device_tensor(&problem->dk),
		.dv = device_tensor(&problem->dv),
		.lse = problem->lse,
		.tokens = problem->tokens,
		.scale = problem->scale,
		.heads = problem->heads,
		.key_heads = problem->key_heads,
	};
	struct config_launch launches[CONFIG_LAUNCHES];
	struct gpu_kernel *built[CONFIG_LAUNCHES];
	int count;

	arguments.sequences = (int)flash_sequences(problem);
	count = flash_launches(kernels, problem, config, launches);
	return launches_build(gpu, launches, count, built, err) < 0 ||
			map_tensors(gpu, kernels, problem, config, &arguments, err) < 0 ||
			lay_out(gpu, workspace, kernels, problem, &arguments, err) < 0
		? -1
		: launches_queue(built, launches, count, &arguments, err);
}

/* In one that is asked for, or NULL, in the usual one. */
static int configure_and_run(struct gpu *gpu, struct gpu_workspace *workspace,
	const struct flash_kernels *kernels, const struct flash_problem *problem, const struct config *config,
	struct error *err)
{
	const struct gpu_properties *properties = gpu_properties_of(gpu);
	struct config usual;

	if (check_problem(kernels, problem, err) < 0)
		return -1;
	if (!config) {
		usual = flash_config_default(kernels, problem, properties);
		config = &usual;
	}
	return flash_config_check(kernels, problem, properties, config, err) < 0
		? -1
		: run(gpu, workspace, kernels, problem, config, err);
}

int flash_cuda(struct gpu *gpu, struct gpu_workspace *workspace, const struct flash_problem *problem,
	const struct config *config, struct error *err)
{
	return configure_and_run(gpu, workspace, &flash_forward_kernels, problem, config, err);
}

int flash_cuda_gradient(struct gpu *gpu, struct gpu_workspace *workspace, const struct flash_problem *problem,
	const struct config *config, struct error *err)
{
	return configure_and_run(gpu, workspace, &flash_backward_kernels, problem, config, err);
}

/* --- the ladder -------------------------------------------------------------------------------------- */

const struct flash_rung flash_ladder[] = {
	{"32 x 32 tiles, atomics, no early end", true, true, true, true},
	{"two passes without atomics", true, true, false, true},
	{"early end", true, false, false, true},
	{"larger tiles, loaded in advance", false, false, false, true},
	{"warps that only load, wgmma (compute capability 9.0)", false, false, false, false},
	{0},
};

int flash_cuda_rung(struct gpu *gpu, struct gpu_workspace *workspace, const struct flash_problem *problem,
	const struct flash_rung *rung, bool gradient, struct error *err)
{
	static const struct config small = {{32, 32, 2, 1, 1}};
	struct flash_kernels kernels = gradient ? flash_backward_kernels : flash_forward_kernels;

	kernels.no_early_end = rung->no_early_end;
	kernels.atomics = gradient && rung->atomics;
	kernels.no_wgmma = rung->no_wgmma;
	if (!rung->small_tiles)
		return configure_and_run(gpu, workspace, &kernels, problem, NULL, err);
	return check_problem(&kernels, problem, err) < 0
		? -1
		: run(gpu, workspace, &kernels, problem, &small, err);
}
