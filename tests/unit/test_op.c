/* QuasarAttention: the fp64 reference against hand-derived values and other formulations, and what only
 * this operation has. The CPU version is compared with the reference in test_family.c. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "cpu/cpu.h"
#include "measure/fixture.h"
#include "op/quasar/cpu.h"
#include "op/quasar/reference.h"
#include "tensor/compare.h"

#define MOST_HEADS 16

static void assert_near(double value, double expected, double within)
{
	if (!(fabs(value - expected) <= within))
		fail_msg("%.17g is not within %g of %.17g", value, within, expected);
}

/* --- 16-bit numbers ------------------------------------------------------------------------------ */

/* What 16 bits mean, by the definition of the formats. */
static double meaning(uint16_t bits, int exponent_bits)
{
	int fraction_bits = 15 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1;
	int exponent = bits >> fraction_bits & ((1 << exponent_bits) - 1);
	int fraction = bits & ((1 << fraction_bits) - 1);
	double sign = bits & 0x8000 ? -1 : 1;

	if (exponent == (1 << exponent_bits) - 1)
		return fraction ? NAN : sign * INFINITY;
	if (!exponent)
		return sign * ldexp(fraction, 1 - bias - fraction_bits);
	return sign * ldexp((1 << fraction_bits) + fraction, exponent - bias - fraction_bits);
}

static void halves_have_their_meaning(void **state)
{
	(void)state;
	for (uint32_t bits = 0; bits < 65536; bits++) {
		uint16_t half = (uint16_t)bits;
		double bf16 = meaning(half, 8), f16 = meaning(half, 5);

		if (isnan(bf16)) {
			assert_true(isnan(bf16_to_float(half)));
			assert_true(isnan(bf16_to_float(bf16_of_float(bf16_to_float(half)))));
		} else {
			assert_true((double)bf16_to_float(half) == bf16);
			assert_int_equal(bf16_of_float((float)bf16), half);
		}
		if (isnan(f16)) {
			assert_true(isnan(f16_to_float(half)));
			assert_true(isnan(f16_to_float(f16_of_float(f16_to_float(half)))));
		} else {
			assert_true((double)f16_to_float(half) == f16);
			assert_int_equal(f16_of_float((float)f16), half);
		}
	}
}

/* Between two neighbours: the nearer one, or the even one from the middle. */
static void halves_round_to_nearest_even(void **state)
{
	(void)state;
	for (uint32_t bits = 0; bits < 0x7c00; bits++) {
		double low = meaning((uint16_t)bits, 5), high = meaning((uint16_t)(bits + 1), 5);
		float middle = (float)((low + (isinf(high) ? 65536 : high)) / 2);

		assert_int_equal(f16_of_float(nextafterf(middle, 0)), bits);
		assert_int_equal(f16_of_float(nextafterf(middle, INFINITY)), bits + 1);
		assert_int_equal(f16_of_float(-middle), 0x8000 | (bits + (bits & 1)));
	}
	for (uint32_t bits = 0x0080; bits < 0x7f7f; bits++) {
		double low = meaning((uint16_t)bits, 8), high = meaning((uint16_t)(bits + 1), 8);
		float middle = (float)((low + high) / 2);

		assert_int_equal(bf16_of_float(nextafterf(middle, 0)), bits);
		assert_int_equal(bf16_of_float(nextafterf(middle, INFINITY)), bits + 1);
		assert_int_equal(bf16_of_float(-middle), 0x8000 | (bits + (bits & 1)));
	}
}

/* --- problems on random tensors ------------------------------------------------------------------ */

enum { Q, K, V, O, BETA, INITIAL, FINAL, LOG_GATE }; /* of the family */

struct shape {
	enum semantics semantics;
	int64_t batch, tokens;
	int heads, dim;
	enum dtype dtype;
};

/* A fixture as a problem of quasar's own, and what the reference makes of it. */
struct trial {
	struct fixture made;
	struct quasar_problem problem;
	const float *beta;
	float *initial, *final;
	double *o, *final_reference;
	size_t count, states;
};

static struct device cpu;

