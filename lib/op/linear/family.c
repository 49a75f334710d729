/* Linear attention and its gradient as entries of the table of families. */
#include "op/family.h"
#include "op/linear/config.h"
#include "op/linear/cuda.h"
#include "op/linear/problem.h"

extern const struct family family_linear;

/* Both have these tensors at these places. */
enum { Q, K, V, O };

enum { DIVISOR = O + 1, INITIAL_STATE, INITIAL_SUM, FINAL_STATE, FINAL_SUM };

#define NORMAL(number)                                                                                       \
	{                                                                                                    \
		DISTRIBUTION_NORMAL, .deviation = number                                                     \
	}
/* of features that are not negative; else what is divided by may cancel */
#define POSITIVE                                                                                             \
	{                                                                                                    \
		DISTRIBUTION_UNIFORM, .low = 0.5f, .high = 1.5f                                              \
	}

static const struct family_tensor tensors[] = {
	[Q] = {"q", "BTHK", TENSOR_INPUT, NORMAL(1)},
	[K] = {"k", "BTHK", TENSOR_INPUT, NORMAL(1)},
	[V] = {"v", "BTHV", TENSOR_INPUT, NORMAL(1)},
	[O] = {"o", "BTHV", TENSOR_OUTPUT, {0}},
	[DIVISOR] = {"divisor", "BHT", TENSOR_FINAL, {0}},
	[INITIAL_STATE] = {"initial_state", "BHKV", TENSOR_INITIAL, NORMAL(0.5f)},
	[INITIAL_SUM] = {"initial_sum", "BHK", TENSOR_INITIAL, POSITIVE},
	[FINAL_STATE] = {"final_state", "BHKV", TENSOR_FINAL, {0}},
	[FINAL_SUM] = {"final_sum", "BHK", TENSOR_FINAL, {0}},
	{0},
};

enum { MASK, FEATURE, NORMALISED };

static const struct family_option options[] = {
	[MASK] = {{"bidirectional", "causal"}},                             /* enum linear_mask */
	[FEATURE] = {{"elu+1", "relu", "squared-relu", "exp", "identity"}}, /* enum linear_feature */
	[NORMALISED] = {{"normalised", "unnormalised"}},
	{{0}},
};

/* What an operation and its gradient have in common. */
static struct linear_problem common(const struct op_problem *problem)
{
	const struct tensor *at = problem->tensors;

	return (struct linear_problem){
		.mask = (enum linear_mask)problem->options[MASK],
		.feature = (enum linear_feature)problem->options[FEATURE],
		.normalised = problem->options[NORMALISED] == 0,
		.batch = problem->shape.batch,
		.tokens = problem->shape.tokens,
		.heads = problem->shape.heads,
		.key_dim = problem->shape.key_dim,
		.value_dim = problem->shape.value_dim,
		.q = at[Q],
		.k = at[K],
		.v = at[V],
		.o = at[O],
	};
}

static struct linear_problem linear_of(const struct op_problem *problem)
{
	const struct tensor *at = problem->tensors;
	struct linear_problem linear = common(problem);

	linear.divisor = at[DIVISOR].data;
	linear.initial_state = at[INITIAL_STATE].data;
	linear.initial_sum = at[INITIAL_SUM].data;
	linear.final_state = at[FINAL_STATE].data;
	linear.final_sum = at[FINAL_SUM].data;
	return linear;
}

static int check(const struct op_problem *problem, struct error *err)
{
	struct linear_problem linear = linear_of(problem);

	return linear_check(&linear, err);
}

static int reference(
	const struct op_problem *problem, double *const results[FAMILY_TENSORS], struct error *err)
{
	struct linear_problem linear = linear_of(problem);

	return linear_reference(
		&linear, results[O], results[FINAL_STATE], results[FINAL_SUM], results[DIVISOR], err);
}

static int cpu(const struct op_problem *problem, struct error *err)
{
	struct linear_problem linear = linear_of(problem);

	return linear_cpu(&linear, err);
}

/* Of one pass: a token and head has two products with the state, and, causal, two with the rows of its chunk, half of
 * which are masked. */
static double pass_operations(const struct op_problem *problem)
{
	const struct op_shape *shape = &problem->shape;
	double rows = (double)shape->batch * (double)shape->tokens * shape->heads;
	double chunk = problem->options[MASK] == LINEAR_CAUSAL
		? LINEAR_CHUNK / 2.0 * (shape->key_dim + shape->value_dim)
		: 0;

	return 2 * (2.0 * shape->key_dim * shape->value_dim + chunk) * rows;
}

/* --- configurations --------------------------------------------------------------------------------- */

enum { PASSES = LINEAR_GRADIENT_PASSES }; /* at most */

