/* product: rows of weights times the activations of a few tokens, on the tensor cores.
 *
 * A warp multiplies tiles: 16 rows of weights, as the left factor, with eight tokens at a time, slice by slice of 32
 * columns. Which columns of a slice are which terms of an mma is free, as long as both factors agree: a lane has eight
 * in a row, so that it reads 16 bytes of weights at a time, from memory straight into the registers of the mma. It reads
 * them MODEL_DEPTH slices ahead, the first ones already before the blocks have waited for each other, for weights do not
 * change. The two halves of a tile are any eight rows each: where two numbers of a product go together (the halves of
 * a pair that turns; gate and up), they are in one lane.
 *
 * An fp32 activation is carried as the sum of PLANES 16-bit numbers, and so are fp32 weights: that keeps 16 bits of it with
 * bf16 weights, 22 with fp16, 24 with fp32. The activations are in shared memory, in the order that lanes need them. */
#pragma once

#include "common/element.cuh"
#include "common/tile.cuh"
#include "model/attention.cuh"
#include "model/barrier.cuh"

#define PLANES MODEL_PLANES(INPUT)
#define DEPTH MODEL_DEPTH(INPUT)
#define SECTIONS (INPUT == INPUT_F32 ? 2 : 1) /* of 16 bytes, of a lane, of a row, of a slice */
#define WEIGHT_PLANES (INPUT == INPUT_F32 ? PLANES : 1)
#define PARTS_AHEAD 2   /* from a product to the one whose weights are fetched meanwhile */
#define SLICES_AHEAD 16 /* of a tile, that are fetched into the second-level cache */

/* fp16 has little room above: activations are made smaller, and sums larger again. */
#define REDUCTION (INPUT == INPUT_F16 ? 32.0f : 1.0f)

enum product {
	QKV,     /* queries, keys and values of the normalised x */
	OUTPUT,  /* x += of what was attended to */
	GATE_UP, /* silu(gate) · up of the normalised x */
	DOWN,    /* x += of that */
	LOGITS,  /* of the normalised x of the rows that predict */
};

/* A product of a layer; products of a step are counted through. */
struct part {
	enum product product;
	int layer;
};

static __device__ __forceinline__ int count_parts(const struct model_step_arguments &a)
{
	return a.layer_count * LOGITS + (a.output_count > 0);
}

static __device__ __forceinline__ struct part part_of(const struct model_step_arguments &a, int number)
{
	const int layer = number / LOGITS;

	return {layer < a.layer_count ? (enum product)(number % LOGITS) : LOGITS, layer};
}

struct product_memory {
	float4 sums[MODEL_WARPS][TILES][32]; /* of each warp, in its registers' order */
	unsigned long long best[TILES * 8];  /* of each token, in this block's rows; see MODEL_TOKEN */
	float scales[TILES * 8];             /* of each token's norm */
	uint4 staged[STAGE][TILES][PLANES][32];
};
static_assert(
	sizeof(struct product_memory) == MODEL_PRODUCT_BYTES(TILES, STAGE, INPUT), "as the host counts");

/* --- which rows are multiplied where -------------------------------------------------------------- */

/* How the blocks share a product. A tile is multiplied by `split` warps, each every split-th slice. */
struct plan {
	struct part part;
	struct model_matrix matrix;
	int tokens, slices;
	int tiles, split, rounds; /* rounds: tiles of a warp */
	int units;                /* slices of a warp, of a tile, and nothing to fill whole DEPTHs */
	int staged;               /* units whose activations are in shared memory at a time */
	bool half;                /* tiles of eight rows, for there are so few */
};

static __device__ __forceinline__ int divide_up(int a, int b)
{
	return (a + b - 1) / b;
}

static __device__ __forceinline__ struct model_matrix matrix_of(
	const struct model_step_arguments &a, struct part part)
{
	switch (part.product) {
	case QKV:
		return a.layers[part.layer].qkv;
	case OUTPUT:
		return a.layers[part.layer].output;
	case GATE_UP:
		return a.layers[part.layer].gate_up;
	case DOWN:
		return a.layers[part.layer].down;
	default:
		return a.output;
	}
}

