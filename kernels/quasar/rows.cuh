/* rows: a chunk's rows of K, V and Q, from memory to tiles, and its gates to registers. bf16 that lie side by side are copied
 * while the block works; all else passes through registers, split into PLANES. */
#pragma once

#include "common/element.cuh"
#include "quasar/share.cuh"

/* One head's share of q, k and v, from this thread's segment of a row on. */
struct rows {
	const ELEMENT *q, *k, *v;
	unsigned first, end; /* upstream: of the flattened (token, head) rows; zeros stand behind the end */
	long long tokens;    /* causal: so many, and zeros behind them */
	const float *log_gate;
};

static __device__ __forceinline__ const ELEMENT *head_rows(
	const struct device_tensor &tensor, int batch, long long first, int head, int segment)
{
	return (const ELEMENT *)tensor.data + batch * tensor.stride[0] +
		(PACKED ? first * tensor.stride[1] : 0) + (UPSTREAM ? 0 : head * tensor.stride[2]) +
		segment * 8 * tensor.stride[3];
}

/* Eight elements of a row into a segment of a tile; zeros when the row is not valid. */
static __device__ __forceinline__ void load_segment(
	unsigned address, const ELEMENT *source, long long stride, bool valid)
{
#if VECTOR && INPUT == INPUT_BF16
	copy_async(address, source, valid);
#else
	float value[8] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
	uint4 plane[2];
	unsigned *high = &plane[0].x, *low = &plane[1].x;

	if (valid)
		load_eight(value, source, stride);
	UNROLL
	for (int i = 0; i < 4; i++) {
		unsigned pair[PLANES];

		split_bf16<PLANES>(pair, value[2 * i], value[2 * i + 1]);
		high[i] = pair[0];
		low[i] = pair[PLANES - 1];
	}
	store_shared(address, plane[0]);
	if (PLANES > 1)
		store_shared(address + ROWS_PLANE, plane[1]);
#endif
}

/* Starts loading the rows of K, of two or three TENSORS V, and of three Q, of a chunk into the tiles of a stage. */
template <int TENSORS>
static __device__ __forceinline__ void load_chunk(const struct quasar_chunk_arguments &a,
	const struct rows &rows, int chunk, unsigned stage, int thread = threadIdx.x % MAKING_THREADS)
{
	const int segments = HEAD_DIM / 8, first = thread / segments, at_once = MAKING_THREADS / segments;
	/* The fork takes the memory of [T, H] rows for [H, T] rows; see docs/math.md */
	const int step = UPSTREAM ? 2 : 1; /* the dimension whose stride leads from one row to the next */
	const unsigned start = (UPSTREAM ? rows.first : 0) + chunk * CHUNK + first;
	const unsigned end = UPSTREAM ? rows.end : (unsigned)(PACKED ? rows.tokens : a.tokens);
	const ELEMENT *k = rows.k + start * a.k.stride[step], *v = rows.v + start * a.v.stride[step],
		      *q = rows.q + start * a.q.stride[step];

	UNROLL
	for (int pass = 0; pass < CHUNK / at_once; pass++) {
		const unsigned row = start + pass * at_once;
		const unsigned address = stage +
			tile_offset<HEAD_DIM>(first + pass * at_once, thread % segments);
		const bool valid = row < end;

		if (UPSTREAM && !COMPACT) {
			const unsigned token = row / a.heads, head = row % a.heads;

			k = rows.k + token * a.k.stride[1] + head * a.k.stride[2];
			v = rows.v + token * a.v.stride[1] + head * a.v.stride[2];
			q = rows.q + token * a.q.stride[1] + head * a.q.stride[2];
		}
		load_segment(address, k, a.k.stride[3], valid);
		if (TENSORS > 1)
			load_segment(address + ROWS_BYTES, v, a.v.stride[3], valid);
		if (TENSORS > 2)
			load_segment(address + 2 * ROWS_BYTES, q, a.q.stride[3], valid);
		k += at_once * a.k.stride[step];
		v += at_once * a.v.stride[step];
		q += at_once * a.q.stride[step];
	}
}

static __device__ __forceinline__ struct rows start_rows(
	const struct quasar_chunk_arguments &a, const struct share &share)
{
	const int segment = threadIdx.x % (HEAD_DIM / 8), head = share.sequence % a.heads;
	const int batch = PACKED ? 0 : share.sequence / a.heads;

	struct rows rows = {head_rows(a.q, batch, share.first, head, segment),
		head_rows(a.k, batch, share.first, head, segment),
		head_rows(a.v, batch, share.first, head, segment), (unsigned)head * a.chunks * CHUNK,
		(unsigned)(a.tokens * a.heads), tokens_of(a, share)};

	if (UPSTREAM && a.first_row) {
		rows.first = a.first_row[head];
		rows.end = ~0u;
	}
	if (GATED)
		rows.log_gate = a.log_gate + (batch * a.tokens + share.first) * a.heads + head;
	return rows;
}

/* log₂ g of this lane's two tokens of a chunk. */
static __device__ __forceinline__ void load_gates(
	float (&gate)[2], const struct quasar_chunk_arguments &a, const struct rows &rows, int chunk)
{
#if GATED
	UNROLL
	for (int i = 0; i < 2; i++) {
		const int row = threadIdx.x % 32 * 2 + i;
		const long long token = (long long)chunk * CHUNK + row;

		gate[i] = row < CHUNK && token < rows.tokens ? log2_gate(rows.log_gate[token * a.heads])
							     : 0.0f;
	}
#endif
}

/* Starts loading K, V and, of three TENSORS, Q of a chunk, and T where it is there already. */
template <int TENSORS>
static __device__ __forceinline__ void load_stage(const struct quasar_chunk_arguments &a,
	const struct rows &rows, const struct share &share, int chunk, unsigned stage,
	int thread = threadIdx.x % MAKING_THREADS)
{
	load_chunk<TENSORS>(a, rows, chunk, stage, thread);
	if (!SEPARATE_INVERSE)
		return;

	const unsigned tile = stage + TENSORS * ROWS_BYTES + thread * 16;
	const unsigned char *inverse = inverse_of(a, share, chunk) + thread * 16;

	UNROLL
	for (int at = 0; at < SQUARE_BYTES; at += MAKING_THREADS * 16)
		copy_async(tile + at, inverse + at, true);
}
