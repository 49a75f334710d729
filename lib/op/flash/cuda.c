#include "op/flash/cuda.h"

#include <limits.h>

#include "kernels/flash/arguments.h"
#include "op/flash/config.h"
#include "op/tuned.h"

static struct device_tensor device_tensor(const struct tensor *tensor)
{
	return (struct device_tensor){
		tensor->data, {tensor->stride[0], tensor->stride[1], tensor->stride[2], tensor->stride[3]}};
}

/* What tuning found on such a GPU for such a problem, else what is chosen without. */
static struct config choose(const struct flash_kernels *kernels, const struct flash_problem *problem,
	const struct gpu_properties *properties)
{
	const struct op_shape shape = {problem->batch, problem->tokens, problem->heads, problem->dim,
		problem->dim, problem->key_heads};
	const struct shape_class class = shape_class_of(
		flash_mask_name(problem->causal), problem->q.dtype, &shape);
	struct config tuned;

	return tuned_find(properties->name, kernels->tuned, &class, &tuned)
		? flash_config_adopt(kernels, problem, properties, &tuned)
		: flash_config_default(kernels, problem, properties);
}

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

/* Working memory: statistics of all queries, for the gradient, then cu_seqlens. */
static int lay_out(struct gpu *gpu, struct gpu_workspace *workspace, const struct flash_kernels *kernels,
	const struct flash_problem *problem, struct flash_arguments *arguments, struct error *err)
{
	size_t queries = (size_t)(problem->batch * problem->heads * problem->tokens);
	size_t statistics = kernels->gradient ? queries * sizeof(*arguments->statistics) : 0;
	size_t sequences = problem->cu_seqlens ? ((size_t)problem->sequences + 1) * sizeof(int32_t) : 0;
	void *behind;

	if (gpu_workspace_reserve(gpu, workspace, statistics + sequences, err) < 0)
		return -1;
	arguments->statistics = workspace->memory;
	if (!sequences)
		return 0;
	behind = (char *)workspace->memory + statistics;
	arguments->cu_seqlens = behind;
	return gpu_upload(gpu, behind, problem->cu_seqlens, sequences, err);
}

static int run(struct gpu *gpu, struct gpu_workspace *workspace, const struct flash_kernels *kernels,
	const struct flash_problem *problem, const struct config *config, struct error *err)
{
	const struct gpu_properties *properties = gpu_properties_of(gpu);
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
	struct config usual;
	int count;

	if (check_problem(kernels, problem, err) < 0)
		return -1;
	if (!config) {
		usual = choose(kernels, problem, properties);
		config = &usual;
	}
	if (flash_config_check(kernels, problem, properties, config, err) < 0)
		return -1;
	arguments.sequences = (int)flash_sequences(problem);
	count = flash_launches(kernels, problem, config, launches);
	for (int i = 0; i < count; i++) {
		built[i] = gpu_kernel(gpu, launches[i].source, launches[i].name, launches[i].parameters,
			launches[i].threads, launches[i].shared_bytes, err);
		if (!built[i])
			return -1;
	}
	if (lay_out(gpu, workspace, kernels, problem, &arguments, err) < 0)
		return -1;
	for (int i = 0; i < count; i++)
		if (gpu_launch(built[i], (unsigned)launches[i].blocks, 1, &arguments, err) < 0)
			return -1;
	return 0;
}

int flash_cuda(struct gpu *gpu, struct gpu_workspace *workspace, const struct flash_problem *problem,
	const struct config *config, struct error *err)
{
	return run(gpu, workspace, &flash_forward_kernels, problem, config, err);
}

int flash_cuda_gradient(struct gpu *gpu, struct gpu_workspace *workspace, const struct flash_problem *problem,
	const struct config *config, struct error *err)
{
	return run(gpu, workspace, &flash_backward_kernels, problem, config, err);
}
