/* Every family of the table: its CPU version, for every instruction set of this machine, against its fp64
 * reference, in every function that it has, any length, type, layout and number of threads. */
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
#include "tensor/compare.h"

static struct device cpu;

/* --- one problem ----------------------------------------------------------------------------------- */

/* Fp32 arithmetic, then the rounding of the output, and before a gradient that of what was saved. */
static double tolerance(const struct fixture_plan *plan, enum dtype dtype)
{
	bool gradient = plan->family->gradient_of;
	enum dtype coarsest = gradient ? plan->dtype : dtype;
	double rounding = coarsest == DTYPE_F32 ? 2e-5 : coarsest == DTYPE_BF16 ? 4e-3 : 5e-4;

	return gradient ? 4 * rounding : rounding;
}

/* Whether a type has numbers so large: gradients of quotients whose divisors nearly cancel may leave fp16's. */
static bool can_hold(enum dtype dtype, const double *numbers, size_t count)
{
	double largest = 0;

	for (size_t i = 0; i < count; i++)
		largest = fmax(largest, fabs(numbers[i]));
	return dtype != DTYPE_F16 || largest < 65504;
}

static void assert_agrees(const struct fixture *fixture, int tensor, const double *expected)
{
	const struct fixture_plan *plan = &fixture->plan;
	enum dtype dtype = fixture->problem.tensors[tensor].dtype;
	size_t count = fixture->count[tensor];
	char *elements = xmalloc(count * dtype_size(dtype)), function[64];
	float *values = xmalloc(count * sizeof(*values));
	struct comparison found;
	struct error err = {0};

	assert_int_equal(fixture_download(fixture, tensor, elements, &err), 0);
	for (size_t i = 0; i < count; i++)
		values[i] = dtype_load(elements, dtype, (int64_t)i);
	found = compare_float_double(values, expected, count);
	family_options_format(plan->family, plan->options, function, sizeof(function));
	if (!comparison_agrees(&found, plan->family->gradient_of ? 0.9999 : 0.99999, tolerance(plan, dtype)))
		fail_msg(
			"%s of %s (%s), %s, B %lld T %lld H %d K %d V %d %s layout %d: cosine %.8f, relative error %g%s",
			plan->family->tensors[tensor].name, plan->family->name, function, cpu_variant_name(),
			(long long)plan->shape.batch, (long long)plan->shape.tokens, plan->shape.heads,
			plan->shape.key_dim, plan->shape.value_dim, dtype_name(plan->dtype),
			(int)plan->layout, found.cosine, found.relative_error,
			found.finite ? "" : ", not finite");
	free(values);
	free(elements);
}

/* What lies between the elements of an output is not written. */
static void assert_gaps_untouched(const struct fixture *fixture, int number)
{
	const struct tensor *tensor = &fixture->problem.tensors[number];
	size_t element = dtype_size(tensor->dtype);
	char *memory = xmalloc(fixture->bytes[number]), *first;
	int64_t size[4];

	memcpy(memory, fixture->memory[number], fixture->bytes[number]);
	first = memory + ((char *)tensor->data - (char *)fixture->memory[number]);
	family_tensor_size(&fixture->plan.family->tensors[number], &fixture->plan.shape, size);
	for (int64_t b = 0; b < size[0]; b++)
		for (int64_t t = 0; t < size[1]; t++)
			for (int64_t h = 0; h < size[2]; h++)
				for (int64_t i = 0; i < size[3]; i++) {
					int64_t at = b * tensor->stride[0] + t * tensor->stride[1] +
						h * tensor->stride[2] + i * tensor->stride[3];

					for (size_t half = 0; half < element / 2; half++)
						((uint16_t *)(first +
							at * (int64_t)element))[half] = FIXTURE_POISON;
				}
	for (size_t i = 0; i < fixture->bytes[number] / 2; i++)
		assert_int_equal(((uint16_t *)memory)[i], FIXTURE_POISON);
	free(memory);
}

