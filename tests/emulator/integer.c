/* integer: arithmetic and logic on whole numbers. Compiled so that signed numbers wrap around. */
#include "operations.h"

typedef __int128 s128;
typedef unsigned __int128 u128;

#define MINIMUM(a, b) ((a) < (b) ? (a) : (b))
#define MAXIMUM(a, b) ((a) > (b) ? (a) : (b))

/* Division by zero gives all ones, as on GPUs, and so does what cannot be represented wrap around. */
#define DIVIDE(a, b)                                                                                         \
	((b) == 0 ? (__typeof__(b))-1 : (b) == (__typeof__(b))-1 && (__typeof__(b))-1 < 0 ? -(a) : (a) / (b))
#define REMAINDER(a, b) ((b) == 0 ? (a) : (b) == (__typeof__(b))-1 && (__typeof__(b))-1 < 0 ? 0 : (a) % (b))

static uint32_t reverse_bits(uint32_t value)
{
	value = (value >> 1 & 0x55555555) | (value & 0x55555555) << 1;
	value = (value >> 2 & 0x33333333) | (value & 0x33333333) << 2;
	value = (value >> 4 & 0x0f0f0f0f) | (value & 0x0f0f0f0f) << 4;
	return __builtin_bswap32(value);
}

static uint64_t reverse_bits_64(uint64_t value)
{
	return (uint64_t)reverse_bits((uint32_t)value) << 32 | reverse_bits((uint32_t)(value >> 32));
}

/* The highest bit that differs from the sign's; all ones when there is none. */
static uint32_t find_bit(uint64_t value)
{
	return value ? 63 - (uint32_t)__builtin_clzll(value) : ~0u;
}

static uint64_t low_bits(uint32_t count)
{
	return count >= 64 ? ~(uint64_t)0 : ((uint64_t)1 << count) - 1;
}

/* A field of `bits`-bit numbers, its sign extended from its own highest bit or, beyond the number, from that's. */
static uint64_t extract(uint64_t value, uint32_t start, uint32_t length, uint32_t bits, bool is_signed)
{
	uint32_t end = start + length > bits ? bits : start + length, sign = end ? end - 1 : 0;
	uint64_t field;

	if (!length)
		return 0;
	if (start >= bits)
		return is_signed && value >> (bits - 1) & 1 ? ~(uint64_t)0 : 0;
	field = value >> start & low_bits(end - start);
	return is_signed && value >> sign & 1 ? field | ~low_bits(end - start) : field;
}

static uint64_t insert(uint64_t field, uint64_t into, uint32_t start, uint32_t length, uint32_t bits)
{
	uint64_t mask = start >= bits ? 0 : low_bits(length) << start;

	return start >= bits ? into : (into & ~mask) | (field << start & mask);
}

/* Bytes of b:a, each chosen by four bits: which, and whether to spread its sign. */
static uint32_t permute(uint32_t a, uint32_t b, uint32_t selector)
{
	uint64_t bytes = (uint64_t)b << 32 | a;
	uint32_t result = 0;

	for (int i = 0; i < 4; i++) {
		uint32_t choice = selector >> 4 * i & 15;
		uint32_t byte = bytes >> 8 * (choice & 7) & 0xff;

		if (choice & 8)
			byte = byte & 0x80 ? 0xff : 0;
		result |= byte << 8 * i;
	}
	return result;
}

static uint32_t logic(uint32_t a, uint32_t b, uint32_t c, uint32_t table)
{
	uint32_t result = 0;

	for (int i = 0; i < 8; i++)
		if (table >> i & 1)
			result |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
	return result;
}

static int32_t dot(uint32_t a, bool a_signed, uint32_t b, bool b_signed)
{
	int32_t sum = 0;

	for (int i = 0; i < 32; i += 8) {
		int32_t x = a >> i & 0xff, y = b >> i & 0xff;

		sum += (a_signed ? (int8_t)x : x) * (b_signed ? (int8_t)y : y);
	}
	return sum;
}

