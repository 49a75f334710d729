/* bulk: copies of many bytes that one thread starts and an mbarrier counts. They are made as late as they may, when somebody
 * waits for them: what reads too early finds what was there before. */
#include <string.h>

#include "access.h"
#include "base/memory.h"
#include "map.h"
#include "mbarrier.h"
#include "race.h"

#define ALIGNMENT 16
#define BOX_ALIGNMENT 128 /* in shared memory */
#define CORNER 2          /* the first of its slots */

struct bulk_copy {
	struct warp *warp;
	const struct instruction *instruction;
	unsigned char *to;
	const unsigned char *from;
	const struct map *map; /* of a tensor, instead of `from` */
	int32_t corner[MAP_DIMENSIONS];
	uint32_t bytes, mbarrier, watched; /* the latter: for the race check */
};

static struct bulk_copy *copy_add(struct block *block)
{
	if (block->copy_count == block->copy_room) {
		block->copy_room = block->copy_room * 2 + 16;
		block->copies = xrealloc(block->copies, block->copy_room * sizeof(*block->copies));
	}
	return &block->copies[block->copy_count++];
}

/* A piece of a line of a box, which begins with element `first`; zeros outside of the tensor. */
static void copy_piece(
	const struct bulk_copy *copy, int64_t first, uint64_t line, bool inside, unsigned char *to)
{
	const struct map *map = copy->map;
	const int count = ALIGNMENT / map->element;

	memset(to, 0, ALIGNMENT);
	for (int i = 0; i < count && inside; i++)
		if (first + i >= 0 && first + i <= map->last[0])
			memcpy(to + i * map->element,
				locate(copy->warp, copy->instruction, 0, SPACE_GLOBAL,
					line + (uint64_t)((first + i) * map->element), map->element,
					map->element, READ),
				map->element);
}

/* The lines of a box one behind the other, the second dimension's first. */
static void copy_box(const struct bulk_copy *copy)
{
	const struct map *map = copy->map;
	const unsigned char *shared = copy->warp->block->shared;
	const uint32_t pieces = map->box[0] * map->element / ALIGNMENT;
	uint64_t to = (uint64_t)(copy->to - shared);

	for (uint32_t line = 0; line < copy->bytes / ALIGNMENT / pieces; line++) {
		uint64_t from = map->address;
		uint32_t rest = line;
		bool inside = true;

		for (int i = 1; i < map->rank; rest /= map->box[i++]) {
			const int64_t at = copy->corner[i] + (int64_t)(rest % map->box[i]);

			inside &= at >= 0 && at <= map->last[i];
			from += (uint64_t)at * map->stride[i - 1];
		}
		for (uint32_t piece = 0; piece < pieces; piece++, to += ALIGNMENT)
			copy_piece(copy, copy->corner[0] + (int64_t)piece * ALIGNMENT / map->element, from,
				inside, copy->warp->block->shared + permuted(to, map->width / ALIGNMENT));
	}
}

void bulk_copies_finish(struct block *block, uint32_t mbarrier)
{
	size_t kept = 0, count = block->copy_count;

	for (size_t i = 0; i < count; i++) {
		const struct bulk_copy copy = block->copies[i];

		if (copy.mbarrier != mbarrier) {
			block->copies[kept++] = copy;
			continue;
		}
		if (copy.map)
			copy_box(&copy);
		else
			memcpy(copy.to, copy.from, copy.bytes);
		race_check_copied(block->races, copy.watched, mbarrier);
		mbarrier_complete(copy.warp, copy.instruction, mbarrier, copy.bytes);
	}
	block->copy_count = kept;
}

void bulk_copies_end(struct block *block)
{
	if (block->copy_count)
		fault(block->copies->warp, block->copies->instruction, 0, CUDA_ERROR_ILLEGAL_INSTRUCTION,
			"nobody waits for this copy before the block ends");
}

