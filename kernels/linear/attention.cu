/* linear_sum, linear_scan, linear_output: linear attention over a whole sequence, parallel over the sequence, and the
 * passes of its gradient. linear/layout.h says what a pass computes; all of them are
 *
 *     out_i = x_i S_i,  S_i = S₀ + Σ y_jᵀ w_j
 *
 * over all j (bidirectional), or those up to i (causal).
 *
 *   1. linear_sum: each group of chunks adds up its own S. Passes that are alike but for a transpose share it
 *      (linear/layout.h): their features are all of w, which the warps of a group have to themselves.
 *   2. linear_scan: from these the state before each group, or, bidirectional, the state of all. In order, so that
 *      the same input gives the same bits.
 *   3. linear_output: each group goes through its chunks and writes out; causal with
 *          out = X S + tril(X Yᵀ) W,  then S += Yᵀ W
 *
 * K and V are read twice, Q and O once. A warp works for itself (walk.cuh):
 * it owns VALUE_TILE columns of S, transposed, in registers, and takes sixteen tokens at a time. Which thread holds which
 * element is chosen so that the result of one product is a factor of the next as it lies in registers, and that threads
 * have whole pieces of rows: thread 4g + t of the warp (g = 0 … 7, t = 0 … 3) has
 *     as rows      rows g and g + 8, of each every fourth piece from the t-th on: x, and y where there are scores
 *     as columns   rows 2t, 2t + 1, 2t + 8, 2t + 9, of each every eighth piece from the g-th on: all others
 * a piece being 16 bytes. Which element stands where in a factor's tiles of 8 × 8 is whatever a thread has at hand: any
 * order does, as long as both factors have the same. Rows come from memory NUM_STAGES − 1 chunks ahead, and go back to it,
 * through a warp's own shared memory, so that eight threads side by side, which memory serves at a time, ask for a whole
 * row.
 *
 * Products run in bf16 with fp32 sums. fp16 and fp32 are carried in two and three bf16 (LINEAR_PLANES), whose exponents
 * are as wide as fp32's: states that grow with the sequence overflow nowhere. The divisor φ(q) Σ φ(k) is an fp32 sum of
 * the same φ(q) and φ(k) as the products'. No sum is longer than a group's share of the sequence: those of groups are
 * added by linear_scan.
 *
 * Compile-time parameters, of the problem:
 *   PASS, FEATURE         see linear/layout.h
 *   KEY_DIM, VALUE_DIM    of x and y, of w and out: 32, 64 or 128
 *   CAUSAL, NORMALISED    1 or 0
 *   INPUT, VECTOR         see common/element.cuh
 * and tunables (lib/op/linear/config.c):
 *   VALUE_TILE   columns of S that a warp owns: 16, 32 or 64
 *   NUM_WARPS    of a block
 *   NUM_STAGES   chunks in shared memory: the one that is worked on, and those on their way
 *   MIN_BLOCKS   blocks that must fit a multiprocessor; bounds registers */
#include "linear/walk.cuh"

static __device__ __forceinline__ float *record_of(const struct linear_arguments &a, int sequence, int group)
{
	return a.records + ((long long)sequence * a.groups + group) * RECORD;
}

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
	linear_output(const __grid_constant__ struct linear_arguments a)
{
	wait_for_launch_before();

	const struct place place = find_place(a);
	struct state state;

	if (place.group >= a.groups)
		return;
	struct stage<true> from(a, place);

	begin_walk(a, from, place);
	const float *record = record_of(a, place.sequence, CAUSAL ? place.group : 0);

	if constexpr (AUGMENTED)
		load_state(record, state, place);
	else
		load_transposed(record, state, place);
	walk(a, from, state, place);
}

#if AUGMENTED /* the passes whose sums all passes start from */
extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
	linear_sum(const __grid_constant__ struct linear_arguments a)
{
	wait_for_launch_before();

	const struct place place = find_place(a);
	struct state state = {};

	if (place.group >= a.groups) /* causal only: no barriers follow */
		return;
	struct stage<false> from(a, place);

	begin_walk(a, from, place);
	walk(a, from, state, place);
	if (!CAUSAL)
		add_up_warps(state, place);
	if (CAUSAL || place.warp == 0)
		store_state(record_of(a, place.sequence, place.group), state, place);
}

/* A number of a sequence's records to each thread. */
extern "C" __global__ void __launch_bounds__(SCAN_THREADS)
	linear_scan(const __grid_constant__ struct linear_arguments a)
{
	wait_for_launch_before();

	const long long index = (long long)blockIdx.x * SCAN_THREADS + threadIdx.x;
	const int sequence = (int)(index / RECORD), number = (int)(index % RECORD);
	const int square = KEY_DIM * VALUE_DIM, sums = (int)RECORD - square;
	/* a record's matrix is [V, K], a state is [K, V] */
	const long long at = number < square
		? (long long)sequence * square + number % VALUE_DIM * KEY_DIM + number / VALUE_DIM
		: (long long)sequence * sums + number - square;
	const float *initial = number < square ? a.initial_state : a.initial_sum;
	float *final = number < square ? a.final_state : a.final_sum;

	if (sequence >= a.batch * a.heads)
		return;
	float *records = record_of(a, sequence, 0) + number, sum = initial ? initial[at] : 0.0f;

	for (int group = 0; group < a.groups; group += SCAN_AT_ONCE) {
		float own[SCAN_AT_ONCE];

		UNROLL
		for (int i = 0; i < SCAN_AT_ONCE; i++)
			own[i] = records[min(group + i, a.groups - 1) * RECORD]; /* none waits for a branch */
		UNROLL
		for (int i = 0; i < SCAN_AT_ONCE; i++) {
			if (CAUSAL && group + i < a.groups)
				records[(group + i) * RECORD] = sum;
			sum += group + i < a.groups ? own[i] : 0.0f;
		}
	}
	if (!CAUSAL)
		records[0] = sum;
	if (final)
		final[at] = sum;
}
#endif
