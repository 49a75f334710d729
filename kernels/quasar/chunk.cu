/* quasar_chunk: QuasarAttention over a whole sequence, parallel over the sequence.
 *
 * For a chunk of C tokens with rows Q, K, V [C, S] and the state St [S, S] before it
 *     G = K Kᵀ,  L = I + tril(D G, −1),  T = L⁻¹ D,  D = diag(α)           (the chunk's own matrices)
 *     N = T (V − K St),  St' = St + Kᵀ N
 *     causal:    o = Q St + tril(Q Kᵀ) N
 *     upstream:  o = Q St″, with St″ made from St' by the same chunk once more
 * The only matrix ever inverted is the C × C triangle L; the [C, S] matrices L⁻¹ D K and L⁻¹ D V of the
 * textbook form are never made.
 *
 * With a gate g (causal), let c_r = g_1 … g_r be the gates of the chunk up to row r, Γ_rs = c_r / c_s those between two
 * rows, F = diag(c), E = diag(c_C / c). Then G becomes Γ ∘ G, Q Kᵀ becomes Γ ∘ Q Kᵀ, and
 *     N = T (V − F K St),  St' = c_C St + Kᵀ E N,  o = F Q St + tril(Γ ∘ Q Kᵀ) N
 * (Yang, Kautz and Hatamizadeh, Gated Delta Networks, 2024, section 3.3). All quotients are powers of differences of sums of
 * logarithms, which are at most 0.
 *
 * A chunk's step is an affine map of the state, St' = P St + R with P = I − Kᵀ T K, R = Kᵀ T V. The
 * sequence is cut into as many groups of chunks as the chip runs blocks at a time:
 *   1. quasar_chunk_transition: each group composes its chunks' maps, from the last to the first:
 *          M = A Kᵀ T,  A ← A − M K,  B ← B + M V       (from A = I, B = 0; in the end P = A, R = B)
 *      Walking backwards costs three products of [S, S] by [S, C] instead of four, and shows when the
 *      past is forgotten: each step shrinks A, and once no element of it exceeds NEGLIGIBLE, what the
 *      earlier chunks did to the state no longer matters and the walk ends. Keys of norm 8 get there
 *      in about 35 chunks; keys near zero never do, and cost the whole walk.
 *   2. quasar_chunk_output: each group first applies the maps of the groups before it (from the last
 *      forgotten one on) to get its starting state, then goes through its chunks and writes o.
 * The order of all sums is fixed, so the same input gives the same bits.
 *
 * Inside a block, warp w owns rows 16w … 16w+15 of the transposed state Stᵀ [value, key] in registers
 * (of A and B in the first pass), and all products with the state are chains in registers (tile.cuh):
 *     Yᵀ = Vᵀ − Stᵀ Kᵀ,  Nᵀ = Yᵀ Tᵀ,  Stᵀ += Nᵀ K,  oᵀ = Stᵀ Qᵀ + Nᵀ tril(Q Kᵀ)ᵀ
 * so that warps meet only for the chunk's own matrices, T and tril(Q Kᵀ):
 *   a. warp b makes block row b (16 rows) of G, α from its diagonal, the rows of L, and inverts the 16 ×
 *      16 diagonal block in fp32;
 *   b. warp b makes block column b of T downwards from its diagonal block, by products of blocks.
 * Products run in bf16 with fp32 sums; the states stay in fp32. fp16 and fp32 input is carried in two
 * bf16 (PLANES = 2) with three products for one.
 *
 * With NUM_STAGES = 3 four more warps, makers, load the chunks and do a. and b., and make tril(Q Kᵀ), for the next chunk
 * while the others, carriers, take the state through this one. Neither waits for the other but where a tile changes hands,
 * and on Hopper makers leave carriers the registers that they do not need.
 *
 * Compile-time parameters, of the problem:
 *   HEAD_DIM    S: 32, 64 or 128
 *   UPSTREAM    1: upstream semantics, 0: causal
 *   INPUT       element type (common/dtype.h)
 *   VECTOR      1: every row is contiguous and 16-byte aligned, 0: any strides
 *   COMPACT     1: upstream, and the rows of q, k and v are evenly spaced throughout [T, H]; else 0
 *   GATED       1: with a gate (causal); else 0
 *   PACKED      1: several sequences one behind the other in a batch of 1 (causal); else 0
 * and tunables (lib/op/quasar/config.c):
 *   CHUNK       C: 64, or 32 (causal only)
 *   NUM_STAGES  2: load the next chunk while working on this one, 1: one buffer, 3: with makers
 *   MIN_BLOCKS  blocks that must fit a multiprocessor; bounds registers
 *   NUM_LAUNCHES  3: T of every chunk is made by a launch of its own, quasar_chunk_inverse, which has whole multiprocessors
 *               for what needs few registers; both passes load it. 2: each pass makes it, and nothing is stored
 *   PRODUCT_WARPS  4: products with the state by wgmma, four warps together (Hopper); 1: by mma.sync */
#include "common/element.cuh"
#include "common/tile.cuh"
#include "quasar/arguments.h"
#include "quasar/decay.cuh"
#include "quasar/gate.cuh"
#include "quasar/layout.h"

#define PLANES CHUNK_PLANES(INPUT)
#define WARPS CHUNK_WARPS(HEAD_DIM)
#define CARRIERS (WARPS * 32) /* threads */
#define MAKER_WARPS CHUNK_MAKER_WARPS(NUM_STAGES)
#define MAKERS (MAKER_WARPS * 32)
#define THREADS CHUNK_THREADS(HEAD_DIM, NUM_STAGES)
#define BLOCKS (CHUNK / 16)
/* Those that load chunks and make their matrices. */
#define MAKING_WARPS (MAKERS ? MAKER_WARPS : WARPS)
#define MAKING_THREADS (MAKING_WARPS * 32)
#define BLOCKS_PER_WARP ((BLOCKS + MAKING_WARPS - 1) / MAKING_WARPS)
#define NEGLIGIBLE 6e-8f /* fp32 would lose it in the sums anyway */

/* n-tiles of 8 and k steps of 16 in a row of the state and of a chunk's matrix */
#define STATE_N (HEAD_DIM / 8)
#define STATE_K (HEAD_DIM / 16)
#define CHUNK_N (CHUNK / 8)
#define CHUNK_K (CHUNK / 16)

/* Shared memory is laid out as quasar/layout.h says. T's place holds Tᵀ. L's place holds, on the diagonal, the
 * transposed inverses of L's diagonal blocks, in PLANES planes; below it, L rounded to bf16, and above it,
 * mirrored, what the rounding left over: nearly parallel keys make the inverse cancel, and one bf16 is then not
 * enough. */
#define ROWS_PLANE (CHUNK * HEAD_DIM * 2)
#define ROWS_BYTES CHUNK_ROWS_BYTES(HEAD_DIM, CHUNK, PLANES)
#define SQUARE_PLANE (CHUNK * CHUNK * 2)
#define SQUARE_BYTES CHUNK_SQUARE_BYTES(CHUNK, PLANES)
#define INVERSE_BYTES CHUNK_INVERSE_BYTES(CHUNK, PLANES)
#define SEPARATE_INVERSE (NUM_LAUNCHES == 3)
/* T is there already when the warps that hold the state come to a chunk. */
#define READY_INVERSE (SEPARATE_INVERSE || MAKERS)
#define MADE_BYTES(scores) CHUNK_MADE_BYTES(CHUNK, PLANES, NUM_STAGES, NUM_LAUNCHES, scores)
#define STAGE_BYTES(tensors) CHUNK_STAGE_BYTES(HEAD_DIM, CHUNK, PLANES, NUM_LAUNCHES, tensors)

/* The walk over transitions before a group may use what lies behind the first stage. */
#define WALK_ROOM                                                                                            \
	(CHUNK_OUTPUT_SHARED(HEAD_DIM, CHUNK, PLANES, NUM_STAGES, NUM_LAUNCHES, UPSTREAM) -                  \
		(NUM_STAGES > 1 ? STAGE_BYTES(3) : 0))
#define WALK_TILES (MAKERS || (NUM_STAGES > 1 && 2 * STATE_BYTES <= WALK_ROOM) ? 2 : 1)

/* A group's transition: P − I as a tile, then Rᵀ as the fp32 registers of its owners. The identity is left
 * out so that what rounding to bf16 loses is relative to how much the group changes the state, not to the
 * state, which a slow memory carries over many groups. */
