/* gradient_rows: step 3: the gradients of each chunk's rows, from the state before it and the adjoint of the one behind it; see
 * gradient.cu. */
#pragma once

#include "quasar/gradient_tiles.cuh"

/* Block rows of a C × C matrix for each warp; where warps are many, the others' can be made by the second half of them. */
#define ROW_SLOTS (WARPS < BLOCKS ? BLOCKS / WARPS : 1)

/* The chunk's tiles, by address. What stands behind a dash lies there later. */
struct row_tiles {
	unsigned keys, values, queries; /* – the gradient of K; N; the gradient of Q */
	unsigned outputs;               /* the outputs' gradient */
	unsigned adjoined;              /* dY, and first the gradient of V */
	unsigned state, adjoint;        /* both transposed */
	unsigned twice;                 /* upstream: the state that the queries meet */
	unsigned inverse; /* Tᵀ – −(B + Bᵀ), and what |k_r|² adds to K's gradient on the diagonal */
	unsigned scores;  /* causal: tril(Q Kᵀ) – tril(do Nᵀ) */
	unsigned numbers; /* fp32: |k_r|² of each row – its term of β's gradient */
};

/* --- α and its derivatives ------------------------------------------------------------------------ */

/* (1 + x) e⁻ˣ − 1 for x ≥ 0, which for small x nearly cancels: there its series, x² Σ (−1)ⁿ⁺¹ (n + 1) xⁿ / (n + 2)!. */
static __device__ __forceinline__ float gate_bend(float x)
{
	const float terms[] = {1 / 5760.0f, 1 / 840.0f, 1 / 144.0f, 1 / 30.0f, 1 / 8.0f, 1 / 3.0f, 1 / 2.0f};
	float sum = 0.0f;

	if (x > 0.5f)
		return expm1f(-x) + x * expf(-x);
	UNROLL
	for (int n = 0; n < 7; n++)
		sum = terms[n] - x * sum;
	return -x * x * sum;
}

/* By λ. */
static __device__ __forceinline__ float gate_slope(float beta, float lambda)
{
	const float divisor = lambda + (float)QUASAR_EPSILON;

	const float bend = gate_bend(beta * lambda) / divisor;

	return (bend + (float)QUASAR_EPSILON / divisor * beta * expf(-beta * lambda)) / divisor;
}

/* By β. */
static __device__ __forceinline__ float gate_slope_of_beta(float beta, float lambda)
{
	return lambda / (lambda + (float)QUASAR_EPSILON) * expf(-beta * lambda);
}

/* --- what both semantics do ------------------------------------------------------------------------- */

/* |k_r|² of each row. */
static __device__ __forceinline__ void make_lambdas(const struct row_tiles &tiles)
{
	if (threadIdx.x >= CHUNK)
		return;

	float lambda = 0.0f;

	UNROLL
	for (int segment = 0; segment < HEAD_DIM / 8; segment++) {
		const uint4 keys = load_shared(tiles.keys + tile_offset<HEAD_DIM>(threadIdx.x, segment));
		const unsigned pairs[4] = {keys.x, keys.y, keys.z, keys.w};

		UNROLL
		for (int i = 0; i < 4; i++)
			lambda += bf16_low(pairs[i]) * bf16_low(pairs[i]) +
				bf16_high(pairs[i]) * bf16_high(pairs[i]);
	}
	store_shared_float(tiles.numbers + threadIdx.x * 4, lambda);
}

/* dYᵀ = dNᵀ T, packed, where dn holds (K E')ᵀ and what the outputs add. dYᵀ is left in dn. */
static __device__ __forceinline__ void solve_adjoint(
	unsigned (&packed)[1][CHUNK_K][4], float (&dn)[CHUNK_N][4], const struct row_tiles &tiles)
{
	pack_rows<1>(packed, dn);
	clear(dn);
	multiply<1, CHUNK, false, LOWER>(dn, packed, tiles.inverse, SQUARE_PLANE);
	pack_rows<1>(packed, dn);
}

