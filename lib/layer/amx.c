/* product on AMX. */
#include "layer/product.h"

#include "cpu/amx.h"

#define BLOCK 32 /* rows at a time */

/* Thirty-two columns of the result at a time: their weights stay in the first-level cache while the rows of x
 * pass by. */
void product_amx(const uint16_t *x, int rows, int inner, const uint32_t *pairs, int columns,
	const float *bias, uint16_t *y)
{
	float sums[BLOCK * 32] ALIGNED;

	tiles_begin();
	for (int column = 0; column < columns; column += 32, pairs += inner / 2 * 32) {
		__m512 left = bias ? _mm512_loadu_ps(bias + column) : _mm512_setzero_ps();
		__m512 right = bias ? _mm512_loadu_ps(bias + column + 16) : _mm512_setzero_ps();

		for (int row = 0; row < rows; row += BLOCK) {
			uint16_t *to = y + (size_t)row * (size_t)columns + column;

			sum_zero();
			for (int i = 0; i < inner; i += 32) {
				left_load(x + (size_t)row * (size_t)inner + i, inner);
				sum_add(pairs + i / 2 * 32, 32);
			}
			sum_store(sums, 32);
			for (int r = 0; r < BLOCK && row + r < rows; r++, to += columns)
				_mm512_storeu_si512(to,
					amx_narrow(_mm512_load_ps(sums + r * 32) + left,
						_mm512_load_ps(sums + r * 32 + 16) + right));
		}
	}
	_tile_release();
}
