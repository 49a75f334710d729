/* product: rows of weights times the activations of a few tokens, on the tensor cores.
 *
 * A warp multiplies tiles: 16 rows of weights, as the left factor, with eight tokens at a time, slice by slice of 32
 * columns. Which columns of a slice are which terms of an mma is free, as long as both factors agree: a lane has eight
 * in a row, so that it reads 16 bytes of weights at a time, from memory straight into the registers of the mma. It reads
 * them some slices ahead (stream.cuh), the first ones already before the blocks have waited for each other, for weights
 * do not change. The two halves of a tile are any eight rows each: where two numbers of a product go together (the halves
 * of a pair that turns; gate and up), they are in one lane. */
#pragma once

#include "model/activation.cuh"
#include "model/barrier.cuh"
#include "model/result.cuh"
#include "model/ring.cuh"
#include "model/stream.cuh"

#define WEIGHT_PLANES (INPUT == INPUT_F32 ? PLANES : 1)

static __device__ __forceinline__ void multiply_add_tile(
	float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1)
{
#if INPUT == INPUT_F16
	asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
	    "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
		: "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
		: "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
	multiply_add(c, a, b0, b1);
#endif
}

/* The left factors of both mma of a slice: [plane][mma][register]. */
static __device__ __forceinline__ void unpack(
	unsigned (&w)[WEIGHT_PLANES][2][4], const uint4 (&read)[2][SECTIONS])
{
#pragma unroll
	for (int half = 0; half < 2; half++) {
#if INPUT == INPUT_F32
#pragma unroll
		for (int i = 0; i < 4; i++) {
			const uint4 four = read[half][i / 2];
			unsigned pairs[WEIGHT_PLANES];

			split_pair(pairs, __uint_as_float(i % 2 ? four.z : four.x),
				__uint_as_float(i % 2 ? four.w : four.y));
#pragma unroll
			for (int p = 0; p < WEIGHT_PLANES; p++)
				w[p][i / 2][i % 2 * 2 + half] = pairs[p];
		}
#else
		w[0][0][half] = read[half][0].x, w[0][0][2 + half] = read[half][0].y;
		w[0][1][half] = read[half][0].z, w[0][1][2 + half] = read[half][0].w;
#endif
	}
}

/* c += a slice of weights · that of the activations. Products of two small parts are left out. */
static __device__ __forceinline__ void multiply_slice(float (&c)[TILES][4], const uint4 (&read)[2][SECTIONS],
	const uint4 (&staged)[TILES][PLANES][MODEL_SLICE_LANES(TOKENS)])
{
	unsigned w[WEIGHT_PLANES][2][4];

	unpack(w, read);
#pragma unroll
	for (int p = PLANES; p-- > 0;) {
		uint4 b[TILES];

#pragma unroll
		for (int tile = 0; tile < TILES; tile++)
			b[tile] = staged[tile][p][THREAD % MODEL_SLICE_LANES(TOKENS)];
#pragma unroll
		for (int q = 0; q < WEIGHT_PLANES && q + p < PLANES; q++) {
#pragma unroll
			for (int tile = 0; tile < TILES; tile++)
				multiply_add_tile(c[tile], w[q][0], b[tile].x, b[tile].y);
#pragma unroll
			for (int tile = 0; tile < TILES; tile++)
				multiply_add_tile(c[tile], w[q][1], b[tile].z, b[tile].w);
		}
	}
}

/* Waits for the warps that have the same tile. Each group has a barrier of its own, whose number stands in the
 * instruction: with numbers in registers ptxas takes it that a block uses all sixteen. */
template <int SPLIT, int GROUP_NUMBER = 0> static __device__ __forceinline__ void meet_group(void)
{
	if constexpr (SPLIT > 1 && GROUP_NUMBER < MODEL_WARPS / SPLIT) {
		if (THREAD / 32 / SPLIT == GROUP_NUMBER)
			asm volatile("bar.sync %0, %1;" ::"n"(2 + GROUP_NUMBER), "n"(SPLIT * 32) : "memory");
		else
			meet_group<SPLIT, GROUP_NUMBER + 1>();
	}
}

#if STREAMED

