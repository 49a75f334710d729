/* plan: the products of a step, and how blocks and warps share them. All that is known when the kernel is compiled, which is
 * done for one model and one GPU: so what a warp has to do of a product is a few instructions. */
#pragma once

#include "model/arguments.h"

#define TILES MODEL_TILES(TOKENS)
#define STREAMED (SLOTS > 0) /* weights pass through shared memory */

/* Of the block. It is asked for where it is needed: else what follows from it would be kept for the whole kernel, in more
 * registers than there are. */
static __device__ __forceinline__ int thread_here(void)
{
	int thread;

	asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
	return thread;
}
#define THREAD thread_here()

/* Waits for all that multiply and attend: the warp that asks for weights (ring.cuh) does not stop for that. */
static __device__ __forceinline__ void meet_block(void)
{
#if STREAMED
	asm volatile("bar.sync 1, %0;" ::"n"(MODEL_THREADS) : "memory");
#else
	__syncthreads();
#endif
}

static __device__ constexpr int divide_up(int a, int b)
{
	return (a + b - 1) / b;
}

static __device__ constexpr int min_of(int a, int b)
{
	return a < b ? a : b;
}

/* A product is done in tiles of 16 rows of weights, or of eight where there are so few. Blocks share the tiles, `lanes` of
 * them; where there are more `pieces` of the columns than one, as many blocks have the same tiles, each a piece of them.
 * Of a block, `split` warps multiply a tile, each every split-th slice. */
struct sharing {
	int rows, columns, slices;
	bool paired; /* the halves of a tile are those of pairs */
	bool half;   /* tiles of eight rows */
	int tiles;
	int pieces, lanes, piece; /* piece: slices of one */
	int split, groups,
		rounds; /* groups: of warps that have a tile each, of a block; rounds: tiles of a group */
	int depth;      /* slices that a warp has on their way, or has of a slot */
	int units;      /* slices of a warp, of a tile, and nothing to fill whole depths */
	int staged;     /* units whose activations are in shared memory at a time */

	/* where weights pass through shared memory */
	int chunk, chunks; /* slices of a slot; slots of a tile */
	int wave, waves;   /* slots of a tile, that are waited for at a time; how often */
	int slots;         /* of all of the product, of a block */
};

#define IMPOSSIBLE (1 << 30)

/* What each warp then has to do, in slices, where weights go to registers. Where activations are staged part by part, that is
 * done in every round. */
static __device__ constexpr int plan_registers(struct sharing &share)
{
	const bool whole = share.piece <= STAGE;
	const int units = divide_up(share.piece, share.split),
		  depths = divide_up(units, MODEL_DEPTH(INPUT, TOKENS));

	share.depth = divide_up(units, depths);
	share.units = depths * share.depth;
	share.staged = whole ? share.units : STAGE / (share.split * share.depth) * share.depth;
	return share.staged ? share.rounds * (units + (whole ? 0 : share.piece)) : IMPOSSIBLE;
}

/* The same where weights pass through shared memory. */
static __device__ constexpr int plan_slots(struct sharing &share)
{
	const int most = share.rounds > 1 ? SLOTS / 2
					  : SLOTS; /* of a wave: the next one is to be on its way */

	if (share.groups > most)
		return IMPOSSIBLE;
	share.chunks = divide_up(share.slices, share.half ? 2 * CHUNK - 1 : CHUNK);
	share.chunk = divide_up(share.slices, share.chunks);
	share.depth = divide_up(share.chunk, share.split);
	share.waves = divide_up(share.chunks, most / share.groups);
	share.wave = divide_up(share.chunks, share.waves);
	share.slots = share.rounds * share.waves * share.groups * share.wave;
	return share.rounds * (share.chunks * share.depth + 4);
}

/* The way to share tiles among warps that takes them the least time. */
static __device__ constexpr struct sharing share_among_warps(const struct sharing &share)
{
	struct sharing best = share;
	int least = IMPOSSIBLE;

	for (int split = 1; split <= MODEL_WARPS; split++) {
		struct sharing way = share;

		way.split = split;
		way.groups = MODEL_WARPS / split;
		way.rounds = divide_up(share.tiles, way.groups * share.lanes);
		const int work = STREAMED ? plan_slots(way) : plan_registers(way);

		if (work >= least)
			continue;
		least = work;
		best = way;
	}
	return best;
}