#define STATE_PLANE (HEAD_DIM * HEAD_DIM * 2)
#define STATE_BYTES CHUNK_STATE_BYTES(HEAD_DIM, PLANES)
#define TRANSITION_BYTES CHUNK_TRANSITION_BYTES(HEAD_DIM, PLANES)

struct chunk_block {
	int warp, lane;
	unsigned transposed_inverse, lower; /* addresses of T, L */
	float beta;
	float alpha[BLOCKS_PER_WARP][2]; /* of this lane's two rows in each of the warp's block rows */
	struct decay decay;              /* with a gate, of the chunk that the block is at */
};

/* --- what a block works on ------------------------------------------------------------------------- */

/* A group, or some chunks, of one head's sequence. */
struct share {
	int sequence; /* of each head: where its states are */
	int index;    /* which of the sequence's groups, or of its parts of so many chunks */
	long long first, tokens;
	int number; /* of a packed sequence */
};

/* Of the sequence. */
static __device__ __forceinline__ long long tokens_of(
	const struct quasar_chunk_arguments &a, const struct share &share)
{
	return PACKED ? share.tokens : a.tokens;
}

static __device__ __forceinline__ int chunks_of(
	const struct quasar_chunk_arguments &a, const struct share &share)
{
	return PACKED ? (int)((tokens_of(a, share) + CHUNK - 1) / CHUNK) : a.chunks;
}

static __device__ __forceinline__ int groups_of(
	const struct quasar_chunk_arguments &a, const struct share &share)
{
	return PACKED ? max((chunks_of(a, share) + a.chunks_per_group - 1) / a.chunks_per_group, 1)
		      : a.groups;
}

/* Where one of its groups and chunks is in working memory. */
static __device__ __forceinline__ long long place_of_group(
	const struct quasar_chunk_arguments &a, const struct share &share, int group)
{
	if (PACKED)
		return (share.first / ((long long)a.chunks_per_group * CHUNK) + group) * a.heads +
			share.sequence % a.heads;
	return (long long)share.sequence * a.groups + group;
}

static __device__ __forceinline__ long long place_of_chunk(
	const struct quasar_chunk_arguments &a, const struct share &share, int chunk)
{
	if (PACKED)
		return (share.first / CHUNK + share.number + chunk) * a.heads + share.sequence % a.heads;
	return (long long)share.sequence * a.chunks + chunk;
}

static __device__ __forceinline__ long long start_of(const struct quasar_chunk_arguments &a, int number)
{
	return min(max(a.starts[number], 0ll), a.tokens);
}

/* Packed sequences: a block looks for its own. A part is so many tokens; sequence n has the parts from starts[n] / part
 * + n on, of which there are enough, whatever its length is: nobody needs to count parts beforehand. Without its last part,
 * whose transition nobody asks for, they begin at starts[n] / part. False: there is nothing to do. */
static __device__ __forceinline__ bool find_share(
	struct share &share, const struct quasar_chunk_arguments &a, long long part, bool last_too)
{
	const long long own = blockIdx.x / a.heads;
	long long step = 1;
	int found = 0;

	while (step * 32 < a.sequences)
		step *= 32;
	for (; step; step /= 32) { /* each lane asks at one of 32 places */
		const long long candidate = found + threadIdx.x % 32 * step;
		const bool before = candidate < a.sequences &&
			start_of(a, (int)candidate) / part + (last_too ? candidate : 0) <= own;

		found += (__popc(__ballot_sync(~0u, before)) - 1) * (int)step;
	}
	share.number = found;
	share.sequence = found * a.heads + blockIdx.x % a.heads;
	share.first = start_of(a, found);
	share.tokens = max(start_of(a, found + 1) - share.first, 0ll);
	share.index = (int)(own - share.first / part - (last_too ? found : 0));
	return share.index * part < share.tokens - (last_too ? 0 : part) || (last_too && !share.index);
}

static __device__ __forceinline__ bool make_share(
	struct share &share, const struct quasar_chunk_arguments &a, long long part, bool last_too)
{
	if (PACKED)
		return find_share(share, a, part, last_too);
	share.sequence = blockIdx.x % (a.batch * a.heads);
	share.index = blockIdx.x / (a.batch * a.heads);
	share.first = 0;
	return true;
}

/* --- tensors in memory ---------------------------------------------------------------------------- */

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

/* --- a chunk's own matrices ------------------------------------------------------------------------ */

/* Writes a block of 16 × 16 of a C × C tile, which has the layout of a left factor. */
static __device__ __forceinline__ void store_block(
	unsigned tile, int row, int column, int lane, const unsigned (&block)[4])
{
#if WARPGROUP_PRODUCTS
	store_matrices(tile + row * 16 * CHUNK * 2 +
			(lane_offset<CHUNK>(true, lane) ^ tile_column<CHUNK>(2 * column)),
		block);
#else
	UNROLL
	for (int i = 0; i < 4; i++)
		store_shared(tile +
				tile_offset<CHUNK>(row * 16 + (lane >> 2) + i % 2 * 8, column * 2 + i / 2) +
				(lane & 3) * 4,
			block[i]);
#endif
}

/* The diagonal block of block row `row` of G. */
static __device__ __forceinline__ void take_diagonal_block(
	float (&diagonal)[2][4], const float (&g)[CHUNK_N][4], int row)
{
	UNROLL
	for (int n = 0; n < 2; n++) {
		UNROLL
		for (int i = 0; i < 4; i++) {
			diagonal[n][i] = g[n][i];
			UNROLL
			for (int column = 1; column < BLOCKS; column++)
				diagonal[n][i] = column == row ? g[2 * column + n][i] : diagonal[n][i];
		}
	}
}

/* By an instruction, for the compiler would make branches of it, and put the shuffles that come before into each: only
 * half a warp comes by there. */
static __device__ __forceinline__ float selected(int condition, float one, float other)
{
	float result;

	asm("{\n.reg .pred p;\nsetp.ne.s32 p, %3, 0;\nselp.f32 %0, %1, %2, p;\n}"
		: "=f"(result)
		: "f"(one), "f"(other), "r"(condition));
	return result;
}

/* Eight neighbours of a C × C tile, from an array. */
static __device__ __forceinline__ void store_segment(
	unsigned tile, int row, int segment, const float (&x)[8], float scale)
{
	const unsigned address = tile + tile_offset<CHUNK>(row, segment);
	uint4 plane[2];
	unsigned *high = &plane[0].x, *low = &plane[1].x;

	UNROLL
	for (int i = 0; i < 4; i++) {
		unsigned pair[PLANES];

		split_bf16<PLANES>(pair, scale * x[2 * i], scale * x[2 * i + 1]);
		high[i] = pair[0];
		low[i] = pair[PLANES - 1];
	}
	store_shared(address, plane[0]);
	if (PLANES > 1)
		store_shared(address + SQUARE_PLANE, plane[1]);
}

/* x becomes the solution of L x = x, with a unit lower triangle of 8 × 8 in rows of 64 bytes. */
static __device__ __forceinline__ void solve_column(float (&x)[8], unsigned lower)
{
	UNROLL
	for (int i = 1; i < 8; i++) {
		const float4 left = load_shared_float4(lower + i * 64);
		const float4 right = i > 4 ? load_shared_float4(lower + i * 64 + 16)
					   : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
		const float l[8] = {left.x, left.y, left.z, left.w, right.x, right.y, right.z, right.w};

		UNROLL
		for (int k = 0; k < i; k++)
			x[i] -= l[k] * x[k];
	}
}

/* α, the row of L left of its diagonal block, and the diagonal block's inverse, transposed, as it is and
 * scaled to T's. `g` is block row `row` of G. */
static __device__ __forceinline__ void make_lower_row(
	struct chunk_block &block, int slot, int row, const float (&g)[CHUNK_N][4])
{
	const int lane = block.lane, group = lane >> 2, pair = (lane & 3) * 2;
	const unsigned scratch = block.transposed_inverse + row * 16 * CHUNK * 2; /* this row's own part */
	float diagonal[2][4], even, odd, x[8], z[8], product[2];

	take_diagonal_block(diagonal, g, row);

