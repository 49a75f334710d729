#include "op/quasar_backward/cuda.h"

#include "kernels/quasar/arguments.h"
#include "kernels/quasar/choice.h"
#include "op/launch.h"
#include "op/quasar/cuda.h"
#include "op/quasar_backward/config.h"

static int check_types(const struct quasar_gradient *gradient, struct error *err)
{
	const struct quasar_problem *problem = &gradient->problem;
	const struct tensor *const others[] = {
		&problem->k, &problem->v, &gradient->d_o, &gradient->d_q, &gradient->d_k, &gradient->d_v};

	for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
		if (others[i]->dtype != problem->q.dtype)
			return error_set(err, STATUS_USAGE, "the tensors are not of one type");
	return 0;
}

/* A call: its sequences in parts, and the working memory. */
struct call {
	struct gpu *gpu;
	const struct quasar_gradient *gradient;
	const struct config *config;
	int64_t sequences;
	int chunks, part_chunks, parts;
	size_t states;   /* numbers of all sequences' states */
	float *before;   /* the states before the parts 1 …, [parts − 1] */
	float *adjoints; /* of the states between the last two parts, [2] */
	float *terms;    /* of the gradient of beta */
	void *working;
};

static size_t aligned(size_t bytes)
{
	return (bytes + 15) / 16 * 16;
}

static int lay_out(struct call *call, struct gpu_workspace *workspace, struct error *err)
{
	const struct quasar_problem *problem = &call->gradient->problem;
	int groups = gradient_groups(call->part_chunks, call->config->value[GRADIENT_CHUNKS_PER_GROUP]);
	size_t working = (size_t)(call->sequences *
		GRADIENT_WORKING_BYTES(problem->dim, call->part_chunks, groups));
	size_t terms = aligned((size_t)(call->sequences * call->chunks) * sizeof(*call->terms));
	size_t between = call->parts > 1 ? (size_t)call->parts + 1 : 0;
	char *memory;

	call->states = (size_t)call->sequences * (size_t)(problem->dim * problem->dim);
	if (gpu_workspace_reserve(
		    call->gpu, workspace, working + terms + between * call->states * sizeof(float), err) < 0)
		return -1;
	memory = workspace->memory;
	call->working = memory;
	call->terms = (float *)(memory + working);
	call->before = (float *)(memory + working + terms);
	call->adjoints = call->before + (size_t)(call->parts - 1) * call->states;
	return 0;
}

static struct quasar_gradient_arguments arguments_of(const struct call *call, int part, int chunks)
{
	const struct quasar_gradient *gradient = call->gradient;
	const struct quasar_problem *problem = &gradient->problem;
	int group = call->config->value[GRADIENT_CHUNKS_PER_GROUP];

	return (struct quasar_gradient_arguments){
		.of = {.q = device_tensor(&problem->q),
			.k = device_tensor(&problem->k),
			.v = device_tensor(&problem->v),
			.beta = problem->beta,
			.initial_state = part ? call->before + (size_t)(part - 1) * call->states
					      : problem->initial_state,
			.tokens = problem->tokens,
			.batch = (int)problem->batch,
			.heads = problem->heads,
			.chunks = call->chunks,
			.chunks_per_group = group,
			.groups = gradient_groups(chunks, group)},
		.output_gradient = device_tensor(&gradient->d_o),
		.q_gradient = device_tensor(&gradient->d_q),
		.k_gradient = device_tensor(&gradient->d_k),
		.v_gradient = device_tensor(&gradient->d_v),
		.beta_terms = call->terms,
		.beta_gradient = gradient->d_beta,
		.working = call->working,
		.first_chunk = part * call->part_chunks,
		.part_chunks = chunks,
	};
}

static int run_part(const struct call *call, int part, enum gradient_purpose purpose, struct error *err)
{
	const struct quasar_gradient *gradient = call->gradient;
	int first = part * call->part_chunks, last = call->parts - 1, count;
	int chunks = part < last ? call->part_chunks : call->chunks - first;
	struct quasar_gradient_arguments arguments = arguments_of(call, part, chunks);
	struct config_launch launches[CONFIG_LAUNCHES];
	struct gpu_kernel *kernels[CONFIG_LAUNCHES];

	count = quasar_gradient_launches(gradient, call->config, chunks, purpose, launches);
	if (purpose == PURPOSE_STATE) {
		arguments.of.final_state = call->before + (size_t)part * call->states;
	} else {
		arguments.final_gradient = part == last
			? gradient->d_final_state
			: call->adjoints + (size_t)((part + 1) % 2) * call->states;
		arguments.initial_gradient = part ? call->adjoints + (size_t)(part % 2) * call->states
						  : gradient->d_initial_state;
		if (part || !gradient->d_beta) /* the last launch sums up that of all parts */
			count--;
	}
	return launches_build(call->gpu, launches, count, kernels, err) < 0
		? -1
		: launches_queue(kernels, launches, count, &arguments, err);
}

int quasar_gradient_cuda(struct gpu *gpu, struct gpu_workspace *workspace,
	const struct quasar_gradient *gradient, const struct config *config, struct error *err)
{
	const struct quasar_problem *problem = &gradient->problem;
	struct call call = {.gpu = gpu, .gradient = gradient, .config = config};
	struct config_launch launches[CONFIG_LAUNCHES];
	struct gpu_kernel *kernels[CONFIG_LAUNCHES];
	int count;

	if (quasar_gradient_check(gradient, err) < 0 || check_types(gradient, err) < 0 ||
		quasar_check_counts(problem, err) < 0 ||
		quasar_gradient_config_check(gradient, gpu_properties_of(gpu), config, err) < 0)
		return -1;
	call.sequences = problem->batch * problem->heads;
	call.chunks = quasar_gradient_chunks(gradient);
	call.part_chunks = config->value[GRADIENT_PART_CHUNKS];
	call.parts = (call.chunks + call.part_chunks - 1) / call.part_chunks;
	/* all of them, so that nothing is launched where one cannot be built */
	count = quasar_gradient_launches(gradient, config, call.part_chunks, PURPOSE_GRADIENTS, launches);
	if (launches_build(gpu, launches, count, kernels, err) < 0 || lay_out(&call, workspace, err) < 0)
		return -1;
	for (int part = 0; part + 1 < call.parts; part++)
		if (run_part(&call, part, PURPOSE_STATE, err) < 0)
			return -1;
	for (int part = call.parts - 1; part >= 0; part--)
		if (run_part(&call, part, PURPOSE_GRADIENTS, err) < 0)
			return -1;
	return 0;
}
