/* gradient_rows: step 3: the gradients of each chunk's rows, from the state before it and the adjoint of the one behind it; see
 * gradient.cu. */
#pragma once

#include "quasar/gradient_tiles.cuh"

/* Gradients are C × S, as the rows themselves: each warp has a block row of 16, or several; where warps are more than block rows,
 * it has a part of the columns. */
#define ROW_SLOTS (WARPS < BLOCKS ? BLOCKS / WARPS : 1)
#define ROW_PARTS (WARPS > BLOCKS ? WARPS / BLOCKS : 1)
#define PART_N (STATE_N / ROW_PARTS)

/* The chunk's tiles, by address. What stands behind a dash lies there later. */
struct row_tiles {
	unsigned keys, values,
		queries;   /* – N of the first application in the place of V, of the second in that of Q */
	unsigned outputs;  /* the outputs' gradient – where those of Q and K are turned into lines */
	unsigned adjoined; /* the gradient of V – dY of the first application */
	unsigned state, adjoint; /* both transposed */
	unsigned twice;          /* upstream: the state that the queries meet */
	unsigned inverse;        /* Tᵀ – upstream: dY of the second application */
	unsigned
		symmetric; /* where T was or, upstream, dY: −(B + Bᵀ), on the diagonal what |k_r|² adds to K's gradient */
	unsigned scores; /* causal: tril(Q Kᵀ) – tril(do Nᵀ) */
	unsigned
		numbers; /* of each row what dY · N is multiplied by for that diagonal, and for β – its term of dβ */
};