/* Under way from now on. */
static void begin(struct bulk_copy copy, int lane, uint64_t mbarrier)
{
	struct block *block = copy.warp->block;

	copy.mbarrier = (uint32_t)(reach(copy.warp, copy.instruction, lane, SPACE_SHARED, mbarrier, 8, READ) -
		block->shared);
	copy.watched = race_check_copy(block->races, copy.warp, copy.instruction, lane,
		(uint64_t)(copy.to - block->shared), copy.bytes);
	*copy_add(block) = copy;
}

/* The operands are two addresses, bytes, and the mbarrier's address. */
OPERATION(copy_in)
{
	for (uint32_t left = warp->active; left; left &= left - 1) {
		const int lane = __builtin_ctz(left);
		const uint32_t bytes = SLOT(uint32_t, 0)[lane];
		const uint64_t to = address_of(warp, instruction, lane, ADDRESS, instruction->address_width) +
			(uint64_t)instruction->immediate;
		const uint64_t from = address_of(warp, instruction, lane, SECOND_ADDRESS, 8);
		const uint64_t mbarrier = address_of(warp, instruction, lane, 1, instruction->width[1]);
		struct bulk_copy copy = {.warp = warp, .instruction = instruction, .bytes = bytes};

		if (!bytes || bytes % ALIGNMENT)
			fault(warp, instruction, lane, CUDA_ERROR_MISALIGNED_ADDRESS,
				"a bulk copy of %u bytes, which is no multiple of 16", bytes);
		copy.to = locate(warp, instruction, lane, SPACE_SHARED, to, bytes, ALIGNMENT, WRITE);
		copy.from = locate(warp, instruction, lane, SPACE_GLOBAL, from, bytes, ALIGNMENT, READ);
		begin(copy, lane, mbarrier);
	}
}

/* The operands are two addresses, the second one a map's, the mbarrier's address, and the box's corner. */
OPERATION(copy_box_in)
{
	for (uint32_t left = warp->active; left; left &= left - 1) {
		const int lane = __builtin_ctz(left);
		const uint64_t to = address_of(warp, instruction, lane, ADDRESS, instruction->address_width) +
			(uint64_t)instruction->immediate;
		const uint64_t mbarrier = address_of(warp, instruction, lane, 1, instruction->width[1]);
		const void *bytes = locate(warp, instruction, lane, SPACE_GENERIC,
			address_of(warp, instruction, lane, SECOND_ADDRESS, 8), MAP_BYTES, MAP_ALIGNMENT,
			READ);
		struct bulk_copy copy = {.warp = warp, .instruction = instruction, .map = map_at(bytes)};

		if (!copy.map || copy.map->rank != instruction->count)
			fault(warp, instruction, lane, CUDA_ERROR_ILLEGAL_INSTRUCTION,
				"there is no tensor map of %d dimensions", instruction->count);
		copy.bytes = copy.map->element;
		for (int i = 0; i < instruction->count; i++) {
			copy.bytes *= copy.map->box[i];
			copy.corner[i] = SLOT(int32_t, CORNER + i)[lane];
		}
		copy.to = locate(warp, instruction, lane, SPACE_SHARED, to, copy.bytes, BOX_ALIGNMENT, WRITE);
		begin(copy, lane, mbarrier);
	}
}

/* Into a cache that is not there: all there is to see is whether it may. */
OPERATION(prefetch)
{
	for (uint32_t left = warp->active; left; left &= left - 1) {
		const int lane = __builtin_ctz(left);
		const uint64_t from = address_of(
					      warp, instruction, lane, ADDRESS, instruction->address_width) +
			(uint64_t)instruction->immediate;
		const uint32_t bytes = SLOT(uint32_t, 0)[lane];

		if (bytes % ALIGNMENT)
			fault(warp, instruction, lane, CUDA_ERROR_MISALIGNED_ADDRESS,
				"a prefetch of %u bytes, which is no multiple of 16", bytes);
		if (bytes)
			locate(warp, instruction, lane, SPACE_GLOBAL, from, bytes, ALIGNMENT, READ);
	}
}

