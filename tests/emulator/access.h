/* access: to memory of any space, checked. */
#pragma once

#include "memory.h"
#include "operations.h"
#include "race.h"

#define ADDRESS (MOST_OPERANDS - 1) /* the slot of an instruction's address */
#define SECOND_ADDRESS (MOST_OPERANDS - 2)

enum direction { READ, WRITE, CHANGE /* atomic, so that it races with no other */ };

/* Where these bytes are on the host. Ends the launch when they are not this lane's to use, or not aligned. */
unsigned char *locate(struct warp *warp, const struct instruction *instruction, int lane, enum space space,
	uint64_t address, size_t bytes, size_t alignment, enum direction direction);
/* The same of bytes aligned to their number, which the lane is at now: looks for races. */
unsigned char *reach(struct warp *warp, const struct instruction *instruction, int lane, enum space space,
	uint64_t address, size_t bytes, enum direction direction);

/* Where a byte of shared memory is in a layout whose lines have so many pieces of 16 bytes, permuted by the line's number. */
static inline uint64_t permuted(uint64_t address, uint32_t pieces)
{
	return address ^ (address >> 3 & (pieces - 1) * 16);
}

/* The address that a slot holds for a lane. */
static inline uint64_t address_of(
	const struct warp *warp, const struct instruction *instruction, int lane, int slot, int width)
{
	const unsigned char *registers = warp->registers + instruction->slot[slot];

	return width == 4 ? ((const uint32_t *)registers)[lane] : ((const uint64_t *)registers)[lane];
}

/* What of memory an instruction reaches without another look: these addresses, in its own space. */
struct view {
	unsigned char *memory;
	uint64_t start, bytes;
	struct race_watch watch; /* for races there */
	uint64_t watched;        /* the address that was last looked at for them */
};

struct view view_of(const struct warp *warp, const struct instruction *instruction, enum direction direction);

static inline uint64_t address_here(const struct warp *warp, const struct instruction *instruction, int lane)
{
	return address_of(warp, instruction, lane, ADDRESS, instruction->address_width) +
		(uint64_t)instruction->immediate;
}

static inline bool is_in_view(const struct view *view, uint64_t address, size_t bytes)
{
	return (address - view->start < view->bytes) & (view->bytes - (address - view->start) >= bytes) &
		!(address & (bytes - 1));
}

/* Looks for races of an access within a view. */
static inline void watch_view(struct view *view, const struct warp *warp,
	const struct instruction *instruction, int lane, uint64_t address, size_t bytes)
{
	if (view->watch.check && address != view->watched)
		race_watch_access(&view->watch, warp, instruction, lane, address, bytes);
	view->watched = address;
}

/* The same for an instruction with one address, of a power of two of bytes. */
static inline unsigned char *reach_address(struct warp *warp, const struct instruction *instruction, int lane,
	size_t bytes, enum direction direction, struct view *view)
{
	const uint64_t address = address_here(warp, instruction, lane);
	unsigned char *found;

	if (is_in_view(view, address, bytes)) {
		watch_view(view, warp, instruction, lane, address, bytes);
		return view->memory + (address - view->start);
	}
	found = reach(warp, instruction, lane, (enum space)instruction->space, address, bytes, direction);
	*view = view_of(warp, instruction, direction);
	return found;
}

/* The same for all lanes at once, when all are here and reach what is in view; if not, false. */
static inline bool reach_addresses(struct warp *warp, const struct instruction *instruction, size_t bytes,
	struct view *view, unsigned char *reached[LANES])
{
	uint64_t addresses[LANES], least = UINT64_MAX, most = 0, bits = 0, apart = 0;

	if (warp->active != ALL_LANES || view->bytes < bytes)
		return false;
	if (instruction->address_width == 4)
		for (int lane = 0; lane < LANES; lane++)
			addresses[lane] = SLOT(uint32_t, ADDRESS)[lane] + (uint64_t)instruction->immediate;
	else
		for (int lane = 0; lane < LANES; lane++)
			addresses[lane] = SLOT(uint64_t, ADDRESS)[lane] + (uint64_t)instruction->immediate;
	for (int lane = 0; lane < LANES; lane++) {
		least = addresses[lane] < least ? addresses[lane] : least;
		most = addresses[lane] > most ? addresses[lane] : most;
		bits |= addresses[lane];
		apart |= addresses[lane] ^ (addresses[0] + (uint64_t)lane * bytes);
		reached[lane] = view->memory + (addresses[lane] - view->start);
	}
	if (least < view->start || most - view->start > view->bytes - bytes || bits & (bytes - 1))
		return false;
	if (view->watch.check && !apart)
		race_watch_access(&view->watch, warp, instruction, 0, least, LANES * bytes);
	for (int lane = 0; lane < LANES && view->watch.check && apart; lane++)
		watch_view(view, warp, instruction, lane, addresses[lane], bytes);
	return true;
}

/* Takes the parts of an opcode that say which space is meant, how the access is ordered, and what caches are to do. */
void decode_space(struct decoding *decoding);
/* Operand `number`, in brackets, as the instruction's address. */
int decode_address(struct decoding *decoding, int number, struct error *err);
