/* The gradient of QuasarAttention: its reference against finite differences of the operation's, and what only it has.
 * test_family.c holds the CPU's version against the reference. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "cpu/cpu.h"
#include "measure/fixture.h"
#include "op/quasar_backward/config.h"
#include "tests/unit/slope.h"

static struct device cpu;

/* --- the formulas ------------------------------------------------------------------------------------- */

static long double alpha_at(long double lambda, long double beta)
{
	return -expm1l(-beta * lambda) / (lambda + (long double)QUASAR_EPSILON);
}

/* From keys of no length, at which ε is all that is divided by, to ones that forget everything. */
static void alpha_has_these_slopes(void **state)
{
	static const double lambdas[] = {0, 1e-12, 1e-8, 1e-6, 1e-3, 0.5, 3, 40, 1e4};
	const double beta = 1.3;

	(void)state;
	for (size_t i = 0; i < sizeof(lambdas) / sizeof(*lambdas); i++) {
		long double lambda = (long double)lambdas[i], step = (lambda + 1e-8L) * 1e-5L,
			    step_beta = 1e-5L;
		struct quasar_alpha found = quasar_alpha(lambdas[i], beta);
		double by_lambda = (double)((alpha_at(lambda + step, beta) - alpha_at(lambda - step, beta)) /
			       (2 * step)),
		       by_beta = (double)((alpha_at(lambda, beta + step_beta) -
						  alpha_at(lambda, beta - step_beta)) /
			       (2 * step_beta));

		assert_true(fabs(found.alpha - (double)alpha_at(lambda, beta)) <= 1e-15 * found.alpha);
		assert_true(fabs(found.by_lambda - by_lambda) <= 1e-7 * fabs(by_lambda));
		assert_true(fabs(found.by_beta - by_beta) <= 1e-7 * fabs(by_beta) + 1e-15);
	}
}

/* Two heads, so that upstream rows are not tokens, and a batch, over which the gradient of beta is summed; the second
 * chunk is not whole. */
static void the_gradient_is_the_slope(void **state)
{
	struct fixture_plan plan = {.family = family_find("quasar-backward"),
		.shape = {2, 70, 2, 32, 32, 0, 0},
		.dtype = DTYPE_F32,
		.states = true,
		.seed = 5};

	(void)state;
	for (plan.options[0] = 0; plan.family->options[0].values[plan.options[0]]; plan.options[0]++)
		assert_slopes(&cpu, &plan, NULL);
}

/* --- problems on random tensors ----------------------------------------------------------------------- */

/* Contiguous fp32 tensors of one batch. */
enum { TOKENS = 100, HEADS = 2, DIM = 32, NUMBERS = TOKENS * HEADS * DIM, STATES = HEADS * DIM * DIM };

struct trial {
	float inputs[4][NUMBERS], outputs[3][NUMBERS], beta[HEADS], d_beta[HEADS];
	float initial[STATES], d_final[STATES], d_initial[STATES];
	struct quasar_gradient gradient;
};

static struct tensor tensor_of(float *numbers)
{
	return tensor_contiguous(numbers, DTYPE_F32, TOKENS, HEADS, DIM);
}

static struct trial *trial_make(enum semantics semantics)
{
	struct trial *trial = xcalloc(1, sizeof(*trial));

	for (int i = 0; i < 4; i++)
		random_normal(1, (uint64_t)i, i == 1 ? 0.2f : 1, trial->inputs[i], NUMBERS);
	random_normal(1, 4, 1, trial->initial, STATES);
	random_normal(1, 5, 1, trial->d_final, STATES);
	for (int i = 0; i < HEADS; i++)
		trial->beta[i] = 1 + (float)i;
	trial->gradient = (struct quasar_gradient){
		.problem = {.semantics = semantics,
			.batch = 1,
			.tokens = TOKENS,
			.heads = HEADS,
			.dim = DIM,
			.q = tensor_of(trial->inputs[0]),
			.k = tensor_of(trial->inputs[1]),
			.v = tensor_of(trial->inputs[2]),
			.beta = trial->beta,
			.initial_state = trial->initial},
		.d_o = tensor_of(trial->inputs[3]),
		.d_final_state = trial->d_final,
		.d_q = tensor_of(trial->outputs[0]),
		.d_k = tensor_of(trial->outputs[1]),
		.d_v = tensor_of(trial->outputs[2]),
		.d_beta = trial->d_beta,
		.d_initial_state = trial->d_initial,
	};
	return trial;
}

