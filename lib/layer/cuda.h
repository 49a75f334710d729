/* layer_cuda: the layer on a GPU. Rounds where layer_cpu does; products by cuBLASLt or, with
 * what is around them, by kernels/layer/; the operation by quasar_cuda. */
#pragma once

#include "gpu/gpu.h"
#include "layer/layer.h"

/* A layer whose weights are on a GPU, and the memory between its parts, which is kept for the next call:
 * at the usual width 2 KiB for each token of a segment (3 where q cannot lie in the output's memory: upstream semantics with
 * a batch, or with tokens that are not whole chunks) and 128 bytes for each of the call, and where the projections take
 * three launches at most 0.6 GB more. */
struct layer_cuda;

/* Copies the weights of `layer`. STATUS_ENVIRONMENT without cuBLASLt or memory. */
struct layer_cuda *layer_cuda_make(struct gpu *gpu, const struct layer *layer, struct error *err);
void layer_cuda_free(struct layer_cuda *layer); /* NULL is fine */

/* How many tokens' q, k and v are held at a time, rounded up to a multiple of 64: a longer sequence goes
 * on by its states. Fewer take less memory, and each segment some time to begin. */
#define LAYER_CUDA_SEGMENT (1 << 19) /* if nothing is said */
void layer_cuda_set_segment(struct layer_cuda *layer, int64_t tokens);

/* Queues a call whose x and out are in the GPU's memory, aligned to 16 bytes. It has no cache yet:
 * STATUS_USAGE for one. */
int layer_cuda(struct layer_cuda *layer, const struct layer_call *call, struct error *err);
