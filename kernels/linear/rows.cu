/* linear_rows: what the gradient of a row's output does to the rest. With o = n / d, n = φ(q) S, d = φ(q) · z
 *     dn = r do,  dd = −r (do · o) = f,  with r = 1 / d
 * Unnormalised: r = 1, f = 0. ROWS_LANES threads take a row.
 *
 * Compile-time parameters: VALUE_DIM, NORMALISED, INPUT, VECTOR, as linear/attention.cu has them. */
#include "common/element.cuh"
#include "linear/arguments.h"
#include "linear/layout.h"

static __device__ __forceinline__ float product_of_rows(
	const struct linear_rows_arguments &a, int batch, long long token, int head, int lane)
{
	const ELEMENT *o = (const ELEMENT *)a.o.data + row_offset(a.o, batch, token, head);
	const ELEMENT *d_o = (const ELEMENT *)a.d_o.data + row_offset(a.d_o, batch, token, head);
	float sum = 0.0f;

#pragma unroll
	for (int i = lane * 8; i < VALUE_DIM; i += ROWS_LANES * 8) {
		float x[8], y[8];

		load_eight(x, o + i * a.o.stride[3], a.o.stride[3]);
		load_eight(y, d_o + i * a.d_o.stride[3], a.d_o.stride[3]);
#pragma unroll
		for (int n = 0; n < 8; n++)
			sum += x[n] * y[n];
	}
	sum += __shfl_xor_sync(~0u, sum, 1);
	return sum + __shfl_xor_sync(~0u, sum, 2);
}

extern "C" __global__ void __launch_bounds__(ROWS_THREADS)
	linear_rows(const __grid_constant__ struct linear_rows_arguments a)
{
	/* rows as they lie in memory, heads of a token side by side */
	const long long index = ((long long)blockIdx.x * ROWS_THREADS + threadIdx.x) / ROWS_LANES;
	const long long rows = a.tokens * a.heads * a.batch, row = index < rows ? index : rows - 1;
	const int head = (int)(row % a.heads), lane = threadIdx.x % ROWS_LANES;
	const long long token = row / a.heads % a.tokens;
	const int batch = (int)(row / a.heads / a.tokens);
	const long long at = ((long long)batch * a.heads + head) * a.tokens + token;
	float scale = 1.0f, offset = 0.0f;

	if (NORMALISED) {
		const float d = a.divisors[at];

		scale = fabsf(d) < SMALLEST_DIVISOR ? 0.0f : 1.0f / d;
		offset = -scale * product_of_rows(a, batch, token, head, lane);
	}
	if (index < rows && lane == 0) {
		a.scales[at] = scale;
		a.offsets[at] = offset;
	}
}
