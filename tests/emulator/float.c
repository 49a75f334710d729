/* float: arithmetic in fp32 and fp64. What GPUs approximate is computed as well as the host can. */
#include <math.h>

#include "operations.h"

/* GPUs' minimum takes the number of a number and a NaN, and −0 for less than +0. */
#define MINIMUM(a, b) (isnan(a) ? (b) : isnan(b) ? (a) : (a) < (b) || ((a) == (b) && signbit(a)) ? (a) : (b))
#define MAXIMUM(a, b) (isnan(a) ? (b) : isnan(b) ? (a) : (a) > (b) || ((a) == (b) && signbit(b)) ? (a) : (b))
#define NAN_OF(a, b, x) (isnan(a) || isnan(b) ? NAN : (x))

#define FLOATS(_, op, name, x)                                                                               \
	_(op##_f32, name ".f32", float, "wwww", x)                                                           \
	_(op##_f64, name ".f64", double, "llll", x)

#define UNARIES(_)                                                                                           \
	FLOATS(_, neg, "neg", -A)                                                                            \
	_(abs_f32, "abs.f32", float, "ww", fabsf(A))                                                         \
	_(abs_f64, "abs.f64", double, "ll", fabs(A))                                                         \
	_(sqrt_f32, "sqrt.f32", float, "ww", sqrtf(A))                                                       \
	_(sqrt_f64, "sqrt.f64", double, "ll", sqrt(A))                                                       \
	FLOATS(_, rsqrt, "rsqrt", 1 / sqrt(A))                                                               \
	FLOATS(_, rcp, "rcp", 1 / A)                                                                         \
	_(ex2_f32, "ex2.f32", float, "ww", exp2f(A))                                                         \
	_(lg2_f32, "lg2.f32", float, "ww", log2f(A))                                                         \
	_(sin_f32, "sin.f32", float, "ww", sinf(A))                                                          \
	_(cos_f32, "cos.f32", float, "ww", cosf(A))                                                          \
	_(tanh_f32, "tanh.f32", float, "ww", tanhf(A))

#define BINARIES(_)                                                                                          \
	FLOATS(_, add, "add", A + B)                                                                         \
	FLOATS(_, sub, "sub", A - B)                                                                         \
	FLOATS(_, mul, "mul", A *B)                                                                          \
	FLOATS(_, div, "div", A / B)                                                                         \
	FLOATS(_, min, "min", MINIMUM(A, B))                                                                 \
	FLOATS(_, max, "max", MAXIMUM(A, B))                                                                 \
	_(min_nan_f32, "min.NaN.f32", float, "www", NAN_OF(A, B, MINIMUM(A, B)))                             \
	_(max_nan_f32, "max.NaN.f32", float, "www", NAN_OF(A, B, MAXIMUM(A, B)))                             \
	FLOATS(_, copysign, "copysign", copysign(B, A))

#define TERNARIES(_)                                                                                         \
	_(fma_f32, "fma.f32", float, "wwww", fmaf(A, B, C))                                                  \
	_(fma_f64, "fma.f64", double, "llll", fma(A, B, C))                                                  \
	_(mad_f32, "mad.f32", float, "wwww", fmaf(A, B, C))                                                  \
	_(mad_f64, "mad.f64", double, "llll", fma(A, B, C))

#define UNARY_FUNCTION(function, name, type, operands, x) UNARY(function, type, x)
#define BINARY_FUNCTION(function, name, type, operands, x) BINARY(function, type, x)
#define TERNARY_FUNCTION(function, name, type, operands, x) TERNARY(function, type, x)

UNARIES(UNARY_FUNCTION)
BINARIES(BINARY_FUNCTION)
TERNARIES(TERNARY_FUNCTION)

/* finite, infinite, number, notanumber, normal, subnormal */
#define TESTS(_, suffix, type, letters)                                                                      \
	_(testp_finite_##suffix, "testp.finite." #suffix, type, letters, isfinite(A))                        \
	_(testp_infinite_##suffix, "testp.infinite." #suffix, type, letters, isinf(A))                       \
	_(testp_number_##suffix, "testp.number." #suffix, type, letters, !isnan(A))                          \
	_(testp_notanumber_##suffix, "testp.notanumber." #suffix, type, letters, isnan(A))                   \
	_(testp_normal_##suffix, "testp.normal." #suffix, type, letters, isnormal(A))                        \
	_(testp_subnormal_##suffix, "testp.subnormal." #suffix, type, letters, fpclassify(A) == FP_SUBNORMAL)
#define ALL_TESTS(_)                                                                                         \
	TESTS(_, f32, float, "pw")                                                                           \
	TESTS(_, f64, double, "pl")
#define TEST_FUNCTION(function, name, type, operands, x)                                                     \
	OPERATION(function)                                                                                  \
	{                                                                                                    \
		uint32_t *d = SLOT(uint32_t, 0);                                                             \
		const type *a = SLOT(type, 1);                                                               \
		EACH_LANE(const type A = a[lane]; d[lane] = (x) ? 1 : 0);                                    \
	}
ALL_TESTS(TEST_FUNCTION)

#define UNARY_ROW(function, name, type, operands, ...) {name, function, operands, 2},
#define BINARY_ROW(function, name, type, operands, ...) {name, function, operands, 3},
#define TERNARY_ROW(function, name, type, operands, ...) {name, function, operands, 4},

const struct row float_rows[] = {
	UNARIES(UNARY_ROW) BINARIES(BINARY_ROW) TERNARIES(TERNARY_ROW) ALL_TESTS(UNARY_ROW){0}};
