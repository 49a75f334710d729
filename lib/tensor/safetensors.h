/* safetensors: tensors by name from a file: 8 bytes with the header's length, a JSON header, the data.
 *
 * A file is somebody else's: every number in the header is checked against the file when it is opened, and no two
 * tensors may share a byte. Errors are STATUS_ENVIRONMENT and name the file and the tensor. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "tensor/dtype.h"

#define SAFETENSORS_AXES 4

struct safetensors_tensor {
	enum dtype dtype;
	int axes;
	int64_t shape[SAFETENSORS_AXES]; /* 0 behind the last axis */
	size_t count;                    /* of numbers */
	const void *data;                /* of a mapped file, else NULL; aligned only if its writer cared */
};

struct safetensors;

/* Reads and checks the header. NULL on error. */
struct safetensors *safetensors_open(const char *path, struct error *err);
void safetensors_close(struct safetensors *file);

/* Maps the file, so that tensors can be used where they lie: for files that nobody makes shorter meanwhile, as that
 * would end this process. */
int safetensors_map(struct safetensors *file, struct error *err);

/* A tensor of F32, BF16 or F16, and of at most SAFETENSORS_AXES axes. */
int safetensors_find(const struct safetensors *file, const char *name, struct safetensors_tensor *tensor,
	struct error *err);

/* All of a tensor of `count` numbers, as fp32. */
int safetensors_read(
	const struct safetensors *file, const char *name, float *out, size_t count, struct error *err);
