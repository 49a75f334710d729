#include "op/quasar/cuda.h"

#include <limits.h>
#include <stdbool.h>
#include <string.h>

#include "kernels/quasar/arguments.h"
#include "op/launch.h"
#include "op/quasar/config.h"

#define MOST_BLOCKS INT_MAX

int quasar_check_counts(const struct quasar_problem *problem, struct error *err)
{
	if (quasar_sequences(problem) <= MOST_BLOCKS / 1024 / problem->heads &&
		quasar_rows(problem) <= INT_MAX / 2 && quasar_rows(problem) * problem->heads <= INT_MAX)
		return 0;
	error_set(err, STATUS_USAGE, "%lld tokens of %d heads in a batch of %lld are too many for one call",
		(long long)problem->tokens, problem->heads, (long long)quasar_sequences(problem));
	return error_hint(err, "Split the batch, or the sequence by its states.");
}

/* What a GPU asks for beyond what quasar_check() does. */
static int check_for_gpu(const struct quasar_problem *problem, struct error *err)
{
	enum dtype dtype = problem->q.dtype;

	if (problem->k.dtype != dtype || problem->v.dtype != dtype || problem->o.dtype != dtype) {
		error_set(err, STATUS_USAGE, "q, k, v and o are not of one type");
		return error_hint(err, "The GPU takes all in bf16, all in fp16 or all in fp32.");
	}
	return quasar_check_counts(problem, err);
}

/* --- the whole sequence ----------------------------------------------------------------------------- */

/* What the kernels share, in this order; each part a multiple of 16 bytes. */
struct workspace_layout {
	size_t inverses, transitions, forgotten, first_row; /* bytes of each */
};

static size_t aligned(size_t bytes)
{
	return (bytes + 15) / 16 * 16;
}

static int lay_out(struct gpu *gpu, struct gpu_workspace *workspace, const struct quasar_problem *problem,
	const struct config *config, struct quasar_chunk_arguments *arguments, struct error *err)
{
	int planes = CHUNK_PLANES((int)problem->q.dtype), chunk = config->value[QUASAR_CHUNK];
	size_t chunks = config->value[QUASAR_NUM_LAUNCHES] == 3 ? (size_t)quasar_parts(problem, chunk, true)
								: 0;
	/* unless sequences are packed there is a place for the last ones, too */
	size_t groups = arguments->groups > 1
		? (size_t)quasar_parts(
			  problem, (int64_t)arguments->chunks_per_group * chunk, !problem->sequences)
		: 0;
	struct workspace_layout layout = {
		.inverses = chunks * (size_t)CHUNK_SQUARE_BYTES(chunk, planes),
		.transitions = groups * (size_t)CHUNK_TRANSITION_BYTES(problem->dim, planes),
		.forgotten = aligned(groups * sizeof(*arguments->forgotten)),
		.first_row = problem->first_row ? (size_t)problem->heads * sizeof(*problem->first_row) : 0,
	};
	char *memory;

	if (gpu_workspace_reserve(gpu, workspace,
		    layout.inverses + layout.transitions + layout.forgotten + layout.first_row, err) < 0)
		return -1;
	memory = workspace->memory;
	arguments->inverses = memory;
	memory += layout.inverses;
	arguments->transitions = memory;
	arguments->forgotten = (int *)(memory + layout.transitions);
	if (!problem->first_row)
		return 0;
	arguments->first_row = (const long long *)(memory + layout.transitions + layout.forgotten);
	return gpu_upload(gpu, (void *)arguments->first_row, problem->first_row, layout.first_row, err);
}

