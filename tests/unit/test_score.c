/* score: leagues, claims, ranking */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(leagues_begin_where_they_should),
		cmocka_unit_test(claims_within_a_tenth_count),
		cmocka_unit_test(the_best_come_first_and_of_equals_the_earliest),
		cmocka_unit_test(who_does_not_beat_the_baseline_or_has_not_revealed_does_not_rank),
		cmocka_unit_test(rewards_add_up),
		cmocka_unit_test(equal_results_have_equal_hashes),
	};

	return cmocka_run_group_tests_name("score", tests, NULL, NULL);
}
