/* warp: what a warp works on, and how much of it each of its threads holds. attention.cu says which. */
#pragma once

#include "linear/arguments.h"
#include "linear/layout.h"

#define PLANES LINEAR_PLANES(INPUT)
#define THREADS (NUM_WARPS * 32)

#define KEY_FEATURE (PASS == PASS_FORWARD || PASS == PASS_DV ? FEATURE : FEATURE_IDENTITY)
#define VALUE_FEATURE (PASS == PASS_DQ || PASS == PASS_DK ? FEATURE : FEATURE_IDENTITY)
#define AUGMENTED (PASS == PASS_DQ || PASS == PASS_DK) /* x and y have an element more */

/* 8 × 8 tiles and k steps of 16 in a row of y; blocks of 16 columns of S */
#define KEY_N (KEY_DIM / 8)
#define KEY_K (KEY_DIM / 16)
#define VALUE_M (VALUE_TILE / 16)

/* Elements that a thread has of a row. */
#define LANE_KEYS (KEY_DIM / 4)
#define LANE_VALUES (VALUE_TILE / 8)

#define ROWS_BYTES LINEAR_ROWS_BYTES(INPUT, KEY_DIM)
#define COLUMNS_BYTES LINEAR_ROWS_BYTES(INPUT, VALUE_TILE)
#define RECORD ((long long)LINEAR_RECORD(KEY_DIM, VALUE_DIM, PASS))

#define TILES (VALUE_DIM / VALUE_TILE)

/* Where a thread finds its share. */
struct place {
	int warp, lane;
	int group_row, pair;       /* g and 2t */
	int sequence, batch, head; /* the first is batch · heads + head */
	int group;                 /* of the sequence's chunks */
	int first_value;
	int first, end, step; /* chunks */
};

static __device__ __forceinline__ struct place find_place(const struct linear_arguments &a)
{
	const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
	/* causal: a warp has a group, bidirectional: a block, whose warps take every NUM_WARPS-th chunk */
	const int unit = CAUSAL ? blockIdx.x * NUM_WARPS + warp : blockIdx.x;
	const int sequences = a.batch * a.heads, chunks = (int)((a.tokens + LINEAR_CHUNK - 1) / LINEAR_CHUNK);
	const int sequence = unit / TILES % sequences;
	struct place place = {warp, lane, lane / 4, lane % 4 * 2, sequence, sequence / a.heads,
		sequence % a.heads, unit / TILES / sequences, unit % TILES * VALUE_TILE};

	place.first = place.group * a.chunks_per_group;
	place.end = min(place.first + a.chunks_per_group, chunks);
	place.first += CAUSAL ? 0 : warp;
	place.step = CAUSAL ? 1 : NUM_WARPS;
	return place;
}