/* `sequences`: how many are packed, where they are. */
static void trial_make(
	struct trial *trial, const struct shape *shape, enum quasar_function function, int64_t sequences)
{
	const struct fixture_plan plan = {
		.family = families[0],
		.shape = {shape->batch, shape->tokens, shape->heads, shape->dim, shape->dim, 0, sequences},
		.dtype = shape->dtype,
		.options = {(int)function},
		.states = true,
		.seed = 7,
	};
	const struct tensor *tensors = trial->made.problem.tensors;
	struct error err = {0};

	device_open_cpu(&cpu);
	if (fixture_make(&trial->made, &cpu, &plan, &err) < 0)
		fail_msg("%s", err.message);
	trial->beta = tensors[BETA].data;
	trial->initial = tensors[INITIAL].data;
	trial->final = tensors[FINAL].data;
	trial->count = trial->made.count[O];
	trial->states = trial->made.count[FINAL];
	trial->problem = (struct quasar_problem){
		.semantics = shape->semantics,
		.batch = shape->batch,
		.tokens = shape->tokens,
		.heads = shape->heads,
		.dim = shape->dim,
		.q = tensors[Q],
		.k = tensors[K],
		.v = tensors[V],
		.o = tensors[O],
		.beta = trial->beta,
		.initial_state = trial->initial,
		.final_state = trial->final,
		.gated = tensors[LOG_GATE].data != NULL,
		.log_gate = tensors[LOG_GATE].data,
		.sequences = sequences,
		.starts = trial->made.starts,
	};
	trial->o = xmalloc(trial->count * sizeof(*trial->o));
	trial->final_reference = xmalloc(trial->states * sizeof(double));
}

static void trial_free(struct trial *trial)
{
	fixture_free(&trial->made);
	free(trial->o);
	free(trial->final_reference);
}

static void reference(struct trial *trial)
{
	struct error err = {0};

	if (quasar_reference(&trial->problem, trial->o, trial->final_reference, &err) < 0)
		fail_msg("%s", err.message);
}

/* --- the reference ------------------------------------------------------------------------------- */

/* Contiguous fp32 tensors of one batch that a test fills by hand. */
struct manual {
	struct quasar_problem problem;
	float *q, *k, *v, *o, beta[MOST_HEADS];
	double *expected;
	size_t count;
};

static void manual_make(
	struct manual *manual, enum semantics semantics, int64_t tokens, int heads, float beta)
{
	size_t count = (size_t)(tokens * heads * 32);

	*manual = (struct manual){.count = count};
	manual->q = xcalloc(count, sizeof(float));
	manual->k = xcalloc(count, sizeof(float));
	manual->v = xcalloc(count, sizeof(float));
	manual->o = xcalloc(count, sizeof(float));
	manual->expected = xcalloc(count, sizeof(double));
	for (int i = 0; i < heads; i++)
		manual->beta[i] = beta;
	manual->problem = (struct quasar_problem){
		.semantics = semantics,
		.batch = 1,
		.tokens = tokens,
		.heads = heads,
		.dim = 32,
		.q = tensor_contiguous(manual->q, DTYPE_F32, tokens, heads, 32),
		.k = tensor_contiguous(manual->k, DTYPE_F32, tokens, heads, 32),
		.v = tensor_contiguous(manual->v, DTYPE_F32, tokens, heads, 32),
		.o = tensor_contiguous(manual->o, DTYPE_F32, tokens, heads, 32),
		.beta = manual->beta,
	};
}

/* What was computed is `expected`, by the reference and by the CPU version. */
static void manual_assert_and_free(struct manual *manual)
{
	double *o = xmalloc(manual->count * sizeof(*o));
	struct error err = {0};

	assert_int_equal(quasar_reference(&manual->problem, o, NULL, &err), 0);
	assert_int_equal(quasar_cpu(&manual->problem, &err), 0);
	for (size_t i = 0; i < manual->count; i++) {
		assert_near(o[i], manual->expected[i], 1e-6);
		assert_near((double)manual->o[i], manual->expected[i], 1e-5);
	}
	free(o);
	free(manual->q);
	free(manual->k);
	free(manual->v);
	free(manual->o);
	free(manual->expected);
}

