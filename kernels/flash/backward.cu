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
#if WARPGROUP_PRODUCTS
#include "flash/roles.cuh"
#endif

#if !WARPGROUP_PRODUCTS
/* 8 bytes, to shared memory without waiting. */
static __device__ __forceinline__ void copy_statistics(
	unsigned address, const struct flash_statistics *source, bool valid)
{
	asm volatile(
		"cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(address), "l"(source), "r"(valid ? 8 : 0)
		: "memory");
}
#endif

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

/* Statistics of the rows of scores in queries' blocks, of which each lane has the same two a group in all tiles. */
struct row_statistics {
	struct flash_statistics of[GROUPS][2];
};

static __device__ __forceinline__ void load_row_statistics(struct row_statistics &rows, unsigned statistics)
{
	UNROLL
	for (int g = 0; g < GROUPS; g++) {
		UNROLL
		for (int half = 0; half < 2; half++)
			asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
				     : "=f"(rows.of[g][half].lse), "=f"(rows.of[g][half].d)
				     : "r"(statistics + score_row(g, half * 2) * 8)
				     : "memory");
	}
}

/* `change(g, n, i, its)` for each element of a tile of scores, with the statistics of its query: with KEYS that is its
 * column's in the walked tile, else its row's. */
template <bool KEYS, typename CHANGE>
static __device__ __forceinline__ void each_score(
	const struct row_statistics &rows, unsigned statistics, CHANGE change)
{
	UNROLL
	for (int n = 0; n < WALK_N; n++) {
		float4 columns;

		if (KEYS)
			columns = load_shared_float4(statistics + score_column(n, 0) * 8);
		UNROLL
		for (int g = 0; g < GROUPS; g++) {
			UNROLL
			for (int i = 0; i < 4; i++) {
				if (!KEYS)
					change(g, n, i, rows.of[g][i / 2]);
				else if (i % 2)
					change(g, n, i, flash_statistics{columns.z, columns.w});
				else
					change(g, n, i, flash_statistics{columns.x, columns.y});
			}
		}
	}
}

/* From scores to P. `row`, `column`: of the first kept and walked row in their sequence. */
template <bool KEYS, bool MASKED>
static __device__ __forceinline__ void exponentiate(float (&p)[GROUPS][WALK_N][4],
	const struct row_statistics &rows, unsigned statistics, float scale, int row, int column, int tokens)
{
	each_score<KEYS>(rows, statistics, [&](int g, int n, int i, const struct flash_statistics &its) {
		const int kept = row + score_row(g, i), walked = column + score_column(n, i);

		p[g][n][i] = power_of_two(fmaf(p[g][n][i], scale, -its.lse));
		if (MASKED && (walked >= tokens || (CAUSAL && (KEYS ? walked < kept : walked > kept))))
			p[g][n][i] = 0.0f;
	});
}

/* From dP to dS. */
template <bool KEYS>
static __device__ __forceinline__ void differentiate(float (&ds)[GROUPS][WALK_N][4],
	const float (&p)[GROUPS][WALK_N][4], const struct row_statistics &rows, unsigned statistics)
{
	each_score<KEYS>(rows, statistics, [&](int g, int n, int i, const struct flash_statistics &its) {
		ds[g][n][i] = p[g][n][i] * (ds[g][n][i] - its.d);
	});
}

#if ATOMICS
#include "flash/atomics.cuh"
#endif

