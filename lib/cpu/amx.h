/* amx: products of 32 × 32 on the matrix units of newer Xeons: bf16 factors, fp32 sums. For files that are
 * compiled for them alone.
 *
 * Tiles 0 to 3 are the sum, 2 × 2 of them, 4 and 5 a left factor's, 6 and 7 a right factor's. A right
 * factor stands as pairs of rows: the 32 bits at [p][c] hold rows 2p (low) and 2p + 1 of column c. */
#pragma once

#include <immintrin.h>

#include "cpu/vector.h"

INLINE void tiles_begin(void)
{
	struct {
		uint8_t palette, start_row, reserved[14];
		uint16_t row_bytes[16];
		uint8_t rows[16];
	} config ALIGNED = {.palette = 1};

	for (int i = 0; i < 8; i++) {
		config.row_bytes[i] = 64;
		config.rows[i] = 16;
	}
	_tile_loadconfig(&config);
}

INLINE void sum_zero(void)
{
	_tile_zero(0);
	_tile_zero(1);
	_tile_zero(2);
	_tile_zero(3);
}

/* sum = C [32, 32], rows of `stride` floats */
INLINE void sum_load(const float *c, int stride)
{
	_tile_loadd(0, c, stride * 4);
	_tile_loadd(1, c + 16, stride * 4);
	_tile_loadd(2, c + 16 * stride, stride * 4);
	_tile_loadd(3, c + 16 * stride + 16, stride * 4);
}

INLINE void sum_store(float *c, int stride)
{
	_tile_stored(0, c, stride * 4);
	_tile_stored(1, c + 16, stride * 4);
	_tile_stored(2, c + 16 * stride, stride * 4);
	_tile_stored(3, c + 16 * stride + 16, stride * 4);
}

/* A [32, 32] in bf16, rows of `stride` numbers */
INLINE void left_load(const uint16_t *a, int64_t stride)
{
	_tile_loadd(4, a, stride * 2);
	_tile_loadd(5, a + 16 * stride, stride * 2);
}

/* sum += A B, with B [32, 32] in pairs of rows of `stride` columns */
INLINE void sum_add(const uint32_t *b, int stride)
{
	_tile_loadd(6, b, stride * 4);
	_tile_loadd(7, b + 16, stride * 4);
	_tile_dpbf16ps(0, 4, 6);
	_tile_dpbf16ps(1, 4, 7);
	_tile_dpbf16ps(2, 5, 6);
	_tile_dpbf16ps(3, 5, 7);
}

/* 32 numbers rounded to bf16. */
INLINE __m512i amx_narrow(__m512 a, __m512 b)
{
	return (__m512i)_mm512_cvtne2ps_pbh(b, a);
}
