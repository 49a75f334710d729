/* The operation: the fp64 reference against hand-derived values and other formulations, the CPU version
 * against the reference. */
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
#include "tensor/compare.h"
#include "cpu/cpu.h"
#include "op/quasar/cpu.h"
#include "tensor/dtype.h"
#include "tensor/random.h"
#include "op/quasar/reference.h"

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

enum layout {
	CONTIGUOUS,
	PACKED,   /* q, k, v and o are slices of one tensor [B, T, H, 4, S] */
	HEADS_OUT, /* [B, H, T, S] */
	REVERSED, /* all strides negative */
	ODD,      /* [T, S, B, H] with gaps: no dimension is contiguous */
	LAYOUTS,
};

struct shape {
	enum semantics semantics;
	int64_t batch, tokens;
	int heads, dim;
	enum dtype dtype;
	enum layout layout;
};

struct fixture {
	struct quasar_problem problem;
	void *memory[4];
	float beta[MOST_HEADS], *initial, *final;
	double *o, *final_reference;
	size_t count, states;
};

#define CANARY 0xa5

/* Elements of memory that a tensor of this layout takes, and its strides. */
static size_t lay_out(const struct shape *shape, int64_t stride[4], int64_t *start)
{
	int64_t b = shape->batch, t = shape->tokens, h = shape->heads, s = shape->dim;
	size_t size = (size_t)(b * t * h * s);

	*start = 0;
	switch (shape->layout) {
	case PACKED:
		memcpy(stride, (int64_t[]){t * h * 4 * s, h * 4 * s, 4 * s, 1}, 4 * sizeof(*stride));
		return 4 * size;
	case HEADS_OUT:
		memcpy(stride, (int64_t[]){h * t * s, s, t * s, 1}, 4 * sizeof(*stride));
		return size;
	case REVERSED:
		memcpy(stride, (int64_t[]){-t * h * s, -h * s, -s, -1}, 4 * sizeof(*stride));
		*start = (int64_t)size - 1;
		return size;
	case ODD:
		memcpy(stride, (int64_t[]){3 * h, (s * b * h + 5) * 3, 3, b * h * 3}, 4 * sizeof(*stride));
		return (size_t)((s * b * h + 5) * 3 * t);
	default:
		memcpy(stride, (int64_t[]){t * h * s, h * s, s, 1}, 4 * sizeof(*stride));
		return size;
	}
}

static int64_t element(const struct tensor *tensor, const struct shape *shape, size_t index)
{
	int64_t i = (int64_t)index, s = i % shape->dim, h = i / shape->dim % shape->heads;
	int64_t t = i / shape->dim / shape->heads % shape->tokens;
	int64_t b = i / shape->dim / shape->heads / shape->tokens;

	return b * tensor->stride[0] + t * tensor->stride[1] + h * tensor->stride[2] +
	       s * tensor->stride[3];
}

static void fixture_make(struct fixture *fixture, const struct shape *shape, bool with_state)
{
	struct tensor *tensors[] = {&fixture->problem.q, &fixture->problem.k, &fixture->problem.v,
		&fixture->problem.o};
	size_t count = (size_t)(shape->batch * shape->tokens * shape->heads * shape->dim), elements;
	float *values = xmalloc(count * sizeof(*values));
	int64_t start;

	*fixture = (struct fixture){.count = count};
	fixture->problem = (struct quasar_problem){
		.semantics = shape->semantics,
		.batch = shape->batch,
		.tokens = shape->tokens,
		.heads = shape->heads,
		.dim = shape->dim,
		.beta = fixture->beta,
	};
	fixture->states = (size_t)(shape->batch * shape->heads * shape->dim * shape->dim);
	random_uniform(7, 1, 0.5f, 3, fixture->beta, MOST_HEADS);
	for (int i = 0; i < 4; i++) {
		tensors[i]->dtype = shape->dtype;
		elements = lay_out(shape, tensors[i]->stride, &start);
		if (i == 0 || shape->layout != PACKED) {
			fixture->memory[i] = xmalloc(elements * dtype_size(shape->dtype));
			memset(fixture->memory[i], CANARY, elements * dtype_size(shape->dtype));
			tensors[i]->data = (char *)fixture->memory[i] +
					   start * (int64_t)dtype_size(shape->dtype);
		} else {
			tensors[i]->data = (char *)fixture->memory[0] +
					   (size_t)(i * shape->dim) * dtype_size(shape->dtype);
		}
		random_normal(7, (uint64_t)(10 + i), i == 1 ? 0.4f : 1, values, count);
		for (size_t n = 0; n < count && i < 3; n++)
			dtype_store(tensors[i]->data, shape->dtype, element(tensors[i], shape, n), values[n]);
	}
	free(values);
	fixture->o = xmalloc(count * sizeof(*fixture->o));
	fixture->final_reference = xmalloc(fixture->states * sizeof(double));
	if (!with_state)
		return;
	fixture->initial = xmalloc(fixture->states * sizeof(float));
	fixture->final = xmalloc(fixture->states * sizeof(float));
	random_normal(7, 20, 0.5f, fixture->initial, fixture->states);
	fixture->problem.initial_state = fixture->initial;
	fixture->problem.final_state = fixture->final;
}