static void causal_by_hand(void **state)
{
	struct manual m;
	/* two keys along axis 0, of length 2 and 1; then one along axis 5 that changes nothing for axis 0 */
	double beta = 0.75, first = (1 - exp(-beta * 4)) / 4, second = 1 - exp(-beta);
	double s;

	(void)state;
	manual_make(&m, SEMANTICS_CAUSAL, 3, 1, 0.75f);
	m.k[0] = 2;
	m.v[1] = 3; /* S[0][1] = α 2·3 */
	m.q[0] = 5;
	s = first * 2 * 3;
	m.expected[1] = 5 * s;
	m.k[32] = 1;
	m.v[32 + 1] = 7; /* S[0][1] = (1 − α) s + α 7 */
	m.q[32] = 1;
	m.q[32 + 5] = 100; /* nothing there yet */
	s = (1 - second) * s + second * 7;
	m.expected[32 + 1] = s;
	m.k[64 + 5] = 1;
	m.v[64 + 2] = 4;
	m.q[64] = 1;
	m.q[64 + 5] = 1;
	m.expected[64 + 1] = s;
	m.expected[64 + 2] = second * 4;
	manual_assert_and_free(&m);
}

/* Two heads: a chunk is 32 tokens of both, the first half of the sequence is pseudo-head 0's. */
static void upstream_by_hand(void **state)
{
	struct manual m;
	double beta = 1.5, lambda = 4, alpha = (1 - exp(-beta * lambda)) / lambda;
	/* S⁺ = α k vᵀ, then P S⁺ + R = (1 − α λ) S⁺ + α k vᵀ */
	double s = alpha * 2 * 3, twice = (1 - alpha * lambda) * s + s;
	int heads = 2, width = 64;

	(void)state;
	manual_make(&m, SEMANTICS_UPSTREAM, 128, heads, 1.5f);
	/* pseudo-head 0 reads tokens 0 … 63; row 10 of its chunk 0 is token 5, head 0 */
	m.k[5 * width] = 2;
	m.v[5 * width + 1] = 3;
	/* a query before the key, in the same chunk, sees it: row 3, that is token 1, head 1; the output is
	 * token 3 of head 0 */
	m.q[1 * width + 32] = 1;
	m.expected[3 * width + 1] = twice;
	/* in the next chunk only S⁺ has remained: row 1 of chunk 1 is token 32, head 1 → token 65, head 0 */
	m.q[32 * width + 32] = 1;
	m.expected[65 * width + 1] = s;
	/* pseudo-head 1 begins at token 64 with a state of zeros: its chunk 0 row 0 → token 0, head 1 */
	m.q[64 * width] = 1;
	m.k[70 * width + 2] = 1;
	m.v[70 * width + 4] = 1;
	m.q[64 * width + 2] = 1;
	alpha = 1 - exp(-beta);
	m.expected[0 * width + 32 + 4] = (1 - alpha) * alpha + alpha;
	manual_assert_and_free(&m);
}

/* One head: then rows are tokens. Padding zeros does not change the state, and is not written. */
static void upstream_pads_with_zeros(void **state)
{
	struct manual m;
	double alpha = 1 - exp(-2.0);

	(void)state;
	manual_make(&m, SEMANTICS_UPSTREAM, 70, 1, 2);
	m.k[69 * 32] = 1;
	m.v[69 * 32] = 1;
	m.q[64 * 32] = 1;
	m.q[63 * 32] = 1; /* the chunk before the key */
	m.expected[64 * 32] = (1 - alpha) * alpha + alpha;
	manual_assert_and_free(&m);
}

/* The recurrence, token by token, over rows that lie one behind the other; o may be NULL. */
static void recurrence(const double *q, const double *k, const double *v, double beta, int rows, int dim,
	double *state, double *o)
{
	for (int t = 0; t < rows; t++, k += dim, v += dim) {
		double lambda = 0, alpha;

		for (int i = 0; i < dim; i++)
			lambda += k[i] * k[i];
		alpha = (1 - exp(-beta * lambda)) / (lambda + 1e-8);
		for (int j = 0; j < dim; j++) {
			double ks = 0, sum = 0;

			for (int i = 0; i < dim; i++)
				ks += k[i] * state[i * dim + j];
			for (int i = 0; i < dim; i++)
				state[i * dim + j] += alpha * k[i] * (v[j] - ks);
			for (int i = 0; o && i < dim; i++)
				sum += q[t * dim + i] * state[i * dim + j];
			if (o)
				o[t * dim + j] = sum;
		}
	}
}

