/* entry: the kernels as PyTorch launches them. Its NVRTC entry passes pointers, 32-bit ints and doubles, but no
 * structs; here they are put together. Tensors are contiguous, but for o, whose strides are given. One part is
 * compiled at a time. */
#define FLAT_ENTRY

#if defined(QUASAR_CHUNK) || defined(QUASAR_GRADIENT)
#include "common/arguments.h"

static __device__ __forceinline__ struct device_tensor rows_apart(
	void *data, long long batch, long long token, long long head)
{
	return {data, {batch * HEAD_DIM, token * HEAD_DIM, head * HEAD_DIM, 1}};
}

static __device__ __forceinline__ struct device_tensor rows_of(void *data, int tokens, int heads)
{
	return rows_apart(data, (long long)tokens * heads, heads, 1);
}
#endif

#if defined(QUASAR_CHUNK)
#include "quasar/chunk.cu"

/* q, k and v [batch, held, heads, S]; of o, so many rows of S from a sequence, a token and a head to the next. */
#define CHUNK_PARAMETERS                                                                                     \
	void *q, void *k, void *v, void *o, const float *beta, const float *initial_state,                   \
		float *final_state, const long long *first_rows, void *inverses, void *transitions,          \
		int *forgotten, int tokens, int held, int o_batch, int o_token, int o_head, int batch,       \
		int heads, int chunks, int chunks_per_group, int groups
#define CHUNK_ARGUMENTS                                                                                      \
	{                                                                                                    \
		rows_of(q, held, heads), rows_of(k, held, heads), rows_of(v, held, heads),                   \
			rows_apart(o, o_batch, o_token, o_head), beta, initial_state, final_state,           \
			first_rows, inverses, transitions, forgotten, tokens, batch, heads, chunks,          \
			chunks_per_group, groups                                                             \
	}

extern "C" __global__ void __launch_bounds__(THREADS) quasar_chunk_inverse(CHUNK_PARAMETERS)
{
	make_inverses(CHUNK_ARGUMENTS);
}

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS) quasar_chunk_transition(CHUNK_PARAMETERS)
{
	make_transition(CHUNK_ARGUMENTS);
}

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS) quasar_chunk_output(CHUNK_PARAMETERS)
{
	make_output(CHUNK_ARGUMENTS);
}

#elif defined(QUASAR_GRADIENT)
#include "quasar/gradient.cu"

/* q, k and v and their gradients [batch, held, heads, S], the outputs' gradient [batch, tokens, heads, S]. */
#define GRADIENT_PARAMETERS                                                                                  \
	void *q, void *k, void *v, void *output_gradient, void *q_gradient, void *k_gradient,                \
		void *v_gradient, const float *beta, const float *initial_state, float *final_state,         \
		const long long *first_rows, const float *final_gradient, float *initial_gradient,           \
		float *beta_terms, float *beta_gradient, void *working, int tokens, int held, int batch,     \
		int heads, int chunks, int first_chunk, int part_chunks, int chunks_per_group, int groups
#define GRADIENT_ARGUMENTS                                                                                   \
	{                                                                                                    \
		{rows_of(q, held, heads), rows_of(k, held, heads), rows_of(v, held, heads), {}, beta,        \
			initial_state, final_state, first_rows, NULL, NULL, NULL, tokens, batch, heads,      \
			chunks, chunks_per_group, groups},                                                   \
			rows_of(output_gradient, tokens, heads), rows_of(q_gradient, held, heads),           \
			rows_of(k_gradient, held, heads), rows_of(v_gradient, held, heads), final_gradient,  \
			initial_gradient, beta_terms, beta_gradient, working, first_chunk, part_chunks       \
	}

extern "C" __global__ void __launch_bounds__(THREADS, MAPS_BLOCKS) quasar_gradient_maps(GRADIENT_PARAMETERS)
{
	make_maps(GRADIENT_ARGUMENTS);
}

extern "C" __global__ void __launch_bounds__(THREADS) quasar_gradient_compose(GRADIENT_PARAMETERS)
{
	compose_group(GRADIENT_ARGUMENTS);
}

extern "C" __global__ void __launch_bounds__(THREADS) quasar_gradient_states(GRADIENT_PARAMETERS)
{
	make_states(GRADIENT_ARGUMENTS);
}

extern "C" __global__ void __launch_bounds__(THREADS, ROWS_BLOCKS) quasar_gradient_rows(GRADIENT_PARAMETERS)
{
	make_row_gradients(GRADIENT_ARGUMENTS);
}

extern "C" __global__ void __launch_bounds__(GRADIENT_BETA_THREADS) quasar_gradient_beta(GRADIENT_PARAMETERS)
{
	sum_beta_terms(GRADIENT_ARGUMENTS);
}

#elif defined(QUASAR_CHOICE)
#include "quasar/choice.h"