static void fixture_free(struct fixture *fixture)
{
	for (int i = 0; i < 4; i++)
		free(fixture->memory[i]);
	free(fixture->initial);
	free(fixture->final);
	free(fixture->o);
	free(fixture->final_reference);
}

static void reference(struct fixture *fixture)
{
	struct error err = {0};

	if (quasar_reference(&fixture->problem, fixture->o, fixture->final_reference, &err) < 0)
		fail_msg("%s", err.message);
}

/* Runs the CPU version on poisoned outputs and compares with what reference() left. */
static void assert_cpu_agrees(struct fixture *fixture, const struct shape *shape)
{
	float *values = xmalloc(fixture->count * sizeof(*values));
	/* fp32 arithmetic, then the rounding of the output */
	double most = shape->dtype == DTYPE_F32 ? 1e-5 : shape->dtype == DTYPE_BF16 ? 4e-3 : 5e-4;
	struct comparison outputs, states;
	struct error err = {0};

	for (size_t n = 0; n < fixture->count; n++)
		dtype_store(fixture->problem.o.data, shape->dtype,
			element(&fixture->problem.o, shape, n), NAN);
	if (quasar_cpu(&fixture->problem, &err) < 0)
		fail_msg("%s", err.message);
	for (size_t n = 0; n < fixture->count; n++)
		values[n] = dtype_load(fixture->problem.o.data, shape->dtype,
			element(&fixture->problem.o, shape, n));
	outputs = compare_float_double(values, fixture->o, fixture->count);
	if (!outputs.finite || outputs.relative_error > most || outputs.cosine < 0.99999)
		fail_msg("%s %s B %lld T %lld H %d S %d dtype %d layout %d: cosine %.8f, relative error %g%s",
			cpu_variant_name(), semantics_name(shape->semantics), (long long)shape->batch,
			(long long)shape->tokens, shape->heads, shape->dim, (int)shape->dtype,
			(int)shape->layout, outputs.cosine, outputs.relative_error,
			outputs.finite ? "" : ", not finite");
	if (fixture->final) {
		states = compare_float_double(fixture->final, fixture->final_reference, fixture->states);
		if (!states.finite || states.relative_error > 1e-5)
			fail_msg("%s: state off by %g", cpu_variant_name(), states.relative_error);
	}
	free(values);
}

static void assert_gaps_untouched(const struct fixture *fixture, const struct shape *shape)
{
	int64_t stride[4], start;
	size_t elements = lay_out(shape, stride, &start), size = dtype_size(shape->dtype);
	unsigned char *expected = xmalloc(elements * size);

	memset(expected, CANARY, elements * size);
	for (size_t n = 0; n < fixture->count; n++)
		memcpy(expected + (size_t)(start + element(&fixture->problem.o, shape, n)) * size,
			(char *)fixture->problem.o.data +
				element(&fixture->problem.o, shape, n) * (int64_t)size,
			size);
	assert_memory_equal(expected, fixture->memory[3], elements * size);
	free(expected);
}

/* --- the reference ------------------------------------------------------------------------------- */