#define SIGNED(_, op, name, x)                                                                               \
	_(op##_s16, name ".s16", int16_t, "hhhh", x)                                                         \
	_(op##_s32, name ".s32", int32_t, "wwww", x)                                                         \
	_(op##_s64, name ".s64", int64_t, "llll", x)
#define UNSIGNED(_, op, name, x)                                                                             \
	_(op##_u16, name ".u16", uint16_t, "hhhh", x)                                                        \
	_(op##_u32, name ".u32", uint32_t, "wwww", x)                                                        \
	_(op##_u64, name ".u64", uint64_t, "llll", x)
#define INTEGERS(_, op, name, x) SIGNED(_, op, name, x) UNSIGNED(_, op, name, x)
#define BITS(_, op, name, x)                                                                                 \
	_(op##_b16, name ".b16", uint16_t, "hhhh", x)                                                        \
	_(op##_b32, name ".b32", uint32_t, "wwww", x)                                                        \
	_(op##_b64, name ".b64", uint64_t, "llll", x)

#define UNARIES(_)                                                                                           \
	SIGNED(_, neg, "neg", -A)                                                                            \
	SIGNED(_, abs, "abs", A < 0 ? -A : A)                                                                \
	BITS(_, not, "not", ~A)                                                                              \
	BITS(_, cnot, "cnot", !A)                                                                            \
	_(not_pred, "not.pred", uint32_t, "pp", !A)                                                          \
	_(brev_b32, "brev.b32", uint32_t, "ww", reverse_bits(A))                                             \
	_(brev_b64, "brev.b64", uint64_t, "ll", reverse_bits_64(A))                                          \
	_(mov_b16, "mov.b16", uint16_t, "hh", A)                                                             \
	_(mov_b32, "mov.b32", uint32_t, "ww", A)                                                             \
	_(mov_b64, "mov.b64", uint64_t, "ll", A)                                                             \
	_(mov_b128, "mov.b128", u128, "qq", A)

#define BINARIES(_)                                                                                          \
	INTEGERS(_, add, "add", A + B)                                                                       \
	INTEGERS(_, sub, "sub", A - B)                                                                       \
	INTEGERS(_, mul_lo, "mul.lo", A *B)                                                                  \
	_(mul_hi_s16, "mul.hi.s16", int16_t, "hhh", (int32_t)A *B >> 16)                                     \
	_(mul_hi_u16, "mul.hi.u16", uint16_t, "hhh", (uint32_t)A *B >> 16)                                   \
	_(mul_hi_s32, "mul.hi.s32", int32_t, "www", (int64_t)A *B >> 32)                                     \
	_(mul_hi_u32, "mul.hi.u32", uint32_t, "www", (uint64_t)A *B >> 32)                                   \
	_(mul_hi_s64, "mul.hi.s64", int64_t, "lll", (s128)A *B >> 64)                                        \
	_(mul_hi_u64, "mul.hi.u64", uint64_t, "lll", (u128)A *B >> 64)                                       \
	_(mul24_lo_s32, "mul24.lo.s32", int32_t, "www", (A << 8 >> 8) * (B << 8 >> 8))                       \
	_(mul24_lo_u32, "mul24.lo.u32", uint32_t, "www", (A & 0xffffff) * (B & 0xffffff))                    \
	INTEGERS(_, div, "div", DIVIDE(A, B))                                                                \
	INTEGERS(_, rem, "rem", REMAINDER(A, B))                                                             \
	INTEGERS(_, min, "min", MINIMUM(A, B))                                                               \
	INTEGERS(_, max, "max", MAXIMUM(A, B))                                                               \
	BITS(_, and, "and", A &B)                                                                            \
	BITS(_, or, "or", A | B)                                                                             \
	BITS(_, xor, "xor", A ^ B)                                                                           \
	_(and_pred, "and.pred", uint32_t, "ppp", A &B)                                                       \
	_(or_pred, "or.pred", uint32_t, "ppp", A | B)                                                        \
	_(xor_pred, "xor.pred", uint32_t, "ppp", A ^ B)

#define TERNARIES(_)                                                                                         \
	INTEGERS(_, mad_lo, "mad.lo", A *B + C)                                                              \
	_(mad_hi_s32, "mad.hi.s32", int32_t, "wwww", ((int64_t)A * B >> 32) + C)                             \
	_(mad_hi_u32, "mad.hi.u32", uint32_t, "wwww", ((uint64_t)A * B >> 32) + C)                           \
	_(mad_hi_s64, "mad.hi.s64", int64_t, "llll", (int64_t)((s128)A * B >> 64) + C)                       \
	_(mad_hi_u64, "mad.hi.u64", uint64_t, "llll", (uint64_t)((u128)A * B >> 64) + C)                     \
	INTEGERS(_, sad, "sad", (A < B ? B - A : A - B) + C)                                                 \
	_(bfe_u32, "bfe.u32", uint32_t, "wwww", extract(A, B & 255, C & 255, 32, false))                     \
	_(bfe_s32, "bfe.s32", uint32_t, "wwww", extract(A, B & 255, C & 255, 32, true))                      \
	_(prmt_b32, "prmt.b32", uint32_t, "wwww", permute(A, B, C))                                          \
	_(dp4a_u32_u32, "dp4a.u32.u32", uint32_t, "wwww", dot(A, false, B, false) + C)                       \
	_(dp4a_u32_s32, "dp4a.u32.s32", uint32_t, "wwww", dot(A, false, B, true) + C)                        \
	_(dp4a_s32_u32, "dp4a.s32.u32", uint32_t, "wwww", dot(A, true, B, false) + C)                        \
	_(dp4a_s32_s32, "dp4a.s32.s32", uint32_t, "wwww", dot(A, true, B, true) + C)                         \
	_(shf_l_wrap, "shf.l.wrap.b32", uint32_t, "wwww", (((uint64_t)B << 32 | A) << (C & 31)) >> 32)       \
	_(shf_r_wrap, "shf.r.wrap.b32", uint32_t, "wwww", ((uint64_t)B << 32 | A) >> (C & 31))               \
	_(shf_l_clamp, "shf.l.clamp.b32", uint32_t, "wwww",                                                  \
		(((uint64_t)B << 32 | A) << MINIMUM(C, 32u)) >> 32)                                          \
	_(shf_r_clamp, "shf.r.clamp.b32", uint32_t, "wwww", ((uint64_t)B << 32 | A) >> MINIMUM(C, 32u))

/* Those whose operands have several types: the types of d, a, b, c, and d as an expression. */
#define MIXED(_)                                                                                             \
	_(mul_wide_s16, "mul.wide.s16", "whh", int32_t, int16_t, int16_t, int16_t, (int32_t)A *B)            \
	_(mul_wide_u16, "mul.wide.u16", "whh", uint32_t, uint16_t, uint16_t, uint16_t, (uint32_t)A *B)       \
	_(mul_wide_s32, "mul.wide.s32", "lww", int64_t, int32_t, int32_t, int32_t, (int64_t)A *B)            \
	_(mul_wide_u32, "mul.wide.u32", "lww", uint64_t, uint32_t, uint32_t, uint32_t, (uint64_t)A *B)       \
	_(mad_wide_s16, "mad.wide.s16", "whhw", int32_t, int16_t, int16_t, int32_t, (int32_t)A *B + C)       \
	_(mad_wide_u16, "mad.wide.u16", "whhw", uint32_t, uint16_t, uint16_t, uint32_t, (uint32_t)A *B + C)  \
	_(mad_wide_s32, "mad.wide.s32", "lwwl", int64_t, int32_t, int32_t, int64_t, (int64_t)A *B + C)       \
	_(mad_wide_u32, "mad.wide.u32", "lwwl", uint64_t, uint32_t, uint32_t, uint64_t, (uint64_t)A *B + C)  \
	_(shl_b16, "shl.b16", "hhw", uint16_t, uint16_t, uint32_t, uint32_t, B > 15 ? 0 : A << B)            \
	_(shl_b32, "shl.b32", "www", uint32_t, uint32_t, uint32_t, uint32_t, B > 31 ? 0 : A << B)            \
	_(shl_b64, "shl.b64", "llw", uint64_t, uint64_t, uint32_t, uint32_t, B > 63 ? 0 : A << B)            \
	_(shr_u16, "shr.u16", "hhw", uint16_t, uint16_t, uint32_t, uint32_t, B > 15 ? 0 : A >> B)            \
	_(shr_u32, "shr.u32", "www", uint32_t, uint32_t, uint32_t, uint32_t, B > 31 ? 0 : A >> B)            \
	_(shr_u64, "shr.u64", "llw", uint64_t, uint64_t, uint32_t, uint32_t, B > 63 ? 0 : A >> B)            \
	_(shr_b16, "shr.b16", "hhw", uint16_t, uint16_t, uint32_t, uint32_t, B > 15 ? 0 : A >> B)            \
	_(shr_b32, "shr.b32", "www", uint32_t, uint32_t, uint32_t, uint32_t, B > 31 ? 0 : A >> B)            \
	_(shr_b64, "shr.b64", "llw", uint64_t, uint64_t, uint32_t, uint32_t, B > 63 ? 0 : A >> B)            \
	_(shr_s16, "shr.s16", "hhw", int16_t, int16_t, uint32_t, uint32_t, A >> MINIMUM(B, 15u))             \
	_(shr_s32, "shr.s32", "www", int32_t, int32_t, uint32_t, uint32_t, A >> MINIMUM(B, 31u))             \
	_(shr_s64, "shr.s64", "llw", int64_t, int64_t, uint32_t, uint32_t, A >> MINIMUM(B, 63u))             \
	_(popc_b32, "popc.b32", "ww", uint32_t, uint32_t, uint32_t, uint32_t, __builtin_popcount(A))         \
	_(popc_b64, "popc.b64", "wl", uint32_t, uint64_t, uint64_t, uint64_t, __builtin_popcountll(A))       \
	_(clz_b32, "clz.b32", "ww", uint32_t, uint32_t, uint32_t, uint32_t, A ? __builtin_clz(A) : 32)       \
	_(clz_b64, "clz.b64", "wl", uint32_t, uint64_t, uint64_t, uint64_t, A ? __builtin_clzll(A) : 64)     \
	_(bfind_u32, "bfind.u32", "ww", uint32_t, uint32_t, uint32_t, uint32_t, find_bit(A))                 \
	_(bfind_s32, "bfind.s32", "ww", uint32_t, int32_t, int32_t, int32_t,                                 \
		find_bit((uint32_t)(A < 0 ? ~A : A)))                                                        \
	_(bfind_u64, "bfind.u64", "wl", uint32_t, uint64_t, uint64_t, uint64_t, find_bit(A))                 \
	_(bfind_s64, "bfind.s64", "wl", uint32_t, int64_t, int64_t, int64_t, find_bit(A < 0 ? ~A : A))       \
	_(bfind_shift_u32, "bfind.shiftamt.u32", "ww", uint32_t, uint32_t, uint32_t, uint32_t,               \
		A ? 31 - find_bit(A) : ~0u)                                                                  \
	_(bfind_shift_s32, "bfind.shiftamt.s32", "ww", uint32_t, int32_t, int32_t, int32_t,                  \
		(A < 0 ? ~A : A) ? 31 - find_bit((uint32_t)(A < 0 ? ~A : A)) : ~0u)                          \
	_(bfind_shift_u64, "bfind.shiftamt.u64", "wl", uint32_t, uint64_t, uint64_t, uint64_t,               \
		A ? 63 - find_bit(A) : ~0u)                                                                  \
	_(bfind_shift_s64, "bfind.shiftamt.s64", "wl", uint32_t, int64_t, int64_t, int64_t,                  \
		(A < 0 ? ~A : A) ? 63 - find_bit((uint64_t)(A < 0 ? ~A : A)) : ~0u)                          \
	_(bfe_u64, "bfe.u64", "llww", uint64_t, uint64_t, uint32_t, uint32_t,                                \
		extract(A, B & 255, C & 255, 64, false))                                                     \
	_(bfe_s64, "bfe.s64", "llww", uint64_t, uint64_t, uint32_t, uint32_t,                                \
		extract(A, B & 255, C & 255, 64, true))                                                      \
	_(selp_b16, "selp.b16", "hhhp", uint16_t, uint16_t, uint16_t, uint32_t, C ? A : B)                   \
	_(selp_b32, "selp.b32", "wwwp", uint32_t, uint32_t, uint32_t, uint32_t, C ? A : B)                   \
	_(selp_b64, "selp.b64", "lllp", uint64_t, uint64_t, uint64_t, uint32_t, C ? A : B)

/* Of four sources. */
#define QUATERNARIES(_)                                                                                      \
	_(bfi_b32, "bfi.b32", "wwwww", uint32_t, insert(A, B, C & 255, D & 255, 32))                         \
	_(bfi_b64, "bfi.b64", "lllww", uint64_t, insert(A, B, C & 255, D & 255, 64))                         \
	_(lop3_b32, "lop3.b32", "wwwww", uint32_t, logic(A, B, C, D))

#define UNARY_FUNCTION(function, name, type, operands, x) UNARY(function, type, x)
#define BINARY_FUNCTION(function, name, type, operands, x) BINARY(function, type, x)
#define TERNARY_FUNCTION(function, name, type, operands, x) TERNARY(function, type, x)
#define MIXED_FUNCTION(function, name, operands, type, a_type, b_type, c_type, x)                            \
	OPERATION(function)                                                                                  \
	{                                                                                                    \
		type *d = SLOT(type, 0);                                                                     \
		const a_type *a = SLOT(a_type, 1);                                                           \
		const b_type *b = SLOT(b_type, 2);                                                           \
		const c_type *c = SLOT(c_type, 3);                                                           \
		EACH_LANE(const a_type A = a[lane]; const b_type B = b[lane]; const c_type C = c[lane];      \
			  (void)B, (void)C; d[lane] = (type)(x));                                            \
	}
#define QUATERNARY_FUNCTION(function, name, operands, type, x)                                               \
	OPERATION(function)                                                                                  \
	{                                                                                                    \
		type *result = SLOT(type, 0);                                                                \
		const type *a = SLOT(type, 1), *b = SLOT(type, 2);                                           \
		const uint32_t *c = SLOT(uint32_t, 3), *d = SLOT(uint32_t, 4);                               \
		EACH_LANE(const type A = a[lane]; const type B = b[lane]; const uint32_t C = c[lane];        \
			  const uint32_t D = d[lane]; result[lane] = (type)(x));                             \
	}

#pragma GCC diagnostic ignored "-Wtype-limits"

UNARIES(UNARY_FUNCTION)
BINARIES(BINARY_FUNCTION)
TERNARIES(TERNARY_FUNCTION)
MIXED(MIXED_FUNCTION)
QUATERNARIES(QUATERNARY_FUNCTION)

/* Sums of numbers of many words: a carry goes from lane to lane's next. */
#define CARRIED(name, type, wide, read, write, x)                                                            \
	OPERATION(name)                                                                                      \
	{                                                                                                    \
		type *d = SLOT(type, 0);                                                                     \
		const type *a = SLOT(type, 1), *b = SLOT(type, 2), *c = SLOT(type, 3);                       \
		const uint32_t carry = warp->carry;                                                          \
		EACH_LANE(const wide A = a[lane]; const wide B = b[lane]; const wide C = c[lane];            \
			  const wide carried = read ? carry >> lane & 1 : 0; (void)C, (void)carried;         \
			  const wide sum = (x); d[lane] = (type)sum;                                         \
			  if (write) warp->carry = (warp->carry & ~(1u << lane)) |                           \
				  (uint32_t)(sum >> sizeof(type) * 8 & 1) << lane);                          \
	}
#define HIGH(type) ((A * B) >> sizeof(type) * 8)
#define LOW(type) ((type)(A * B))
#define CARRYING(_, suffix, letters, type, wide)                                                             \
	_(add_cc_##suffix, "add.cc." #suffix, letters, type, wide, false, true, A + B)                       \
	_(addc_##suffix, "addc." #suffix, letters, type, wide, true, false, A + B + carried)                 \
	_(addc_cc_##suffix, "addc.cc." #suffix, letters, type, wide, true, true, A + B + carried)            \
	_(sub_cc_##suffix, "sub.cc." #suffix, letters, type, wide, false, true, A - B)                       \
	_(subc_##suffix, "subc." #suffix, letters, type, wide, true, false, A - B - carried)                 \
	_(subc_cc_##suffix, "subc.cc." #suffix, letters, type, wide, true, true, A - B - carried)
#define CARRYING_PRODUCTS(_, suffix, letters, type, wide)                                                    \
	_(mad_lo_cc_##suffix, "mad.lo.cc." #suffix, letters, type, wide, false, true, LOW(type) + C)         \
	_(mad_hi_cc_##suffix, "mad.hi.cc." #suffix, letters, type, wide, false, true, HIGH(type) + C)        \
	_(madc_lo_##suffix, "madc.lo." #suffix, letters, type, wide, true, false, LOW(type) + C + carried)   \
	_(madc_hi_##suffix, "madc.hi." #suffix, letters, type, wide, true, false, HIGH(type) + C + carried)  \
	_(madc_lo_cc_##suffix, "madc.lo.cc." #suffix, letters, type, wide, true, true,                       \
		LOW(type) + C + carried)                                                                     \
	_(madc_hi_cc_##suffix, "madc.hi.cc." #suffix, letters, type, wide, true, true,                       \
		HIGH(type) + C + carried)
#define CARRIES(_)                                                                                           \
	CARRYING(_, u32, "www", uint32_t, uint64_t)                                                          \
	CARRYING(_, s32, "www", uint32_t, uint64_t)                                                          \
	CARRYING(_, u64, "lll", uint64_t, u128)                                                              \
	CARRYING(_, s64, "lll", uint64_t, u128)                                                              \
	CARRYING_PRODUCTS(_, u32, "wwww", uint32_t, uint64_t)                                                \
	CARRYING_PRODUCTS(_, u64, "llll", uint64_t, u128)

#define CARRIED_FUNCTION(function, name, operands, type, wide, read, write, x)                               \
	CARRIED(function, type, wide, read, write, x)
CARRIES(CARRIED_FUNCTION)

#define UNARY_ROW(function, name, type, operands, ...) {name, function, operands, 2},
#define BINARY_ROW(function, name, type, operands, ...) {name, function, operands, 3},
#define TERNARY_ROW(function, name, type, operands, ...) {name, function, operands, 4},
#define ROW(function, name, operands, ...) {name, function, operands, sizeof(operands) - 1},

const struct row integer_rows[] = {UNARIES(UNARY_ROW) BINARIES(BINARY_ROW) TERNARIES(TERNARY_ROW) MIXED(ROW)
		QUATERNARIES(ROW) CARRIES(ROW){0}};
