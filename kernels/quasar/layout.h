/* layout: what host and kernels of the operation both have to know: sizes of blocks, and what lies in
 * shared and in working memory. Plain C, read by both sides; all in bytes but where it says otherwise. */
#pragma once

#include "common/dtype.h"

/* Rows of an upstream chunk; causal chunks are an implementation's own affair. */
#define UPSTREAM_CHUNK 64

/* The ε under λ in α = (1 − exp(−β λ)) / (λ + ε). */
#define QUASAR_EPSILON 1e-8

/* --- chunk.cu --------------------------------------------------------------------------------------- */

/* bf16 that carry a value. */
#define CHUNK_PLANES(input) ((input) == INPUT_BF16 ? 1 : 2)

/* Warps that carry the state, each 16 of its rows; with three stages others make what they need of the next chunk. */
#define CHUNK_WARPS(dim) ((dim) / 16)
#define CHUNK_MAKER_WARPS(stages) ((stages) == 3 ? 4 : 0)
#define CHUNK_THREADS(dim, stages) ((CHUNK_WARPS(dim) + CHUNK_MAKER_WARPS(stages)) * 32)

/* Shared memory: K, V and, in the second pass, Q a stage, then T, L and, causal, tril(Q Kᵀ); all in planes.
 * With three launches T comes with the stage, and there is no L. With three stages there are two of T and of tril(Q Kᵀ),
 * and, for S = 128, in the first pass two of P as a left factor. */
#define CHUNK_ROWS_BYTES(dim, chunk, planes) ((chunk) * (dim)*2 * (planes))
#define CHUNK_SQUARE_BYTES(chunk, planes) ((chunk) * (chunk)*2 * (planes))
#define CHUNK_STAGE_BYTES(dim, chunk, planes, launches, tensors)                                             \
	((tensors)*CHUNK_ROWS_BYTES(dim, chunk, planes) +                                                    \
		((launches) == 3 ? CHUNK_SQUARE_BYTES(chunk, planes) : 0))
#define CHUNK_INVERSE_BYTES(chunk, planes) (2 * CHUNK_SQUARE_BYTES(chunk, planes))
#define CHUNK_MADE_BYTES(chunk, planes, stages, launches, scores)                                            \
	(((launches) == 3 ? 0 : CHUNK_INVERSE_BYTES(chunk, planes)) +                                        \
		((scores) ? CHUNK_SQUARE_BYTES(chunk, planes) : 0) +                                         \
		((stages) == 3 ? (((launches) != 3) + !!(scores)) * CHUNK_SQUARE_BYTES(chunk, planes) : 0))
#define CHUNK_TRANSITION_SHARED(dim, chunk, planes, stages, launches)                                        \
	((stages)*CHUNK_STAGE_BYTES(dim, chunk, planes, launches, 2) +                                       \
		CHUNK_MADE_BYTES(chunk, planes, stages, launches, 0) +                                       \
		((stages) == 3 && (dim) == 128 ? 2 * CHUNK_STATE_BYTES(dim, planes) : 0))
#define CHUNK_TILES_SHARED(dim, chunk, planes, stages, launches, upstream)                                   \
	((stages)*CHUNK_STAGE_BYTES(dim, chunk, planes, launches, 3) +                                       \
		CHUNK_MADE_BYTES(chunk, planes, stages, launches, !(upstream)))
/* Before, a group steps over those before it: a transition's tile then lies there, behind the first stage if there are two,
 * and two of them in the last stage and behind it if there are three. */
#define CHUNK_WALK_SHARED(dim, chunk, planes, stages, launches, upstream)                                    \
	((stages) == 3 ? CHUNK_TILES_SHARED(dim, chunk, planes, 2, launches, upstream) +                     \
				CHUNK_MADE_BYTES(chunk, planes, 3, launches, !(upstream)) -                  \
				CHUNK_MADE_BYTES(chunk, planes, 2, launches, !(upstream)) +                  \
				2 * CHUNK_STATE_BYTES(dim, planes)                                           \
		       : ((stages) > 1 ? CHUNK_STAGE_BYTES(dim, chunk, planes, launches, 3) : 0) +           \
				CHUNK_STATE_BYTES(dim, planes))
#define CHUNK_OUTPUT_SHARED(dim, chunk, planes, stages, launches, upstream)                                  \
	(CHUNK_TILES_SHARED(dim, chunk, planes, stages, launches, upstream) >                                \
				CHUNK_WALK_SHARED(dim, chunk, planes, stages, launches, upstream)            \
			? CHUNK_TILES_SHARED(dim, chunk, planes, stages, launches, upstream)                 \
			: CHUNK_WALK_SHARED(dim, chunk, planes, stages, launches, upstream))