int quasar_cuda(struct gpu *gpu, struct gpu_workspace *workspace, const struct quasar_problem *problem,
	const struct config *config, struct error *err)
{
	const struct gpu_properties *properties = gpu_properties_of(gpu);
	struct quasar_chunk_arguments arguments = {
		.q = device_tensor(&problem->q),
		.k = device_tensor(&problem->k),
		.v = device_tensor(&problem->v),
		.o = device_tensor(&problem->o),
		.beta = problem->beta,
		.initial_state = problem->initial_state,
		.final_state = problem->final_state,
		.tokens = problem->tokens,
		.batch = (int)problem->batch,
		.heads = problem->heads,
		.log_gate = problem->log_gate,
		.starts = (const long long *)problem->starts,
		.sequences = (int)problem->sequences,
	};
	struct config_launch launches[CONFIG_LAUNCHES];
	struct gpu_kernel *kernels[CONFIG_LAUNCHES];
	struct config usual;
	int count;

	if (quasar_check_in_place(problem, err) < 0 || check_for_gpu(problem, err) < 0)
		return -1;
	if (!config) {
		usual = quasar_config_default(problem, properties);
		config = &usual;
	}
	if (quasar_config_check(problem, properties, config, err) < 0)
		return -1;
	count = quasar_launches(problem, config, launches);
	if (launches_build(gpu, launches, count, kernels, err) < 0)
		return -1;
	arguments.chunks = quasar_chunks(problem, config);
	arguments.groups = config->value[QUASAR_GROUPS];
	arguments.chunks_per_group = quasar_chunks_per_group(problem, config);
	return lay_out(gpu, workspace, problem, config, &arguments, err) < 0
		? -1
		: launches_queue(kernels, launches, count, &arguments, err);
}

/* --- the others ------------------------------------------------------------------------------------ */

int quasar_cuda_reference(struct gpu *gpu, const struct quasar_problem *problem, double *o,
	double *final_state, struct error *err)
{
	struct quasar_reference_arguments arguments = {
		.q = device_tensor(&problem->q),
		.k = device_tensor(&problem->k),
		.v = device_tensor(&problem->v),
		.o = o,
		.beta = problem->beta,
		.initial_state = problem->initial_state,
		.final_state = final_state,
		.tokens = problem->tokens,
		.batch = (int)problem->batch,
		.heads = problem->heads,
		.chunks = (int)((problem->tokens + UPSTREAM_CHUNK - 1) / UPSTREAM_CHUNK),
		.log_gate = problem->log_gate,
		.starts = (const long long *)problem->starts,
	};
	struct kernel_parameter parameters[] = {
		{"HEAD_DIM", problem->dim},
		{"UPSTREAM", problem->semantics == SEMANTICS_UPSTREAM},
		{"INPUT", (int)problem->q.dtype},
		{"GATED", problem->gated},
		{"PACKED", problem->sequences > 0},
		{0},
	};
	struct gpu_kernel *kernel;

	if (quasar_check(problem, err) < 0 || check_for_gpu(problem, err) < 0)
		return -1;
	kernel = gpu_kernel(gpu, "quasar/reference.cu", "quasar_reference", parameters, REFERENCE_THREADS,
		REFERENCE_SHARED(problem->dim), err);
	return kernel ? gpu_launch(kernel, (unsigned)(quasar_sequences(problem) * problem->heads),
				(unsigned)problem->dim / REFERENCE_COLUMNS, &arguments, err)
		      : -1;
}

