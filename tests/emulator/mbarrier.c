/* mbarrier: barriers in shared memory. Their 64 bits are their own here as they are on GPUs: phase, arrivals and bytes. */
#include "mbarrier.h"

#include <string.h>

#include "access.h"
#include "race.h"

#define MOST_ARRIVALS ((1 << 20) - 1)
#define MARK 2 /* neither fresh memory nor zeros have it */

struct mbarrier {
	uint64_t phase : 1;
	uint64_t expected : 20,
		left : 20;  /* arrivals: of a phase, and those of this one that are not there yet */
	int64_t bytes : 21; /* that are not there yet */
	uint64_t mark : 2;
};
_Static_assert(sizeof(struct mbarrier) == 8, "it takes 64 bits");

static struct mbarrier *mbarrier_at(
	struct warp *warp, const struct instruction *instruction, int lane, uint32_t address)
{
	struct mbarrier *barrier = (struct mbarrier *)(warp->block->shared + address);

	if (barrier->mark != MARK)
		fault(warp, instruction, lane, CUDA_ERROR_ILLEGAL_INSTRUCTION,
			"there is no mbarrier at %#x of shared memory", address);
	return barrier;
}

/* The address that a lane has given, within shared memory. */
static uint32_t place(
	struct warp *warp, const struct instruction *instruction, int lane, enum direction direction)
{
	const uint64_t address = address_of(warp, instruction, lane, ADDRESS, instruction->address_width) +
		(uint64_t)instruction->immediate;

	return (uint32_t)(reach(warp, instruction, lane, (enum space)instruction->space, address,
				  sizeof(struct mbarrier), direction) -
		warp->block->shared);
}

static void end_phase(struct warp *warp, struct mbarrier *barrier, uint32_t address)
{
	if (barrier->left || barrier->bytes)
		return;
	barrier->phase ^= 1;
	barrier->left = barrier->expected;
	warp->block->phases++;
	race_check_close(warp->block->races, address);
}

static void expect_bytes(struct warp *warp, const struct instruction *instruction, int lane,
	struct mbarrier *barrier, int64_t bytes)
{
	const int64_t sum = barrier->bytes + bytes;

	if (sum > MOST_ARRIVALS || sum < -MOST_ARRIVALS)
		fault(warp, instruction, lane, CUDA_ERROR_ILLEGAL_INSTRUCTION,
			"more bytes than an mbarrier counts");
	barrier->bytes = sum;
}

void mbarrier_complete(
	struct warp *warp, const struct instruction *instruction, uint32_t address, uint32_t bytes)
{
	struct mbarrier *barrier = mbarrier_at(warp, instruction, 0, address);

	expect_bytes(warp, instruction, 0, barrier, -(int64_t)bytes);
	end_phase(warp, barrier, address);
}

/* --- operations --------------------------------------------------------------------------------------- */

/* The operands are the result, the address, and a count, bytes or a phase. */
OPERATION(init)
{
	for (uint32_t left = warp->active; left; left &= left - 1) {
		const int lane = __builtin_ctz(left);
		const uint32_t count = SLOT(uint32_t, 1)[lane];
		const struct mbarrier fresh = {.expected = count, .left = count, .mark = MARK};

		if (!count || count > MOST_ARRIVALS)
			fault(warp, instruction, lane, CUDA_ERROR_ILLEGAL_INSTRUCTION,
				"no mbarrier expects %u arrivals", count);
		memcpy(warp->block->shared + place(warp, instruction, lane, WRITE), &fresh, sizeof(fresh));
	}
}

OPERATION(invalidate)
{
	for (uint32_t left = warp->active; left; left &= left - 1) {
		const int lane = __builtin_ctz(left);

		mbarrier_at(warp, instruction, lane, place(warp, instruction, lane, WRITE))->mark = 0;
	}
}

OPERATION(expect)
{
	for (uint32_t left = warp->active; left; left &= left - 1) {
		const int lane = __builtin_ctz(left);
		const uint32_t address = place(warp, instruction, lane, READ);

		expect_bytes(warp, instruction, lane, mbarrier_at(warp, instruction, lane, address),
			SLOT(uint32_t, 1)[lane]);
	}
}

