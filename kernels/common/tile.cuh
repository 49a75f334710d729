/* tile: matrices of bf16 in shared memory, and products of them on the tensor cores.
 *
 * A tile is row-major with rows of COLUMNS elements. The 16-byte segments of a row are permuted by the
 * row number so that the eight rows that one ldmatrix reads lie in different banks. Rows of 128 elements
 * are cut in two halves of 128 bytes, eight rows of the one before eight of the other: with rows of 64
 * that is the layout that wgmma knows as a swizzle of 128 bytes.
 *
 * All products have the same shape: a warp owns 16 rows of the left factor and of the result, both in
 * registers; the right factor is a tile that all warps read. The result of one product has, packed to
 * bf16, the register layout of the left factor of the next, so that chains of products never leave the
 * warp. `PLANES` = 2 carries every value as the sum of two bf16 (16 bits of mantissa) in two tiles, one
 * after the other, and drops only the product of the two small parts. */
#pragma once

#define UNROLL _Pragma("unroll")

/* Of the products' factors: bf16, or for whoever packs them itself f16. */
#ifndef TILE_TYPE
#define TILE_TYPE "bf16"
#endif

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
	UNROLL
	for (int p = 0; p < PLANES; p++) {
		pair[p] = pack_bf16(low, high);
		low -= bf16_low(pair[p]);
		high -= bf16_high(pair[p]);
	}
}

/* --- addresses ------------------------------------------------------------------------------------ */

/* What an address within a tile is to be XORed with to get from column 0 to this segment. */
template <int COLUMNS> static __device__ __forceinline__ unsigned tile_column(int segment)
{
	return COLUMNS <= 64 ? segment * 16 : segment % 8 * 16 + segment / 8 * 1024;
}

template <int COLUMNS> static __device__ __forceinline__ unsigned tile_offset(int row, int segment)
{
	int permuted = segment ^ (COLUMNS >= 64 ? row & 7 : row >> 1 & 3);

	if (COLUMNS <= 64)
		return row * COLUMNS * 2 + permuted * 16;
	return row / 8 * 2048 + row % 8 * 128 + tile_column<COLUMNS>(permuted);
}

/* This lane's part of the address for ldmatrix: eight rows and both segments of a k step, then the next
 * eight rows (`rows_first` false), or sixteen rows, then the second segment (true). */
template <int COLUMNS>
static __device__ __forceinline__ unsigned lane_offset(bool rows_first, int lane = threadIdx.x & 31)
{
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
	asm("mma.sync.aligned.m16n8k16.row.col.f32." TILE_TYPE "." TILE_TYPE ".f32 {%0, %1, %2, %3}, "
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

static __device__ __forceinline__ void store_shared_float(unsigned address, float value)
{
	asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(value) : "memory");
}

static __device__ __forceinline__ float load_shared_float(unsigned address)
{
	float value;

	asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(address) : "memory");
	return value;
}

/* Copies 16 bytes to shared memory without waiting, or fills them with zeros. */
static __device__ __forceinline__ void copy_async(unsigned address, const void *source, bool valid)
{
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(source),
		     "r"(valid ? 16 : 0)
		     : "memory");
}

/* Four bytes. */
static __device__ __forceinline__ void copy_async_word(unsigned address, const void *source, bool valid)
{
	asm volatile(
		"cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(address), "l"(source), "r"(valid ? 4 : 0)
		: "memory");
}

static __device__ __forceinline__ void copy_async_wait(void)
{
	asm volatile("cp.async.wait_all;" ::: "memory");
}