/* Where a block's tiles are: in memory, and in shared memory. */
template <bool KEYS> struct tile_walk {
	struct place place;
	int first, of_head; /* tiles of a walked head that these rows see, or are seen by */
	int count;          /* of all walked heads */
	int head;           /* the first of them */
	unsigned kept, stages, statistics, barriers;

	__device__ __forceinline__ tile_walk(const struct flash_arguments &a)
	{
		const int group = a.heads / a.key_heads;

		place = locate(a, KEYS ? a.key_heads : a.heads, CAUSAL && !KEYS);
		const int end = SKIPS && !KEYS && place.row + BLOCK_M < place.tokens ? place.row + BLOCK_M
										     : place.tokens;

		first = SKIPS && KEYS ? place.row / BLOCK_N : 0;
		of_head = (end + BLOCK_N - 1) / BLOCK_N - first;
		count = KEYS ? of_head * group : of_head;
		head = KEYS ? place.head * group : place.head / group;
		kept = shared_memory();
		stages = kept + 2 * KEPT_BYTES;
		statistics = stages + NUM_STAGES * 2 * WALKED_BYTES;
		barriers = kept + FLASH_BACKWARD_SHARED(HEAD_DIM, BLOCK_M, BLOCK_N, NUM_STAGES);
	}

	__device__ __forceinline__ unsigned stage(int tile) const
	{
		return stages + tile % NUM_STAGES * 2 * WALKED_BYTES;
	}

	/* Of the walked tile, or of the kept one. */
	__device__ __forceinline__ unsigned statistics_of(int tile) const
	{
		return KEYS ? statistics + tile % NUM_STAGES * BLOCK_N * 8 : statistics;
	}

	/* Its first row in the sequence. */
	__device__ __forceinline__ int column(int tile) const
	{
		return (first + (KEYS ? tile % of_head : tile)) * BLOCK_N;
	}

	__device__ __forceinline__ bool is_cut(int column) const
	{
		return column + BLOCK_N > place.tokens ||
			(CAUSAL && (KEYS ? column < place.row + BLOCK_M : column + BLOCK_N > place.row));
	}

#if WARPGROUP_PRODUCTS
	/* Have the copy engine load, by the warp that does that. */
	__device__ __forceinline__ void fetch_kept(const struct flash_arguments &a) const
	{
		const bool packed = a.cu_seqlens;

		if (threadIdx.x % 32)
			return;
		mbarrier_expect(barriers, 2 * KEPT_BYTES);
		fetch_tile<BLOCK_M>(
			kept, KEYS ? a.k_map : a.q_map, place, packed, place.head, place.row, barriers);
		fetch_tile<BLOCK_M>(kept + KEPT_BYTES, KEYS ? a.v_map : a.d_o_map, place, packed, place.head,
			place.row, barriers);
	}

	__device__ __forceinline__ void fetch_walked(
		const struct flash_arguments &a, int tile, unsigned barrier) const
	{
		const int from = head + (KEYS ? tile / of_head : 0), row = column(tile);
		const bool packed = a.cu_seqlens;

		if (threadIdx.x % 32 == 0) {
			mbarrier_expect(barrier, 2 * WALKED_BYTES);
			fetch_tile<BLOCK_N>(
				stage(tile), KEYS ? a.q_map : a.k_map, place, packed, from, row, barrier);
			fetch_tile<BLOCK_N>(stage(tile) + WALKED_BYTES, KEYS ? a.d_o_map : a.v_map, place,
				packed, from, row, barrier);
		}
		if constexpr (KEYS) {
			UNROLL
			for (int at = 0; at < BLOCK_N; at += 32) {
				const int i = at + threadIdx.x % 32;
				float2 its = {0.0f, 0.0f};

				if (row + i < place.tokens)
					its = *(const float2 *)(a.statistics + query_index(a, place, from) +
						row + i);
				store_shared(statistics_of(tile) + i * 8, its.x, its.y);
			}
			mbarrier_arrive(barrier);
		}
	}
#else
	/* Start to load, by all threads. */
	__device__ __forceinline__ void load_kept(const struct flash_arguments &a) const
	{
		const struct device_tensor &x = KEYS ? a.k : a.q, &y = KEYS ? a.v : a.d_o;

		load_tile<BLOCK_M>(kept, x, head_of(x, place, place.head), place.row, place.tokens);
		load_tile<BLOCK_M>(
			kept + KEPT_BYTES, y, head_of(y, place, place.head), place.row, place.tokens);
	}

	__device__ __forceinline__ void load_walked(const struct flash_arguments &a, int tile) const
	{
		const struct device_tensor &x = KEYS ? a.q : a.k, &y = KEYS ? a.d_o : a.v;
		const int from = head + (KEYS ? tile / of_head : 0), row = column(tile);

		load_tile<BLOCK_N>(stage(tile), x, head_of(x, place, from), row, place.tokens);
		load_tile<BLOCK_N>(stage(tile) + WALKED_BYTES, y, head_of(y, place, from), row, place.tokens);
		for (int i = threadIdx.x; KEYS && i < BLOCK_N; i += THREADS) {
			const bool valid = row + i < place.tokens;

			copy_statistics(statistics_of(tile) + i * 8,
				a.statistics + query_index(a, place, from) + (valid ? row + i : 0), valid);
		}
	}
#endif

	/* Writes dQ; or dK and dV. */
	__device__ __forceinline__ void store(const struct flash_arguments &a,
		const float (&sums)[GROUPS][DIM_N][4], const float (&value_sums)[GROUPS][DIM_N][4]) const
	{
		const struct device_tensor &x = KEYS ? a.dk : a.dq;
		float scaled[GROUPS][2], one[GROUPS][2];

		UNROLL
		for (int g = 0; g < GROUPS; g++) {
			UNROLL
			for (int half = 0; half < 2; half++) {
				scaled[g][half] = a.scale;
				one[g][half] = 1.0f;
			}
		}
		store_tile(sums, scaled, kept, x, head_of(x, place, place.head), place.row, place.tokens);
		if (KEYS)
			store_tile(value_sums, one, kept + KEPT_BYTES, a.dv, head_of(a.dv, place, place.head),
				place.row, place.tokens);
	}
};

