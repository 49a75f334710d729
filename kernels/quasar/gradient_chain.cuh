/* gradient_chain: step 2: the chain of states, and that of their adjoints; see gradient.cu.
 *
 * A chain takes a transposed state from one map to the next: forwards Stᵀ ← Stᵀ Pᵀ + Rᵀ, backwards Eᵀ ← Eᵀ P + Cᵀ. The maps of
 * a group are composed by chains, too, that start from zero: its R and C; and P − I is what comes of it with P − I in the place
 * of C. */
#pragma once

#include "quasar/gradient_tiles.cuh"
#include "quasar/walk.cuh"

#define CHAIN_STAGES GRADIENT_CHAIN_STAGES(HEAD_DIM)

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

/* Through `count` maps, from the one of index `first` on. A second chain adds P − I where the first adds the term. WRITES: each
 * map's term gives way to the state that came to it. */
template <bool BACKWARDS, bool WRITES, int CHAINS>
static __device__ __forceinline__ void run_chains(
	float (&states)[CHAINS][STATE_N][4], const struct maps &maps, int first, int count)
{
	const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, step = BACKWARDS ? -1 : 1;
	const unsigned stages = shared_base();

	__syncthreads();
	UNROLL
	for (int i = 0; i < CHAIN_STAGES - 1; i++) {
		if (i < count)
			fetch_map(maps, first + i * step, stages + i * 2 * STATE_BYTES);
		copy_async_commit();
	}
	for (int i = 0; i < count; i++) {
		const int ahead = i + CHAIN_STAGES - 1;
		const unsigned transition = stages + i % CHAIN_STAGES * 2 * STATE_BYTES;
		const unsigned term = transition + STATE_BYTES;
		unsigned left[CHAINS][1][STATE_K][4], added[CHAINS][1][STATE_K][4];

		copy_async_wait_group<CHAIN_STAGES - 2>();
		publish_tiles();
		__syncthreads();
		if (ahead < count)
			fetch_map(
				maps, first + ahead * step, stages + ahead % CHAIN_STAGES * 2 * STATE_BYTES);
		copy_async_commit();
		UNROLL
		for (int chain = 0; chain < CHAINS; chain++) {
			load_rows<1, HEAD_DIM>(added[chain],
				(chain ? transition : term) + warp * 16 * HEAD_DIM * 2, STATE_PLANE);
			pack_rows<1>(left[chain], states[chain]);
			if (WRITES)
				store_state_rows(term, warp, lane, left[chain]);
			multiply_start<1, HEAD_DIM, BACKWARDS, FULL>(
				states[chain], left[chain], transition, STATE_PLANE);
		}
		if (WRITES)
			copy_state_rows(
				maps.terms + (long long)(first + i * step) * STATE_BYTES, term, warp, lane);
		UNROLL
		for (int chain = 0; chain < CHAINS; chain++) {
			multiply_finish(states[chain]);
			add_factor(states[chain], added[chain]);
		}
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

/* A group's R, or its P − I and C, which both are chains of the same maps from the last one on. */
static __device__ __forceinline__ void compose_group(const struct quasar_gradient_arguments &a)
{
	const struct chain chain = make_chain(a);

	if (chain.role == 0) {
		float state[1][STATE_N][4];

		clear(state[0]);
		run_chains<false, false>(
			state, maps_of<false>(a, STATES, chain.sequence), chain.first, chain.count);
		__syncthreads();
		write_state(a, chain, STATES, state[0]);
	} else {
		float states[2][STATE_N][4];

		clear(states[0]);
		clear(states[1]);
		run_chains<true, false>(states, maps_of<false>(a, ADJOINTS, chain.sequence),
			chain.first + chain.count - 1, chain.count);
		__syncthreads();
		write_state(a, chain, ADJOINTS, states[0]);
		write_state(a, chain, TRANSITIONS, states[1]);
	}
}

/* The states before a group's chunks, in the place of R, or the adjoints of those behind them, in the place of C; for states
 * alone half of the blocks suffice. */
static __device__ __forceinline__ void make_states(const struct quasar_gradient_arguments &a)
{
	const struct chain chain = make_chain(a);
	const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, last = a.of.groups - 1;
	float state[1][STATE_N][4];

	if (chain.role == 0) {
		load_state(state[0], a.of.initial_state, chain.sequence, warp, lane);
		run_chains<false, false>(state, maps_of<true>(a, STATES, chain.sequence), 0, chain.group);
		run_chains<false, true>(
			state, maps_of<false>(a, STATES, chain.sequence), chain.first, chain.count);
		if (chain.group == last)
			store_state(a.of.final_state, chain.sequence, warp, lane, state[0]);
	} else {
		load_state(state[0], a.final_gradient, chain.sequence, warp, lane);
		run_chains<true, false>(
			state, maps_of<true>(a, ADJOINTS, chain.sequence), last, last - chain.group);
		run_chains<true, true>(state, maps_of<false>(a, ADJOINTS, chain.sequence),
			chain.first + chain.count - 1, chain.count);
		if (chain.group == 0)
			store_state(a.initial_gradient, chain.sequence, warp, lane, state[0]);
	}
}
