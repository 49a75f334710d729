/* What attention has of its own, beside what test_family.c asks of every family: the gradient against finite
 * differences, heads that share keys, packed sequences, log-sum-exp, scales, configurations. */
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
#include "kernels/flash/layout.h"
#include "measure/fixture.h"
#include "op/flash/config.h"
#include "op/flash/problem.h"
#include "tensor/compare.h"

/* --- a problem of contiguous fp32 tensors ------------------------------------------------------------ */

enum { Q, K, V, O, D_O, DQ, DK, DV, TENSORS };

struct trial {
	struct flash_problem problem;
	float *tensors[TENSORS], *lse;
	size_t count[TENSORS];
};

static bool of_keys(int tensor)
{
	return tensor == K || tensor == V || tensor == DK || tensor == DV;
}

static void trial_make(struct trial *trial, struct flash_problem problem)
{
	struct tensor *const places[] = {&trial->problem.q, &trial->problem.k, &trial->problem.v,
		&trial->problem.o, &trial->problem.d_o, &trial->problem.dq, &trial->problem.dk,
		&trial->problem.dv};

	*trial = (struct trial){.problem = problem};
	trial->lse = xcalloc((size_t)(problem.batch * problem.tokens * problem.heads), sizeof(float));
	trial->problem.lse = trial->lse;
	for (int i = 0; i < TENSORS; i++) {
		int heads = of_keys(i) ? problem.key_heads : problem.heads;

		trial->count[i] = (size_t)(problem.batch * problem.tokens * heads * problem.dim);
		trial->tensors[i] = xmalloc(trial->count[i] * sizeof(float));
		random_normal(11, (uint64_t)i, 1, trial->tensors[i], trial->count[i]);
		*places[i] = tensor_contiguous(
			trial->tensors[i], DTYPE_F32, problem.tokens, heads, problem.dim);
	}
}

static void trial_free(struct trial *trial)
{
	for (int i = 0; i < TENSORS; i++)
		free(trial->tensors[i]);
	free(trial->lse);
}

static void must(int result, const struct error *err)
{
	if (result < 0)
		fail_msg("%s", err->message);
}

static void assert_near(const float *found, const double *expected, size_t count, double tolerance)
{
	struct comparison comparison = compare_float_double(found, expected, count);

	if (!comparison.finite || comparison.relative_error > tolerance)
		fail_msg("relative error %g, more than %g%s", comparison.relative_error, tolerance,
			comparison.finite ? "" : "; not finite");
}

/* The CPU's outputs, gradient included, against the reference. */
static void assert_cpu_agrees(struct trial *trial)
{
	const struct flash_problem *problem = &trial->problem;
	double *results[TENSORS] = {0}, *lse;
	struct error err = {0};

	for (int i = O; i < TENSORS; i++)
		results[i] = xcalloc(trial->count[i], sizeof(double));
	lse = xcalloc((size_t)(problem->batch * problem->tokens * problem->heads), sizeof(double));
	must(flash_reference(problem, results[O], lse, &err), &err);
	must(flash_reference_gradient(problem, results[DQ], results[DK], results[DV], &err), &err);
	for (const char *const *name = cpu_variants(); *name; name++) {
		assert_int_equal(cpu_variant_select(*name), 0);
		for (int i = O; i < TENSORS; i++)
			if (i != D_O)
				memset(trial->tensors[i], 0xff, trial->count[i] * sizeof(float));
		must(flash_cpu(problem, &err), &err);
		must(flash_cpu_gradient(problem, &err), &err);
		assert_near(
			trial->lse, lse, (size_t)(problem->batch * problem->tokens * problem->heads), 1e-5);
		for (int i = O; i < TENSORS; i++)
			if (i != D_O)
				assert_near(trial->tensors[i], results[i], trial->count[i], 2e-5);
	}
	for (int i = O; i < TENSORS; i++)
		free(results[i]);
	free(lse);
}

/* --- the tests --------------------------------------------------------------------------------------- */

static double loss(struct trial *trial, double *o)
{
	struct error err = {0};
	double sum = 0;

	must(flash_reference(&trial->problem, o, NULL, &err), &err);
	for (size_t i = 0; i < trial->count[O]; i++)
		sum += o[i] * (double)trial->tensors[D_O][i];
	return sum;
}

/* The loss is dO · O; a step of an input changes it by what the gradient says. Steps are powers of two, and inputs
 * are rounded so that both neighbours are exact in fp32. */
