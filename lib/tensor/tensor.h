/* tensor: numbers in memory, by strides. */
#pragma once

#include <stdbool.h>

#include "base/error.h"
#include "tensor/dtype.h"

/* A [B, T, H, S] tensor: batch, token, head, dimension. Strides count elements and may be anything that keeps
 * distinct elements apart (an output) or not even that (an input). The memory is somebody else's. */
struct tensor {
	void *data;
	enum dtype dtype;
	int64_t stride[4];
};

/* The most that sizes and strides may come to, in elements: far below where arithmetic on them would
 * overflow. */
#define TENSOR_LARGEST ((int64_t)1 << 48)

/* A contiguous [B, T, H, S] tensor. */
struct tensor tensor_contiguous(void *data, enum dtype dtype, int64_t tokens, int heads, int dim);

/* Whether every row of a tensor is contiguous, and aligned so that a GPU's threads load so many bytes at a time. */
#define TENSOR_VECTOR_BYTES 16
bool tensor_is_vector(const struct tensor *tensor);

/* Whether a tensor of that size can be read: memory, known type, alignment, strides in bounds.
 * STATUS_USAGE, which names the tensor. Sizes are positive. */
int tensor_check(const struct tensor *tensor, const char *name, const int64_t size[4], struct error *err);

/* As tensor_check(), and whether it can be written: no two elements share memory. */
int tensor_check_output(
	const struct tensor *tensor, const char *name, const int64_t size[4], struct error *err);

/* Of a problem's tensors, the inputs first: whether these can be read, the others be written, and no output overlaps
 * another tensor. STATUS_USAGE. */
struct named_tensor {
	const struct tensor *tensor;
	const char *name;
	const int64_t *size; /* [4] */
};
int tensors_check(const struct named_tensor *tensors, int inputs, int count, struct error *err);

/* Whether two tensors may share memory. True in doubt. */
bool tensor_overlap(
	const struct tensor *a, const int64_t a_size[4], const struct tensor *b, const int64_t b_size[4]);