/* One application of the chunk, by the addresses of N, dY, the state before it and the adjoint of the one behind. */
struct application {
	unsigned n, adjoined, state, adjoint;
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

/* Of each row what α passes on of dY · N / α², by λ = |k_r|² to K's gradient and by β to β's. */
static __device__ __forceinline__ void make_slopes(const struct row_tiles &tiles, float beta)
{
	const int threads = THREADS / CHUNK, row = threadIdx.x / threads, part = threadIdx.x % threads;
	const int segments = HEAD_DIM / 8 / threads; /* of a thread */
	float lambda = 0.0f;

	UNROLL
	for (int segment = 0; segment < segments; segment++) {
		const uint4 keys = load_shared(
			tiles.keys + tile_offset<HEAD_DIM>(row, part * segments + segment));
		const unsigned pairs[4] = {keys.x, keys.y, keys.z, keys.w};

		UNROLL
		for (int i = 0; i < 4; i++)
			lambda += bf16_low(pairs[i]) * bf16_low(pairs[i]) +
				bf16_high(pairs[i]) * bf16_high(pairs[i]);
	}
	UNROLL
	for (int distance = 1; distance < threads; distance *= 2)
		lambda += __shfl_xor_sync(~0u, lambda, distance);

	const float alpha = gate(beta, lambda);

	if (part)
		return;
	store_shared_float(tiles.numbers + row * 4,
		alpha > 0.0f ? 2.0f * gate_slope(beta, lambda) / alpha / alpha : 0.0f);
	store_shared_float(tiles.numbers + (CHUNK + row) * 4,
		alpha > 0.0f ? gate_slope_of_beta(beta, lambda) / alpha / alpha : 0.0f);
}

/* dYᵀ = dNᵀ T, packed, where dn holds (K E')ᵀ and what the outputs add. dYᵀ is left in dn. */
static __device__ __forceinline__ void solve_adjoint(
	unsigned (&packed)[1][CHUNK_K][4], float (&dn)[CHUNK_N][4], const struct row_tiles &tiles)
{
	pack_rows<1>(packed, dn);
	multiply<1, CHUNK, false, LOWER, 1, false>(dn, packed, tiles.inverse, SQUARE_PLANE);
	pack_rows<1>(packed, dn);
}

/* From a block row of dY Nᵀ that of −(B + Bᵀ) and its mirror image, and of the rows' own what λ adds to the gradient of K, and β's
 * terms. */
static __device__ __forceinline__ void make_symmetric_row(
	const struct row_tiles &tiles, int row, int lane, const float (&x)[CHUNK_N][4])
{
	const int group = lane >> 2, pair = (lane & 3) * 2;
	unsigned packed[1][CHUNK_K][4];
	float diagonal[2][4];

	take_diagonal_block(diagonal, x, row);
	pack_rows<1>(packed, x, -1.0f);
	UNROLL
	for (int k = 0; k < CHUNK_K; k++) {
		if (k >= row)
			continue;
		store_block(tiles.symmetric, row, k, lane, packed[0][k]);
		store_block_transposed(tiles.symmetric, k, row, lane, packed[0][k]);
	}

	/* the diagonal block: of 8 × 8 those on the diagonal are half their own, the one under it is whole */
	unsigned block[4];

	UNROLL
	for (int half = 0; half < 2; half++) {
		const float even = diagonal[half][half * 2], odd = diagonal[half][half * 2 + 1];
		const unsigned by_lambda = tiles.numbers + (row * 16 + half * 8 + group) * 4,
			       by_beta = by_lambda + CHUNK * 4;
		const float slope = load_shared_float(by_lambda), own = group & 1 ? odd : even;
		const unsigned below = pack_bf16(pair < group ? -even : 0.0f, pair + 1 < group ? -odd : 0.0f);
		const unsigned self = pack_bf16(
			pair == group ? slope * even : 0.0f, pair + 1 == group ? slope * odd : 0.0f);

		if (pair == (group & ~1))
			store_shared_float(by_beta, load_shared_float(by_beta) * own);
		/* where one of the three is not zero the others are */
		block[half * 3] = below | transpose_matrix(below) | self;
	}
	block[1] = pack_bf16(-diagonal[0][2], -diagonal[0][3]);
	block[2] = transpose_matrix(block[1]);
	store_block(tiles.symmetric, row, row, lane, block);
}

/* ROWS rows of a tile, SEGMENTS of each, leave as a gradient's, 16 bytes a lane: those that the warp has just written. */
template <int ROWS, int SEGMENTS>
static __device__ __forceinline__ void write_gradient(const struct quasar_gradient_arguments &a,
	const struct device_tensor &tensor, const struct share &share, const struct rows &rows, unsigned tile,
	int row, int segment)
{
	const int batch = share.sequence / a.of.heads, head = share.sequence % a.of.heads,
		  lane = threadIdx.x % 32;

	/* upstream: of the flattened (token, head) rows */
	const int step = UPSTREAM ? 2 : 1;
	const unsigned end = UPSTREAM ? rows.end : (unsigned)a.of.tokens;

	row += lane / SEGMENTS;
	segment += lane % SEGMENTS;
	unsigned index = (UPSTREAM ? rows.first : 0) + (a.first_chunk + share.index) * CHUNK + row;
	ELEMENT *out = (ELEMENT *)tensor.data + row_offset(tensor, batch, 0, UPSTREAM ? 0 : head) +
		index * tensor.stride[step] + segment * 8 * (VECTOR ? 1 : tensor.stride[3]);
	__syncwarp();
	UNROLL
	for (int pass = 0; pass < ROWS * SEGMENTS / 32; pass++) {
		if (UPSTREAM && !COMPACT)
			out = (ELEMENT *)tensor.data +
				row_offset(tensor, batch, index / a.of.heads, index % a.of.heads) +
				segment * 8 * tensor.stride[3];
		if (index < end)
			store_eight(out, load_shared(tile + tile_offset<HEAD_DIM>(row, segment)),
				tensor.stride[3]);
		row += 32 / SEGMENTS;
		index += 32 / SEGMENTS;
		out += 32 / SEGMENTS * tensor.stride[step];
	}
}

/* The same of a warp's block row and part of the columns, from a result. */
static __device__ __forceinline__ void write_block_row(const struct quasar_gradient_arguments &a,
	const struct device_tensor &tensor, const struct share &share, const struct rows &rows, unsigned tile,
	int row, int part, const float (&c)[PART_N][4])
{
	const int lane = threadIdx.x % 32;
	unsigned packed[1][PART_N / 2][4];

	pack_rows<1>(packed, c);
	__syncwarp();
	UNROLL
	for (int k = 0; k < PART_N / 2; k++)
		store_block<HEAD_DIM>(tile, row, part * PART_N / 2 + k, lane, packed[0][k]);
	write_gradient<16, PART_N>(a, tensor, share, rows, tile, row * 16, part * PART_N);
}

/* What one application gives to a warp's block row of dY Nᵀ and to its part of K's gradient: N E'ᵀ − dY Stᵀ. With ADDS false they
 * are set to that. */
template <bool ADDS>
static __device__ __forceinline__ void add_application(
	float (&x)[CHUNK_N][4], float (&dk)[PART_N][4], const struct application &of, int row, int part)
{
	const unsigned first = row * 16 * HEAD_DIM * 2, columns = tile_column<HEAD_DIM>(part * PART_N);
	unsigned left[1][STATE_K][4];

	load_rows<1, HEAD_DIM>(left, of.adjoined + first, ROWS_PLANE);
	multiply_start<1, HEAD_DIM, true, FULL, -1, ADDS>(dk, left, of.state + columns, STATE_PLANE);
	if (part == 0)
		multiply_start<1, HEAD_DIM, false, FULL, 1, ADDS>(x, left, of.n, ROWS_PLANE);
	multiply_finish(x);
	multiply_finish(dk);
	load_rows<1, HEAD_DIM>(left, of.n + first, ROWS_PLANE);
	multiply<1, HEAD_DIM, true, FULL>(dk, left, of.adjoint + columns, STATE_PLANE);
}

/* The outputs' gradient and the adjoint, which are loaded while states are made. */
static __device__ __forceinline__ void await_adjoint(void)
{
	copy_async_wait();
	publish_tiles();
	__syncthreads();
}

/* --- a chunk ---------------------------------------------------------------------------------------- */

/* The tiles of a chunk, N and dY and the gradients of its rows, up to β's terms. */
static __device__ __forceinline__ void make_chunk_gradient(const struct quasar_gradient_arguments &a,
	const struct share &share, const struct rows &rows, const struct row_tiles &tiles)
{
	const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
	const int part = ROW_PARTS > 1 ? warp / BLOCKS : 0;
	const unsigned columns = tile_column<HEAD_DIM>(part * PART_N);
	const struct tiles forward = {tiles.keys, tiles.values, tiles.queries, tiles.inverse, tiles.scores};
	const struct application first = {tiles.values, tiles.adjoined, tiles.state, tiles.adjoint};
	unsigned n[1][CHUNK_K][4], dy[1][CHUNK_K][4], left[1][STATE_K][4], right[1][CHUNK_K][4];
	float state[STATE_N][4], dn[CHUNK_N][4];

	load_rows<1, HEAD_DIM>(left, tiles.state + warp * 16 * HEAD_DIM * 2, STATE_PLANE);
	add_factor<false>(state, left);
	differences(n, state, forward, warp);
	solve(dn, n, forward);
#if UPSTREAM
	const struct application second = {tiles.queries, tiles.inverse, tiles.state, tiles.adjoint};
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
	await_adjoint();
	load_columns<HEAD_DIM>(right, tiles.outputs, warp);
	multiply<1, HEAD_DIM, true, FULL, 1, false>(state, right, tiles.queries, ROWS_PLANE);
	pack_rows<1>(second_adjoint, state);
	multiply<1, HEAD_DIM, false, FULL, 1, false>(dn, second_adjoint, tiles.keys, ROWS_PLANE);
	solve_adjoint(second_dy, dn, tiles);
	multiply<1, HEAD_DIM, true, FULL, -1>(state, second_dy, tiles.keys, ROWS_PLANE);

	/* the first application's adjoint */
	load_rows<1, HEAD_DIM>(left, tiles.adjoint + warp * 16 * HEAD_DIM * 2, STATE_PLANE);
	add_factor<true>(state, left);
	pack_rows<1>(left, state);
	store_state_rows(tiles.adjoint, warp, lane, left);
	multiply<1, HEAD_DIM, false, FULL, 1, false>(dn, left, tiles.keys, ROWS_PLANE);
	solve_adjoint(dy, dn, tiles);
	add_factor<true>(dn, second_dy);
	pack_rows<1>(right, dn);
	store_columns(tiles.adjoined, warp, lane, right);
	write_gradient<CHUNK, 2>(a, a.v_gradient, share, rows, tiles.adjoined, 0, warp * 2);
	store_columns(tiles.adjoined, warp, lane, dy);
#else
	await_adjoint();
	load_rows<1, HEAD_DIM>(left, tiles.adjoint + warp * 16 * HEAD_DIM * 2, STATE_PLANE);
	multiply<1, HEAD_DIM, false, FULL, 1, false>(dn, left, tiles.keys, ROWS_PLANE);
	load_columns<HEAD_DIM>(right, tiles.outputs, warp);
	multiply<1, CHUNK, true, LOWER>(dn, right, tiles.scores, SQUARE_PLANE);
	solve_adjoint(dy, dn, tiles);
	store_columns(tiles.adjoined, warp, lane, dy);
	write_gradient<CHUNK, 2>(a, a.v_gradient, share, rows, tiles.adjoined, 0, warp * 2);
	store_columns(tiles.values, warp, lane, n);
#endif
	publish_tiles();
	__syncthreads();

	float x[ROW_SLOTS][CHUNK_N][4], dk[ROW_SLOTS][PART_N][4], dq[ROW_SLOTS][PART_N][4];

#if UPSTREAM
	store_columns(tiles.queries, warp, lane, second_n);
	store_columns(tiles.inverse, warp, lane, second_dy);
	UNROLL
	for (int slot = 0; slot < ROW_SLOTS; slot++) {
		const int row = warp % BLOCKS + slot * WARPS;

		load_rows<1, HEAD_DIM>(left, tiles.outputs + row * 16 * HEAD_DIM * 2, ROWS_PLANE);
		multiply<1, HEAD_DIM, true, FULL, 1, false>(
			dq[slot], left, tiles.twice + columns, STATE_PLANE);
		if (ROW_PARTS > 1) /* both parts' warps read whole rows of what the gradient is put into */
			__syncthreads();
		write_block_row(a, a.q_gradient, share, rows, tiles.outputs, row, part, dq[slot]);
		add_application<false>(x[slot], dk[slot], first, row, part);
	}
	__syncthreads();
	store_state_rows(tiles.state, warp, lane, second_state);
	store_state_rows(tiles.adjoint, warp, lane, second_adjoint);
	publish_tiles();
	__syncthreads();
	UNROLL
	for (int slot = 0; slot < ROW_SLOTS; slot++) {
		const int row = warp % BLOCKS + slot * WARPS;

		add_application<true>(x[slot], dk[slot], second, row, part);
		if (part == 0)
			make_symmetric_row(tiles, row, lane, x[slot]);
	}
	publish_tiles();
	__syncthreads();
#else
	UNROLL
	for (int slot = 0; slot < ROW_SLOTS; slot++) {
		const int row = warp % BLOCKS + slot * WARPS;

		load_rows<1, HEAD_DIM>(left, tiles.outputs + row * 16 * HEAD_DIM * 2, ROWS_PLANE);
		multiply<1, HEAD_DIM, true, FULL, 1, false>(
			dq[slot], left, tiles.state + columns, STATE_PLANE);
		if (part == ROW_PARTS - 1) { /* not where warps make the other one, if there are so many */
			multiply<1, HEAD_DIM, false, FULL, 1, false>(x[slot], left, tiles.values, ROWS_PLANE);
			make_score_row(tiles.scores, row, 0, lane, x[slot]);
		}
		add_application<false>(x[slot], dk[slot], first, row, part);
		if (part == 0)
			make_symmetric_row(tiles, row, lane, x[slot]);
	}
	publish_tiles();
	__syncthreads();
	UNROLL
	for (int slot = 0; slot < ROW_SLOTS; slot++) {
		const int row = warp % BLOCKS + slot * WARPS;

		/* of tril(do Nᵀ) what lies above the diagonal is not there */
		load_rows<1, CHUNK>(right, tiles.scores + row * 16 * CHUNK * 2, SQUARE_PLANE);
		UNROLL
		for (int k = 0; k < CHUNK_K; k++) {
			UNROLL
			for (int i = 0; i < 4; i++)
				right[0][k][i] = k <= row ? right[0][k][i] : 0;
		}
		multiply<1, HEAD_DIM, true, FULL>(dq[slot], right, tiles.keys + columns, ROWS_PLANE);
		write_block_row(a, a.q_gradient, share, rows, tiles.outputs, row, part, dq[slot]);
		load_columns<CHUNK>(right, tiles.scores, row);
		UNROLL
		for (int k = 0; k < CHUNK_K; k++) {
			UNROLL
			for (int i = 0; i < 4; i++)
				right[0][k][i] = k >= row ? right[0][k][i] : 0;
		}
		multiply<1, HEAD_DIM, true, FULL>(dk[slot], right, tiles.queries + columns, ROWS_PLANE);
	}
#endif
	UNROLL
	for (int slot = 0; slot < ROW_SLOTS; slot++) {
		const int row = warp % BLOCKS + slot * WARPS;

		load_rows<1, CHUNK>(right, tiles.symmetric + row * 16 * CHUNK * 2, SQUARE_PLANE);
		multiply<1, HEAD_DIM, true, FULL>(dk[slot], right, tiles.keys + columns, ROWS_PLANE);
		write_block_row(a, a.k_gradient, share, rows, tiles.outputs, row, part, dk[slot]);
	}
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
	tiles.inverse = tiles.adjoined + (UPSTREAM ? GRADIENT_ROWS_OR_SQUARE(HEAD_DIM) : ROWS_BYTES);
	tiles.symmetric = UPSTREAM ? tiles.adjoined : tiles.inverse;
	tiles.state = tiles.inverse + (UPSTREAM ? GRADIENT_ROWS_OR_SQUARE(HEAD_DIM) : SQUARE_BYTES);
	tiles.adjoint = tiles.state + STATE_BYTES;
	tiles.twice = tiles.scores = tiles.adjoint + STATE_BYTES;
	tiles.numbers = tiles.twice + (UPSTREAM ? STATE_BYTES : SQUARE_BYTES);

	const struct rows rows = start_rows(a.of, share);
	const long long place = (long long)share.index * STATE_BYTES;
	const int chunk = a.first_chunk + share.index;
	const struct chunk_block block = start_block(a.of, tiles.inverse, share.sequence % a.of.heads);

	/* in the order in which it is waited for */
	load_tensor(a, rows, a.of.k, rows.k, chunk, tiles.keys);
	copy_async_commit();
	load_tensor(a, rows, a.of.v, rows.v, chunk, tiles.values);
	if (!UPSTREAM)
		load_tensor(a, rows, a.of.q, rows.q, chunk, tiles.queries);
	fetch_inverse(tiles.inverse, place_of_square(a, share.sequence, share.index));
	fetch_tile<STATE_BYTES>(tiles.state, place_of_states<false>(a, STATES, share.sequence) + place);
	copy_async_commit();
	if (UPSTREAM)
		load_tensor(a, rows, a.of.q, rows.q, chunk, tiles.queries);
	load_output_gradient(a, share, chunk, tiles.outputs);
	fetch_tile<STATE_BYTES>(tiles.adjoint, place_of_states<false>(a, ADJOINTS, share.sequence) + place);
	copy_async_commit();
	if (!UPSTREAM)
		clear_square(tiles.scores);
	copy_async_wait_group<2>();
	__syncthreads();
	make_slopes(tiles, block.beta);
	copy_async_wait_group<1>();
	publish_tiles();
	__syncthreads();
	if (!UPSTREAM) {
		make_score_rows(block, tiles.keys, tiles.queries, tiles.scores, block.warp, WARPS);
		publish_tiles();
		__syncthreads();
	}
	make_chunk_gradient(a, share, rows, tiles);
	if (block.warp == 0) {
		const unsigned terms = tiles.numbers + CHUNK * 4;
		float sum = load_shared_float(terms + block.lane * 4) +
			load_shared_float(terms + (block.lane + 32) * 4);

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
	double sum = 0;

	for (int batch = 0; batch < a.of.batch; batch++) {
		const float *terms = a.beta_terms + ((long long)batch * a.of.heads + head) * a.of.chunks;

		for (int chunk = thread; chunk < a.of.chunks; chunk += GRADIENT_BETA_THREADS)
			sum += terms[chunk];
	}
	sums[thread] = sum;
	for (int distance = GRADIENT_BETA_THREADS / 2; distance; distance /= 2) {
		__syncthreads();
		if (thread < distance)
			sums[thread] += sums[thread + distance];
	}
	if (thread == 0)
		a.beta_gradient[head] = (float)sums[0];
}
