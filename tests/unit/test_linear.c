/* Linear attention: its gradient against finite differences of the fp64 reference, in every function that it has; the
 * states between two halves of a sequence; long sequences; what is refused. test_family.c holds the CPU's versions of
 * both against the references. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "measure/fixture.h"
#include "op/linear/config.h"
#include "op/linear/problem.h"
#include "tests/unit/slope.h"

static struct device cpu;

/* --- the gradient ------------------------------------------------------------------------------------- */

/* Where a feature map bends, there is no derivative to compare with. */
static bool bends(const char *name, float number)
{
	return (!strcmp(name, "q") || !strcmp(name, "k")) && fabsf(number) < 0.05f;
}

static void the_gradient_is_the_slope(void **state)
{
	struct fixture_plan plan = {.family = family_find("linear-backward"),
		.shape = {1, 6, 1, 32, 32, 0, 0},
		.dtype = DTYPE_F32,
		.states = true,
		.seed = 5};

	(void)state;
	for (int function = 0; function < 20; function++) {
		plan.options[0] = function % 2;
		plan.options[1] = function / 2 % 5;
		plan.options[2] = function / 10;
		assert_slopes(&cpu, &plan, bends);
	}
}

/* --- sequences --------------------------------------------------------------------------------------- */

/* Four million tokens whose features are as large as exp makes them: the sums grow to 10³², and a mean of equal values
 * stays that value. Keys are a window that slides over random numbers. */
static void long_sequences_stay_finite(void **state)
{
	const int64_t tokens = 4000000;
	const size_t count = (size_t)tokens * 32;
	float *numbers = xmalloc((size_t)(tokens + 32) * sizeof(*numbers)), value = 40;
	uint16_t *o = xmalloc(count * sizeof(*o));
	struct tensor keys = {numbers, DTYPE_F32, {0, 1, 0, 1}}, values = {&value, DTYPE_F32, {0, 0, 0, 0}};
	struct linear_problem problem = {.mask = LINEAR_CAUSAL,
		.feature = LINEAR_EXP,
		.normalised = true,
		.batch = 1,
		.tokens = tokens,
		.heads = 1,
		.key_dim = 32,
		.value_dim = 32,
		.q = keys,
		.k = keys,
		.v = values,
		.o = tensor_contiguous(o, DTYPE_BF16, tokens, 1, 32)};
	struct error err = {0};
	size_t wrong = 0;

	(void)state;
	random_normal(1, 2, 20, numbers, (size_t)(tokens + 32));
	assert_int_equal(linear_cpu(&problem, &err), 0);
	for (size_t i = 0; i < count; i++)
		wrong += !(fabsf(bf16_to_float(o[i]) - value) <= 0.25f); /* to the neighbour */
	free(numbers);
	free(o);
	assert_int_equal(wrong, 0);
}

/* --- configurations ---------------------------------------------------------------------------------- */

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

/* Every problem has a configuration that its GPU can run, and one that was tuned elsewhere is fitted to it. */
static void every_problem_has_a_configuration(void **state)
{
	static const char *const names[] = {"linear", "linear-backward"};
	static const int64_t lengths[] = {1, 17, 1000, 1000000};

	(void)state;
	for (int which = 0; which < 2 * 4 * 3 * 3 * 3 * 2 * 2; which++) {
		const struct family *family = family_find(names[which % 2]);
		const struct op_shape shape = {
			1, lengths[which / 2 % 4], 8, 32 << which / 8 % 3, 32 << which / 24 % 3, 0, 0};
		const int options[FAMILY_OPTIONS] = {which / 216 % 2};
		const struct gpu_properties *gpu = which / 432 ? &small : &big;
		const struct op_problem problem = family_problem(
			family, &shape, (enum dtype)(which / 72 % 3), options);
		struct config config = family->configs->usual(&problem, gpu);
		struct config_launch launches[CONFIG_LAUNCHES];
		struct error err = {0};
		int count;

		if (family->configs->check(&problem, gpu, &config, &err) < 0)
			fail_msg("%s", err.message);
		count = family->configs->launches(&problem, &config, launches);
		assert_true(count <= CONFIG_LAUNCHES);
		for (int i = 0; i < count; i++)
			assert_true(launches[i].blocks > 0 && launches[i].threads <= 1024 &&
				launches[i].shared_bytes <= gpu->shared_per_block);
		config.value[LINEAR_GROUPS] = 12345;
		config = family->configs->adopt(&problem, gpu, &config);
		assert_int_equal(family->configs->check(&problem, gpu, &config, &err), 0);
	}
}

