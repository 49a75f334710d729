#include "op/linear/problem.h"

static int check_dim(int dim, const char *what, struct error *err)
{
	if (dim == 32 || dim == 64 || dim == 128)
		return 0;
	return error_set(
		err, STATUS_USAGE, "%s dimension %d is not supported: 32, 64 and 128 are", what, dim);
}

int linear_check(const struct linear_problem *problem, struct error *err)
{
	const struct tensor *inputs[] = {&problem->q, &problem->k, &problem->v};
	static const char *const names[] = {"q", "k", "v"};
	int64_t keys[4] = {problem->batch, problem->tokens, problem->heads, problem->key_dim};
	int64_t values[4] = {problem->batch, problem->tokens, problem->heads, problem->value_dim};

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
	if (tensor_check_output(&problem->o, "o", values, err) < 0)
		return -1;
	for (int i = 0; i < 3; i++) {
		const int64_t *size = i < 2 ? keys : values;

		if (tensor_check(inputs[i], names[i], size, err) < 0)
			return -1;
		if (tensor_overlap(inputs[i], size, &problem->o, values))
			return error_set(err, STATUS_USAGE, "tensor o overlaps tensor %s", names[i]);
	}
	return 0;
}
