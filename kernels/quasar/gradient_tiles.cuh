/* gradient_tiles: what the steps of the gradient share: where tiles lie in working memory, and how they come and go. */
#pragma once

#include "quasar/step.cuh"

/* Blocks on a multiprocessor that the compiler leaves registers for. */
#define MAPS_BLOCKS (HEAD_DIM == 128 ? 1 : HEAD_DIM == 64 && WARPGROUP_PRODUCTS ? 4 : 3)
#define ROWS_BLOCKS (HEAD_DIM == 128 ? 1 : 3)

/* The arrays of working memory. */
enum array { TRANSITIONS, STATES, ADJOINTS };

static __device__ __forceinline__ long long sequences_of(const struct quasar_gradient_arguments &a)
{
	return (long long)a.of.batch * a.of.heads;
}

/* T of a chunk of the part. */
static __device__ __forceinline__ unsigned char *place_of_square(
	const struct quasar_gradient_arguments &a, int sequence, int chunk)
{
	return (unsigned char *)a.working + ((long long)sequence * a.part_chunks + chunk) * GRADIENT_SQUARE;
}

/* The states of an array, of a sequence's chunks (of the part) or groups, one behind the other. */
template <bool GROUPS>
static __device__ __forceinline__ unsigned char *place_of_states(
	const struct quasar_gradient_arguments &a, enum array array, int sequence)
{
	const long long chunks = sequences_of(a) * a.part_chunks, groups = sequences_of(a) * a.of.groups;
	const long long index = array * (chunks + groups) +
		(GROUPS ? chunks + (long long)sequence * a.of.groups : (long long)sequence * a.part_chunks);

	return (unsigned char *)a.working + chunks * GRADIENT_SQUARE + index * STATE_BYTES;
}

/* Starts copying a tile to shared memory. */
template <int BYTES>
static __device__ __forceinline__ void fetch_tile(unsigned tile, const unsigned char *from)
{
	UNROLL
	for (int at = 0; at < BYTES; at += THREADS * 16)
		copy_async(tile + at + threadIdx.x * 16, from + at + threadIdx.x * 16, true);
}

/* Whether these 16 bytes of the tile of a Tᵀ are in a block of 16 × 16 on the diagonal or above; the others are zeros, which nobody
 * stores. */
static __device__ __forceinline__ bool is_stored(int at)
{
	const int row = at / (CHUNK * 2), segment = at / 16 % (CHUNK / 8) ^ (row & 7);

	return segment / 2 >= row / 16;
}

/* Starts copying a Tᵀ to shared memory. */
static __device__ __forceinline__ void fetch_inverse(unsigned tile, const unsigned char *from)
{
	UNROLL
	for (int at = threadIdx.x * 16; at < SQUARE_BYTES; at += THREADS * 16)
		copy_async(tile + at, from + at, is_stored(at));
}

/* And to memory. */
static __device__ __forceinline__ void write_inverse(unsigned char *to, unsigned tile)
{
	UNROLL
	for (int at = threadIdx.x * 16; at < SQUARE_BYTES; at += THREADS * 16)
		if (is_stored(at))
			*(uint4 *)(to + at) = load_shared(tile + at);
}

/* The left factor from 16 columns of a tile, from column 16 `column` on, which become its rows. */
template <int COLUMNS, int K>
static __device__ __forceinline__ void load_columns(unsigned (&a)[1][K][4], unsigned tile, int column)
{
	const unsigned offset = lane_offset<COLUMNS>(false) ^ tile_column<COLUMNS>(2 * column);

	UNROLL
	for (int k = 0; k < K; k++)
		load_matrices_transposed(a[0][k], tile + k * 16 * COLUMNS * 2 + offset);
}

/* Block row `row` of a tile of states from a left factor. The warp alone uses these rows, or what they were is behind a barrier. */
static __device__ __forceinline__ void store_state_rows(
	unsigned tile, int row, int lane, const unsigned (&a)[1][STATE_K][4])
{
	__syncwarp();
	UNROLL
	for (int k = 0; k < STATE_K; k++)
		store_block<HEAD_DIM>(tile, row, k, lane, a[0][k]);
}

/* They go on to memory, in pieces of 16 bytes. */
static __device__ __forceinline__ void copy_state_rows(unsigned char *to, unsigned tile, int row, int lane)
{
	const int first = row * 16 * HEAD_DIM * 2;

	__syncwarp();
	UNROLL
	for (int at = first; at < first + 16 * HEAD_DIM * 2; at += 32 * 16)
		*(uint4 *)(to + at + lane * 16) = load_shared(tile + at + lane * 16);
}

static __device__ __forceinline__ void write_state_rows(
	unsigned char *to, unsigned tile, int row, int lane, const unsigned (&a)[1][STATE_K][4])
{
	store_state_rows(tile, row, lane, a);
	copy_state_rows(to, tile, row, lane);
}

/* A left factor [16, C] of a transposed matrix to columns 16 `column` … of a tile of rows, used as those above. */
static __device__ __forceinline__ void store_columns(
	unsigned tile, int column, int lane, const unsigned (&a)[1][CHUNK_K][4])
{
	__syncwarp();
	UNROLL
	for (int k = 0; k < CHUNK_K; k++)
		store_block_transposed<HEAD_DIM>(tile, k, column, lane, a[0][k]);
}

/* c += a where KEEP, else c = a (to add −0 changes nothing); a is a left factor. */
template <bool KEEP, int N>
static __device__ __forceinline__ void add_factor(float (&c)[N][4], const unsigned (&a)[1][N / 2][4])
{
	UNROLL
	for (int n = 0; n < N; n++) {
		UNROLL
		for (int half = 0; half < 2; half++) {
			const unsigned pair = a[0][n / 2][(n & 1) * 2 + half];

			c[n][half * 2] = bf16_low(pair) + (KEEP ? c[n][half * 2] : -0.0F);
			c[n][half * 2 + 1] = bf16_high(pair) + (KEEP ? c[n][half * 2 + 1] : -0.0F);
		}
	}
}

/* Starts loading a chunk's rows of one of q, k and v, of which `source` is this thread's part. */
static __device__ __forceinline__ void load_tensor(const struct quasar_gradient_arguments &a,
	struct rows rows, const struct device_tensor &tensor, const ELEMENT *source, int chunk, unsigned tile)
{
	struct quasar_chunk_arguments of = a.of;

	of.k = tensor;
	rows.k = source;
	load_chunk<1>(of, rows, chunk, tile);
}

/* Starts loading a chunk's rows of the outputs' gradient; output row r of chunk i is token 64 i + r's, under either semantics. */
static __device__ __forceinline__ void load_output_gradient(
	const struct quasar_gradient_arguments &a, const struct share &share, int chunk, unsigned tile)
{
	const int segments = HEAD_DIM / 8, segment = threadIdx.x % segments;
	const struct device_tensor &tensor = a.output_gradient;

	UNROLL
	for (int row = threadIdx.x / segments; row < CHUNK; row += THREADS / segments) {
		const long long token = (long long)chunk * CHUNK + row;

		load_segment(tile + tile_offset<HEAD_DIM>(row, segment),
			(const ELEMENT *)tensor.data +
				row_offset(tensor, share.sequence / a.of.heads, token,
					share.sequence % a.of.heads) +
				segment * 8 * tensor.stride[3],
			tensor.stride[3], token < a.of.tokens);
	}
}
