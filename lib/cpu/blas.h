/* blas: OpenBLAS, opened at first use: linked, it would cost every command start-up time and memory. */
#pragma once

#include "base/error.h"

/* STATUS_ENVIRONMENT when OpenBLAS is not installed. */
int blas_open(struct error *err);

/* The file of the library, after blas_open(). */
const char *blas_path(void);

/* C [rows, columns] = A [rows, inner] Bᵀ, with B [columns, inner]; fp32, contiguous, on the calling thread
 * alone. After blas_open(). */
void blas_multiply(const float *a, const float *b, float *c, int rows, int columns, int inner);
