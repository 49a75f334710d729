#include "memory.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "machine.h"

#define ALIGNMENT 512
#define GUARD 512 /* bytes that nobody has between one allocation and the next */

static struct allocation *allocations; /* by address */
static size_t count, used;

static size_t first_behind(uint64_t address)
{
	size_t low = 0, high = count;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (allocations[middle].address <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

int memory_allocate(uint64_t *address, size_t bytes)
{
	void *memory;
	size_t at;

	if (!bytes)
		return CUDA_ERROR_INVALID_VALUE;
	if (bytes > MEMORY_BYTES - used)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memory = aligned_alloc(ALIGNMENT, (bytes + GUARD + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
	if (!memory)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memset(memory, POISON, bytes);
	*address = (uint64_t)memory;
	at = first_behind(*address);
	allocations = xrealloc(allocations, (count + 1) * sizeof(*allocations));
	memmove(allocations + at + 1, allocations + at, (count - at) * sizeof(*allocations));
	allocations[at] = (struct allocation){*address, bytes};
	count++;
	used += bytes;
	return CUDA_SUCCESS;
}

int memory_free(uint64_t address)
{
	size_t at = first_behind(address);

	if (!at || allocations[at - 1].address != address)
		return CUDA_ERROR_INVALID_VALUE;
	free((void *)address);
	used -= allocations[at - 1].bytes;
	memmove(allocations + at - 1, allocations + at, (count - at) * sizeof(*allocations));
	count--;
	return CUDA_SUCCESS;
}

size_t memory_free_bytes(void)
{
	return MEMORY_BYTES - used;
}

const struct allocation *memory_find(uint64_t address, size_t bytes)
{
	size_t at = first_behind(address);
	const struct allocation *found = at ? &allocations[at - 1] : NULL;

	return found && bytes <= found->bytes && address - found->address <= found->bytes - bytes ? found
												  : NULL;
}
