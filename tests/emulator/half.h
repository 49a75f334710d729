/* half: fp16 and bf16, in registers of 16 bits or two in one of 32. */
#pragma once

#include <math.h>

#include "tensor/dtype.h"

static inline uint16_t low_half(uint32_t pair)
{
	return (uint16_t)pair;
}

static inline uint16_t high_half(uint32_t pair)
{
	return (uint16_t)(pair >> 16);
}

static inline uint32_t pair_of(uint16_t low, uint16_t high)
{
	return low | (uint32_t)high << 16;
}

/* To odd, so that rounding once more is as rounding once. */
static inline float float_of_double(double value)
{
	float nearest = (float)value;

	if ((double)nearest == value || !isfinite(nearest) || bits_of_float(nearest) & 1)
		return nearest;
	return nextafterf(nearest, (double)nearest < value ? INFINITY : -INFINITY);
}

static inline double f16_value(uint16_t bits)
{
	return f16_to_float(bits);
}

static inline double bf16_value(uint16_t bits)
{
	return bf16_to_float(bits);
}

static inline uint16_t f16_of(double value)
{
	return f16_of_float(float_of_double(value));
}

static inline uint16_t bf16_of(double value)
{
	return bf16_of_float(float_of_double(value));
}
