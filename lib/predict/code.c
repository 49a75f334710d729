#include "predict/code.h"

#include <stdbool.h>
#include <string.h>

#define INSTRUCTION_BYTES 16
#define LANES 32

enum operation {
	OP_LDGSTS = 0xfae,
	OP_LDS = 0x984,
	OP_STS = 0x388,
	OP_STS_UNIFORM = 0x988, /* with an address in a uniform register */
	OP_LDL = 0x983,
	OP_STL = 0x387,
	OP_LDSM = 0x83b,
	OP_HMMA = 0x23c,
	OP_HGMMA = 0xdf0,
	OP_BRA = 0x947,
	OP_BRA_UNIFORM = 0x547,
	OP_EXIT = 0x94d,
};

struct instruction {
	uint64_t low, high;
};

static struct instruction instruction_at(const uint8_t *text, size_t index)
{
	struct instruction instruction;

	memcpy(&instruction, text + index * INSTRUCTION_BYTES, sizeof(instruction));
	return instruction;
}

static unsigned operation_of(struct instruction instruction)
{
	return instruction.low & 0xfff;
}

static bool is_unconditional(struct instruction instruction)
{
	return (instruction.low >> 12 & 15) == 7;
}

/* Of one lane of a load or store. */
static double access_bytes(struct instruction instruction)
{
	static const double bytes[8] = {1, 1, 2, 2, 4, 8, 16, 0};

	return bytes[instruction.high >> 9 & 7];
}

static void count(struct code *code, struct instruction instruction)
{
	double bytes = LANES * access_bytes(instruction), columns;

	code->instructions++;
	switch (operation_of(instruction)) {
	case OP_LDGSTS: /* 16 bytes, from memory to shared memory */
		code->shared_bytes += LANES * 16;
		break;
	case OP_LDS: /* as a rule all lanes read in one place: others use ldmatrix */
		code->shared_bytes += 128;
		break;
	case OP_STS:
	case OP_STS_UNIFORM:
	case OP_LDL:
	case OP_STL:
		code->shared_bytes += bytes;
		break;
	case OP_LDSM: /* 1, 2 or 4 matrices of 8 × 8 */
		code->shared_bytes += 128 << (instruction.high >> 8 & 3);
		break;
	case OP_HMMA: /* 16 × 8 × 16 */
		code->mma_flops += 2 * 16 * 8 * 16;
		break;
	case OP_HGMMA: /* 64 × N × 16 by four warps, which read the right factor once */
		columns = 8.0 * (double)((instruction.low >> 53 & 31) + 1);
		code->wgmma_flops += 2 * 16 * columns * 16;
		code->shared_bytes += columns * 16 * 2 / 4;
		break;
	}
}

/* Bytes from behind a branch to its target. Since compute capability 9.0 the lowest ones are in a place of their own. */
static int64_t branch_distance(struct instruction branch, int capability)
{
	int64_t distance = (int64_t)branch.low >> 34;

	if (capability < 90)
		return distance * 4;
	return distance * 1024 + (int64_t)(branch.low >> 16 & 255) * 4;
}

/* The instruction that a branch backwards goes to; its own number when it is none. */
static size_t loop_start(const uint8_t *text, size_t index, int capability)
{
	struct instruction instruction = instruction_at(text, index);
	unsigned operation = operation_of(instruction);
	int64_t distance;

	if (operation != OP_BRA && operation != OP_BRA_UNIFORM)
		return index;
	distance = branch_distance(instruction, capability) / INSTRUCTION_BYTES;
	if (distance >= 0 || -distance - 1 > (int64_t)index)
		return index;
	return index + 1 - (size_t)-distance;
}

/* Instructions from `first` to `last`; 0 and 0: none. */
struct span {
	size_t first, last;
};

static bool is_within(const struct span *span, size_t index)
{
	return span->last && index >= span->first && index <= span->last;
}

/* The longest loop that shares nothing with another. */
static struct span longest_loop(const uint8_t *text, size_t length, int capability, const struct span *other)
{
	size_t ended = 0;
	struct span longest = {0};

	for (size_t i = 0; i < length; i++) {
		size_t start = loop_start(text, i, capability);
		struct instruction instruction = instruction_at(text, i);
		bool is_apart = !other->last || i < other->first || start > other->last;

		if (operation_of(instruction) == OP_EXIT && is_unconditional(instruction))
			ended = i + 1;
		/* code behind the end jumps back to where it was called from */
		if (start >= ended && is_apart && i - start > longest.last - longest.first)
			longest = (struct span){start, i};
	}
	return longest;
}

void code_read(const uint8_t *text, size_t length, int capability, struct code *once, struct code *loop,
	struct code *beside)
{
	size_t end = length / INSTRUCTION_BYTES;
	const struct span none = {0}, longest = longest_loop(text, end, capability, &none);
	const struct span apart = longest.last ? longest_loop(text, end, capability, &longest) : none;

	*once = *loop = *beside = (struct code){0};
	for (size_t i = 0; i < end; i++)
		count(is_within(&longest, i)           ? loop
				: is_within(&apart, i) ? beside
						       : once,
			instruction_at(text, i));
}