/* The same bits for any number of threads, and whatever is not wanted. */
static void threads_make_no_difference(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++) {
		struct trial *one = trial_make((enum semantics)i), *many = trial_make((enum semantics)i);
		struct error err = {0};

		cpu_threads_set(1);
		assert_int_equal(quasar_gradient_cpu(&one->gradient, &err), 0);
		cpu_threads_set(3);
		assert_int_equal(quasar_gradient_cpu(&many->gradient, &err), 0);
		assert_memory_equal(one->outputs, many->outputs, sizeof(one->outputs));
		assert_memory_equal(one->d_beta, many->d_beta, sizeof(one->d_beta));
		assert_memory_equal(one->d_initial, many->d_initial, sizeof(one->d_initial));
		memset(many->outputs, 0, sizeof(many->outputs));
		many->gradient.d_beta = many->gradient.d_initial_state = NULL;
		assert_int_equal(quasar_gradient_cpu(&many->gradient, &err), 0);
		assert_memory_equal(one->outputs, many->outputs, sizeof(one->outputs));
		cpu_threads_set(0);
		free(one);
		free(many);
	}
}

static void what_is_no_problem_is_refused(void **state)
{
	struct trial *trial = trial_make(SEMANTICS_CAUSAL);
	const int64_t starts[] = {0, TOKENS}, rows[HEADS] = {0};
	struct quasar_gradient bad;
	struct error err = {0};

	(void)state;
#define WRONG(change, word)                                                                                  \
	do {                                                                                                 \
		bad = trial->gradient;                                                                       \
		change;                                                                                      \
		assert_int_equal(quasar_gradient_cpu(&bad, &err), -1);                                       \
		assert_int_equal(err.status, STATUS_USAGE);                                                  \
		if (!strstr(err.message, word))                                                              \
			fail_msg("\"%s\" does not say \"%s\"", err.message, word);                           \
	} while (0)
	WRONG(bad.problem.dim = 48, "48");
	WRONG(bad.problem.beta = NULL, "beta");
	WRONG(bad.problem.gated = true, "gate");
	WRONG((bad.problem.sequences = 1, bad.problem.starts = starts), "packed");
	WRONG(bad.problem.first_row = rows, "stretch");
	WRONG(bad.d_o.data = NULL, "do");
	WRONG(bad.d_q.stride[1] = 0, "dq");
	WRONG(bad.d_k.data = bad.problem.k.data, "overlaps");
	WRONG(bad.d_v.data = bad.d_q.data, "overlaps");
#undef WRONG
	assert_int_equal(quasar_gradient_check(&trial->gradient, &err), 0);
	free(trial);
}

/* Of a function that has no gradient, there is none. */
static void other_functions_have_none(void **state)
{
	const struct family *operation = families[0], *gradient = family_find("quasar-backward");
	int options[FAMILY_OPTIONS] = {0};
	struct error err = {0};

	(void)state;
	for (int i = 0; operation->options[0].values[i]; i++) {
		bool has = i == QUASAR_UPSTREAM || i == QUASAR_CAUSAL;

		options[0] = i;
		assert_ptr_equal(family_gradient(operation, options), has ? gradient : NULL);
		assert_int_equal(
			family_options_parse(gradient, operation->options[0].values[i], options, &err),
			has ? 0 : -1);
		assert_true(has || err.status == STATUS_USAGE);
	}
}

/* --- configurations ----------------------------------------------------------------------------------- */

static const struct gpu_properties big = {.name = "big",
					   .capability = 90,
					   .multiprocessors = 132,
					   .shared_per_multiprocessor = 233472,
					   .shared_per_block = 232448,
					   .registers = 65536},
				   small = {.name = "small",
					   .capability = 86,
					   .multiprocessors = 20,
					   .shared_per_multiprocessor = 102400,
					   .shared_per_block = 101376,
					   .registers = 65536};

static struct op_problem bf16_problem(int64_t tokens, int dim, int function)
{
	const struct op_shape shape = {1, tokens, HEADS, dim, dim, 0, 0};

