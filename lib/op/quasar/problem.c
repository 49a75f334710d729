#include "op/quasar/problem.h"

#include <string.h>

static const char *const functions[] = {QUASAR_FUNCTIONS}; /* the first two are those of the semantics */

const char *quasar_function_name(const struct quasar_problem *problem)
{
	if (problem->sequences)
		return functions[problem->gated ? QUASAR_PACKED_GATED : QUASAR_PACKED];
	return problem->gated ? functions[QUASAR_GATED] : semantics_name(problem->semantics);
}

const char *semantics_name(enum semantics semantics)
{
	return functions[semantics];
}

int64_t upstream_padded(int64_t tokens)
{
	return (tokens + UPSTREAM_CHUNK - 1) / UPSTREAM_CHUNK * UPSTREAM_CHUNK;
}

int64_t quasar_rows(const struct quasar_problem *problem)
{
	return problem->semantics == SEMANTICS_CAUSAL ? problem->tokens : upstream_padded(problem->tokens);
}

int64_t quasar_sequences(const struct quasar_problem *problem)
{
	return problem->sequences ? problem->sequences : problem->batch;
}

struct quasar_span quasar_span(const struct quasar_problem *problem, int64_t number)
{
	return problem->sequences
		? (struct quasar_span){0, problem->starts[number], problem->starts[number + 1]}
		: (struct quasar_span){number, 0, problem->tokens};
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
	if (problem->semantics != SEMANTICS_CAUSAL && (problem->gated || problem->sequences))
		return error_set(err, STATUS_USAGE, "a gate and packed sequences need causal semantics");
	if (problem->sequences < 0 ||
		problem->sequences > TENSOR_LARGEST / problem->heads / problem->dim / problem->dim)
		return error_set(err, STATUS_USAGE, "%lld packed sequences", (long long)problem->sequences);
	if (problem->sequences && problem->batch != 1)
		return error_set(err, STATUS_USAGE, "sequences are packed into a batch of 1, not of %lld",
			(long long)problem->batch);
	return 0;
}

int quasar_check_starts(const struct quasar_problem *problem, struct error *err)
{
	const int64_t *starts = problem->starts;

	if (!problem->sequences)
		return 0;
	if (starts[0] != 0 || starts[problem->sequences] != problem->tokens)
		return error_set(err, STATUS_USAGE,
			"packed sequences start at 0 and end at %lld, not %lld … %lld",
			(long long)problem->tokens, (long long)starts[0],
			(long long)starts[problem->sequences]);
	for (int64_t n = 0; n < problem->sequences; n++)
		if (starts[n + 1] < starts[n])
			return error_set(err, STATUS_USAGE,
				"packed sequence %lld ends at token %lld, before it starts", (long long)n,
				(long long)starts[n + 1]);
	return 0;
}

static bool have_the_same_strides(
	const struct quasar_problem *problem, const struct tensor *a, const struct tensor *b)
{
	const int first = problem->batch == 1; /* there is no sequence behind the first */

	return !memcmp(a->stride + first, b->stride + first, (size_t)(4 - first) * sizeof(*a->stride));
}

/* Whether every chunk's rows of o are its rows of q. */
static bool is_in_place(const struct quasar_problem *problem)
{
	const struct tensor *q = &problem->q, *o = &problem->o;
	const struct tensor whole = tensor_contiguous(
		q->data, q->dtype, problem->tokens, problem->heads, problem->dim);
	struct tensor by_heads = whole;

	if (o->data != q->data || o->dtype != q->dtype)
		return false;
	if (problem->semantics == SEMANTICS_CAUSAL)
		return have_the_same_strides(problem, o, q);
	by_heads.stride[1] = problem->dim;
	by_heads.stride[2] = problem->tokens * problem->dim;
	return problem->tokens % UPSTREAM_CHUNK == 0 && !problem->first_row &&
		have_the_same_strides(problem, q, &whole) && have_the_same_strides(problem, o, &by_heads);
}

static int check(const struct quasar_problem *problem, bool in_place, struct error *err)
{
	const struct tensor *inputs[] = {&problem->q, &problem->k, &problem->v};
	static const char *const names[] = {"q", "k", "v"};
	int64_t in[4] = {problem->batch, 0, problem->heads, problem->dim};
	int64_t out[4] = {problem->batch, problem->tokens, problem->heads, problem->dim};

	if (quasar_check_shape(problem, err) < 0)
		return -1;
	if (!problem->beta)
		return error_set(err, STATUS_USAGE, "beta has no memory");
	if (problem->gated && !problem->log_gate)
		return error_set(err, STATUS_USAGE, "log_gate has no memory");
	if (problem->sequences && !problem->starts)
		return error_set(err, STATUS_USAGE, "the starts of packed sequences have no memory");
	in[1] = input_tokens(problem);
	if (tensor_check_output(&problem->o, "o", out, err) < 0)
		return -1;
	for (int i = 0; i < 3; i++) {
		if (tensor_check(inputs[i], names[i], in, err) < 0)
			return -1;
		if (!(in_place && i == 0 && is_in_place(problem)) &&
			tensor_overlap(inputs[i], in, &problem->o, out))
			return error_set(err, STATUS_USAGE, "tensor o overlaps tensor %s", names[i]);
	}
	return 0;
}

int quasar_check(const struct quasar_problem *problem, struct error *err)
{
	return check(problem, false, err);
}

int quasar_check_in_place(const struct quasar_problem *problem, struct error *err)
{
	return check(problem, true, err);
}
