/* flash_forward: attention, a block for BLOCK_M queries of a head. It keeps Q, and O in registers, and walks through K
 * and V:
 *     S = Q Kᵀ,  m' = max(m, rowmax S),  P = exp(scale · (S − m')),
 *     l ← exp(scale · (m − m')) l + rowsum P,  O ← exp(scale · (m − m')) O + P V
 * and in the end divides O by l; lse = scale · m + log l. Exponentials are powers of two, log₂ e is part of the scale.
 * Causal: tiles of keys behind the last query are not visited, and only those that the diagonal (or the end of the
 * sequence) cuts are masked; the longest rows of blocks begin first. */
#include "flash/flash.cuh"
#if WARPGROUP_PRODUCTS
#include "flash/roles.cuh"
#endif

/* Of this lane's rows. */
struct softmax {
	float most[GROUPS][2], sum[GROUPS][2]; /* the sum: of this lane's columns */
};

/* −∞ for keys that a query does not see. */
static __device__ __forceinline__ void mask(
	float (&scores)[GROUPS][WALK_N][4], const struct place &place, int key)
{
	UNROLL
	for (int g = 0; g < GROUPS; g++) {
		UNROLL
		for (int half = 0; half < 2; half++) {
			const int row = place.row + score_row(g, half * 2), end = place.tokens - 1;
			/* that is seen, counted from this lane's first column */
			const int last = (CAUSAL ? min(row, end) : end) - key - score_column(0, 0);

			UNROLL
			for (int n = 0; n < WALK_N; n++) {
				if (n * 8 > last)
					scores[g][n][half * 2] = MINUS_INFINITY;
				if (n * 8 + 1 > last)
					scores[g][n][half * 2 + 1] = MINUS_INFINITY;
			}
		}
	}
}

static __device__ __forceinline__ void begin_softmax(struct softmax &row)
{
	UNROLL
	for (int g = 0; g < GROUPS; g++) {
		UNROLL
		for (int half = 0; half < 2; half++) {
			row.most[g][half] = MINUS_INFINITY;
			row.sum[g][half] = 0.0f;
		}
	}
}

/* From scores to P, and in `factor` what O is to be multiplied by for the new maxima. */
static __device__ __forceinline__ void soften(
	float (&scores)[GROUPS][WALK_N][4], struct softmax &row, float (&factor)[GROUPS][2], float scale)
{
	UNROLL
	for (int g = 0; g < GROUPS; g++) {
		UNROLL
		for (int half = 0; half < 2; half++) {
			float most = row.most[g][half], shift;

			UNROLL
			for (int n = 0; n < WALK_N; n++)
				most = fmaxf(most, fmaxf(scores[g][n][half * 2], scores[g][n][half * 2 + 1]));
			most = most_of_row(most);
			factor[g][half] = power_of_two(scale * (row.most[g][half] - most));
			shift = scale * most;
			row.most[g][half] = most;
			row.sum[g][half] *= factor[g][half];
			UNROLL
			for (int n = 0; n < WALK_N; n++) {
				UNROLL
				for (int i = half * 2; i < half * 2 + 2; i++) {
					scores[g][n][i] = power_of_two(fmaf(scores[g][n][i], scale, -shift));
					row.sum[g][half] += scores[g][n][i];
				}
			}
		}
	}
}

static __device__ __forceinline__ void rescale(float (&o)[GROUPS][DIM_N][4], const float (&factor)[GROUPS][2])
{
	UNROLL
	for (int g = 0; g < GROUPS; g++) {
		UNROLL
		for (int n = 0; n < DIM_N; n++) {
			UNROLL
			for (int i = 0; i < 4; i++)
				o[g][n][i] *= factor[g][i / 2];
		}
	}
}

/* Sums up; each row's lse, and in `inverse` what O is to be multiplied by. */
static __device__ __forceinline__ void conclude(const struct flash_arguments &a, const struct place &place,
	const struct softmax &row, float (&inverse)[GROUPS][2])
{
	UNROLL
	for (int g = 0; g < GROUPS; g++) {
		UNROLL
		for (int half = 0; half < 2; half++) {
			const float sum = sum_of_row(row.sum[g][half]);
			const int token = place.row + score_row(g, half * 2);

			inverse[g][half] = 1.0f / sum;
			if (a.lse && (threadIdx.x & 3) == 0 && token < place.tokens)
				a.lse[query_index(a, place, place.head) + token] = a.scale *
						row.most[g][half] +
					logf(sum);
		}
	}
}

