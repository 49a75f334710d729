/* tile: matrices of bf16 in shared memory, and products of them on the tensor cores.
 *
 * A tile is row-major with rows of COLUMNS elements. The 16-byte segments of a row are permuted by the
 * row number so that the eight rows that one ldmatrix reads lie in different banks.
 *
 * All products have the same shape: a warp owns 16 rows of the left factor and of the result, both in
 * registers; the right factor is a tile that all warps read. The result of one product has, packed to
 * bf16, the register layout of the left factor of the next, so that chains of products never leave the
 * warp. `PLANES` = 2 carries every value as the sum of two bf16 (16 bits of mantissa) in two tiles, one
 * after the other, and drops only the product of the two small parts. */
#pragma once

#define UNROLL _Pragma("unroll")

static __device__ __forceinline__ unsigned pack_bf16(float low, float high)
{
	unsigned pair;

	asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
	return pair;
}

static __device__ __forceinline__ float bf16_low(unsigned pair)
{
	return __uint_as_float(pair << 16);
}

static __device__ __forceinline__ float bf16_high(unsigned pair)
{
	return __uint_as_float(pair & 0xffff0000u);
}

/* Splits two floats into PLANES pairs of bf16 whose sum they are. */
template <int PLANES>
static __device__ __forceinline__ void split_bf16(unsigned (&pair)[PLANES], float low, float high)
{
	pair[0] = pack_bf16(low, high);
	if (PLANES > 1)
		pair[PLANES - 1] = pack_bf16(low - bf16_low(pair[0]), high - bf16_high(pair[0]));
}

/* --- addresses ------------------------------------------------------------------------------------ */

template <int COLUMNS> static __device__ __forceinline__ unsigned tile_offset(int row, int segment)
{
	int permuted = segment ^ (COLUMNS >= 64 ? row & 7 : row >> 1 & 3);

	return row * COLUMNS * 2 + permuted * 16;
}

/* This lane's part of the address for ldmatrix: eight rows and both segments of a k step, then the next
 * eight rows (`rows_first` false), or sixteen rows, then the second segment (true). */
template <int COLUMNS> static __device__ __forceinline__ unsigned lane_offset(bool rows_first)
{
	int lane = threadIdx.x & 31;

	if (rows_first)
		return tile_offset<COLUMNS>(lane & 15, lane >> 4);
	return tile_offset<COLUMNS>((lane & 7) + (lane >> 4) * 8, lane >> 3 & 1);
}

/* --- instructions --------------------------------------------------------------------------------- */

static __device__ __forceinline__ void load_matrices(unsigned (&r)[4], unsigned address)
{
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
		     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
		     : "r"(address)
		     : "memory");
}

static __device__ __forceinline__ void load_matrices_transposed(unsigned (&r)[4], unsigned address)
{
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
		     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
		     : "r"(address)
		     : "memory");
}

static __device__ __forceinline__ unsigned transpose_matrix(unsigned pair)
{
	unsigned transposed;

	asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(pair));
	return transposed;
}

static __device__ __forceinline__ void multiply_add(
	float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1)
{
	asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
	    "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
		: "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
		: "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

static __device__ __forceinline__ void store_shared(unsigned address, unsigned value)
{
	asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}

static __device__ __forceinline__ void store_shared(unsigned address, uint4 value)
{
	asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(value.x), "r"(value.y),
		     "r"(value.z), "r"(value.w)
		     : "memory");
}

static __device__ __forceinline__ void store_shared(unsigned address, float x, float y)
{
	asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(x), "f"(y) : "memory");
}

static __device__ __forceinline__ uint4 load_shared(unsigned address)
{
	uint4 value;

	asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
		     : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
		     : "r"(address)
		     : "memory");
	return value;
}

static __device__ __forceinline__ float4 load_shared_float4(unsigned address)
{
	float4 value;

	asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
		     : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
		     : "r"(address)
		     : "memory");
	return value;
}

/* Copies 16 bytes to shared memory without waiting, or fills them with zeros. */
static __device__ __forceinline__ void copy_async(unsigned address, const void *source, bool valid)
{
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(source),
		     "r"(valid ? 16 : 0)
		     : "memory");
}

static __device__ __forceinline__ void copy_async_wait(void)
{
	asm volatile("cp.async.wait_all;" ::: "memory");
}

/* --- products ------------------------------------------------------------------------------------- */

