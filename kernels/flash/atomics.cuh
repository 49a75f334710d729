/* atomics: the gradient in one pass over keys, which adds to dQ in memory what each block has of it. No order of these
 * sums is like another, and blocks wait for each other: what the second pass is there to avoid. It is a rung of the
 * ladder that `bench --leaderboard` measures, and nothing else; part of backward.cu with ATOMICS = 1. */

/* Where a query's sums of dQ are. */
static __device__ __forceinline__ float *dq_sums(const struct flash_arguments &a, long long query)
{
	return a.dq_sums + query * HEAD_DIM;
}

/* dQ += dS K, of the warp's kept keys and the tile's queries; `ds` is transposed. `index`: of the head's first query. */
static __device__ __forceinline__ void add_query_gradients(const struct flash_arguments &a,
	const float (&ds)[GROUPS][WALK_N][4], unsigned keys, long long index, int column, int tokens)
{
	const unsigned lane = lane_offset<HEAD_DIM>(true);

	UNROLL
	for (int g = 0; g < GROUPS; g++) {
		UNROLL
		for (int m = 0; m < WALK_K; m++) { /* 16 queries each */
			float c[DIM_N][4];
			unsigned rows[4];

			clear(c);
			UNROLL
			for (int i = 0; i < 4; i++)
				rows[i] = transpose_matrix(element_pair(ds[g][2 * m + i % 2][i / 2 * 2],
					ds[g][2 * m + i % 2][i / 2 * 2 + 1]));
			UNROLL
			for (int n = 0; n < DIM_N; n += 2) {
				unsigned b[4];

				load_matrices_transposed(b,
					keys + warp_row(g) * HEAD_DIM * 2 +
						(lane ^ tile_column<HEAD_DIM>(n)));
				multiply_add(c[n], rows, b[0], b[1]);
				multiply_add(c[n + 1], rows, b[2], b[3]);
			}
			UNROLL
			for (int i = 0; i < 4; i++) {
				const int query = column + m * 16 + ((threadIdx.x & 31) >> 2) + (i >> 1) * 8;

				if (query >= tokens)
					continue;
				UNROLL
				for (int n = 0; n < DIM_N; n++)
					atomicAdd(dq_sums(a, index + query) + score_column(n, i), c[n][i]);
			}
		}
	}
}

/* Before the pass: D, and zeros. */
extern "C" __global__ void __launch_bounds__(THREADS)
	flash_backward_begin(const __grid_constant__ struct flash_arguments a)
{
	wait_for_launch_before();

	const struct place place = locate(a, a.heads, false);
	float *sums = dq_sums(a, query_index(a, place, place.head) + place.row);

	if (place.row >= place.tokens)
		return;
	make_statistics(a, place, shared_memory());
	for (int i = threadIdx.x; i < BLOCK_M * HEAD_DIM; i += THREADS)
		if (place.row + i / HEAD_DIM < place.tokens)
			sums[i] = 0.0f;
}

/* Behind it: dQ from its sums. */
extern "C" __global__ void __launch_bounds__(THREADS)
	flash_backward_end(const __grid_constant__ struct flash_arguments a)
{
	wait_for_launch_before();

	const struct place place = locate(a, a.heads, false);
	const float *sums = dq_sums(a, query_index(a, place, place.head) + place.row);
	ELEMENT *dq = head_of(a.dq, place, place.head);

	for (int i = threadIdx.x; i < BLOCK_M * HEAD_DIM; i += THREADS) {
		const int token = place.row + i / HEAD_DIM;

		if (token < place.tokens)
			dq[token * a.dq.stride[1] + i % HEAD_DIM * a.dq.stride[3]] = float_element(
				a.scale * sums[i]);
	}
}
