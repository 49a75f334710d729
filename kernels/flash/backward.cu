/* flash_backward_queries, flash_backward_keys: the gradient of attention in two passes, of which each writes to places
 * of its own: no atomics, and the same bits every time.
 *   1. queries: a block keeps Q and dO of BLOCK_M queries, and walks through K and V:
 *          P = exp(scale · Q Kᵀ − lse),  dP = dO Vᵀ,  dS = P ∘ (dP − D),  dQ += dS K
 *      Before that it makes D = rowsum(dO ∘ O), and leaves it, with lse, for the second pass.
 *   2. keys: a block keeps K and V of BLOCK_M keys, and walks through Q and dO of all heads that share them, with the
 *      scores transposed:
 *          Pᵀ = exp(scale · K Qᵀ − lse),  dPᵀ = V dOᵀ,  dSᵀ = Pᵀ ∘ (dPᵀ − D),  dK += dSᵀ Q,  dV += Pᵀ dO
 * Both are one function but for these names. Causal: tiles above the diagonal are not visited, and only those that it
 * (or the end of the sequence) cuts are masked. */
#include "flash/flash.cuh"

/* 8 bytes, to shared memory without waiting. */
static __device__ __forceinline__ void copy_statistics(
	unsigned address, const struct flash_statistics *source, bool valid)
{
	asm volatile(
		"cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(address), "l"(source), "r"(valid ? 8 : 0)
		: "memory");
}

/* Makes D of the warp's kept queries, beside lse: in shared memory, and for the second pass. Eight elements of a row
 * to a lane. */
static __device__ __forceinline__ void make_statistics(
	const struct flash_arguments &a, const struct place &place, unsigned statistics)
{
	const int lane = threadIdx.x & 31, segment = lane % SEGMENTS;
	const long long index = query_index(a, place, place.head);
	const ELEMENT *o = head_of(a.o, place, place.head) + segment * 8 * a.o.stride[3];
	const ELEMENT *d_o = head_of(a.d_o, place, place.head) + segment * 8 * a.d_o.stride[3];

	for (int r = lane / SEGMENTS; r < WARP_ROWS; r += 32 / SEGMENTS) {
		const int at = warp_row(0) + r, token = place.row + at;
		struct flash_statistics its = {0.0f, 0.0f};

		if (token < place.tokens) {
			float x[8], y[8];

			load_eight(x, o + token * a.o.stride[1], a.o.stride[3]);
			load_eight(y, d_o + token * a.d_o.stride[1], a.d_o.stride[3]);
			UNROLL
			for (int i = 0; i < 8; i++)
				its.d = fmaf(x[i], y[i], its.d);
			its.lse = LOG2E * a.lse[index + token];
		}
		UNROLL
		for (int distance = 1; distance < SEGMENTS; distance *= 2)
			its.d += __shfl_xor_sync(~0u, its.d, distance);
		if (segment)
			continue;
		store_shared(statistics + at * 8, its.lse, its.d);
		if (token < place.tokens)
			a.statistics[index + token] = its;
	}
	__syncwarp();
}

static __device__ __forceinline__ struct flash_statistics load_statistics(unsigned address)
{
	struct flash_statistics its;

	asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
		     : "=f"(its.lse), "=f"(its.d)
		     : "r"(address)
		     : "memory");
	return its;
}

/* From scores to P, and from dP to dS. `statistics`: of the kept queries, or of the walked tile's. `row`, `column`: of
 * the first kept and walked row in their sequence. */
template <bool KEYS, bool MASKED>
static __device__ __forceinline__ void differentiate(float (&p)[GROUPS][WALK_N][4],
	float (&ds)[GROUPS][WALK_N][4], unsigned statistics, float scale, int row, int column, int tokens)
{
	UNROLL
	for (int g = 0; g < GROUPS; g++) {
		UNROLL
		for (int i = 0; i < 4; i++) {
			struct flash_statistics its;

			if (!KEYS)
				its = load_statistics(statistics + score_row(g, i) * 8);
			UNROLL
			for (int n = 0; n < WALK_N; n++) {
				const int kept = row + score_row(g, i), walked = column + score_column(n, i);

				if (KEYS)
					its = load_statistics(statistics + score_column(n, i) * 8);
				p[g][n][i] = power_of_two(fmaf(p[g][n][i], scale, -its.lse));
				if (MASKED &&
					(walked >= tokens ||
						(CAUSAL && (KEYS ? walked < kept : walked > kept))))
					p[g][n][i] = 0.0f;
				ds[g][n][i] = p[g][n][i] * (ds[g][n][i] - its.d);
			}
		}
	}
}

#if ATOMICS
#include "flash/atomics.cuh"
#endif

