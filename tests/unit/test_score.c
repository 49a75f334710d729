/* score: leagues, claims, ranking */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "score/gpu.h"
#include "score/score.h"
#include "vectors.h"

static double number(const cJSON *item, const char *name)
{
	return cJSON_GetNumberValue(cJSON_GetObjectItem(item, name));
}

static void leagues_begin_where_they_should(void **state)
{
	cJSON *document = read_vectors(VECTORS "scoring.json");
	const cJSON *item;

	(void)state;
	cJSON_ArrayForEach (item, cJSON_GetObjectItem(document, "leagues")) {
		const struct league *league = league_for((int64_t)number(item, "target_sequence_length"));

		assert_string_equal(league->name, cJSON_GetObjectItem(item, "league")->valuestring);
		assert_true(league->multiplier == number(item, "multiplier"));
		assert_ptr_equal(league_by_name(league->name), league);
	}
	assert_null(league_by_name("1m"));
	cJSON_Delete(document);
}

static void claims_within_a_tenth_count(void **state)
{
	cJSON *document = read_vectors(VECTORS "scoring.json");
	const cJSON *item;

	(void)state;
	cJSON_ArrayForEach (item, cJSON_GetObjectItem(document, "claims"))
		assert_true(score_claim(number(item, "actual"), number(item, "claimed")) ==
			number(item, "score"));
	cJSON_Delete(document);
}

static enum logit_verdict verdict(const cJSON *item)
{
	const cJSON *passed = cJSON_GetObjectItem(item, "logit_verification_passed");

	return cJSON_IsNull(passed) ? LOGITS_PENDING : cJSON_IsTrue(passed) ? LOGITS_PASSED : LOGITS_FAILED;
}

static void the_best_come_first_and_of_equals_the_earliest(void **state)
{
	cJSON *document = read_vectors(VECTORS "scoring.json");
	const cJSON *ranking = cJSON_GetObjectItem(document, "ranking"), *item;
	const cJSON *expected = cJSON_GetObjectItem(ranking, "order");
	struct score_entry entries[32];
	size_t order[32], count = 0, ranked;

	(void)state;
	cJSON_ArrayForEach (item, cJSON_GetObjectItem(ranking, "submissions"))
		entries[count++] = (struct score_entry){
			.id = (int64_t)number(item, "id"),
			.tokens_per_sec = number(item, "tokens_per_sec"),
			.target_sequence_length = (int64_t)number(item, "target_sequence_length"),
			.created_at = number(item, "created_at"),
			.revealed = cJSON_IsTrue(cJSON_GetObjectItem(item, "is_revealed")),
			.logits = verdict(item),
		};
	ranked = score_rank(entries, count, -INFINITY, order);
	assert_int_equal(ranked, cJSON_GetArraySize(expected));
	for (size_t i = 0; i < ranked; i++)
		assert_int_equal(entries[order[i]].id, cJSON_GetArrayItem(expected, (int)i)->valueint);
	cJSON_Delete(document);
}

static void who_does_not_beat_the_baseline_or_has_not_revealed_does_not_rank(void **state)
{
	const struct score_entry entries[] = {
		{9, 100, 1000000, 5, true, LOGITS_PENDING},  /* weighted 300: the baseline itself */
		{7, 601, 100000, 5, true, LOGITS_PASSED},    /* 300.5 */
		{5, 601, 100000, 5, true, LOGITS_PENDING},   /* the same, smaller id */
		{3, 9e9, 1000000, 5, false, LOGITS_PENDING}, /* not revealed */
	};
	size_t order[4];

	(void)state;
	assert_int_equal(score_rank(entries, 4, 300, order), 2);
	assert_int_equal(order[0], 2);
	assert_int_equal(order[1], 1);
	assert_int_equal(score_rank(entries, 0, -INFINITY, order), 0);
}

