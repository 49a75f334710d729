#include "op/quasar/problem.h"

#include <string.h>

static const char *const semantics_names[] = {"upstream", "causal"};

const char *semantics_name(enum semantics semantics)
{
	return semantics_names[semantics];
}

int semantics_parse(const char *text, enum semantics *semantics)
{
	for (int i = 0; i < 2; i++) {
		if (strcmp(text, semantics_names[i]))
			continue;
		*semantics = (enum semantics)i;
		return 0;
	}
	return -1;
}

int64_t upstream_padded(int64_t tokens)
{
	return (tokens + UPSTREAM_CHUNK - 1) / UPSTREAM_CHUNK * UPSTREAM_CHUNK;
}

int64_t quasar_rows(const struct quasar_problem *problem)
{
	return problem->semantics == SEMANTICS_CAUSAL ? problem->tokens : upstream_padded(problem->tokens);
}

struct quasar_source quasar_source(const struct quasar_problem *problem, int head, int64_t row)
{
	int64_t flat, token;

	if (problem->semantics == SEMANTICS_CAUSAL)
		return (struct quasar_source){row, head};
	flat = row + (problem->first_row ? problem->first_row[head] : head * quasar_rows(problem));
	token = flat / problem->heads;
	if (!problem->first_row && token >= problem->tokens)
		token = -1;
	return (struct quasar_source){token, (int)(flat % problem->heads)};
}

/* --- what can be wrong with a problem ------------------------------------------------------------ */

/* Tokens that q, k and v hold. */
static int64_t input_tokens(const struct quasar_problem *problem)
{
	int64_t most = 0;

	if (problem->semantics == SEMANTICS_CAUSAL || !problem->first_row)
		return problem->tokens;
	for (int head = 0; head < problem->heads; head++) {
		int64_t last = problem->first_row[head] + quasar_rows(problem) - 1;

		most = last / problem->heads + 1 > most ? last / problem->heads + 1 : most;
	}
	return most;
}

int quasar_check_shape(const struct quasar_problem *problem, struct error *err)
{
	if (problem->semantics != SEMANTICS_CAUSAL && problem->semantics != SEMANTICS_UPSTREAM)
		return error_set(err, STATUS_USAGE, "unknown semantics %d", (int)problem->semantics);
	if (problem->dim != 32 && problem->dim != 64 && problem->dim != 128)
		return error_set(err, STATUS_USAGE, "head dimension %d is not supported: 32, 64 and 128 are",
			problem->dim);
	if (problem->batch < 1 || problem->tokens < 1 || problem->heads < 1)
		return error_set(err, STATUS_USAGE, "batch, tokens and heads must be positive");
	if (problem->batch > TENSOR_LARGEST / problem->tokens / problem->heads / problem->dim)
		return error_set(err, STATUS_USAGE, "the tensors are too large");
	return 0;
}

int quasar_check(const struct quasar_problem *problem, struct error *err)
{
	const struct tensor *inputs[] = {&problem->q, &problem->k, &problem->v};
	static const char *const names[] = {"q", "k", "v"};
	int64_t in[4] = {problem->batch, 0, problem->heads, problem->dim};
	int64_t out[4] = {problem->batch, problem->tokens, problem->heads, problem->dim};

	if (quasar_check_shape(problem, err) < 0)
		return -1;
	if (!problem->beta)
		return error_set(err, STATUS_USAGE, "beta has no memory");
	in[1] = input_tokens(problem);
	if (tensor_check_output(&problem->o, "o", out, err) < 0)
		return -1;
	for (int i = 0; i < 3; i++) {
		if (tensor_check(inputs[i], names[i], in, err) < 0)
			return -1;
		if (tensor_overlap(inputs[i], in, &problem->o, out))
			return error_set(err, STATUS_USAGE, "tensor o overlaps tensor %s", names[i]);
	}
	return 0;
}
