/* vector: a register's worth of floats, whatever the instruction set that this file is compiled for.
 * Included by files that are compiled once for each of them; the Makefile then defines KERNEL, the
 * variant's name. */
#pragma once

#ifdef __SSE2__
#include <immintrin.h>
#endif
#include <string.h>

#include "tensor/dtype.h"

#if defined(__AVX512F__)
#define LANES 16
#define REGISTERS 32
#elif defined(__AVX__)
#define LANES 8
#define REGISTERS 16
#elif defined(__aarch64__)
#define LANES 4
#define REGISTERS 32
#else
#define LANES 4
#define REGISTERS 16
#endif

/* A name for what each variant has its own of: name_x86_64_v4. */
#define VARIANT(name) VARIANT_JOIN(name, KERNEL)
#define VARIANT_JOIN(name, kernel) VARIANT_NAME(name, kernel)
#define VARIANT_NAME(name, kernel) name##_##kernel

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")
#define ALIGNED __attribute__((aligned(64)))

typedef float vector __attribute__((vector_size(4 * LANES)));
typedef int32_t vector_int __attribute__((vector_size(4 * LANES)));
typedef uint32_t vector_bits __attribute__((vector_size(4 * LANES)));
typedef uint16_t vector_half __attribute__((vector_size(2 * LANES)));

INLINE vector vector_load(const float *from)
{
	vector value;

	memcpy(&value, from, sizeof(value));
	return value;
}

INLINE void vector_store(float *to, vector value)
{
	memcpy(to, &value, sizeof(value));
}

/* Copies past the caches: `count` vectors, `to` aligned to them. Such stores are ordered by stream_fence(). */
INLINE void stream_vectors(void *to, const void *from, int count)
{
	for (int i = 0; i < count; i++)
#if defined(__AVX512F__)
		_mm512_stream_si512((__m512i *)to + i, _mm512_loadu_si512((const __m512i *)from + i));
#elif defined(__AVX__)
		_mm256_stream_si256((__m256i *)to + i, _mm256_loadu_si256((const __m256i *)from + i));
#elif defined(__SSE2__)
		_mm_stream_si128((__m128i *)to + i, _mm_loadu_si128((const __m128i *)from + i));
#else
		memcpy((vector *)to + i, (const vector *)from + i, sizeof(vector));
#endif
}

INLINE void stream_fence(void)
{
#ifdef __SSE2__
	_mm_sfence();
#endif
}

INLINE vector vector_of(float value)
{
	return value - (vector){0};
}

/* Each lane's a where `mask` (all bits or none) is set, else b. */
INLINE vector vector_select(vector_int mask, vector a, vector b)
{
	return (vector)(((vector_int)a & mask) | ((vector_int)b & ~mask));
}

/* The lower, or upper, halves of a and b, lane by lane in turn. */
#if LANES == 16
#define vector_interleave_low(a, b)                                                                          \
	__builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define vector_interleave_high(a, b)                                                                         \
	__builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#elif LANES == 8
#define vector_interleave_low(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define vector_interleave_high(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#else
#define vector_interleave_low(a, b) __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define vector_interleave_high(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#endif

/* LANES numbers of bf16. */
INLINE vector vector_of_bf16(const uint16_t *from)
{
	vector_half value;

	memcpy(&value, from, sizeof(value));
	return (vector)(__builtin_convertvector(value, vector_bits) << 16);
}

/* Rounds to nearest, ties to even; a NaN stays one. */
INLINE void vector_store_bf16(uint16_t *to, vector x)
{
	vector_bits bits = (vector_bits)x;
	vector_bits rounded = bits + 0x7fff + (bits >> 16 & 1);
	vector_half value = __builtin_convertvector(
		(vector_bits)vector_select(x == x, (vector)rounded, (vector)(bits | 0x400000)) >> 16,
		vector_half);

	memcpy(to, &value, sizeof(value));
}

/* to = fromᵀ, both squares of LANES × LANES numbers of 32 bits, their rows that many bytes apart. In each
 * round of interleaving, a row's number gives its highest bit to the column's; when all have gone over,
 * rows are columns. */
INLINE void transpose_square(const void *from, int64_t from_stride, void *to, int64_t to_stride)
{
	vector x[LANES], y[LANES];

	UNROLL
	for (int i = 0; i < LANES; i++)
		memcpy(&x[i], (const char *)from + i * from_stride, sizeof(vector));
	UNROLL
	for (int round = 1; round < LANES; round *= 2) {
		UNROLL
		for (int i = 0; i < LANES / 2; i++) {
			y[2 * i] = vector_interleave_low(x[i], x[i + LANES / 2]);
			y[2 * i + 1] = vector_interleave_high(x[i], x[i + LANES / 2]);
		}
		UNROLL
		for (int i = 0; i < LANES; i++)
			x[i] = y[i];
	}
	UNROLL
	for (int i = 0; i < LANES; i++)
		memcpy((char *)to + i * to_stride, &x[i], sizeof(vector));
}

/* 2ⁿ, with n a whole number in −126 … 127. */
INLINE vector vector_power_of_two(vector n)
{
	return (vector)((__builtin_convertvector(n, vector_int) + 127) << 23);
}

/* For x ≤ 40, x = n ln 2 + r with |r| ≤ ln 2 / 2: eʳ − 1, and 2ⁿ in `power`. */
INLINE vector vector_split_exp(vector x, vector *power)
{
	vector n, r, p;

	x = vector_select(x < -60.0f, vector_of(-60.0f), x); /* beside 1, nothing to fp32 from −17 on */
	n = x * 1.44269504f;
	n = n + 0x1.8p23f - 0x1.8p23f; /* to the nearest whole number */
	r = x - n * 0.693359375f + n * 2.12194440e-4f;
	p = 1.0f / 5040 + r * (1.0f / 40320);
	p = 1.0f / 720 + r * p;
	p = 1.0f / 120 + r * p;
	p = 1.0f / 24 + r * p;
	p = 1.0f / 6 + r * p;
	p = 0.5f + r * p;
	*power = vector_power_of_two(n);
	return r + r * r * p;
}

/* eˣ − 1 for x ≤ 0, to about 2 units in the last place, small x included: 2ⁿ (eʳ − 1) + (2ⁿ − 1). */
INLINE vector vector_expm1_negative(vector x)
{
	vector power, p = vector_split_exp(x, &power);

	return power * p + (power - 1.0f);
}

/* eˣ for −60 ≤ x ≤ 0, to about 2 units in the last place; below, e⁻⁶⁰. */
INLINE vector vector_exp_negative(vector x)
{
	vector power, p = vector_split_exp(x, &power);

	return power + power * p;
}

/* eˣ for x ≤ 80, to about 4 units in the last place; the square of eˣᐟ², which is in range also where eˣ is tiny. */
INLINE vector vector_exp(vector x)
{
	vector root, p = vector_split_exp(x * 0.5f, &root);

	root += root * p;
	return root * root;
}

/* 1 / (1 + e⁻ˣ) */
INLINE vector vector_sigmoid(vector x)
{
	vector negative = vector_select(x < 0.0f, x, -x);
	vector e = vector_expm1_negative(negative) + 1.0f; /* e^−|x| */
	vector small = e / (1.0f + e);

	return vector_select(x < 0.0f, small, 1.0f - small);
}