/* Adds up what the warps of a single token's tile have: its numbers are in every fourth lane, and four lanes add up each. */
template <int PRODUCT>
static __device__ __forceinline__ void finish_tile(const struct model_step_arguments &a, int layer, int tile,
	const float (&c)[4], const struct addend &addend, struct product_memory &shared)
{
	constexpr struct sharing share = SHARE(PRODUCT);
	const int lane = THREAD % 32, warp = THREAD / 32, first = warp / share.split * share.split;
	float2(*sums)[8] = (float2(*)[8])shared.sums, total = make_float2(0, 0);

	if (lane % 4 == 0)
		sums[warp][lane / 4] = make_float2(c[0], c[2]);
	meet_group<share.split>();
	if (warp == first) {
#pragma unroll
		for (int other = 0; other < share.split; other += 4)
			if (other + 4 <= share.split || other + lane % 4 < share.split) {
				const float2 more = sums[first + other + lane % 4][lane / 4];

				total.x += more.x, total.y += more.y;
			}
#pragma unroll
		for (int other = 1; other < 4; other *= 2) {
			total.x += __shfl_xor_sync(~0u, total.x, other);
			total.y += __shfl_xor_sync(~0u, total.y, other);
		}
		finish_single<PRODUCT>(a, layer, tile, total, addend, shared);
	}
	if (share.rounds > 1)
		meet_group<share.split>();
}

/* The best of all blocks', by the first one. */
static __device__ __forceinline__ void choose_best(
	const struct model_step_arguments &a, struct product_memory &shared)
{
	if (blockIdx.x > 0) {
		if (THREAD == 0)
			send(a, BEST_AT + blockIdx.x, (unsigned)shared.best[0],
				(unsigned)(shared.best[0] >> 32), 0u, a.number);
		return;
	}
	for (int block = 1 + THREAD; block < BLOCKS; block += MODEL_THREADS) {
		uint4 best[1];

		receive(a, best, 1, a.number, [=](int) { return BEST_AT + block; });
		atomicMax(&shared.best[0], (unsigned long long)best[0].y << 32 | best[0].x);
	}
	meet_block();
	if (THREAD == 0)
		*a.outputs[0].best = shared.best[0];
}

/* A product of a single token, by all blocks, once what it takes in has been sent. Its weights are in shared memory by then,
 * or soon will be. */
template <int PRODUCT>
static __device__ __forceinline__ void multiply(const struct model_step_arguments &a, int layer, int tokens,
	struct barrier &barrier, struct ring &ring)
{
	constexpr struct sharing share = SHARE(PRODUCT);
	struct product_memory &shared = *(struct product_memory *)memory;
	struct addend addend = addend_of<PRODUCT>(a, layer, tile_of<PRODUCT>(0));

	if (PRODUCT != LOGITS)
		fetch_vectors<PRODUCT>(a, layer + 1);
	else if (THREAD == 0)
		shared.best[0] = 0;
	if (blockIdx.x < share.tiles) /* who has no tile sends nothing, and must not look */
		stage<PRODUCT>(a, layer, shared);
	meet_block();
#pragma unroll 1
	for (int round = 0; round < share.rounds; round++) {
		const int tile = tile_of<PRODUCT>(round), warp = THREAD / 32, lane = THREAD % 32;
		float c[1][4] = {};

#pragma unroll 1
		for (int wave = 0; wave < share.waves; wave++) {
#pragma unroll
			for (int n = 0; n < share.wave; n++) {
				const int chunk = wave * share.wave + n,
					  slot = ring.taken + warp / share.split * share.wave + n;

				if (tile >= share.tiles || chunk >= share.chunks)
					break;
				wait_for(slot);
#pragma unroll
				for (int i = 0; i < share.depth; i++) {
					const int at = i * share.split + warp % share.split,
						  slice = chunk * share.chunk + at;
					uint4 read[2][SECTIONS];

					if (at >= share.chunk || slice >= share.slices)
						break;
					take<PRODUCT>(read, slot, at, lane);
					multiply_slice(c, read, shared.staged[slice].of);
				}
			}
			if (wave + 1 < share.waves || round + 1 < share.rounds) {
				meet_block();
				free_slots(ring, share.groups * share.wave);
			}
		}
		if (tile < share.tiles)
			finish_tile<PRODUCT>(a, layer, tile, c[0], addend, shared);
		if (round + 1 < share.rounds)
			addend = addend_of<PRODUCT>(a, layer, tile_of<PRODUCT>(round + 1));
	}
	meet_block();
	free_slots(ring, share.groups * share.wave);
	if (PRODUCT == LOGITS)
		choose_best(a, shared);
}

#else

/* Of a tile and eight tokens: hands over this block's piece; says whether it was the last, and `total` now is that of
 * all. */