	/* λ is the diagonal of G: row `group` of an 8 × 8 tile has it in lane group / 2 of its four. Of two neighbouring lanes
	 * each computes α of one of the two rows that both have. */
	UNROLL
	for (int half = 0; half < 2; half++) {
		even = __shfl_sync(~0u, diagonal[half][half * 2], (lane & ~3) | group >> 1);
		odd = __shfl_sync(~0u, diagonal[half][half * 2 + 1], (lane & ~3) | group >> 1);
		product[half] = selected(group & 1, odd, even);
	}
	even = gate(block.beta, lane & 1 ? product[1] : product[0]);
	UNROLL
	for (int half = 0; half < 2; half++)
		block.alpha[slot][half] = __shfl_sync(~0u, even, (lane & ~1) | half);

	/* the diagonal block: lane c solves for column c of the inverse, downwards */
	UNROLL
	for (int n = 0; n < 2; n++) {
		UNROLL
		for (int half = 0; half < 2; half++)
			store_shared(scratch + (group + half * 8) * 64 + (n * 8 + pair) * 4,
				block.alpha[slot][half] * diagonal[n][half * 2],
				block.alpha[slot][half] * diagonal[n][half * 2 + 1]);
	}
	__syncwarp();
	UNROLL
	for (int k = 0; k < CHUNK_K - 1; k++) {
		unsigned high[4], low[4];

		if (k >= row)
			continue;
		UNROLL
		for (int i = 0; i < 4; i++) {
			unsigned split[2];

			split_bf16<2>(split, block.alpha[slot][i % 2] * g[2 * k + i / 2][i % 2 * 2],
				block.alpha[slot][i % 2] * g[2 * k + i / 2][i % 2 * 2 + 1]);
			high[i] = split[0];
			low[i] = split[1];
		}
		store_block(block.lower, row, k, lane, high);
		store_block(block.lower, k, row, lane, low);
	}
	/* [A 0; B C] has the inverse [A⁻¹ 0; Z C⁻¹] with C Z = −B A⁻¹, of 8 × 8 each: lane c of eight solves for a column of
	 * A⁻¹ or C⁻¹, then all have that of A⁻¹ and two rows of it times −B each, then all solve for a column of Z */
	const int of_c = lane >> 3 & 1, pair_of_rows = lane >> 3;
	const unsigned corner = scratch + 8 * 64 + 8 * 4;

	UNROLL
	for (int i = 0; i < 8; i++)
		x[i] = i == (lane & 7) ? 1.0f : 0.0f;
	solve_column(x, of_c ? corner : scratch);
	UNROLL
	for (int i = 0; i < 8; i++)
		z[i] = __shfl_sync(~0u, x[i], lane & 7);
	UNROLL
	for (int i = 0; i < 2; i++) {
		const unsigned l = scratch + (8 + pair_of_rows * 2 + i) * 64;
		const float4 left = load_shared_float4(l), right = load_shared_float4(l + 16);

		product[i] = -left.x * z[0] - left.y * z[1] - left.z * z[2] - left.w * z[3];
		product[i] -= right.x * z[4] + right.y * z[5] + right.z * z[6] + right.w * z[7];
	}
	UNROLL
	for (int i = 0; i < 8; i++)
		z[i] = __shfl_sync(~0u, product[i % 2], (lane & 7) + i / 2 * 8);
	solve_column(z, corner);
	__syncwarp();
	even = __shfl_sync(~0u, block.alpha[slot][0], (lane & 7) * 4);
	odd = __shfl_sync(~0u, block.alpha[slot][1], (lane & 7) * 4);
#if WARPGROUP_PRODUCTS
	/* what the scratch left where T is zero */
	UNROLL
	for (int from = 0; from < 16 * (BLOCKS - 1); from += 32) {
		const int i = from + lane;

		if (i < 16 * row)
			store_shared(block.transposed_inverse + tile_offset<CHUNK>(row * 16 + i % 8, i / 8),
				make_uint4(0, 0, 0, 0));
	}
#endif
	/* lanes from 16 on write what is scaled */
	const unsigned tile = lane & 16 ? block.transposed_inverse : block.lower;
	const float scale = lane & 16 ? (of_c ? odd : even) : 1.0f;

	store_segment(tile, row * 16 + (lane & 15), row * 2 + of_c, x, scale);
	store_segment(tile, row * 16 + (lane & 15), row * 2 + 1 - of_c, z, of_c ? 0.0f : scale);
}

/* Of block row `row` of tril(Q Kᵀ) what lies in the tiles of 8 columns from `first` on, from that part of Q Kᵀ. */
template <int N>
static __device__ __forceinline__ void make_score_row(
	unsigned scores, int row, int first, int lane, const float (&c)[N][4])
{
	const int group = lane >> 2, pair = (lane & 3) * 2;
	const unsigned kept = pair > group ? 0u : pair == group ? 0xffffu : ~0u; /* of two neighbours */

	unsigned packed[PLANES][N / 2][4];

	pack_rows<PLANES>(packed, c);
	UNROLL
	for (int k = 0; k < N / 2; k++) {
		const int column = first / 2 + k;

		UNROLL
		for (int p = 0; p < PLANES; p++) {
			if (column > row)
				continue;
			if (column == row) { /* without what lies above the diagonal */
				packed[p][k][0] &= kept;
				packed[p][k][2] = 0;
				packed[p][k][3] &= kept;
			}
			store_block(scores + p * SQUARE_PLANE, row, column, lane, packed[p][k]);
		}
	}
}

/* Block rows `row`, row + step, … of tril(Q Kᵀ). */
static __device__ __forceinline__ void make_score_rows(
	const struct chunk_block &block, unsigned keys, unsigned queries, unsigned scores, int row, int step)
{
	UNROLL
	for (; row < BLOCKS; row += step) {
		unsigned left[PLANES][STATE_K][4];
		float c[CHUNK_N][4];

		load_rows<PLANES, HEAD_DIM>(left, queries + row * 16 * HEAD_DIM * 2, ROWS_PLANE);
		clear(c);
		multiply<PLANES, HEAD_DIM, false, FULL>(c, left, keys, ROWS_PLANE);
		if (GATED)
			decay_products(c, block.decay, row, 0);
		make_score_row(scores, row, 0, block.lane, c);
	}
}

/* Step a. Each warp makes a block row of L and, causal, one of tril(Q Kᵀ): a long one beside a short one,
 * or, where warps are many, one of the two. Both come from the same reading of K. The blocks above the
 * diagonal are computed too and dropped: branches around them cost more than they save. */
template <bool WITH_SCORES>
static __device__ __forceinline__ void make_rows(
	struct chunk_block &block, unsigned keys, unsigned queries, unsigned scores)
{
	UNROLL
	for (int slot = 0; slot < BLOCKS_PER_WARP; slot++) {
		const int first = MAKING_WARPS > BLOCKS ? (block.warp + MAKING_WARPS - BLOCKS) % MAKING_WARPS
							: block.warp;
		const int lower = block.warp + slot * MAKING_WARPS < BLOCKS ? block.warp + slot * MAKING_WARPS
									    : -1;
		const int score = !WITH_SCORES ? -1 : BLOCKS - 1 - first - slot * MAKING_WARPS;
		float g[CHUNK_N][4], c[CHUNK_N][4];

		clear(g);
		clear(c);
		const unsigned lane = lane_offset<HEAD_DIM>(false);

		UNROLL
		for (int k = 0; k < STATE_K; k++) {
			unsigned left[PLANES][1][4], left_q[PLANES][1][4];

			load_rows<PLANES, HEAD_DIM>(
				left, keys + max(lower, 0) * 16 * HEAD_DIM * 2, ROWS_PLANE, k);
			if (WITH_SCORES)
				load_rows<PLANES, HEAD_DIM>(
					left_q, queries + max(score, 0) * 16 * HEAD_DIM * 2, ROWS_PLANE, k);
			UNROLL
			for (int j = 0; j < BLOCKS; j++) {
				UNROLL
				for (int p = 0; p < PLANES; p++) {
					unsigned b[4];

					load_matrices(b,
						keys + p * ROWS_PLANE + j * 16 * HEAD_DIM * 2 +
							(lane ^ tile_column<HEAD_DIM>(2 * k)));
					UNROLL
					for (int other = 0; other + p < PLANES; other++) {
						multiply_add(g[2 * j], left[other][0], b[0], b[1]);
						multiply_add(g[2 * j + 1], left[other][0], b[2], b[3]);
						if (!WITH_SCORES)
							continue;
						multiply_add(c[2 * j], left_q[other][0], b[0], b[1]);
						multiply_add(c[2 * j + 1], left_q[other][0], b[2], b[3]);
					}
				}
			}
		}
		if (GATED) {
			decay_products(g, block.decay, max(lower, 0), 0);
			decay_products(c, block.decay, max(score, 0), 0);
		}
		if (score >= 0)
			make_score_row(scores, score, 0, block.lane, c);
		if (lower >= 0)
			make_lower_row(block, slot, lower, g);
	}
}

