/* The gradient of QuasarAttention on a GPU against fp64. The problems are small, so that an emulated GPU can run them, and end
 * within chunks, groups and parts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "op/quasar_backward/config.h"
#include "tests/gpu/outputs.h"

#define HEADS 8

/* In bf16: factors are rounded, and what is carried from chunk to chunk. Each term of the gradient of beta is a product of two
 * rows, of which little may be left; with several heads that is not all that there is of it. */
static double tolerance(const struct fixture_plan *plan, const char *tensor)
{
	(void)plan;
	return strcmp(tensor, "dbeta") ? 1e-2 : 4e-2;
}

/* Both functions, in a configuration (NULL: the usual one). */
static void check_both(struct fixture_plan plan, const struct config *config)
{
	plan.family = family_find("quasar-backward");
	plan.dtype = DTYPE_BF16;
	for (plan.options[0] = 0; plan.options[0] < 2; plan.options[0]++)
		check_outputs(&plan, config, tolerance);
}

static void every_length(void **state)
{
	static const int64_t lengths[] = {1, 63, 64, 65, 200};

	(void)state;
	for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++)
		check_both((struct fixture_plan){.shape = {2, lengths[i], HEADS, 32, 32, 0, 0},
				   .states = i % 2 == 0,
				   .seed = i},
			NULL);
}

/* Where a block's shared memory does not suffice, it is said. */
static void every_dimension(void **state)
{
	(void)state;
	for (int dim = 64; dim <= 128; dim *= 2)
		for (int function = 0; function < 2; function++) {
			const struct fixture_plan plan = {.family = family_find("quasar-backward"),
				.shape = {1, 150, HEADS, dim, dim, 0, 0},
				.dtype = DTYPE_BF16,
				.options = {function},
				.states = true,
				.seed = 8};
			const struct gpu_properties *properties = gpu_properties_of(device_gpu(&device));
			const struct op_problem problem = family_problem(
				plan.family, &plan.shape, plan.dtype, plan.options);
			const struct config config = plan.family->configs->usual(&problem, properties);
			struct error err;

			if (plan.family->configs->check(&problem, properties, &config, &err) == 0) {
				check_outputs(&plan, NULL, tolerance);
				continue;
			}
			assert_int_equal(err.status, STATUS_ENVIRONMENT);
			assert_true(dim == 128 && strstr(err.message, "shared memory"));
		}
}

static void any_strides(void **state)
{
	(void)state;
	for (int layout = 0; layout < LAYOUTS; layout++)
		check_both((struct fixture_plan){.shape = {2, 70, HEADS, 32, 32, 0, 0},
				   .layout = (enum layout)layout,
				   .states = true,
				   .seed = 9},
			NULL);
}

/* How a sequence of seven chunks is cut up changes nothing. */
static void parts_and_groups(void **state)
{
	static const struct config configs[] = {{{7, 7}}, {{7, 3}}, {{3, 2}}, {{1, 1}}};

	(void)state;
	for (size_t i = 0; i < sizeof(configs) / sizeof(*configs); i++)
		check_both((struct fixture_plan){.shape = {1, 64 * 6 + 5, HEADS, 32, 32, 0, 0},
				   .states = i % 2 == 0,
				   .seed = 10},
			&configs[i]);
}

/* Keys that hardly count, that forget at once, and nearly parallel ones. */
static void every_kind_of_key(void **state)
{
	static const float deviations[] = {0.002f, 1, 0.05f}, means[] = {0, 0, 0.2f};

	(void)state;
	for (size_t i = 0; i < sizeof(means) / sizeof(*means); i++)
		check_both((struct fixture_plan){.shape = {1, 300, 1, 64, 64, 0, 0},
				   .seed = 11,
				   .key_deviation = deviations[i],
				   .key_mean = means[i]},
			NULL);
}

static void bad_problems_are_refused_before_a_launch(void **state)
{
	struct fixture_plan plan = {.family = family_find("quasar-backward"),
		.shape = {1, 20, 1, 32, 32, 0, 0},
		.dtype = DTYPE_BF16};
	const int keys = family_tensor_find(plan.family, "k");
	struct fixture made;
	struct op_problem problem;
	struct error err;

	(void)state;
	must(fixture_make(&made, &device, &plan, &err), &err);
	problem = made.problem;
	problem.tensors[keys].dtype = DTYPE_F16;
	assert_int_equal(device.operate(&device, plan.family, &problem, NULL, &err), -1);
	assert_int_equal(err.status, STATUS_USAGE);
	assert_non_null(strstr(err.message, "one type"));
	assert_int_equal(
		device.operate(&device, plan.family, &made.problem, &(struct config){{2, 1}}, &err), -1);
	assert_non_null(strstr(err.message, "parts of 2"));
	assert_int_equal(
		device.operate(&device, plan.family, &made.problem, &(struct config){{1, 2}}, &err), -1);
	assert_non_null(strstr(err.message, "groups of 2"));
	fixture_free(&made);
	plan.dtype = DTYPE_F16;
	must(fixture_make(&made, &device, &plan, &err), &err);
	assert_int_equal(device.operate(&device, plan.family, &made.problem, NULL, &err), -1);
	assert_int_equal(err.status, STATUS_USAGE);
	assert_non_null(strstr(err.message, "bf16"));
	fixture_free(&made);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_length),
		cmocka_unit_test(every_dimension),
		cmocka_unit_test(any_strides),
		cmocka_unit_test(parts_and_groups),
		cmocka_unit_test(every_kind_of_key),
		cmocka_unit_test(bad_problems_are_refused_before_a_launch),
	};
	int status = open_gpu(argc, argv);

	if (status)
		return status;
	status = cmocka_run_group_tests_name("gradient", tests, NULL, NULL);
	device_close(&device);
	return status;
}
