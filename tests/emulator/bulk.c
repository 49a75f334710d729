/* bulk: copies of many bytes that one thread starts and an mbarrier counts. They are made as late as they may, when somebody
 * waits for them: what reads too early finds what was there before. */
#include <string.h>

#include "access.h"
#include "base/memory.h"
#include "mbarrier.h"
#include "race.h"

#define ALIGNMENT 16

struct bulk_copy {
	struct warp *warp;
	const struct instruction *instruction;
	unsigned char *to;
	const unsigned char *from;
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

void bulk_copies_finish(struct block *block, uint32_t mbarrier)
{
	size_t kept = 0, count = block->copy_count;

	for (size_t i = 0; i < count; i++) {
		const struct bulk_copy copy = block->copies[i];

		if (copy.mbarrier != mbarrier) {
			block->copies[kept++] = copy;
			continue;
		}
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
		copy.mbarrier = (uint32_t)(reach(warp, instruction, lane, SPACE_SHARED, mbarrier, 8, READ) -
			warp->block->shared);
		copy.watched = race_check_copy(warp->block->races, warp, instruction, lane,
			(uint64_t)(copy.to - warp->block->shared), bytes);
		*copy_add(warp->block) = copy;
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

/* cp.async.bulk.{shared::cluster,shared::cta}.global.mbarrier::complete_tx::bytes{.L2::cache_hint} [to], [from], bytes,
 * [mbarrier]{, policy}; cp.async.bulk.prefetch.L2.global [from], bytes */
int decode_bulk(struct decoding *decoding, struct error *err)
{
	static const char *const places[] = {"shared::cluster", "shared::cta", NULL};
	struct instruction *instruction = decoding->instruction;
	const struct operand *operands = decoding->statement->operands;
	const int count = decoding->statement->operand_count;

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