/* Step b: the blocks of T under the diagonal in block column `column`, downwards:
 * X_ij = −D_i Σ_k L_ik X_kj with j ≤ k < i, computed transposed; D_i is the inverse of L_ii. */
static __device__ __forceinline__ void make_inverse_column(
	const struct chunk_block &block, int slot, int column)
{
	unsigned x[BLOCKS][PLANES][1][4];

	load_rows<PLANES, CHUNK>(
		x[0], block.lower + column * 16 * CHUNK * 2, SQUARE_PLANE, column, block.lane);
	UNROLL
	for (int step = 1; step < BLOCKS; step++) {
		const int row = column + step;
		float sum[2][4], result[2][4];
		unsigned z[PLANES][1][4];

		if (row >= BLOCKS)
			break;
		clear(sum);
		UNROLL
		for (int k = 0; k < step; k++) {
			multiply_block<CHUNK, false>(sum, x[k][0], block.lower, row, column + k, block.lane);
			multiply_block<CHUNK, false>(sum, x[k][0], block.lower, column + k, row, block.lane);
			if (PLANES > 1)
				multiply_block<CHUNK, false>(
					sum, x[k][PLANES - 1], block.lower, row, column + k, block.lane);
		}
		pack_rows<PLANES>(z, sum, -1.0f);
		clear(result);
		UNROLL
		for (int left = 0; left < PLANES; left++) {
			UNROLL
			for (int right = 0; left + right < PLANES; right++)
				multiply_block<CHUNK, true>(result, z[left],
					block.lower + right * SQUARE_PLANE, row, row, block.lane);
		}
		pack_rows<PLANES>(x[step], result);
		UNROLL
		for (int n = 0; n < 2; n++) {
			UNROLL
			for (int i = 0; i < 4; i++)
				result[n][i] *= block.alpha[slot][i / 2];
		}
		pack_rows<PLANES>(z, result);
		UNROLL
		for (int p = 0; p < PLANES; p++)
			store_block(block.transposed_inverse + p * SQUARE_PLANE, column, row, block.lane,
				z[p][0]);
	}
}

static __device__ __forceinline__ void make_inverse(const struct chunk_block &block)
{
	UNROLL
	for (int slot = 0; slot < BLOCKS_PER_WARP; slot++)
		if (block.warp + slot * MAKING_WARPS < BLOCKS)
			make_inverse_column(block, slot, block.warp + slot * MAKING_WARPS);
}

static __device__ __forceinline__ struct chunk_block start_block(
	const struct quasar_chunk_arguments &a, unsigned squares, int head)
{
	struct chunk_block block;

	block.warp = threadIdx.x / 32;
	block.lane = threadIdx.x % 32;
	block.transposed_inverse = squares;
	block.lower = squares + SQUARE_BYTES;
	block.beta = a.beta[head];
	return block;
}

static __device__ __forceinline__ unsigned shared_base(void)
{
	extern __shared__ __align__(1024) unsigned char memory[];

	return (unsigned)__cvta_generic_to_shared(memory);
}

static __device__ __forceinline__ unsigned char *transition_of(
	const struct quasar_chunk_arguments &a, const struct share &share, int group)
{
	return (unsigned char *)a.transitions + place_of_group(a, share, group) * TRANSITION_BYTES;
}

/* Blocks of T and of tril(Q Kᵀ) that nobody writes are zero, and wgmma reads them. */
static __device__ __forceinline__ void clear_square(unsigned tile)
{
#if WARPGROUP_PRODUCTS
	for (int i = threadIdx.x % MAKING_THREADS; i < SQUARE_BYTES / 16; i += MAKING_THREADS)
		store_shared(tile + i * 16, make_uint4(0, 0, 0, 0));
#endif
}

static __device__ __forceinline__ int *forgotten_of(
	const struct quasar_chunk_arguments &a, const struct share &share, int group)
{
	return a.forgotten + (PACKED ? place_of_group(a, share, group) : share.sequence * a.groups + group);
}

/* --- T of every chunk, where it has a launch of its own ---------------------------------------------- */

static __device__ __forceinline__ unsigned char *inverse_of(
	const struct quasar_chunk_arguments &a, const struct share &share, int chunk)
{
	return (unsigned char *)a.inverses + place_of_chunk(a, share, chunk) * SQUARE_BYTES;
}

/* BLOCKS warps, or all, make a chunk's. */
static __device__ __forceinline__ void make_inverses(const struct quasar_chunk_arguments &a)
{
	const int at_once = CHUNKS_AT_ONCE(HEAD_DIM, CHUNK), part = threadIdx.x / (THREADS / at_once);
	struct share share;

	if (!make_share(share, a, at_once * CHUNK, true))
		return;

	const int first = share.index * at_once;
	const struct rows rows = start_rows(a, share);
	const unsigned tiles = shared_base(), squares = tiles + at_once * ROWS_BYTES;
	struct chunk_block block = start_block(a, squares + part * INVERSE_BYTES, share.sequence % a.heads);

	block.warp %= BLOCKS;
	if (GATED) {
		float gate[2];

		load_gates(gate, a, rows, first + part);
		block.decay = decay_of(gate);
	}
	for (int i = 0; i < at_once; i++) { /* behind the end rows are zeros */
		load_chunk<1>(a, rows, first + i, tiles + i * ROWS_BYTES);
		clear_square(squares + i * INVERSE_BYTES);
	}
	copy_async_wait();
	publish_tiles();
	__syncthreads();
#if WARPGROUP_PRODUCTS
	{
		const unsigned keys = tiles + part * ROWS_BYTES;
		unsigned left[PLANES][STATE_K][4];
		float g[CHUNK_N][4];

		clear(g);
		load_rows<PLANES, HEAD_DIM>(left, keys + block.warp * 16 * HEAD_DIM * 2, ROWS_PLANE);
		multiply<PLANES, HEAD_DIM, false, FULL>(g, left, keys, ROWS_PLANE);
		if (GATED)
			decay_products(g, block.decay, block.warp, 0);
		make_lower_row(block, 0, block.warp, g);
	}
#else
	make_rows<false>(block, tiles + part * ROWS_BYTES, 0, 0);
#endif
	__syncthreads();
	make_inverse(block);
	__syncthreads();
	for (int i = 0; i < at_once && first + i < chunks_of(a, share); i++)
		for (int at = threadIdx.x * 16; at < SQUARE_BYTES; at += THREADS * 16)
			*(uint4 *)(inverse_of(a, share, first + i) + at) = load_shared(
				squares + i * INVERSE_BYTES + at);
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

/* --- warps of their own for what a chunk's matrices take ---------------------------------------------- */

/* Makers are a chunk ahead of carriers: a chunk's rows lie in one of three stages, what is made of them in one of two
 * places. Barriers by number, the last two for each of these places. */
enum { CARRIERS_MEET = 1, MAKERS_MEET, IS_MADE, IS_USED = IS_MADE + 2 };

static __device__ __forceinline__ void meet(int barrier, int threads)
{
	asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

/* The same for those who need not wait. */
static __device__ __forceinline__ void tell(int barrier)
{
	asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(THREADS) : "memory");
}

static __device__ __forceinline__ void carriers_meet(void)
{
	if (MAKERS)
		meet(CARRIERS_MEET, CARRIERS);
	else
		__syncthreads();
}

/* Whether the condition holds for any carrier. */
static __device__ __forceinline__ bool any_carrier(bool condition)
{
	int any;

	if (!MAKERS)
		return __syncthreads_or(condition);
	asm volatile("{ .reg .pred p, q; setp.ne.s32 p, %1, 0; bar.red.or.pred q, %2, %3, p; "
		     "selp.s32 %0, 1, 0, q; }"
		     : "=r"(any)
		     : "r"((int)condition), "r"((int)CARRIERS_MEET), "r"(CARRIERS)
		     : "memory");
	return any;
}

/* In the first pass registers do not suffice for a left factor beside two states: it goes through shared memory. */
#define STATE_TILE (WARPGROUP_PRODUCTS && MAKERS && HEAD_DIM == 128)

/* Registers that the compiler leaves each thread, in steps of 8, are shared out anew: a maker needs fewer. */
#define SHARED_OUT (WARPGROUP_PRODUCTS && MAKERS && 65536 / (THREADS * MIN_BLOCKS) < 232)
#define REGISTERS (65536 / (THREADS * MIN_BLOCKS) / 8 * 8)
#define MAKER_REGISTERS (SEPARATE_INVERSE ? 64 : 88)
#define CARRIER_REGISTERS ((REGISTERS * THREADS - MAKER_REGISTERS * MAKERS) / CARRIERS / 8 * 8)

template <bool MAKER> static __device__ __forceinline__ void take_registers(void)
{
#if WARPGROUP_PRODUCTS && NUM_STAGES == 3
	if (SHARED_OUT && MAKER)
		asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(MAKER_REGISTERS));
	else if (SHARED_OUT)
		asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(CARRIER_REGISTERS));
