/* samples: what times that were measured say */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>

#include "measure/sample.h"

/* 1 … count, in an order that is not theirs; times `step`, beside `base` */
static struct sample_summary summary_of(int count, double base, double step)
{
	struct sample sample = {0};
	struct sample_summary summary;

	for (int i = 0; i < count; i++)
		sample_add(&sample, base + step * (1 + (i * 7919) % count));
	assert_int_equal(sample.count, count);
	summary = sample_summarise(&sample);
	assert_int_equal(sample_settled(&sample), summary.noise <= SAMPLE_SETTLED);
	sample_free(&sample);
	assert_null(sample.seconds);
	return summary;
}

static bool near(double a, double b)
{
	return fabs(a - b) < 1e-12;
}

static void the_median_is_in_the_middle(void **state)
{
	(void)state;
	assert_true(near(summary_of(1, 0, 1).median, 1));
	assert_true(near(summary_of(2, 0, 1).median, 1.5));
	assert_true(near(summary_of(101, 0, 1).median, 51));
}

/* Up to ten from end to end; beyond, without the outermost tenths. */
static void the_spread_leaves_outliers_out(void **state)
{
	(void)state;
	assert_true(near(summary_of(1, 0, 1).spread, 0));
	assert_true(near(summary_of(10, 0, 1).spread, 9 / 5.5));
	assert_true(near(summary_of(11, 0, 1).spread, 8 / 6.0));
	assert_true(near(summary_of(101, 0, 1).spread, 80 / 51.0));
}

/* The ranks of the confidence interval as statistical tables have them. */
static void the_noise_is_a_confidence_interval(void **state)
{
	static const struct {
		int count, first; /* its rank, from 1 */
	} table[] = {{6, 1}, {8, 1}, {9, 2}, {10, 2}, {12, 3}, {15, 4}, {20, 6}, {25, 8}, {30, 10}, {50, 18},
		{100, 40}};

	(void)state;
	for (int few = 1; few < 6; few++)
		assert_true(isnan(summary_of(few, 0, 1).noise));
	for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
		double n = table[i].count, width = n + 1 - 2 * table[i].first;

		assert_true(near(summary_of(table[i].count, 0, 1).noise, width / 2 / ((n + 1) / 2)));
	}
	assert_true(summary_of(10000, 0, 1).noise < 0.02); /* of many, too */
	assert_true(near(summary_of(10, 3, 0).noise, 0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_median_is_in_the_middle),
		cmocka_unit_test(the_spread_leaves_outliers_out),
		cmocka_unit_test(the_noise_is_a_confidence_interval),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
