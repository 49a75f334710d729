/* quasar_gradient: the gradient of QuasarAttention, parallel over the chunks of a sequence.
 *
 * The letters are chunk.cu's. Before a chunk is the state St, behind it St' = P St + R; E is the adjoint of a state: what a
 * small change of it changes the loss by. One application of a chunk to a state,
 *     N = T (V − K St),  St' = St + Kᵀ N,
 * takes the adjoint E' of St' back by
 *     dN = K E' + what the outputs add,  dY = Tᵀ dN,  E = E' − Kᵀ dY,  dV += dY,
 *     dK += N E'ᵀ − dY Stᵀ − (B + Bᵀ) K,  B = tril(dY Nᵀ, −1),  dα_r += dY_r · N_r / α_r²
 *     causal:    A = tril(Q Kᵀ), dA = tril(do Nᵀ):  dN += Aᵀ do,  dQ = do Stᵀ + dA K,  dK += dAᵀ Q,  E += Qᵀ do
 *     upstream:  do meets the state behind a second application of the chunk, whose E' is Qᵀ do, and dQ = do St″ᵀ
 * and α_r = α(|k_r|², β) gives the rest of dK, and dβ. So states are a chain of affine maps from the first chunk to the last, and
 * their adjoints one of the transposed maps from the last to the first,
 *     causal:    E = Pᵀ E' + C,  C = Qᵀ do − Kᵀ Tᵀ Aᵀ do
 *     upstream:  E = Pᵀ E' + C,  C = Pᵀ Pᵀ Qᵀ do
 * A sequence is worked off in parts that bound memory, the last one first, each by
 *   1. quasar_gradient_maps (gradient_maps.cuh): of each chunk T, P − I, R and C;
 *   2. quasar_gradient_compose, quasar_gradient_states (gradient_chain.cuh): both chains. Groups of chunks are composed side by
 *      side; then each group goes through the groups before it, or behind it, to its start, and through its chunks;
 *   3. quasar_gradient_rows (gradient_rows.cuh): of each chunk, from the state before it and the adjoint of the one behind it, dQ,
 *      dK, dV and its term of dβ;
 * and quasar_gradient_beta sums those up. For the states before the parts, steps 1 and 2 go through them forwards first.
 * The order of all sums is fixed, so the same input gives the same bits.
 *
 * Inside a block, warp w owns rows 16w … 16w+15 of transposed states [value, key] where products are chains in registers, and
 * rows of dQ and dK in step 3. All states are kept transposed, in bf16 tiles between the steps. On Hopper four warps together
 * make products by wgmma, if heads are of 64 or more.
 *
 * Compile-time parameters, as chunk.cu's: HEAD_DIM, UPSTREAM, VECTOR (of all tensors), COMPACT (upstream, and the rows of q, k and
 * v and of their gradients are evenly spaced). INPUT is bf16; the rest is fixed: */
#define CHUNK UPSTREAM_CHUNK
#define GATED 0
#define PACKED 0
#define NUM_STAGES 1
#define NUM_LAUNCHES 2
#define MIN_BLOCKS 1
#if defined(__CUDA_ARCH_FEAT_SM90_ALL) && HEAD_DIM >= 64
#define PRODUCT_WARPS 4 /* by wgmma, which Hopper alone has */
#else
#define PRODUCT_WARPS 1
#endif
#include "quasar/gradient_chain.cuh"
#include "quasar/gradient_maps.cuh"
#include "quasar/gradient_rows.cuh"

#ifndef FLAT_ENTRY
extern "C" __global__ void __launch_bounds__(THREADS, MAPS_BLOCKS)
	quasar_gradient_maps(const __grid_constant__ struct quasar_gradient_arguments a)
{
	wait_for_launch_before();
	make_maps(a);
}

extern "C" __global__ void __launch_bounds__(THREADS)
	quasar_gradient_compose(const __grid_constant__ struct quasar_gradient_arguments a)
{
	wait_for_launch_before();
	compose_group(a);
}

extern "C" __global__ void __launch_bounds__(THREADS)
	quasar_gradient_states(const __grid_constant__ struct quasar_gradient_arguments a)
{
	wait_for_launch_before();
	make_states(a);
}

extern "C" __global__ void __launch_bounds__(THREADS, ROWS_BLOCKS)
	quasar_gradient_rows(const __grid_constant__ struct quasar_gradient_arguments a)
{
	wait_for_launch_before();
	make_row_gradients(a);
}

extern "C" __global__ void __launch_bounds__(GRADIENT_BETA_THREADS)
	quasar_gradient_beta(const __grid_constant__ struct quasar_gradient_arguments a)
{
	wait_for_launch_before();
	sum_beta_terms(a);
}
#endif
