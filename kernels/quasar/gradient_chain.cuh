/* gradient_chain: step 2: the chain of states, and that of their adjoints; see gradient.cu.
 *
 * A chain takes a transposed state from one map to the next: forwards Stᵀ ← Stᵀ Pᵀ + Rᵀ, backwards Eᵀ ← Eᵀ P + Cᵀ. The maps of
 * a group are composed backwards: C is what the chain makes of zero, X = P − I what it makes of zero with P_i − I in the place of C_i,
 * and Rᵀ ← Rᵀ + R_iᵀ + R_iᵀ Xᵀ with the X of the maps behind. */
#pragma once

#include "quasar/gradient_tiles.cuh"
#include "quasar/walk.cuh"

#define CHAIN_STAGES (GRADIENT_CHAIN_TILES(HEAD_DIM) / 2)
#define COMPOSE_STAGES ((GRADIENT_CHAIN_TILES(HEAD_DIM) - 1) / 2)

/* The maps of a sequence's chunks or groups. */
struct maps {
	const unsigned char *transitions; /* P − I of each */
	unsigned char *terms;             /* what each adds */
};

template <bool GROUPS>
static __device__ __forceinline__ struct maps maps_of(
	const struct quasar_gradient_arguments &a, enum array terms, int sequence)
{
	return {place_of_states<GROUPS>(a, TRANSITIONS, sequence),
		place_of_states<GROUPS>(a, terms, sequence)};
}

static __device__ __forceinline__ void fetch_map(const struct maps &maps, int index, unsigned stage)
{
	fetch_tile<STATE_BYTES>(stage, maps.transitions + (long long)index * STATE_BYTES);
	fetch_tile<STATE_BYTES>(stage + STATE_BYTES, maps.terms + (long long)index * STATE_BYTES);
}

/* Starts fetching the first maps of a way of `count` from `first` on, all but one of STAGES. */
template <int STAGES>
static __device__ __forceinline__ void start_maps(const struct maps &maps, int first, int step, int count)
{
	__syncthreads();
	UNROLL
	for (int i = 0; i < STAGES - 1; i++) {
		if (i < count)
			fetch_map(maps, first + i * step, shared_base() + i * 2 * STATE_BYTES);
		copy_async_commit();
	}
}

/* Waits for the map of index first + i · step, and starts fetching one behind. Returns where it is. */
template <int STAGES>
static __device__ __forceinline__ unsigned next_map(
	const struct maps &maps, int first, int step, int count, int i)
{
	const int ahead = i + STAGES - 1;

	copy_async_wait_group<STAGES - 2>();
	publish_tiles();
	__syncthreads();
	if (ahead < count)
		fetch_map(maps, first + ahead * step, shared_base() + ahead % STAGES * 2 * STATE_BYTES);
	copy_async_commit();
	return shared_base() + i % STAGES * 2 * STATE_BYTES;
}

/* Through `count` maps, from the one of index `first` on. WRITES: each map's term gives way to the state that came to it. */
template <bool BACKWARDS, bool WRITES>
static __device__ __forceinline__ void run_chain(
	float (&state)[STATE_N][4], const struct maps &maps, int first, int count)
{
	const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, step = BACKWARDS ? -1 : 1;

	start_maps<CHAIN_STAGES>(maps, first, step, count);
	for (int i = 0; i < count; i++) {
		const unsigned transition = next_map<CHAIN_STAGES>(maps, first, step, count, i);
		const unsigned term = transition + STATE_BYTES;
		unsigned left[1][STATE_K][4], added[1][STATE_K][4];

		load_rows<1, HEAD_DIM>(added, term + warp * 16 * HEAD_DIM * 2, STATE_PLANE);
		pack_rows<1>(left, state);
		if (WRITES)
			store_state_rows(term, warp, lane, left);
		multiply_start<1, HEAD_DIM, BACKWARDS, FULL>(state, left, transition, STATE_PLANE);
		if (WRITES)
			copy_state_rows(
				maps.terms + (long long)(first + i * step) * STATE_BYTES, term, warp, lane);
		multiply_finish(state);
		add_factor<true>(state, added);
	}
	copy_async_wait();
}

/* The P − I and Rᵀ of `count` maps in one, from the last of them on, of index `last`. */
static __device__ __forceinline__ void compose_maps(
	float (&product)[STATE_N][4], float (&term)[STATE_N][4], const struct maps &maps, int last, int count)
{
	const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, rows = warp * 16 * HEAD_DIM * 2;
	const unsigned behind = shared_base() + COMPOSE_STAGES * 2 * STATE_BYTES; /* X of the maps behind */

	clear(product);
	clear(term);
	start_maps<COMPOSE_STAGES>(maps, last, -1, count);
	for (int i = 0; i < count; i++) {
		const unsigned transition = next_map<COMPOSE_STAGES>(maps, last, -1, count, i);
		unsigned left[1][STATE_K][4], own[1][STATE_K][4], added[1][STATE_K][4];

		pack_rows<1>(left, product);
		store_state_rows(behind, warp, lane, left);
		multiply_start<1, HEAD_DIM, true, FULL>(product, left, transition, STATE_PLANE);
		publish_tiles();
		__syncthreads();
		load_rows<1, HEAD_DIM>(own, transition + STATE_BYTES + rows, STATE_PLANE);
		multiply_start<1, HEAD_DIM, false, FULL>(term, own, behind, STATE_PLANE);
		load_rows<1, HEAD_DIM>(added, transition + rows, STATE_PLANE);
		multiply_finish<1>(product);
		add_factor<true>(product, added);
		multiply_finish(term);
		add_factor<true>(term, own);
	}
	copy_async_wait();
}