/* Upstream in other words: through each chunk twice by the recurrence, then all queries at once. */
static void upstream_is_the_recurrence_twice(void **state)
{
	struct shape shape = {SEMANTICS_UPSTREAM, 2, 200, 3, 32, DTYPE_F32};
	struct trial f;
	int padded = 256, dim = 32, heads = 3;

	(void)state;
	trial_make(&f, &shape, (enum quasar_function)shape.semantics, 0);
	reference(&f);
	for (int b = 0; b < 2; b++) {
		size_t size = (size_t)(padded * heads * dim);
		double *flat[3], s[32 * 32], twice[32 * 32];
		const struct tensor *inputs[] = {&f.problem.q, &f.problem.k, &f.problem.v};

		for (int i = 0; i < 3; i++) {
			flat[i] = xcalloc(size, sizeof(double));
			for (int n = 0; n < 200 * heads * dim; n++)
				flat[i][n] = (double)((float *)inputs[i]->data)[b * 200 * heads * dim + n];
		}
		for (int h = 0; h < heads; h++) {
			for (int i = 0; i < dim * dim; i++)
				s[i] = (double)f.initial[(b * heads + h) * dim * dim + i];
			for (int row = 0; row < padded; row += 64) {
				size_t at = (size_t)((h * padded + row) * dim);

				recurrence(NULL, flat[1] + at, flat[2] + at, (double)f.beta[h], 64, dim, s,
					NULL);
				memcpy(twice, s, sizeof(s));
				recurrence(NULL, flat[1] + at, flat[2] + at, (double)f.beta[h], 64, dim,
					twice, NULL);
				for (int r = 0; r < 64 && row + r < 200; r++)
					for (int j = 0; j < dim; j++) {
						double sum = 0;

						for (int i = 0; i < dim; i++)
							sum += flat[0][at + (size_t)(r * dim + i)] *
								twice[i * dim + j];
						assert_near(sum,
							f.o[((b * 200 + row + r) * heads + h) * dim + j],
							1e-9);
					}
			}
			for (int i = 0; i < dim * dim; i++)
				assert_near(s[i], f.final_reference[(b * heads + h) * dim * dim + i], 1e-9);
		}
		for (int i = 0; i < 3; i++)
			free(flat[i]);
	}
	trial_free(&f);
}

/* Keys along axis 0 of length 2 and 1; between them the state decays to a quarter, before the last token to nothing. */
static void gated_by_hand(void **state)
{
	struct manual m;
	double beta = 0.75, first = (1 - exp(-beta * 4)) / 4, second = 1 - exp(-beta);
	float log_gate[3] = {-7, logf(0.25f), -INFINITY};
	double s;

	(void)state;
	manual_make(&m, SEMANTICS_CAUSAL, 3, 1, (float)beta);
	m.problem.gated = true;
	m.problem.log_gate = log_gate;
	m.k[0] = 2;
	m.k[32] = 1;
	m.k[2 * 32 + 5] = 1;
	for (int t = 0; t < 3; t++)
		m.q[t * 32] = 1;
	m.v[0] = 3;
	m.v[32] = -1;
	m.v[2 * 32] = 10;
	s = first * 2 * 3; /* S[0][0]; the state was zeros before, whatever the first gate is */
	m.expected[0] = s;
	s *= 0.25;
	s += second * (-1 - s);
	m.expected[32] = s;
	m.expected[2 * 32] = 0;
	manual_assert_and_free(&m);
}

