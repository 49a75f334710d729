/* layer_gate: RMSNorm of each head's o, times its weight, times sigmoid(gate), into `gate`. A lane has eight
 * numbers, a head HEAD_DIM / 8 lanes. Bound by memory. Compile-time parameters: HEAD_DIM, INPUT. */
#include "element.cuh"

#define THREADS 256
#define LANES (HEAD_DIM / 8)

extern "C" __global__ void __launch_bounds__(THREADS)
	layer_gate(const __grid_constant__ struct layer_gate_arguments a)
{
	const long long head = (blockIdx.x * (long long)THREADS + threadIdx.x) / LANES;
	const int at = threadIdx.x % LANES * 8;
	const bool inside = head < a.heads;
	ELEMENT *gate = (ELEMENT *)a.gate + head * HEAD_DIM + at;
	float o[8] = {}, g[8], squares = 0.0f, scale;

	if (inside)
		load_eight(o, (const ELEMENT *)a.o + head * HEAD_DIM + at, 1);
#pragma unroll
	for (int i = 0; i < 8; i++)
		squares += o[i] * o[i];
#pragma unroll
	for (int lanes = 1; lanes < LANES; lanes *= 2)
		squares += __shfl_xor_sync(~0u, squares, lanes);
	if (!inside)
		return;
	scale = rsqrtf(squares / HEAD_DIM + 1e-5f);
	load_eight(g, gate, 1);
#pragma unroll
	for (int i = 0; i < 8; i++)
		g[i] = __fdividef(scale * o[i] * a.weight[at + i], 1.0f + __expf(-g[i]));
	*(uint4 *)gate = make_uint4(element_pair(g[0], g[1]), element_pair(g[2], g[3]), element_pair(g[4], g[5]),
		element_pair(g[6], g[7]));
}
