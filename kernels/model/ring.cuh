/* ring: weights on their way through shared memory. A step knows in which order it needs them, and they do not depend on what
 * it computes: so a warp that does nothing else asks for the next ones as soon as there is room, and memory is read while
 * blocks wait for each other, normalise or attend. A slot has rows of a tile, or a part of their columns. */
#pragma once

#include "common/mbarrier.cuh"
#include "common/tile.cuh"
#include "model/activation.cuh"
#include "model/stream.cuh"

/* Counted in slots, from the start of the step. */
struct ring {
	int taken; /* that are free again */
};

#if STREAMED

#define SLOT_BYTES MODEL_SLOT_BYTES(CHUNK, INPUT)
#define SLICE_BYTES (MODEL_SLICE * MODEL_WEIGHT_BYTES(INPUT))
#define SLOTS_AT                                                                                             \
	((max_of(sizeof(struct product_memory), sizeof(struct attention)) + 127) / 128 *                     \
		128) /* in `memory` */

static __device__ constexpr int max_of(int a, int b)
{
	return a > b ? a : b;
}

/* Addresses in shared memory. */
static __device__ __forceinline__ unsigned slot_address(int slot)
{
	return (unsigned)__cvta_generic_to_shared(memory) + SLOTS_AT + slot % SLOTS * SLOT_BYTES;
}

/* Whether it is filled, and whether all are done with it: mbarriers. */
static __device__ __forceinline__ unsigned slot_filled(int slot)
{
	return (unsigned)__cvta_generic_to_shared(memory) + SLOTS_AT + SLOTS * SLOT_BYTES + slot % SLOTS * 16;
}

static __device__ __forceinline__ unsigned slot_freed(int slot)
{
	return slot_filled(slot) + 8;
}

template <int PRODUCT> static __device__ __forceinline__ constexpr int row_bytes_of(void)
{
	return (SHARE(PRODUCT).chunk | 1) * SLICE_BYTES;
}

/* What a product's slots have, for the warp that asks for them: it goes through the same few instructions for all. */
struct order {
	const char *weights;
	long long layer_bytes;
	int rows, first_rows; /* first_rows: those that can be the first of two that are apart */
	int tiles, tile_rows, apart, slot_rows;
	int slices, chunk, chunks, row_bytes;
	int wave, waves, groups, rounds;
};

/* A slot of all that a step takes. */
struct place {
	int number, product, layer, round, wave, group, part; /* part: of a wave */
};

/* In shared memory, behind the slots and their barriers. */
struct orders {
	struct order of[PRODUCTS];
};
static_assert(sizeof(struct orders) <= MODEL_ORDERS_BYTES, "as the host counts");

static __device__ __forceinline__ struct orders &orders_of_block(void)
{
	return *(struct orders *)(memory + SLOTS_AT + SLOTS * (SLOT_BYTES + 16));
}

template <int PRODUCT>
static __device__ __forceinline__ struct order order_of(const struct model_step_arguments &a)
{
	constexpr struct sharing share = SHARE(PRODUCT);

	return {(const char *)a.products[PRODUCT].weights, PRODUCT == LOGITS ? 0 : a.layer_bytes, share.rows,
		PRODUCT == GATE_UP ? INTERMEDIATE : share.rows, share.tiles,
		share.paired || share.half ? 8 : 16, rows_apart<PRODUCT>(), share.half ? 8 : 16, share.slices,
		share.chunk, share.chunks, row_bytes_of<PRODUCT>(), share.wave, share.waves, share.groups,
		share.rounds};
}

static __device__ __forceinline__ void copy_row(
	unsigned to, const char *from, int bytes, unsigned barrier, unsigned long long policy)
{
	asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
		     "[%0], [%1], %2, [%3], %4;" ::"r"(to),
		     "l"(from), "r"(bytes), "r"(barrier), "l"(policy)
		     : "memory");
}