#endif
}

static __device__ __forceinline__ unsigned place_of_inverse(unsigned made, int index)
{
	return made + index % 2 * SQUARE_BYTES;
}

static __device__ __forceinline__ unsigned place_of_scores(unsigned made, int index)
{
	return made + (SEPARATE_INVERSE ? 0 : 2 * SQUARE_BYTES) + index % 2 * SQUARE_BYTES;
}

/* The chunks first, first + STEP, … of a group, `count` of them. Where carriers need no more from chunk i on, they set
 * stopped[i % 2] before they tell that it is used: makers that are at chunk i + 1 do not look there. */
template <int TENSORS, int STEP>
static __device__ __forceinline__ void make_matrices(const struct quasar_chunk_arguments &a,
	const struct rows &rows, const struct share &share, int first, int count, unsigned made,
	unsigned stages, const volatile int *stopped)
{
	const bool with_scores = TENSORS == 3 && !UPSTREAM;
	struct chunk_block block = start_block(a, made, share.sequence % a.heads);
	float gate[2];

	block.warp = __shfl_sync(
		~0u, block.warp - WARPS, 0); /* the compiler sees that all lanes have the same */
	block.lower = made + MADE_BYTES(with_scores) - SQUARE_BYTES;
	load_stage<TENSORS>(a, rows, share, first, stages);
	load_gates(gate, a, rows, first);
	for (int i = 0; i < MADE_BYTES(with_scores) / SQUARE_BYTES; i++)
		clear_square(made + i * SQUARE_BYTES);
	for (int i = 0; i < count; i++) {
		const unsigned keys = stages + i % 3 * STAGE_BYTES(TENSORS), queries = keys + 2 * ROWS_BYTES;
		const unsigned scores = place_of_scores(made, i);

		/* what depends on the lane would be kept in registers otherwise, and those are short */
		asm volatile("" : "+r"(block.lane));
		if (i) {
			meet(IS_USED + i % 2, THREADS);
			if (STEP < 0 && stopped[i % 2])
				break;
		}
		copy_async_wait();
		publish_tiles();
		meet(MAKERS_MEET, MAKERS);
		if (i + 1 < count)
			load_stage<TENSORS>(a, rows, share, first + (i + 1) * STEP,
				stages + (i + 1) % 3 * STAGE_BYTES(TENSORS), block.warp * 32 + block.lane);
		if (GATED) {
			block.decay = decay_of(gate);
			load_gates(gate, a, rows, max(first + (i + 1) * STEP, 0));
		}
		block.transposed_inverse = place_of_inverse(made, i);
#if WARPGROUP_PRODUCTS
		float g[CHUNK_N][4];

		if (!SEPARATE_INVERSE) {
			clear(g);
			multiply_tiles<PLANES, HEAD_DIM>(g, keys, keys, ROWS_PLANE, ROWS_PLANE);
			if (GATED)
				decay_products(g, block.decay, block.warp, 0);
			make_lower_row(block, 0, block.warp, g);
		}
		if (with_scores) {
			clear(g);
			multiply_tiles<PLANES, HEAD_DIM>(g, queries, keys, ROWS_PLANE, ROWS_PLANE);
			if (GATED)
				decay_products(g, block.decay, block.warp, 0);
			make_score_row(scores, block.warp, 0, block.lane, g);
		}
#else
		if (!SEPARATE_INVERSE)
			make_rows<with_scores>(block, keys, queries, scores);
		else if (with_scores)
			make_score_rows(block, keys, queries, scores, block.warp, MAKER_WARPS);
#endif
		if (!SEPARATE_INVERSE) {
			meet(MAKERS_MEET, MAKERS);
			make_inverse(block);
		}
		publish_tiles();
		tell(IS_MADE + i % 2);
	}
	copy_async_wait();
}

/* --- pass 1: a group's transition ------------------------------------------------------------------ */

/* Writes P − I as the tile that pass 2 multiplies with, and Rᵀ where the lane that will own it looks. */
static __device__ __forceinline__ void store_transition(unsigned char *transition, int warp, int lane,
	const float (&p)[STATE_N][4], const float (&r)[STATE_N][4])
{
	const int group = lane >> 2, pair = (lane & 3) * 2;
	float *registers = (float *)(transition + STATE_BYTES);

	UNROLL
	for (int n = 0; n < STATE_N; n++) {
		UNROLL
		for (int half = 0; half < 2; half++) {
			int key = warp * 16 + group + half * 8;
			int before = n * 8 + pair; /* of two neighbours */
			unsigned split[PLANES];

			split_bf16<PLANES>(split, p[n][half * 2] - (before == key),
				p[n][half * 2 + 1] - (before + 1 == key));
			UNROLL
			for (int i = 0; i < PLANES; i++)
				*(unsigned *)(transition + i * STATE_PLANE + tile_offset<HEAD_DIM>(key, n) +
					pair * 2) = split[i];
			UNROLL
			for (int i = 0; i < 2; i++) {
				int value = n * 8 + pair + i, owner = value % 8 * 4 + key % 8 / 2;

				registers[((value / 16 * STATE_N + key / 8) * 32 + owner) * 4 +
					value % 16 / 8 * 2 + key % 2] = r[n][half * 2 + i];
			}
		}
	}
}

