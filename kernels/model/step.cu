/* model_step: takes up to MODEL_ROWS tokens of any sessions through a whole language model, in one launch: what each
 * product needs is there as soon as all blocks have finished the one before, and until then its weights are on their
 * way: for a single token through shared memory, a good part of a layer ahead (ring.cuh), else to registers (stream.cuh).
 * All weights are read once.
 *
 * A layer has five parts. All blocks wait for each other before each; with a single token whose weights pass through shared
 * memory, each waits for just the numbers it needs, which are sent with a number of their own (parcel.cuh):
 *   1. queries, keys and values of the normalised x; they turn, and keys and values go to the sessions
 *      (with norms of heads, a part of its own does that);
 *   2. attention, in parts of sequences;
 *   3. x += its output product, which puts the parts together;
 *   4. silu(gate) · up of the normalised x;
 *   5. x += the down product of that.
 * With more than eight tokens, what products 1, 3 and 4 take in is made before them once for all blocks, which is a part of
 * its own, too. x, and all between the products, is fp32. The order of all sums is fixed for a number of tokens, so that the same
 * input gives the same bits.
 *
 * Compile-time parameters: the model's, INPUT (of the weights), HIDDEN, INTERMEDIATE, HEADS, KV_HEADS, HEAD_DIM (a multiple
 * of 4), HEAD_NORMS (0 or 1) and VOCABULARY; GROUP (heads that share their keys, at a time: MODEL_GROUP at most), TOKENS
 * (of a step, at most: 1, or eight at a time up to MODEL_ROWS), STAGE (slices of activations that shared memory holds:
 * MODEL_DEPTH at least), SLOTS (of weights in shared memory, 0 or at least 2) and CHUNK (slices of one), BLOCKS (one for each
 * multiprocessor). */
#include "model/attention.cuh"
#include "model/product.cuh"

/* x of the tokens, and how far pairs turn at their positions. */
static __device__ __forceinline__ void look_up(const struct model_step_arguments &a)
{
	const int thread = blockIdx.x * MODEL_THREADS + threadIdx.x, threads = BLOCKS * MODEL_THREADS;
	const long long width = divide_up(HIDDEN, MODEL_SLICE) * MODEL_SLICE;
	const int tiles = SHARE(DOWN).tiles, tile_rows = SHARE(DOWN).half ? 8 : 16;

	/* a warp a tile of a row, of the block that changes it later */
	for (int i = blockIdx.x + threadIdx.x / 32 * BLOCKS; i < a.row_count * tiles; i += threads / 32) {
		const int row = i / tiles, tile = i % tiles, lane = thread % 32,
			  column = tile * tile_rows + lane;
		float squares = 0, x = 0;

		if (lane < tile_rows && column < HIDDEN) {
			x = element_float(((const ELEMENT *)a.embedding)[a.rows[row].token * width + column]);

			a.x[row * HIDDEN + column] = x;
			squares = x * x;
		}
		for (int other = 16; other; other /= 2)
			squares += __shfl_xor_sync(~0u, squares, other);
#if STREAMED
		for (int i = 0; i < tile_rows / 8; i++)
			if (tile * tile_rows / 8 + i < OCTETS(HIDDEN))
				send_octet(a, NEXT_X_AT, tile * tile_rows / 8 + i, x, i * 8, 1,
					i ? 0 : squares, a.number);
#else
		if (lane == 0)
			a.squares[tile * MODEL_ROWS + row] = squares;
#endif
	}
	/* where blocks do not wait for each other, each makes all of them: the same */
	for (int i = STREAMED ? threadIdx.x : thread; i < a.row_count * (HEAD_DIM / 2);
		i += STREAMED ? MODEL_THREADS : threads) {
		const float angle = (float)a.rows[i / (HEAD_DIM / 2)].position *
			a.frequencies[i % (HEAD_DIM / 2)];

		((float2 *)a.angles)[i] = make_float2(cosf(angle), sinf(angle));
	}
	for (int i = thread; !STREAMED && i < a.output_count; i += threads)
		*a.outputs[i].best = 0;
	if (STREAMED)
		meet_block();
}

#if HEAD_NORMS
/* A warp a head of a row. */
static __device__ __forceinline__ void normalise_heads(const struct model_step_arguments &a, int layer)
{
	const int heads = HEADS + KV_HEADS, lane = threadIdx.x % 32;

	for (int item = blockIdx.x + threadIdx.x / 32 * BLOCKS; item < a.row_count * heads;
		item += MODEL_WARPS * BLOCKS) {
		const int row = item / heads, head = item % heads;
		const float *from = a.heads_at + item * HEAD_DIM;
		const float *norm = of_layer(a, head < HEADS ? a.q_norm : a.k_norm, layer);
		float squares = 0, scale;

		for (int i = lane; i < HEAD_DIM; i += 32)
			squares += __ldcg(from + i) * __ldcg(from + i);
		for (int other = 16; other; other /= 2)
			squares += __shfl_xor_sync(~0u, squares, other);
		scale = 1 / sqrtf(squares / HEAD_DIM + a.epsilon);
		for (int i = lane; i < HEAD_DIM / 2; i += 32) {
			float low = __ldcg(from + i) * scale * norm[i];
			float high = __ldcg(from + HEAD_DIM / 2 + i) * scale * norm[HEAD_DIM / 2 + i];

			turn(a, row, i, low, high);
			put(a, layer, row, head, i, low, high);
		}
	}
}
#endif

/* Has what a product takes in made, where that is done once for all blocks. */
template <int PRODUCT>
static __device__ __forceinline__ void prepare(
	const struct model_step_arguments &a, int layer, int tokens, struct barrier &barrier)
{
#if MADE_ONCE
	meet(barrier);
	make_planes<PRODUCT>(a, layer, tokens);
#endif
}

extern "C" __global__ void __launch_bounds__(MODEL_LAUNCHED(SLOTS), 1)
	model_step(const __grid_constant__ struct model_step_arguments a)
{
	struct barrier barrier = {a.barrier, 0};
	struct ring ring = {};

#if STREAMED
	open_ring(a);
	if (THREAD / 32 == MODEL_WARPS) {
		ask_for_all(a);
		return;
	}
#endif
	look_up(a);
#pragma unroll 1
	for (int layer = 0; layer < a.layer_count; layer++) {
		prepare<QKV>(a, layer, a.row_count, barrier);
		multiply<QKV>(a, layer, a.row_count, barrier, ring);
#if HEAD_NORMS
		meet(barrier);
		normalise_heads(a, layer);
#endif
		if (!SENDS_HEADS)
			meet(barrier);
		attention(a, layer);
		prepare<OUTPUT>(a, layer, a.row_count, barrier);
		multiply<OUTPUT>(a, layer, a.row_count, barrier, ring);
		prepare<GATE_UP>(a, layer, a.row_count, barrier);
		multiply<GATE_UP>(a, layer, a.row_count, barrier, ring);
		multiply<DOWN>(a, layer, a.row_count, barrier, ring);
	}
	if (a.output_count > 0) {
		prepare<LOGITS>(a, 0, a.output_count, barrier);
		multiply<LOGITS>(a, 0, a.output_count, barrier, ring);
	}
	if (!SENDS_HEADS)
		leave(barrier);
}
