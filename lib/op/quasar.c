#include "op/quasar.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct tensor tensor_contiguous(void *data, enum dtype dtype, int64_t tokens, int heads, int dim)
{
	return (struct tensor){data, dtype, {tokens * heads * dim, (int64_t)heads * dim, dim, 1}};
}

size_t dtype_size(enum dtype dtype)
{
	return dtype == DTYPE_F32 ? 4 : 2;
}

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

/* Far below where the arithmetic on sizes would overflow. */
#define LARGEST ((int64_t)1 << 48)

struct extent {
	int64_t size, stride;
};

/* Whether the elements of a tensor are surely apart: each stride steps over all that smaller ones reach. */
static bool strides_nested(struct extent *extents, int count)
{
	int64_t reach = 0;

	for (int i = 1; i < count; i++) /* ascending by stride */
		for (int j = i; j > 0 && llabs(extents[j].stride) < llabs(extents[j - 1].stride); j--) {
			struct extent swapped = extents[j];

			extents[j] = extents[j - 1];
			extents[j - 1] = swapped;
		}
	for (int i = 0; i < count; i++) {
		if (extents[i].size > 1 && llabs(extents[i].stride) <= reach)
			return false;
		reach += llabs(extents[i].stride) * (extents[i].size - 1);
	}
	return true;
}

/* The elements that a tensor reaches, as offsets in bytes from its data. */
static void reach(const struct tensor *tensor, const int64_t size[4], int64_t *low, int64_t *high)
{
	*low = *high = 0;
	for (int i = 0; i < 4; i++)
		*(tensor->stride[i] < 0 ? low : high) += tensor->stride[i] * (size[i] - 1);
	*low *= (int64_t)dtype_size(tensor->dtype);
	*high = (*high + 1) * (int64_t)dtype_size(tensor->dtype);
}

static bool overlap(const struct tensor *in, const int64_t in_size[4], const struct tensor *out,
	const int64_t out_size[4])
{
	int64_t in_low, in_high, out_low, out_high, apart = (char *)out->data - (char *)in->data;
	struct extent extents[5];

	reach(in, in_size, &in_low, &in_high);
	reach(out, out_size, &out_low, &out_high);
	if (apart + out_high <= in_low || apart + out_low >= in_high)
		return false;
	/* two slices of one tensor are apart if that is so with their distance as a fifth stride */
	if (in->dtype != out->dtype || memcmp(in->stride, out->stride, sizeof(in->stride)) ||
		apart % (int64_t)dtype_size(in->dtype))
		return true;
	for (int i = 0; i < 4; i++)
		extents[i] = (struct extent){in_size[i], in->stride[i]};
	extents[4] = (struct extent){2, apart / (int64_t)dtype_size(in->dtype)};
	return !strides_nested(extents, 5);
}

static int check_tensor(const struct tensor *tensor, const char *name, const int64_t size[4],
	struct error *err)
{
	if (!tensor->data)
		return error_set(err, STATUS_USAGE, "tensor %s has no memory", name);
	if (tensor->dtype != DTYPE_F32 && tensor->dtype != DTYPE_BF16 && tensor->dtype != DTYPE_F16)
		return error_set(err, STATUS_USAGE, "tensor %s: unknown type %d", name, (int)tensor->dtype);
	if ((uintptr_t)tensor->data % dtype_size(tensor->dtype))
		return error_set(err, STATUS_USAGE, "tensor %s is not aligned to its elements", name);
	for (int i = 0; i < 4; i++)
		if (llabs(tensor->stride[i]) > LARGEST / size[i])
			return error_set(err, STATUS_USAGE, "tensor %s: stride %lld is too large", name,
				(long long)tensor->stride[i]);
	return 0;
}

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

int quasar_check(const struct quasar_problem *problem, struct error *err)
{
	const struct tensor *inputs[] = {&problem->q, &problem->k, &problem->v};
	static const char *const names[] = {"q", "k", "v"};
	int64_t in[4] = {problem->batch, 0, problem->heads, problem->dim};
	int64_t out[4] = {problem->batch, problem->tokens, problem->heads, problem->dim};
	struct extent extents[4];

	if (problem->semantics != SEMANTICS_CAUSAL && problem->semantics != SEMANTICS_UPSTREAM)
		return error_set(err, STATUS_USAGE, "unknown semantics %d", (int)problem->semantics);
	if (problem->dim != 32 && problem->dim != 64 && problem->dim != 128)
		return error_set(err, STATUS_USAGE,
			"head dimension %d is not supported: 32, 64 and 128 are", problem->dim);
	if (problem->batch < 1 || problem->tokens < 1 || problem->heads < 1)
		return error_set(err, STATUS_USAGE, "batch, tokens and heads must be positive");
	if (problem->batch > LARGEST / problem->tokens / problem->heads / problem->dim)
		return error_set(err, STATUS_USAGE, "the tensors are too large");
	if (!problem->beta)
		return error_set(err, STATUS_USAGE, "beta has no memory");
	in[1] = input_tokens(problem);
	if (check_tensor(&problem->o, "o", out, err) < 0)
		return -1;
	for (int i = 0; i < 4; i++)
		extents[i] = (struct extent){out[i], problem->o.stride[i]};
	if (!strides_nested(extents, 4))
		return error_set(err, STATUS_USAGE, "tensor o: its strides let elements overlap");
	for (int i = 0; i < 3; i++) {
		if (check_tensor(inputs[i], names[i], in, err) < 0)
			return -1;
		if (overlap(inputs[i], in, &problem->o, out))
			return error_set(err, STATUS_USAGE, "tensor o overlaps tensor %s", names[i]);
	}
	return 0;
}