/* Contiguous fp32 tensors of one batch that a test fills by hand. */
struct manual {
	struct quasar_problem problem;
	float *q, *k, *v, *o, beta[MOST_HEADS];
	double *expected;
	size_t count;
};

static void manual_make(struct manual *manual, enum semantics semantics, int64_t tokens, int heads, float beta)
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
	struct shape shape = {SEMANTICS_UPSTREAM, 2, 200, 3, 32, DTYPE_F32, CONTIGUOUS};
	struct fixture f;
	int padded = 256, dim = 32, heads = 3;

	(void)state;
	fixture_make(&f, &shape, true);
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
				assert_near(
					s[i], f.final_reference[(b * heads + h) * dim * dim + i], 1e-9);
		}
		for (int i = 0; i < 3; i++)
			free(flat[i]);
	}
	fixture_free(&f);
}

/* Causal in other words: by chunks, with W and U (docs/math.md). */
static void causal_is_its_chunked_form(void **state)
{
	enum { C = 24, T = 96, S = 32 };
	struct shape shape = {SEMANTICS_CAUSAL, 1, T, 1, S, DTYPE_F32, CONTIGUOUS};
	struct fixture f;
	double s[S * S], w[C * S], u[C * S], n[C * S];

	(void)state;
	fixture_make(&f, &shape, true);
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
						o += (double)q[r * S + i] * (double)k[p * S + i] * n[p * S + j];
				assert_near(o, f.o[(first + r) * S + j], 1e-9);
			}
		for (int i = 0; i < S; i++)
			for (int j = 0; j < S; j++)
				for (int r = 0; r < C; r++)
					s[i * S + j] += (double)k[r * S + i] * n[r * S + j];
	}
	fixture_free(&f);
}

/* --- the CPU version ------------------------------------------------------------------------------ */

/* Every variant that this machine has against the reference. */
static void try(struct fixture *fixture, const struct shape *shape)
{
	reference(fixture);
	for (const char *const *name = cpu_variants(); *name; name++) {
		assert_int_equal(cpu_variant_select(*name), 0);
		assert_cpu_agrees(fixture, shape);
		if (shape->layout != PACKED)
			assert_gaps_untouched(fixture, shape);
	}
}

static void try_shape(const struct shape *shape, bool with_state)
{
	struct fixture f;

	fixture_make(&f, shape, with_state);
	try(&f, shape);
	fixture_free(&f);
}

static void any_length_and_dimension(void **state)
{
	static const int64_t tokens[] = {1, 2, 15, 16, 17, 63, 64, 65, 130};

	(void)state;
	for (int semantics = 0; semantics < 2; semantics++)
		for (size_t i = 0; i < sizeof(tokens) / sizeof(*tokens); i++)
			for (int dim = 32; dim <= 128; dim *= 2)
				try_shape(&(struct shape){(enum semantics)semantics, 1, tokens[i], 2, dim,
						  DTYPE_BF16, CONTIGUOUS},
					i % 2 == 0);
}

static void any_strides_and_types(void **state)
{
	(void)state;
	for (int semantics = 0; semantics < 2; semantics++)
		for (int layout = 0; layout < LAYOUTS; layout++)
			for (int dtype = 0; dtype < 3; dtype++)
				try_shape(&(struct shape){(enum semantics)semantics, 2, 70, 3, 32,
						  (enum dtype)dtype, (enum layout)layout},
					true);
}

/* With fewer heads than threads the sequence is cut, and its parts are composed. */
static void few_heads_use_all_threads(void **state)
{
	static const int threads[] = {1, 2, 3, 8};

	(void)state;
	for (int semantics = 0; semantics < 2; semantics++)
		for (size_t i = 0; i < sizeof(threads) / sizeof(*threads); i++) {
			cpu_threads_set(threads[i]);
			try_shape(&(struct shape){(enum semantics)semantics, 1, 1100, 1, 32, DTYPE_BF16,
					  CONTIGUOUS},
				true);
			try_shape(&(struct shape){(enum semantics)semantics, 2, 777, 1, 64, DTYPE_F32,
					  CONTIGUOUS},
				false);
		}
	cpu_threads_set(0);
}

