/* memory: the emulated GPU's global memory. Addresses are the host's; every access is checked against what is
 * allocated. Fresh memory is filled with bytes of 0xff, which are NaN in every floating-point type. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define POISON 0xff
#define MEMORY_BYTES ((size_t)4 << 30)

struct allocation {
	uint64_t address;
	size_t bytes;
};

/* 0, or CUDA_ERROR_OUT_OF_MEMORY. */
int memory_allocate(uint64_t *address, size_t bytes);
/* CUDA_ERROR_INVALID_VALUE for what is no allocation. */
int memory_free(uint64_t address);
size_t memory_free_bytes(void);

/* The allocation that these bytes lie in, or NULL. Good until the next allocation or release. */
const struct allocation *memory_find(uint64_t address, size_t bytes);