#if WARPGROUP_PRODUCTS
/* What the warps that multiply do: while products are under way, scores of a tile are worked on. */
template <bool KEYS> struct gradient {
	const struct tile_walk<KEYS> &walk;
	unsigned first, second; /* kept rows */
	float scale;
	struct row_statistics rows;
	float sums[GROUPS][DIM_N][4], value_sums[GROUPS][DIM_N][4]; /* dQ; or dK and dV */
	float p[GROUPS][WALK_N][4], ds[GROUPS][WALK_N][4];
	unsigned p_factors[1][WALK_K][4], ds_factors[1][WALK_K][4];

	__device__ __forceinline__ gradient(
		const struct flash_arguments &a, const struct tile_walk<KEYS> &over)
	    : walk(over), first(kept_rows(over.kept)), second(kept_rows(over.kept + KEPT_BYTES)),
	      scale(a.scale * LOG2E)
	{
		if (!KEYS) {
			make_statistics(a, walk.place, walk.statistics);
			load_row_statistics(rows, walk.statistics);
		}
		clear_groups(sums);
		clear_groups(value_sums);
		clear_groups(p);
		clear_groups(ds);
	}

	/* A tile whose scores are in `p`, where those of the next one are in the end. Sums of the one before may be
	 * under way (ADDS: there is one), and its own are then. */
	template <bool ADDS> __device__ __forceinline__ void step(int tile)
	{
		const unsigned stage = walk.stage(tile), statistics = walk.statistics_of(tile);
		const int column = walk.column(tile), row = walk.place.row, tokens = walk.place.tokens;

		start_scores(ds, second, stage + WALKED_BYTES);
		if (walk.is_cut(column))
			exponentiate<KEYS, true>(p, rows, statistics, scale, row, column, tokens);
		else
			exponentiate<KEYS, false>(p, rows, statistics, scale, row, column, tokens);
		if (KEYS) {
			pack_scores(p_factors, p);
			start_sums<ADDS>(value_sums, p_factors, stage + WALKED_BYTES);
		}
		multiply_finish<KEYS>(ds[0]);
		if (ADDS)
			give_tile(walk.barriers, tile - 1);
		differentiate<KEYS>(ds, p, rows, statistics);
		pack_scores(ds_factors, ds);
		if (tile + 1 < walk.count)
			take_tile(walk.barriers, tile + 1);
		take_turn();
		start_scores(p, first, walk.stage(tile + 1)); /* behind the last one nobody reads them */
		start_sums<ADDS>(sums, ds_factors, stage);
		give_turn(tile + 1 == walk.count);
		multiply_finish<1>(p[0]);
	}

	__device__ __forceinline__ void run(void)
	{
		take_kept(walk.barriers);
		take_tile(walk.barriers, 0);
		start_scores(p, first, walk.stage(0));
		multiply_finish(p[0]);
		begin_turns();
		step<false>(0);
#pragma unroll 1
		for (int tile = 1; tile < walk.count; tile++)
			step<true>(tile);
		multiply_finish(sums[0]);
		if (KEYS)
			multiply_finish(value_sums[0]);
	}
};

