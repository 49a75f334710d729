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
 *   1. quasar_chunk_transition (transition.cuh): each group composes its chunks' maps, from the last to the first:
 *          M = A Kᵀ T,  A ← A − M K,  B ← B + M V       (from A = I, B = 0; in the end P = A, R = B)
 *      Walking backwards costs three products of [S, S] by [S, C] instead of four, and shows when the
 *      past is forgotten: each step shrinks A, and once no element of it exceeds NEGLIGIBLE, what the
 *      earlier chunks did to the state no longer matters and the walk ends. Keys of norm 8 get there
 *      in about 35 chunks; keys near zero never do, and cost the whole walk.
 *   2. quasar_chunk_output (output.cuh): each group first applies the maps of the groups before it (from the last
 *      forgotten one on) to get its starting state (walk.cuh), then goes through its chunks (step.cuh) and writes o.
 * The order of all sums is fixed, so the same input gives the same bits.
 *
 * Inside a block, warp w owns rows 16w … 16w+15 of the transposed state Stᵀ [value, key] in registers
 * (of A and B in the first pass), and all products with the state are chains in registers (common/tile.cuh):
 *     Yᵀ = Vᵀ − Stᵀ Kᵀ,  Nᵀ = Yᵀ Tᵀ,  Stᵀ += Nᵀ K,  oᵀ = Stᵀ Qᵀ + Nᵀ tril(Q Kᵀ)ᵀ
 * so that warps meet only for the chunk's own matrices, T and tril(Q Kᵀ):
 *   a. (matrices.cuh, lower.cuh) warp b makes block row b (16 rows) of G, α from its diagonal, the rows of L, and inverts
 *      the 16 × 16 diagonal block in fp32;
 *   b. (inverse.cuh) warp b makes block column b of T downwards from its diagonal block, by products of blocks.
 * Products run in bf16 with fp32 sums; the states stay in fp32. fp16 and fp32 input is carried in two
 * bf16 (PLANES = 2) with three products for one.
 *
 * With NUM_STAGES = 3 (roles.cuh) four more warps, makers, load the chunks and do a. and b., and make tril(Q Kᵀ), for the
 * next chunk while the others, carriers, take the state through this one. Neither waits for the other but where a tile
 * changes hands, and on Hopper makers leave carriers the registers that they do not need.
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
#include "quasar/output.cuh"
#include "quasar/transition.cuh"

#ifndef FLAT_ENTRY
extern "C" __global__ void __launch_bounds__(THREADS)
	quasar_chunk_inverse(const __grid_constant__ struct quasar_chunk_arguments a)
{
	wait_for_launch_before();
	make_inverses(a);
}

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
	quasar_chunk_transition(const __grid_constant__ struct quasar_chunk_arguments a)
{
	wait_for_launch_before();
	make_transition(a);
}

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
	quasar_chunk_output(const __grid_constant__ struct quasar_chunk_arguments a)
{
	wait_for_launch_before();
	make_output(a);
}
#endif
