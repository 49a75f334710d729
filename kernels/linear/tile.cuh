/* tile: 16 rows in a warp's own shared memory: from memory, by all threads side by side, and to a thread, in pieces. */
#pragma once

#include "common/element.cuh"
#include "common/tile.cuh"
#include "linear/warp.cuh"

static __device__ __forceinline__ unsigned shared_memory(void)
{
	extern __shared__ __align__(16) unsigned char memory[];

	return (unsigned)__cvta_generic_to_shared(memory);
}

template <int WORDS> struct __align__(WORDS * 4) line
{
	unsigned word[WORDS];
};

template <int WORDS> static __device__ __forceinline__ struct line<WORDS> *line_at(unsigned address) {
	return (struct line<WORDS> *)__cvta_shared_to_generic(address);
}

/* 16 rows of ROW elements in shared memory, in segments of 16 bytes. These are permuted within a row so that what threads
 * that read at a time read lies in different banks, be it of two rows or of every second one. */
template <int ROW>
struct tile {
	static constexpr int SEGMENTS = ROW * (int)sizeof(ELEMENT) / 16, ELEMENTS = 16 / (int)sizeof(ELEMENT);
	static constexpr int ROWS_AT_ONCE = 32 / SEGMENTS; /* that a warp copies, a segment a thread */

	static __device__ __forceinline__ unsigned address(unsigned tile, int row, int segment)
	{
		const int permuted = segment ^ (((row & 6) ^ (row & 1) << 2) & (SEGMENTS - 1));

		return tile + (row * SEGMENTS + permuted) * 16;
	}
};

/* COUNT elements of a row that LANES threads share, in pieces of up to 16 bytes that they take in turn. */
template <int COUNT, int LANES> struct pieces {
	typedef struct tile<COUNT * LANES> tile;
	static constexpr int BYTES = COUNT * (int)sizeof(ELEMENT);
	static constexpr int PIECE = BYTES < 16 ? BYTES : 16;
	static constexpr int NUMBER = BYTES / PIECE, ELEMENTS = PIECE / (int)sizeof(ELEMENT);

	/* Which element of the row a thread's i-th is. */
	static __device__ __forceinline__ int element(int thread, int i)
	{
		return (i / ELEMENTS * LANES + thread) * ELEMENTS + i % ELEMENTS;
	}

	static __device__ __forceinline__ struct line<PIECE / 4> *piece_at(
		unsigned tile, int row, int thread, int n) {
		const int byte = element(thread, n *ELEMENTS) * (int)sizeof(ELEMENT);

		return line_at<PIECE / 4>(pieces::tile::address(tile, row, byte / 16) + byte % 16);
	}

	static __device__ __forceinline__ void
	load(unsigned (&words)[BYTES / 4], unsigned tile, int row, int thread)
	{
		UNROLL
		for (int n = 0; n < NUMBER; n++) {
			const struct line<PIECE / 4> piece = *piece_at(tile, row, thread, n);

			UNROLL
			for (int i = 0; i < PIECE / 4; i++)
				words[n * (PIECE / 4) + i] = piece.word[i];
		}
	}
};

typedef pieces<LANE_KEYS, 4> key_pieces;    /* of rows */
typedef pieces<KEY_DIM / 8, 8> key_columns; /* of columns, as are all further ones */
typedef pieces<LANE_VALUES, 8> value_columns;
typedef tile<KEY_DIM> key_tile;
typedef tile<VALUE_TILE> value_tile;

static __device__ __forceinline__ float word_element(const unsigned *words, int i)
{
#if INPUT == INPUT_F32
	return __uint_as_float(words[i]);
#else
	return element_float((ELEMENT)(words[i / 2] >> i % 2 * 16));
#endif
}

/* The chunk row of a thread's n-th row of columns. */
static __device__ __forceinline__ int column_row(const struct place &place, int n)
{
	return n / 2 * 8 + place.pair + n % 2;
}

/* Where the thread's part of a chunk is. */
struct cursor {
	const ELEMENT *row; /* its first element in its first row */
	long long stride;   /* from row to row */

	__device__ __forceinline__ cursor(
		const struct device_tensor &tensor, const struct place &place, int first_row, int element)
	    : row((const ELEMENT *)tensor.data +
		      row_offset(tensor, place.batch, (long long)place.first * LINEAR_CHUNK + first_row,
			      place.head) +
		      element * tensor.stride[3]),
	      stride(tensor.stride[1])
	{
	}

	__device__ __forceinline__ void advance(int chunks)
	{
		row += chunks * LINEAR_CHUNK * stride;
	}
};

/* Of a tile's columns from `first_element` on, for copy_tile(). */
template <typename TILE>
static __device__ __forceinline__ struct cursor tile_cursor(
	const struct device_tensor &tensor, const struct place &place, int first_element)
{
	return cursor(tensor, place, place.lane / TILE::SEGMENTS,
		first_element + place.lane % TILE::SEGMENTS * TILE::ELEMENTS);
}

/* Copies a tile, so that threads side by side ask for a whole row. `left`: tokens from the chunk's first to the sequence's
 * end, behind which zeros are. */
template <typename TILE>
static __device__ __forceinline__ void copy_tile(const struct cursor &from,
	const struct device_tensor &tensor, const struct place &place, int left, unsigned tile)
{
	UNROLL
	for (int n = 0; n < LINEAR_CHUNK; n += TILE::ROWS_AT_ONCE) {
		const int row = n + place.lane / TILE::SEGMENTS;
		const unsigned to = TILE::address(tile, row, place.lane % TILE::SEGMENTS);
		const ELEMENT *source = from.row + n * from.stride;

#if VECTOR
		copy_async(to, source, row < left);
#else
		UNROLL
		for (int i = 0; i < TILE::ELEMENTS; i++)
			((ELEMENT *)line_at<4>(to))[i] = row < left ? source[i * tensor.stride[3]]
								    : (ELEMENT)0;
#endif
	}
}
