#include "op/quasar/cuda.h"

#include <limits.h>
#include <math.h>
#include <stdbool.h>

#include "kernels/quasar/arguments.h"

#define VECTOR_BYTES 16
#define WARP 32
#define MOST_BLOCKS INT_MAX

static struct device_tensor device_tensor(const struct tensor *tensor)
{
	return (struct device_tensor){
		tensor->data, {tensor->stride[0], tensor->stride[1], tensor->stride[2], tensor->stride[3]}};
}

/* Whether every row of a tensor is contiguous and aligned for 16-byte accesses. */
static bool is_vector(const struct tensor *tensor)
{
	uintptr_t bits = (uintptr_t)tensor->data;

	for (int i = 0; i < 3; i++)
		bits |= (uintptr_t)tensor->stride[i] * dtype_size(tensor->dtype);
	return tensor->stride[3] == 1 && bits % VECTOR_BYTES == 0;
}

/* Whether the rows of [T, H] are evenly spaced. */
static bool is_compact(const struct quasar_problem *problem, const struct tensor *tensor)
{
	return tensor->stride[1] == problem->heads * tensor->stride[2];
}

static int check_problem(const struct quasar_problem *problem, struct error *err)
{
	enum dtype dtype = problem->q.dtype;

	if (quasar_check(problem, err) < 0)
		return -1;
	if (problem->k.dtype != dtype || problem->v.dtype != dtype || problem->o.dtype != dtype) {
		error_set(err, STATUS_USAGE, "q, k, v and o are not of one type");
		return error_hint(err, "The GPU takes all in bf16, all in fp16 or all in fp32.");
	}
	if (problem->batch * problem->heads > MOST_BLOCKS / 1024 || quasar_rows(problem) > INT_MAX / 2 ||
		quasar_rows(problem) * problem->heads > INT_MAX) {
		error_set(err, STATUS_USAGE,
			"%lld tokens of %d heads in a batch of %lld are too many for one call",
			(long long)problem->tokens, problem->heads, (long long)problem->batch);
		return error_hint(err, "Split the batch, or the sequence by its states.");
	}
	return 0;
}

/* --- how quasar_chunk is built and cut up --------------------------------------------------------- */

struct chunk_plan {
	int chunk, stages, blocks; /* CHUNK, STAGES, MIN_BLOCKS */
	int threads, transition_shared, output_shared;
	struct gpu_kernel *transition, *output;
};

/* bf16 that carry a value. */
static int planes(const struct quasar_problem *problem)
{
	return problem->q.dtype == DTYPE_BF16 ? 1 : 2;
}

/* As laid out in quasar/chunk.cu. */
static int shared_bytes(const struct quasar_problem *problem, int chunk, int stages, bool is_output)
{
	int staging = problem->dim / 16 * 1024;
	int rows = chunk * problem->dim * 2 * planes(problem), square = chunk * chunk * 2 * planes(problem);
	bool scores = is_output && problem->semantics == SEMANTICS_CAUSAL;

	return stages * (is_output ? 3 : 2) * rows + square + (staging > square ? staging : square) +
	       (scores ? square : 0);
}

#define DRIVER_SHARED 1024 /* what the driver takes of each block's share */

static int blocks_that_fit(const struct gpu_properties *properties, int shared)
{
	if (shared > properties->shared_per_block)
		return 0;
	return properties->shared_per_multiprocessor / (shared + DRIVER_SHARED);
}

/* Blocks to aim at: more hide more latency, fewer leave more registers. */
static int wanted_blocks(const struct quasar_problem *problem)
{
	if (problem->dim == 32)
		return 4;
	if (problem->dim == 64 && problem->q.dtype == DTYPE_BF16)
		return problem->semantics == SEMANTICS_CAUSAL ? 3 : 2;
	return 1;
}

static int plan_chunk(const struct gpu_properties *properties, const struct quasar_problem *problem,
	struct chunk_plan *plan, struct error *err)
{
	int wanted = wanted_blocks(problem), fit = 0;

	plan->chunk = UPSTREAM_CHUNK;
	for (plan->stages = 2; plan->stages > 0; plan->stages--) {
		fit = blocks_that_fit(properties, shared_bytes(problem, plan->chunk, plan->stages, true));
		if (fit >= wanted || (plan->stages == 1 && fit))
			break;
	}
	if (!fit && problem->semantics == SEMANTICS_CAUSAL) {
		plan->chunk = 32;
		plan->stages = 1;
		fit = blocks_that_fit(properties, shared_bytes(problem, plan->chunk, 1, true));
	}
	if (!fit) {
		error_set(err, STATUS_ENVIRONMENT,
			"%s, head dimension %d, %s semantics take %d KiB of shared memory a block; %s has %d",
			dtype_name(problem->q.dtype), problem->dim, semantics_name(problem->semantics),
			shared_bytes(problem, plan->chunk, 1, true) / 1024, properties->name,
			properties->shared_per_block / 1024);
		return error_hint(err, "bf16 takes half as much.");
	}
	plan->blocks = fit < wanted ? fit : wanted;
	plan->threads = problem->dim / 16 * WARP;
	plan->transition_shared = shared_bytes(problem, plan->chunk, plan->stages, false);
	plan->output_shared = shared_bytes(problem, plan->chunk, plan->stages, true);
	return 0;
}