/* Packed, with a gate, in the plainest words: S_t = g (I − α kᵀ k) S_{t−1} + α kᵀ v by matrices, sequence by sequence. */
static void packs_and_gates_are_the_recurrence(void **state)
{
	enum { T = 40, S = 32, SEQUENCES = 4 };
	static const int64_t starts[SEQUENCES + 1] = {0, 7, 7, 39, T};
	struct trial f;
	const struct tensor *tensors = f.made.problem.tensors;
	const float *q, *k, *v, *log_gate;

	(void)state;
	trial_make(
		&f, &(struct shape){SEMANTICS_CAUSAL, 1, T, 1, S, DTYPE_F32}, QUASAR_PACKED_GATED, SEQUENCES);
	f.problem.starts = starts;
	reference(&f);
	q = tensors[Q].data;
	k = tensors[K].data;
	v = tensors[V].data;
	log_gate = tensors[LOG_GATE].data;
	for (int n = 0; n < SEQUENCES; n++) {
		double s[S][S], next[S][S];

		for (int i = 0; i < S * S; i++)
			s[i / S][i % S] = (double)f.initial[n * S * S + i];
		for (int64_t t = starts[n]; t < starts[n + 1]; t++) {
			double lambda = 0, alpha;

			for (int i = 0; i < S; i++)
				lambda += (double)k[t * S + i] * (double)k[t * S + i];
			alpha = (1 - exp(-(double)f.beta[0] * lambda)) / (lambda + 1e-8);
			for (int i = 0; i < S; i++)
				for (int j = 0; j < S; j++) {
					next[i][j] = alpha * (double)k[t * S + i] * (double)v[t * S + j];
					for (int m = 0; m < S; m++)
						next[i][j] += exp((double)log_gate[t]) *
							((i == m) -
								alpha * (double)k[t * S + i] *
									(double)k[t * S + m]) *
							s[m][j];
				}
			memcpy(s, next, sizeof(s));
			for (int j = 0; j < S; j++) {
				double o = 0;

				for (int i = 0; i < S; i++)
					o += (double)q[t * S + i] * s[i][j];
				assert_near(f.o[t * S + j], o, 1e-11);
			}
		}
		for (int i = 0; i < S * S; i++)
			assert_near(f.final_reference[n * S * S + i], s[i / S][i % S], 1e-11);
	}
	trial_free(&f);
}

/* Causal in other words: by chunks, with W and U (docs/math.md). */
static void causal_is_its_chunked_form(void **state)
{
	enum { C = 24, T = 96, S = 32 };
	struct shape shape = {SEMANTICS_CAUSAL, 1, T, 1, S, DTYPE_F32};
	struct trial f;
	double s[S * S], w[C * S], u[C * S], n[C * S];

	(void)state;
	trial_make(&f, &shape, (enum quasar_function)shape.semantics, 0);
	reference(&f);
	for (int i = 0; i < S * S; i++)
		s[i] = (double)f.initial[i];
	for (int first = 0; first < T; first += C) {
		const float *q = (float *)f.problem.q.data + first * S;
		const float *k = (float *)f.problem.k.data + first * S;
		const float *v = (float *)f.problem.v.data + first * S;

		for (int r = 0; r < C; r++) {
			double alpha, lambda = 0, kk[C] = {0};

			for (int p = 0; p <= r; p++)
				for (int i = 0; i < S; i++)
					kk[p] += (double)k[r * S + i] * (double)k[p * S + i];
			lambda = kk[r];
			alpha = (1 - exp(-(double)f.beta[0] * lambda)) / (lambda + 1e-8);
			for (int i = 0; i < S; i++) {
				w[r * S + i] = alpha * (double)k[r * S + i];
				u[r * S + i] = alpha * (double)v[r * S + i];
				for (int p = 0; p < r; p++) {
					w[r * S + i] -= alpha * kk[p] * w[p * S + i];
					u[r * S + i] -= alpha * kk[p] * u[p * S + i];
				}
			}
			for (int j = 0; j < S; j++) {
				n[r * S + j] = u[r * S + j];
				for (int i = 0; i < S; i++)
					n[r * S + j] -= w[r * S + i] * s[i * S + j];
			}
		}
		for (int r = 0; r < C; r++)
			for (int j = 0; j < S; j++) {
				double o = 0;

				for (int i = 0; i < S; i++)
					o += (double)q[r * S + i] * s[i * S + j];
				for (int p = 0; p <= r; p++)
					for (int i = 0; i < S; i++)
						o += (double)q[r * S + i] * (double)k[p * S + i] *
							n[p * S + j];
				assert_near(o, f.o[(first + r) * S + j], 1e-9);
			}
		for (int i = 0; i < S; i++)
			for (int j = 0; j < S; j++)
				for (int r = 0; r < C; r++)
					s[i * S + j] += (double)k[r * S + i] * n[r * S + j];
	}
	trial_free(&f);
}

