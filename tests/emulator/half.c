/* half: arithmetic in fp16 and bf16. Each operation is made in fp64, where sums and products are exact enough to be
 * rounded once. */
#include "half.h"

#include "operations.h"

/* The modifiers come behind the value, and before it is rounded. */
static double modified(const struct instruction *instruction, double value)
{
	if (instruction->modifiers & MODIFIER_SATURATE)
		value = value > 0 ? value < 1 ? value : 1 : 0;
	if (instruction->modifiers & MODIFIER_RELU)
		value = value < 0 ? 0 : value;
	return value;
}

#define UNARIES(_)                                                                                           \
	_(neg, "neg", -A)                                                                                    \
	_(abs, "abs", fabs(A))                                                                               \
	_(ex2, "ex2", exp2(A))                                                                               \
	_(tanh, "tanh", tanh(A))
#define BINARIES(_)                                                                                          \
	_(add, "add", A + B)                                                                                 \
	_(sub, "sub", A - B)                                                                                 \
	_(mul, "mul", A *B)                                                                                  \
	_(min, "min", fmin(A, B))                                                                            \
	_(max, "max", fmax(A, B))                                                                            \
	_(min_nan, "min.NaN", isnan(A) || isnan(B) ? NAN : fmin(A, B))                                       \
	_(max_nan, "max.NaN", isnan(A) || isnan(B) ? NAN : fmax(A, B))
#define TERNARIES(_) _(fma, "fma", A *B + C)

/* d, from halves a, b and c of one type; those of the operands that there are. */
#define HALF(function, type, x)                                                                              \
	static uint16_t function##_##type##_half(                                                            \
		const struct instruction *instruction, uint16_t a, uint16_t b, uint16_t c)                   \
	{                                                                                                    \
		const double A = type##_value(a), B = type##_value(b), C = type##_value(c);                  \
                                                                                                             \
		(void)A, (void)B, (void)C;                                                                   \
		return type##_of(modified(instruction, x));                                                  \
	}                                                                                                    \
	OPERATION(function##_##type)                                                                         \
	{                                                                                                    \
		uint16_t *d = SLOT(uint16_t, 0);                                                             \
		const uint16_t *a = SLOT(uint16_t, 1), *b = SLOT(uint16_t, 2), *c = SLOT(uint16_t, 3);       \
		EACH_LANE(d[lane] = function##_##type##_half(instruction, a[lane], b[lane], c[lane]));       \
	}                                                                                                    \
	OPERATION(function##_##type##x2)                                                                     \
	{                                                                                                    \
		uint32_t *d = SLOT(uint32_t, 0);                                                             \
		const uint32_t *a = SLOT(uint32_t, 1), *b = SLOT(uint32_t, 2), *c = SLOT(uint32_t, 3);       \
		EACH_LANE(d[lane] = pair_of(function##_##type##_half(instruction, low_half(a[lane]),         \
						    low_half(b[lane]), low_half(c[lane])),                   \
				  function##_##type##_half(instruction, high_half(a[lane]),                  \
					  high_half(b[lane]), high_half(c[lane]))));                         \
	}
#define HALVES(function, name, x) HALF(function, f16, x) HALF(function, bf16, x)

UNARIES(HALVES)
BINARIES(HALVES)
TERNARIES(HALVES)

#define ROWS(function, name, count)                                                                          \
	{name ".f16", function##_f16, "hhhh", count}, {name ".bf16", function##_bf16, "hhhh", count},        \
		{name ".f16x2", function##_f16x2, "wwww", count},                                            \
		{name ".bf16x2", function##_bf16x2, "wwww", count},
#define UNARY_ROWS(function, name, x) ROWS(function, name, 2)
#define BINARY_ROWS(function, name, x) ROWS(function, name, 3)
#define TERNARY_ROWS(function, name, x) ROWS(function, name, 4)

const struct row half_rows[] = {UNARIES(UNARY_ROWS) BINARIES(BINARY_ROWS) TERNARIES(TERNARY_ROWS){0}};
