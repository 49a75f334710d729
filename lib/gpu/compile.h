/* compile: kernels from the sources in the binary, by NVRTC, through the cache. */
#pragma once

#include "base/buffer.h"
#include "base/error.h"

/* A compile-time parameter: -DNAME=VALUE. */
struct kernel_parameter {
	const char *name; /* NULL ends a list */
	int value;
};

#define KERNEL_SOURCE_HASH 65 /* 64 hexadecimal digits and the zero */

/* A hash of a kernel file and of all headers that it may include; "" for a file that is not in the binary. */
void kernel_source_hash(const char *source, char hash[KERNEL_SOURCE_HASH]);

/* Appends the machine code of a kernel file ("quasar/chunk.cu") for a compute capability (90 is 9.0). When
 * the compiler does not know that architecture yet, PTX for the newest older one, which the driver
 * finishes; with CUDA_FORCE_PTX_JIT=1, NVIDIA's own setting, PTX for this one. STATUS_USAGE for a file that is not in the binary and for more parameters than can be passed
 * on; STATUS_ENVIRONMENT, with the compiler's log, for all else. */
int kernel_compile(const char *source, const struct kernel_parameter *parameters, int capability,
	struct buffer *image, struct error *err);

/* Whether there is a compiler that makes machine code for this very compute capability. STATUS_ENVIRONMENT. */
int kernel_compiler_check(int capability, struct error *err);
