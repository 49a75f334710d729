#include "op/linear/problem.h"

static int check_dim(int dim, const char *what, struct error *err)
{
	if (dim == 32 || dim == 64 || dim == 128)
		return 0;
	return error_set(
		err, STATUS_USAGE, "%s dimension %d is not supported: 32, 64 and 128 are", what, dim);
}

/* The sizes of q and k, and of v and o. */
struct sizes {
	int64_t keys[4], values[4];
};

static struct sizes sizes_of(const struct linear_problem *problem)
{
	return (struct sizes){{problem->batch, problem->tokens, problem->heads, problem->key_dim},
		{problem->batch, problem->tokens, problem->heads, problem->value_dim}};
}

int linear_check_shape(const struct linear_problem *problem, struct error *err)
{
	if (problem->mask != LINEAR_BIDIRECTIONAL && problem->mask != LINEAR_CAUSAL)
		return error_set(err, STATUS_USAGE, "unknown mask %d", (int)problem->mask);
	if ((unsigned)problem->feature > LINEAR_IDENTITY)
		return error_set(err, STATUS_USAGE, "unknown feature map %d", (int)problem->feature);
	if (check_dim(problem->key_dim, "key", err) < 0 || check_dim(problem->value_dim, "value", err) < 0)
		return -1;
	if (problem->batch < 1 || problem->tokens < 1 || problem->heads < 1)
		return error_set(err, STATUS_USAGE, "batch, tokens and heads must be positive");
	if (problem->batch > TENSOR_LARGEST / problem->tokens / problem->heads / 128)
		return error_set(err, STATUS_USAGE, "the tensors are too large");
	if (problem->normalised && !problem->initial_state != !problem->initial_sum)
		return error_set(
			err, STATUS_USAGE, "normalised sums start from a state and a sum, or from neither");
	return 0;
}

int linear_check(const struct linear_problem *problem, struct error *err)
{
	const struct sizes sizes = sizes_of(problem);
	const struct named_tensor tensors[] = {{&problem->q, "q", sizes.keys}, {&problem->k, "k", sizes.keys},
		{&problem->v, "v", sizes.values}, {&problem->o, "o", sizes.values}};

	return linear_check_shape(problem, err) < 0 ? -1 : tensors_check(tensors, 3, 4, err);
}

int linear_gradient_check(const struct linear_gradient *gradient, struct error *err)
{
	const struct linear_problem *problem = &gradient->problem;
	const struct sizes sizes = sizes_of(problem);
	const struct named_tensor tensors[] = {{&problem->q, "q", sizes.keys}, {&problem->k, "k", sizes.keys},
		{&problem->v, "v", sizes.values}, {&problem->o, "o", sizes.values},
		{&gradient->d_o, "do", sizes.values}, {&gradient->d_q, "dq", sizes.keys},
		{&gradient->d_k, "dk", sizes.keys}, {&gradient->d_v, "dv", sizes.values}};

	if (linear_check_shape(problem, err) < 0)
		return -1;
	if (!problem->divisor)
		return error_set(err, STATUS_USAGE, "a gradient needs the divisors that the operation kept");
	return tensors_check(tensors, 5, 8, err);
}