/* Of a problem and its gradient's; returns how many. */
typedef int passes_function(const struct op_problem *problem, struct linear_pass passes[PASSES]);

static int forward_passes(const struct op_problem *problem, struct linear_pass passes[PASSES])
{
	const struct linear_problem linear = linear_of(problem);

	passes[0] = linear_forward_pass(&linear);
	return 1;
}

static int config_check(passes_function *passes_of, const struct op_problem *problem,
	const struct gpu_properties *properties, const struct config *config, struct error *err)
{
	const struct linear_problem linear = common(problem);
	struct linear_pass passes[PASSES];
	int count = passes_of(problem, passes);

	return linear_check_shape(&linear, err) < 0
		? -1
		: linear_config_check(passes, count, properties, config, err);
}

static int forward_config_check(const struct op_problem *problem, const struct gpu_properties *properties,
	const struct config *config, struct error *err)
{
	return config_check(forward_passes, problem, properties, config, err);
}

static struct config forward_config_usual(
	const struct op_problem *problem, const struct gpu_properties *properties)
{
	struct linear_pass passes[PASSES];
	int count = forward_passes(problem, passes);

	return linear_config_default(passes, count, properties);
}

/* The groups of a configuration that was tuned for this class of lengths, fitted to this one. */
static struct config adopt(passes_function *passes_of, const struct op_problem *problem,
	const struct gpu_properties *properties, const struct config *tuned)
{
	struct linear_pass passes[PASSES];
	int count = passes_of(problem, passes);
	struct config config = linear_config_fit(&passes[0], tuned);
	struct error none;

	return linear_config_check(passes, count, properties, &config, &none) == 0
		? config
		: linear_config_default(passes, count, properties);
}

static struct config forward_config_adopt(
	const struct op_problem *problem, const struct gpu_properties *properties, const struct config *tuned)
{
	return adopt(forward_passes, problem, properties, tuned);
}

/* Of GROUPS, the only parameter without a table. */
static void config_values(const struct op_problem *problem, const struct gpu_properties *properties,
	const struct config *config, int parameter, int values[CONFIG_VALUES])
{
	struct linear_pass passes[PASSES];

	(void)parameter;
	forward_passes(problem, passes);
	linear_groups_values(&passes[0], properties, config, values);
}

static int forward_config_launches(const struct op_problem *problem, const struct config *config,
	struct config_launch launches[CONFIG_LAUNCHES])
{
	struct linear_pass passes[PASSES];

	forward_passes(problem, passes);
	return linear_launches(&passes[0], config, launches);
}

static const struct family_configs configs = {
	.kernel = "linear_attention",
	.source = "linear/attention.cu",
	.parameters = linear_parameters,
	.check = forward_config_check,
	.usual = forward_config_usual,
	.adopt = forward_config_adopt,
	.values = config_values,
	.launches = forward_config_launches,
};

static int cuda(struct gpu *gpu, struct gpu_workspace *workspace, const struct op_problem *problem,
	const struct config *config, struct error *err)
{
	const struct linear_problem linear = linear_of(problem);

	return linear_cuda(gpu, workspace, &linear, config, err);
}

const struct family family_linear = {
	.name = "linear",
	.title = "linear attention",
	.tensors = tensors,
	.options = options,
	.configs = &configs,
	.check = check,
	.reference = reference,
	.cpu = cpu,
	.cuda = cuda,
	.operations = pass_operations,
	.least_cosine = 0.9999,
};

/* --- the gradient ------------------------------------------------------------------------------------ */

enum {
	D_O = O + 1,
	D_Q,
	D_K,
	D_V,
	SAVED_DIVISOR,
	START_STATE,
	START_SUM,
	D_FINAL_STATE,
	D_FINAL_SUM,
	D_INITIAL_STATE,
	D_INITIAL_SUM,
};

static const struct family_tensor gradient_tensors[] = {
	[Q] = {"q", "BTHK", TENSOR_INPUT, NORMAL(1)},
	[K] = {"k", "BTHK", TENSOR_INPUT, NORMAL(1)},
	[V] = {"v", "BTHV", TENSOR_INPUT, NORMAL(1)},
	[O] = {"o", "BTHV", TENSOR_SAVED, {0}},
	[D_O] = {"do", "BTHV", TENSOR_INPUT, NORMAL(1)},
	[D_Q] = {"dq", "BTHK", TENSOR_OUTPUT, {0}},
	[D_K] = {"dk", "BTHK", TENSOR_OUTPUT, {0}},
	[D_V] = {"dv", "BTHV", TENSOR_OUTPUT, {0}},
	[SAVED_DIVISOR] = {"divisor", "BHT", TENSOR_SAVED, {0}},
	[START_STATE] = {"initial_state", "BHKV", TENSOR_INITIAL, NORMAL(0.5f)},
	[START_SUM] = {"initial_sum", "BHK", TENSOR_INITIAL, POSITIVE},
	[D_FINAL_STATE] = {"dfinal_state", "BHKV", TENSOR_INITIAL, NORMAL(0.5f)},
	[D_FINAL_SUM] = {"dfinal_sum", "BHK", TENSOR_INITIAL, NORMAL(0.5f)},
	[D_INITIAL_STATE] = {"dinitial_state", "BHKV", TENSOR_FINAL, {0}},
	[D_INITIAL_SUM] = {"dinitial_sum", "BHK", TENSOR_FINAL, {0}},
	{0},
};

