/* safetensors: tensors by name from a file: 8 bytes with the header's length, a JSON header, the data.
 *
 * A file is somebody else's: every number in the header is checked against the file before it is used.
 * Errors are STATUS_ENVIRONMENT and name the file and the tensor. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct safetensors;

struct safetensors *safetensors_open(const char *path, struct error *err);
void safetensors_close(struct safetensors *file);

/* The tensor's shape: at most `capacity` numbers into `shape`. Returns how many, or -1 when there is no such
 * tensor, or it is not sound. */
int safetensors_shape(
	const struct safetensors *file, const char *name, int64_t *shape, int capacity, struct error *err);

/* All of a tensor of `count` numbers (F32, BF16 or F16), as fp32. */
int safetensors_read(
	const struct safetensors *file, const char *name, float *out, size_t count, struct error *err);
