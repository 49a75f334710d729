/* Linear attention as an entry of the table of families. */
#include "op/family.h"
#include "op/linear/problem.h"

enum { Q, K, V, O, INITIAL_STATE, INITIAL_SUM, FINAL_STATE, FINAL_SUM };

static const struct family_tensor tensors[] = {
	[Q] = {"q", "BTHK", TENSOR_INPUT, {DISTRIBUTION_NORMAL, .deviation = 1}},
	[K] = {"k", "BTHK", TENSOR_INPUT, {DISTRIBUTION_NORMAL, .deviation = 1}},
	[V] = {"v", "BTHV", TENSOR_INPUT, {DISTRIBUTION_NORMAL, .deviation = 1}},
	[O] = {"o", "BTHV", TENSOR_OUTPUT, {0}},
	[INITIAL_STATE] = {"initial_state", "BHKV", TENSOR_INITIAL, {DISTRIBUTION_NORMAL, .deviation = 0.5f}},
	/* of features that are not negative; else what is divided by may cancel */
	[INITIAL_SUM] = {"initial_sum", "BHK", TENSOR_INITIAL,
		{DISTRIBUTION_UNIFORM, .low = 0.5f, .high = 1.5f}},
	[FINAL_STATE] = {"final_state", "BHKV", TENSOR_FINAL, {0}},
	[FINAL_SUM] = {"final_sum", "BHK", TENSOR_FINAL, {0}},
	{0},
};

enum { MASK, FEATURE, NORMALISED };

static const struct family_option options[] = {
	[MASK] = {{"bidirectional", "causal"}},                      /* enum linear_mask */
	[FEATURE] = {{"elu+1", "relu", "squared-relu", "identity"}}, /* enum linear_feature */
	[NORMALISED] = {{"normalised", "unnormalised"}},
	{{0}},
};

static struct linear_problem linear_of(const struct op_problem *problem)
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
		.initial_state = at[INITIAL_STATE].data,
		.initial_sum = at[INITIAL_SUM].data,
		.final_state = at[FINAL_STATE].data,
		.final_sum = at[FINAL_SUM].data,
	};
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

	return linear_reference(&linear, results[O], results[FINAL_STATE], results[FINAL_SUM], err);
}

static int cpu(const struct op_problem *problem, struct error *err)
{
	struct linear_problem linear = linear_of(problem);

	return linear_cpu(&linear, err);
}

/* A token and head: two products with the state, and, causal, two with the rows of its chunk of 64, half of
 * which are masked. */
static double operations(const struct op_problem *problem)
{
	const struct op_shape *shape = &problem->shape;
	double rows = (double)shape->batch * (double)shape->tokens * shape->heads;
	double chunk = problem->options[MASK] == LINEAR_CAUSAL
		? 64.0 / 2 * (shape->key_dim + shape->value_dim)
		: 0;

	return 2 * (2.0 * shape->key_dim * shape->value_dim + chunk) * rows;
}

const struct family family_linear = {
	.name = "linear",
	.title = "linear attention",
	.tensors = tensors,
	.options = options,
	.check = check,
	.reference = reference,
	.cpu = cpu,
	.operations = operations,
	.least_cosine = 0.9999,
};