template <unsigned PIECES>
static __device__ __forceinline__ bool put_together(
	const struct model_step_arguments &a, int piece, int at, float4 &total)
{
	const int lane = THREAD % 32;
	float4 *pieces = (float4 *)a.pieces + at * PIECES * 32 + lane, more[PIECES];
	unsigned before = 0;

	__stcg(pieces + piece * 32, total);
	__threadfence();
	__syncwarp();
	if (lane == 0)
		before = atomicInc(a.finished + at, PIECES - 1); /* the last makes it 0 again */
	if (__shfl_sync(~0u, before, 0) < PIECES - 1)
		return false;
	__threadfence();
#pragma unroll
	for (unsigned i = 0; i < PIECES; i++)
		more[i] = __ldcg(pieces + i * 32);
	total = more[0];
#pragma unroll
	for (unsigned i = 1; i < PIECES; i++)
		total.x += more[i].x, total.y += more[i].y, total.z += more[i].z, total.w += more[i].w;
	return true;
}

/* Adds up what the warps of a tile have, who then share its tokens. */
template <int PRODUCT>
static __device__ __forceinline__ void finish_tile(const struct model_step_arguments &a, int layer,
	int tokens, int tile, const float (&c)[TILES][4], struct product_memory &shared)
{
	constexpr struct sharing share = SHARE(PRODUCT);
	const int lane = THREAD % 32, warp = THREAD / 32, first = warp / share.split * share.split;

#pragma unroll
	for (int i = 0; i < TILES; i++)
		shared.sums[warp][i][lane] = make_float4(c[i][0], c[i][1], c[i][2], c[i][3]);
	meet_group<share.split>();
	for (int i = warp - first; i * 8 < tokens; i += share.split) {
		float4 total = shared.sums[first][i][lane];

#pragma unroll
		for (int other = 1; other < share.split; other++) {
			const float4 more = shared.sums[first + other][i][lane];

			total.x += more.x, total.y += more.y, total.z += more.z, total.w += more.w;
		}
		if constexpr (share.pieces > 1)
			if (!put_together<share.pieces>(
				    a, piece_of_block<PRODUCT>(), tile * TILES + i, total))
				continue;
		finish<PRODUCT>(a, layer, tokens, tile, i * 8, total, shared);
	}
	if (share.rounds > 1)
		meet_group<share.split>();
}

/* A product, by all blocks, once all have come here. */
template <int PRODUCT>
static __device__ __forceinline__ void multiply(
	const struct model_step_arguments &a, int layer, int tokens, struct barrier &barrier, struct ring &)
{
	constexpr struct sharing share = SHARE(PRODUCT);
	constexpr bool whole = share.staged == share.units;
	struct product_memory &shared = *(struct product_memory *)memory;
	struct stream<PRODUCT> stream;

	arrive(barrier);
	start_stream(stream, a, layer);
	if (PRODUCT == LOGITS && THREAD < TILES * 8)
		shared.best[THREAD] = 0;
	if (PRODUCT == QKV)
		fetch_product<GATE_UP>(a, layer);
	else if (PRODUCT == OUTPUT)
		fetch_product<DOWN>(a, layer);
	else if (PRODUCT == GATE_UP)
		fetch_product<QKV>(a, layer + 1);
	else if (PRODUCT == DOWN)
		fetch_product<OUTPUT>(a, layer + 1);
	wait(barrier);
#pragma unroll 1
	for (int round = 0; round < share.rounds; round++) {
		const int tile = tile_of<PRODUCT>(round);
		float c[TILES][4] = {};

#pragma unroll 1
		for (int unit = 0; unit < share.units; unit += share.depth) {
			const int first = whole ? 0 : unit / share.staged * share.staged * share.split;
			const bool last = unit + share.depth == share.units;

			if (whole ? round == 0 && unit == 0 : unit % share.staged == 0) {
				if (round || unit)
					meet_block();
				stage<PRODUCT>(a, layer, tokens, shared, first,
					whole ? share.piece
					      : min(first + share.staged * share.split, share.piece));
				meet_block();
			}
			if (last && round + 1 < share.rounds)
				find_tile(stream, a, layer, round + 1);
#pragma unroll
			for (int i = 0; i < share.depth; i++) {
				const int slice = slice_of<PRODUCT>(unit + i);

				if (tile < share.tiles && is_slice<PRODUCT>(slice))
					multiply_slice(c, stream.ring[i], shared.staged[slice - first].of);
				if (!last)
					read_unit(stream, i, unit + share.depth + i);
				else if (round + 1 < share.rounds)
					read_unit(stream, i, i);
			}
		}
		if (tile < share.tiles)
			finish_tile<PRODUCT>(a, layer, tokens, tile, c, shared);
	}
	meet_block();
	if (PRODUCT == LOGITS && THREAD < tokens)
		atomicMax(a.outputs[THREAD].best, shared.best[THREAD]);
}

#endif
