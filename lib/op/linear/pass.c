#include "op/linear/pass.h"

const int linear_gradient_order[] = LINEAR_GRADIENT_ORDER;

struct linear_pass linear_forward_pass(const struct linear_problem *problem)
{
	return (struct linear_pass){
		.kind = PASS_FORWARD,
		.causal = problem->mask == LINEAR_CAUSAL,
		.normalised = problem->normalised,
		.feature = problem->feature,
		.batch = problem->batch,
		.tokens = problem->tokens,
		.heads = problem->heads,
		.key_dim = problem->key_dim,
		.value_dim = problem->value_dim,
		.x = problem->q,
		.y = problem->k,
		.w = problem->v,
		.out = problem->o,
		.divisor = problem->divisor,
		.row_step = 1,
		.initial_state = problem->initial_state,
		.initial_sum = problem->initial_sum,
		.final_state = problem->final_state,
		.final_sum = problem->final_sum,
	};
}

struct linear_pass linear_sum_pass(const struct linear_pass *pass)
{
	struct linear_pass sum = *pass;

	sum.kind = LINEAR_SUM_PASS(pass->kind);
	if (sum.kind == pass->kind)
		return sum;
	sum.key_dim = pass->value_dim;
	sum.value_dim = pass->key_dim;
	sum.y = pass->w;
	sum.w = pass->y;
	sum.at = pass->x;
	return sum;
}

static struct tensor from_its_end(const struct tensor *tensor, int64_t tokens)
{
	struct tensor reversed = *tensor;

	if (tensor->data) /* a problem without memory asks how it would be computed */
		reversed.data = (char *)tensor->data +
			(tokens - 1) * tensor->stride[1] * (int64_t)dtype_size(tensor->dtype);
	reversed.stride[1] = -tensor->stride[1];
	return reversed;
}

static void reverse(struct linear_pass *pass)
{
	struct tensor *tensors[] = {&pass->x, &pass->y, &pass->w, &pass->out, &pass->at, &pass->o};

	for (size_t i = 0; i < sizeof(tensors) / sizeof(*tensors); i++)
		*tensors[i] = from_its_end(tensors[i], pass->tokens);
	if (pass->scales) { /* as above */
		pass->divisor += pass->tokens - 1;
		pass->scales += pass->tokens - 1;
		pass->offsets += pass->tokens - 1;
	}
	pass->row_step = -1;
}

struct linear_pass linear_gradient_pass(
	const struct linear_gradient *gradient, int kind, float *scales, float *offsets)
{
	const struct linear_problem *problem = &gradient->problem;
	struct linear_pass pass = linear_forward_pass(problem);

	pass.kind = kind;
	pass.scales = scales;
	pass.offsets = offsets;
	pass.final_state = pass.final_sum = NULL;
	if (kind != PASS_DV) {
		pass.key_dim = problem->value_dim;
		pass.value_dim = problem->key_dim;
	}
	if (kind == PASS_DQ) {
		pass.x = gradient->d_o;
		pass.y = problem->v;
		pass.w = problem->k;
		pass.out = gradient->d_q;
		pass.at = problem->q;
		return pass;
	}
	/* the other two start from the gradients of the final sums, and end with those of the initial ones */
	pass.initial_state = gradient->d_final_state;
	pass.initial_sum = kind == PASS_DK ? gradient->d_final_sum : NULL;
	if (kind == PASS_DK) {
		pass.x = problem->v;
		pass.y = gradient->d_o;
		pass.w = problem->q;
		pass.out = gradient->d_k;
		pass.at = problem->k;
		pass.o = problem->o;
		pass.final_state = gradient->d_initial_state;
		pass.final_sum = gradient->d_initial_sum;
	} else {
		pass.x = problem->k;
		pass.y = problem->q;
		pass.w = gradient->d_o;
		pass.out = gradient->d_v;
	}
	if (pass.causal)
		reverse(&pass);
	return pass;
}
