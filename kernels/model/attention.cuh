/* attention: the heads of a token look at the keys of its session, up to its own. A block takes the heads that share a
 * head of keys, and a part of the sequence; the next product puts the parts together (attended()). Keys, values and sums
 * are fp32. */
#pragma once

#include "model/parcel.cuh"
#include "model/plan.cuh"

#define KEYS MODEL_KEYS(TOKENS)
#define QUADS (HEAD_DIM / 4)           /* four numbers of a head */
#define PARTS (MODEL_THREADS / QUADS)  /* threads that have the same quad of values, of different keys */
#define SCORERS (MODEL_THREADS / KEYS) /* threads that have the same key, of different quads */
#define SPLITS_AT_ONCE (TILES == 1 ? 3 : 2)
#define NOTHING __int_as_float(0xff800000) /* −∞ */

/* Of a block: what one part of the step works on, after the other. */
extern __shared__ __align__(16) unsigned char memory[];

/* The parts that a row's sequence is attended to in: as many as keep all blocks busy. */
static __device__ __forceinline__ int splits_of(const struct model_step_arguments &a, int row)
{
	return min(a.splits, (a.rows[row].position + KEYS) / KEYS);
}

/* Where a session keeps a key or value of a row's token; `head` counts those of keys, then those of values. */
static __device__ __forceinline__ float *cached(
	const struct model_step_arguments &a, int layer, int row, int head, int position)
{
	const int kind = head / KV_HEADS;
	const long long at = (kind * (long long)a.layer_count + layer) * KV_HEADS + head % KV_HEADS;

	return a.rows[row].cache + (at * a.rows[row].capacity + position) * HEAD_DIM;
}

struct attention {
	float4 sums[GROUP][MODEL_THREADS]; /* of weighted values */
	float queries[GROUP][HEAD_DIM];
	float scores[GROUP][KEYS];
	float newest[2][HEAD_DIM]; /* key and value, where they are sent */
	float largest[GROUP], sum[GROUP],
		shrink[GROUP]; /* shrink: what older sums are to be multiplied with */
};
/* What a thread has of some keys and their values. */
struct attended_keys {
	float4 keys[divide_up(QUADS, SCORERS)], values[divide_up(KEYS, PARTS)];
};
static_assert(
	sizeof(struct attention) <= MODEL_ATTENTION_BYTES(TOKENS, HEAD_DIM, GROUP), "as the host counts");

static __device__ __forceinline__ float dot(float4 a, float4 b)
{
	return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
}

static __device__ __forceinline__ void read_keys(
	struct attended_keys &read, const float *keys, const float *values, int count)
{
	const int key = THREAD / SCORERS, quad = THREAD % QUADS, part = THREAD / QUADS;

#pragma unroll
	for (int n = 0; n < divide_up(QUADS, SCORERS); n++) {
		const int i = n * SCORERS + THREAD % SCORERS;

		if (key < count && i < QUADS)
			read.keys[n] = __ldcg((const float4 *)(keys + key * HEAD_DIM) + i);
	}
#pragma unroll
	for (int n = 0; n < divide_up(KEYS, PARTS); n++)
		if (part < PARTS && n * PARTS + part < count)
			read.values[n] = __ldcg(
				(const float4 *)(values + (n * PARTS + part) * HEAD_DIM) + quad);
}

/* −∞ where there is no key. */
static __device__ __forceinline__ void score(
	struct attention &shared, const struct attended_keys &read, int count)
{
	const int key = THREAD / SCORERS, scorer = THREAD % SCORERS;
	float scores[GROUP] = {};

#pragma unroll
	for (int n = 0; n < divide_up(QUADS, SCORERS); n++) {
		const int i = n * SCORERS + scorer;

#pragma unroll
		for (int g = 0; g < GROUP; g++)
			if (key < count && i < QUADS)
				scores[g] += dot(read.keys[n], ((const float4 *)shared.queries[g])[i]);
	}
#pragma unroll
	for (int g = 0; g < GROUP; g++) {
#pragma unroll
		for (int other = 1; other < SCORERS; other *= 2)
			scores[g] += __shfl_xor_sync(~0u, scores[g], other);
		if (scorer == g % SCORERS)
			shared.scores[g][key] = key < count ? scores[g] : NOTHING;
	}
}

/* A warp a head: scores become weights. */
static __device__ __forceinline__ void weigh(struct attention &shared)
{
	const int lane = THREAD % 32;

	for (int g = THREAD / 32; g < GROUP; g += MODEL_WARPS) {
		float largest = shared.largest[g], sum = 0;

		for (int i = lane; i < KEYS; i += 32)
			largest = fmaxf(largest, shared.scores[g][i]);
		for (int other = 16; other; other /= 2)
			largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, other));
		for (int i = lane; i < KEYS; i += 32) {
			const float weight = __expf(shared.scores[g][i] - largest);

			shared.scores[g][i] = weight;
			sum += weight;
		}
		for (int other = 16; other; other /= 2)
			sum += __shfl_xor_sync(~0u, sum, other);
		if (lane == 0) {
			shared.shrink[g] = __expf(shared.largest[g] - largest);
			shared.sum[g] = shared.sum[g] * shared.shrink[g] + sum;
			shared.largest[g] = largest;
		}
	}
}