/* Whether the halves of a tile are those of pairs. */
static __device__ __forceinline__ bool is_paired(enum product product)
{
	return product == QKV || product == GATE_UP;
}

static __device__ __forceinline__ struct plan make_plan(
	const struct model_step_arguments &a, struct part part)
{
	struct plan plan;
	int units;

	plan.part = part;
	plan.matrix = matrix_of(a, part);
	plan.tokens = part.product == LOGITS ? a.output_count : a.row_count;
	plan.slices = divide_up(plan.matrix.columns, MODEL_SLICE);
	plan.half = TILES == 1 && !is_paired(part.product) && divide_up(plan.matrix.rows, 16) < gridDim.x;
	plan.tiles = divide_up(plan.matrix.rows, plan.half ? 8 : 16);
	plan.split = MODEL_WARPS;
	while (plan.split > 1 && MODEL_WARPS / plan.split * gridDim.x < plan.tiles)
		plan.split /= 2;
	while (plan.split > 1 && plan.slices > STAGE && plan.split * DEPTH > STAGE)
		plan.split /= 2;
	plan.rounds = divide_up(plan.tiles, MODEL_WARPS / plan.split * gridDim.x);
	units = divide_up(plan.slices, plan.split);
	plan.units = divide_up(units, DEPTH) * DEPTH;
	plan.staged = plan.slices > STAGE ? STAGE / (plan.split * DEPTH) * DEPTH : plan.units;
	return plan;
}

/* The two rows of a tile that lane `lane` has to do with. */
struct tile_rows {
	int low, high;
	bool there;
};

static __device__ __forceinline__ struct tile_rows rows_of(const struct plan &plan, int tile, int lane)
{
	const int half_rows = plan.matrix.rows / 2,
		  row = tile * (is_paired(plan.part.product) || plan.half ? 8 : 16) + lane / 4;
	struct tile_rows rows;

	if (plan.part.product == QKV) {
		const int low = row / (HEAD_DIM / 2) * HEAD_DIM + row % (HEAD_DIM / 2);

		rows = {low, low + HEAD_DIM / 2, row < half_rows};
	} else if (plan.part.product == GATE_UP) {
		rows = {row, half_rows + row, row < half_rows};
	} else {
		rows = {row, row + 8, row < plan.matrix.rows};
	}
	return rows;
}

/* --- weights on their way -------------------------------------------------------------------------- */

struct stream {
	const ELEMENT *low, *high; /* this lane's first numbers of the tile's rows */
	int round, unit;           /* that are read next */
	uint4 ring[DEPTH][2][SECTIONS];
};

static __device__ __forceinline__ int tile_of(const struct plan &plan, int round)
{
	const int groups = MODEL_WARPS / plan.split, group = threadIdx.x / 32 / plan.split;

	return (round * groups + group) * gridDim.x + blockIdx.x;
}

static __device__ __forceinline__ int slice_of(const struct plan &plan, int unit)
{
	return unit * plan.split + threadIdx.x / 32 % plan.split;
}

/* What is behind the last row is read as the last one, and dropped. */
static __device__ __forceinline__ void find_tile(struct stream &stream, const struct plan &plan)
{
	const int lane = threadIdx.x % 32, last = plan.matrix.rows - 1;
	const struct tile_rows rows = rows_of(plan, tile_of(plan, stream.round), lane);
	const long long width = plan.slices * MODEL_SLICE;
	const ELEMENT *first = (const ELEMENT *)plan.matrix.data + lane % 4 * 8;

	stream.low = first + min(rows.low, last) * width;
	stream.high = first + min(rows.high, last) * width;
}

static __device__ __forceinline__ void read_unit(
	struct stream &stream, const struct plan &plan, uint4 (&to)[2][SECTIONS])
{
	const int slice = slice_of(plan, stream.unit);