/* Asks for a slot, by a warp: a lane a row. */
static __device__ __forceinline__ void ask(
	const struct order &of, const struct place &at, unsigned long long policy)
{
	const int tile = (at.round * of.groups + at.group) * BLOCKS + blockIdx.x, lane = THREAD % 32;
	const int chunk = at.wave * of.wave + at.part,
		  bytes = min(of.chunk, of.slices - chunk * of.chunk) * SLICE_BYTES;
	const int low = tile * of.tile_rows + lane % 8,
		  first = at.product == QKV ? low / (HEAD_DIM / 2) * HEAD_DIM + low % (HEAD_DIM / 2) : low,
		  row = lane < 8 ? first : first + of.apart;
	const bool there = lane < of.slot_rows && tile < of.tiles && chunk < of.chunks &&
		first < of.first_rows && row < of.rows;
	const int rows = __popc(__ballot_sync(~0u, there));

	if (lane == 0)
		mbarrier_expect(slot_filled(at.number), rows * bytes);
	__syncwarp();
	if (there)
		copy_row(slot_address(at.number) + lane * of.row_bytes,
			of.weights + at.layer * of.layer_bytes +
				((long long)row * of.slices + chunk * of.chunk) * SLICE_BYTES,
			bytes, slot_filled(at.number), policy);
}

static __device__ __forceinline__ void turn_to_next(
	const struct order &of, struct place &place, int layer_count)
{
	place.number++;
	if (++place.part < of.wave)
		return;
	place.part = 0;
	if (++place.group < of.groups)
		return;
	place.group = 0;
	if (++place.wave < of.waves)
		return;
	place.wave = 0;
	if (++place.round < of.rounds)
		return;
	place.round = 0;
	place.product++;
	if (place.product == LOGITS && ++place.layer < layer_count)
		place.product = QKV;
}

/* Until it is there. */
static __device__ __forceinline__ void wait_for(int slot)
{
	mbarrier_wait(slot_filled(slot), slot / SLOTS & 1);
}

/* The next `count` slots are free again, once all have met. A block that has no use for them waits for them, too: what is told of
 * a slot is the parity of its turn, so that whoever asks must never be two turns behind. */
static __device__ __forceinline__ void free_slots(struct ring &ring, int count)
{
	for (int i = THREAD; i < count; i += MODEL_THREADS) {
		wait_for(ring.taken + i);
		mbarrier_arrive(slot_freed(ring.taken + i));
	}
	ring.taken += count;
}

/* Asks for all that a step takes, by a warp of its own. */
static __device__ __forceinline__ void ask_for_all(const struct model_step_arguments &a)
{
	const struct orders &orders = orders_of_block();
	const int products = a.output_count > 0 ? PRODUCTS : LOGITS; /* of the last layer, and behind it */
	struct place next = {};
	unsigned long long
		once; /* nothing is read again in this step: what else the second-level cache has stays there */

	asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(once));
#pragma unroll 1
	while (next.product < products) {
		const struct order &of = orders.of[next.product];

		if (next.number >= SLOTS)
			mbarrier_wait(slot_freed(next.number), (next.number / SLOTS - 1) & 1);
		ask(of, next, once);
		turn_to_next(of, next, a.layer_count);
	}
}

static __device__ __forceinline__ void open_ring(const struct model_step_arguments &a)
{
	if (THREAD < SLOTS) {
		mbarrier_init(slot_filled(THREAD), 1);
		mbarrier_init(slot_freed(THREAD), 1);
	}
	mbarrier_publish();
	asm volatile("fence.proxy.async;" ::: "memory");
	if (THREAD == 0)
		orders_of_block() = {{order_of<QKV>(a), order_of<OUTPUT>(a), order_of<GATE_UP>(a),
			order_of<DOWN>(a), order_of<LOGITS>(a)}};
	__syncthreads();
}

/* A lane's numbers of slice `at` of a slot. */
template <int PRODUCT>
static __device__ __forceinline__ void take(uint4 (&read)[2][SECTIONS], int slot, int at, int lane)
{
	const unsigned from = slot_address(slot) + lane / 4 * row_bytes_of<PRODUCT>() + at * SLICE_BYTES +
		lane % 4 * (SLICE_BYTES / 4);

#pragma unroll
	for (int n = 0; n < SECTIONS; n++) {
		read[0][n] = load_shared(from + n * 16);
		read[1][n] = SHARE(PRODUCT).half ? make_uint4(0, 0, 0, 0)
						 : load_shared(from + 8 * row_bytes_of<PRODUCT>() + n * 16);
	}
}

#endif
