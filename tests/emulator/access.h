/* access: to memory of any space, checked. */
#pragma once

#include "memory.h"
#include "operations.h"

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
};

struct view view_of(const struct warp *warp, const struct instruction *instruction, enum direction direction);

/* The same for an instruction with one address, of a power of two of bytes. */
static inline unsigned char *reach_address(struct warp *warp, const struct instruction *instruction, int lane,
	size_t bytes, enum direction direction, struct view *view)
{
	const uint64_t address = address_of(warp, instruction, lane, ADDRESS, instruction->address_width) +
		(uint64_t)instruction->immediate;
	unsigned char *found;

	if (address - view->start < view->bytes && view->bytes - (address - view->start) >= bytes &&
		!(address & (bytes - 1)))
		return view->memory + (address - view->start);
	found = reach(warp, instruction, lane, (enum space)instruction->space, address, bytes, direction);
	*view = view_of(warp, instruction, direction);
	return found;
}

/* Takes the parts of an opcode that say which space is meant, how the access is ordered, and what caches are to do. */
void decode_space(struct decoding *decoding);
/* Operand `number`, in brackets, as the instruction's address. */
int decode_address(struct decoding *decoding, int number, struct error *err);
