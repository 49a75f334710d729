/* Linear attention and its gradient on a GPU against fp64. The problems are small, so that an emulated GPU can run them,
 * and end within chunks and groups. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "op/linear/config.h"
#include "op/linear/cuda.h"
#include "tests/gpu/outputs.h"

static const char *const names[] = {"linear", "linear-backward"};

enum { Q, K, V, O, DIVISOR, INITIAL_STATE, INITIAL_SUM, FINAL_STATE, FINAL_SUM }; /* of the operation */

/* --- one problem ------------------------------------------------------------------------------------- */

/* What an output may be off by: bf16 rounds the state of each product, and a gradient is made from o, rounded. */
static double tolerance(const struct fixture_plan *plan, const char *tensor)
{
	static const double roundings[] = {[DTYPE_F32] = 1e-5, [DTYPE_BF16] = 1e-2, [DTYPE_F16] = 1e-3};

	(void)tensor;
	return roundings[plan->dtype] * (plan->family->gradient_of ? 2 : 1);
}

static void check(const struct fixture_plan *plan, const struct config *config)
{
	check_outputs(plan, config, tolerance);
}

/* The operation and its gradient. */
static void check_both(struct fixture_plan plan, const struct config *config)
{
	for (int i = 0; i < 2; i++) {
		plan.family = family_find(names[i]);
		check(&plan, config);
	}
}

/* Both, bidirectional and causal. */
static void check_all(struct fixture_plan plan)
{
	for (plan.options[0] = 0; plan.options[0] < 2; plan.options[0]++)
		check_both(plan, NULL);
}

/* --- the tests ---------------------------------------------------------------------------------------- */

/* Feature maps change factors alone: each in one of the four forms, and all forms with one of them. */
static void every_function(void **state)
{
	struct fixture_plan plan = {
		.shape = {1, 70, 2, 32, 32, 0, 0}, .dtype = DTYPE_BF16, .states = true, .seed = 1};

	(void)state;
	for (int feature = 0; feature < 5; feature++)
		for (int form = 0; form < 4; form++) {
			if (feature > 0 && form != feature % 4)
				continue;
			plan.options[0] = form % 2;
			plan.options[1] = feature;
			plan.options[2] = form / 2;
			check_both(plan, NULL);
		}
}

static void every_length(void **state)
{
	static const int64_t lengths[] = {1, 15, 16, 17, 200};

	(void)state;
	for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++)
		check_all((struct fixture_plan){.shape = {2, lengths[i], 1, 32, 32, 0, 0},
			.dtype = DTYPE_BF16,
			.states = i % 2 == 0,
			.seed = 7});
}

static void every_type_and_dimension(void **state)
{
	static const int dims[][2] = {{64, 64}, {32, 128}, {128, 64}};

	(void)state;
	for (int i = 0; i < 3; i++)
		check_all((struct fixture_plan){.shape = {1, 50, 1, dims[i][0], dims[i][1], 0, 0},
			.dtype = (enum dtype)i,
			.states = true,
			.seed = 8});
}

static void any_strides(void **state)
{
	(void)state;
	for (int layout = 0; layout < LAYOUTS; layout++)
		check_all((struct fixture_plan){.shape = {2, 37, 3, 32, 32, 0, 0},
			.dtype = layout == LAYOUT_SPARSE ? DTYPE_F32 : DTYPE_BF16,
			.layout = (enum layout)layout,
			.states = true,
			.seed = 9});
}

/* Tiles, warps, stages and groups change nothing. */
static void every_kind_of_configuration(void **state)
{
	static const struct config configs[] = {{{16, 2, 2, 1, 1}}, {{32, 8, 3, 1, 5}}, {{64, 4, 4, 1, 13}}};

	(void)state;
	for (size_t i = 0; i < sizeof(configs) / sizeof(*configs); i++)
		check_both((struct fixture_plan){.shape = {1, 200, 1, 64, 64, 0, 0},
				   .dtype = DTYPE_BF16,
				   .options = {i != 1},
				   .seed = 10},
			&configs[i]);
	/* warps of a block add up their states */
	check_both((struct fixture_plan){.shape = {1, 200, 1, 64, 64, 0, 0}, .dtype = DTYPE_BF16, .seed = 11},
		&configs[2]);
}

