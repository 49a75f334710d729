/* Attention and its gradient as entries of the table of families. */
#include <math.h>

#include "op/family.h"
#include "op/flash/config.h"
#include "op/flash/cuda.h"
#include "op/flash/ladder.h"
#include "op/flash/problem.h"

/* Of the operation; its gradient has others behind V. */
enum { Q, K, V, O, LSE };

static const struct family_tensor tensors[] = {
	[Q] = {"q", "BTHK", TENSOR_INPUT, {DISTRIBUTION_NORMAL, .deviation = 1}},
	[K] = {"k", "BTGK", TENSOR_INPUT, {DISTRIBUTION_NORMAL, .deviation = 1}},
	[V] = {"v", "BTGV", TENSOR_INPUT, {DISTRIBUTION_NORMAL, .deviation = 1}},
	[O] = {"o", "BTHV", TENSOR_OUTPUT, {0}},
	[LSE] = {"lse", "BHT", TENSOR_FINAL, {0}},
	{0},
};

enum { SAVED_O = V + 1, D_O, DQ, DK, DV, SAVED_LSE };

static const struct family_tensor gradient_tensors[] = {
	[Q] = {"q", "BTHK", TENSOR_INPUT, {DISTRIBUTION_NORMAL, .deviation = 1}},
	[K] = {"k", "BTGK", TENSOR_INPUT, {DISTRIBUTION_NORMAL, .deviation = 1}},
	[V] = {"v", "BTGV", TENSOR_INPUT, {DISTRIBUTION_NORMAL, .deviation = 1}},
	[SAVED_O] = {"o", "BTHV", TENSOR_SAVED, {0}},
	[D_O] = {"do", "BTHV", TENSOR_INPUT, {DISTRIBUTION_NORMAL, .deviation = 1}},
	[DQ] = {"dq", "BTHK", TENSOR_OUTPUT, {0}},
	[DK] = {"dk", "BTGK", TENSOR_OUTPUT, {0}},
	[DV] = {"dv", "BTGV", TENSOR_OUTPUT, {0}},
	[SAVED_LSE] = {"lse", "BHT", TENSOR_SAVED, {0}},
	{0},
};

enum { CAUSAL, BIDIRECTIONAL, PACKED_CAUSAL, PACKED_BIDIRECTIONAL };

static const struct family_option options[] = {
	{{"causal", "bidirectional", "packed", "packed-bidirectional"}}, {{0}}};

#define PACKED (1u << PACKED_CAUSAL | 1u << PACKED_BIDIRECTIONAL)

/* The part of a problem that the operation and its gradient have in common. */
static struct flash_problem common(const struct op_problem *problem)
{
	const struct op_shape *shape = &problem->shape;

	return (struct flash_problem){
		.causal = problem->options[0] == CAUSAL || problem->options[0] == PACKED_CAUSAL,
		.scale = 1 / sqrtf((float)shape->key_dim),
		.batch = shape->batch,
		.tokens = shape->tokens,
		.heads = shape->heads,
		.key_heads = shape->key_heads ? shape->key_heads : shape->heads,
		.dim = shape->key_dim,
		.q = problem->tensors[Q],
		.k = problem->tensors[K],
		.v = problem->tensors[V],
		.cu_seqlens = problem->cu_seqlens,
		.sequences = (int)shape->sequences,
	};
}

static struct flash_problem operation_of(const struct op_problem *problem)
{
	struct flash_problem flash = common(problem);

	flash.o = problem->tensors[O];
	flash.lse = problem->tensors[LSE].data;
	return flash;
}

struct flash_problem flash_gradient_problem(const struct op_problem *problem)
{
	struct flash_problem flash = common(problem);

	flash.o = problem->tensors[SAVED_O];
	flash.lse = problem->tensors[SAVED_LSE].data;
	flash.d_o = problem->tensors[D_O];
	flash.dq = problem->tensors[DQ];
	flash.dk = problem->tensors[DK];
	flash.dv = problem->tensors[DV];
	return flash;
}

static int check_options(const struct op_problem *problem, struct error *err)
{
	if ((PACKED >> problem->options[0] & 1) != (problem->shape.sequences > 0))
		return error_set(err, STATUS_USAGE, "%lld packed sequences, %s semantics",
			(long long)problem->shape.sequences, options[0].values[problem->options[0]]);
	if (problem->shape.key_dim == problem->shape.value_dim)
		return 0;
	return error_set(err, STATUS_USAGE, "keys of dimension %d and values of %d: they have to be the same",
		problem->shape.key_dim, problem->shape.value_dim);
}

/* --- the operation ---------------------------------------------------------------------------------- */

static int check(const struct op_problem *problem, struct error *err)
{
	const struct flash_problem flash = operation_of(problem);

	return check_options(problem, err) < 0 ? -1 : flash_check(&flash, err);
}

static int reference(
	const struct op_problem *problem, double *const results[FAMILY_TENSORS], struct error *err)
{
	const struct flash_problem flash = operation_of(problem);

	return check_options(problem, err) < 0 ? -1 : flash_reference(&flash, results[O], results[LSE], err);
}

static int cpu(const struct op_problem *problem, struct error *err)
{
	const struct flash_problem flash = operation_of(problem);

	return check_options(problem, err) < 0 ? -1 : flash_cpu(&flash, err);
}

static int cuda(struct gpu *gpu, struct gpu_workspace *workspace, const struct op_problem *problem,
	const struct config *config, struct error *err)
{
	const struct flash_problem flash = operation_of(problem);

	return check_options(problem, err) < 0 ? -1 : flash_cuda(gpu, workspace, &flash, config, err);
}

