/* layout: what host and kernels of attention both have to know. Plain C, read by both sides. */
#pragma once

#include "common/dtype.h"

/* Beside those that multiply by wgmma, as many as it has multiply together: one loads, the others are there to give their
 * registers away, which takes four. */
#define FLASH_LOADERS 4
#define FLASH_THREADS(warps, product_warps) (((warps) + ((product_warps) == 4 ? FLASH_LOADERS : 0)) * 32)

/* Rows of 16-bit elements. */
#define FLASH_TILE_BYTES(dim, rows) ((rows) * (dim)*2)

/* What the copy engine loads at a time: so many rows, of 64 columns, and where a row has more, the next 64 columns of these rows
 * behind them; as tiles are laid out (common/tile.cuh). */
#define FLASH_BOX_COLUMNS 64
#define FLASH_BOX_ROWS(dim, block_n) ((dim) > FLASH_BOX_COLUMNS ? 8 : (block_n) < 64 ? (block_n) : 64)

/* Of each stage, that its tile is there, and that all are done with it; and that the kept tiles are there. */
#define FLASH_BARRIER_BYTES(product_warps, stages) ((product_warps) == 4 ? (2 * (stages) + 1) * 8 : 0)

/* Shared memory, in bytes, but for barriers, which come last. Forward: Q, then K and V a stage. */
#define FLASH_FORWARD_SHARED(dim, block_m, block_n, stages)                                                  \
	(FLASH_TILE_BYTES(dim, block_m) + (stages)*2 * FLASH_TILE_BYTES(dim, block_n))

/* The gradient: two kept tiles, two walked ones a stage, then statistics of queries: those that are kept, or those of
 * each stage. */
#define FLASH_BACKWARD_SHARED(dim, block_m, block_n, stages)                                                 \
	(2 * FLASH_TILE_BYTES(dim, block_m) + (stages)*2 * FLASH_TILE_BYTES(dim, block_n) +                  \
		8 * ((block_m) > (stages) * (block_n) ? (block_m) : (stages) * (block_n)))

/* --- products by mma.sync ---------------------------------------------------------------------------- */

/* Registers of a thread that tiles of sums and factors take. Forward: O and the scores in fp32, Q. */
#define FLASH_GROUPS(block_m, warps) ((block_m) / 16 / (warps)) /* 16 rows each, of a warp */
#define FLASH_FORWARD_TILES(dim, block_m, block_n, warps)                                                    \
	(FLASH_GROUPS(block_m, warps) * ((dim) / 2 + (block_n) / 2 + (dim) / 4))
/* dK and dV, the scores and their gradients. */
#define FLASH_BACKWARD_TILES(dim, block_m, block_n, warps)                                                   \
	(FLASH_GROUPS(block_m, warps) * ((dim) + (block_n)))
/* More, and addresses and statistics find no room in the 255 that a thread can have. */
#define FLASH_MOST_REGISTERS 200

/* --- products by wgmma (PRODUCT_WARPS = 4) ----------------------------------------------------------- */

/* What a thread that loads keeps, and what one that multiplies has, of which some are for tiles. */
#define FLASH_LOADER_REGISTERS(warps) ((warps) == 8 ? 40 : 32)
#define FLASH_PRODUCT_REGISTERS(warps) ((warps) == 8 ? 232 : 160)
#define FLASH_PRODUCT_ROOM(warps) (FLASH_PRODUCT_REGISTERS(warps) - 32)

/* Sums, scores, and what is made of them as factors: forward; dK and dV. */
#define FLASH_ROWS_TILES(dim, block_n) ((dim) / 2 + (block_n) / 2 + (block_n) / 4)
#define FLASH_KEYS_TILES(dim, block_n) ((dim) + (block_n) + (block_n) / 2)

/* --- of any ------------------------------------------------------------------------------------------ */

#define FLASH_FORWARD_REGISTERS(dim, block_m, block_n, warps, product_warps)                                 \
	((product_warps) == 4 ? FLASH_ROWS_TILES(dim, block_n)                                               \
			      : FLASH_FORWARD_TILES(dim, block_m, block_n, warps))
#define FLASH_BACKWARD_REGISTERS(dim, block_m, block_n, warps, product_warps)                                \
	((product_warps) == 4 ? FLASH_KEYS_TILES(dim, block_n)                                               \
			      : FLASH_BACKWARD_TILES(dim, block_m, block_n, warps))
#define FLASH_ROOM(warps, product_warps)                                                                     \
	((product_warps) == 4 ? FLASH_PRODUCT_ROOM(warps) : FLASH_MOST_REGISTERS)
