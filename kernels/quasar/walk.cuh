/* walk: the state that a group starts from: the maps of the groups before it, applied in order. */
#pragma once

#include "quasar/roles.cuh"

/* The walk over transitions before a group may use what lies behind the first stage. */
#define WALK_ROOM                                                                                            \
	(CHUNK_OUTPUT_SHARED(HEAD_DIM, CHUNK, PLANES, NUM_STAGES, NUM_LAUNCHES, UPSTREAM) -                  \
		(NUM_STAGES > 1 ? STAGE_BYTES(3) : 0))
#define WALK_TILES (MAKERS || (NUM_STAGES > 1 && 2 * STATE_BYTES <= WALK_ROOM) ? 2 : 1)

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
