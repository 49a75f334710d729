#include "op/quasar_backward/problem.h"

#include <math.h>

int quasar_gradient_check(const struct quasar_gradient *gradient, struct error *err)
{
	const struct quasar_problem *problem = &gradient->problem;
	const int64_t size[4] = {problem->batch, problem->tokens, problem->heads, problem->dim};
	const struct named_tensor tensors[] = {{&problem->q, "q", size}, {&problem->k, "k", size},
		{&problem->v, "v", size}, {&gradient->d_o, "do", size}, {&gradient->d_q, "dq", size},
		{&gradient->d_k, "dk", size}, {&gradient->d_v, "dv", size}};

	if (quasar_check_shape(problem, err) < 0)
		return -1;
	if (problem->gated || problem->sequences || problem->first_row)
		return error_set(err, STATUS_USAGE,
			"there is no gradient of a gate, of packed sequences or of a stretch of a sequence");
	if (!problem->beta)
		return error_set(err, STATUS_USAGE, "beta has no memory");
	return tensors_check(tensors, 4, 7, err);
}

struct quasar_rows quasar_rows_at(const struct quasar_problem *problem, int head, int64_t row)
{
	struct quasar_source input = quasar_source(problem, head, row);

	if (input.token >= problem->tokens)
		input.token = -1;
	return (struct quasar_rows){input, {row < problem->tokens ? row : -1, head}};
}

struct quasar_alpha quasar_alpha(double lambda, double beta)
{
	double decay = exp(-beta * lambda), divisor = lambda + QUASAR_EPSILON;
	double alpha = -expm1(-beta * lambda) / divisor;

	return (struct quasar_alpha){alpha, (beta * decay - alpha) / divisor, lambda / divisor * decay};
}