static void the_gradient_is_the_slope(void **state)
{
	static const struct flash_problem problems[] = {
		{.causal = true,
			.scale = 0.25f,
			.batch = 1,
			.tokens = 9,
			.heads = 4,
			.key_heads = 2,
			.dim = 32},
		{.causal = false,
			.scale = 0.5f,
			.batch = 2,
			.tokens = 5,
			.heads = 2,
			.key_heads = 2,
			.dim = 32},
	};
	const double step = 0x1p-10;

	(void)state;
	for (size_t p = 0; p < sizeof(problems) / sizeof(*problems); p++) {
		struct trial trial;
		struct error err = {0};
		double *o, *gradients[3];

		trial_make(&trial, problems[p]);
		o = xcalloc(trial.count[O], sizeof(*o));
		for (int i = 0; i < 3; i++) {
			gradients[i] = xcalloc(trial.count[i], sizeof(double));
			for (size_t n = 0; n < trial.count[i]; n++)
				trial.tensors[i][n] = rintf(trial.tensors[i][n] * 0x1p12f) * 0x1p-12f;
		}
		must(flash_reference_gradient(&trial.problem, gradients[0], gradients[1], gradients[2], &err),
			&err);
		for (int i = 0; i < 3; i++)
			for (size_t n = 0; n < trial.count[i]; n += 37) {
				float *x = &trial.tensors[i][n], before = *x;
				double up, down;

				*x = before + (float)step;
				up = loss(&trial, o);
				*x = before - (float)step;
				down = loss(&trial, o);
				*x = before;
				if (fabs((up - down) / (2 * step) - gradients[i][n]) > 2e-6)
					fail_msg("tensor %d, element %zu: slope %.9f, gradient %.9f", i, n,
						(up - down) / (2 * step), gradients[i][n]);
			}
		for (int i = 0; i < 3; i++)
			free(gradients[i]);
		free(o);
		trial_free(&trial);
	}
}

static void heads_share_keys(void **state)
{
	static const int heads[][2] = {{4, 1}, {6, 2}, {3, 3}};

	(void)state;
	for (size_t i = 0; i < 3; i++)
		for (int causal = 0; causal < 2; causal++) {
			struct trial trial;

			trial_make(&trial,
				(struct flash_problem){.causal = causal,
					.scale = 0.125f,
					.batch = 2,
					.tokens = 67 + (int)i * 64,
					.heads = heads[i][0],
					.key_heads = heads[i][1],
					.dim = 64});
			assert_cpu_agrees(&trial);
			trial_free(&trial);
		}
}

/* Each of the packed sequences is what it is alone, empty ones and ones of a single token included. */
static void packed_sequences_do_not_see_each_other(void **state)
{
	static const int32_t cu_seqlens[] = {0, 70, 70, 71, 199};
	const struct flash_problem packed = {.causal = true,
		.scale = 0.2f,
		.batch = 1,
		.tokens = 199,
		.heads = 2,
		.key_heads = 1,
		.dim = 32,
		.cu_seqlens = cu_seqlens,
		.sequences = 4};
	struct trial trial;

	(void)state;
	trial_make(&trial, packed);
	assert_cpu_agrees(&trial);
	for (int i = 0; i < 4; i++) {
		struct flash_problem alone = trial.problem;
		int64_t at = cu_seqlens[i], tokens = cu_seqlens[i + 1] - at;
		double *found, *expected;
		struct error err = {0};

		if (!tokens)
			continue;
		alone.cu_seqlens = NULL;
		alone.sequences = 0;
		alone.tokens = tokens;
		alone.q.data = trial.tensors[Q] + at * 2 * 32;
		alone.k.data = trial.tensors[K] + at * 32;
		alone.v.data = trial.tensors[V] + at * 32;
		found = xcalloc(trial.count[O], sizeof(*found));
		expected = xcalloc((size_t)tokens * 2 * 32, sizeof(*expected));
		must(flash_reference(&trial.problem, found, NULL, &err), &err);
		must(flash_reference(&alone, expected, NULL, &err), &err);
		assert_memory_equal(found + at * 2 * 32, expected, (size_t)tokens * 2 * 32 * sizeof(*found));
		free(found);
		free(expected);
	}
	trial_free(&trial);
}