/* Block rows of dY Nᵀ, added to. */
static __device__ __forceinline__ void add_row_products(
	float (&x)[ROW_SLOTS][CHUNK_N][4], const struct row_tiles &tiles, int warp)
{
	UNROLL
	for (int slot = 0; slot < ROW_SLOTS; slot++) {
		unsigned left[1][STATE_K][4];

		if (warp >= BLOCKS)
			continue;
		load_rows<1, HEAD_DIM>(
			left, tiles.adjoined + (warp + slot * WARPS) * 16 * HEAD_DIM * 2, ROWS_PLANE);
		multiply<1, HEAD_DIM, false, FULL>(x[slot], left, tiles.values, ROWS_PLANE);
	}
}

/* From a block row of dY Nᵀ that of −(B + Bᵀ) and its mirror image, and of the rows' own what λ adds to the gradient of K, and β's
 * terms. */
static __device__ __forceinline__ void make_symmetric_row(
	const struct row_tiles &tiles, int row, float beta, int lane, const float (&x)[CHUNK_N][4])
{
	const int group = lane >> 2, pair = (lane & 3) * 2;
	unsigned packed[1][CHUNK_K][4];
	float diagonal[2][4];

	take_diagonal_block(diagonal, x, row);
	pack_rows<1>(packed, x, -1.0f);
	UNROLL
	for (int k = 0; k < CHUNK_K; k++) {
		unsigned mirrored[4] = {transpose_matrix(packed[0][k][0]), transpose_matrix(packed[0][k][2]),
			transpose_matrix(packed[0][k][1]), transpose_matrix(packed[0][k][3])};

		if (k >= row)
			continue;
		store_block(tiles.inverse, row, k, lane, packed[0][k]);
		store_block(tiles.inverse, k, row, lane, mirrored);
	}

	/* the diagonal block: of 8 × 8 those on the diagonal are half their own, the one under it is whole */
	float own[2][2];

	UNROLL
	for (int half = 0; half < 2; half++) {
		const unsigned place = tiles.numbers + (row * 16 + half * 8 + group) * 4;
		const float even = __shfl_sync(~0u, diagonal[half][half * 2], (lane & ~3) | group >> 1);
		const float odd = __shfl_sync(~0u, diagonal[half][half * 2 + 1], (lane & ~3) | group >> 1);
		const float lambda = load_shared_float(place), alpha = gate(beta, lambda);
		const float slope = alpha > 0.0f ? (group & 1 ? odd : even) / alpha / alpha : 0.0f;

		__syncwarp();
		if (!(lane & 3))
			store_shared_float(place, slope * gate_slope_of_beta(beta, lambda));
		UNROLL
		for (int i = 0; i < 2; i++)
			own[half][i] = pair + i == group ? 2.0f * slope * gate_slope(beta, lambda) : 0.0f;
	}

	unsigned block[4];

	UNROLL
	for (int half = 0; half < 2; half++) {
		const float low = pair < group ? -diagonal[half][half * 2] : 0.0f;
		const float high = pair + 1 < group ? -diagonal[half][half * 2 + 1] : 0.0f;
		const unsigned below = pack_bf16(low, high);

		/* where one of the three is not zero the others are */
		block[half * 3] = below | transpose_matrix(below) | pack_bf16(own[half][0], own[half][1]);
	}
	block[1] = pack_bf16(-diagonal[0][2], -diagonal[0][3]);
	block[2] = transpose_matrix(block[1]);
	store_block(tiles.inverse, row, row, lane, block);
}

static __device__ __forceinline__ void make_symmetric_rows(const struct row_tiles &tiles, float beta,
	int warp, int lane, const float (&x)[ROW_SLOTS][CHUNK_N][4])
{
	UNROLL
	for (int slot = 0; slot < ROW_SLOTS; slot++)
		if (warp < BLOCKS)
			make_symmetric_row(tiles, warp + slot * WARPS, beta, lane, x[slot]);
}

/* Rows of a gradient leave in pieces of 16 bytes: a warp's 16 columns, from the tile's, which it alone uses. They arrive
 * transposed and packed. */