/* The outputs of every variant that this machine has, against those of the reference. */
static void try_variants(const struct fixture *fixture, double *const results[])
{
	const struct family *family = fixture->plan.family;
	struct error err = {0};

	for (const char *const *name = cpu_variants(); *name; name++) {
		assert_int_equal(cpu_variant_select(*name), 0);
		assert_int_equal(fixture_poison(fixture, &err), 0);
		if (family->cpu(&fixture->problem, &err) < 0)
			fail_msg("%s", err.message);
		for (int i = 0; family->tensors[i].name; i++) {
			if (!results[i])
				continue;
			if (can_hold(fixture->problem.tensors[i].dtype, results[i], fixture->count[i]))
				assert_agrees(fixture, i, results[i]);
			if (fixture->plan.layout != LAYOUT_PACKED)
				assert_gaps_untouched(fixture, i);
		}
	}
}

/* The same with each of these numbers of threads, which one below 0 ends. */
static void try_fixture_with(const struct fixture *fixture, const int threads[])
{
	const struct family *family = fixture->plan.family;
	double *results[FAMILY_TENSORS] = {0};
	struct error err = {0};

	for (int i = 0; family->tensors[i].name; i++)
		if (tensor_is_output(&family->tensors[i]) && fixture->memory[i])
			results[i] = xmalloc(fixture->count[i] * sizeof(double));
	if (family->reference(&fixture->problem, results, &err) < 0)
		fail_msg("%s", err.message);
	for (; *threads >= 0; threads++) {
		cpu_threads_set(*threads);
		try_variants(fixture, results);
	}
	cpu_threads_set(0);
	for (int i = 0; i < FAMILY_TENSORS; i++)
		free(results[i]);
}

static const int usual_threads[] = {0, -1};

static void try_fixture(const struct fixture *fixture)
{
	try_fixture_with(fixture, usual_threads);
}

static void try_plan_with(const struct fixture_plan *wanted, const int threads[])
{
	struct fixture_plan plan = *wanted;
	struct fixture fixture;
	struct error err = {0};

	if (function_is_packed(plan.family, plan.options))
		plan.shape.batch = 1;
	if (fixture_make(&fixture, &cpu, &plan, &err) < 0)
		fail_msg("%s", err.message);
	try_fixture_with(&fixture, threads);
	fixture_free(&fixture);
}

static void try_plan(const struct fixture_plan *plan)
{
	try_plan_with(plan, usual_threads);
}

/* Calls `work` with every function of every family. */
static void each_function(void (*work)(struct fixture_plan plan))
{
	for (int f = 0; families[f]; f++) {
		struct fixture_plan plan = {.family = families[f], .seed = 7};
		int i;

		do {
			work(plan);
			/* the next combination of values, as an odometer counts */
			for (i = 0; families[f]->options[i].values[0]; i++) {
				if (families[f]->options[i].values[++plan.options[i]])
					break;
				plan.options[i] = 0;
			}
		} while (families[f]->options[i].values[0]);
	}
}

/* --- the tests -------------------------------------------------------------------------------------- */

/* Whether case number `which` is tried: a sixth of them for functions that differ only by an option behind
 * the first, which no layout or length is handled by, and for packed sequences. */
static bool is_tried(const struct fixture_plan *plan, size_t which)
{
	int number = plan->options[1] + 5 * plan->options[2] +
		(function_is_packed(plan->family, plan->options) ? plan->options[0] : 0);

	return !number || (which + (size_t)number) % 6 == 0;
}

static void try_lengths(struct fixture_plan plan)
{
	static const int64_t tokens[] = {1, 2, 15, 16, 17, 63, 64, 65, 130};

	for (size_t i = 0; i < sizeof(tokens) / sizeof(*tokens); i++)
		for (int n = 0; n < 3; n++) {
			int dim = 32 << n;

			if (!is_tried(&plan, i + (size_t)n))
				continue;
			plan.shape = (struct op_shape){1, tokens[i], 2, dim, dim, 0, 0};
			plan.dtype = DTYPE_BF16;
			plan.states = i % 2 == 0;
			try_plan(&plan);
		}
}

