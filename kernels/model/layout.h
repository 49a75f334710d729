/* layout: what host and kernel of language models both have to know. Plain C, read by both sides. */
#pragma once

#include "common/dtype.h"

#define MODEL_ROWS 64     /* tokens that a launch takes, at most */
#define MODEL_THREADS 512 /* of a block; one block runs on a multiprocessor */
#define MODEL_WARPS (MODEL_THREADS / 32)

#define MODEL_SLICE                                                                                          \
	32 /* columns of a matrix that a warp multiplies at a time; rows are padded to whole slices */
#define MODEL_SPLITS 16 /* parts that a sequence is attended to in, at most */
#define MODEL_KEYS 128  /* of a part, at a time */
#define MODEL_GROUP 8   /* heads that look at the same keys at a time, at most */

/* The best token of a row is the largest of numbers that are ordered by logit first, and then against the token. */
#define MODEL_NOT_FINITE (~0ull)
#define MODEL_TOKEN(best) ((int)~(unsigned)(best))

/* 16-bit numbers whose sum an activation is. */
#define MODEL_PLANES(input) ((input) == INPUT_F32 ? 3 : 2)
/* Slices that a warp has on their way, at most. With few tokens there are registers for many. */
#ifndef MODEL_DEPTH
#define MODEL_DEPTH(input, tiles) (((tiles) == 1 ? 7 : 4) / ((input) == INPUT_F32 ? 2 : 1))
#endif

/* Pieces that the columns of a product are done in, at most; and tiles that a block then has, at most. */
#define MODEL_PIECES 8
#define MODEL_PIECE_TILES 8
#define MODEL_PIECES_COUNT(blocks, tiles) ((size_t)(blocks)*MODEL_PIECE_TILES * (tiles)) /* all there can be */

/* Shared memory, in bytes: of a product of `tiles` times eight tokens, with their activations in so many slices; and of
 * attention. */
#define MODEL_SLICE_BYTES(tiles, input) ((tiles)*MODEL_PLANES(input) * 512)
#define MODEL_PRODUCT_BYTES(tiles, slices, input)                                                            \
	((tiles) * (MODEL_WARPS * 512 + 8 * 12) + (slices)*MODEL_SLICE_BYTES(tiles, input))
#define MODEL_ATTENTION_BYTES(dim) (MODEL_GROUP * (MODEL_THREADS * 16 + (dim)*4 + MODEL_KEYS * 4 + 3 * 4))
