/* layout: what host and kernels of the layer both have to know. Plain C, read by both sides. */
#pragma once

#define LAYER_THREADS 256 /* of a block */

#define GATHER_NUMBERS 8 /* of a thread of gather.cu */
#define TILE_NUMBERS 8   /* of a thread of layer_tile */

/* What a thread of convolve.cu works off. For few rows there are threads to spare: each has less to do, and ends sooner. */
#define STRIP_ROWS 16
#define SHORT_STRIP_ROWS 4
#define FEW_ROWS 8192 /* of all stretches together */
#define STRIP_CHANNELS 4

#define LAYER_GATE_ROWS 128 /* of a block of gate.cu at a time: 16 a warp */

/* project.cu: tokens of a tile of x, its history included, and the columns and inner numbers of a tile of weights. Of its warps
 * two groups of four multiply, six load x, two copy weights. */
#define PROJECT_ROWS 128
#define PROJECT_COLUMNS 64
#define PROJECT_INNER 64
#define PROJECT_THREADS 512
#define PROJECT_MOST_HIDDEN 512
#define PROJECT_LEAST_TOKENS 8192 /* fewer are faster by three launches */
#define PROJECT_SHARED 232448     /* bytes: all that a block can have */
