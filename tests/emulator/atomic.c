/* atomic: reads, changes and writes that nothing comes between. One thread emulates them all, so nothing does. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "access.h"
#include "half.h"

/* The new value, from the OLD one and operands B and C. */
#define INTEGERS(_, op, x)                                                                                   \
	_(op##_u32, #op ".u32", uint32_t, x)                                                                 \
	_(op##_s32, #op ".s32", int32_t, x)                                                                  \
	_(op##_u64, #op ".u64", uint64_t, x)                                                                 \
	_(op##_s64, #op ".s64", int64_t, x)
#define BITS(_, op, x)                                                                                       \
	_(op##_b32, #op ".b32", uint32_t, x)                                                                 \
	_(op##_b64, #op ".b64", uint64_t, x)
#define PAIRS(_, op, type)                                                                                   \
	_(op##_each_##type##x2, #op "." #type "x2", uint32_t,                                                \
		pair_of(type##_of(type##_value(low_half(OLD)) + type##_value(low_half(B))),                  \
			type##_of(type##_value(high_half(OLD)) + type##_value(high_half(B)))))               \
	_(op##_each_##type, #op "." #type, uint16_t, type##_of(type##_value(OLD) + type##_value(B)))
#define ATOMICS(_)                                                                                           \
	INTEGERS(_, add, OLD + B)                                                                            \
	INTEGERS(_, min, B < OLD ? B : OLD)                                                                  \
	INTEGERS(_, max, B > OLD ? B : OLD)                                                                  \
	BITS(_, and, OLD &B)                                                                                 \
	BITS(_, or, OLD | B)                                                                                 \
	BITS(_, xor, OLD ^ B)                                                                                \
	BITS(_, exch, B)                                                                                     \
	BITS(_, cas, OLD == B ? C : OLD)                                                                     \
	_(cas_b16, "cas.b16", uint16_t, OLD == B ? C : OLD)                                                  \
	_(inc_u32, "inc.u32", uint32_t, OLD >= B ? 0 : OLD + 1)                                              \
	_(dec_u32, "dec.u32", uint32_t, OLD == 0 || OLD > B ? B : OLD - 1)                                   \
	_(add_f32, "add.f32", float, OLD + B)                                                                \
	_(add_f64, "add.f64", double, OLD + B)                                                               \
	PAIRS(_, add, f16)                                                                                   \
	PAIRS(_, add, bf16)

#define ATOMIC(function, name, type, x)                                                                      \
	OPERATION(atomic_##function)                                                                         \
	{                                                                                                    \
		struct view view = view_of(warp, instruction, CHANGE);                                       \
                                                                                                             \
		for (uint32_t left = warp->active; left; left &= left - 1) {                                 \
			const int lane = __builtin_ctz(left);                                                \
			unsigned char *at = reach_address(                                                   \
				warp, instruction, lane, sizeof(type), CHANGE, &view);                       \
			const type B = SLOT(type, 1)[lane], C = SLOT(type, 2)[lane];                         \
			type OLD, result;                                                                    \
                                                                                                             \
			(void)C;                                                                             \
			memcpy(&OLD, at, sizeof(OLD));                                                       \
			result = (type)(x);                                                                  \
			memcpy(at, &result, sizeof(result));                                                 \
			SLOT(type, 0)[lane] = OLD;                                                           \
		}                                                                                            \
	}
ATOMICS(ATOMIC)

#define ENTRY(function, name, type, x) {name, atomic_##function, sizeof(type)},
static const struct {
	const char *name;
	operation *execute;
	int width;
} atomics[] = {ATOMICS(ENTRY)};

/* atom.op.type d, [a], b{, c}; red.op.type [a], b */
static int decode_atomic(struct decoding *decoding, struct error *err)
{
	struct instruction *instruction = decoding->instruction;
	const struct statement *statement = decoding->statement;
	const bool result = !strcmp(decoding->parts[0], "atom");
	const int sources = statement->operand_count - 1 - result;
	char name[64];

	decode_space(decoding);
	if (decoding->part_count != 3 || sources < 1 || sources > 2)
		return not_understood(decoding, err, "unknown");
	snprintf(name, sizeof(name), "%s.%s", decoding->parts[1], decoding->parts[2]);
	for (size_t i = 0; i < sizeof(atomics) / sizeof(*atomics); i++) {
		if (strcmp(atomics[i].name, name))
			continue;
		instruction->execute = atomics[i].execute;
		instruction->slot[0] = instruction->slot[2] = scratch_register(decoding, atomics[i].width);
		if (result && decode_operand(decoding, 0, 0, atomics[i].width, err) < 0)
			return -1;
		for (int j = 0; j < sources; j++)
			if (decode_operand(decoding, result + 1 + j, 1 + j, atomics[i].width, err) < 0)
				return -1;
		return decode_address(decoding, result, err);
	}
	return not_understood(decoding, err, "an unknown operation");
}

const struct family atomic_families[] = {{"atom", decode_atomic}, {"red", decode_atomic}, {0}};