/* Microseconds on an H200, S = 64, with 1, 2, and 3 or more blocks on a multiprocessor: of a chunk in each
 * pass, and of a step over a group before one's own. Their proportions decide. */
static const struct {
	double first, second, step;
} block_costs[] = {{1.8, 3.2, 0.5}, {3.5, 4.1, 0.7}, {4.3, 5.7, 1.0}};

/* Chunks after which usual keys have made the past forgotten: longer groups need no more of the first pass,
 * and no steps over groups. */
#define FADING_CHUNKS 36

/* How many groups the chunks of a head are cut into: more groups have fewer chunks each, but more groups
 * before them to step over, and share the multiprocessors with more blocks. */
static int choose_groups(
	const struct quasar_problem *problem, int chunks, int resident_blocks, int multiprocessors)
{
	int64_t sequences = problem->batch * problem->heads;
	double least = INFINITY;
	int best = 1;

	for (int groups = 1; groups <= chunks && groups * sequences <= resident_blocks; groups++) {
		int64_t sharing = (groups * sequences + multiprocessors - 1) / multiprocessors;
		size_t row = sharing > 3 ? 2 : (size_t)sharing - 1;
		int longest = (chunks + groups - 1) / groups;
		double cost = longest * block_costs[row].second;

		if (groups > 1)
			cost += (longest < FADING_CHUNKS ? longest : FADING_CHUNKS) * block_costs[row].first;
		if (longest < FADING_CHUNKS)
			cost += groups * block_costs[row].step;
		if (cost < least) {
			least = cost;
			best = groups;
		}
	}
	return best;
}

/* What the kernels share, in this order; each part a multiple of 16 bytes. */
struct workspace_layout {
	size_t transitions, forgotten, first_row; /* bytes of each */
};

static size_t aligned(size_t bytes)
{
	return (bytes + 15) / 16 * 16;
}

static int lay_out(struct gpu *gpu, struct gpu_workspace *workspace, const struct quasar_problem *problem,
	struct quasar_chunk_arguments *arguments, struct error *err)
{
	size_t groups =
		arguments->groups > 1 ? (size_t)(problem->batch * problem->heads * arguments->groups) : 0;
	struct workspace_layout layout = {
		.transitions = groups * (size_t)(problem->dim * problem->dim) *
			       (sizeof(float) + (size_t)planes(problem) * sizeof(uint16_t)),
		.forgotten = aligned(groups * sizeof(*arguments->forgotten)),
		.first_row = problem->first_row ? (size_t)problem->heads * sizeof(*problem->first_row) : 0,
	};
	char *memory;

	if (gpu_workspace_reserve(gpu, workspace, layout.transitions + layout.forgotten + layout.first_row, err) <
		0)
		return -1;
	memory = workspace->memory;
	arguments->transitions = memory;
	arguments->forgotten = (int *)(memory + layout.transitions);
	if (!problem->first_row)
		return 0;
	arguments->first_row = (const long long *)(memory + layout.transitions + layout.forgotten);
	return gpu_upload(gpu, (void *)arguments->first_row, problem->first_row, layout.first_row, err);
}

static void cut_into_groups(const struct quasar_problem *problem, int chunk, int resident_blocks,
	int multiprocessors, struct quasar_chunk_arguments *arguments)
{
	int chunks = (int)((quasar_rows(problem) + chunk - 1) / chunk);
	int groups = choose_groups(problem, chunks, resident_blocks, multiprocessors);

	arguments->chunks = chunks;
	arguments->chunks_per_group = (chunks + groups - 1) / groups;
	arguments->groups = (chunks + arguments->chunks_per_group - 1) / arguments->chunks_per_group;
}

static int launch(
	const struct chunk_plan *plan, const struct quasar_chunk_arguments *arguments, struct error *err)
{
	unsigned sequences = (unsigned)(arguments->batch * arguments->heads);
	unsigned groups = (unsigned)arguments->groups;

	/* nobody asks for the transition of a last group */
	if (groups > 1 && gpu_launch(plan->transition, sequences * (groups - 1), 1, arguments, err) < 0)
		return -1;
	return gpu_launch(plan->output, sequences * groups, 1, arguments, err);
}