template <bool KEYS>
static __device__ __forceinline__ void differentiate_block(const struct flash_arguments &a)
{
	const int heads = KEYS ? a.key_heads : a.heads, group = a.heads / a.key_heads;
	const struct place place = locate(a, heads, CAUSAL && !KEYS);
	const struct device_tensor &kept_first = KEYS ? a.k : a.q, &kept_second = KEYS ? a.v : a.d_o;
	const struct device_tensor &walked_first = KEYS ? a.q : a.k, &walked_second = KEYS ? a.d_o : a.v;
	const unsigned kept = shared_memory(), stages = kept + 2 * KEPT_BYTES,
		       statistics = stages + NUM_STAGES * 2 * WALKED_BYTES;
	/* tiles of a walked head that these rows see, or are seen by; and how many heads there are */
	const int end = SKIPS && !KEYS && place.row + BLOCK_M < place.tokens ? place.row + BLOCK_M
									     : place.tokens;
	const int first = SKIPS && KEYS ? place.row / BLOCK_N : 0;
	const int of_head = (end + BLOCK_N - 1) / BLOCK_N - first, count = KEYS ? of_head * group : of_head;
	const int walked_head = KEYS ? place.head * group : place.head / group;
	const auto load = [&](int tile) {
		const int head = walked_head + tile / of_head, row = (first + tile % of_head) * BLOCK_N;
		const unsigned stage = stages + tile % NUM_STAGES * 2 * WALKED_BYTES;

		load_tile<BLOCK_N>(
			stage, walked_first, head_of(walked_first, place, head), row, place.tokens);
		load_tile<BLOCK_N>(stage + WALKED_BYTES, walked_second, head_of(walked_second, place, head),
			row, place.tokens);
		if (KEYS && threadIdx.x < BLOCK_N) {
			const bool valid = row + threadIdx.x < place.tokens;

			copy_statistics(statistics + (tile % NUM_STAGES * BLOCK_N + threadIdx.x) * 8,
				a.statistics + query_index(a, place, head) + (valid ? row + threadIdx.x : 0),
				valid);
		}
	};
	float sums[GROUPS][DIM_N][4], value_sums[GROUPS][DIM_N][4]; /* dQ; or dK and dV */
	float scaled[GROUPS][2], one[GROUPS][2];

	if (place.row >= place.tokens)
		return;
	load_tile<BLOCK_M>(kept, kept_first, head_of(kept_first, place, place.head), place.row, place.tokens);
	load_tile<BLOCK_M>(kept + KEPT_BYTES, kept_second, head_of(kept_second, place, place.head), place.row,
		place.tokens);
	begin_walk(count, load);
	if (!KEYS)
		make_statistics(a, place, statistics);
	clear_groups(sums);
	clear_groups(value_sums);
	for (int tile = 0; tile < count; tile++) {
		const unsigned stage = stages + tile % NUM_STAGES * 2 * WALKED_BYTES;
		const unsigned its = KEYS ? statistics + tile % NUM_STAGES * BLOCK_N * 8 : statistics;
		const int column = (first + tile % of_head) * BLOCK_N;
		const bool cut = column + BLOCK_N > place.tokens ||
			(CAUSAL && (KEYS ? column < place.row + BLOCK_M : column + BLOCK_N > place.row));
		float p[GROUPS][WALK_N][4], ds[GROUPS][WALK_N][4];

		next_tile(tile, count, load);
		clear_groups(p);
		clear_groups(ds);
		multiply_kept(p, kept, stage);
		multiply_kept(ds, kept + KEPT_BYTES, stage + WALKED_BYTES);
		if (cut)
			differentiate<KEYS, true>(
				p, ds, its, a.scale * LOG2E, place.row, column, place.tokens);
		else
			differentiate<KEYS, false>(
				p, ds, its, a.scale * LOG2E, place.row, column, place.tokens);
		if (KEYS)
			multiply_walked(value_sums, p, stage + WALKED_BYTES);
		multiply_walked(sums, ds, stage);
#if ATOMICS
		if (KEYS)
			add_query_gradients(a, ds, kept, query_index(a, place, walked_head + tile / of_head),
				column, place.tokens);
#endif
	}
	UNROLL
	for (int g = 0; g < GROUPS; g++) {
		UNROLL
		for (int half = 0; half < 2; half++) {
			scaled[g][half] = a.scale;
			one[g][half] = 1.0f;
		}
	}
	store_tile(sums, scaled, kept, KEYS ? a.dk : a.dq, head_of(KEYS ? a.dk : a.dq, place, place.head),
		place.row, place.tokens);
	if (KEYS)
		store_tile(value_sums, one, kept + KEPT_BYTES, a.dv, head_of(a.dv, place, place.head),
			place.row, place.tokens);
}

extern "C" __global__ void __launch_bounds__(THREADS)
	flash_backward_queries(const __grid_constant__ struct flash_arguments a)
{
	differentiate_block<false>(a);
}

extern "C" __global__ void __launch_bounds__(THREADS)
	flash_backward_keys(const __grid_constant__ struct flash_arguments a)
{
	differentiate_block<true>(a);
}