/* --- the CPU version ------------------------------------------------------------------------------ */

/* A sequence in two calls, the state handed over, is the sequence in one. */
static void sequences_continue(void **state)
{
	struct shape shape = {SEMANTICS_CAUSAL, 1, 150, 2, 64, DTYPE_BF16};
	struct trial f;
	struct error err = {0};
	int64_t cut = 77;
	size_t before = (size_t)(cut * 2 * 64) * 2;

	(void)state;
	trial_make(&f, &shape, (enum quasar_function)shape.semantics, 0);
	reference(&f);
	for (int part = 0; part < 2; part++) {
		struct quasar_problem problem = f.problem;
		struct tensor *tensors[] = {&problem.q, &problem.k, &problem.v, &problem.o};

		problem.tokens = part ? shape.tokens - cut : cut;
		problem.initial_state = part ? f.final : f.initial;
		for (int i = 0; i < 4 && part; i++)
			tensors[i]->data = (char *)tensors[i]->data + before;
		assert_int_equal(quasar_cpu(&problem, &err), 0);
	}
	assert_true(compare_bf16_double(f.problem.o.data, f.o, f.count).relative_error < 4e-3);
	assert_true(compare_float_double(f.final, f.final_reference, f.states).relative_error < 1e-5);
	trial_free(&f);
}

/* Stretches of an upstream sequence, each reading where its heads' rows are. */
static void upstream_sequences_continue(void **state)
{
	struct shape shape = {SEMANTICS_UPSTREAM, 1, 256, 3, 32, DTYPE_F32};
	struct trial f;
	struct error err = {0};
	int64_t cut = 128;

	(void)state;
	trial_make(&f, &shape, (enum quasar_function)shape.semantics, 0);
	reference(&f);
	for (int part = 0; part < 2; part++) {
		struct quasar_problem problem = f.problem;
		int64_t first_row[3];

		for (int h = 0; h < 3; h++)
			first_row[h] = h * shape.tokens + part * cut;
		problem.first_row = first_row;
		problem.tokens = part ? shape.tokens - cut : cut;
		problem.initial_state = part ? f.final : f.initial;
		problem.o.data = (float *)problem.o.data + part * cut * 3 * 32;
		assert_int_equal(quasar_cpu(&problem, &err), 0);
	}
	assert_true(compare_float_double(f.problem.o.data, f.o, f.count).relative_error < 1e-5);
	assert_true(compare_float_double(f.final, f.final_reference, f.states).relative_error < 1e-5);
	trial_free(&f);
}

/* Large outputs may be written past the caches when they are aligned for it: the same numbers either way. */
static void large_outputs_are_the_same(void **state)
{
	enum { T = 65536, H = 4, S = 32 };
	size_t count = (size_t)T * H * S;
	uint16_t *input = xmalloc(3 * count * sizeof(*input));
	uint16_t *aligned = aligned_alloc(64, count * sizeof(*aligned));
	uint16_t *shifted = aligned_alloc(64, (count + 32) * sizeof(*shifted));
	float beta[H] = {1, 1, 1, 1};
	struct error err = {0};

	(void)state;
	for (size_t i = 0; i < 3 * count; i++)
		input[i] = bf16_of_float((float)(i * 7919 % 2003) / 1001 - 1);
	for (const char *const *name = cpu_variants(); *name; name++) {
		struct quasar_problem problem = {.semantics = SEMANTICS_CAUSAL,
			.batch = 1,
			.tokens = T,
			.heads = H,
			.dim = S,
			.q = tensor_contiguous(input, DTYPE_BF16, T, H, S),
			.k = tensor_contiguous(input + count, DTYPE_BF16, T, H, S),
			.v = tensor_contiguous(input + 2 * count, DTYPE_BF16, T, H, S),
			.o = tensor_contiguous(aligned, DTYPE_BF16, T, H, S),
			.beta = beta};

		assert_int_equal(cpu_variant_select(*name), 0);
		memset(aligned, 0xff, count * sizeof(*aligned));
		assert_int_equal(quasar_cpu(&problem, &err), 0);
		problem.o.data = shifted + 1;
		assert_int_equal(quasar_cpu(&problem, &err), 0);
		assert_memory_equal(aligned, shifted + 1, count * sizeof(*aligned));
	}
	free(input);
	free(aligned);
	free(shifted);
}