static __device__ __forceinline__ void make_transition(const struct quasar_chunk_arguments &a)
{
	struct share share;

	if (!make_share(share, a, (long long)a.chunks_per_group * CHUNK, false))
		return;

	const struct rows rows = start_rows(a, share);
	const int first = share.index * a.chunks_per_group,
		  last = min(first + a.chunks_per_group, chunks_of(a, share)) - 1;
	const unsigned made = shared_base(), stages = made + (MAKERS ? MADE_BYTES(0) : 0);
	const unsigned behind = stages + NUM_STAGES * STAGE_BYTES(2);
	struct chunk_block block = start_block(a, behind, share.sequence % a.heads);
	float p[STATE_N][4], r[STATE_N][4], gate[2];
	int forgotten = 0;
	__shared__ int stopped[2];

	if (MAKERS) {
		if (threadIdx.x < 2)
			stopped[threadIdx.x] = 0;
		__syncthreads();
		if (threadIdx.x >= CARRIERS) {
			take_registers<true>();
			make_matrices<2, -1>(a, rows, share, last, last - first + 1, made, stages, stopped);
			return;
		}
		take_registers<false>();
		tell(IS_USED + 1);
	}
	load_gates(gate, a, rows, last);
	clear(r);
	UNROLL
	for (int n = 0; n < STATE_N; n++) {
		UNROLL
		for (int i = 0; i < 4; i++)
			p[n][i] = n * 8 + (block.lane & 3) * 2 + (i & 1) ==
				block.warp * 16 + (block.lane >> 2) + (i >> 1) * 8;
	}
	if (!READY_INVERSE)
		clear_square(block.transposed_inverse);
	if (!MAKERS)
		load_stage<2>(a, rows, share, last, stages);
	int chunk = last;

	for (; chunk >= first; chunk--) {
		const unsigned keys = stages + (last - chunk) % NUM_STAGES * STAGE_BYTES(2);
		const unsigned inverse = SEPARATE_INVERSE ? keys + 2 * ROWS_BYTES
			: MAKERS                          ? place_of_inverse(made, last - chunk)
							  : block.transposed_inverse;
		float m[CHUNK_N][4], largest = 0.0f;
		unsigned a_state[PLANES][STATE_K][4], a_chunk[PLANES][CHUNK_K][4];

		UNROLL
		for (int n = 0; n < STATE_N; n++) {
			UNROLL
			for (int i = 0; i < 4; i++)
				largest = fmaxf(largest, fabsf(p[n][i]));
		}
		if (!MAKERS) {
			copy_async_wait();
			publish_tiles();
		}
		const unsigned tile = behind + (last - chunk) % 2 * STATE_BYTES;

#if STATE_TILE
		pack_rows<PLANES>(a_state, p);
		store_rows<PLANES, HEAD_DIM>(tile + block.warp * 16 * HEAD_DIM * 2, a_state, STATE_PLANE);
		publish_tiles();
#endif
		forgotten = !any_carrier(!(largest <= NEGLIGIBLE));
		if (forgotten)
			break;
		if (MAKERS)
			meet(IS_MADE + (last - chunk) % 2, THREADS);
		if (NUM_STAGES == 2 && chunk > first)
			load_stage<2>(
				a, rows, share, chunk - 1, stages + (last - chunk + 1) % 2 * STAGE_BYTES(2));
		if (GATED) {
			block.decay = decay_of(gate);
			load_gates(gate, a, rows, max(chunk - 1, 0));
		}
#if STATE_TILE
		clear(m);
		multiply_tiles<PLANES, HEAD_DIM>(
			m, tile + block.warp / 4 * (STATE_PLANE / 2), keys, STATE_PLANE, ROWS_PLANE);
#else
		pack_rows<PLANES>(a_state, p);
		if (READY_INVERSE) {
			clear(m);
			multiply<PLANES, HEAD_DIM, false, FULL>(m, a_state, keys, ROWS_PLANE);
		} else {
			make_rows<false>(block, keys, 0, 0);
			__syncthreads();
			make_inverse(block);
			clear(m);
			multiply<PLANES, HEAD_DIM, false, FULL>(m, a_state, keys, ROWS_PLANE);
			publish_tiles();
			__syncthreads();
		}
#endif
		if (GATED)
			decay_columns<false>(m, block.decay);
		pack_rows<PLANES>(a_chunk, m);
		clear(m);
		multiply<PLANES, CHUNK, false, LOWER>(m, a_chunk, inverse, SQUARE_PLANE);
		pack_rows<PLANES>(a_chunk, m);
		if (GATED) {
			unsigned decayed[PLANES][CHUNK_K][4];

			decay_columns<true>(m, block.decay);
			decay_whole(p, block.decay);
			pack_rows<PLANES>(decayed, m);
			multiply<PLANES, HEAD_DIM, true, FULL, -1>(p, decayed, keys, ROWS_PLANE);
		} else {
			multiply_start<PLANES, HEAD_DIM, true, FULL, -1>(p, a_chunk, keys, ROWS_PLANE);
		}
		if (!READY_INVERSE) /* registers are short */
			multiply_finish(p);
		multiply_start<PLANES, HEAD_DIM, true, FULL>(r, a_chunk, keys + ROWS_BYTES, ROWS_PLANE);
		multiply_finish<1>(p);
		multiply_finish(r);
		if (MAKERS && chunk - 1 > first)
			tell(IS_USED + (last - chunk) % 2);
		if (NUM_STAGES == 1 && chunk > first) {
			__syncthreads();
			load_stage<2>(a, rows, share, chunk - 1, stages);
		}
	}
	if (MAKERS && forgotten && chunk - 1 > first) {
		meet(IS_MADE + (last - chunk) % 2, THREADS);
		if (threadIdx.x == 0)
			stopped[(last - chunk) % 2] = 1;
		tell(IS_USED + (last - chunk) % 2);
	}
	store_transition(transition_of(a, share, share.index), block.warp, block.lane, p, r);
	if (threadIdx.x == 0)
		*forgotten_of(a, share, share.index) = forgotten;
}

/* --- pass 2: the output ---------------------------------------------------------------------------- */

/* Rᵀ of a transition. */
static __device__ __forceinline__ void load_registers(
	float (&state)[STATE_N][4], const unsigned char *transition, int warp, int lane)
{
	const float4 *registers = (const float4 *)(transition + STATE_BYTES) + warp * STATE_N * 32 + lane;

	UNROLL
	for (int n = 0; n < STATE_N; n++) {
		float4 value = registers[n * 32];

		state[n][0] = value.x;
		state[n][1] = value.y;
		state[n][2] = value.z;
		state[n][3] = value.w;
	}
}

/* Element [key, value] of a state for each register of its transpose. */
#define STATE_INDEX(warp, lane, n, i)                                                                        \
	(((n)*8 + ((lane)&3) * 2 + ((i)&1)) * HEAD_DIM + (warp)*16 + ((lane) >> 2) + ((i) >> 1) * 8)

static __device__ __forceinline__ void copy_tile(unsigned address, const unsigned char *transition)
{
	UNROLL
	for (int i = 0; i < STATE_BYTES / 16 / CARRIERS; i++)
		copy_async(address + (i * CARRIERS + threadIdx.x) * 16,
			transition + (i * CARRIERS + threadIdx.x) * 16, true);
}

/* The state before a group: through the groups before it, from the last one that forgot the past.
 * `tiles` has room for WALK_TILES transitions: while one is applied, the next is on its way. */
static __device__ __forceinline__ void start_state(float (&state)[STATE_N][4],
	const struct quasar_chunk_arguments &a, const struct share &share, int warp, int lane, unsigned tiles)
{
	const int index = share.index;
	float upcoming[STATE_N][4];
	int next = 0;

	for (int from = 0; from < index; from += 32) {
		int candidate = from + lane;
		unsigned found = __ballot_sync(~0u, candidate < index && *forgotten_of(a, share, candidate));

		if (found)
			next = from + 32 - __clz(found);
	}
	clear(state);
	if (next > 0) {
		load_registers(state, transition_of(a, share, next - 1), warp, lane);
	} else if (a.initial_state) {
		UNROLL
		for (int n = 0; n < STATE_N; n++) {
			UNROLL
			for (int i = 0; i < 4; i++)
				state[n][i] =
					a.initial_state[(long long)share.sequence * HEAD_DIM * HEAD_DIM +
						STATE_INDEX(warp, lane, n, i)];
		}
	}
	if (next < index) {
		load_registers(upcoming, transition_of(a, share, next), warp, lane);
		if (WALK_TILES > 1)
			copy_tile(tiles, transition_of(a, share, next));
	}
	for (int step = 0; next < index; next++, step ^= 1) {
		const unsigned tile = tiles + (WALK_TILES > 1 ? step * STATE_BYTES : 0);
		unsigned left[PLANES][STATE_K][4];

		if (WALK_TILES == 1) {
			carriers_meet();
			copy_tile(tile, transition_of(a, share, next));
		}
		pack_rows<PLANES>(left, state);
		UNROLL
		for (int n = 0; n < STATE_N; n++) {
			UNROLL
			for (int i = 0; i < 4; i++)
				state[n][i] += upcoming[n][i];
		}
		copy_async_wait();
		publish_tiles();
		carriers_meet();
		if (next + 1 < index) {
			load_registers(upcoming, transition_of(a, share, next + 1), warp, lane);
			if (WALK_TILES > 1)
				copy_tile(
					tiles + (step ^ 1) * STATE_BYTES, transition_of(a, share, next + 1));
		}
		multiply<PLANES, HEAD_DIM, false, FULL>(state, left, tile, STATE_PLANE);
	}
}

/* Yᵀ = Vᵀ − (K St)ᵀ, where y holds (K St)ᵀ. */
static __device__ __forceinline__ void subtract_from_values(float (&y)[CHUNK_N][4], unsigned values, int warp)
{
	const unsigned lane = lane_offset<HEAD_DIM>(false);

	UNROLL
	for (int n = 0; n < CHUNK_N; n += 2) {
		float value[2][4];

		UNROLL
		for (int j = 0; j < 2; j++) {
			UNROLL
			for (int i = 0; i < 4; i++)
				value[j][i] = 0.0f;
		}
		UNROLL
		for (int p = 0; p < PLANES; p++) {
			unsigned v[4];

			load_matrices_transposed(v,
				values + p * ROWS_PLANE + n * 8 * HEAD_DIM * 2 +
					(lane ^ tile_column<HEAD_DIM>(2 * warp)));
			UNROLL
			for (int i = 0; i < 4; i++) {
				value[i / 2][i % 2 * 2] += bf16_low(v[i]);
				value[i / 2][i % 2 * 2 + 1] += bf16_high(v[i]);
			}
		}
		UNROLL
		for (int j = 0; j < 2; j++) {
			UNROLL
			for (int i = 0; i < 4; i++)
				y[n + j][i] = value[j][i] - y[n + j][i];
		}
	}
}