/* Scores so large that their exponentials are not finite, and all equal ones. */
static void any_scores(void **state)
{
	static const float scales[] = {1e-6f, 0.1f, 40};

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		struct trial trial;

		trial_make(&trial,
			(struct flash_problem){.causal = true,
				.scale = scales[i],
				.batch = 1,
				.tokens = 100,
				.heads = 1,
				.key_heads = 1,
				.dim = 32});
		if (i == 1)
			memset(trial.tensors[K], 0, trial.count[K] * sizeof(float));
		if (i < 2) {
			assert_cpu_agrees(&trial);
		} else { /* what is left of a gradient there is rounding */
			double *o = xcalloc(trial.count[O], sizeof(*o));
			struct error err = {0};

			must(flash_reference(&trial.problem, o, NULL, &err), &err);
			must(flash_cpu(&trial.problem, &err), &err);
			assert_near(trial.tensors[O], o, trial.count[O], 2e-4);
			free(o);
		}
		trial_free(&trial);
	}
}

/* The same bits for any number of threads. */
static void threads_make_no_difference(void **state)
{
	struct trial one, many;
	struct error err = {0};
	const struct flash_problem problem = {.causal = true,
		.scale = 0.125f,
		.batch = 1,
		.tokens = 300,
		.heads = 2,
		.key_heads = 1,
		.dim = 64};

	(void)state;
	trial_make(&one, problem);
	trial_make(&many, problem);
	cpu_threads_set(1);
	must(flash_cpu(&one.problem, &err), &err);
	must(flash_cpu_gradient(&one.problem, &err), &err);
	cpu_threads_set(5);
	must(flash_cpu(&many.problem, &err), &err);
	must(flash_cpu_gradient(&many.problem, &err), &err);
	cpu_threads_set(0);
	for (int i = 0; i < TENSORS; i++)
		assert_memory_equal(one.tensors[i], many.tensors[i], one.count[i] * sizeof(float));
	trial_free(&one);
	trial_free(&many);
}

static void assert_refused(const struct flash_problem *problem, const char *word)
{
	struct error err = {0};

	assert_int_equal(flash_check_gradient(problem, &err), -1);
	assert_int_equal(err.status, STATUS_USAGE);
	if (!strstr(err.message, word))
		fail_msg("\"%s\" does not say \"%s\"", err.message, word);
}

static void what_is_no_problem_is_refused(void **state)
{
	static const int32_t descending[] = {0, 9, 4, 10}, short_of[] = {0, 4, 9, 9};
	struct flash_problem bad;
	struct trial trial;

	(void)state;
	trial_make(&trial,
		(struct flash_problem){
			.scale = 1, .batch = 1, .tokens = 10, .heads = 4, .key_heads = 2, .dim = 32});
#define WRONG(change, word)                                                                                  \
	do {                                                                                                 \
		bad = trial.problem;                                                                         \
		change;                                                                                      \
		assert_refused(&bad, word);                                                                  \
	} while (0)
	WRONG(bad.dim = 48, "48");
	WRONG(bad.key_heads = 3, "3 key heads");
	WRONG(bad.key_heads = 0, "positive");
	WRONG(bad.scale = 0, "scale");
	WRONG(bad.scale = NAN, "scale");
	WRONG(bad.lse = NULL, "lse");
	WRONG(bad.dk.data = bad.dq.data, "overlaps");
	WRONG(bad.dv.data = bad.k.data, "overlaps");
	WRONG(bad.d_o.data = NULL, "do");
	WRONG(bad.dq.stride[1] = 0, "dq");
	WRONG((bad.cu_seqlens = descending, bad.sequences = 3), "descends");
	WRONG((bad.cu_seqlens = short_of, bad.sequences = 3), "from 0 to 9");
	WRONG((bad.cu_seqlens = short_of, bad.sequences = 0), "sequence");
	WRONG((bad.cu_seqlens = NULL, bad.sequences = 3), "cu_seqlens of 3 packed sequences");
#undef WRONG
	trial_free(&trial);
}

/* --- configurations ----------------------------------------------------------------------------------- */

static const struct gpu_properties h200 = {.name = "NVIDIA H200",
					   .capability = 90,
					   .multiprocessors = 132,
					   .shared_per_block = 232448,
					   .shared_per_multiprocessor = 233472,
					   .registers = 65536},
				   small = {.name = "small",
					   .capability = 86,
					   .multiprocessors = 80,
					   .shared_per_block = 101376,
					   .shared_per_multiprocessor = 102400,
					   .registers = 65536};

