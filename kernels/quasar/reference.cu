/* quasar_reference: the recurrence in fp64, token by token, to compare with on the device.
 *
 * λ = ‖k‖², α = (1 − exp(−β λ)) / (λ + ε); St ← g St, then St + α k (v − k St); o = q St; g is 1 without a gate.
 * Upstream semantics takes the rows of a chunk of 64 through St, then once more through a copy of it, and
 * multiplies the chunk's queries with that copy (docs/math.md).
 *
 * A block owns 16 columns of one head's state, four lanes a column, each with a quarter of the rows in
 * registers. Compile-time parameters: HEAD_DIM, UPSTREAM, INPUT, GATED, PACKED as in chunk.cu. */
#include "common/element.cuh"
#include "quasar/arguments.h"
#include "quasar/layout.h"

#define COLUMNS REFERENCE_COLUMNS
#define LANES REFERENCE_LANES
#define THREADS REFERENCE_THREADS
#define PART (HEAD_DIM / LANES)
#define ROWS UPSTREAM_CHUNK

struct chunk_rows {
	float q[ROWS][HEAD_DIM], k[ROWS][HEAD_DIM], v[ROWS][COLUMNS];
	double alpha[ROWS], gate[ROWS];
};
static_assert(sizeof(struct chunk_rows) == REFERENCE_SHARED(HEAD_DIM), "as the host thinks");

static __device__ double sum_lanes(double value)
{
	value += __shfl_xor_sync(~0u, value, 1);
	return value + __shfl_xor_sync(~0u, value, 2);
}

/* The dot product of a row with this column of the state. Lane `part` owns rows part, part + 4, … */
static __device__ double project(const float *row, const double (&state)[PART], int part)
{
	double even = 0.0, odd = 0.0;

#pragma unroll
	for (int i = 0; i < PART; i += 2) {
		even += row[i * LANES + part] * state[i];
		odd += row[(i + 1) * LANES + part] * state[i + 1];
	}
	return sum_lanes(even + odd);
}

static __device__ void advance(
	double (&state)[PART], const struct chunk_rows &rows, int row, int column, int part)
{
	const double gate = GATED ? rows.gate[row] : 1.0;
	double step = rows.alpha[row] * (rows.v[row][column] - gate * project(rows.k[row], state, part));

#pragma unroll
	for (int i = 0; i < PART; i++)
		state[i] = gate * state[i] + rows.k[row][i * LANES + part] * step;
}

extern "C" __global__ void __launch_bounds__(THREADS)
	quasar_reference(const __grid_constant__ struct quasar_reference_arguments a)
{
	wait_for_launch_before();

	extern __shared__ __align__(16) unsigned char memory[];
	struct chunk_rows &rows = *(struct chunk_rows *)memory;
	const int sequence = blockIdx.x / a.heads, head = blockIdx.x % a.heads;
	const int batch = PACKED ? 0 : sequence;
	const long long start = PACKED ? min(max(a.starts[sequence], 0ll), a.tokens) : 0;
	const long long tokens = (PACKED ? min(a.starts[sequence + 1], a.tokens) : a.tokens) - start;
	const int part = threadIdx.x % LANES, column = threadIdx.x / LANES;
	const int value = blockIdx.y * COLUMNS + column;
	const double beta = a.beta[head];
	double state[PART];

#pragma unroll
	for (int i = 0; i < PART; i++)
		state[i] = a.initial_state
			? a.initial_state[((long long)blockIdx.x * HEAD_DIM + i * LANES + part) * HEAD_DIM +
				  value]
			: 0.0;
	for (int chunk = 0; PACKED ? chunk * (long long)ROWS < tokens : chunk < a.chunks; chunk++) {
		const long long first = (long long)chunk * ROWS;
		int count = ROWS;

		__syncthreads();
		for (int i = threadIdx.x; i < ROWS * HEAD_DIM; i += THREADS) {
			int row = i / HEAD_DIM, dim = i % HEAD_DIM;
#if UPSTREAM
			long long flat = ((long long)head * a.chunks + chunk) * ROWS + row;
			long long token = flat / a.heads;
			int from = flat % a.heads;
#else
			long long token = start + first + row;
			int from = head;
#endif
			bool valid = token < start + tokens;

			rows.q[row][dim] = valid ? load_element(a.q, batch, token, from, dim) : 0.0f;
			rows.k[row][dim] = valid ? load_element(a.k, batch, token, from, dim) : 0.0f;
			if (dim / COLUMNS == blockIdx.y)
				rows.v[row][dim % COLUMNS] = valid
					? load_element(a.v, batch, token, from, dim)
					: 0.0f;
		}
		__syncthreads();
		for (int row = threadIdx.x; row < ROWS; row += THREADS) {
			double lambda = 0.0;

			for (int i = 0; i < HEAD_DIM; i++)
				lambda += (double)rows.k[row][i] * rows.k[row][i];
			rows.alpha[row] = -expm1(-beta * lambda) / (lambda + QUASAR_EPSILON);
			if (GATED && first + row < tokens)
				rows.gate[row] = exp((
					double)a.log_gate[(batch * a.tokens + start + first + row) * a.heads +
					head]);
		}
		__syncthreads();
		if (first + count > tokens)
			count = (int)(tokens - first);
#if UPSTREAM
		double twice[PART];

		for (int row = 0; row < ROWS; row++)
			advance(state, rows, row, column, part);
#pragma unroll
		for (int i = 0; i < PART; i++)
			twice[i] = state[i];
		for (int row = 0; row < ROWS; row++)
			advance(twice, rows, row, column, part);
#endif
		for (int row = 0; row < count; row++) {
			double result;

#if UPSTREAM
			result = project(rows.q[row], twice, part);
#else
			advance(state, rows, row, column, part);
			result = project(rows.q[row], state, part);
#endif
			if (part == 0)
				a.o[((batch * a.tokens + start + first + row) * a.heads + head) * HEAD_DIM +
					value] = result;
		}
	}
	if (a.final_state)
#pragma unroll
		for (int i = 0; i < PART; i++)
			a.final_state[((long long)blockIdx.x * HEAD_DIM + i * LANES + part) * HEAD_DIM +
				value] = state[i];
}