/* The launch for T alone: a block makes as many chunks' at once as its warps suffice for. */
#define CHUNKS_AT_ONCE(dim, chunk) (CHUNK_WARPS(dim) > (chunk) / 16 ? CHUNK_WARPS(dim) / ((chunk) / 16) : 1)
#define CHUNK_INVERSE_SHARED(dim, chunk, planes)                                                             \
	(CHUNKS_AT_ONCE(dim, chunk) *                                                                        \
		(CHUNK_ROWS_BYTES(dim, chunk, planes) + CHUNK_INVERSE_BYTES(chunk, planes)))

/* A group's transition between the passes: P − I as a tile, then Rᵀ in fp32. */
#define CHUNK_STATE_BYTES(dim, planes) ((dim) * (dim)*2 * (planes))
#define CHUNK_TRANSITION_BYTES(dim, planes) (CHUNK_STATE_BYTES(dim, planes) + (dim) * (dim)*4)

/* --- gradient.cu ------------------------------------------------------------------------------------- */

/* Each warp has 16 rows of the transposed states, as in chunk.cu; values are carried by one bf16. */
#define GRADIENT_THREADS(dim) CHUNK_THREADS(dim, 1)
#define GRADIENT_ROWS(dim) CHUNK_ROWS_BYTES(dim, UPSTREAM_CHUNK, 1)
#define GRADIENT_SQUARE CHUNK_SQUARE_BYTES(UPSTREAM_CHUNK, 1)
#define GRADIENT_STATE(dim) CHUNK_STATE_BYTES(dim, 1)

/* Working memory, all tiles: T of each chunk, then three arrays with a state for each chunk and one for each group behind. */
#define GRADIENT_WORKING_BYTES(dim, chunks, groups)                                                          \
	((long long)(chunks)*GRADIENT_SQUARE + 3 * ((long long)(chunks) + (groups)) * GRADIENT_STATE(dim))

/* Shared memory. Maps: K, V, Q and do, tril(Q Kᵀ) or, upstream, P, then T, and L, behind which warps have it to turn their rows
 * around. */
#define GRADIENT_MAPS_SHARED(dim, upstream)                                                                  \
	(4 * GRADIENT_ROWS(dim) + ((upstream) ? GRADIENT_STATE(dim) : GRADIENT_SQUARE) + GRADIENT_SQUARE +   \
		(GRADIENT_STATE(dim) > GRADIENT_SQUARE ? GRADIENT_STATE(dim) : GRADIENT_SQUARE))
/* Chains: maps that are on their way, of two tiles each; and where maps are composed their product so far. */
#define GRADIENT_CHAIN_TILES(dim) ((dim) == 128 ? 5 : 8)
#define GRADIENT_CHAIN_SHARED(dim) (GRADIENT_CHAIN_TILES(dim) * GRADIENT_STATE(dim))
/* Rows: K, V, Q and do, dY and T (upstream each lies where the other was, too), two states or, upstream, three, causal
 * tril(Q Kᵀ), and two numbers for each row. */
#define GRADIENT_ROWS_OR_SQUARE(dim)                                                                         \
	(GRADIENT_ROWS(dim) > GRADIENT_SQUARE ? GRADIENT_ROWS(dim) : GRADIENT_SQUARE)
#define GRADIENT_ROWS_SHARED(dim, upstream)                                                                  \
	(4 * GRADIENT_ROWS(dim) +                                                                            \
		((upstream) ? 2 * GRADIENT_ROWS_OR_SQUARE(dim) + 3 * GRADIENT_STATE(dim)                     \
			    : GRADIENT_ROWS(dim) + 2 * GRADIENT_SQUARE + 2 * GRADIENT_STATE(dim)) +          \
		UPSTREAM_CHUNK * 8)
#define GRADIENT_SHARED(dim, upstream)                                                                       \
	(GRADIENT_ROWS_SHARED(dim, upstream) > GRADIENT_CHAIN_SHARED(dim)                                    \
			? GRADIENT_ROWS_SHARED(dim, upstream)                                                \
			: GRADIENT_CHAIN_SHARED(dim))

#define GRADIENT_BETA_THREADS 1024

/* --- reference.cu ----------------------------------------------------------------------------------- */

#define REFERENCE_COLUMNS 16 /* of a state, of a block */
#define REFERENCE_LANES 4    /* threads a column */
#define REFERENCE_THREADS (REFERENCE_COLUMNS * REFERENCE_LANES)
/* q, k and a block's columns of v of a chunk, α and g */
#define REFERENCE_SHARED(dim) (UPSTREAM_CHUNK * ((2 * (dim) + REFERENCE_COLUMNS) * 4 + 2 * 8))

/* --- the others ------------------------------------------------------------------------------------- */

#define RECURRENT_THREADS(dim) (dim)

#define GATE_THREADS 256
#define GATE_LANES 4                          /* threads a row */
#define GATE_ROWS (GATE_THREADS / GATE_LANES) /* of a block */

#define SUBSTITUTION_THREADS(size) ((size) < 32 ? 32 : (size))