/* Wherever a NaN comes in, and whatever its bits, it comes out. */
static void a_nan_stays_visible(void **state)
{
	struct shape shape = {SEMANTICS_CAUSAL, 1, 40, 1, 32, DTYPE_BF16};
	struct error err = {0};

	(void)state;
	for (const char *const *name = cpu_variants(); *name; name++) {
		assert_int_equal(cpu_variant_select(*name), 0);
		for (int place = 0; place < 4; place++) {
			struct trial f;
			uint16_t *inputs[3];

			trial_make(&f, &shape, (enum quasar_function)shape.semantics, 0);
			inputs[0] = f.problem.q.data;
			inputs[1] = f.problem.k.data;
			inputs[2] = f.problem.v.data;
			if (place < 3)
				inputs[place][3] = place == 1 ? 0x7fc0 : 0xffff;
			else
				memset(&f.initial[5], 0xff, sizeof(float));
			assert_int_equal(quasar_cpu(&f.problem, &err), 0);
			assert_false(compare_bf16(f.problem.o.data, f.problem.o.data, f.count).finite);
			trial_free(&f);
		}
	}
}

/* --- problems that are none ----------------------------------------------------------------------- */

static void assert_refused(const struct quasar_problem *problem, const char *because)
{
	double *o = xmalloc(1 << 20);
	struct error err = {0};

	assert_int_equal(quasar_cpu(problem, &err), -1);
	assert_int_equal(err.status, STATUS_USAGE);
	if (!strstr(err.message, because))
		fail_msg("\"%s\" does not say \"%s\"", err.message, because);
	assert_int_equal(quasar_reference(problem, o, NULL, &err), -1);
	free(o);
}

/* o where q is: each chunk's rows of both have to be the same. */
static void in_place_is_checked(void **state)
{
	enum { T = 128, H = 3, S = 32 };
	struct shape shape = {SEMANTICS_CAUSAL, 2, T, H, S, DTYPE_BF16};
	struct trial f;
	struct quasar_problem problem;
	struct tensor by_heads;
	struct error err = {0};

	(void)state;
	trial_make(&f, &shape, (enum quasar_function)shape.semantics, 0);
	problem = f.problem;
	by_heads = problem.o = problem.q;
	by_heads.stride[1] = S;
	by_heads.stride[2] = T * S;
	assert_int_equal(quasar_cpu(&problem, &err), -1);
	assert_int_equal(quasar_check_in_place(&problem, &err), 0);
	problem.o = by_heads;
	assert_int_equal(quasar_check_in_place(&problem, &err), -1);
	problem.semantics = SEMANTICS_UPSTREAM;
	assert_int_equal(quasar_check(&problem, &err), -1);
	assert_int_equal(quasar_check_in_place(&problem, &err), 0);
	problem.o = problem.q;
	assert_int_equal(quasar_check_in_place(&problem, &err), -1);
	problem.o = by_heads;
	problem.o.data = (uint16_t *)problem.q.data + S; /* a row further */
	problem.batch = 1;
	assert_int_equal(quasar_check_in_place(&problem, &err), -1);
	problem.o.data = problem.k.data;
	assert_int_equal(quasar_check_in_place(&problem, &err), -1);
	assert_non_null(strstr(err.message, "overlaps tensor k"));
	problem.o = by_heads;
	problem.q.stride[1] *= 2; /* every other token */
	assert_int_equal(quasar_check_in_place(&problem, &err), -1);
	problem.q = f.problem.q;
	problem.q.stride[0] *= 2; /* there is one sequence */
	assert_int_equal(quasar_check_in_place(&problem, &err), 0);
	problem.tokens = T - 1; /* padded */
	problem.o.stride[2] = (T - 1) * S;
	assert_int_equal(quasar_check_in_place(&problem, &err), -1);
	problem.tokens = T / 2;
	problem.o.stride[2] = T / 2 * S;
	assert_int_equal(quasar_check_in_place(&problem, &err), 0);
	problem.first_row = (int64_t[H]){0, T, T + T / 2}; /* from stretches of more rows */
	assert_int_equal(quasar_check_in_place(&problem, &err), -1);
	trial_free(&f);
}