/* Turns the warp's values around in the tile of V, of which it alone has read these columns, so that they leave in
 * pieces of 16 bytes. */
static __device__ __forceinline__ void store_output(const struct quasar_chunk_arguments &a,
	const struct share &share, ELEMENT *out, int chunk, unsigned values, int warp, int lane,
	const float (&o)[CHUNK_N][4])
{
	const long long step = 16 * a.o.stride[1];
	const long long left = tokens_of(a, share) - (long long)chunk * CHUNK;

	out += chunk * (CHUNK * a.o.stride[1]);

	__syncwarp();
	UNROLL
	for (int n = 0; n < CHUNK_N; n++) {
#if INPUT == INPUT_F32
		UNROLL
		for (int i = 0; i < 4; i++) { /* four of 16 values in each of two segments of two planes */
			int token = n * 8 + (lane & 3) * 2 + (i & 1), value = lane >> 2;

			asm volatile(
				"st.shared.f32 [%0], %1;" ::"r"(values + (i >> 1) * ROWS_PLANE +
					tile_offset<HEAD_DIM>(token, warp * 2 + value / 4) + value % 4 * 4),
				"f"(o[n][i])
				: "memory");
		}
#else
		UNROLL
		for (int half = 0; half < 2; half++)
			store_shared(values + tile_offset<HEAD_DIM>(n * 8 + (lane >> 2), warp * 2 + half) +
					(lane & 3) * 4,
				transpose_matrix(element_pair(o[n][half * 2], o[n][half * 2 + 1])));
#endif
	}
	__syncwarp();
	UNROLL
	for (int block = 0; block < BLOCKS; block++, out += step) {
		const int row = block * 16 + lane / 2;
		ELEMENT line[8];

		if (row >= left)
			continue;
#if INPUT == INPUT_F32
		UNROLL
		for (int i = 0; i < 2; i++)
			((uint4 *)line)[i] = load_shared(
				values + lane % 2 * ROWS_PLANE + tile_offset<HEAD_DIM>(row, warp * 2 + i));
#else
		*(uint4 *)line = load_shared(values + tile_offset<HEAD_DIM>(row, warp * 2 + lane % 2));
#endif
#if VECTOR
		UNROLL
		for (int i = 0; i < (int)sizeof(line) / 16; i++)
			((uint4 *)out)[i] = ((uint4 *)line)[i];
#else
		UNROLL
		for (int i = 0; i < 8; i++)
			out[i * a.o.stride[3]] = line[i];
#endif
	}
}

/* A chunk's tiles, by address. */
struct tiles {
	unsigned keys, values, queries, inverse, scores;
};

/* Yᵀ = Vᵀ − (K St)ᵀ, packed. */
static __device__ __forceinline__ void differences(unsigned (&packed)[PLANES][CHUNK_K][4],
	const float (&state)[STATE_N][4], const struct tiles &tiles, int warp)
{
	unsigned a_state[PLANES][STATE_K][4];
	float y[CHUNK_N][4];

	pack_rows<PLANES>(a_state, state);
	clear(y);
	multiply<PLANES, HEAD_DIM, false, FULL>(y, a_state, tiles.keys, ROWS_PLANE);
	subtract_from_values(y, tiles.values, warp);
	pack_rows<PLANES>(packed, y);
}

/* Nᵀ = Yᵀ Tᵀ, and packed in the place of Yᵀ. */
static __device__ __forceinline__ void solve(
	float (&n)[CHUNK_N][4], unsigned (&packed)[PLANES][CHUNK_K][4], const struct tiles &tiles)
{
	clear(n);
	multiply<PLANES, CHUNK, true, UPPER>(n, packed, tiles.inverse, SQUARE_PLANE);
	pack_rows<PLANES>(packed, n);
}

/* With a gate: what is left of the state behind the chunk, and of Nᵀ, packed. */
static __device__ __forceinline__ void pack_behind(unsigned (&packed)[PLANES][CHUNK_K][4],
	float (&state)[STATE_N][4], float (&n)[CHUNK_N][4], const struct decay &decay)
{
	if (!GATED)
		return;
	decay_whole(state, decay);
	decay_columns<false>(n, decay);
	pack_rows<PLANES>(packed, n);
}

/* --- one chunk, in each of the ways -------------------------------------------------------------------- */

#if UPSTREAM
static __device__ __forceinline__ void step(struct chunk_block &block, const struct tiles &tiles,
	float (&state)[STATE_N][4], float (&o)[CHUNK_N][4])
{
	unsigned a_state[PLANES][STATE_K][4], n[PLANES][CHUNK_K][4];
	float twice[STATE_N][4], y[CHUNK_N][4];

	if (!READY_INVERSE) {
		make_rows<false>(block, tiles.keys, 0, 0);
		__syncthreads();
		make_inverse(block);
	}
	differences(n, state, tiles, block.warp);
	if (!READY_INVERSE) {
		publish_tiles();
		__syncthreads();
	}
	solve(y, n, tiles);
	multiply<PLANES, HEAD_DIM, true, FULL>(state, n, tiles.keys, ROWS_PLANE);
	differences(n, state, tiles, block.warp);
	solve(y, n, tiles);
	copy(twice, state);
	multiply<PLANES, HEAD_DIM, true, FULL>(twice, n, tiles.keys, ROWS_PLANE);
	pack_rows<PLANES>(a_state, twice);
	clear(o);
	multiply<PLANES, HEAD_DIM, false, FULL>(o, a_state, tiles.queries, ROWS_PLANE);
}
#elif NUM_STAGES == 3
static __device__ __forceinline__ void step(struct chunk_block &block, const struct tiles &tiles,
	float (&state)[STATE_N][4], float (&o)[CHUNK_N][4])
{
	unsigned a_state[PLANES][STATE_K][4], n[PLANES][CHUNK_K][4], behind[PLANES][CHUNK_K][4];
	float y[CHUNK_N][4];

	pack_rows<PLANES>(a_state, state);
	clear(y);
	clear(o);
	hold(o);
	multiply_start<PLANES, HEAD_DIM, false, FULL>(y, a_state, tiles.keys, ROWS_PLANE);
	multiply_start<PLANES, HEAD_DIM, false, FULL>(o, a_state, tiles.queries, ROWS_PLANE);
	multiply_finish<1>(y);
	if (GATED)
		decay_columns<true>(y, block.decay);
	subtract_from_values(y, tiles.values, block.warp);
	pack_rows<PLANES>(n, y);
	clear(y);
	multiply_start<PLANES, CHUNK, true, UPPER>(y, n, tiles.inverse, SQUARE_PLANE);
	multiply_finish<1>(o);
	multiply_finish(y);
	if (GATED)
		decay_columns<true>(o, block.decay);
	pack_rows<PLANES>(n, y);
	pack_behind(behind, state, y, block.decay);
	multiply_start<PLANES, HEAD_DIM, true, FULL>(state, GATED ? behind : n, tiles.keys, ROWS_PLANE);
	multiply_start<PLANES, CHUNK, false, UPPER>(o, n, tiles.scores, SQUARE_PLANE);
	multiply_finish<1>(state);
	multiply_finish(o);
}
#elif SEPARATE_INVERSE
/* Where warps are many, each makes a part of a block row of the scores, of 16 columns or more, and those beyond make none. */
#define SCORE_PARTS (WARPS / BLOCKS > BLOCKS ? BLOCKS : WARPS > BLOCKS ? WARPS / BLOCKS : 1)
#define SCORE_N (CHUNK_N / SCORE_PARTS)
#define SCORERS (SCORE_PARTS * BLOCKS) /* warps */

