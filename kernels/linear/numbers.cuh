/* numbers: r and f of a chunk's rows (linear/layout.h): who makes them, and the element more that x and y have by them. */
#pragma once

#include "linear/tile.cuh"

static __device__ __forceinline__ float reciprocal(float divisor)
{
	float inverse;

	asm("rcp.approx.f32 %0, %1;" : "=f"(inverse) : "f"(divisor));
	return fabsf(divisor) < SMALLEST_DIVISOR ? 0.0f : inverse;
}

/* r and f of a chunk's rows, one behind the other in shared memory; zeros behind the sequence's end. */
enum { SCALES, OFFSETS };

static __device__ __forceinline__ float &row_number(unsigned numbers, int which, int row)
{
	return *(float *)__cvta_shared_to_generic(numbers + (which * LINEAR_CHUNK + row) * 4);
}

/* A number to each thread: of the first half `scales`, of the second `offsets`. */
static __device__ __forceinline__ void copy_numbers(const struct linear_arguments &a, const float *scales,
	const float *offsets, const struct place &place, int chunk, unsigned address)
{
	const int row = place.lane % LINEAR_CHUNK;
	const float *from = place.lane < LINEAR_CHUNK ? scales : offsets;
	const long long token = (long long)chunk * LINEAR_CHUNK + row;

	copy_async_word(address + place.lane * 4,
		from + (long long)place.sequence * a.tokens + token * a.row_step, token < a.tokens);
}

/* Adds up what the eight threads of columns have of each of their four rows; a thread gets that of its row
 * group_row % 4. */
static __device__ __forceinline__ float sum_of_columns(const struct place &place, const float (&parts)[4])
{
	const bool odd = place.group_row & 1, high = place.group_row & 2;
	float rows[2], sum;

	UNROLL
	for (int n = 0; n < 2; n++) /* each step gives away half of what it has */
		rows[n] = (odd ? parts[2 * n + 1] : parts[2 * n]) +
			__shfl_xor_sync(~0u, odd ? parts[2 * n] : parts[2 * n + 1], 4);
	sum = (high ? rows[1] : rows[0]) + __shfl_xor_sync(~0u, high ? rows[0] : rows[1], 8);
	return sum + __shfl_xor_sync(~0u, sum, 16);
}

/* r and f of a chunk's rows, from their divisors, which stand in r's place: for the warp and for later. `o` and `d_o` are
 * the addresses of columns. Warps with other columns of the state make the same. */
static __device__ __forceinline__ void make_row_numbers(const struct linear_arguments &a,
	const struct place &place, long long token, unsigned d_o, unsigned o, unsigned numbers)
{
	const int row = column_row(place, place.group_row % 4);
	float scale = 1.0f, offset = 0.0f;

	if (NORMALISED) {
		float products[4] = {0.0f, 0.0f, 0.0f, 0.0f};

		UNROLL
		for (int n = 0; n < 4; n++) {
			unsigned words[2][key_columns::BYTES / 4];

			key_columns::load(words[0], d_o, column_row(place, n), place.group_row);
			key_columns::load(words[1], o, column_row(place, n), place.group_row);
			UNROLL
			for (int i = 0; i < KEY_DIM / 8; i++)
				products[n] += word_element(words[0], i) * word_element(words[1], i);
		}
		scale = reciprocal(row_number(numbers, SCALES, row));
		offset = -scale * sum_of_columns(place, products);
		__syncwarp(); /* all have read the divisors */
	}
	if (place.group_row < 4) {
		row_number(numbers, SCALES, row) = scale;
		row_number(numbers, OFFSETS, row) = offset;
	}
	if (place.group_row < 4 && token + row < a.tokens) {
		const long long at = (long long)place.sequence * a.tokens + (token + row) * a.row_step;

		a.scales[at] = scale;
		a.offsets[at] = offset;
	}
	__syncwarp();
}

/* Of the element that x and y have more: x's is 1 and y's f, or the other way round. */
static __device__ __forceinline__ float extra_of_x(unsigned numbers, int row)
{
	return PASS == PASS_DQ ? row_number(numbers, OFFSETS, row) : 1.0f;
}

/* `left`: as copy_tile(). */
static __device__ __forceinline__ float extra_of_y(unsigned numbers, int row, int left)
{
	return PASS == PASS_DK ? row_number(numbers, OFFSETS, row) : row < left ? 1.0f : 0.0f;
}