/* The left factor's registers from a result: 16 rows by 8 * N columns. */
template <int PLANES, int N>
static __device__ __forceinline__ void pack_rows(
	unsigned (&a)[PLANES][N / 2][4], const float (&c)[N][4], float scale = 1.0f)
{
	UNROLL
	for (int n = 0; n < N; n++) {
		UNROLL
		for (int half = 0; half < 2; half++) {
			unsigned pair[PLANES];

			split_bf16<PLANES>(pair, scale * c[n][half * 2], scale * c[n][half * 2 + 1]);
			UNROLL
			for (int p = 0; p < PLANES; p++)
				a[p][n / 2][(n & 1) * 2 + half] = pair[p];
		}
	}
}

/* Which blocks of 16×16 of the right factor are not zero; only those are read. */
enum shape {
	FULL,
	UPPER, /* columns at or behind the k step's */
	LOWER, /* columns at or before the k step's */
};

/* c[16 × 8N] += a[16 × 16K] · B, with B[k][n] at row n, column k of a tile (`transposed` false: the rows
 * of the tile are the columns of B) or at row k, column n (true). `tile` addresses the first row,
 * `plane` bytes lie between planes. */
template <int PLANES, int COLUMNS, bool TRANSPOSED, enum shape SHAPE, int K, int N>
static __device__ __forceinline__ void multiply(
	float (&c)[N][4], const unsigned (&a)[PLANES][K][4], unsigned tile, unsigned plane)
{
	const unsigned lane = lane_offset<COLUMNS>(TRANSPOSED);

	UNROLL
	for (int k = 0; k < K; k++) {
		UNROLL
		for (int n = 0; n < N; n += 2) {
			if ((SHAPE == UPPER && n < 2 * k) || (SHAPE == LOWER && n >= 2 * (k + 1)))
				continue;
			UNROLL
			for (int right = 0; right < PLANES; right++) {
				unsigned b[4],
					rows = right * plane + (TRANSPOSED ? k : n / 2) * 16 * COLUMNS * 2;

				if (TRANSPOSED)
					load_matrices_transposed(b, tile + rows + (lane ^ n * 16));
				else
					load_matrices(b, tile + rows + (lane ^ k * 32));
				UNROLL
				for (int left = 0; left + right < PLANES; left++) {
					multiply_add(c[n], a[left][k], b[0], b[1]);
					multiply_add(c[n + 1], a[left][k], b[2], b[3]);
				}
			}
		}
	}
}

/* c += a · B for one block of 16 × 16, whose upper left corner is at `tile`, row `row` and column
 * `column` counted in blocks; `transposed` false: B is the block's transpose, true: the block itself. */
template <int COLUMNS, bool TRANSPOSED>
static __device__ __forceinline__ void multiply_block(
	float (&c)[2][4], const unsigned (&a)[1][4], unsigned tile, int row, int column)
{
	const unsigned address = tile + row * 16 * COLUMNS * 2 +
		(lane_offset<COLUMNS>(TRANSPOSED) ^ column * 32);
	unsigned b[4];

	if (TRANSPOSED)
		load_matrices_transposed(b, address);
	else
		load_matrices(b, address);
	multiply_add(c[0], a[0], b[0], b[1]);
	multiply_add(c[1], a[0], b[2], b[3]);
}

/* The left factor from 16 rows of a tile, from k step `first` on. */
template <int PLANES, int COLUMNS, int K>
static __device__ __forceinline__ void load_rows(
	unsigned (&a)[PLANES][K][4], unsigned tile, unsigned plane, int first = 0)
{
	const unsigned lane = lane_offset<COLUMNS>(true);

	UNROLL
	for (int p = 0; p < PLANES; p++) {
		UNROLL
		for (int k = 0; k < K; k++)
			load_matrices(a[p][k], tile + p * plane + (lane ^ (first + k) * 32));
	}
}

template <int N> static __device__ __forceinline__ void clear(float (&c)[N][4])
{
	UNROLL
	for (int n = 0; n < N; n++) {
		UNROLL
		for (int i = 0; i < 4; i++)
			c[n][i] = 0.0f;
	}
}

template <int N> static __device__ __forceinline__ void copy(float (&to)[N][4], const float (&from)[N][4])
{
	UNROLL
	for (int n = 0; n < N; n++) {
		UNROLL
		for (int i = 0; i < 4; i++)
			to[n][i] = from[n][i];
	}
}
