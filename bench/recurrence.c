#include "recurrence.h"

#include <math.h>

#include "cpu/vector.h"
#include "op/quasar/problem.h"

#define S 64

static void token(const float *restrict q, const float *restrict k, const float *restrict v,
	float *restrict o, float beta, float *restrict state)
{
	float lambda = 0, alpha, change[S];

	for (int i = 0; i < S; i++)
		lambda += k[i] * k[i];
	alpha = -expm1f(-beta * lambda) / (lambda + (float)QUASAR_EPSILON);
	for (int j = 0; j < S; j++)
		change[j] = v[j];
	for (int i = 0; i < S; i++)
		for (int j = 0; j < S; j++)
			change[j] -= k[i] * state[i * S + j];
	for (int j = 0; j < S; j++) {
		change[j] *= alpha;
		o[j] = 0;
	}
	for (int i = 0; i < S; i++)
		for (int j = 0; j < S; j++) {
			state[i * S + j] += k[i] * change[j];
			o[j] += q[i] * state[i * S + j];
		}
}

static void run(const float *q, const float *k, const float *v, float *o, int64_t tokens, int64_t stride,
	float beta, float *state)
{
	for (int64_t t = 0; t < tokens; t++)
		token(q + t * stride, k + t * stride, v + t * stride, o + t * stride, beta, state);
}

static double peak(void)
{
	enum { ROUNDS = 4000000, CHAINS = 10 };
	vector x[CHAINS], factor = vector_of(0.999f), addend = vector_of(0.001f);

	for (int i = 0; i < CHAINS; i++)
		x[i] = vector_of((float)i);
	for (int n = 0; n < ROUNDS; n++)
		UNROLL
	for (int i = 0; i < CHAINS; i++)
		x[i] = x[i] * factor + addend;
	for (int i = 1; i < CHAINS; i++)
		x[0] += x[i];
	return x[0][0] > 1e30f ? 0 : (double)ROUNDS * CHAINS * LANES;
}

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)

const struct recurrence VARIANT(recurrence) = {TEXT(KERNEL), run, peak};
