/* convert: cvt, from any type to any other. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "half.h"
#include "operations.h"

enum {
	NEAREST,
	TOWARDS_ZERO,
	DOWN,
	UP,
	NEAREST_INTEGER,
	ZERO_INTEGER,
	DOWN_INTEGER,
	UP_INTEGER,
	NEAREST_AWAY
};
static const char *const roundings[] = {"rn", "rz", "rm", "rp", "rni", "rzi", "rmi", "rpi", "rna", NULL};

static double round_to_integer(double value, int64_t rounding)
{
	switch (rounding) {
	case NEAREST_INTEGER:
		return nearbyint(value);
	case ZERO_INTEGER:
		return trunc(value);
	case DOWN_INTEGER:
		return floor(value);
	case UP_INTEGER:
		return ceil(value);
	default:
		return value;
	}
}

/* What the modifiers make of a value before it is rounded to its type. */
static double modified(const struct instruction *instruction, double value)
{
	value = round_to_integer(value, instruction->immediate);
	if (instruction->modifiers & MODIFIER_SATURATE)
		value = value > 0 ? value < 1 ? value : 1 : 0;
	if (instruction->modifiers & MODIFIER_RELU)
		value = value < 0 ? 0 : value;
	return value;
}

/* The neighbour of what rounding to nearest gave, where another direction asks for it. Numbers are sign and magnitude,
 * so that counting bits up goes away from zero. */
static uint32_t redirect(uint32_t bits, uint32_t sign_bit, double rounded, double value, int64_t rounding)
{
	bool outward = rounding == DOWN ? value < 0 : rounding == UP ? value > 0 : false;

	if (rounding == NEAREST || rounded == value || isnan(value))
		return bits;
	if (rounding == DOWN || rounding == UP) {
		if (rounding == DOWN ? rounded < value : rounded > value)
			return bits;
		return outward ? bits + 1 : (bits & ~sign_bit) ? bits - 1 : bits ^ sign_bit;
	}
	return fabs(rounded) > fabs(value) ? bits - 1 : bits;
}

static uint16_t to_f16(double value, int64_t rounding)
{
	uint16_t bits = f16_of(value);

	return (uint16_t)redirect(bits, 0x8000, f16_value(bits), value, rounding);
}

static uint16_t to_bf16(double value, int64_t rounding)
{
	uint16_t bits = bf16_of(value);

	return (uint16_t)redirect(bits, 0x8000, bf16_value(bits), value, rounding);
}

static float to_f32(double value, int64_t rounding)
{
	float nearest = (float)value;

	return float_of_bits(redirect(bits_of_float(nearest), 1u << 31, nearest, value, rounding));
}

static double to_f64(double value, int64_t rounding)
{
	(void)rounding;
	return value;
}

/* 19 bits of an fp32, the others zero; halves away from zero. */
static float to_tf32(double value)
{
	uint32_t bits = bits_of_float((float)value);

	return isnan(value) ? NAN : float_of_bits((bits + 0x1000) & ~0x1fffu);
}

/* Registers may be wider than the types: the low bits are read, and all are written. */
static inline const void *source(const struct warp *warp, const struct instruction *instruction, int lane)
{
	return warp->registers + instruction->slot[1] + lane * instruction->width[1];
}

static inline void put_integer(
	const struct warp *warp, const struct instruction *instruction, int lane, int64_t value)
{
	memcpy(warp->registers + instruction->slot[0] + lane * instruction->width[0], &value,
		instruction->width[0]);
}

/* Whether the registers are as wide as the types: what is usual goes fast. */
static inline bool fits(const struct instruction *instruction, size_t to, size_t from)
{
	return instruction->width[0] == to && instruction->width[1] == from;
}

#define SIGNED_TYPES(_, ...)                                                                                 \
	_(s8, int8_t, INT8_MIN, INT8_MAX, __VA_ARGS__)                                                       \
	_(s16, int16_t, INT16_MIN, INT16_MAX, __VA_ARGS__)                                                   \
	_(s32, int32_t, INT32_MIN, INT32_MAX, __VA_ARGS__)                                                   \
	_(s64, int64_t, INT64_MIN, INT64_MAX, __VA_ARGS__)
#define UNSIGNED_TYPES(_, ...)                                                                               \
	_(u8, uint8_t, 0, UINT8_MAX, __VA_ARGS__)                                                            \
	_(u16, uint16_t, 0, UINT16_MAX, __VA_ARGS__)                                                         \
	_(u32, uint32_t, 0, UINT32_MAX, __VA_ARGS__)                                                         \
	_(u64, uint64_t, 0, UINT64_MAX, __VA_ARGS__)
