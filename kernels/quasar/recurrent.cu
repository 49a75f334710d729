/* quasar_recurrent: the recurrence token by token, state in and state out: decoding (causal semantics).
 *
 *     step = α (v − k St);  St ← St + k ⊗ step;  o = q St
 *
 * For one token this moves the state once each way and nothing else of size, so it is bound by that. A
 * block owns one head's state; a warp owns 32 of its columns, each lane four of them in every fourth row,
 * so that the warp's accesses are whole lines of 128 bytes and all its sums stay within the warp.
 *
 * With a gate St decays by g first. Of several tokens the state stays in registers from one to the next; with a cache
 * it is also written behind each of them, since the last ones may turn out to be guesses that were wrong (what decoding
 * with speculation asks for: then it starts from the last state that stood).
 *
 * Compile-time parameters: HEAD_DIM, INPUT, GATED, PACKED as in chunk.cu; CACHED 1: states are slots of a cache. */
#include "common/element.cuh"
#include "quasar/arguments.h"
#include "quasar/gate.cuh"
#include "quasar/layout.h"

#define THREADS RECURRENT_THREADS(HEAD_DIM)
#define STEP 4 /* rows between two rows of a lane */
#define ROWS (HEAD_DIM / STEP)
#define BLOCKS (HEAD_DIM == 128 ? 2 : 8) /* of a multiprocessor, as many as registers allow */

/* Over the four lanes that have the same columns. */
static __device__ __forceinline__ float sum_rows(float value)
{
	value += __shfl_xor_sync(~0u, value, 8);
	return value + __shfl_xor_sync(~0u, value, 16);
}

/* The number of the state that a sequence starts from; negative: zeros. */
static __device__ __forceinline__ long long start_number(
	const struct quasar_recurrent_arguments &a, int sequence)
{
#if CACHED
	const int accepted = a.accepted ? min(a.accepted[sequence], a.width) : 1;

	return accepted > 0 ? a.slots[(long long)sequence * a.width + accepted - 1] : -1;
#else
	return sequence;
#endif
}

static __device__ __forceinline__ long long place(
	const struct quasar_recurrent_arguments &a, long long number, int head)
{
	return (number * a.heads + head) * HEAD_DIM * HEAD_DIM;
}

static __device__ __forceinline__ void store_state(const struct quasar_recurrent_arguments &a,
	const float4 (&state)[ROWS], long long number, int head, int first_row, int column)
{
	if (number < 0)
		return;
#pragma unroll
	for (int i = 0; i < ROWS; i++)
		__stcs((float4 *)(a.final_state + place(a, number, head) + column +
			       (first_row + i * STEP) * HEAD_DIM),
			state[i]);
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
	quasar_recurrent(const __grid_constant__ struct quasar_recurrent_arguments a)
{
	wait_for_launch_before();

	const int sequence = blockIdx.x / a.heads, head = blockIdx.x % a.heads, lane = threadIdx.x % 32;
	const int first_row = lane / 8, column = threadIdx.x / 32 * 32 + lane % 8 * 4;
	const int batch = PACKED ? 0 : sequence;
	const long long first = PACKED ? min(max(a.starts[sequence], 0ll), a.tokens) : 0;
	const long long end = PACKED ? min(a.starts[sequence + 1], a.tokens) : a.tokens;
	const long long start = start_number(a, sequence);
	const float beta = a.beta[head];
	float4 state[ROWS];

#pragma unroll
	for (int i = 0; i < ROWS; i++)
		state[i] = a.initial_state && start >= 0
			? __ldcs((const float4 *)(a.initial_state + place(a, start, head) + column +
				  (first_row + i * STEP) * HEAD_DIM))
			: make_float4(0.0f, 0.0f, 0.0f, 0.0f);
	for (long long token = first; token < end; token++) {
		float k[ROWS], q[ROWS], v[4], lambda = 0.0f, alpha;
		float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);

#pragma unroll
		for (int i = 0; i < ROWS; i++) {
			k[i] = load_element(a.k, batch, token, head, first_row + i * STEP);
			q[i] = load_element(a.q, batch, token, head, first_row + i * STEP);
		}
#pragma unroll
		for (int i = 0; i < 4; i++)
			v[i] = load_element(a.v, batch, token, head, column + i);
#if GATED
		const float g = expf(a.log_gate[(batch * a.tokens + token) * a.heads + head]);

#pragma unroll
		for (int i = 0; i < ROWS; i++)
			state[i] = make_float4(
				g * state[i].x, g * state[i].y, g * state[i].z, g * state[i].w);
#endif
#pragma unroll
		for (int i = 0; i < ROWS; i++) {
			lambda += k[i] * k[i];
			sum.x += k[i] * state[i].x;
			sum.y += k[i] * state[i].y;
			sum.z += k[i] * state[i].z;
			sum.w += k[i] * state[i].w;
		}
		alpha = gate(beta, sum_rows(lambda));
		v[0] = alpha * (v[0] - sum_rows(sum.x));
		v[1] = alpha * (v[1] - sum_rows(sum.y));
		v[2] = alpha * (v[2] - sum_rows(sum.z));
		v[3] = alpha * (v[3] - sum_rows(sum.w));
		sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
		for (int i = 0; i < ROWS; i++) {
			state[i].x += k[i] * v[0];
			state[i].y += k[i] * v[1];
			state[i].z += k[i] * v[2];
			state[i].w += k[i] * v[3];
			sum.x += q[i] * state[i].x;
			sum.y += q[i] * state[i].y;
			sum.z += q[i] * state[i].z;
			sum.w += q[i] * state[i].w;
		}
		v[0] = sum_rows(sum.x);
		v[1] = sum_rows(sum.y);
		v[2] = sum_rows(sum.z);
		v[3] = sum_rows(sum.w);
		if (first_row == 0) {
			ELEMENT *target = (ELEMENT *)a.o.data + row_offset(a.o, batch, token, head);

#pragma unroll
			for (int i = 0; i < 4; i++)
				target[(column + i) * a.o.stride[3]] = float_element(v[i]);
		}
#if CACHED
		if (token - first < a.width)
			store_state(a, state, a.slots[(long long)sequence * a.width + token - first], head,
				first_row, column);
#endif
	}
	if (!CACHED && a.final_state)
		store_state(a, state, sequence, head, first_row, column);
}
