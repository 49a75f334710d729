/* dtype: the types of a tensor's elements. Rounding to 16 bits is to nearest, ties to even. Branch-free, so
 * that loops over them become vector code. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kernels/common/dtype.h"

enum dtype { DTYPE_F32 = INPUT_F32, DTYPE_BF16 = INPUT_BF16, DTYPE_F16 = INPUT_F16 };

/* Bytes of an element. */
static inline size_t dtype_size(enum dtype dtype)
{
	return dtype == DTYPE_F32 ? 4 : 2;
}

static inline const char *dtype_name(enum dtype dtype)
{
	return dtype == DTYPE_BF16 ? "bf16" : dtype == DTYPE_F16 ? "fp16" : "fp32";
}

static inline float float_of_bits(uint32_t bits)
{
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

static inline uint32_t bits_of_float(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

static inline float bf16_to_float(uint16_t value)
{
	return float_of_bits((uint32_t)value << 16);
}

static inline uint16_t bf16_of_float(float value)
{
	uint32_t bits = bits_of_float(value);
	uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;

	/* a NaN must not be rounded into an infinity */
	return (uint16_t)(value != value ? (bits >> 16) | 0x40 : rounded);
}

static inline float f16_to_float(uint16_t value)
{
	uint32_t sign = (uint32_t)(value & 0x8000) << 16, magnitude = (uint32_t)(value & 0x7fff) << 13;
	/* moves the exponent's bias from 15 to 127, which also makes subnormal numbers normal */
	float scaled = float_of_bits(magnitude) * 0x1p112f;
	uint32_t bits = bits_of_float(scaled);

	bits = magnitude >= 0x7c00 << 13 ? magnitude | 0x7f800000 : bits; /* infinity, NaN */
	return float_of_bits(sign | bits);
}

static inline uint16_t f16_of_float(float value)
{
	uint32_t bits = bits_of_float(value), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
	/* a subnormal result is rounded by an addition that puts its last bit where a float's last is */
	uint32_t small = bits_of_float(float_of_bits(magnitude) + 0.5f) - 0x3f000000;
	uint32_t normal = (magnitude - (112u << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
	uint32_t result = magnitude < 113u << 23 ? small : normal;

	result = magnitude >= 0x477ff000 ? 0x7c00 : result; /* rounds to infinity */
	result = magnitude > 0x7f800000 ? 0x7e00 : result;
	return (uint16_t)(sign | result);
}

/* Element `index` of memory that holds `dtype`. */
static inline float dtype_load(const void *data, enum dtype dtype, int64_t index)
{
	if (dtype == DTYPE_F32)
		return ((const float *)data)[index];
	return dtype == DTYPE_BF16 ? bf16_to_float(((const uint16_t *)data)[index])
				   : f16_to_float(((const uint16_t *)data)[index]);
}

static inline void dtype_store(void *data, enum dtype dtype, int64_t index, float value)
{
	if (dtype == DTYPE_F32)
		((float *)data)[index] = value;
	else
		((uint16_t *)data)[index] = dtype == DTYPE_BF16 ? bf16_of_float(value) : f16_of_float(value);
}