/* Weighted values, of every PARTS-th key. */
static __device__ __forceinline__ void add_values(
	const struct attention &shared, const struct attended_keys &read, int count, float4 (&sums)[GROUP])
{
	const int part = THREAD / QUADS;

#pragma unroll
	for (int g = 0; g < GROUP; g++) {
		sums[g].x *= shared.shrink[g], sums[g].y *= shared.shrink[g];
		sums[g].z *= shared.shrink[g], sums[g].w *= shared.shrink[g];
	}
#pragma unroll
	for (int n = 0; n < divide_up(KEYS, PARTS); n++) {
		const int key = n * PARTS + part;
		const float4 four = read.values[n];

		if (part >= PARTS || key >= count)
			continue;
#pragma unroll
		for (int g = 0; g < GROUP; g++) {
			const float weight = shared.scores[g][key];

			sums[g].x += weight * four.x, sums[g].y += weight * four.y;
			sums[g].z += weight * four.z, sums[g].w += weight * four.w;
		}
	}
}

static __device__ __forceinline__ void hand_over(const struct model_step_arguments &a, int layer,
	struct attention &shared, long long at, const float4 (&sums)[GROUP])
{
#pragma unroll
	for (int g = 0; g < GROUP; g++)
		shared.sums[g][THREAD] = sums[g];
	meet_block();
#if STREAMED
	for (int i = THREAD; i < GROUP * QUADS; i += MODEL_THREADS) {
		const int g = i / QUADS, quad = i % QUADS,
			  to = ATTENDED_AT + (int)(at + g * MODEL_SPLITS) * 2 * QUADS + quad;
		float4 total = make_float4(0, 0, 0, 0);

#pragma unroll 16
		for (int part = 0; part < PARTS; part++) {
			const float4 more = shared.sums[g][part * QUADS + quad];

			total.x += more.x, total.y += more.y, total.z += more.z, total.w += more.w;
		}
		send(a, to, total.x, total.y, total.z, a.number + layer);
		send(a, to + QUADS, total.w, shared.largest[g], shared.sum[g], a.number + layer);
	}
#else
	for (int i = THREAD; i < GROUP * HEAD_DIM; i += MODEL_THREADS) {
		const int g = i / HEAD_DIM, dim = i % HEAD_DIM;
		const float(*parts)[HEAD_DIM] = (const float(*)[HEAD_DIM])shared.sums[g];
		const long long to = at + g * MODEL_SPLITS;
		float total = 0;

#pragma unroll 16
		for (int part = 0; part < PARTS; part++)
			total += parts[part][dim];
		a.partial[to * HEAD_DIM + dim] = total;
		if (dim == 0)
			((float2 *)a.partial_of)[to] = make_float2(shared.largest[g], shared.sum[g]);
	}
#endif
}

#if SENDS_HEADS

/* The query of a single token; and its key and value, if wanted. A parcel has two numbers, half a head apart. */
static __device__ __forceinline__ void receive_heads(const struct model_step_arguments &a, int head,
	int key_head, bool newest, unsigned number, struct attention &shared)
{
	constexpr int half = HEAD_DIM / 2;

	static_assert(GROUP == 1, "a block takes one head of a single token");
	for (int i = THREAD; i < (newest ? 3 : 1) * half; i += MODEL_THREADS) {
		const int which = i / half, index = i % half;
		float *to = which ? shared.newest[which - 1] : shared.queries[0];
		const float scale = which ? 1.0f : 1 / sqrtf(HEAD_DIM);
		const int at = HEADS_AT + (which ? key_head + (which - 1) * KV_HEADS : head) * half + index;
		uint4 pair[1];

		receive(a, pair, 1, number, [=](int) { return at; });
		to[index] = __uint_as_float(pair[0].x) * scale;
		to[index + half] = __uint_as_float(pair[0].y) * scale;
	}
}

/* What has not been read from the session, as it is being put there. */
static __device__ __forceinline__ void take_newest(
	const struct attention &shared, struct attended_keys &read, int newest)
{
#pragma unroll
	for (int n = 0; n < divide_up(QUADS, SCORERS); n++)
		if (THREAD / SCORERS == newest && n * SCORERS + THREAD % SCORERS < QUADS)
			read.keys[n] = ((const float4 *)shared.newest[0])[n * SCORERS + THREAD % SCORERS];
#pragma unroll
	for (int n = 0; n < divide_up(KEYS, PARTS); n++)
		if (n * PARTS + THREAD / QUADS == newest)
			read.values[n] = ((const float4 *)shared.newest[1])[THREAD % QUADS];
}

#endif

