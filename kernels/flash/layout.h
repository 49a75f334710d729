/* layout: what host and kernels of attention both have to know. Plain C, read by both sides. */
#pragma once

#include "common/dtype.h"

#define FLASH_THREADS(warps) ((warps)*32)

/* Rows of 16-bit elements. */
#define FLASH_TILE_BYTES(dim, rows) ((rows) * (dim)*2)

/* Shared memory, in bytes. Forward: Q, then K and V a stage. */
#define FLASH_FORWARD_SHARED(dim, block_m, block_n, stages)                                                  \
	(FLASH_TILE_BYTES(dim, block_m) + (stages)*2 * FLASH_TILE_BYTES(dim, block_n))

/* The gradient: two kept tiles, two walked ones a stage, then statistics of queries: those that are kept, or those of
 * each stage. */
#define FLASH_BACKWARD_SHARED(dim, block_m, block_n, stages)                                                 \
	(2 * FLASH_TILE_BYTES(dim, block_m) + (stages)*2 * FLASH_TILE_BYTES(dim, block_n) +                  \
		8 * ((block_m) > (stages) * (block_n) ? (block_m) : (stages) * (block_n)))

/* Registers of a thread that tiles of sums and factors take. Forward: O and the scores in fp32, Q. */
#define FLASH_GROUPS(block_m, warps) ((block_m) / 16 / (warps)) /* 16 rows each, of a warp */
#define FLASH_FORWARD_REGISTERS(dim, block_m, block_n, warps)                                                \
	(FLASH_GROUPS(block_m, warps) * ((dim) / 2 + (block_n) / 2 + (dim) / 4))
/* dK and dV, the scores and their gradients. */
#define FLASH_BACKWARD_REGISTERS(dim, block_m, block_n, warps)                                               \
	(FLASH_GROUPS(block_m, warps) * ((dim) + (block_n)))
/* More, and addresses and statistics find no room in the 255 that a thread can have. */
#define FLASH_MOST_REGISTERS 200