/* In two pieces, the sums in place between them. */
static void a_sequence_continues_from_its_sums(void **state)
{
	const struct fixture_plan plan = {.family = family_find("linear"),
		.shape = {1, 100, 2, 32, 32, 0, 0},
		.dtype = DTYPE_BF16,
		.options = {LINEAR_CAUSAL},
		.states = true,
		.seed = 4};
	const int64_t first = 37;
	double *expected[FAMILY_TENSORS] = {0};
	struct fixture made;
	struct op_problem whole, piece;
	struct error err;

	(void)state;
	must(fixture_make(&made, &device, &plan, &err), &err);
	whole = made.problem;
	for (int i = O; i <= FINAL_SUM; i++)
		expected[i] = tensor_is_output(&plan.family->tensors[i])
			? xmalloc(made.count[i] * sizeof(double))
			: NULL;
	must(device.reference(&device, plan.family, &whole, expected, &err), &err);
	must(fixture_poison(&made, &err), &err);
	piece = whole;
	piece.tensors[DIVISOR].data = NULL; /* lies apart for each head */
	piece.tensors[FINAL_STATE] = piece.tensors[INITIAL_STATE];
	piece.tensors[FINAL_SUM] = piece.tensors[INITIAL_SUM];
	piece.shape.tokens = first;
	must(device.operate(&device, plan.family, &piece, NULL, &err), &err);
	piece.tensors[FINAL_STATE] = whole.tensors[FINAL_STATE];
	piece.tensors[FINAL_SUM] = whole.tensors[FINAL_SUM];
	piece.shape.tokens = plan.shape.tokens - first;
	for (int i = Q; i <= O; i++)
		piece.tensors[i].data = (char *)piece.tensors[i].data +
			first * piece.tensors[i].stride[1] * 2;
	must(device.operate(&device, plan.family, &piece, NULL, &err), &err);
	for (int i = O; i <= FINAL_SUM; i++) {
		char *elements = xmalloc(made.count[i] * sizeof(float));

		if (expected[i] && i != DIVISOR) {
			must(fixture_download(&made, i, elements, &err), &err);
			compare_output(&made, i, elements, expected[i], tolerance);
		}
		free(elements);
		free(expected[i]);
	}
	fixture_free(&made);
}

/* Keys of any size, at which exp() ends and divisors vanish. */
static void large_and_small_keys(void **state)
{
	struct fixture_plan plan = {.family = family_find("linear"),
		.shape = {1, 40, 1, 32, 32, 0, 0},
		.dtype = DTYPE_F32,
		.options = {LINEAR_CAUSAL, LINEAR_EXP},
		.seed = 9};

	(void)state;
	for (plan.key_deviation = 1e-6f; plan.key_deviation < 1e6f; plan.key_deviation *= 1e4f)
		check(&plan, NULL);
}

static void bad_problems_are_refused_before_a_launch(void **state)
{
	const struct fixture_plan plan = {
		.family = family_find("linear"), .shape = {1, 20, 1, 32, 32, 0, 0}, .dtype = DTYPE_BF16};
	struct fixture made;
	struct op_problem problem;
	struct error err;

	(void)state;
	must(fixture_make(&made, &device, &plan, &err), &err);
	problem = made.problem;
	problem.tensors[K].dtype = DTYPE_F16;
	assert_int_equal(device.operate(&device, plan.family, &problem, NULL, &err), -1);
	assert_int_equal(err.status, STATUS_USAGE);
	assert_non_null(strstr(err.message, "one type"));
	problem = made.problem;
	problem.tensors[O].data = problem.tensors[V].data;
	assert_int_equal(device.operate(&device, plan.family, &problem, NULL, &err), -1);
	assert_non_null(strstr(err.message, "overlaps"));
	assert_int_equal(
		device.operate(&device, plan.family, &made.problem, &(struct config){{32, 4, 2, 1, 3}}, &err),
		-1);
	assert_int_equal(err.status, STATUS_USAGE);
	fixture_free(&made);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_function),
		cmocka_unit_test(every_length),
		cmocka_unit_test(every_type_and_dimension),
		cmocka_unit_test(any_strides),
		cmocka_unit_test(every_kind_of_configuration),
		cmocka_unit_test(a_sequence_continues_from_its_sums),
		cmocka_unit_test(large_and_small_keys),
		cmocka_unit_test(bad_problems_are_refused_before_a_launch),
	};
	int status = open_gpu(argc, argv);

	if (status)
		return status;
	status = cmocka_run_group_tests_name("linear", tests, NULL, NULL);
	device_close(&device);
	return status;
}
