/* gemm: linear maps of rows on a GPU, y = x Wᵀ, by cuBLASLt: bf16 in and out, sums in fp32. Addresses are
 * the device's. */
#pragma once

#include <stdint.h>

#include "base/error.h"

struct gpu;

/* cuBLASLt on a GPU, and the memory that it works in. */
struct gpu_blas;

/* STATUS_ENVIRONMENT without cuBLASLt or memory. */
struct gpu_blas *gpu_blas_open(struct gpu *gpu, struct error *err);
void gpu_blas_close(struct gpu_blas *blas); /* NULL is fine */

/* Rows of bf16 on the device, `stride` elements apart. */
struct gpu_rows {
	void *data;
	int64_t stride;
};

struct gpu_gemm;

/* The map of `inner` numbers to `columns` by `weight` [columns, inner], which is not copied. `blas` must
 * outlive it. NULL on error. */
struct gpu_gemm *gpu_gemm_make(
	struct gpu_blas *blas, const void *weight, int columns, int inner, struct error *err);
void gpu_gemm_free(struct gpu_gemm *gemm); /* NULL is fine */

/* Queues y = x Wᵀ for so many rows. Strides are multiples of 8, addresses of 16 bytes. How it is done
 * is chosen by cuBLASLt on the first call for a number of rows, and remembered. */
int gpu_gemm_run(
	struct gpu_gemm *gemm, struct gpu_rows x, int64_t rows, struct gpu_rows y, struct error *err);
