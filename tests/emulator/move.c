/* move: mov, between registers, and of vectors to and from wider registers. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "operations.h"

/* {a, b} to d, lowest first: bytes of a lane lie one after the other in both. */
OPERATION(pack)
{
	const size_t bytes = instruction->width[1];

	EACH_LANE(for (int i = 0; i < instruction->count; i++) memcpy(warp->registers + instruction->slot[0] +
			(size_t)lane * instruction->width[0] + (size_t)i * bytes,
		warp->registers + instruction->slot[i + 1] + (size_t)lane * bytes, bytes););
}

OPERATION(unpack)
{
	const size_t bytes = instruction->width[0];
	const int from = instruction->count;

	EACH_LANE(unsigned char value[16]; memcpy(value,
		warp->registers + instruction->slot[from] + (size_t)lane * instruction->width[1],
		instruction->width[1]);
		  for (int i = 0; i < instruction->count; i++)
			  memcpy(warp->registers + instruction->slot[i] + (size_t)lane * bytes,
				  value + (size_t)i * bytes, bytes););
}

static int decode_vector(struct decoding *decoding, int bytes, int results, struct error *err)
{
	struct instruction *instruction = decoding->instruction;
	const struct statement *statement = decoding->statement;
	int count = statement->operand_count - 1;
	bool packs = results == 1;

	if (count < 2 || (!packs && results != count) || bytes % count)
		return not_understood(decoding, err, "no such vector");
	instruction->execute = packs ? pack : unpack;
	instruction->count = (uint8_t)count;
	for (int i = 0; i <= count; i++) {
		int width = i == (packs ? 0 : count) ? bytes : bytes / count;

		if (decode_operand(decoding, i, i, width, err) < 0)
			return -1;
	}
	instruction->width[0] = (uint8_t)(packs ? bytes : bytes / count);
	instruction->width[1] = (uint8_t)(packs ? bytes / count : bytes);
	return 0;
}

/* --- clocks ------------------------------------------------------------------------------------------- */

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

OPERATION(read_clock)
{
	const uint64_t time = now() >> instruction->immediate;

	if (instruction->width[0] == 8)
		EACH_LANE(SLOT(uint64_t, 0)[lane] = time);
	else
		EACH_LANE(SLOT(uint32_t, 0)[lane] = (uint32_t)time);
}

static bool is_clock(const char *name)
{
	return name && (!strncmp(name, "%clock", 6) || !strncmp(name, "%globaltimer", 12));
}

/* The bits of a type; those of a predicate's registers; 0 for an unknown one. */
static int type_bits(const char *type)
{
	int bits = 0;

	if (!strcmp(type, "pred"))
		return 32;
	sscanf(type, "%*[busf]%d", &bits);
	return bits;
}

static int decode_mov(struct decoding *decoding, struct error *err)
{
	const struct statement *statement = decoding->statement;
	const int bits = type_bits(decoding->parts[decoding->part_count - 1]);
	int first, results = group_size(statement, 0, &first);
	char name[32];

	if (decoding->part_count != 2 || !bits)
		return not_understood(decoding, err, "an unknown type");
	if (statement->operand_count > 2)
		return decode_vector(decoding, bits / 8, results, err);
	if (statement->operand_count == 2 && is_clock(statement->operands[1].name)) {
		decoding->instruction->execute = read_clock;
		decoding->instruction->immediate = strstr(statement->operands[1].name, "_hi") ? 32 : 0;
		return decode_operand(decoding, 0, 0, bits / 8, err);
	}
	snprintf(name, sizeof(name), "mov.b%d", bits);
	return decode_row(decoding, name, err);
}

static int decode_selp(struct decoding *decoding, struct error *err)
{
	char name[32];

	snprintf(name, sizeof(name), "selp.b%d", type_bits(decoding->parts[decoding->part_count - 1]));
	return decoding->part_count == 2 ? decode_row(decoding, name, err)
					 : not_understood(decoding, err, "an unknown type");
}

const struct family move_families[] = {{"mov", decode_mov}, {"selp", decode_selp}, {0}};
