// The step size of each token, alpha = (1 - exp(-beta |k|^2)) / (|k|^2 + eps): gate.py as a CUDA kernel.
// One warp a row of k. Launch with blockDim.x = 32 * w for w warps a block and ceil(rows / w) blocks.
#include <cuda_bf16.h>

// k [rows, dim] with rows = tokens * heads, beta [heads], alpha [rows]; row r belongs to head r % heads.
extern "C" __global__ void quasar_gate(const __nv_bfloat16 *__restrict__ k, const float *__restrict__ beta,
				       float *__restrict__ alpha, long long rows, int heads, int dim)
{
	const long long row = ((long long)blockIdx.x * blockDim.x + threadIdx.x) / 32;
	const int lane = threadIdx.x % 32;
	float length = 0;

	if (row >= rows)
		return;
	for (int i = lane; i < dim; i += 32) {
		const float value = __bfloat162float(k[row * dim + i]);

		length += value * value;
	}
	for (int offset = 16; offset; offset /= 2)
		length += __shfl_xor_sync(0xffffffffu, length, offset);
	if (lane == 0)
		alpha[row] = -expm1f(-beta[row % heads] * length) / (length + 1e-8f);
}