static struct op_problem problem_of(const struct family *family, int dim, enum dtype dtype)
{
	const struct op_shape shape = {1, 16384, 16, dim, dim, 4, 0};
	const int options[FAMILY_OPTIONS] = {0};

	return family_problem(family, &shape, dtype, options);
}

/* On any GPU the usual configuration can be run, and others are refused for a reason. */
static void the_usual_configuration_fits(void **state)
{
	static const int dims[] = {32, 64, 128};
	static const char *const names[] = {"flash", "flash-backward"};

	(void)state;
	for (size_t f = 0; f < 2; f++)
		for (size_t i = 0; i < 3; i++)
			for (int which = 0; which < 2; which++) {
				const struct family *family = family_find(names[f]);
				const struct gpu_properties *gpu = which ? &small : &h200;
				const struct op_problem problem = problem_of(family, dims[i], DTYPE_BF16);
				const struct config config = family->configs->usual(&problem, gpu);
				struct config_launch launches[CONFIG_LAUNCHES];
				struct error err = {0};
				int count = family->configs->launches(&problem, &config, launches),
				    m = config.value[FLASH_BLOCK_M];

				must(family->configs->check(&problem, gpu, &config, &err), &err);
				assert_int_equal(count, f ? 2 : 1);
				for (int n = 0; n < count; n++) {
					assert_true(launches[n].shared_bytes <= gpu->shared_per_block);
					assert_int_equal(
						launches[n].blocks, (16384 + m - 1) / m * (n ? 4 : 16));
				}
			}
}

/* What the copy engine cannot load goes without wgmma; what is there but once may have any stride. */
static void tensors_that_cannot_be_mapped_go_without_wgmma(void **state)
{
	const struct tensor rows = tensor_contiguous(NULL, DTYPE_BF16, 20000, 2, 64);
	const struct flash_problem usual = {.causal = true,
		.scale = 1,
		.batch = 1,
		.tokens = 20000,
		.heads = 2,
		.key_heads = 2,
		.dim = 64,
		.q = rows,
		.k = rows,
		.v = rows,
		.o = rows,
		.d_o = rows};
	struct flash_problem problems[7];
	struct error err = {0};

	(void)state;
	for (int i = 0; i < 7; i++)
		problems[i] = usual;
	problems[0].v.stride[0] = -8;
	problems[1].q.stride[3] = 2;
	problems[2].k.stride[1] += 4;
	problems[3].v.stride[2] = 0;
	problems[4].k.stride[1] = -problems[4].k.stride[1];
	problems[5].q.data = (void *)8;
	problems[6].d_o.stride[1] = (int64_t)1 << 39;
	for (int i = 0; i < 7; i++) {
		struct config config = flash_config_default(&flash_backward_kernels, &problems[i], &h200);

		assert_int_equal(config.value[FLASH_PRODUCT_WARPS], i ? 1 : 4);
		config = flash_config_default(&flash_forward_kernels, &problems[i], &h200);
		assert_int_equal(config.value[FLASH_PRODUCT_WARPS], i && i < 6 ? 1 : 4);
		config = flash_config_default(&flash_backward_kernels, &usual, &h200);
		assert_int_equal(
			flash_config_check(&flash_backward_kernels, &problems[i], &h200, &config, &err),
			i ? -1 : 0);
		if (i)
			assert_non_null(strstr(err.message, "contiguous rows"));
	}
}

/* As measured on an H200, with 132 multiprocessors. */
static void short_sequences_are_cut_into_smaller_blocks(void **state)
{
	static const struct {
		int heads, tokens;
		bool causal, small;
	} cases[] = {{8, 512, true, true}, {8, 1024, false, true}, {8, 1088, false, false},
		{8, 1536, true, true}, {8, 1600, true, false}, {16, 512, false, true}, {16, 768, true, true},
		{16, 768, false, false}, {1, 16384, true, false}};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		const struct tensor rows = tensor_contiguous(
			NULL, DTYPE_BF16, cases[i].tokens, cases[i].heads, 64);
		const struct flash_problem problem = {.causal = cases[i].causal,
			.scale = 1,
			.batch = 1,
			.tokens = cases[i].tokens,
			.heads = cases[i].heads,
			.key_heads = cases[i].heads,
			.dim = 64,
			.q = rows,
			.k = rows,
			.v = rows,
			.o = rows};
		const struct config config = flash_config_default(&flash_forward_kernels, &problem, &h200);

		assert_int_equal(config.value[FLASH_BLOCK_M], cases[i].small ? 64 : 192);
	}
}

