/* compare: setp, which makes predicates. */
#include <math.h>
#include <stdio.h>

#include "half.h"
#include "operations.h"

/* p = A ? B; q = !p. Comparisons whose name ends with u are true of NaNs, too. */
#define ORDER(_, suffix, type, letter)                                                                       \
	_(eq, suffix, type, letter, A == B)                                                                  \
	_(ne, suffix, type, letter, A != B)                                                                  \
	_(lt, suffix, type, letter, A < B)                                                                   \
	_(le, suffix, type, letter, A <= B)                                                                  \
	_(gt, suffix, type, letter, A > B)                                                                   \
	_(ge, suffix, type, letter, A >= B)
#define EQUALITY(_, suffix, type, letter)                                                                    \
	_(eq, suffix, type, letter, A == B)                                                                  \
	_(ne, suffix, type, letter, A != B)
#define UNSIGNED_ORDER(_, suffix, type, letter)                                                              \
	ORDER(_, suffix, type, letter)                                                                       \
	_(lo, suffix, type, letter, A < B)                                                                   \
	_(ls, suffix, type, letter, A <= B)                                                                  \
	_(hi, suffix, type, letter, A > B)                                                                   \
	_(hs, suffix, type, letter, A >= B)
#define FLOAT_ORDER(_, suffix, type, letter)                                                                 \
	_(eq, suffix, type, letter, A == B)                                                                  \
	_(ne, suffix, type, letter, islessgreater(A, B))                                                     \
	_(lt, suffix, type, letter, A < B)                                                                   \
	_(le, suffix, type, letter, A <= B)                                                                  \
	_(gt, suffix, type, letter, A > B)                                                                   \
	_(ge, suffix, type, letter, A >= B)                                                                  \
	_(equ, suffix, type, letter, !islessgreater(A, B))                                                   \
	_(neu, suffix, type, letter, !(A == B))                                                              \
	_(ltu, suffix, type, letter, !(A >= B))                                                              \
	_(leu, suffix, type, letter, !(A > B))                                                               \
	_(gtu, suffix, type, letter, !(A <= B))                                                              \
	_(geu, suffix, type, letter, !(A < B))                                                               \
	_(num, suffix, type, letter, !isunordered(A, B))                                                     \
	_(nan, suffix, type, letter, isunordered(A, B))

#define PLAIN(_)                                                                                             \
	EQUALITY(_, b16, uint16_t, "h")                                                                      \
	EQUALITY(_, b32, uint32_t, "w")                                                                      \
	EQUALITY(_, b64, uint64_t, "l")                                                                      \
	ORDER(_, s16, int16_t, "h")                                                                          \
	ORDER(_, s32, int32_t, "w")                                                                          \
	ORDER(_, s64, int64_t, "l")                                                                          \
	UNSIGNED_ORDER(_, u16, uint16_t, "h")                                                                \
	UNSIGNED_ORDER(_, u32, uint32_t, "w")                                                                \
	UNSIGNED_ORDER(_, u64, uint64_t, "l")                                                                \
	FLOAT_ORDER(_, f32, float, "w")                                                                      \
	FLOAT_ORDER(_, f64, double, "l")
#define HALF(_)                                                                                              \
	FLOAT_ORDER(_, f16, f16_to_float, "h")                                                               \
	FLOAT_ORDER(_, bf16, bf16_to_float, "h")

#define COMPARISON(compare, suffix, type, letter, x)                                                         \
	OPERATION(setp_##compare##_##suffix)                                                                 \
	{                                                                                                    \
		uint32_t *p = SLOT(uint32_t, 0), *q = SLOT(uint32_t, 1);                                     \
		const type *a = SLOT(type, 2), *b = SLOT(type, 3);                                           \
		EACH_LANE(const type A = a[lane]; const type B = b[lane]; const bool holds = (x);            \
			  p[lane] = holds; q[lane] = !holds);                                                \
	}
#define HALF_COMPARISON(compare, suffix, value, letter, x)                                                   \
	OPERATION(setp_##compare##_##suffix)                                                                 \
	{                                                                                                    \
		uint32_t *p = SLOT(uint32_t, 0), *q = SLOT(uint32_t, 1);                                     \
		const uint16_t *a = SLOT(uint16_t, 2), *b = SLOT(uint16_t, 3);                               \
		EACH_LANE(const float A = value(a[lane]); const float B = value(b[lane]);                    \
			  const bool holds = (x); p[lane] = holds; q[lane] = !holds);                        \
	}

PLAIN(COMPARISON)
HALF(HALF_COMPARISON)

#define ROW(compare, suffix, type, letter, x)                                                                \
	{"setp." #compare "." #suffix, setp_##compare##_##suffix, "pp" letter letter, 4},
const struct row compare_rows[] = {PLAIN(ROW) HALF(ROW){0}};

/* Both results are combined with another predicate. */
#define COMBINED(name, x)                                                                                    \
	OPERATION(name)                                                                                      \
	{                                                                                                    \
		uint32_t *p = SLOT(uint32_t, 0), *q = SLOT(uint32_t, 1), with[LANES];                        \
		const uint32_t *c = SLOT(uint32_t, 4);                                                       \
		EACH_LANE(with[lane] = c[lane] ^ (uint32_t)instruction->immediate);                          \
		instruction->plain(warp, instruction);                                                       \
		EACH_LANE(uint32_t A = p[lane]; const uint32_t B = with[lane]; p[lane] = (x); A = q[lane];   \
			  q[lane] = (x));                                                                    \
	}
COMBINED(combine_and, A &B)
COMBINED(combine_or, A | B)
COMBINED(combine_xor, A ^ B)

/* setp.CompOp{.BoolOp}{.ftz}.type p{|q}, a, b{, {!}c} */
static int decode_setp(struct decoding *decoding, struct error *err)
{
	static const char *const names[] = {"and", "or", "xor", NULL};
	static operation *const combine[] = {combine_and, combine_or, combine_xor};
	const struct statement *statement = decoding->statement;
	struct instruction *instruction = decoding->instruction;
	int chosen = take_one_of(decoding, names), first, results = group_size(statement, 0, &first);
	const struct row *row;
	char name[64];

	drop_parts(decoding, "ftz"); /* subnormal numbers are compared as they are */
	if (decoding->part_count != 3 || statement->operand_count != results + 2 + (chosen >= 0) ||
		results > 2)
		return not_understood(decoding, err, "not a comparison");
	snprintf(name, sizeof(name), "setp.%s.%s", decoding->parts[1], decoding->parts[2]);
	row = find_row(name);
	if (!row)
		return not_understood(decoding, err, "no such comparison");
	instruction->execute = row->execute;
	instruction->slot[1] = scratch_register(decoding, 4);
	for (int i = 0; i < results + 2; i++) {
		int slot = i < results ? i : i - results + 2;

		if (decode_operand(decoding, i, slot, operand_width(row->operands[slot]), err) < 0)
			return -1;
	}
	if (chosen < 0)
		return 0;
	instruction->plain = instruction->execute;
	instruction->execute = combine[chosen];
	instruction->immediate = statement->operands[results + 2].negated;
	return decode_operand(decoding, results + 2, 4, 4, err);
}

const struct family compare_families[] = {{"setp", decode_setp}, {0}};