static __device__ __forceinline__ void step(struct chunk_block &block, const struct tiles &tiles,
	float (&state)[STATE_N][4], float (&o)[CHUNK_N][4])
{
	const int part = SCORERS < WARPS ? block.warp / BLOCKS % SCORE_PARTS : block.warp / BLOCKS;
	const int row = block.warp % BLOCKS;
	unsigned a_state[PLANES][STATE_K][4], a_queries[PLANES][STATE_K][4], n[PLANES][CHUNK_K][4];
	unsigned behind[PLANES][CHUNK_K][4];
	float y[CHUNK_N][4], c[SCORE_N][4];

	load_rows<PLANES, HEAD_DIM>(a_queries, tiles.queries + row * 16 * HEAD_DIM * 2, ROWS_PLANE);
	pack_rows<PLANES>(a_state, state);
	clear(c);
	clear(y);
	hold(y);
	multiply_start<PLANES, HEAD_DIM, false, FULL>(
		c, a_queries, tiles.keys + part * SCORE_N * 8 * HEAD_DIM * 2, ROWS_PLANE);
	multiply_start<PLANES, HEAD_DIM, false, FULL>(y, a_state, tiles.keys, ROWS_PLANE);
	multiply_finish<1>(c);
	if (GATED)
		decay_products(c, block.decay, row, part * SCORE_N);
	if (SCORERS >= WARPS || block.warp < SCORERS)
		make_score_row(tiles.scores, row, part * SCORE_N, block.lane, c);
	/* where warps are few each makes several block rows */
	make_score_rows(block, tiles.keys, tiles.queries, tiles.scores, row + WARPS, WARPS);
	publish_tiles();
	multiply_finish(y);
	if (GATED)
		decay_columns<true>(y, block.decay);
	subtract_from_values(y, tiles.values, block.warp);
	pack_rows<PLANES>(n, y);
	clear(y);
	clear(o);
	hold(o);
	multiply_start<PLANES, CHUNK, true, UPPER>(y, n, tiles.inverse, SQUARE_PLANE);
	multiply_start<PLANES, HEAD_DIM, false, FULL>(o, a_state, tiles.queries, ROWS_PLANE);
	multiply_finish<1>(y);
	pack_rows<PLANES>(n, y);
	pack_behind(behind, state, y, block.decay);
	carriers_meet();
	multiply_start<PLANES, HEAD_DIM, true, FULL>(state, GATED ? behind : n, tiles.keys, ROWS_PLANE);
	multiply_finish<1>(o);
	if (GATED)
		decay_columns<true>(o, block.decay);
	multiply_start<PLANES, CHUNK, false, UPPER>(o, n, tiles.scores, SQUARE_PLANE);
	multiply_finish<1>(state);
	multiply_finish(o);
}
#else
static __device__ __forceinline__ void step(struct chunk_block &block, const struct tiles &tiles,
	float (&state)[STATE_N][4], float (&o)[CHUNK_N][4])
{
	unsigned a_state[PLANES][STATE_K][4], n[PLANES][CHUNK_K][4], behind[PLANES][CHUNK_K][4];
	float y[CHUNK_N][4];

	make_rows<true>(block, tiles.keys, tiles.queries, tiles.scores);
	__syncthreads();
	make_inverse(block);
	pack_rows<PLANES>(a_state, state);
	clear(y);
	multiply<PLANES, HEAD_DIM, false, FULL>(y, a_state, tiles.keys, ROWS_PLANE);
	clear(o);
	if (GATED)
		decay_columns<true>(y, block.decay);
	subtract_from_values(y, tiles.values, block.warp);
	pack_rows<PLANES>(n, y);
	multiply<PLANES, HEAD_DIM, false, FULL>(o, a_state, tiles.queries, ROWS_PLANE);
	if (GATED)
		decay_columns<true>(o, block.decay);
	publish_tiles();
	__syncthreads();
	solve(y, n, tiles);
	pack_behind(behind, state, y, block.decay);
	multiply_start<PLANES, HEAD_DIM, true, FULL>(state, GATED ? behind : n, tiles.keys, ROWS_PLANE);
	multiply_start<PLANES, CHUNK, false, UPPER>(o, n, tiles.scores, SQUARE_PLANE);
	multiply_finish<1>(state);
	multiply_finish(o);
}
#endif

static __device__ __forceinline__ void make_output(const struct quasar_chunk_arguments &a)
{
	struct share share;

	if (!make_share(share, a, (long long)a.chunks_per_group * CHUNK, true))
		return;

	const struct rows rows = start_rows(a, share);
	const int first = share.index * a.chunks_per_group,
		  end = min(first + a.chunks_per_group, chunks_of(a, share));
	const unsigned made = shared_base();
	const unsigned stages = made + (MAKERS ? MADE_BYTES(!UPSTREAM) : 0);
	const unsigned behind = stages + NUM_STAGES * STAGE_BYTES(3);
	struct chunk_block block = start_block(a, behind, share.sequence % a.heads);
	/* this thread's piece of the warp's 16 values, of the chunk's row lane / 2 */
	ELEMENT *out = (ELEMENT *)a.o.data +
		row_offset(a.o, PACKED ? 0 : share.sequence / a.heads,
			(PACKED ? share.first : 0) + block.lane / 2, share.sequence % a.heads) +
		(block.warp * 16 + block.lane % 2 * 8) * a.o.stride[3];
	struct tiles tiles;
	float state[STATE_N][4], gate[2];

	if (threadIdx.x >= CARRIERS) {
		take_registers<true>();
		make_matrices<3, 1>(a, rows, share, first, end - first, made, stages, NULL);
		return;
	}
	take_registers<false>();
	load_gates(gate, a, rows, first);
	tiles.scores = behind + (SEPARATE_INVERSE ? 0 : INVERSE_BYTES);

#if NUM_STAGES == 3
	start_state(state, a, share, block.warp, block.lane, stages + 2 * STAGE_BYTES(3));
	tell(IS_USED + 1);
#elif NUM_STAGES == 2
	load_stage<3>(a, rows, share, first, stages);
	start_state(state, a, share, block.warp, block.lane, stages + STAGE_BYTES(3));
	__syncthreads();
#else
	start_state(state, a, share, block.warp, block.lane, stages);
	__syncthreads();
	load_stage<3>(a, rows, share, first, stages);
#endif
	if (!READY_INVERSE)
		clear_square(block.transposed_inverse);
	if (!UPSTREAM && !MAKERS)
		clear_square(tiles.scores);
	for (int chunk = first; chunk < end; chunk++) {
		float o[CHUNK_N][4];

		tiles.keys = stages + (chunk - first) % NUM_STAGES * STAGE_BYTES(3);
		tiles.values = tiles.keys + ROWS_BYTES;
		tiles.queries = tiles.values + ROWS_BYTES;
		tiles.inverse = SEPARATE_INVERSE ? tiles.queries + ROWS_BYTES : block.transposed_inverse;
		if (MAKERS) {
			if (!SEPARATE_INVERSE)
				tiles.inverse = place_of_inverse(made, chunk - first);
			tiles.scores = place_of_scores(made, chunk - first);
			meet(IS_MADE + (chunk - first) % 2, THREADS);
		} else {
			copy_async_wait();
			publish_tiles();
			__syncthreads();
		}
		if (NUM_STAGES == 2 && chunk + 1 < end)
			load_stage<3>(
				a, rows, share, chunk + 1, stages + (chunk - first + 1) % 2 * STAGE_BYTES(3));
		if (GATED) {
			block.decay = decay_of(gate);
			load_gates(gate, a, rows, chunk + 1);
		}
		step(block, tiles, state, o);
		store_output(a, share, out, chunk, tiles.values, block.warp, block.lane, o);
		if (MAKERS && chunk + 2 < end)
			tell(IS_USED + (chunk - first) % 2);
		if (NUM_STAGES == 1 && chunk + 1 < end) {
			__syncthreads();
			load_stage<3>(a, rows, share, chunk + 1, stages);
		}
	}
	copy_async_wait();
	if (a.final_state && share.index == groups_of(a, share) - 1) {
		UNROLL
		for (int n = 0; n < STATE_N; n++) {
			UNROLL
			for (int i = 0; i < 4; i++)
				a.final_state[(long long)share.sequence * HEAD_DIM * HEAD_DIM +
					STATE_INDEX(block.warp, block.lane, n, i)] = state[n][i];
		}
	}
}

/* --- entries --------------------------------------------------------------------------------------- */

#ifndef FLAT_ENTRY
extern "C" __global__ void __launch_bounds__(THREADS)
	quasar_chunk_inverse(const __grid_constant__ struct quasar_chunk_arguments a)
{
	make_inverses(a);
}

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
	quasar_chunk_transition(const __grid_constant__ struct quasar_chunk_arguments a)
{
	make_transition(a);
}

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
	quasar_chunk_output(const __grid_constant__ struct quasar_chunk_arguments a)
{
	make_output(a);
}
#endif