template <bool KEYS>
static __device__ __forceinline__ void differentiate_block(const struct flash_arguments &a)
{
	const struct tile_walk<KEYS> walk(a);

	if (walk.place.row >= walk.place.tokens)
		return;
	/* who asks the copy engine, and each lane for the statistics that it writes */
	make_barriers(walk.barriers, KEYS ? 1 + 32 : 1);
	if (is_loader()) {
		if (!give_registers())
			return;
		walk.fetch_kept(a);
		load_tiles(walk.barriers, walk.count,
			[&](int tile, unsigned barrier) { walk.fetch_walked(a, tile, barrier); });
		return;
	}
	take_registers();

	struct gradient<KEYS> gradient(a, walk);

	gradient.run();
	walk.store(a, gradient.sums, gradient.value_sums);
}
#else
template <bool KEYS>
static __device__ __forceinline__ void differentiate_block(const struct flash_arguments &a)
{
	const struct tile_walk<KEYS> walk(a);
	const struct place &place = walk.place;
	const float scale = a.scale * LOG2E;
	const auto load = [&](int tile) { walk.load_walked(a, tile); };
	float sums[GROUPS][DIM_N][4], value_sums[GROUPS][DIM_N][4]; /* dQ; or dK and dV */
	struct row_statistics rows;

	if (place.row >= place.tokens)
		return;
	walk.load_kept(a);
	begin_walk(walk.count, load);
	if (!KEYS) {
		make_statistics(a, place, walk.statistics);
		load_row_statistics(rows, walk.statistics);
	}
	clear_groups(sums);
	clear_groups(value_sums);
	for (int tile = 0; tile < walk.count; tile++) {
		const unsigned stage = walk.stage(tile), statistics = walk.statistics_of(tile);
		const int column = walk.column(tile);
		float p[GROUPS][WALK_N][4], ds[GROUPS][WALK_N][4];

		next_tile(tile, walk.count, load);
		clear_groups(p);
		clear_groups(ds);
		multiply_kept(p, walk.kept, stage);
		multiply_kept(ds, walk.kept + KEPT_BYTES, stage + WALKED_BYTES);
		if (walk.is_cut(column))
			exponentiate<KEYS, true>(p, rows, statistics, scale, place.row, column, place.tokens);
		else
			exponentiate<KEYS, false>(
				p, rows, statistics, scale, place.row, column, place.tokens);
		differentiate<KEYS>(ds, p, rows, statistics);
		if (KEYS)
			multiply_walked(value_sums, p, stage + WALKED_BYTES);
		multiply_walked(sums, ds, stage);
#if ATOMICS
		if (KEYS)
			add_query_gradients(a, ds, walk.kept,
				query_index(a, place, walk.head + tile / walk.of_head), column, place.tokens);
#endif
	}
	walk.store(a, sums, value_sums);
}
#endif

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS_AT_LEAST)
	flash_backward_queries(const __grid_constant__ struct flash_arguments a)
{
	wait_for_launch_before();
	differentiate_block<false>(a);
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS_AT_LEAST)
	flash_backward_keys(const __grid_constant__ struct flash_arguments a)
{
	wait_for_launch_before();
	differentiate_block<true>(a);
}
