/* map: tensor maps, which say to bulk copies how a tensor lies in memory, and what of it makes a box. They are opaque to
 * programs: the emulated GPU's are like no other's. */
#pragma once

#include <stdint.h>

#define MAP_BYTES 128
#define MAP_ALIGNMENT 64
#define MAP_DIMENSIONS 5

struct map {
	uint32_t mark;
	uint16_t rank, element; /* bytes */
	uint16_t
		width; /* bytes of a line in shared memory whose pieces of 16 are permuted by its number; 16: are not */
	uint16_t box[MAP_DIMENSIONS];
	uint32_t last[MAP_DIMENSIONS]; /* the highest index */
	uint64_t address, stride[MAP_DIMENSIONS - 1];
};
_Static_assert(sizeof(struct map) <= MAP_BYTES, "a program has no more room for it");

/* cuTensorMapEncodeTiled(): innermost dimension first. CUDA_ERROR_INVALID_VALUE for what NVIDIA's documentation rules out,
 * and, with a word on stderr, for what is not emulated. */
int map_encode(void *to, int type, uint32_t rank, uint64_t address, const uint64_t *sizes,
	const uint64_t *strides, const uint32_t *box, const uint32_t *steps, int interleave, int swizzle,
	int promotion, int fill);

/* The map in these bytes, or NULL. */
const struct map *map_at(const void *bytes);