/* Copies started since the last commit are a group; waits until no more than the LATER last groups are under way. */
static __device__ __forceinline__ void copy_async_commit(void)
{
	asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int LATER> static __device__ __forceinline__ void copy_async_wait_group(void)
{
	asm volatile("cp.async.wait_group %0;" ::"n"(LATER) : "memory");
}

/* --- products ------------------------------------------------------------------------------------- */

template <int N> static __device__ __forceinline__ void clear(float (&c)[N][4])
{
	UNROLL
	for (int n = 0; n < N; n++) {
		UNROLL
		for (int i = 0; i < 4; i++)
			c[n][i] = 0.0f;
	}
}

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

/* By four warps together: the 16 rows of each make a left factor of 64, and the tensor cores read the
 * right factor once for all. It has to be published (publish_tiles) before. */
#if defined(PRODUCT_WARPS) && PRODUCT_WARPS == 4
#define WARPGROUP_PRODUCTS 1
#else
#define WARPGROUP_PRODUCTS 0
#endif

/* The compiler knows nothing of an instruction that goes on behind its place: these registers stay as they are up to
 * here, and are read from here on. */
template <int N> static __device__ __forceinline__ void hold(float (&c)[N][4])
{
#if WARPGROUP_PRODUCTS
	UNROLL
	for (int n = 0; n < N; n++)
		asm volatile("" : "+f"(c[n][0]), "+f"(c[n][1]), "+f"(c[n][2]), "+f"(c[n][3])::"memory");
#endif
}

/* What this thread wrote to tiles becomes visible to wgmma, which the barrier that follows does not see to. */
static __device__ __forceinline__ void publish_tiles(void)
{
#if WARPGROUP_PRODUCTS
	asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

#if WARPGROUP_PRODUCTS
/* A tile as wgmma is told of it: the bytes from 64 columns to the next 64, and from eight rows to the next. */
template <int COLUMNS> static __device__ __forceinline__ unsigned long long tile_descriptor(unsigned address)
{
	return (unsigned long long)(address >> 4 & 0x3fff) | 1024ull >> 4 << 16 |
		(unsigned long long)(COLUMNS * 16 >> 4) << 32 | 1ull << 62;
}

#define TILE_4(c, n) "+f"(c[n][0]), "+f"(c[n][1]), "+f"(c[n][2]), "+f"(c[n][3])
#define TILE_8(c, n) TILE_4(c, n), TILE_4(c, n + 1)
#define TILE_16(c, n) TILE_8(c, n), TILE_8(c, n + 2)
#define TILE_32(c, n) TILE_16(c, n), TILE_16(c, n + 4)
#define TILE_64(c, n) TILE_32(c, n), TILE_32(c, n + 8)
#define NAMES_8(a, b, c, d, e, f, g, h) "%" #a ",%" #b ",%" #c ",%" #d ",%" #e ",%" #f ",%" #g ",%" #h
#define NAMES_16 NAMES_8(0, 1, 2, 3, 4, 5, 6, 7) "," NAMES_8(8, 9, 10, 11, 12, 13, 14, 15)
#define NAMES_32                                                                                             \
	NAMES_16 "," NAMES_8(16, 17, 18, 19, 20, 21, 22, 23) "," NAMES_8(24, 25, 26, 27, 28, 29, 30, 31)
#define NAMES_64                                                                                             \
	NAMES_32 "," NAMES_8(32, 33, 34, 35, 36, 37, 38, 39) "," NAMES_8(40, 41, 42, 43, 44, 45, 46,         \
		47) "," NAMES_8(48, 49, 50, 51, 52, 53, 54, 55) "," NAMES_8(56, 57, 58, 59, 60, 61, 62, 63)

/* c += SIGN · a · B, or with ADDS false c = SIGN · a · B: 16 columns of a, 16 rows of B. */
template <bool TRANSPOSED, int SIGN, bool ADDS, int N>
static __device__ __forceinline__ void warpgroup_multiply_add(
	float (&c)[N][4], const unsigned (&a)[4], unsigned long long b)
{
#define WGMMA_OF(columns, names, a0, a1, a2, a3, right, adds, sign, transposed, ...)                         \
	asm volatile(                                                                                        \
		"wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." TILE_TYPE "." TILE_TYPE " {" names   \
		"}, {%" #a0 ",%" #a1 ",%" #a2 ",%" #a3 "}, %" #right ", %" #adds ", %" #sign                 \
		", 1, %" #transposed ";"                                                                     \
		: __VA_ARGS__                                                                                \
		: "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(ADDS), "n"(SIGN), "n"(TRANSPOSED))
	if constexpr (N == 4)
		WGMMA_OF(32, NAMES_16, 16, 17, 18, 19, 20, 21, 22, 23, TILE_16(c, 0));
	else if constexpr (N == 8)
		WGMMA_OF(64, NAMES_32, 32, 33, 34, 35, 36, 37, 38, 39, TILE_32(c, 0));
	else
		WGMMA_OF(128, NAMES_64, 64, 65, 66, 67, 68, 69, 70, 71, TILE_64(c, 0));
#undef WGMMA_OF
}

/* The same with the left factor in a tile, whose rows are rows of the left factor. */
template <bool ADDS, int N>
static __device__ __forceinline__ void warpgroup_multiply_add(
	float (&c)[N][4], unsigned long long a, unsigned long long b)
{
#define WGMMA_OF(columns, names, left, right, adds, ...)                                                     \
	asm volatile("wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." TILE_TYPE "." TILE_TYPE         \
		     " {" names "}, %" #left ", %" #right ", %" #adds ", 1, 1, 0, 0;"                        \
		     : __VA_ARGS__                                                                           \
		     : "l"(a), "l"(b), "n"(ADDS))
	if constexpr (N == 4)
		WGMMA_OF(32, NAMES_16, 16, 17, 18, TILE_16(c, 0));
	else if constexpr (N == 8)
		WGMMA_OF(64, NAMES_32, 32, 33, 34, TILE_32(c, 0));
	else
		WGMMA_OF(128, NAMES_64, 64, 65, 66, TILE_64(c, 0));
#undef WGMMA_OF
}
#endif

/* c[16 × 8N] += SIGN · a[16 × 16K] · B, with B[k][n] at row n, column k of a tile (`transposed` false: the rows
 * of the tile are the columns of B) or at row k, column n (true). `tile` addresses the first row,
 * `plane` bytes lie between planes. With ADDS false c is set instead. Until multiply_finish(), c and a belong to the
 * product. */
template <int PLANES, int COLUMNS, bool TRANSPOSED, enum shape SHAPE, int SIGN = 1, bool ADDS = true, int K,
	int N>
static __device__ __forceinline__ void multiply_start(
	float (&c)[N][4], const unsigned (&a)[PLANES][K][4], unsigned tile, unsigned plane)
{
#if WARPGROUP_PRODUCTS
	hold(c);
	asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
	UNROLL
	for (int k = 0; k < K; k++) {
		UNROLL
		for (int right = 0; right < PLANES; right++) {
			const unsigned long long b = tile_descriptor<COLUMNS>(tile + right * plane +
				(TRANSPOSED ? k * 16 * COLUMNS * 2 : tile_column<COLUMNS>(2 * k)));

			UNROLL
			for (int left = 0; left + right < PLANES; left++) {
				if (ADDS || k + right + left)
					warpgroup_multiply_add<TRANSPOSED, SIGN, true>(c, a[left][k], b);
				else
					warpgroup_multiply_add<TRANSPOSED, SIGN, false>(c, a[left][k], b);
			}
		}
	}
	asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#else
	const unsigned lane = lane_offset<COLUMNS>(TRANSPOSED);
	const unsigned sign = SIGN < 0 ? 0x80008000u : 0u;

	if (!ADDS)
		clear(c);
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
					load_matrices_transposed(
						b, tile + rows + (lane ^ tile_column<COLUMNS>(n)));
				else
					load_matrices(b, tile + rows + (lane ^ tile_column<COLUMNS>(2 * k)));
				UNROLL
				for (int left = 0; left + right < PLANES; left++) {
					multiply_add(c[n], a[left][k], b[0] ^ sign, b[1] ^ sign);
					multiply_add(c[n + 1], a[left][k], b[2] ^ sign, b[3] ^ sign);
				}
			}
		}
	}
#endif
}

