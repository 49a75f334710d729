/* layout: what host and kernels of the layer both have to know. Plain C, read by both sides. */
#pragma once

#define LAYER_THREADS 256 /* of a block */

#define GATHER_NUMBERS 8 /* of a thread of gather.cu */

/* What a thread of convolve.cu works off. */
#define STRIP_ROWS 16
#define STRIP_CHANNELS 4

#define LAYER_GATE_ROWS 128 /* of a block of gate.cu at a time: 16 a warp */