/* With a variant the operand is bytes, and the arrivals are one. */
OPERATION(arrive)
{
	for (uint32_t left = warp->active; left; left &= left - 1) {
		const int lane = __builtin_ctz(left);
		const uint32_t address = place(warp, instruction, lane, READ),
			       operand = SLOT(uint32_t, 1)[lane];
		const uint32_t arrivals = instruction->variant ? 1 : operand;
		struct mbarrier *barrier = mbarrier_at(warp, instruction, lane, address);

		if (instruction->variant)
			expect_bytes(warp, instruction, lane, barrier, operand);
		if (!arrivals || arrivals > barrier->left)
			fault(warp, instruction, lane, CUDA_ERROR_ILLEGAL_INSTRUCTION,
				"%u arrivals at an mbarrier that waits for %u", arrivals,
				(unsigned)barrier->left);
		SLOT(uint64_t, 0)[lane] = barrier->phase;
		barrier->left -= arrivals;
		race_check_arrive(warp->block->races, warp->index, address);
		end_phase(warp, barrier, address);
	}
}

/* Whether the phase of this parity has ended. Bulk copies are made as late as that, when somebody waits for them, who then has
 * to ask once more. */
OPERATION(test_wait)
{
	for (uint32_t left = warp->active; left; left &= left - 1) {
		const int lane = __builtin_ctz(left);
		const uint32_t address = place(warp, instruction, lane, READ);
		const uint32_t phase = (instruction->bytes == 8 ? SLOT(uint64_t, 1)[lane]
								: SLOT(uint32_t, 1)[lane]) &
			1;
		const struct mbarrier *barrier = mbarrier_at(warp, instruction, lane, address);

		SLOT(uint32_t, 0)[lane] = barrier->phase != phase;
		if (barrier->phase != phase) {
			race_check_leave(warp->block->races, warp->index, address);
		} else {
			bulk_copies_finish(warp->block, address);
			warp_waits(warp, instruction);
		}
	}
}

/* --- decoding ----------------------------------------------------------------------------------------- */

/* mbarrier.init [a], count; mbarrier.inval [a]; mbarrier.expect_tx [a], bytes; mbarrier.arrive d, [a]{, count};
 * mbarrier.arrive.expect_tx d, [a], bytes; mbarrier.{test_wait,try_wait} p, [a], state{, hint}; the same with
 * .parity p, [a], parity{, hint} */
static int decode_mbarrier(struct decoding *decoding, struct error *err)
{
	static const char *const names[] = {
		"init", "inval", "arrive", "test_wait", "try_wait", "expect_tx", NULL};
	static operation *const operations[] = {init, invalidate, arrive, test_wait, test_wait, expect};
	struct instruction *instruction = decoding->instruction;
	const int count = decoding->statement->operand_count, chosen = take_one_of(decoding, names);
	int result = 0; /* bytes of it */

	if (chosen < 0)
		return not_understood(decoding, err, "unknown");
	instruction->execute = operations[chosen];
	instruction->bytes = 4;
	if (instruction->execute == arrive) {
		result = 8;
		instruction->variant = take_part(decoding, "expect_tx");
		instruction->slot[1] = constant_slot(decoding, 1, 4);
	} else if (instruction->execute == test_wait) {
		result = 4;
		instruction->bytes = take_part(decoding, "parity") ? 4 : 8;
	}
	decode_space(decoding);
	drop_parts(decoding, "b64");
	if (no_parts_left(decoding, err) < 0 || (result && decode_operand(decoding, 0, 0, result, err) < 0))
		return -1;
	if (instruction->execute != invalidate && (instruction->execute != arrive || count > 2) &&
		decode_operand(decoding, !!result + 1, 1, instruction->bytes, err) < 0)
		return -1;
	return decode_address(decoding, !!result, err);
}

const struct family mbarrier_families[] = {{"mbarrier", decode_mbarrier}, {0}};