/* Waits until no more than the LATER products that were started last are under way. */
template <int LATER = 0, int N> static __device__ __forceinline__ void multiply_finish(float (&c)[N][4])
{
#if WARPGROUP_PRODUCTS
	asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LATER) : "memory");
	hold(c);
#endif
}

/* Started and finished. */
template <int PLANES, int COLUMNS, bool TRANSPOSED, enum shape SHAPE, int SIGN = 1, bool ADDS = true, int K,
	int N>
static __device__ __forceinline__ void multiply(
	float (&c)[N][4], const unsigned (&a)[PLANES][K][4], unsigned tile, unsigned plane)
{
	multiply_start<PLANES, COLUMNS, TRANSPOSED, SHAPE, SIGN, ADDS>(c, a, tile, plane);
	multiply_finish(c);
}

/* c += a · B for one block of 16 × 16, whose upper left corner is at `tile`, row `row` and column
 * `column` counted in blocks; `transposed` false: B is the block's transpose, true: the block itself. */
template <int COLUMNS, bool TRANSPOSED>
static __device__ __forceinline__ void multiply_block(float (&c)[2][4], const unsigned (&a)[1][4],
	unsigned tile, int row, int column, int lane = threadIdx.x & 31)
{
	const unsigned address = tile + row * 16 * COLUMNS * 2 +
		(lane_offset<COLUMNS>(TRANSPOSED, lane) ^ tile_column<COLUMNS>(2 * column));
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
static __device__ __forceinline__ void load_rows(unsigned (&a)[PLANES][K][4], unsigned tile, unsigned plane,
	int first = 0, int lane = threadIdx.x & 31)
{
	const unsigned offset = lane_offset<COLUMNS>(true, lane);

	UNROLL
	for (int p = 0; p < PLANES; p++) {
		UNROLL
		for (int k = 0; k < K; k++)
			load_matrices(
				a[p][k], tile + p * plane + (offset ^ tile_column<COLUMNS>(2 * (first + k))));
	}
}

#if WARPGROUP_PRODUCTS
/* c = A · Bᵀ for tiles of 64 rows and COLUMNS, which lie in PLANES; warp w of the four has rows 16w … of the result. */
template <int PLANES, int COLUMNS>
static __device__ __forceinline__ void multiply_tiles(
	float (&c)[8][4], unsigned left_tile, unsigned right_tile, unsigned left_plane, unsigned right_plane)
{
	hold(c);
	asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
	UNROLL
	for (int k = 0; k < COLUMNS / 16; k++) {
		UNROLL
		for (int right = 0; right < PLANES; right++) {
			UNROLL
			for (int left = 0; left + right < PLANES; left++) {
				const unsigned long long a = tile_descriptor<COLUMNS>(
					left_tile + left * left_plane + tile_column<COLUMNS>(2 * k));
				const unsigned long long b = tile_descriptor<COLUMNS>(
					right_tile + right * right_plane + tile_column<COLUMNS>(2 * k));

				if (k + right + left)
					warpgroup_multiply_add<true>(c, a, b);
				else
					warpgroup_multiply_add<false>(c, a, b);
			}
		}
	}
	asm volatile("wgmma.commit_group.sync.aligned;\n\twgmma.wait_group.sync.aligned 0;" ::: "memory");
	hold(c);
}

/* A left factor's 16 rows and columns to where load_matrices() finds them. */
static __device__ __forceinline__ void store_matrices(unsigned address, const unsigned (&a)[4])
{
	asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
		     "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3])
		     : "memory");
}

/* The same of the transpose, to where load_matrices_transposed() finds them. */
static __device__ __forceinline__ void store_matrices_transposed(unsigned address, const unsigned (&a)[4])
{
	asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
		     "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3])
		     : "memory");
}

/* 16 rows of a tile from a left factor. */
template <int PLANES, int COLUMNS, int K>
static __device__ __forceinline__ void store_rows(
	unsigned tile, const unsigned (&a)[PLANES][K][4], unsigned plane)
{
	const unsigned lane = lane_offset<COLUMNS>(true);

	UNROLL
	for (int p = 0; p < PLANES; p++) {
		UNROLL
		for (int k = 0; k < K; k++)
			store_matrices(tile + p * plane + (lane ^ tile_column<COLUMNS>(2 * k)), a[p][k]);
	}
}
#endif

template <int N> static __device__ __forceinline__ void copy(float (&to)[N][4], const float (&from)[N][4])
{
	UNROLL
	for (int n = 0; n < N; n++) {
		UNROLL
		for (int i = 0; i < 4; i++)
			to[n][i] = from[n][i];
	}
}