static __device__ __forceinline__ void write_gradient(const struct quasar_gradient_arguments &a,
	const struct device_tensor &tensor, const struct share &share, const struct rows &rows, unsigned tile,
	int warp, int lane, const unsigned (&packed)[1][CHUNK_K][4])
{
	const int batch = share.sequence / a.of.heads, head = share.sequence % a.of.heads;

	store_columns(tile, warp, lane, packed);
	__syncwarp();
	UNROLL
	for (int block = 0; block < BLOCKS; block++) {
		const int row = block * 16 + lane / 2;
		const unsigned index = (UPSTREAM ? rows.first : 0) + (a.first_chunk + share.index) * CHUNK +
			row;
		const long long offset = !UPSTREAM ? row_offset(tensor, batch, index, head)
			: COMPACT ? row_offset(tensor, batch, 0, 0) + index * tensor.stride[2]
				  : row_offset(tensor, batch, index / a.of.heads, index % a.of.heads);
		ELEMENT *out = (ELEMENT *)tensor.data + offset +
			(warp * 16 + lane % 2 * 8) * tensor.stride[3];
		const uint4 line = load_shared(tile + tile_offset<HEAD_DIM>(row, warp * 2 + lane % 2));

		if (index < (UPSTREAM ? rows.end : (unsigned)a.of.tokens))
			store_eight(out, line, tensor.stride[3]);
	}
}

/* E'Nᵀ − St dYᵀ, the rows of 16 keys: what one application gives to the gradient of Kᵀ. */
static __device__ __forceinline__ void add_key_gradient(
	float (&dk)[CHUNK_N][4], const struct row_tiles &tiles, int warp)
{
	unsigned left[1][STATE_K][4];

	load_columns<HEAD_DIM>(left, tiles.adjoint, warp);
	multiply<1, HEAD_DIM, false, FULL>(dk, left, tiles.values, ROWS_PLANE);
	load_columns<HEAD_DIM>(left, tiles.state, warp);
	multiply<1, HEAD_DIM, false, FULL, -1>(dk, left, tiles.adjoined, ROWS_PLANE);
}

/* St doᵀ, the rows of 16 keys, for a state in a tile. */
static __device__ __forceinline__ void add_query_gradient(
	float (&dq)[CHUNK_N][4], const struct row_tiles &tiles, unsigned state, int warp)
{
	unsigned left[1][STATE_K][4];

	load_columns<HEAD_DIM>(left, state, warp);
	multiply<1, HEAD_DIM, false, FULL>(dq, left, tiles.outputs, ROWS_PLANE);
}

/* --- a chunk ---------------------------------------------------------------------------------------- */