/* As measured on an H200, with 132 multiprocessors. */
static void short_sequences_have_more_warps(void **state)
{
	static const struct {
		const char *name;
		enum dtype dtype;
		int heads, dim, tokens, tile, warps, groups;
	} cases[] = {{"linear", DTYPE_BF16, 8, 64, 1024, 16, 2, 8},
		{"linear", DTYPE_BF16, 8, 64, 2048, 32, 2, 16},
		{"linear", DTYPE_BF16, 8, 64, 8192, 32, 2, 32},
		{"linear", DTYPE_BF16, 8, 64, 16384, 64, 4, 32},
		{"linear", DTYPE_BF16, 32, 64, 512, 32, 2, 4}, {"linear", DTYPE_BF16, 1, 64, 4096, 16, 2, 32},
		{"linear", DTYPE_BF16, 8, 64, 32, 16, 2, 1}, {"linear", DTYPE_BF16, 4096, 64, 32, 64, 4, 1},
		{"linear", DTYPE_F16, 8, 64, 1024, 32, 4, 4},
		{"linear-backward", DTYPE_BF16, 8, 64, 1024, 64, 4, 4}};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		const struct family *family = family_find(cases[i].name);
		const struct op_shape shape = {
			1, cases[i].tokens, cases[i].heads, cases[i].dim, cases[i].dim, 0, 0};
		const int options[FAMILY_OPTIONS] = {0};
		const struct op_problem problem = family_problem(family, &shape, cases[i].dtype, options);
		const struct config config = family->configs->usual(&problem, &big);

		assert_int_equal(config.value[LINEAR_VALUE_TILE], cases[i].tile);
		assert_int_equal(config.value[LINEAR_NUM_WARPS], cases[i].warps);
		assert_int_equal(config.value[LINEAR_GROUPS], cases[i].groups);
	}
}

static void wrong_configurations_are_refused(void **state)
{
	const struct family *family = family_find("linear");
	const struct op_shape shape = {1, 1000, 8, 64, 32, 0, 0};
	const int options[FAMILY_OPTIONS] = {0};
	const struct op_problem problem = family_problem(family, &shape, DTYPE_BF16, options);
	static const struct config configs[] = {{{64, 4, 2, 1, 4}}, {{32, 3, 2, 1, 4}}, {{32, 4, 1, 1, 4}},
		{{32, 4, 2, 1, 0}}, {{32, 4, 2, 1, 62}}};
	struct error err = {0};

	(void)state;
	assert_int_equal(family->configs->check(&problem, &big, &(struct config){{32, 4, 2, 1, 4}}, &err), 0);
	for (size_t i = 0; i < sizeof(configs) / sizeof(*configs); i++) {
		assert_int_equal(family->configs->check(&problem, &big, &configs[i], &err), -1);
		assert_int_equal(err.status, STATUS_USAGE);
	}
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
		cmocka_unit_test(the_gradient_is_the_slope),
		cmocka_unit_test(long_sequences_stay_finite),
		cmocka_unit_test(every_problem_has_a_configuration),
		cmocka_unit_test(short_sequences_have_more_warps),
		cmocka_unit_test(wrong_configurations_are_refused),
	};

	return cmocka_run_group_tests_name("linear", tests, open_cpu, NULL);
}