/* What the model of time has to know: whether loads are ahead of products, and how many warps only load. */
static void launches_tell_of_loaders(void **state)
{
	static const struct {
		struct config config;
		int ahead;
		double beside;
	} cases[] = {{{{128, 64, 8, 1, 1}}, 0, 0}, {{{128, 64, 8, 2, 1}}, 1, 0},
		{{{128, 64, 8, 2, 4}}, 0, 4 / 12.0}, {{{128, 64, 8, 3, 4}}, 1, 4 / 12.0},
		{{{192, 128, 12, 4, 4}}, 2, 4 / 16.0}};
	const struct family *family = family_find("flash");
	const struct op_problem problem = problem_of(family, 64, DTYPE_BF16);
	struct config_launch launches[CONFIG_LAUNCHES];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		assert_int_equal(family->configs->launches(&problem, &cases[i].config, launches), 1);
		assert_int_equal(launches[0].ahead, cases[i].ahead);
		assert_float_equal(launches[0].beside, cases[i].beside, 1e-9);
	}
}

static void configurations_are_refused_for_a_reason(void **state)
{
	const struct family *family = family_find("flash-backward");
	const struct op_problem problem = problem_of(family, 128, DTYPE_BF16),
				wide = problem_of(family, 128, DTYPE_F32);
	static const struct {
		struct config config;
		const char *word;
	} cases[] = {{{{96, 64, 4, 2, 1}}, "BLOCK_M=96"}, {{{64, 64, 8, 2, 1}}, "less than 16 rows"},
		{{{128, 128, 8, 1, 1}}, "registers"}, {{{128, 64, 8, 3, 1}}, "shared memory"},
		{{{128, 32, 8, 2, 4}}, "9.0"}},
	  on_hopper[] = {{{{128, 32, 4, 2, 4}}, "16 rows for each"}, {{{128, 32, 8, 1, 4}}, "2 stages"},
		  {{{128, 64, 8, 2, 4}}, "registers"}};
	struct error err = {0};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		assert_int_equal(family->configs->check(&problem, &small, &cases[i].config, &err), -1);
		assert_non_null(strstr(err.message, cases[i].word));
	}
	for (size_t i = 0; i < sizeof(on_hopper) / sizeof(*on_hopper); i++) {
		assert_int_equal(family->configs->check(&problem, &h200, &on_hopper[i].config, &err), -1);
		assert_non_null(strstr(err.message, on_hopper[i].word));
	}
	assert_int_equal(
		family->configs->check(&wide, &h200, &(struct config){{128, 64, 8, 2, 1}}, &err), -1);
	assert_non_null(strstr(err.message, "fp32"));
}

/* Operations as one counts them by hand. */
static void costs_are_counted(void **state)
{
	const int causal[FAMILY_OPTIONS] = {0}, bidirectional[FAMILY_OPTIONS] = {1};
	const struct op_shape shape = {2, 100, 6, 64, 64, 3, 0};
	const struct family *family = family_find("flash"), *gradient = family_gradient(family, causal);
	struct op_problem problem = family_problem(family, &shape, DTYPE_BF16, causal);

	(void)state;
	assert_ptr_equal(gradient, family_find("flash-backward"));
	assert_null(family_gradient(gradient, causal));
	assert_true(family->operations(&problem) == 2.0 * 2 * 64 * 5050 * 6 * 2);
	problem = family_problem(gradient, &shape, DTYPE_BF16, bidirectional);
	assert_true(gradient->operations(&problem) == 2.0 * 5 * 64 * 10000 * 6 * 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_gradient_is_the_slope),
		cmocka_unit_test(heads_share_keys),
		cmocka_unit_test(packed_sequences_do_not_see_each_other),
		cmocka_unit_test(any_scores),
		cmocka_unit_test(threads_make_no_difference),
		cmocka_unit_test(what_is_no_problem_is_refused),
		cmocka_unit_test(the_usual_configuration_fits),
		cmocka_unit_test(tensors_that_cannot_be_mapped_go_without_wgmma),
		cmocka_unit_test(short_sequences_are_cut_into_smaller_blocks),
		cmocka_unit_test(launches_tell_of_loaders),
		cmocka_unit_test(configurations_are_refused_for_a_reason),
		cmocka_unit_test(costs_are_counted),
	};

	return cmocka_run_group_tests_name("flash", tests, NULL, NULL);
}
