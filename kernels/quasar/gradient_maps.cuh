/* gradient_maps: step 1: what each chunk does to a state, and to the adjoint of one; see gradient.cu. */
#pragma once

#include "quasar/gradient_tiles.cuh"

/* The chunk's tiles, by address. */
struct map_tiles {
	unsigned keys, values, queries, outputs; /* outputs: their gradient */
	unsigned scores, transition;             /* causal: tril(Q Kᵀ); upstream: P − I */
	unsigned inverse, turned;                /* Tᵀ; L – where warps turn their rows around */
};

/* P − I = −Kᵀ T K, the rows of 16 keys, and Rᵀ = Vᵀ Tᵀ K, those of 16 values. */
static __device__ __forceinline__ void make_chunk_map(unsigned (&transition)[1][STATE_K][4],
	unsigned (&term)[1][STATE_K][4], const struct map_tiles &tiles, int warp)
{
	unsigned keys[1][CHUNK_K][4], values[1][CHUNK_K][4];
	float x[CHUNK_N][4], n[CHUNK_N][4], p[STATE_N][4], r[STATE_N][4];

	load_columns<HEAD_DIM>(keys, tiles.keys, warp);
	load_columns<HEAD_DIM>(values, tiles.values, warp);
	multiply_start<1, CHUNK, false, LOWER, 1, false>(x, keys, tiles.inverse, SQUARE_PLANE);
	multiply_start<1, CHUNK, true, UPPER, 1, false>(n, values, tiles.inverse, SQUARE_PLANE);
	multiply_finish<1>(x);
	pack_rows<1>(keys, x);
	multiply_start<1, HEAD_DIM, true, FULL, -1, false>(p, keys, tiles.keys, ROWS_PLANE);
	multiply_finish<1>(n);
	pack_rows<1>(values, n);
	multiply_start<1, HEAD_DIM, true, FULL, 1, false>(r, values, tiles.keys, ROWS_PLANE);
	multiply_finish<1>(p);
	pack_rows<1>(transition, p);
	multiply_finish(r);
	pack_rows<1>(term, r);
}

/* Cᵀ, the rows of 16 values. */
static __device__ __forceinline__ void make_chunk_adjoint(
	unsigned (&packed)[1][STATE_K][4], const struct map_tiles &tiles, int warp)
{
	unsigned left[1][CHUNK_K][4];
	float c[STATE_N][4];

	load_columns<HEAD_DIM>(left, tiles.outputs, warp);
	multiply<1, HEAD_DIM, true, FULL, 1, false>(c, left, tiles.queries, ROWS_PLANE);
	if (UPSTREAM) {
		UNROLL
		for (int time = 0; time < 2; time++) {
			pack_rows<1>(packed, c);
			multiply<1, HEAD_DIM, true, FULL>(c, packed, tiles.transition, STATE_PLANE);
		}
	} else {
		float y[CHUNK_N][4];

		multiply<1, CHUNK, true, LOWER, 1, false>(y, left, tiles.scores, SQUARE_PLANE);
		pack_rows<1>(left, y);
		multiply<1, CHUNK, false, LOWER, 1, false>(y, left, tiles.inverse, SQUARE_PLANE);
		pack_rows<1>(left, y);
		multiply<1, HEAD_DIM, true, FULL, -1>(c, left, tiles.keys, ROWS_PLANE);
	}
	pack_rows<1>(packed, c);
}

static __device__ __forceinline__ void make_maps(const struct quasar_gradient_arguments &a)
{
	const bool with_adjoints = !a.of.final_state; /* which states alone do without */
	struct share share;
	struct map_tiles tiles;
	unsigned transition[1][STATE_K][4], term[1][STATE_K][4];

	make_share(share, a.of, 0, true);
	tiles.keys = shared_base();
	tiles.values = tiles.keys + ROWS_BYTES;
	tiles.queries = tiles.values + ROWS_BYTES;
	tiles.outputs = tiles.queries + ROWS_BYTES;
	tiles.scores = tiles.transition = tiles.outputs + ROWS_BYTES;
	tiles.inverse = tiles.scores + (UPSTREAM ? STATE_BYTES : SQUARE_BYTES);
	tiles.turned = tiles.inverse + SQUARE_BYTES;

	const struct rows rows = start_rows(a.of, share);
	const long long place = (long long)share.index * STATE_BYTES;
	struct chunk_block block = start_block(a.of, tiles.inverse, share.sequence % a.of.heads);
	const int warp = block.warp, lane = block.lane, chunk = a.first_chunk + share.index;

	load_tensor(a, rows, a.of.k, rows.k, chunk, tiles.keys);
	if (!UPSTREAM)
		load_tensor(a, rows, a.of.q, rows.q, chunk, tiles.queries);
	copy_async_commit();
	load_tensor(a, rows, a.of.v, rows.v, chunk, tiles.values);
	if (UPSTREAM && with_adjoints)
		load_tensor(a, rows, a.of.q, rows.q, chunk, tiles.queries);
	if (with_adjoints)
		load_output_gradient(a, share, chunk, tiles.outputs);
	copy_async_commit();
	clear_square(tiles.inverse);
	if (!UPSTREAM)
		clear_square(tiles.scores);
	copy_async_wait_group<1>(); /* L and T are made while the rest is loaded */
	publish_tiles();
	__syncthreads();
#if WARPGROUP_PRODUCTS
	if (WARPS == BLOCKS || warp < BLOCKS)
		make_lower(block, tiles.keys);
	if (!UPSTREAM && (WARPS == BLOCKS || warp >= BLOCKS))
		make_score_rows(block, tiles.keys, tiles.queries, tiles.scores, warp % BLOCKS, BLOCKS);
#else
	make_rows<!UPSTREAM>(block, tiles.keys, tiles.queries, tiles.scores);
#endif
	__syncthreads();
	make_inverse(block);
	copy_async_wait();
	publish_tiles();
	__syncthreads();
	if (with_adjoints)
		write_inverse(place_of_square(a, share.sequence, share.index), tiles.inverse);
	make_chunk_map(transition, term, tiles, warp);
	write_state_rows(place_of_states<false>(a, TRANSITIONS, share.sequence) + place,
		UPSTREAM ? tiles.transition : tiles.turned, warp, lane, transition);
	write_state_rows(
		place_of_states<false>(a, STATES, share.sequence) + place, tiles.turned, warp, lane, term);
	if (!with_adjoints)
		return;
	if (UPSTREAM) {
		publish_tiles();
		__syncthreads();
	}
	make_chunk_adjoint(term, tiles, warp);
	write_state_rows(
		place_of_states<false>(a, ADJOINTS, share.sequence) + place, tiles.turned, warp, lane, term);
}
