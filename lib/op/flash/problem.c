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

struct checked {
	const struct tensor *tensor;
	const char *name;
	bool of_keys; /* has the heads of the keys */
};

static void size_of(const struct flash_problem *problem, const struct checked *checked, int64_t size[4])
{
	size[0] = problem->batch;
	size[1] = problem->tokens;
	size[2] = checked->of_keys ? problem->key_heads : problem->heads;
	size[3] = problem->dim;
}

/* The first `inputs` of them are inputs. */
static int check_tensors(const struct flash_problem *problem, const struct checked *tensors, int inputs,
	int count, struct error *err)
{
	for (int i = 0; i < count; i++) {
		int64_t size[4], other[4];

		size_of(problem, &tensors[i], size);
		if (i < inputs) {
			if (tensor_check(tensors[i].tensor, tensors[i].name, size, err) < 0)
				return -1;
			continue;
		}
		if (tensor_check_output(tensors[i].tensor, tensors[i].name, size, err) < 0)
			return -1;
		for (int n = 0; n < i; n++) {
			size_of(problem, &tensors[n], other);
			if (tensor_overlap(tensors[n].tensor, other, tensors[i].tensor, size))
				return error_set(err, STATUS_USAGE, "tensor %s overlaps tensor %s",
					tensors[i].name, tensors[n].name);
		}
	}
	return 0;
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
	const struct checked tensors[] = {{&problem->q, "q", false}, {&problem->k, "k", true},
		{&problem->v, "v", true}, {&problem->o, "o", false}};

	return flash_check_shape(problem, err) < 0 || check_packed(problem, err) < 0
		? -1
		: check_tensors(problem, tensors, 3, 4, err);
}

int flash_check_gradient(const struct flash_problem *problem, struct error *err)
{
	const struct checked tensors[] = {{&problem->q, "q", false}, {&problem->k, "k", true},
		{&problem->v, "v", true}, {&problem->o, "o", false}, {&problem->d_o, "do", false},
		{&problem->dq, "dq", false}, {&problem->dk, "dk", true}, {&problem->dv, "dv", true}};

	if (flash_check_shape(problem, err) < 0 || check_packed(problem, err) < 0)
		return -1;
	if (!problem->lse)
		return error_set(err, STATUS_USAGE, "lse has no memory");
	return check_tensors(problem, tensors, 5, 8, err);
}