/* The tiles of a chunk, N and dY and the gradients of a warp's 16 columns or rows, up to β's terms. */
static __device__ __forceinline__ void make_chunk_gradient(const struct quasar_gradient_arguments &a,
	const struct share &share, const struct rows &rows, const struct row_tiles &tiles, float beta)
{
	const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
	const struct tiles forward = {tiles.keys, tiles.values, tiles.queries, tiles.inverse, tiles.scores};
	unsigned n[1][CHUNK_K][4], dy[1][CHUNK_K][4], left[1][STATE_K][4], columns[1][CHUNK_K][4];
	float state[STATE_N][4], dn[CHUNK_N][4], dk[CHUNK_N][4], dq[CHUNK_N][4], x[ROW_SLOTS][CHUNK_N][4];

	UNROLL
	for (int slot = 0; slot < ROW_SLOTS; slot++)
		clear(x[slot]);
	clear(state);
	load_rows<1, HEAD_DIM>(left, tiles.state + warp * 16 * HEAD_DIM * 2, STATE_PLANE);
	add_factor(state, left);
	differences(n, state, forward, warp);
	solve(dn, n, forward);
#if UPSTREAM
	unsigned second_n[1][CHUNK_K][4], second_dy[1][CHUNK_K][4], second_state[1][STATE_K][4];
	unsigned second_adjoint[1][STATE_K][4];

	/* the second application of the chunk, and its adjoint */
	multiply<1, HEAD_DIM, true, FULL>(state, n, tiles.keys, ROWS_PLANE);
	pack_rows<1>(second_state, state);
	differences(second_n, state, forward, warp);
	store_columns(tiles.values, warp, lane, n);
	solve(dn, second_n, forward);
	multiply<1, HEAD_DIM, true, FULL>(state, second_n, tiles.keys, ROWS_PLANE);
	pack_rows<1>(left, state);
	store_state_rows(tiles.twice, warp, lane, left);
	load_columns<HEAD_DIM>(columns, tiles.outputs, warp);
	clear(state);
	multiply<1, HEAD_DIM, true, FULL>(state, columns, tiles.queries, ROWS_PLANE);
	pack_rows<1>(second_adjoint, state);
	clear(dn);
	multiply<1, HEAD_DIM, false, FULL>(dn, second_adjoint, tiles.keys, ROWS_PLANE);
	solve_adjoint(second_dy, dn, tiles);
	multiply<1, HEAD_DIM, true, FULL, -1>(state, second_dy, tiles.keys, ROWS_PLANE);

	/* the first application's adjoint */
	load_rows<1, HEAD_DIM>(left, tiles.adjoint + warp * 16 * HEAD_DIM * 2, STATE_PLANE);
	add_factor(state, left);
	pack_rows<1>(left, state);
	store_state_rows(tiles.adjoint, warp, lane, left);
	clear(dn);
	multiply<1, HEAD_DIM, false, FULL>(dn, left, tiles.keys, ROWS_PLANE);
	solve_adjoint(dy, dn, tiles);
	add_factor(dn, second_dy);
	pack_rows<1>(columns, dn);
	write_gradient(a, a.v_gradient, share, rows, tiles.adjoined, warp, lane, columns);
	store_columns(tiles.adjoined, warp, lane, dy);
#else
	load_rows<1, HEAD_DIM>(left, tiles.adjoint + warp * 16 * HEAD_DIM * 2, STATE_PLANE);
	clear(dn);
	multiply<1, HEAD_DIM, false, FULL>(dn, left, tiles.keys, ROWS_PLANE);
	load_columns<HEAD_DIM>(columns, tiles.outputs, warp);
	multiply<1, CHUNK, true, LOWER>(dn, columns, tiles.scores, SQUARE_PLANE);
	solve_adjoint(dy, dn, tiles);
	write_gradient(a, a.v_gradient, share, rows, tiles.adjoined, warp, lane, dy);
	store_columns(tiles.values, warp, lane, n);
#endif
	publish_tiles();
	__syncthreads();

	clear(dq);
	clear(dk);
#if UPSTREAM
	add_query_gradient(dq, tiles, tiles.twice, warp);
	pack_rows<1>(columns, dq);
	write_gradient(a, a.q_gradient, share, rows, tiles.queries, warp, lane, columns);
	add_row_products(x, tiles, warp);
	add_key_gradient(dk, tiles, warp);
	publish_tiles();
	__syncthreads();
	store_state_rows(tiles.state, warp, lane, second_state);
	store_state_rows(tiles.adjoint, warp, lane, second_adjoint);
	store_columns(tiles.adjoined, warp, lane, second_dy);
	store_columns(tiles.values, warp, lane, second_n);
	publish_tiles();
	__syncthreads();
	add_row_products(x, tiles, warp);
	add_key_gradient(dk, tiles, warp);
	make_symmetric_rows(tiles, beta, warp, lane, x);
	publish_tiles();
	__syncthreads();
	load_columns<HEAD_DIM>(columns, tiles.keys, warp);
	multiply<1, CHUNK, true, FULL>(dk, columns, tiles.inverse, SQUARE_PLANE);
#else
	add_row_products(x, tiles, warp);
	make_symmetric_rows(tiles, beta, warp, lane, x);
	UNROLL
	for (int row = WARPS > BLOCKS ? warp - BLOCKS : warp; row < BLOCKS; row += WARPS) {
		float scores[CHUNK_N][4];

		if (row < 0)
			break;
		load_rows<1, HEAD_DIM>(left, tiles.outputs + row * 16 * HEAD_DIM * 2, ROWS_PLANE);
		clear(scores);
		multiply<1, HEAD_DIM, false, FULL>(scores, left, tiles.values, ROWS_PLANE);
		make_score_row(tiles.scores, row, 0, lane, scores);
	}
	add_query_gradient(dq, tiles, tiles.state, warp);
	add_key_gradient(dk, tiles, warp);
	publish_tiles();
	__syncthreads();
	load_columns<HEAD_DIM>(columns, tiles.queries, warp);
	multiply<1, CHUNK, true, LOWER>(dk, columns, tiles.scores, SQUARE_PLANE);
	load_columns<HEAD_DIM>(columns, tiles.keys, warp);
	multiply<1, CHUNK, false, UPPER>(dq, columns, tiles.scores, SQUARE_PLANE);
	multiply<1, CHUNK, true, FULL>(dk, columns, tiles.inverse, SQUARE_PLANE);
	pack_rows<1>(columns, dq);
	write_gradient(a, a.q_gradient, share, rows, tiles.queries, warp, lane, columns);
#endif
	pack_rows<1>(columns, dk);
	write_gradient(a, a.k_gradient, share, rows, tiles.keys, warp, lane, columns);
}

