#include "inference/request.h"

#include <stdlib.h>

#include "base/memory.h"
#include "net/fields.h"

static int by_value(const void *a, const void *b)
{
	int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;

	return (x > y) - (x < y);
}

/* Puts the steps in order, each once, and leaves out those that will not be reached. */
static int order_steps(int32_t *steps, size_t count, int length)
{
	int kept = 0;

	qsort(steps, count, sizeof(*steps), by_value);
	for (size_t i = 0; i < count; i++)
		if (steps[i] >= 1 && steps[i] <= length && (!kept || steps[kept - 1] != steps[i]))
			steps[kept++] = steps[i];
	return kept;
}

/* The list, or, where there is none or it is empty, the one step. The caller frees. */
static int32_t *read_steps(struct fields *fields, bool *several, size_t *count)
{
	int64_t step = fields_integer(fields, "logits_at_step");
	int32_t *steps = fields_integer_list(fields, "logits_at_steps", false, count);

	*several = steps != NULL;
	if (steps && *count)
		return steps;
	free(steps);
	steps = xcalloc(1, sizeof(*steps));
	steps[0] = (int32_t)step;
	*count = 1;
	return steps;
}

/* What the types of the fields do not say. */
static bool check_counts(const struct inference_request *request, const struct inference_limits *limits,
	struct server_reply *reply)
{
	int64_t tokens = (int64_t)request->prompt_length + request->length;

	if (!request->prompt_length)
		server_refuse(reply, 422, "prompt: there has to be at least one token");
	else if (tokens > limits->tokens)
		server_refuse(reply, 422, "prompt and gen_len: %lld tokens together; at most %d are served",
			(long long)tokens, limits->tokens);
	else if (request->step_count > INFERENCE_STEPS_MOST)
		server_refuse(reply, 422, "logits_at_steps: %d steps; at most %d are served",
			request->step_count, INFERENCE_STEPS_MOST);
	else
		return true;
	return false;
}

bool inference_request_read(const struct server_request *request, const struct inference_limits *limits,
	struct inference_request *out, struct server_reply *reply)
{
	const struct field_bound bounds[] = {
		{"prompt", 0, limits->vocabulary - 1},
		{"gen_len", 0, limits->tokens},
		{"logits_at_step", INT32_MIN, INT32_MAX},
		{"logits_at_steps", INT32_MIN, INT32_MAX},
		{0},
	};
	const struct field_rules rules = {.bounds = bounds};
	struct fields fields = fields_body(request, &rules);
	size_t prompt_length, step_count;

	*out = (struct inference_request){0};
	out->prompt = fields_integer_list(&fields, "prompt", true, &prompt_length);
	out->prompt_length = (int)prompt_length;
	out->length = (int)fields_integer(&fields, "gen_len");
	out->steps = read_steps(&fields, &out->several, &step_count);
	out->step_count = order_steps(out->steps, step_count, out->length);
	if (!fields_refused(&fields, reply) && check_counts(out, limits, reply))
		return true;
	inference_request_free(out);
	return false;
}

void inference_request_free(struct inference_request *request)
{
	free(request->prompt);
	free(request->steps);
	*request = (struct inference_request){0};
}
