/* flash_forward: attention, a block for BLOCK_M queries of a head. It keeps Q, and O in registers, and walks through K
 * and V:
 *     S = Q Kᵀ,  m' = max(m, rowmax S),  P = exp(scale · (S − m')),
 *     l ← exp(scale · (m − m')) l + rowsum P,  O ← exp(scale · (m − m')) O + P V
 * and in the end divides O by l; lse = scale · m + log l. Exponentials are powers of two, log₂ e is part of the scale.
 * Causal: tiles of keys behind the last query are not visited, and only those that the diagonal (or the end of the
 * sequence) cuts are masked; the longest rows of blocks begin first. */
#include "flash/flash.cuh"

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
		for (int n = 0; n < WALK_N; n++) {
			UNROLL
			for (int i = 0; i < 4; i++) {
				const int column = key + score_column(n, i);

				if (column >= place.tokens ||
					(CAUSAL && column > place.row + score_row(g, i)))
					scores[g][n][i] = MINUS_INFINITY;
			}
		}
	}
}

/* From scores to P; O is scaled to the new maxima. */
static __device__ __forceinline__ void soften(
	float (&scores)[GROUPS][WALK_N][4], float (&o)[GROUPS][DIM_N][4], struct softmax &row, float scale)
{
	UNROLL
	for (int g = 0; g < GROUPS; g++) {
		UNROLL
		for (int half = 0; half < 2; half++) {
			float most = row.most[g][half], factor, shift;

			UNROLL
			for (int n = 0; n < WALK_N; n++)
				most = fmaxf(most, fmaxf(scores[g][n][half * 2], scores[g][n][half * 2 + 1]));
			most = most_of_row(most);
			factor = power_of_two(scale * (row.most[g][half] - most));
			shift = scale * most;
			row.most[g][half] = most;
			row.sum[g][half] *= factor;
			UNROLL
			for (int n = 0; n < WALK_N; n++) {
				UNROLL
				for (int i = half * 2; i < half * 2 + 2; i++) {
					scores[g][n][i] = power_of_two(fmaf(scores[g][n][i], scale, -shift));
					row.sum[g][half] += scores[g][n][i];
				}
			}
			UNROLL
			for (int n = 0; n < DIM_N; n++) {
				o[g][n][half * 2] *= factor;
				o[g][n][half * 2 + 1] *= factor;
			}
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

extern "C" __global__ void __launch_bounds__(THREADS)
	flash_forward(const __grid_constant__ struct flash_arguments a)
{
	const struct place place = locate(a, a.heads, CAUSAL);
	const int key_head = place.head / (a.heads / a.key_heads);
	const int seen = SKIPS && place.row + BLOCK_M < place.tokens ? place.row + BLOCK_M : place.tokens;
	const int count = (seen + BLOCK_N - 1) / BLOCK_N;
	const int full = (CAUSAL ? place.row + 1 : place.tokens) / BLOCK_N; /* tiles that need no mask */
	const unsigned q_tile = shared_memory(), stages = q_tile + KEPT_BYTES;
	const ELEMENT *k = head_of(a.k, place, key_head), *v = head_of(a.v, place, key_head);
	const auto load = [&](int tile) {
		const unsigned stage = stages + tile % NUM_STAGES * 2 * WALKED_BYTES;

		load_tile<BLOCK_N>(stage, a.k, k, tile * BLOCK_N, place.tokens);
		load_tile<BLOCK_N>(stage + WALKED_BYTES, a.v, v, tile * BLOCK_N, place.tokens);
	};
	unsigned q[GROUPS][1][DIM_K][4];
	float o[GROUPS][DIM_N][4], inverse[GROUPS][2];
	struct softmax row;

	if (place.row >= place.tokens)
		return;
	load_tile<BLOCK_M>(q_tile, a.q, head_of(a.q, place, place.head), place.row, place.tokens);
	copy_async_commit();
	begin_walk(count, load);
	copy_async_wait_group<NUM_STAGES - 1>();
	__syncthreads();
	load_kept(q, q_tile, 0);
	clear_groups(o);
	UNROLL
	for (int g = 0; g < GROUPS; g++) {
		UNROLL
		for (int half = 0; half < 2; half++) {
			row.most[g][half] = MINUS_INFINITY;
			row.sum[g][half] = 0.0f;
		}
	}
	for (int tile = 0; tile < count; tile++) {
		const unsigned stage = stages + tile % NUM_STAGES * 2 * WALKED_BYTES;
		float scores[GROUPS][WALK_N][4];

		next_tile(tile, count, load);
		clear_groups(scores);
		multiply_tile<false>(scores, q, stage, 0);
		if (tile >= full)
			mask(scores, place, tile * BLOCK_N);
		soften(scores, o, row, a.scale * LOG2E);
		multiply_walked(o, scores, stage + WALKED_BYTES);
	}
	conclude(a, place, row, inverse);
	store_tile(o, inverse, q_tile, a.o, head_of(a.o, place, place.head), place.row, place.tokens);
}
