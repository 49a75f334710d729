/* layer_cuda: the layer on a GPU. Rounds where layer_cpu does; products by cuBLASLt, the operation by
 * quasar_cuda, the rest by kernels/layer/. */
#pragma once

#include "gpu/gpu.h"
#include "layer/layer.h"

/* A layer whose weights are on a GPU, and the memory between its parts: 4 KiB a token at the usual width
 * and at most 1.4 GB, kept for the next call. */
struct layer_cuda;

/* Copies the weights of `layer`. STATUS_ENVIRONMENT without cuBLASLt or memory. */
struct layer_cuda *layer_cuda_make(struct gpu *gpu, const struct layer *layer, struct error *err);
void layer_cuda_free(struct layer_cuda *layer); /* NULL is fine */

/* Queues a call whose x and out are in the GPU's memory, aligned to 16 bytes. It has no cache yet:
 * STATUS_USAGE for one. */
int layer_cuda(struct layer_cuda *layer, const struct layer_call *call, struct error *err);