static int config_check(const struct op_problem *problem, const struct gpu_properties *properties,
	const struct config *config, struct error *err)
{
	const struct flash_problem flash = operation_of(problem);

	return check_options(problem, err) < 0
		? -1
		: flash_config_check(&flash_forward_kernels, &flash, properties, config, err);
}

static struct config config_usual(const struct op_problem *problem, const struct gpu_properties *properties)
{
	const struct flash_problem flash = operation_of(problem);

	return flash_config_default(&flash_forward_kernels, &flash, properties);
}

static struct config config_adopt(
	const struct op_problem *problem, const struct gpu_properties *properties, const struct config *tuned)
{
	const struct flash_problem flash = operation_of(problem);

	return flash_config_adopt(&flash_forward_kernels, &flash, properties, tuned);
}

static int config_launches(const struct op_problem *problem, const struct config *config,
	struct config_launch launches[CONFIG_LAUNCHES])
{
	const struct flash_problem flash = operation_of(problem);

	return flash_launches(&flash_forward_kernels, &flash, config, launches);
}

static const struct family_configs configs = {
	FLASH_FORWARD,
	.parameters = flash_parameters,
	.check = config_check,
	.usual = config_usual,
	.adopt = config_adopt,
	.launches = config_launches,
};

/* Products of two matrices that a pair of a query and a key takes part in, over all heads. */
static double products(const struct flash_problem *flash, int count)
{
	return 2.0 * count * flash->dim * flash_pairs(flash) * flash->heads;
}

/* Q Kᵀ and P V */
static double operations(const struct op_problem *problem)
{
	const struct flash_problem flash = common(problem);

	return products(&flash, 2);
}

/* --- the gradient ----------------------------------------------------------------------------------- */

static int check_gradient(const struct op_problem *problem, struct error *err)
{
	const struct flash_problem flash = flash_gradient_problem(problem);

	return check_options(problem, err) < 0 ? -1 : flash_check_gradient(&flash, err);
}

static int reference_gradient(
	const struct op_problem *problem, double *const results[FAMILY_TENSORS], struct error *err)
{
	const struct flash_problem flash = flash_gradient_problem(problem);

	return check_options(problem, err) < 0
		? -1
		: flash_reference_gradient(&flash, results[DQ], results[DK], results[DV], err);
}

static int cpu_gradient(const struct op_problem *problem, struct error *err)
{
	const struct flash_problem flash = flash_gradient_problem(problem);

	return check_options(problem, err) < 0 ? -1 : flash_cpu_gradient(&flash, err);
}

static int cuda_gradient(struct gpu *gpu, struct gpu_workspace *workspace, const struct op_problem *problem,
	const struct config *config, struct error *err)
{
	const struct flash_problem flash = flash_gradient_problem(problem);

	return check_options(problem, err) < 0 ? -1
					       : flash_cuda_gradient(gpu, workspace, &flash, config, err);
}

static int gradient_config_check(const struct op_problem *problem, const struct gpu_properties *properties,
	const struct config *config, struct error *err)
{
	const struct flash_problem flash = flash_gradient_problem(problem);

	return check_options(problem, err) < 0
		? -1
		: flash_config_check(&flash_backward_kernels, &flash, properties, config, err);
}

static struct config gradient_config_usual(
	const struct op_problem *problem, const struct gpu_properties *properties)
{
	const struct flash_problem flash = flash_gradient_problem(problem);

	return flash_config_default(&flash_backward_kernels, &flash, properties);
}

static struct config gradient_config_adopt(
	const struct op_problem *problem, const struct gpu_properties *properties, const struct config *tuned)
{
	const struct flash_problem flash = flash_gradient_problem(problem);

	return flash_config_adopt(&flash_backward_kernels, &flash, properties, tuned);
}

static int gradient_config_launches(const struct op_problem *problem, const struct config *config,
	struct config_launch launches[CONFIG_LAUNCHES])
{
	const struct flash_problem flash = flash_gradient_problem(problem);

	return flash_launches(&flash_backward_kernels, &flash, config, launches);
}

static const struct family_configs gradient_configs = {
	FLASH_BACKWARD,
	.parameters = flash_parameters,
	.check = gradient_config_check,
	.usual = gradient_config_usual,
	.adopt = gradient_config_adopt,
	.launches = gradient_config_launches,
};

/* Q Kᵀ, dO Vᵀ, dS K, dSᵀ Q and Pᵀ dO; without atomics the first two are made in both passes, which is no more than at
 * least is needed. */
static double operations_gradient(const struct op_problem *problem)
{
	const struct flash_problem flash = common(problem);

	return products(&flash, 5);
}

const struct family family_flash = {
	.name = "flash",
	.title = "FlashAttention-2",
	.tensors = tensors,
	.options = options,
	.configs = &configs,
	.check = check,
	.reference = reference,
	.cpu = cpu,
	.cuda = cuda,
	.operations = operations,
	.least_cosine = 0.9999,
	.packed = PACKED,
};

const struct family family_flash_backward = {
	.name = "flash-backward",
	.title = "FlashAttention-2's gradient",
	.tensors = gradient_tensors,
	.options = options,
	.configs = &gradient_configs,
	.gradient_of = &family_flash,
	.check = check_gradient,
	.reference = reference_gradient,
	.cpu = cpu_gradient,
	.cuda = cuda_gradient,
	.operations = operations_gradient,
	.least_cosine = 0.9999,
	.packed = PACKED,
};