static void bad_problems_are_refused(void **state)
{
	struct shape shape = {SEMANTICS_CAUSAL, 1, 8, 2, 32, DTYPE_BF16};
	struct trial f;
	struct quasar_problem bad;

	(void)state;
	trial_make(&f, &shape, (enum quasar_function)shape.semantics, 0);
	bad = f.problem;
	bad.dim = 48;
	assert_refused(&bad, "32, 64 and 128");
	bad = f.problem;
	bad.tokens = 0;
	assert_refused(&bad, "positive");
	bad = f.problem;
	bad.batch = (int64_t)1 << 62;
	assert_refused(&bad, "too large");
	bad = f.problem;
	bad.beta = NULL;
	assert_refused(&bad, "beta");
	bad = f.problem;
	bad.v.data = NULL;
	assert_refused(&bad, "tensor v");
	bad = f.problem;
	bad.k.data = (char *)bad.k.data + 1;
	assert_refused(&bad, "tensor k");
	bad = f.problem;
	bad.q.stride[1] = (int64_t)1 << 62;
	assert_refused(&bad, "stride");
	bad = f.problem;
	bad.o.stride[1] = 0;
	assert_refused(&bad, "overlap");
	bad = f.problem;
	bad.o.stride[2] = 16;
	assert_refused(&bad, "overlap");
	bad = f.problem;
	bad.o.data = bad.v.data;
	assert_refused(&bad, "overlaps tensor v");
	bad = f.problem;
	bad.semantics = (enum semantics)7;
	assert_refused(&bad, "semantics");
	bad = f.problem;
	bad.gated = true;
	assert_refused(&bad, "log_gate has no memory");
	bad.semantics = SEMANTICS_UPSTREAM;
	assert_refused(&bad, "need causal semantics");
	bad = f.problem;
	bad.sequences = 3;
	assert_refused(&bad, "starts of packed sequences");
	bad.starts = (int64_t[]){0, 5, 4, 8};
	assert_refused(&bad, "packed sequence 1 ends at token 4, before it starts");
	bad.starts = (int64_t[]){0, 4, 5, 9};
	assert_refused(&bad, "end at 8, not 0 … 9");
	bad.starts = (int64_t[]){1, 4, 5, 8};
	assert_refused(&bad, "not 1 … 8");
	bad.sequences = -1;
	assert_refused(&bad, "-1 packed sequences");
	trial_free(&f);
	assert_int_equal(cpu_variant_select("z80"), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(halves_have_their_meaning),
		cmocka_unit_test(halves_round_to_nearest_even),
		cmocka_unit_test(causal_by_hand),
		cmocka_unit_test(upstream_by_hand),
		cmocka_unit_test(upstream_pads_with_zeros),
		cmocka_unit_test(upstream_is_the_recurrence_twice),
		cmocka_unit_test(gated_by_hand),
		cmocka_unit_test(packs_and_gates_are_the_recurrence),
		cmocka_unit_test(causal_is_its_chunked_form),
		cmocka_unit_test(sequences_continue),
		cmocka_unit_test(upstream_sequences_continue),
		cmocka_unit_test(large_outputs_are_the_same),
		cmocka_unit_test(a_nan_stays_visible),
		cmocka_unit_test(in_place_is_checked),
		cmocka_unit_test(bad_problems_are_refused),
	};

	return cmocka_run_group_tests_name("op", tests, NULL, NULL);
}