static __device__ __forceinline__ void make_row_gradients(const struct quasar_gradient_arguments &a)
{
	struct share share;
	struct row_tiles tiles;

	make_share(share, a.of, 0, true);
	tiles.keys = shared_base();
	tiles.values = tiles.keys + ROWS_BYTES;
	tiles.queries = tiles.values + ROWS_BYTES;
	tiles.outputs = tiles.queries + ROWS_BYTES;
	tiles.adjoined = tiles.outputs + ROWS_BYTES;
	tiles.state = tiles.adjoined + ROWS_BYTES;
	tiles.adjoint = tiles.state + STATE_BYTES;
	tiles.twice = tiles.adjoint + STATE_BYTES;
	tiles.inverse = tiles.twice + (UPSTREAM ? STATE_BYTES : 0);
	tiles.scores = tiles.inverse + SQUARE_BYTES;
	tiles.numbers = tiles.scores + (UPSTREAM ? 0 : SQUARE_BYTES);

	const struct rows rows = start_rows(a.of, share);
	const long long place = (long long)share.index * STATE_BYTES;
	const int chunk = a.first_chunk + share.index;
	const struct chunk_block block = start_block(a.of, tiles.inverse, share.sequence % a.of.heads);

	load_chunk<3>(a.of, rows, chunk, tiles.keys);
	load_output_gradient(a, share, chunk, tiles.outputs);
	fetch_tile<SQUARE_BYTES>(tiles.inverse, place_of_square(a, share.sequence, share.index));
	fetch_tile<STATE_BYTES>(tiles.state, place_of_states<false>(a, STATES, share.sequence) + place);
	fetch_tile<STATE_BYTES>(tiles.adjoint, place_of_states<false>(a, ADJOINTS, share.sequence) + place);
	if (!UPSTREAM)
		clear_square(tiles.scores);
	copy_async_wait();
	publish_tiles();
	__syncthreads();
	make_lambdas(tiles);
	if (!UPSTREAM) {
		make_score_rows(block, tiles.keys, tiles.queries, tiles.scores, block.warp, WARPS);
		publish_tiles();
	__syncthreads();
	}
	make_chunk_gradient(a, share, rows, tiles, block.beta);
	__syncthreads();
	if (block.warp == 0) {
		float sum = load_shared_float(tiles.numbers + block.lane * 4) +
			load_shared_float(tiles.numbers + (block.lane + 32) * 4);

		UNROLL
		for (int distance = 16; distance; distance /= 2)
			sum += __shfl_xor_sync(~0u, sum, distance);
		if (block.lane == 0)
			a.beta_terms[(long long)share.sequence * a.of.chunks + chunk] = sum;
	}
}

/* A block sums those of a head, of all sequences. */
static __device__ __forceinline__ void sum_beta_terms(const struct quasar_gradient_arguments &a)
{
	const int head = blockIdx.x, thread = threadIdx.x;
	__shared__ double sums[GRADIENT_BETA_THREADS];

	sums[thread] = 0;
	for (int batch = 0; batch < a.of.batch; batch++) {
		const float *terms = a.beta_terms + ((long long)batch * a.of.heads + head) * a.of.chunks;

		for (int chunk = thread; chunk < a.of.chunks; chunk += GRADIENT_BETA_THREADS)
			sums[thread] += terms[chunk];
	}
	for (int distance = GRADIENT_BETA_THREADS / 2; distance; distance /= 2) {
		__syncthreads();
		if (thread < distance)
			sums[thread] += sums[thread + distance];
	}
	if (thread == 0)
		a.beta_gradient[head] = (float)sums[0];
}
