#include "op/flash/problem.h"

#include <math.h>

/* --- sequences ------------------------------------------------------------------------------------- */

int64_t flash_sequences(const struct flash_problem *problem)
{
	return problem->sequences ? problem->sequences : problem->batch;
}

struct flash_sequence flash_sequence(const struct flash_problem *problem, int64_t number)
{
	const int32_t *at = problem->cu_seqlens ? problem->cu_seqlens + number : NULL;
	int64_t first;

	if (!problem->sequences)
		return (struct flash_sequence){number, 0, problem->tokens};
	if (at)
		return (struct flash_sequence){0, at[0], at[1] - at[0]};
	first = problem->tokens * number / problem->sequences;
	return (struct flash_sequence){0, first, problem->tokens * (number + 1) / problem->sequences - first};
}

int64_t flash_longest(const struct flash_problem *problem)
{
	int64_t longest = 0;

	for (int64_t i = 0; i < flash_sequences(problem); i++) {
		int64_t tokens = flash_sequence(problem, i).tokens;

		longest = tokens > longest ? tokens : longest;
	}
	return longest;
}

double flash_pairs(const struct flash_problem *problem)
{
	double pairs = 0;

	for (int64_t i = 0; i < flash_sequences(problem); i++) {
		double tokens = (double)flash_sequence(problem, i).tokens;

		pairs += problem->causal ? tokens * (tokens + 1) / 2 : tokens * tokens;
	}
	return pairs;
}

/* --- what can be wrong ------------------------------------------------------------------------------ */

static int check_sequences(const struct flash_problem *problem, struct error *err)
{
	const int32_t *at = problem->cu_seqlens;

	if (!at)
		return 0;
	if (problem->batch != 1 || problem->sequences < 1)
		return error_set(err, STATUS_USAGE,
			"packed sequences need a batch of 1 and at least one sequence, not %lld and %d",
			(long long)problem->batch, problem->sequences);
	if (at[0] != 0 || at[problem->sequences] != problem->tokens)
		return error_set(err, STATUS_USAGE, "cu_seqlens goes from %d to %d, not from 0 to %lld",
			at[0], at[problem->sequences], (long long)problem->tokens);
	for (int i = 0; i < problem->sequences; i++)
		if (at[i] > at[i + 1])
			return error_set(
				err, STATUS_USAGE, "cu_seqlens descends from %d to %d", at[i], at[i + 1]);
	return 0;
}

int flash_check_shape(const struct flash_problem *problem, struct error *err)
{
	if (problem->dim != 32 && problem->dim != 64 && problem->dim != 128)
		return error_set(err, STATUS_USAGE, "head dimension %d is not supported: 32, 64 and 128 are",
			problem->dim);
	if (problem->batch < 1 || problem->tokens < 1 || problem->heads < 1 || problem->key_heads < 1)
		return error_set(err, STATUS_USAGE, "batch, tokens and heads must be positive");
	if (problem->heads % problem->key_heads)
		return error_set(err, STATUS_USAGE, "%d heads cannot share %d key heads evenly",
			problem->heads, problem->key_heads);
	if (problem->batch > TENSOR_LARGEST / problem->tokens / problem->heads / problem->dim)
		return error_set(err, STATUS_USAGE, "the tensors are too large");
	if (!(problem->scale > 0) || !isfinite(problem->scale))
		return error_set(
			err, STATUS_USAGE, "the scale must be positive, not %g", (double)problem->scale);
	return check_sequences(problem, err);
}

/* The sizes of q and o, and of k and v. */
struct sizes {
	int64_t queries[4], keys[4];
};

static struct sizes sizes_of(const struct flash_problem *problem)
{
	return (struct sizes){{problem->batch, problem->tokens, problem->heads, problem->dim},
		{problem->batch, problem->tokens, problem->key_heads, problem->dim}};
}

/* Those who compute have to know where the sequences are. */
static int check_packed(const struct flash_problem *problem, struct error *err)
{
	return problem->sequences && !problem->cu_seqlens
		? error_set(err, STATUS_USAGE, "cu_seqlens of %d packed sequences is missing",
			  problem->sequences)
		: 0;
}

int flash_check(const struct flash_problem *problem, struct error *err)
{
	const struct sizes sizes = sizes_of(problem);
	const struct named_tensor tensors[] = {{&problem->q, "q", sizes.queries},
		{&problem->k, "k", sizes.keys}, {&problem->v, "v", sizes.keys},
		{&problem->o, "o", sizes.queries}};

	return flash_check_shape(problem, err) < 0 || check_packed(problem, err) < 0
		? -1
		: tensors_check(tensors, 3, 4, err);
}

int flash_check_gradient(const struct flash_problem *problem, struct error *err)
{
	const struct sizes sizes = sizes_of(problem);
	const struct named_tensor tensors[] = {{&problem->q, "q", sizes.queries},
		{&problem->k, "k", sizes.keys}, {&problem->v, "v", sizes.keys},
		{&problem->o, "o", sizes.queries}, {&problem->d_o, "do", sizes.queries},
		{&problem->dq, "dq", sizes.queries}, {&problem->dk, "dk", sizes.keys},
		{&problem->dv, "dv", sizes.keys}};

	if (flash_check_shape(problem, err) < 0 || check_packed(problem, err) < 0)
		return -1;
	if (!problem->lse)
		return error_set(err, STATUS_USAGE, "lse has no memory");
	return tensors_check(tensors, 5, 8, err);
}
