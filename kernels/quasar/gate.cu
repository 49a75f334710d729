/* quasar_gate: α = (1 − exp(−β λ)) / (λ + ε) with λ = ‖k‖², for every row of k [B, T, H, S], to fp32
 * [B, T, H]. Reads k once and is bound by that.
 *
 * Four lanes share a row: with 16 bytes a lane a bf16 row of 32 is one access. Compile-time parameters:
 * HEAD_DIM, INPUT, VECTOR as in chunk.cu. */
#include "common/element.cuh"
#include "quasar/arguments.h"
#include "quasar/gate.cuh"
#include "quasar/layout.h"

#define THREADS GATE_THREADS
#define LANES GATE_LANES
#define PER_LANE (HEAD_DIM / LANES)

extern "C" __global__ void __launch_bounds__(THREADS)
	quasar_gate(const __grid_constant__ struct quasar_gate_arguments a)
{
	wait_for_launch_before();

	const long long row = (blockIdx.x * (long long)THREADS + threadIdx.x) / LANES;
	const int part = threadIdx.x % LANES, head = row % a.heads;
	const long long token = row / a.heads % a.tokens;
	const int batch = (int)(row / a.heads / a.tokens);
	float lambda = 0.0f;

	if (batch < a.batch) {
		const ELEMENT *source = (const ELEMENT *)a.k.data + row_offset(a.k, batch, token, head);

#pragma unroll
		for (int i = 0; i < PER_LANE; i += 8) {
			float x[8];

			load_eight(x, source + (i * LANES + part * 8) * (VECTOR ? 1 : a.k.stride[3]),
				a.k.stride[3]);
#pragma unroll
			for (int n = 0; n < 8; n++)
				lambda += x[n] * x[n];
		}
	}
	lambda += __shfl_xor_sync(~0u, lambda, 1);
	lambda += __shfl_xor_sync(~0u, lambda, 2);
	if (batch < a.batch && part == 0)
		a.alpha[row] = gate(a.beta[head], lambda);
}