/* A sequence in two calls, the state handed over, is the sequence in one. */
static void sequences_continue(void **state)
{
	struct shape shape = {SEMANTICS_CAUSAL, 1, 150, 2, 64, DTYPE_BF16, CONTIGUOUS};
	struct fixture f;
	struct error err = {0};
	int64_t cut = 77;
	size_t before = (size_t)(cut * 2 * 64) * 2;

	(void)state;
	fixture_make(&f, &shape, true);
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
	fixture_free(&f);
}

/* Stretches of an upstream sequence, each reading where its heads' rows are. */
static void upstream_sequences_continue(void **state)
{
	struct shape shape = {SEMANTICS_UPSTREAM, 1, 256, 3, 32, DTYPE_F32, CONTIGUOUS};
	struct fixture f;
	struct error err = {0};
	int64_t cut = 128;

	(void)state;
	fixture_make(&f, &shape, true);
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
	fixture_free(&f);
}

/* Keys of zero, tiny and large length: α is β, 1/λ, and everything between, without a NaN. */
static void keys_of_any_length(void **state)
{
	static const float lengths[] = {0, 1e-30f, 1e-6f, 1e-3f, 0.1f, 30, 1e4f};

	(void)state;
	for (int semantics = 0; semantics < 2; semantics++) {
		struct shape shape = {(enum semantics)semantics, 1, 70, 1, 32, DTYPE_F32, CONTIGUOUS};
		struct fixture f;

		fixture_make(&f, &shape, true);
		for (int t = 0; t < 70; t++)
			for (int i = 0; i < 32; i++)
				((float *)f.problem.k.data)[t * 32 + i] *= lengths[t % 7];
		try(&f, &shape);
		fixture_free(&f);
	}
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
	random_normal_bf16(7, 30, 0.5f, input, 3 * count);
	for (const char *const *name = cpu_variants(); *name; name++) {
		struct quasar_problem problem = {SEMANTICS_CAUSAL, 1, T, H, S,
			tensor_contiguous(input, DTYPE_BF16, T, H, S),
			tensor_contiguous(input + count, DTYPE_BF16, T, H, S),
			tensor_contiguous(input + 2 * count, DTYPE_BF16, T, H, S),
			tensor_contiguous(aligned, DTYPE_BF16, T, H, S), beta, NULL, NULL, NULL};

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
	struct shape shape = {SEMANTICS_CAUSAL, 1, 40, 1, 32, DTYPE_BF16, CONTIGUOUS};
	struct error err = {0};

	(void)state;
	for (const char *const *name = cpu_variants(); *name; name++) {
		assert_int_equal(cpu_variant_select(*name), 0);
		for (int place = 0; place < 4; place++) {
			struct fixture f;
			uint16_t *inputs[3];

			fixture_make(&f, &shape, true);
			inputs[0] = f.problem.q.data;
			inputs[1] = f.problem.k.data;
			inputs[2] = f.problem.v.data;
			if (place < 3)
				inputs[place][3] = place == 1 ? 0x7fc0 : 0xffff;
			else
				memset(&f.initial[5], 0xff, sizeof(float));
			assert_int_equal(quasar_cpu(&f.problem, &err), 0);
			assert_false(compare_bf16(f.problem.o.data, f.problem.o.data, f.count).finite);
			fixture_free(&f);
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

static void bad_problems_are_refused(void **state)
{
	struct shape shape = {SEMANTICS_CAUSAL, 1, 8, 2, 32, DTYPE_BF16, CONTIGUOUS};
	struct fixture f;
	struct quasar_problem bad;

	(void)state;
	fixture_make(&f, &shape, false);
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
	fixture_free(&f);
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
		cmocka_unit_test(causal_is_its_chunked_form),
		cmocka_unit_test(any_length_and_dimension),
		cmocka_unit_test(any_strides_and_types),
		cmocka_unit_test(few_heads_use_all_threads),
		cmocka_unit_test(sequences_continue),
		cmocka_unit_test(upstream_sequences_continue),
		cmocka_unit_test(keys_of_any_length),
		cmocka_unit_test(large_outputs_are_the_same),
		cmocka_unit_test(a_nan_stays_visible),
		cmocka_unit_test(bad_problems_are_refused),
	};

	return cmocka_run_group_tests_name("op", tests, NULL, NULL);
}
