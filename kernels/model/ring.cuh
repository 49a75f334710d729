/* ring: weights on their way through shared memory. A step knows in which order it needs them, and they do not depend on what
 * it computes: so the next ones are asked for as soon as there is room, and memory is read while blocks wait for each other,
 * normalise or attend. A slot has rows of a tile, or a part of their columns. */
#pragma once

#include "common/tile.cuh"
#include "model/activation.cuh"
#include "model/stream.cuh"

/* Counted in slots, from the start of the step. */
struct ring {
	int taken; /* that are free again */
};

#if STREAMED

#define SLOT_BYTES MODEL_SLOT_BYTES(CHUNK, INPUT)
#define ASKER (MODEL_WARPS - 1) /* the warp that has the least to do else */
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

static __device__ __forceinline__ unsigned slot_barrier(int slot)
{
	return (unsigned)__cvta_generic_to_shared(memory) + SLOTS_AT + SLOTS * SLOT_BYTES + slot % SLOTS * 8;
}

/* What is asked for next; in shared memory, behind the slots and their barriers. Only one warp has to do with it. */
struct orders {
	const char *weights[PRODUCTS];
	long long layer_bytes;
	int layer_count, products; /* of the last layer, and behind it */
	int asked;                 /* slots that are there, or on their way */
	int product, layer, at;
};
static_assert(sizeof(struct orders) <= MODEL_ORDERS_BYTES, "as the host counts");

static __device__ __forceinline__ struct orders &orders_of_block(void)
{
	return *(struct orders *)(memory + SLOTS_AT + SLOTS * (SLOT_BYTES + 8));
}

template <int PRODUCT> static __device__ __forceinline__ constexpr int row_bytes_of(void)
{
	return (SHARE(PRODUCT).chunk | 1) * SLICE_BYTES;
}

static __device__ __forceinline__ void copy_row(unsigned to, const char *from, int bytes, unsigned barrier)
{
	/* nothing of it is read again in this step: what else the second-level cache has is to stay there */
	unsigned long long once;

	asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(once));
	asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
		     "[%0], [%1], %2, [%3], %4;" ::"r"(to),
		     "l"(from), "r"(bytes), "r"(barrier), "l"(once)
		     : "memory");
}

/* Asks for slot `at` of a product, by a warp: a lane a row. */
template <int PRODUCT>
static __device__ __forceinline__ void ask(const struct orders &orders, int layer, int at, int slot)
{
	constexpr struct sharing share = SHARE(PRODUCT);
	const int wave = at / (share.groups * share.wave), rest = at % (share.groups * share.wave);
	const int chunk = wave % share.waves * share.wave + rest % share.wave, lane = THREAD % 32;
	const int tile = (wave / share.waves * share.groups + rest / share.wave) * share.lanes + blockIdx.x;
	const int row = row_of<PRODUCT>(tile, lane % 8 * 4) + (lane < 8 ? 0 : rows_apart<PRODUCT>());
	const bool there = lane < (share.half ? 8 : 16) && tile < share.tiles && chunk < share.chunks &&
		row < share.rows && is_row<PRODUCT>(row_of<PRODUCT>(tile, lane % 8 * 4));
	const int bytes = min(share.chunk, share.slices - chunk * share.chunk) * SLICE_BYTES;
	const unsigned rows = __ballot_sync(~0u, there);

	if (lane == 0)
		asm volatile(
			"mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(slot_barrier(slot)),
			"r"(__popc(rows) * bytes)
			: "memory");
	__syncwarp();
	if (there)
		copy_row(slot_address(slot) + lane * row_bytes_of<PRODUCT>(),
			orders.weights[PRODUCT] + layer * orders.layer_bytes +
				((long long)row * share.slices + chunk * share.chunk) * SLICE_BYTES,
			bytes, slot_barrier(slot));
}

/* The next slots, while there is room; by one warp, when all have met. One copy of it is enough. */
static __device__ __noinline__ void ask_on(int taken)
{
	struct orders &orders = orders_of_block();
	int asked = orders.asked, product = orders.product, layer = orders.layer, at = orders.at;

#pragma unroll 1
	for (; asked < taken + SLOTS && product < orders.products; asked++) {
		int slots;

#define ASK(number, of_layer)                                                                                \
	if (product == number) {                                                                             \
		ask<number>(orders, of_layer, at, asked);                                                    \
		slots = SHARE(number).slots;                                                                 \
	}
		ASK(QKV, layer)
		ASK(OUTPUT, layer)
		ASK(GATE_UP, layer)
		ASK(DOWN, layer)
		ASK(LOGITS, 0)
#undef ASK
		if (++at < slots)
			continue;
		at = 0;
		product++;
		if (product == LOGITS && ++layer < orders.layer_count)
			product = QKV;
	}
	__syncwarp();
	if (THREAD % 32 == 0) {
		orders.asked = asked, orders.product = product;
		orders.layer = layer, orders.at = at;
	}
	__syncwarp();
}

static __device__ __forceinline__ void refill(const struct ring &ring)
{
	if (THREAD / 32 == ASKER)
		ask_on(ring.taken);
}

static __device__ __forceinline__ void open_ring(const struct model_step_arguments &a, struct ring &ring)
{
	struct orders &orders = orders_of_block();

	if (THREAD < SLOTS)
		asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(slot_barrier(THREAD)) : "memory");
	asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
	asm volatile("fence.proxy.async;" ::: "memory");
	if (THREAD < PRODUCTS)
		orders.weights[THREAD] = (const char *)a.products[THREAD].weights;
	if (THREAD == 0) {
		orders.layer_bytes = a.layer_bytes, orders.layer_count = a.layer_count;
		orders.products = a.output_count > 0 ? PRODUCTS : LOGITS;
		orders.asked = orders.product = orders.layer = orders.at = 0;
	}
	__syncthreads();
	refill(ring);
}

/* Until it is there. */
static __device__ __forceinline__ void wait_for(int slot)
{
	unsigned done;

	do
		asm volatile("{ .reg .pred p;\n"
			     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
			     "selp.u32 %0, 1, 0, p; }"
			     : "=r"(done)
			     : "r"(slot_barrier(slot)), "r"(slot / SLOTS & 1)
			     : "memory");
	while (!done);
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

#else

static __device__ __forceinline__ void open_ring(const struct model_step_arguments &a, struct ring &ring)
{
}

#endif