	if (stream.round < plan.rounds && slice < plan.slices) {
#pragma unroll
		for (int i = 0; i < SECTIONS; i++) {
			to[0][i] = __ldcs((const uint4 *)(stream.low + slice * MODEL_SLICE) + i);
			if (!plan.half)
				to[1][i] = __ldcs((const uint4 *)(stream.high + slice * MODEL_SLICE) + i);
		}
	}
	if (++stream.unit == plan.units) {
		stream.unit = 0;
		stream.round++;
		find_tile(stream, plan);
	}
}

static __device__ __forceinline__ void fetch(const void *address)
{
	asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

/* Has the second-level cache get the first slices of this warp from `unit` on. */
static __device__ __forceinline__ void fetch_units(
	const struct stream &stream, const struct plan &plan, int unit)
{
	const int end = min(plan.units, unit + SLICES_AHEAD);

	for (; unit < end && slice_of(plan, unit) < plan.slices; unit++) {
		fetch(stream.low + slice_of(plan, unit) * MODEL_SLICE);
		fetch(stream.high + slice_of(plan, unit) * MODEL_SLICE);
	}
}

static __device__ __forceinline__ struct stream start_stream(const struct plan &plan)
{
	struct stream stream = {};

	find_tile(stream, plan);
#pragma unroll
	for (int i = 0; i < DEPTH; i++)
		read_unit(stream, plan, stream.ring[i]);
	if (plan.rounds == 1)
		fetch_units(stream, plan, DEPTH);
	return stream;
}

/* Those of a product that comes later: so memory is read, too, while blocks wait, normalise or attend. */
static __device__ __forceinline__ void fetch_weights(const struct model_step_arguments &a, struct part part)
{
	const struct plan plan = make_plan(a, part);
	struct stream stream = {};

	find_tile(stream, plan);
	fetch_units(stream, plan, 0);
}

/* --- activations ----------------------------------------------------------------------------------- */

/* Two numbers as N pairs of 16-bit ones, whose sums they are. */
template <int N>
static __device__ __forceinline__ void split_pair(unsigned (&pairs)[N], float low, float high)
{
#pragma unroll
	for (int i = 0; i < N; i++) {
#if INPUT == INPUT_F16
		pairs[i] = element_pair(low, high);
		low -= element_float((ELEMENT)pairs[i]), high -= element_float((ELEMENT)(pairs[i] >> 16));
#else
		pairs[i] = pack_bf16(low, high);
		low -= bf16_low(pairs[i]), high -= bf16_high(pairs[i]);
#endif
	}
}

/* NULL: what comes in is not normalised. */
static __device__ __forceinline__ const float *norm_of(
	const struct model_step_arguments &a, const struct plan &plan)
{
	switch (plan.part.product) {
	case QKV:
		return a.layers[plan.part.layer].attention_norm;
	case GATE_UP:
		return a.layers[plan.part.layer].mlp_norm;
	case LOGITS:
		return a.norm;
	default:
		return NULL;
	}
}

/* 1 / √(mean of x² + ε), of every token, a warp each. */
static __device__ __forceinline__ void measure(
	const struct model_step_arguments &a, const struct plan &plan, struct product_memory &shared)
{
	for (int token = threadIdx.x / 32; token < plan.tokens; token += MODEL_WARPS) {
		const int row = plan.part.product == LOGITS ? a.outputs[token].row : token;
		float squares = 0;

		for (int i = threadIdx.x % 32; i < a.hidden / 4; i += 32) {
			const float4 four = __ldcg((const float4 *)(a.x + row * a.hidden) + i);

			squares += dot(four, four);
		}
		for (int other = 16; other; other /= 2)
			squares += __shfl_xor_sync(~0u, squares, other);
		if (threadIdx.x % 32 == 0)
			shared.scales[token] = 1 / sqrtf(squares / a.hidden + a.epsilon);
	}
}

/* Four numbers of what a product takes in. */
static __device__ __forceinline__ float4 activation(const struct model_step_arguments &a,
	const struct plan &plan, const float *norm, const struct product_memory &shared, int token,
	int column)
{
	const int row = plan.part.product == LOGITS ? a.outputs[token].row : token;
	float4 x, weight;
	float scale;

	if (plan.part.product == OUTPUT)
		return attended(a, row, column);
	if (plan.part.product == DOWN)
		return __ldcg((const float4 *)(a.activated + row * a.intermediate + column));
	x = __ldcg((const float4 *)(a.x + row * a.hidden + column));
	weight = *(const float4 *)(norm + column);
	scale = shared.scales[token];
	return make_float4(x.x * scale * weight.x, x.y * scale * weight.y, x.z * scale * weight.z,
		x.w * scale * weight.w);
}

/* `count` slices, from slice `first` on, into shared memory; zeros where there is no column or token. */
static __device__ __forceinline__ void stage(const struct model_step_arguments &a, const struct plan &plan,
	struct product_memory &shared, int first, int count)
{
	const float *norm = norm_of(a, plan);
	const int lane = threadIdx.x % 32, tiles = divide_up(plan.tokens, 8);

	for (int item = threadIdx.x / 32; item < count * tiles; item += MODEL_WARPS) {
		const int slice = item / tiles, tile = item % tiles, token = tile * 8 + lane / 4;
		unsigned pairs[4][PLANES];

#pragma unroll
		for (int half = 0; half < 2; half++) {
			const int column = (first + slice) * MODEL_SLICE + lane % 4 * 8 + half * 4;
			float4 x = make_float4(0, 0, 0, 0);

			if (token < plan.tokens && column < plan.matrix.columns)
				x = activation(a, plan, norm, shared, token, column);
			split_pair(pairs[half * 2], x.x / REDUCTION, x.y / REDUCTION);
			split_pair(pairs[half * 2 + 1], x.z / REDUCTION, x.w / REDUCTION);
		}
#pragma unroll
		for (int p = 0; p < PLANES; p++)
			shared.staged[slice][tile][p][lane] = make_uint4(
				pairs[0][p], pairs[1][p], pairs[2][p], pairs[3][p]);
	}
}

/* --- products -------------------------------------------------------------------------------------- */

static __device__ __forceinline__ void multiply_add_tile(
	float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1)
{
#if INPUT == INPUT_F16
	asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
	    "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
		: "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
		: "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
	multiply_add(c, a, b0, b1);
#endif
}

/* The left factors of both mma of a slice: [plane][mma][register]. */
static __device__ __forceinline__ void unpack(
	unsigned (&w)[WEIGHT_PLANES][2][4], const uint4 (&read)[2][SECTIONS])
{
#pragma unroll
	for (int half = 0; half < 2; half++) {
#if INPUT == INPUT_F32
#pragma unroll
		for (int i = 0; i < 4; i++) {
			const uint4 four = read[half][i / 2];
			unsigned pairs[WEIGHT_PLANES];

			split_pair(pairs, __uint_as_float(i % 2 ? four.z : four.x),
				__uint_as_float(i % 2 ? four.w : four.y));
#pragma unroll
			for (int p = 0; p < WEIGHT_PLANES; p++)
				w[p][i / 2][i % 2 * 2 + half] = pairs[p];
		}
#else
		w[0][0][half] = read[half][0].x, w[0][0][2 + half] = read[half][0].y;
		w[0][1][half] = read[half][0].z, w[0][1][2 + half] = read[half][0].w;
#endif
	}
}

/* c += a slice of weights · that of the activations. Products of two small parts are left out. */
static __device__ __forceinline__ void multiply_slice(float (&c)[TILES][4], const uint4 (&read)[2][SECTIONS],
	const uint4 (&staged)[TILES][PLANES][32], int tokens)
{
	unsigned w[WEIGHT_PLANES][2][4];

	unpack(w, read);
#pragma unroll
	for (int tile = 0; tile < TILES; tile++) {
		if (tile * 8 >= tokens)
			break;
#pragma unroll
		for (int p = PLANES; p-- > 0;) {
			const uint4 b = staged[tile][p][threadIdx.x % 32];

#pragma unroll
			for (int q = 0; q < WEIGHT_PLANES && q + p < PLANES; q++) {
				multiply_add_tile(c[tile], w[q][0], b.x, b.y);
				multiply_add_tile(c[tile], w[q][1], b.z, b.w);
			}
		}
	}
}

/* --- results --------------------------------------------------------------------------------------- */

/* Where the two halves of a pair of a head turn to, at a row's position. */
static __device__ __forceinline__ void turn(
	const struct model_step_arguments &a, int row, int index, float &low, float &high)
{
	const float2 angle = __ldcg((const float2 *)a.angles + row * (HEAD_DIM / 2) + index);
	const float x = low;

	low = x * angle.x - high * angle.y;
	high = high * angle.x + x * angle.y;
}

/* Puts a pair where attention looks for it: a query's to the others of the step, a key's or value's to the session. */
static __device__ __forceinline__ void put(
	const struct model_step_arguments &a, int layer, int row, int head, int index, float low, float high)
{
	float *to = head < a.heads ? a.heads_at + (row * (a.heads + a.kv_heads) + head) * HEAD_DIM
				   : cached(a, layer, row, head - a.heads, a.rows[row].position);

	to[index] = low;
	to[index + HEAD_DIM / 2] = high;
}

static __device__ __forceinline__ void finish_heads(
	const struct model_step_arguments &a, int layer, int row, int first, float low, float high)
{
	const int head = first / HEAD_DIM, index = first % HEAD_DIM;

	if (head < a.heads + a.kv_heads) {
#if HEAD_NORMS
		float *to = a.heads_at + (row * (a.heads + a.kv_heads) + head) * HEAD_DIM + index;

		to[0] = low, to[HEAD_DIM / 2] = high;
		return;
#else
		turn(a, row, index, low, high);
#endif
	}
	put(a, layer, row, head, index, low, high);
}

/* Largest first; among equals, the lowest token; before all, what is not finite. */
static __device__ __forceinline__ unsigned long long rank_of(float logit, int token)
{
	const unsigned bits = __float_as_uint(logit + 0.0f); /* −0 is 0 */
	const unsigned order = bits & 0x80000000u ? ~bits : bits | 0x80000000u;

	if ((bits & 0x7f800000u) == 0x7f800000u)
		return MODEL_NOT_FINITE;
	return (unsigned long long)order << 32 | (unsigned)~token;
}

/* The best of eight tokens' ranks in a tile: a lane has those of two. */
static __device__ __forceinline__ void note_best(unsigned long long (&ranks)[2], unsigned long long *best)
{
#pragma unroll
	for (int i = 0; i < 2; i++) {
		for (int other = 4; other < 32; other *= 2)
			ranks[i] = max(ranks[i], __shfl_xor_sync(~0u, ranks[i], other));
		if (threadIdx.x % 32 < 4)
			atomicMax(best + threadIdx.x % 4 * 2 + i, ranks[i]);
	}
}

/* Of a tile and eight tokens: c[0] and c[1] are the low row's of two tokens, c[2] and c[3] the high one's. */
static __device__ __forceinline__ void finish(const struct model_step_arguments &a, const struct plan &plan,
	int tile, int first_token, const float4 &sums, struct product_memory &shared)
{
	const int lane = threadIdx.x % 32;
	const struct tile_rows rows = rows_of(plan, tile, lane);
	const bool two = !plan.half && rows.high < plan.matrix.rows;
	const float *bias = plan.matrix.bias, c[4] = {sums.x, sums.y, sums.z, sums.w};
	unsigned long long ranks[2] = {};

#pragma unroll
	for (int i = 0; i < 2; i++) {
		const int token = first_token + lane % 4 * 2 + i;
		float low = c[i] * REDUCTION, high = c[2 + i] * REDUCTION;

		if (!rows.there || token >= plan.tokens)
			continue;
		low += bias ? bias[rows.low] : 0;
		high += bias && two ? bias[rows.high] : 0;
		if (plan.part.product == QKV) {
			finish_heads(a, plan.part.layer, token, rows.low, low, high);
		} else if (plan.part.product == GATE_UP) {
			a.activated[token * a.intermediate + rows.low] = low / (1 + expf(-low)) * high;
		} else if (plan.part.product == LOGITS) {
			float *logits = a.outputs[token].logits;

			ranks[i] = rank_of(low, rows.low);
			if (two)
				ranks[i] = max(ranks[i], rank_of(high, rows.high));
			if (logits)
				logits[rows.low] = low;
			if (logits && two)
				logits[rows.high] = high;
		} else {
			float *x = a.x + token * a.hidden;

			x[rows.low] = __ldcg(x + rows.low) + low;
			if (two)
				x[rows.high] = __ldcg(x + rows.high) + high;
		}
	}
	if (plan.part.product == LOGITS)
		note_best(ranks, shared.best + first_token);
}

/* Waits for the warps that have the same tile. */
static __device__ __forceinline__ void meet_group(const struct plan &plan)
{
	asm volatile("bar.sync %0, %1;" ::"r"(1 + threadIdx.x / 32 / plan.split), "r"(plan.split * 32)
		     : "memory");
}

/* Adds up what the warps of a tile have, who then share its tokens. */
static __device__ __forceinline__ void finish_tile(const struct model_step_arguments &a,
	const struct plan &plan, int tile, const float (&c)[TILES][4], struct product_memory &shared)
{
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, first = warp / plan.split * plan.split;

#pragma unroll
	for (int i = 0; i < TILES; i++)
		shared.sums[warp][i][lane] = make_float4(c[i][0], c[i][1], c[i][2], c[i][3]);
	if (plan.split > 1)
		meet_group(plan);
	for (int i = warp - first; i * 8 < plan.tokens; i += plan.split) {
		float4 total = shared.sums[first][i][lane];

		for (int other = first + 1; other < first + plan.split; other++) {
			const float4 more = shared.sums[other][i][lane];

			total.x += more.x, total.y += more.y, total.z += more.z, total.w += more.w;
		}
		finish(a, plan, tile, i * 8, total, shared);
	}
	if (plan.split > 1)
		meet_group(plan);
}

/* A product, by all blocks, once all have come here. */
static __device__ __forceinline__ void multiply(
	const struct model_step_arguments &a, int number, struct barrier &barrier)
{
	struct product_memory &shared = *(struct product_memory *)memory;
	const struct plan plan = make_plan(a, part_of(a, number));
	struct stream stream;

	arrive(barrier);
	if (threadIdx.x < TILES * 8)
		shared.best[threadIdx.x] = 0;
	stream = start_stream(plan);
	if (number + PARTS_AHEAD < count_parts(a))
		fetch_weights(a, part_of(a, number + PARTS_AHEAD));
	wait(barrier);
	if (norm_of(a, plan))
		measure(a, plan, shared);
	for (int round = 0; round < plan.rounds; round++) {
		const int tile = tile_of(plan, round);
		float c[TILES][4] = {};

		for (int unit = 0; unit < plan.units; unit += DEPTH) {
			const int first = unit / plan.staged * plan.staged * plan.split;

			if (unit * plan.split == first && (round == 0 || plan.staged < plan.units)) {
				__syncthreads();
				stage(a, plan, shared, first,
					min(plan.staged * plan.split, plan.slices - first));
				__syncthreads();
			}
#pragma unroll
			for (int i = 0; i < DEPTH; i++) {
				const int slice = slice_of(plan, unit + i);

				if (slice < plan.slices)
					multiply_slice(
						c, stream.ring[i], shared.staged[slice - first], plan.tokens);
				read_unit(stream, plan, stream.ring[i]);
			}
		}
		if (tile < plan.tiles)
			finish_tile(a, plan, tile, c, shared);
	}
	__syncthreads();
	if (plan.part.product == LOGITS && threadIdx.x < plan.tokens)
		atomicMax(a.outputs[threadIdx.x].best, shared.best[threadIdx.x]);
}