static void any_length_and_dimension(void **state)
{
	(void)state;
	each_function(try_lengths);
}

static void try_layouts(struct fixture_plan plan)
{
	for (int layout = 0; layout < LAYOUTS; layout++)
		for (int dtype = 0; dtype < 3; dtype++) {
			if (!is_tried(&plan, (size_t)(layout + dtype)))
				continue;
			plan.shape = (struct op_shape){2, 70, 3, 32, 32, 0, 0};
			plan.dtype = (enum dtype)dtype;
			plan.layout = (enum layout)layout;
			plan.states = true;
			try_plan(&plan);
		}
}

static void any_strides_and_types(void **state)
{
	(void)state;
	each_function(try_layouts);
}

/* What walks over pairs of tokens takes too long for many of them. */
static bool is_quadratic(const struct family *family)
{
	const int options[FAMILY_OPTIONS] = {0};
	const struct op_shape shape = {1, 100, 1, 32, 32, 0, 0}, twice = {1, 200, 1, 32, 32, 0, 0};
	const struct op_problem problem = family_problem(family, &shape, DTYPE_F32, options),
				larger = family_problem(family, &twice, DTYPE_F32, options);

	return family->operations(&larger) > 3 * family->operations(&problem);
}

/* With fewer heads than threads the sequence is cut, and its parts are composed. */
static void try_threads(struct fixture_plan plan)
{
	static const int threads[] = {1, 2, 3, 8};
	const int fewer = is_quadratic(plan.family) ? 4 : 1;
	int tried[sizeof(threads) / sizeof(*threads) + 1], count = 0;

	for (size_t i = 0; i < sizeof(threads) / sizeof(*threads); i++)
		if (is_tried(&plan, i))
			tried[count++] = threads[i];
	tried[count] = -1;
	if (!count)
		return;
	plan.shape = (struct op_shape){1, 1100 / fewer, 1, 32, 32, 0, 0};
	plan.dtype = DTYPE_BF16;
	plan.states = true;
	try_plan_with(&plan, tried);
	plan.shape = (struct op_shape){2, 777 / fewer, 1, 64, 64, 0, 0};
	plan.dtype = DTYPE_F32;
	plan.states = false;
	try_plan_with(&plan, tried);
}

static void few_heads_use_all_threads(void **state)
{
	(void)state;
	each_function(try_threads);
}

/* Keys and values of different dimensions, or a word that says they have to be the same. */
static void try_value_dimensions(struct fixture_plan plan)
{
	static const struct op_shape shapes[] = {{2, 40, 3, 32, 64, 0, 0}, {1, 33, 2, 128, 32, 0, 0}};

	for (size_t i = 0; i < 2; i++)
		for (int layout = 0; layout < LAYOUTS; layout++) {
			struct fixture fixture;
			struct error err = {0};

			plan.shape = shapes[i];
			plan.dtype = DTYPE_F32;
			plan.layout = (enum layout)layout;
			plan.states = true;
			if (fixture_make(&fixture, &cpu, &plan, &err) == 0 &&
				plan.family->check(&fixture.problem, &err) == 0) {
				try_fixture(&fixture);
			} else {
				assert_int_equal(err.status, STATUS_USAGE);
				assert_non_null(strstr(err.message, "dimension"));
			}
			fixture_free(&fixture);
		}
}

static void values_may_be_of_another_dimension(void **state)
{
	(void)state;
	each_function(try_value_dimensions);
}