static void rewards_add_up(void **state)
{
	double sum = 0;

	(void)state;
	for (int i = 0; i < REWARD_RANKS; i++)
		sum += reward_shares[i];
	assert_true(fabs(sum - 1) < 1e-12);
}

/* Expected values: hashlib and json.dumps of Python 3.11. */
static void equal_results_have_equal_hashes(void **state)
{
	static const struct {
		double tokens_per_sec;
		int64_t length;
		const char *benchmarks, *hash;
	} cases[] = {
		{50000, 1000000, NULL, "5cd3f90b6215a64f"},
		{66990104.256, 100000,
			"{\"512\":{\"vram_mb\":3.25,\"tokens_per_sec\":2e16},"
			"\"4096\":{\"tokens_per_sec\":1.5,\"vram_mb\":0}}",
			"d02173b951511f2e"},
		{0.125, 5, NULL, "19332ad02890a144"},
		{2.675, 7, "{}", "c7031fd100d73c9f"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct error err = {0};
		cJSON *benchmarks = cases[i].benchmarks
			? json_parse(cases[i].benchmarks, strlen(cases[i].benchmarks), &err)
			: NULL;
		char hash[17];

		score_solution_hash(cases[i].tokens_per_sec, cases[i].length, benchmarks, hash);
		assert_string_equal(hash, cases[i].hash);
		cJSON_Delete(benchmarks);
	}
}

static void gpus_are_found_by_what_the_driver_calls_them(void **state)
{
	static const struct {
		const char *name;
		double factor;
	} cases[] = {
		{"RTX 5090", 1},
		{"NVIDIA GeForce RTX 5090", 1},
		{"nvidia geforce rtx 5090", 1},
		{"NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 1.1},
		{"NVIDIA H100 80GB HBM3", 1.3},
		{"NVIDIA H200", 1.45},
		{"NVIDIA GeForce RTX 4080 SUPER", 0.48}, /* by that very name */
		{"NVIDIA GeForce RTX 4080", 0.45},       /* though an earlier entry contains it */
		{"NVIDIA GeForce RTX 4080 Laptop GPU", 0.45},
		{"NVIDIA RTX 6000 Ada Generation", 0.6},
		{"NVIDIA L40S", 0.55},
		{"NVIDIA L40", 0.5},
		{"NVIDIA L4", 0.55}, /* the first that contains it */
		{"NVIDIA A10", 0.7},
		{"NVIDIA A100-SXM4-80GB", 0.75},
		{"NVIDIA A100-PCIE-40GB", 0.65},
		{"NVIDIA A100-SXM4-40GB", 0.7},
		{"A6000", 0.45},
		{"NVIDIA GeForce RTX 3090 Ti", 0.42},
		{"NVIDIA GeForce RTX 3080 Ti", 0.35},
		{"3080", 0.35},
		{"NVIDIA A40", 0.4},
		{"Tesla V100-SXM2-16GB", 1}, /* unknown */
		{"NVIDIA", 1},
		{"NVIDIANA A40", 0.4},
		{"", 1},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		if (gpu_factor(cases[i].name) != cases[i].factor)
			fail_msg("%s: %g", cases[i].name, gpu_factor(cases[i].name));
	assert_null(gpu_find("Tesla V100-SXM2-16GB"));
	assert_null(gpu_find(""));
	assert_string_equal(gpu_find("L4")->name, "L40S");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(leagues_begin_where_they_should),
		cmocka_unit_test(claims_within_a_tenth_count),
		cmocka_unit_test(the_best_come_first_and_of_equals_the_earliest),
		cmocka_unit_test(who_does_not_beat_the_baseline_or_has_not_revealed_does_not_rank),
		cmocka_unit_test(rewards_add_up),
		cmocka_unit_test(equal_results_have_equal_hashes),
		cmocka_unit_test(gpus_are_found_by_what_the_driver_calls_them),
	};

	return cmocka_run_group_tests_name("score", tests, NULL, NULL);
}