	return family_problem(
		family_find("quasar-backward"), &shape, DTYPE_BF16, (int[FAMILY_OPTIONS]){function});
}

/* Of any length: parts of it keep to the memory that they may take, and groups that were tuned elsewhere fit into them. */
static void every_problem_has_a_configuration(void **state)
{
	const struct family_configs *configs = family_find("quasar-backward")->configs;
	static const int64_t lengths[] = {1, 65, 1000, 100000, 10000000};

	(void)state;
	for (int which = 0; which < 5 * 3 * 2; which++) {
		const int64_t tokens = lengths[which % 5];
		const int dim = 32 << which / 5 % 3;
		const struct op_problem problem = bf16_problem(tokens, dim, which / 15);
		struct config config = configs->usual(&problem, &big), tuned;
		struct config_launch launches[CONFIG_LAUNCHES];
		struct error err = {0};
		int count = configs->launches(&problem, &config, launches);

		if (configs->check(&problem, &big, &config, &err) < 0)
			fail_msg("%s", err.message);
		assert_true(
			(config.value[GRADIENT_PART_CHUNKS] < (tokens + 63) / 64) == (tokens == 10000000));
		assert_int_equal(count, config.value[GRADIENT_CHUNKS_PER_GROUP] < (tokens + 63) / 64 ? 5 : 4);
		for (int i = 0; i < count; i++)
			assert_true(
				launches[i].blocks > 0 && launches[i].shared_bytes <= big.shared_per_block);
		for (int group = 0; group <= 1 << 20; group = 4 * group + 1) {
			tuned.value[GRADIENT_CHUNKS_PER_GROUP] = group;
			tuned = configs->adopt(&problem, &big, &tuned);
			assert_int_equal(configs->check(&problem, &big, &tuned, &err), 0);
		}
	}
}

static void wrong_configurations_are_refused(void **state)
{
	static const struct {
		struct config config;
		const char *word;
	} cases[] = {{{{0, 1}}, "parts of 0"}, {{{17, 1}}, "parts of 17"}, {{{16, 0}}, "groups of 0"},
		{{{3, 4}}, "groups of 4"}};
	const struct family_configs *configs = family_find("quasar-backward")->configs;
	struct op_problem problem = bf16_problem(1000, 64, 0);
	struct config config = configs->usual(&problem, &big);
	struct error err = {0};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		assert_int_equal(configs->check(&problem, &big, &cases[i].config, &err), -1);
		assert_int_equal(err.status, STATUS_USAGE);
		assert_non_null(strstr(err.message, cases[i].word));
	}
	assert_int_equal(configs->check(&problem, &small, &config, &err), 0);
	problem.tensors[0].dtype = DTYPE_F32;
	assert_int_equal(configs->check(&problem, &big, &config, &err), -1);
	assert_non_null(strstr(err.message, "bf16"));
	problem = bf16_problem(1000, 128, 0);
	assert_int_equal(configs->check(&problem, &small, &config, &err), -1);
	assert_int_equal(err.status, STATUS_ENVIRONMENT);
	assert_non_null(strstr(err.message, "shared memory"));
}

/* As one counts them by hand. */
static void costs_are_counted(void **state)
{
	const struct family *family = family_find("quasar-backward");
	const struct op_shape shape = {2, 100, 3, 64, 64, 0, 0};
	const struct op_problem problem = family_problem(
		family, &shape, DTYPE_BF16, (int[FAMILY_OPTIONS]){0});

	(void)state;
	assert_true(fabs(family->operations(&problem) -
			    2.0 * 600 * (8 * 64 * 64 + 5 * 64 * 64 + 64 * 64 / 6.0)) < 1e-3);
}

static int open_cpu(void **state)
{
	(void)state;
	device_open_cpu(&cpu);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(alpha_has_these_slopes),
		cmocka_unit_test(the_gradient_is_the_slope),
		cmocka_unit_test(threads_make_no_difference),
		cmocka_unit_test(what_is_no_problem_is_refused),
		cmocka_unit_test(other_functions_have_none),
		cmocka_unit_test(every_problem_has_a_configuration),
		cmocka_unit_test(wrong_configurations_are_refused),
		cmocka_unit_test(costs_are_counted),
	};

	return cmocka_run_group_tests_name("quasar-backward", tests, open_cpu, NULL);
}