/* Keys of zero, tiny and large length, and nearly parallel ones: no NaN, and no digits lost. */
static void try_keys(struct fixture_plan plan)
{
	/* a gradient makes P from lse in fp32, which loses as much as it is large */
	const float longest = plan.family->gradient_of ? 30 : 1e4f;
	const float lengths[] = {0, 1e-30f, 1e-6f, 1e-3f, 0.1f, 30, longest};
	int keys = family_tensor_find(plan.family, "k");
	struct fixture fixture;
	struct error err = {0};

	plan.shape = (struct op_shape){1, 70, 1, 32, 32, 0, 0};
	plan.dtype = DTYPE_F32;
	plan.states = true;
	assert_int_equal(fixture_make(&fixture, &cpu, &plan, &err), 0);
	for (int t = 0; t < 70; t++)
		for (int i = 0; i < 32; i++)
			((float *)fixture.problem.tensors[keys].data)[t * 32 + i] *= lengths[t % 7];
	assert_int_equal(fixture_save(&fixture, &err), 0);
	try_fixture(&fixture);
	fixture_free(&fixture);
	plan.key_deviation = 0.05f;
	plan.key_mean = 0.2f;
	try_plan(&plan);
}

static void keys_of_any_length(void **state)
{
	(void)state;
	each_function(try_keys);
}

/* A sum of keys, what was divided by it, and what came out, count only where something is divided. */
static bool counts(const struct fixture_plan *plan, const char *tensor)
{
	static const char *const divided[] = {"initial_sum", "divisor", "o"};

	for (size_t i = 0; i < sizeof(divided) / sizeof(*divided); i++)
		if (!strcmp(tensor, divided[i]))
			return plan->options[2] == 0;
	return true;
}

/* A NaN in any input, and whatever its bits, comes out. */
static void try_nan(struct fixture_plan plan)
{
	struct error err = {0};

	plan.shape = (struct op_shape){1, 40, 1, 32, 32, 0, 0};
	plan.dtype = DTYPE_BF16;
	plan.states = true;
	for (const char *const *name = cpu_variants(); *name; name++)
		for (int i = 0; plan.family->tensors[i].name; i++) {
			uint16_t outputs[3 * 40 * 32];
			struct fixture fixture;

			if (tensor_is_output(&plan.family->tensors[i]) ||
				!function_has_tensor(plan.family, plan.options, i))
				continue;
			assert_int_equal(cpu_variant_select(*name), 0);
			assert_int_equal(fixture_make(&fixture, &cpu, &plan, &err), 0);
			memset(fixture.memory[i], 0xff, 4);
			assert_int_equal(plan.family->cpu(&fixture.problem, &err), 0);
			assert_true(fixture_outputs(&fixture) <= sizeof(outputs) / sizeof(*outputs));
			assert_int_equal(fixture_download_outputs(&fixture, outputs, &err), 0);
			if (counts(&plan, plan.family->tensors[i].name))
				assert_false(
					compare_bf16(outputs, outputs, fixture_outputs(&fixture)).finite);
			fixture_free(&fixture);
		}
}

static void a_nan_stays_visible(void **state)
{
	(void)state;
	each_function(try_nan);
}

/* --- the table -------------------------------------------------------------------------------------- */

static void functions_have_names(void **state)
{
	const struct family *linear = family_find("linear");
	int options[FAMILY_OPTIONS];
	struct error err = {0};
	char text[128];

	(void)state;
	assert_ptr_equal(family_find("quasar"), families[0]);
	assert_null(family_find("none"));
	assert_int_equal(family_options_parse(linear, NULL, options, &err), 0);
	family_options_format(linear, options, text, sizeof(text));
	assert_string_equal(text, "bidirectional,elu+1,normalised");
	assert_int_equal(family_options_parse(linear, "unnormalised,causal,relu", options, &err), 0);
	family_options_format(linear, options, text, sizeof(text));
	assert_string_equal(text, "causal,relu,unnormalised");
	assert_int_equal(family_options_parse(linear, "causal,upstream", options, &err), -1);
	assert_int_equal(err.status, STATUS_USAGE);
	assert_non_null(strstr(err.message, "upstream"));
	assert_non_null(strstr(err.message, "squared-relu"));
	assert_int_equal(family_options_parse(linear, "caus", options, &err), -1);
	assert_int_equal(family_options_parse(families[0], NULL, options, &err), 0);
	fixture_describe(families[0], options, text, sizeof(text));
	assert_string_equal(text, "q, k, v normal, deviation 1; beta uniform in 0.7 … 2.8");
	assert_int_equal(family_options_parse(families[0], "gated", options, &err), 0);
	fixture_describe(families[0], options, text, sizeof(text));
	assert_non_null(strstr(text, "2.8; log_gate uniform in -0.1 … 0"));
}