int quasar_cuda(struct gpu *gpu, struct gpu_workspace *workspace, const struct quasar_problem *problem,
	struct error *err)
{
	const struct gpu_properties *properties = gpu_properties_of(gpu);
	bool upstream = problem->semantics == SEMANTICS_UPSTREAM;
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
	};
	struct chunk_plan plan = {0};

	if (check_problem(problem, err) < 0 || plan_chunk(properties, problem, &plan, err) < 0)
		return -1;
	struct kernel_parameter parameters[] = {
		{"HEAD_DIM", problem->dim},
		{"CHUNK", plan.chunk},
		{"UPSTREAM", upstream},
		{"INPUT", (int)problem->q.dtype},
		{"VECTOR", is_vector(&problem->q) && is_vector(&problem->k) && is_vector(&problem->v) &&
				   is_vector(&problem->o)},
		{"COMPACT", upstream && is_compact(problem, &problem->q) &&
				    is_compact(problem, &problem->k) && is_compact(problem, &problem->v)},
		{"STAGES", plan.stages},
		{"MIN_BLOCKS", plan.blocks},
		{0},
	};
	plan.output = gpu_kernel(gpu, "quasar/chunk.cu", "quasar_chunk_output", parameters, plan.threads,
		plan.output_shared, err);
	plan.transition = gpu_kernel(gpu, "quasar/chunk.cu", "quasar_chunk_transition", parameters,
		plan.threads, plan.transition_shared, err);
	if (!plan.output || !plan.transition)
		return -1;
	cut_into_groups(problem, plan.chunk, gpu_kernel_occupancy(plan.output) * properties->multiprocessors,
		properties->multiprocessors, &arguments);
	if (lay_out(gpu, workspace, problem, &arguments, err) < 0)
		return -1;
	return launch(&plan, &arguments, err);
}

/* --- the others ------------------------------------------------------------------------------------ */

#define REFERENCE_COLUMNS 16
#define REFERENCE_THREADS 64
#define REFERENCE_ROWS 64

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
		.chunks = (int)((problem->tokens + REFERENCE_ROWS - 1) / REFERENCE_ROWS),
	};
	struct kernel_parameter parameters[] = {
		{"HEAD_DIM", problem->dim},
		{"UPSTREAM", problem->semantics == SEMANTICS_UPSTREAM},
		{"INPUT", (int)problem->q.dtype},
		{0},
	};
	/* q, k and 16 columns of v of a chunk, and α */
	int shared = REFERENCE_ROWS *
		     ((2 * problem->dim + REFERENCE_COLUMNS) * (int)sizeof(float) + (int)sizeof(double));
	struct gpu_kernel *kernel;

	if (check_problem(problem, err) < 0)
		return -1;
	kernel = gpu_kernel(
		gpu, "quasar/reference.cu", "quasar_reference", parameters, REFERENCE_THREADS, shared, err);
	return kernel ? gpu_launch(kernel, (unsigned)(problem->batch * problem->heads),
				(unsigned)problem->dim / REFERENCE_COLUMNS, &arguments, err)
		      : -1;
}

int quasar_cuda_recurrent(struct gpu *gpu, const struct quasar_problem *problem, struct error *err)
{
	struct quasar_recurrent_arguments arguments = {
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
	};
	struct kernel_parameter parameters[] = {
		{"HEAD_DIM", problem->dim}, {"INPUT", (int)problem->q.dtype}, {0}};
	struct gpu_kernel *kernel;

	if (check_problem(problem, err) < 0)
		return -1;
	if (problem->semantics != SEMANTICS_CAUSAL)
		return error_set(err, STATUS_USAGE, "token by token there are only causal semantics");
	if (((uintptr_t)problem->initial_state | (uintptr_t)problem->final_state) % VECTOR_BYTES)
		return error_set(err, STATUS_USAGE, "the states are not aligned to %d bytes", VECTOR_BYTES);
	kernel = gpu_kernel(gpu, "quasar/recurrent.cu", "quasar_recurrent", parameters, problem->dim, 0, err);
	return kernel ? gpu_launch(kernel, (unsigned)(problem->batch * problem->heads), 1, &arguments, err)
		      : -1;
}

#define GATE_THREADS 256
#define GATE_ROWS (GATE_THREADS / 4) /* of a block */

int quasar_cuda_gate(struct gpu *gpu, const struct tensor *k, int64_t batch, int64_t tokens, int heads,
	int dim, const float *beta, float *alpha, struct error *err)
{
	struct quasar_gate_arguments arguments = {device_tensor(k), beta, alpha, tokens, (int)batch, heads};
	struct kernel_parameter parameters[] = {
		{"HEAD_DIM", dim}, {"INPUT", (int)k->dtype}, {"VECTOR", is_vector(k)}, {0}};
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
	if (((uintptr_t)lower | (uintptr_t)inverse) % VECTOR_BYTES)
		return error_set(err, STATUS_USAGE, "the matrices are not aligned to %d bytes", VECTOR_BYTES);
	kernel = gpu_kernel(gpu, "quasar/forward_substitution.cu", "forward_substitution", parameters,
		size < WARP ? WARP : size, 0, err);
	return kernel ? gpu_launch(kernel, (unsigned)count, 1, &arguments, err) : -1;
}