static __device__ constexpr struct sharing share_in_pieces(int product, int pieces)
{
	struct sharing share = {};

	share.rows = product == QKV  ? (HEADS + 2 * KV_HEADS) * HEAD_DIM
		: product == GATE_UP ? 2 * INTERMEDIATE
		: product == LOGITS  ? VOCABULARY
				     : HIDDEN;
	share.columns = product == OUTPUT ? HEADS * HEAD_DIM : product == DOWN ? INTERMEDIATE : HIDDEN;
	share.slices = divide_up(share.columns, MODEL_SLICE);
	share.paired = product == QKV || product == GATE_UP;
	share.half = TILES == 1 && !share.paired && divide_up(share.rows, 16) < BLOCKS;
	share.tiles = divide_up(share.rows, share.half ? 8 : 16);
	share.pieces = pieces;
	share.lanes = BLOCKS / pieces;
	share.piece = divide_up(share.slices, pieces);
	return share_among_warps(share);
}

/* Into as many pieces as makes blocks move the fewest bytes: activations, weights, and sums of pieces, which also take their
 * time. With few tokens it is not worth it. */
static __device__ constexpr struct sharing share(int product)
{
	struct sharing best = share_in_pieces(product, 1);
	long long least = 1ll << 60;

	for (int pieces = 1; pieces <= MODEL_PIECES && pieces <= BLOCKS; pieces *= 2) {
		const struct sharing share = share_in_pieces(product, pieces);
		const int per_lane = divide_up(share.tiles, share.lanes);
		const bool whole = share.staged == share.units;
		const long long cost = share.piece * (long long)MODEL_SLICE *
				(TILES * 16 * MODEL_PLANES(INPUT) * (whole ? 1 : share.rounds) +
					per_lane * 16 * (INPUT == INPUT_F32 ? 4 : 2)) +
			(pieces > 1 ? 60000 + per_lane * TILES * 1024 : 0);

		if ((pieces > 1 &&
			    (TILES == 1 || product == LOGITS || per_lane > MODEL_PIECE_TILES ||
				    (pieces - 1) * share.piece >= share.slices)) ||
			cost >= least)
			continue;
		least = cost;
		best = share;
	}
	return best;
}

template <int PRODUCT> struct shared_out {
	static constexpr struct sharing of = share(PRODUCT);
};
#define SHARE(product) (shared_out<product>::of)

/* What is at the same place in another layer as `first` in the first one. */
template <typename T>
static __device__ __forceinline__ const T *of_layer(
	const struct model_step_arguments &a, const T *first, int layer)
{
	return first ? (const T *)((const char *)first + layer * a.layer_bytes) : NULL;
}

/* The first of the two rows of a tile that a lane has to do with; the second is `apart` rows behind. */
template <int PRODUCT> static __device__ __forceinline__ int row_of(int tile, int lane)
{
	constexpr struct sharing share = SHARE(PRODUCT);
	const int row = tile * (share.paired || share.half ? 8 : 16) + lane / 4;

	return PRODUCT == QKV ? row / (HEAD_DIM / 2) * HEAD_DIM + row % (HEAD_DIM / 2) : row;
}

template <int PRODUCT> static __device__ __forceinline__ constexpr int rows_apart(void)
{
	return PRODUCT == QKV ? HEAD_DIM / 2 : PRODUCT == GATE_UP ? INTERMEDIATE : 8;
}

/* Whether a tile has such a row; paired ones have both. */
template <int PRODUCT> static __device__ __forceinline__ bool is_row(int row)
{
	return row < (PRODUCT == GATE_UP ? INTERMEDIATE : SHARE(PRODUCT).rows);
}

/* This block's share, and this warp's. A warp that is in no group has no tile, nor has a block that is in no lane. */
template <int PRODUCT> static __device__ __forceinline__ int piece_of_block(void)
{
	return blockIdx.x % SHARE(PRODUCT).pieces;
}

template <int PRODUCT> static __device__ __forceinline__ int tile_of(int round)
{
	constexpr struct sharing share = SHARE(PRODUCT);
	const int group = THREAD / 32 / share.split, lane = blockIdx.x / share.pieces;

	return (share.groups * share.split < MODEL_WARPS && group >= share.groups) ||
			(share.lanes * share.pieces < BLOCKS && lane >= share.lanes)
		? share.tiles
		: (round * share.groups + group) * share.lanes + lane;
}

/* Within its piece. */
template <int PRODUCT> static __device__ __forceinline__ int slice_of(int unit)
{
	return unit * SHARE(PRODUCT).split + THREAD / 32 % SHARE(PRODUCT).split;
}

template <int PRODUCT> static __device__ __forceinline__ bool is_slice(int slice)
{
	constexpr struct sharing share = SHARE(PRODUCT);

	return slice < share.piece &&
		(share.pieces * share.piece == share.slices ||
			piece_of_block<PRODUCT>() * share.piece + slice < share.slices);
}
