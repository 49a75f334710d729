/* layout: what host and kernel of language models both have to know. Plain C, read by both sides. */
#pragma once

#include "common/dtype.h"

#define MODEL_ROWS 64     /* tokens that a launch takes, at most */
#define MODEL_THREADS 512 /* of a block; one block runs on a multiprocessor */
#define MODEL_WARPS (MODEL_THREADS / 32)
#define MODEL_LAUNCHED(slots) (MODEL_THREADS + ((slots) ? 32 : 0)) /* a warp asks for weights */

#define MODEL_SLICE                                                                                          \
	32 /* columns of a matrix that a warp multiplies at a time; rows are padded to whole slices */
#define MODEL_SPLITS 16 /* parts that a sequence is attended to in, at most */
#define MODEL_KEYS(tokens)                                                                                   \
	((tokens) == 1 ? 64 : 128) /* of a part, at a time: with few tokens, work for more blocks */
#define MODEL_GROUP 8              /* heads that look at the same keys at a time, at most */

/* The best token of a row is the largest of numbers that are ordered by logit first, and then against the token. */
#define MODEL_NOT_FINITE (~0ull)
#define MODEL_TOKEN(best) ((int)~(unsigned)(best))

/* 16-bit numbers whose sum an activation is. */
#define MODEL_PLANES(input) ((input) == INPUT_F32 ? 3 : 2)
/* Slices that a warp has on their way, at most. With few tokens there are registers for many. */
#define MODEL_DEPTH(input, tokens) (((tokens) <= 8 ? 7 : 4) / ((input) == INPUT_F32 ? 2 : 1))

/* Pieces that the columns of a product are done in, at most; and tiles that a block then has, at most. */
#define MODEL_PIECES 8
#define MODEL_PIECE_TILES 8
#define MODEL_PIECES_COUNT(blocks, tiles)                                                                    \
	((size_t)(blocks)*MODEL_PIECE_TILES * (tiles)) /* all there can be */

/* Parcels, of 16 bytes, that blocks send each other in a single token's step. */
#define MODEL_X_PARCELS(hidden) (((hidden) + 7) / 8 * 3)
#define MODEL_ACTIVATED_PARCELS(intermediate, input)                                                         \
	(((intermediate) + 7) / 8 * ((4 * MODEL_PLANES(input) + 2) / 3))
#define MODEL_HEADS_PARCELS(heads, kv_heads, dim) (((heads) + 2 * (kv_heads)) * ((dim) / 2))
#define MODEL_ATTENDED_PARCELS(heads, dim) ((heads)*MODEL_SPLITS * ((dim) / 2))
#define MODEL_PARCELS(hidden, intermediate, heads, kv_heads, dim, input, blocks)                             \
	(2 * MODEL_X_PARCELS(hidden) + MODEL_ACTIVATED_PARCELS(intermediate, input) +                        \
		MODEL_HEADS_PARCELS(heads, kv_heads, dim) + MODEL_ATTENDED_PARCELS(heads, dim) + (blocks))

/* Tokens at a time that the tensor cores take. */
#define MODEL_TILES(tokens) (((tokens) + 7) / 8)

/* Shared memory, in bytes: of a product of so many tokens, with their activations in so many slices; and of attention. Of
 * a single token only its own lanes have activations. */
#define MODEL_SLICE_LANES(tokens) ((tokens) == 1 ? 4 : 32)
#define MODEL_SLICE_BYTES(tokens, input)                                                                     \
	(MODEL_TILES(tokens) * MODEL_PLANES(input) * MODEL_SLICE_LANES(tokens) * 16)
#define MODEL_PRODUCT_BYTES(tokens, slices, input)                                                           \
	(MODEL_TILES(tokens) * (MODEL_WARPS * 512 + 8 * 12) + (slices)*MODEL_SLICE_BYTES(tokens, input))
#define MODEL_ATTENTION_BYTES(tokens, dim, group)                                                            \
	((group) * (MODEL_THREADS * 16 + (dim)*4 + MODEL_KEYS(tokens) * 4 + 4 * 4) + 2 * (dim)*4)

/* Weights in shared memory, of a single token's step: a slot holds `chunk` slices of 16 rows. Rows are a whole number of
 * slices and an odd number of 64 bytes apart, so that eight of them lie in different banks. */
#define MODEL_WEIGHT_BYTES(input) ((input) == INPUT_F32 ? 4 : 2)
#define MODEL_SLOT_BYTES(chunk, input) (16 * ((chunk) | 1) * MODEL_SLICE * MODEL_WEIGHT_BYTES(input))
#define MODEL_SLOT_TARGET 30000 /* about as many bytes */
#define MODEL_SLOT_BARRIERS 16  /* bytes */
#define MODEL_ORDERS_BYTES 448  /* what a block knows of them */
