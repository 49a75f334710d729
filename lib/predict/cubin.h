/* cubin: what a kernel needs of a multiprocessor, from the machine code that the compiler made: an ELF file. */
#pragma once

#include <stddef.h>

#include "base/error.h"
#include "predict/code.h"

struct cubin_kernel {
	int registers;                  /* of a thread */
	int spilled_bytes;              /* of local memory, of a thread */
	int shared_bytes;               /* of a block, besides what the launch asks for */
	struct code once, loop, beside; /* code_read() */
};

/* A kernel by its name. Believes nothing of the file: STATUS_ENVIRONMENT for what is no machine code, is damaged, or
 * does not hold that kernel. */
int cubin_read(const void *image, size_t length, const char *kernel, int capability,
	struct cubin_kernel *found, struct error *err);