static const char *const places[] = {"shared::cluster", "shared::cta", NULL};

/* cp.async.bulk.tensor.2d.{shared::cluster,shared::cta}.global{.tile}.mbarrier::complete_tx::bytes [to], [map, {x, y}],
 * [mbarrier], and so for one dimension to five */
static int decode_box(struct decoding *decoding, struct error *err)
{
	static const char *const dimensions[] = {"1d", "2d", "3d", "4d", "5d", NULL};
	struct instruction *instruction = decoding->instruction;
	const struct operand *operands = decoding->statement->operands;
	const int rank = take_one_of(decoding, dimensions) + 1;

	instruction->execute = copy_box_in;
	instruction->count = (uint8_t)rank;
	drop_parts(decoding, "tile");
	if (take_one_of(decoding, places) < 0 || !take_part(decoding, "global") ||
		!take_part(decoding, "mbarrier::complete_tx::bytes") || !rank ||
		decoding->statement->operand_count != rank + 3 || !operands[1].memory || operands[1].offset ||
		!operands[rank + 2].memory || operands[rank + 2].offset)
		return not_understood(decoding, err, "an unknown copy of a tensor");
	for (int i = 0; i < rank; i++)
		if (decode_operand(decoding, 2 + i, CORNER + i, 4, err) < 0)
			return -1;
	if (no_parts_left(decoding, err) < 0 ||
		decode_operand(decoding, rank + 2, 1, operands[rank + 2].kind == OPERAND_REGISTER ? 0 : 4,
			err) < 0 ||
		decode_operand(decoding, 1, SECOND_ADDRESS, 8, err) < 0)
		return -1;
	return decode_address(decoding, 0, err);
}

/* cp.async.bulk.{shared::cluster,shared::cta}.global.mbarrier::complete_tx::bytes{.L2::cache_hint} [to], [from], bytes,
 * [mbarrier]{, policy}; cp.async.bulk.prefetch.L2.global [from], bytes */
int decode_bulk(struct decoding *decoding, struct error *err)
{
	struct instruction *instruction = decoding->instruction;
	const struct operand *operands = decoding->statement->operands;
	const int count = decoding->statement->operand_count;

	if (take_part(decoding, "tensor"))
		return decode_box(decoding, err);
	if (take_part(decoding, "prefetch")) {
		drop_parts(decoding, "L2 global");
		instruction->execute = prefetch;
		if (no_parts_left(decoding, err) < 0 || decode_operand(decoding, 1, 0, 4, err) < 0)
			return -1;
		return decode_address(decoding, 0, err);
	}
	instruction->execute = copy_in;
	if (take_one_of(decoding, places) < 0 || !take_part(decoding, "global") ||
		!take_part(decoding, "mbarrier::complete_tx::bytes") ||
		count != 4 + take_part(decoding, "L2::cache_hint") || !operands[1].memory ||
		operands[1].offset || !operands[3].memory || operands[3].offset)
		return not_understood(decoding, err, "an unknown bulk copy");
	if (no_parts_left(decoding, err) < 0 || decode_operand(decoding, 2, 0, 4, err) < 0 ||
		decode_operand(decoding, 3, 1, operands[3].kind == OPERAND_REGISTER ? 0 : 4, err) < 0 ||
		decode_operand(decoding, 1, SECOND_ADDRESS, 8, err) < 0)
		return -1;
	return decode_address(decoding, 0, err);
}

/* How caches are to treat what an instruction reads. */
OPERATION(make_policy)
{
	EACH_LANE(SLOT(uint64_t, 0)[lane] = 0);
}

static int decode_policy(struct decoding *decoding, struct error *err)
{
	decoding->instruction->execute = make_policy;
	return decode_operand(decoding, 0, 0, 8, err);
}

const struct family bulk_families[] = {{"createpolicy", decode_policy}, {0}};