/* The heads of a group, of a row, over part `split` of `splits`. */
static __device__ __forceinline__ void attend(
	const struct model_step_arguments &a, int layer, int row, int group, int split, int splits)
{
	struct attention &shared = *(struct attention *)memory;
	const int head = group * GROUP, kv_head = head / (HEADS / KV_HEADS);
	const int length = a.rows[row].position + 1, share = (length + splits - 1) / splits;
	const int first = split * share, end = min(length, first + share);
	const float *queries = a.heads_at + (row * (HEADS + KV_HEADS) + head) * HEAD_DIM;
	const float *keys = cached(a, layer, row, kv_head, 0),
		    *values = cached(a, layer, row, KV_HEADS + kv_head, 0);
	float4 sums[GROUP] = {};

	for (int key = first; key < end; key += KEYS) {
		const int count = min(end - key, KEYS);

		const bool last = key + count == length;
		struct attended_keys read;

		read_keys(read, keys + key * HEAD_DIM, values + key * HEAD_DIM,
			SENDS_HEADS && last ? count - 1 : count);
		if (key == first) {
#if SENDS_HEADS
			receive_heads(a, head, HEADS + kv_head, end == length, a.number + layer, shared);
#else
			for (int i = THREAD; i < GROUP * HEAD_DIM; i += MODEL_THREADS)
				shared.queries[0][i] = __ldcg(queries + i) * (1 / sqrtf(HEAD_DIM));
#endif
			if (THREAD < GROUP)
				shared.largest[THREAD] = NOTHING, shared.sum[THREAD] = 0;
			meet_block();
		}
#if SENDS_HEADS
		if (last)
			take_newest(shared, read, count - 1);
#endif
		score(shared, read, count);
		meet_block();
		weigh(shared);
		meet_block();
		add_values(shared, read, count, sums);
		meet_block();
	}
	hand_over(a, layer, shared, (long long)(row * HEADS + head) * MODEL_SPLITS + split, sums);
	meet_block();
}

/* Blocks that have no part in making heads come first: they read older keys meanwhile. */
static __device__ __forceinline__ void attention(const struct model_step_arguments &a, int layer)
{
	const int groups = HEADS / GROUP, items = (TOKENS == 1 ? 1 : a.row_count) * groups;

	for (int item = BLOCKS - 1 - blockIdx.x; item < items * MODEL_SPLITS; item += BLOCKS) {
		const int row = item % items / groups, split = item / items, splits = splits_of(a, row);

		if (split < splits)
			attend(a, layer, row, item % groups, split, splits);
	}
}

/* What a part of a sequence has of four columns: sums, its largest score and the sum of its weights. */
struct attended_part {
	float4 sums;
	float largest, weight;
};

/* Parts `first` to first + count − 1 of a row's head. */
static __device__ __forceinline__ void read_parts(const struct model_step_arguments &a, int layer, int row,
	int column, int first, int count, struct attended_part (&parts)[SPLITS_AT_ONCE])
{
	const int head = row * HEADS + column / HEAD_DIM, at = head * MODEL_SPLITS + first,
		  quad = column % HEAD_DIM / 4;

#if STREAMED
	uint4 parcels[2 * SPLITS_AT_ONCE];

	receive(a, parcels, 2 * count, a.number + layer,
		[=](int i) { return ATTENDED_AT + (2 * at + i) * QUADS + quad; });
#endif
#pragma unroll
	for (int i = 0; i < SPLITS_AT_ONCE; i++) {
		parts[i].largest = NOTHING;
		if (i >= count)
			continue;
#if STREAMED
		const uint4 one = parcels[2 * i], other = parcels[2 * i + 1];

		parts[i] = {make_float4(__uint_as_float(one.x), __uint_as_float(one.y),
				    __uint_as_float(one.z), __uint_as_float(other.x)),
			__uint_as_float(other.y), __uint_as_float(other.z)};
#else
		const float2 state = __ldcg((const float2 *)a.partial_of + at + i);

		parts[i] = {__ldcg((const float4 *)a.partial + (at + i) * QUADS + quad), state.x, state.y};
#endif
	}
}

/* Four numbers of what a row's heads attended to, side by side. */
static __device__ __forceinline__ float4 attended(
	const struct model_step_arguments &a, int layer, int row, int column)
{
	const int splits = splits_of(a, row);
	float4 total = make_float4(0, 0, 0, 0);
	float largest = NOTHING, sum = 0;

	/* as many at a time as most sequences have */
	for (int first = 0; first < splits; first += SPLITS_AT_ONCE) {
		struct attended_part parts[SPLITS_AT_ONCE];
		const float before = largest;

		read_parts(a, layer, row, column, first, splits - first, parts);
#pragma unroll
		for (int i = 0; i < SPLITS_AT_ONCE; i++)
			largest = fmaxf(largest, parts[i].largest);
		const float shrink = __expf(before - largest);

		sum *= shrink;
		total.x *= shrink, total.y *= shrink, total.z *= shrink, total.w *= shrink;
#pragma unroll
		for (int i = 0; i < SPLITS_AT_ONCE; i++) {
			const float weight = __expf(parts[i].largest - largest);

			if (first + i >= splits)
				break;
			sum += weight * parts[i].weight;
			total.x += weight * parts[i].sums.x, total.y += weight * parts[i].sums.y;
			total.z += weight * parts[i].sums.z, total.w += weight * parts[i].sums.w;
		}
	}
	sum = __fdividef(1, sum);
	return make_float4(total.x * sum, total.y * sum, total.z * sum, total.w * sum);
}