#define INTEGERS(_, ...) SIGNED_TYPES(_, __VA_ARGS__) UNSIGNED_TYPES(_, __VA_ARGS__)
#define FLOATS(_, ...)                                                                                       \
	_(f16, uint16_t, f16_value, __VA_ARGS__)                                                             \
	_(bf16, uint16_t, bf16_value, __VA_ARGS__)                                                           \
	_(f32, float, (double), __VA_ARGS__)                                                                 \
	_(f64, double, (double), __VA_ARGS__)

#define INTEGER_OF_INTEGER(to, type, least, most, from, from_type)                                           \
	OPERATION(cvt_##to##_##from)                                                                         \
	{                                                                                                    \
		const bool saturate = instruction->modifiers & MODIFIER_SATURATE;                            \
                                                                                                             \
		if (!saturate && fits(instruction, sizeof(type), sizeof(from_type)))                         \
			EACH_LANE(SLOT(type, 0)[lane] = (type)SLOT(from_type, 1)[lane]);                     \
		else                                                                                         \
			EACH_LANE(from_type value;                                                           \
				  memcpy(&value, source(warp, instruction, lane), sizeof(value));            \
				  type result = (type)value; if (saturate) {                                 \
					  __int128 wide = value;                                             \
					  result = wide < (least) ? (least)                                  \
						  : wide > (most) ? (most)                                   \
								  : (type)value;                             \
				  } put_integer(warp, instruction, lane, (int64_t)result));                  \
	}
#define INTEGER_OF_FLOAT(to, type, least, most, from, from_type, value_of)                                   \
	OPERATION(cvt_##to##_##from)                                                                         \
	{                                                                                                    \
		EACH_LANE(from_type bits; memcpy(&bits, source(warp, instruction, lane), sizeof(bits));      \
			  const double value = round_to_integer(value_of(bits), instruction->immediate);     \
			  type result = isnan(value)         ? 0                                             \
				  : value <= (double)(least) ? (least)                                       \
				  : value >= (double)(most)  ? (most)                                        \
							     : (type)value;                                   \
			  put_integer(warp, instruction, lane, (int64_t)result));                            \
	}
#define FLOAT_OF_INTEGER(from, from_type, least, most, to, type)                                             \
	OPERATION(cvt_##to##_##from)                                                                         \
	{                                                                                                    \
		type *d = SLOT(type, 0);                                                                     \
		EACH_LANE(from_type value; memcpy(&value, source(warp, instruction, lane), sizeof(value));   \
			  d[lane] = to##_of_##from(value, instruction->immediate));                          \
	}
#define FLOAT_OF_FLOAT(from, from_type, value_of, to, type)                                                  \
	OPERATION(cvt_##to##_##from)                                                                         \
	{                                                                                                    \
		type *d = SLOT(type, 0);                                                                     \
                                                                                                             \
		if (!instruction->modifiers && instruction->immediate == NEAREST &&                          \
			fits(instruction, sizeof(type), sizeof(from_type)))                                  \
			EACH_LANE(d[lane] = to_##to(value_of(SLOT(from_type, 1)[lane]), NEAREST));           \
		else                                                                                         \
			EACH_LANE(from_type value;                                                           \
				  memcpy(&value, source(warp, instruction, lane), sizeof(value));            \
				  d[lane] = to_##to(                                                         \
					  modified(instruction, value_of(value)), instruction->immediate));  \
	}

/* Numbers of 64 bits do not fit an fp64, and must not be rounded twice. */
#define FROM_INTEGER(from, from_type, least, most, ...)                                                      \
	static inline float f32_of_##from(from_type value, int64_t rounding)                                 \
	{                                                                                                    \
		return sizeof(value) < 8 || rounding != NEAREST ? to_f32((double)value, rounding)            \
								: (float)value;                              \
	}                                                                                                    \
	static inline double f64_of_##from(from_type value, int64_t rounding)                                \
	{                                                                                                    \
		return to_f64((double)value, rounding);                                                      \
	}                                                                                                    \
	static inline uint16_t f16_of_##from(from_type value, int64_t rounding)                              \
	{                                                                                                    \
		return to_f16((double)value, rounding);                                                      \
	}                                                                                                    \
	static inline uint16_t bf16_of_##from(from_type value, int64_t rounding)                             \
	{                                                                                                    \
		return to_bf16((double)value, rounding);                                                     \
	}
INTEGERS(FROM_INTEGER, )

#define FROM_EACH_INTEGER(_)                                                                                 \
	_(s8, int8_t)                                                                                        \
	_(s16, int16_t)                                                                                      \
	_(s32, int32_t) _(s64, int64_t) _(u8, uint8_t) _(u16, uint16_t) _(u32, uint32_t) _(u64, uint64_t)
#define TO_EACH_FLOAT(_) _(f16, uint16_t) _(bf16, uint16_t) _(f32, float) _(f64, double)

#define INTEGERS_OF(from, from_type) INTEGERS(INTEGER_OF_INTEGER, from, from_type)
#define INTEGERS_OF_FLOAT(from, from_type, value_of, ...)                                                    \
	INTEGERS(INTEGER_OF_FLOAT, from, from_type, value_of)
#define FLOATS_TO(to, type) INTEGERS(FLOAT_OF_INTEGER, to, type) FLOATS(FLOAT_OF_FLOAT, to, type)

FROM_EACH_INTEGER(INTEGERS_OF)
FLOATS(INTEGERS_OF_FLOAT, )
TO_EACH_FLOAT(FLOATS_TO)

OPERATION(cvt_tf32_f32)
{
	float *d = SLOT(float, 0);
	const float *a = SLOT(float, 1);

	EACH_LANE(d[lane] = to_tf32(a[lane]));
}

/* Two of fp32 to a pair: the first is the high one. */
#define PAIR_OF_F32(to)                                                                                      \
	OPERATION(cvt_##to##x2_f32)                                                                          \
	{                                                                                                    \
		uint32_t *d = SLOT(uint32_t, 0);                                                             \
		const float *high = SLOT(float, 1), *low = SLOT(float, 2);                                   \
		const int64_t rounding = instruction->immediate;                                             \
                                                                                                             \
		if (rounding == NEAREST && !instruction->modifiers)                                          \
			EACH_LANE(d[lane] = pair_of(to##_of_float(low[lane]), to##_of_float(high[lane])));   \
		else                                                                                         \
			EACH_LANE(d[lane] = pair_of(to_##to(modified(instruction, low[lane]), rounding),     \
					  to_##to(modified(instruction, high[lane]), rounding)));            \
	}
PAIR_OF_F32(f16)
PAIR_OF_F32(bf16)

#define ROW(to, from) {"cvt." #to "." #from, cvt_##to##_##from, "aa", 2},
#define INTEGER_ROW(to, type, least, most, from, from_type, ...) ROW(to, from)
#define INTEGER_ROWS(from, from_type) INTEGERS(INTEGER_ROW, from, from_type)
#define FLOAT_ROW(from, from_type, value_of, to, type) ROW(to, from)
#define FROM_INTEGER_ROW(from, from_type, least, most, to, type) ROW(to, from)
#define FLOAT_ROWS(to, type) INTEGERS(FROM_INTEGER_ROW, to, type) FLOATS(FLOAT_ROW, to, type)
#define FROM_FLOAT_ROWS(from, from_type, value_of, ...) INTEGERS(INTEGER_ROW, from, from_type)

const struct row convert_rows[] = {FROM_EACH_INTEGER(INTEGER_ROWS) FLOATS(FROM_FLOAT_ROWS, )
					   TO_EACH_FLOAT(FLOAT_ROWS){"cvt.tf32.f32", cvt_tf32_f32, "ww", 2},
	{"cvt.f16x2.f32", cvt_f16x2_f32, "www", 3}, {"cvt.bf16x2.f32", cvt_bf16x2_f32, "www", 3}, {0}};

/* cvt{.rounding}{.relu}{.ftz}{.sat}.to.from */
static int decode_cvt(struct decoding *decoding, struct error *err)
{
	int rounding = take_one_of(decoding, roundings);
	char name[64];

	decoding->instruction->immediate = rounding < 0 ? NEAREST : rounding;
	decoding->instruction->modifiers = (uint8_t)((take_part(decoding, "sat") ? MODIFIER_SATURATE : 0) |
		(take_part(decoding, "relu") ? MODIFIER_RELU : 0));
	drop_parts(decoding, "ftz"); /* subnormal numbers are kept */
	if (decoding->part_count != 3)
		return not_understood(decoding, err, "no such conversion");
	snprintf(name, sizeof(name), "cvt.%s.%s", decoding->parts[1], decoding->parts[2]);
	return decode_row(decoding, name, err);
}

const struct family convert_families[] = {{"cvt", decode_cvt}, {0}};