/* What must be so for everything else to work. */
static void tables_are_sound(void **state)
{
	(void)state;
	for (int f = 0; families[f]; f++) {
		const struct family *family = families[f];

		assert_ptr_equal(family_find(family->name), family);
		assert_true(!family->gradient_of ||
			family_gradient(family->gradient_of, (int[FAMILY_OPTIONS]){0}) == family);
		assert_true(family->check && family->reference && family->cpu && family->operations);
		for (int i = 0; family->tensors[i].name; i++) {
			assert_true(i < FAMILY_TENSORS);
			assert_true(strspn(family->tensors[i].shape, "NBTHGKV") ==
				strlen(family->tensors[i].shape));
			assert_int_equal(family_tensor_find(family, family->tensors[i].name), i);
		}
		assert_true(!family->cuda == !family->configs);
		for (int i = 0; family->configs && family->configs->parameters[i].name; i++) {
			const struct parameter *parameter = &family->configs->parameters[i];

			assert_true(i < CONFIG_PARAMETERS);
			assert_true(!parameter->compiled || parameter->values[0] > 0);
		}
	}
}

/* Traffic and operations as one counts them by hand. */
static void costs_are_counted(void **state)
{
	const struct family *quasar = families[0], *linear = family_find("linear");
	struct fixture_plan plan = {
		.family = quasar, .shape = {2, 100, 3, 64, 64, 0, 0}, .dtype = DTYPE_BF16};
	struct fixture fixture;
	struct error err = {0};

	(void)state;
	assert_int_equal(fixture_make(&fixture, &cpu, &plan, &err), 0);
	assert_true(family_traffic(quasar, &fixture.problem) == 4 * 2 * 2 * 100 * 3 * 64 + 3 * 4);
	assert_true(fabs(quasar->operations(&fixture.problem) -
			    2.0 * 600 * (3 * 64 * 64 + 2 * 64 * 64 + 64 * 64 / 6.0)) < 1e-3);
	fixture_free(&fixture);
	plan.family = linear;
	plan.states = true;
	plan.shape.value_dim = 32;
	assert_int_equal(fixture_make(&fixture, &cpu, &plan, &err), 0);
	assert_true(family_traffic(linear, &fixture.problem) ==
		600 * ((2 * 64 + 2 * 32) * 2 + 4) + 2.0 * 6 * (64 * 32 + 64) * 4);
	assert_true(linear->operations(&fixture.problem) == 2.0 * 600 * 2 * 64 * 32);
	fixture_free(&fixture);
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
		cmocka_unit_test(any_length_and_dimension),
		cmocka_unit_test(any_strides_and_types),
		cmocka_unit_test(few_heads_use_all_threads),
		cmocka_unit_test(values_may_be_of_another_dimension),
		cmocka_unit_test(keys_of_any_length),
		cmocka_unit_test(a_nan_stays_visible),
		cmocka_unit_test(functions_have_names),
		cmocka_unit_test(tables_are_sound),
		cmocka_unit_test(costs_are_counted),
	};

	return cmocka_run_group_tests_name("family", tests, open_cpu, NULL);
}