/* A sequence's first state, or the adjoint of its last one. */
static __device__ __forceinline__ void load_state(
	float (&state)[STATE_N][4], const float *states, int sequence, int warp, int lane)
{
	clear(state);
	if (!states)
		return;
	UNROLL
	for (int n = 0; n < STATE_N; n++) {
		UNROLL
		for (int i = 0; i < 4; i++)
			state[n][i] = states[(long long)sequence * HEAD_DIM * HEAD_DIM +
				STATE_INDEX(warp, lane, n, i)];
	}
}

static __device__ __forceinline__ void store_state(
	float *states, int sequence, int warp, int lane, const float (&state)[STATE_N][4])
{
	if (!states)
		return;
	UNROLL
	for (int n = 0; n < STATE_N; n++) {
		UNROLL
		for (int i = 0; i < 4; i++)
			states[(long long)sequence * HEAD_DIM * HEAD_DIM + STATE_INDEX(warp, lane, n, i)] =
				state[n][i];
	}
}

/* A group of a sequence, and which of its chains a block works on. */
struct chain {
	int sequence, group, first, count, role;
};

/* A group's blocks stand side by side: they read the same P at about the same time, and most of it but once from memory. */
static __device__ __forceinline__ struct chain make_chain(const struct quasar_gradient_arguments &a)
{
	const int sequences = (int)sequences_of(a), roles = gridDim.x / sequences / a.of.groups;
	const int index = blockIdx.x / roles, group = index / sequences,
		  first = group * a.of.chunks_per_group;

	return {index % sequences, group, first, min(a.of.chunks_per_group, a.part_chunks - first),
		(int)(blockIdx.x % roles)};
}

static __device__ __forceinline__ void write_state(const struct quasar_gradient_arguments &a,
	const struct chain &chain, enum array array, const float (&state)[STATE_N][4])
{
	unsigned packed[1][STATE_K][4];

	pack_rows<1>(packed, state);
	write_state_rows(
		place_of_states<true>(a, array, chain.sequence) + (long long)chain.group * STATE_BYTES,
		shared_base(), threadIdx.x / 32, threadIdx.x % 32, packed);
}

/* A group's P − I and R, or its C, which states alone do without. */
static __device__ __forceinline__ void compose_group(const struct quasar_gradient_arguments &a)
{
	const struct chain chain = make_chain(a);
	const int last = chain.first + chain.count - 1;
	float product[STATE_N][4], term[STATE_N][4];

	if (chain.role == 0) {
		compose_maps(product, term, maps_of<false>(a, STATES, chain.sequence), last, chain.count);
		__syncthreads();
		write_state(a, chain, TRANSITIONS, product);
		write_state(a, chain, STATES, term);
	} else {
		clear(term);
		run_chain<true, false>(term, maps_of<false>(a, ADJOINTS, chain.sequence), last, chain.count);
		__syncthreads();
		write_state(a, chain, ADJOINTS, term);
	}
}

/* The states before a group's chunks, in the place of R, or the adjoints of those behind them, in the place of C; for states
 * alone half of the blocks suffice. */
static __device__ __forceinline__ void make_states(const struct quasar_gradient_arguments &a)
{
	const struct chain chain = make_chain(a);
	const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, last = a.of.groups - 1;
	float state[STATE_N][4];

	if (chain.role == 0) {
		load_state(state, a.of.initial_state, chain.sequence, warp, lane);
		run_chain<false, false>(state, maps_of<true>(a, STATES, chain.sequence), 0, chain.group);
		run_chain<false, true>(
			state, maps_of<false>(a, STATES, chain.sequence), chain.first, chain.count);
		if (chain.group == last)
			store_state(a.of.final_state, chain.sequence, warp, lane, state);
	} else {
		load_state(state, a.final_gradient, chain.sequence, warp, lane);
		run_chain<true, false>(
			state, maps_of<true>(a, ADJOINTS, chain.sequence), last, last - chain.group);
		run_chain<true, true>(state, maps_of<false>(a, ADJOINTS, chain.sequence),
			chain.first + chain.count - 1, chain.count);
		if (chain.group == 0)
			store_state(a.initial_gradient, chain.sequence, warp, lane, state);
	}
}