/* How quasar/chunk.cu is to be built and launched: as tuning found, or, where `tuned_chunk` is 0, by rule. */
extern "C" __global__ void quasar_choice(int dim, int input, int upstream, int sequences, int rows,
	int capability, int multiprocessors, int shared_per_block, int shared_per_multiprocessor,
	int tuned_chunk, int tuned_num_stages, int tuned_min_blocks, int tuned_product_warps,
	int tuned_num_launches, int tuned_groups, int *found)
{
	const struct chunk_problem problem = {dim, input, upstream, sequences, rows};
	const struct choice_machine machine = {
		capability, multiprocessors, shared_per_block, shared_per_multiprocessor};
	const struct chunk_choice tuned = {tuned_chunk, tuned_num_stages, tuned_min_blocks,
		tuned_product_warps, tuned_num_launches, tuned_groups};
	const struct chunk_choice choice = chunk_adopt(&problem, &machine, &tuned);
	const int chunk = choice.chunk, chunks = (rows + chunk - 1) / chunk, planes = CHUNK_PLANES(input);
	const int values[] = {choice.chunk, choice.num_stages, choice.min_blocks, choice.product_warps,
		choice.num_launches, chunks, (chunks + choice.groups - 1) / choice.groups, choice.groups,
		CHUNK_THREADS(dim, choice.num_stages), CHUNK_THREADS(dim, 2), CHUNKS_AT_ONCE(dim, chunk),
		CHUNK_INVERSE_SHARED(dim, chunk, planes),
		CHUNK_TRANSITION_SHARED(dim, chunk, planes, choice.num_stages, choice.num_launches),
		CHUNK_OUTPUT_SHARED(dim, chunk, planes, choice.num_stages, choice.num_launches, upstream),
		CHUNK_SQUARE_BYTES(chunk, planes), CHUNK_TRANSITION_BYTES(dim, planes)};

	for (int i = 0; i < sizeof(values) / sizeof(values[0]); i++)
		found[i] = values[i];
}

#elif defined(QUASAR_GRADIENT_CHOICE)
#include "quasar/choice.h"

/* How quasar/gradient.cu is to be launched. */
extern "C" __global__ void quasar_gradient_choice(int dim, int upstream, int sequences, int rows,
	int capability, int multiprocessors, int shared_per_block, int shared_per_multiprocessor, int *found)
{
	const struct chunk_problem problem = {dim, INPUT_BF16, upstream, sequences, rows};
	const struct choice_machine machine = {
		capability, multiprocessors, shared_per_block, shared_per_multiprocessor};
	const struct gradient_choice choice = gradient_choose(&problem, &machine);
	const int values[] = {(rows + UPSTREAM_CHUNK - 1) / UPSTREAM_CHUNK, choice.part_chunks,
		choice.chunks_per_group, GRADIENT_THREADS(dim), GRADIENT_MAPS_SHARED(dim, upstream),
		GRADIENT_CHAIN_SHARED(dim), GRADIENT_ROWS_SHARED(dim, upstream), GRADIENT_SQUARE,
		GRADIENT_STATE(dim)};

	for (int i = 0; i < sizeof(values) / sizeof(values[0]); i++)
		found[i] = values[i];
}

#elif defined(LAYER_GATHER)
#include "layer/gather.cu"

extern "C" __global__ void __launch_bounds__(THREADS) layer_gather_entry(
	const void *from, void *to, int tokens, int padded, int first, int stretches, int length, int hidden)
{
	gather({from, to, {tokens, padded, first, stretches, length}, hidden});
}

#elif defined(LAYER_CONVOLVE)
#include "layer/convolve.cu"

extern "C" __global__ void __launch_bounds__(THREADS) layer_convolve_entry(const void *projected,
	const float *weight, void *q, void *k, void *v, void *narrow, int tokens, int padded, int first,
	int stretches, int length, int held, int strip)
{
	convolve_stretch({projected, weight, q, k, v, narrow, {tokens, padded, first, stretches, length},
		held, strip});
}

#elif defined(LAYER_PROJECT)
#include "layer/project.cu"

extern "C" __global__ void __launch_bounds__(LAYER_THREADS) layer_tile_entry(const void *from, void *to)
{
	tile_weights({from, to});
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
	layer_project_entry(const void *x, const void *weight, const float *taps, void *q, void *k, void *v,
		void *narrow, int tokens, int padded, int first, int stretches, int length, int sequences)
{
	project({x, weight, taps, q, k, v, narrow, {tokens, padded, first, stretches, length}, sequences});
}

#elif defined(LAYER_GATE)
#include "layer/gate.cu"

extern "C" __global__ void __launch_bounds__(THREADS)
	layer_gate_entry(const void *o, int o_row, int o_head, void *y, const void *narrow,
		const void *weight, const void *bias, const float *norm, int rows, int heads, double epsilon)
{
	gate_rows({o, o_row, o_head, y, narrow, weight, bias, norm, rows, heads, (float)epsilon});
}
#endif
