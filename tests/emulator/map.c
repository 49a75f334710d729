#include "map.h"

#include <stddef.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "machine.h"

#define MARK 0x9e3779b9
#define LARGEST_SIZE ((uint64_t)1 << 32)
#define STRIDE_END ((uint64_t)1 << 40)
#define LARGEST_BOX 256
#define LARGEST_STEP 8
#define PIECE 16 /* bytes */

/* By CUtensorMapDataType and CUtensorMapSwizzle. */
static const uint8_t element_bytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
static const uint8_t line_bytes[] = {16, 32, 64, 128};

#define COUNT(array) ((int)(sizeof(array) / sizeof(*(array))))

/* Whether a dimension is as it may be. */
static bool is_dimension(uint64_t size, uint32_t box, uint32_t step)
{
	return size && size <= LARGEST_SIZE && box && box <= LARGEST_BOX && step && step <= LARGEST_STEP;
}

static bool is_stride(uint64_t stride)
{
	return stride && stride % PIECE == 0 && stride < STRIDE_END;
}

int map_encode(void *to, int type, uint32_t rank, uint64_t address, const uint64_t *sizes,
	const uint64_t *strides, const uint32_t *box, const uint32_t *steps, int interleave, int swizzle,
	int promotion, int fill)
{
	struct map map = {.mark = MARK, .rank = (uint16_t)rank, .address = address};
	bool steps_over = false;

	if (!to || (uintptr_t)to % MAP_ALIGNMENT || type < 0 || type >= COUNT(element_bytes) || !rank ||
		rank > MAP_DIMENSIONS || !address || address % PIECE || interleave < 0 || interleave > 2 ||
		swizzle < 0 || swizzle >= COUNT(line_bytes) || promotion < 0 || promotion > 3 || fill < 0 ||
		fill > 1)
		return CUDA_ERROR_INVALID_VALUE;
	map.element = element_bytes[type];
	map.width = line_bytes[swizzle];
	for (uint32_t i = 0; i < rank; i++) {
		if (!is_dimension(sizes[i], box[i], steps[i]) || (i && !is_stride(strides[i - 1])))
			return CUDA_ERROR_INVALID_VALUE;
		map.last[i] = (uint32_t)(sizes[i] - 1);
		map.box[i] = (uint16_t)box[i];
		if (i)
			map.stride[i - 1] = strides[i - 1];
		steps_over |= steps[i] != 1;
	}
	if (box[0] * map.element % PIECE || (swizzle && box[0] * map.element > map.width))
		return CUDA_ERROR_INVALID_VALUE;
	if (interleave || fill || steps_over) {
		fprintf(stderr,
			"emulated GPU: tensor maps that interleave, step over elements or fill with NaN\n");
		return CUDA_ERROR_INVALID_VALUE;
	}
	memset(to, 0, MAP_BYTES);
	memcpy(to, &map, sizeof(map));
	return CUDA_SUCCESS;
}

const struct map *map_at(const void *bytes)
{
	const struct map *map = bytes;

	return map->mark == MARK ? map : NULL;
}
