#include "op/linear/cuda.h"

#include <limits.h>

#include "kernels/linear/arguments.h"
#include "op/launch.h"
#include "op/linear/config.h"

/* Of one type, and not so many that the kernels could not count them. */
static int check_tensors(const struct linear_problem *problem, const struct tensor *const *tensors, int count,
	struct error *err)
{
	for (int i = 1; i < count; i++)
		if (tensors[i]->dtype != tensors[0]->dtype) {
			error_set(err, STATUS_USAGE, "the tensors are not of one type");
			return error_hint(err, "The GPU takes all in bf16, all in fp16 or all in fp32.");
		}
	if (problem->batch * problem->heads > INT_MAX / 4096 || problem->tokens > INT_MAX / 2) {
		error_set(err, STATUS_USAGE,
			"%lld tokens of %d heads in a batch of %lld are too many for one call",
			(long long)problem->tokens, problem->heads, (long long)problem->batch);
		return error_hint(err, "Split the batch, or the sequence by its states.");
	}
	return 0;
}

static size_t record_bytes(const struct linear_pass *pass, const struct config *config)
{
	return (size_t)(pass->batch * pass->heads) * (size_t)config->value[LINEAR_GROUPS] *
		LINEAR_RECORD((size_t)pass->key_dim, (size_t)pass->value_dim, pass->kind) * sizeof(float);
}

/* A pass that is ready to be launched. */
struct prepared {
	struct linear_pass pass;
	struct config_launch launches[LINEAR_PASS_LAUNCHES];
	struct gpu_kernel *kernels[LINEAR_PASS_LAUNCHES];
	int count;
};

static int prepare(struct gpu *gpu, const struct linear_pass *pass, const struct config *config,
	struct prepared *prepared, struct error *err)
{
	prepared->pass = *pass;
	if (linear_config_check(pass, 1, gpu_properties_of(gpu), config, err) < 0)
		return -1;
	prepared->count = linear_launches(pass, config, prepared->launches);
	return launches_build(gpu, prepared->launches, prepared->count, prepared->kernels, err);
}

static struct linear_arguments arguments_of(
	const struct linear_pass *pass, const struct config *config, void *records)
{
	return (struct linear_arguments){
		.x = device_tensor(&pass->x),
		.y = device_tensor(&pass->y),
		.w = device_tensor(&pass->w),
		.out = device_tensor(&pass->out),
		.at = device_tensor(&pass->at),
		.o = device_tensor(&pass->o),
		.divisors = pass->divisor,
		.scales = pass->scales,
		.offsets = pass->offsets,
		.row_step = pass->row_step,
		.initial_state = pass->initial_state,
		.initial_sum = pass->initial_sum,
		.final_state = pass->final_state,
		.final_sum = pass->final_sum,
		.records = records,
		.tokens = pass->tokens,
		.batch = (int)pass->batch,
		.heads = pass->heads,
		.groups = config->value[LINEAR_GROUPS],
		.chunks_per_group = linear_chunks_per_group(pass, config),
	};
}

static int launch(
	const struct prepared *prepared, const struct config *config, void *records, struct error *err)
{
	const struct linear_pass sum_pass = linear_sum_pass(&prepared->pass);
	const struct linear_arguments sum = arguments_of(&sum_pass, config, records),
				      output = arguments_of(&prepared->pass, config, records);

	const int sums = prepared->count - 1; /* the last one makes the outputs */

	return launches_queue(prepared->kernels, prepared->launches, sums, &sum, err) < 0
		? -1
		: launches_queue(prepared->kernels + sums, prepared->launches + sums, 1, &output, err);
}

int linear_cuda(struct gpu *gpu, struct gpu_workspace *workspace, const struct linear_problem *problem,
	const struct config *config, struct error *err)
{
	const struct tensor *const tensors[] = {&problem->q, &problem->k, &problem->v, &problem->o};
	struct linear_pass pass = linear_forward_pass(problem);
	struct prepared prepared;

	if (linear_check(problem, err) < 0 || check_tensors(problem, tensors, 4, err) < 0 ||
		prepare(gpu, &pass, config, &prepared, err) < 0 ||
		gpu_workspace_reserve(gpu, workspace, record_bytes(&pass, config), err) < 0)
		return -1;
	return launch(&prepared, config, workspace->memory, err);
}

int linear_gradient_cuda(struct gpu *gpu, struct gpu_workspace *workspace,
	const struct linear_gradient *gradient, const struct config *config, struct error *err)
{
	const struct linear_problem *problem = &gradient->problem;
	const struct tensor *const tensors[] = {&problem->q, &problem->k, &problem->v, &problem->o,
		&gradient->d_o, &gradient->d_q, &gradient->d_k, &gradient->d_v};
	size_t rows = (size_t)(problem->batch * problem->tokens * problem->heads), records = 0;
	struct prepared prepared[LINEAR_GRADIENT_PASSES];
	float *scales;

	if (linear_gradient_check(gradient, err) < 0 || check_tensors(problem, tensors, 8, err) < 0)
		return -1;
	for (int i = 0; i < LINEAR_GRADIENT_PASSES; i++) {
		struct linear_pass pass = linear_gradient_pass(
			gradient, linear_gradient_order[i], NULL, NULL);

		records = record_bytes(&pass, config); /* of all alike */
		if (prepare(gpu, &pass, config, &prepared[i], err) < 0)
			return -1;
	}
	if (gpu_workspace_reserve(gpu, workspace, records + 2 * rows * sizeof(*scales), err) < 0)
		return -1;
	scales = (float *)((char *)workspace->memory + records);
	for (int i = 0; i < LINEAR_GRADIENT_PASSES; i++) {
		prepared[i].pass = linear_gradient_pass(
			gradient, linear_gradient_order[i], scales, scales + rows);
		if (launch(&prepared[i], config, workspace->memory, err) < 0)
			return -1;
	}
	return 0;
}