static struct linear_gradient gradient_of(const struct op_problem *problem)
{
	const struct tensor *at = problem->tensors;
	struct linear_gradient gradient = {
		.problem = common(problem),
		.d_o = at[D_O],
		.d_q = at[D_Q],
		.d_k = at[D_K],
		.d_v = at[D_V],
		.d_final_state = at[D_FINAL_STATE].data,
		.d_final_sum = at[D_FINAL_SUM].data,
		.d_initial_state = at[D_INITIAL_STATE].data,
		.d_initial_sum = at[D_INITIAL_SUM].data,
	};

	gradient.problem.divisor = at[SAVED_DIVISOR].data;
	gradient.problem.initial_state = at[START_STATE].data;
	gradient.problem.initial_sum = at[START_SUM].data;
	return gradient;
}

static int gradient_check(const struct op_problem *problem, struct error *err)
{
	const struct linear_gradient gradient = gradient_of(problem);

	return linear_gradient_check(&gradient, err);
}

static int gradient_reference(
	const struct op_problem *problem, double *const results[FAMILY_TENSORS], struct error *err)
{
	const struct linear_gradient gradient = gradient_of(problem);
	const struct linear_gradient_results wanted = {
		results[D_Q], results[D_K], results[D_V], results[D_INITIAL_STATE], results[D_INITIAL_SUM]};

	return linear_gradient_reference(&gradient, &wanted, err);
}

static int gradient_cpu(const struct op_problem *problem, struct error *err)
{
	const struct linear_gradient gradient = gradient_of(problem);

	return linear_gradient_cpu(&gradient, err);
}

static int gradient_passes(const struct op_problem *problem, struct linear_pass passes[PASSES])
{
	const struct linear_gradient gradient = gradient_of(problem);

	for (int i = 0; i < PASSES; i++)
		passes[i] = linear_gradient_pass(&gradient, linear_gradient_order[i], NULL, NULL);
	return PASSES;
}

static int gradient_config_check(const struct op_problem *problem, const struct gpu_properties *properties,
	const struct config *config, struct error *err)
{
	return config_check(gradient_passes, problem, properties, config, err);
}

static struct config gradient_config_usual(
	const struct op_problem *problem, const struct gpu_properties *properties)
{
	struct linear_pass passes[PASSES];
	int count = gradient_passes(problem, passes);

	return linear_config_default(passes, count, properties);
}

static struct config gradient_config_adopt(
	const struct op_problem *problem, const struct gpu_properties *properties, const struct config *tuned)
{
	return adopt(gradient_passes, problem, properties, tuned);
}

static int gradient_config_launches(const struct op_problem *problem, const struct config *config,
	struct config_launch launches[CONFIG_LAUNCHES])
{
	struct linear_pass passes[PASSES];
	int count = gradient_passes(problem, passes), launched = 0;

	for (int i = 0; i < count; i++)
		launched += linear_launches(&passes[i], config, launches + launched);
	return launched;
}

static const struct family_configs gradient_configs = {
	.kernel = "linear_attention_backward",
	.source = "linear/attention.cu",
	.parameters = linear_parameters,
	.check = gradient_config_check,
	.usual = gradient_config_usual,
	.adopt = gradient_config_adopt,
	.values = config_values,
	.launches = gradient_config_launches,
};

static int gradient_cuda(struct gpu *gpu, struct gpu_workspace *workspace, const struct op_problem *problem,
	const struct config *config, struct error *err)
{
	const struct linear_gradient gradient = gradient_of(problem);

	return linear_gradient_cuda(gpu, workspace, &gradient, config, err);
}

static double gradient_operations(const struct op_problem *problem)
{
	return PASSES * pass_operations(problem);
}

const struct family family_linear_backward = {
	.name = "linear-backward",
	.title = "the gradient of linear attention",
	.tensors = gradient_tensors,
	.options = options,
	.configs = &gradient_configs,
	.gradient_of = &family_linear,
	.check = gradient_check,
	.reference = gradient_reference,
	.cpu = gradient_cpu,
	.cuda = gradient_cuda,
	.operations = gradient_operations,
	.least_cosine = 0.9999,
};