#if WARPGROUP_PRODUCTS
/* What the warps that multiply do: the scores of a tile are computed while P V of the one before is. */
static __device__ __forceinline__ void attend(const struct flash_arguments &a, const struct place &place,
	int count, int full, unsigned q_tile, unsigned stages, unsigned barriers)
{
	const auto stage = [&](int tile) { return stages + tile % NUM_STAGES * 2 * WALKED_BYTES; };
	const unsigned q = kept_rows(q_tile);
	float o[GROUPS][DIM_N][4], scores[GROUPS][WALK_N][4], factor[GROUPS][2], inverse[GROUPS][2];
	unsigned p[1][WALK_K][4];
	struct softmax row;

	begin_softmax(row);
	clear_groups(o);
	clear_groups(scores);
	take_kept(barriers);
	take_tile(barriers, 0);
	start_scores(scores, q, stage(0));
	multiply_finish(scores[0]);
	if (!full)
		mask(scores, place, 0);
	soften(scores, row, factor, a.scale * LOG2E);
	pack_scores(p, scores);
	if (count > 1)
		begin_turns();
#pragma unroll 1
	for (int tile = 1; tile < count; tile++) {
		take_tile(barriers, tile);
		take_turn();
		start_scores(scores, q, stage(tile));
		start_sums(o, p, stage(tile - 1) + WALKED_BYTES);
		give_turn(tile + 1 == count);
		multiply_finish<1>(scores[0]);
		if (tile >= full)
			mask(scores, place, tile * BLOCK_N);
		soften(scores, row, factor, a.scale * LOG2E);
		multiply_finish(o[0]);
		give_tile(barriers, tile - 1);
		rescale(o, factor);
		pack_scores(p, scores);
	}
	start_sums(o, p, stage(count - 1) + WALKED_BYTES);
	multiply_finish(o[0]);
	conclude(a, place, row, inverse);
	store_tile(o, inverse, q_tile, a.o, head_of(a.o, place, place.head), place.row, place.tokens);
}
#endif

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS_AT_LEAST)
	flash_forward(const __grid_constant__ struct flash_arguments a)
{
	wait_for_launch_before();

	const struct place place = locate(a, a.heads, CAUSAL);
	const int key_head = place.head / (a.heads / a.key_heads);
	const int seen = SKIPS && place.row + BLOCK_M < place.tokens ? place.row + BLOCK_M : place.tokens;
	const int count = (seen + BLOCK_N - 1) / BLOCK_N;
	const int full = (CAUSAL ? place.row + 1 : place.tokens) / BLOCK_N; /* tiles that need no mask */
	const unsigned q_tile = shared_memory(), stages = q_tile + KEPT_BYTES;

	if (place.row >= place.tokens)
		return;
#if WARPGROUP_PRODUCTS
	const unsigned barriers = stages + NUM_STAGES * 2 * WALKED_BYTES;
	const bool packed = a.cu_seqlens;

	make_barriers(barriers, 1);
	if (is_loader()) {
		if (!give_registers() || threadIdx.x % 32)
			return;
		mbarrier_expect(barriers, KEPT_BYTES);
		fetch_tile<BLOCK_M>(q_tile, a.q_map, place, packed, place.head, place.row, barriers);
		load_tiles(barriers, count, [&](int tile, unsigned barrier) {
			const unsigned stage = stages + tile % NUM_STAGES * 2 * WALKED_BYTES;

			mbarrier_expect(barrier, 2 * WALKED_BYTES);
			fetch_tile<BLOCK_N>(stage, a.k_map, place, packed, key_head, tile * BLOCK_N, barrier);
			fetch_tile<BLOCK_N>(stage + WALKED_BYTES, a.v_map, place, packed, key_head,
				tile * BLOCK_N, barrier);
		});
		return;
	}
	take_registers();
	attend(a, place, count, full, q_tile, stages, barriers);
#else
	const ELEMENT *k = head_of(a.k, place, key_head), *v = head_of(a.v, place, key_head);
	const auto load = [&](int tile) {
		const unsigned stage = stages + tile % NUM_STAGES * 2 * WALKED_BYTES;

		load_tile<BLOCK_N>(stage, a.k, k, tile * BLOCK_N, place.tokens);
		load_tile<BLOCK_N>(stage + WALKED_BYTES, a.v, v, tile * BLOCK_N, place.tokens);
	};
	unsigned q[GROUPS][1][DIM_K][4];
	float o[GROUPS][DIM_N][4], factor[GROUPS][2], inverse[GROUPS][2];
	struct softmax row;

	load_tile<BLOCK_M>(q_tile, a.q, head_of(a.q, place, place.head), place.row, place.tokens);
	copy_async_commit();
	begin_walk(count, load);
	copy_async_wait_group<NUM_STAGES - 1>();
	__syncthreads();
	load_kept(q, q_tile, 0);
	clear_groups(o);
	begin_softmax(row);
	for (int tile = 0; tile < count; tile++) {
		const unsigned stage = stages + tile % NUM_STAGES * 2 * WALKED_BYTES;
		float scores[GROUPS][WALK_N][4];

		next_tile(tile, count, load);
		clear_groups(scores);
		multiply_tile<false>(scores, q, stage, 0);
		if (tile >= full)
			mask(scores, place, tile * BLOCK_N);
		soften(scores, row, factor, a.scale * LOG2E);
		rescale(o, factor);
		multiply_walked(o, scores, stage + WALKED_BYTES);
	}
	conclude(a, place, row, inverse);
	store_tile(o, inverse, q_tile, a.o, head_of(a.o, place, place.head), place.row, place.tokens);
#endif
}