int quasar_cuda_recurrent(struct gpu *gpu, const struct quasar_problem *problem,
	const struct quasar_cache *cache, struct error *err)
{
	const float *initial_state = cache ? cache->states : problem->initial_state;
	float *final_state = cache ? cache->states : problem->final_state;
	struct quasar_recurrent_arguments arguments = {
		.q = device_tensor(&problem->q),
		.k = device_tensor(&problem->k),
		.v = device_tensor(&problem->v),
		.o = device_tensor(&problem->o),
		.beta = problem->beta,
		.initial_state = initial_state,
		.final_state = final_state,
		.tokens = problem->tokens,
		.batch = (int)problem->batch,
		.heads = problem->heads,
		.log_gate = problem->log_gate,
		.starts = (const long long *)problem->starts,
		.slots = cache ? cache->slots : NULL,
		.accepted = cache ? cache->accepted : NULL,
		.width = cache ? cache->width : 0,
	};
	struct kernel_parameter parameters[] = {
		{"HEAD_DIM", problem->dim},
		{"INPUT", (int)problem->q.dtype},
		{"GATED", problem->gated},
		{"PACKED", problem->sequences > 0},
		{"CACHED", cache != NULL},
		{0},
	};
	struct gpu_kernel *kernel;

	if (quasar_check(problem, err) < 0 || check_for_gpu(problem, err) < 0)
		return -1;
	if (problem->semantics != SEMANTICS_CAUSAL)
		return error_set(err, STATUS_USAGE, "token by token there are only causal semantics");
	if (cache && (!cache->states || !cache->slots || cache->width < 1))
		return error_set(err, STATUS_USAGE, "a cache of states without states or slots");
	if (cache && !problem->sequences && problem->tokens > cache->width)
		return error_set(err, STATUS_USAGE, "%lld tokens, but slots for the states of only %d",
			(long long)problem->tokens, cache->width);
	if (((uintptr_t)initial_state | (uintptr_t)final_state) % TENSOR_VECTOR_BYTES)
		return error_set(
			err, STATUS_USAGE, "the states are not aligned to %d bytes", TENSOR_VECTOR_BYTES);
	kernel = gpu_kernel(gpu, "quasar/recurrent.cu", "quasar_recurrent", parameters,
		RECURRENT_THREADS(problem->dim), 0, err);
	return kernel ? gpu_launch(kernel, (unsigned)(quasar_sequences(problem) * problem->heads), 1,
				&arguments, err)
		      : -1;
}

int quasar_cuda_gate(struct gpu *gpu, const struct tensor *k, int64_t batch, int64_t tokens, int heads,
	int dim, const float *beta, float *alpha, struct error *err)
{
	struct quasar_gate_arguments arguments = {device_tensor(k), beta, alpha, tokens, (int)batch, heads};
	struct kernel_parameter parameters[] = {
		{"HEAD_DIM", dim}, {"INPUT", (int)k->dtype}, {"VECTOR", tensor_is_vector(k)}, {0}};
	int64_t blocks = (batch * tokens * heads + GATE_ROWS - 1) / GATE_ROWS;
	struct gpu_kernel *kernel;

	if (dim != 32 && dim != 64 && dim != 128)
		return error_set(
			err, STATUS_USAGE, "head dimension %d is not supported: 32, 64 and 128 are", dim);
	if (blocks < 1 || blocks > MOST_BLOCKS)
		return error_set(
			err, STATUS_USAGE, "%lld rows in one call", (long long)(batch * tokens * heads));
	kernel = gpu_kernel(gpu, "quasar/gate.cu", "quasar_gate", parameters, GATE_THREADS, 0, err);
	return kernel ? gpu_launch(kernel, (unsigned)blocks, 1, &arguments, err) : -1;
}

int forward_substitution_cuda(
	struct gpu *gpu, const float *lower, float *inverse, int64_t count, int size, struct error *err)
{
	struct forward_substitution_arguments arguments = {lower, inverse};
	struct kernel_parameter parameters[] = {{"SIZE", size}, {0}};
	struct gpu_kernel *kernel;

	if (size != 16 && size != 32 && size != 64)
		return error_set(err, STATUS_USAGE,
			"matrices of %d x %d are not supported: 16, 32 and 64 are", size, size);
	if (count < 1 || count > MOST_BLOCKS)
		return error_set(err, STATUS_USAGE, "%lld matrices in one call", (long long)count);
	if (((uintptr_t)lower | (uintptr_t)inverse) % TENSOR_VECTOR_BYTES)
		return error_set(
			err, STATUS_USAGE, "the matrices are not aligned to %d bytes", TENSOR_VECTOR_BYTES);
	kernel = gpu_kernel(gpu, "quasar/forward_substitution.cu", "forward_substitution", parameters,
		SUBSTITUTION_THREADS(size), 0, err);
	return kernel ? gpu_launch(kernel, (unsigned)count, 1, &arguments, err) : -1;
}
