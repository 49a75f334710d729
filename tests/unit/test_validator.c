/* validator: the state machine behind the local validator's API, with a clock that stands still */
#include "service.h"

#include <math.h>
#include <sodium.h>

#include "api/message.h"
#include "base/hex.h"
#include "key/keypair.h"
#include "vectors.h"

static int set_up(void **state)
{
	(void)state;
	return make_service("strict");
}

static void open_deployed(void)
{
	open_anew("2026-02");
}

static void register_miner(const char *hotkey)
{
	char *body = xprintf("{\"hotkey\": \"%s\", \"model_name\": \"m\", \"league\": \"1M\"}", hotkey);

	cJSON_Delete(call(200, "/register_miner", hotkey, body));
	free(body);
}

static int64_t submit(const char *hotkey, double tokens_per_sec, double target)
{
	char *body = xprintf(
		"{\"miner_hotkey\": \"%s\", \"fork_url\": \"" URL "\", \"commit_hash\": \"c0ffee\","
		" \"target_sequence_length\": %.0f, \"tokens_per_sec\": %.17g, \"signature\": \"s\"}",
		hotkey, target, tokens_per_sec);
	cJSON *answer = call(200, "/submit_kernel", hotkey, body);
	int64_t id = (int64_t)number_of(answer, "submission_id");

	cJSON_Delete(answer);
	free(body);
	return id;
}

static void judge(int64_t id, double score)
{
	char *body = xprintf("{\"submission_id\": %lld, \"score\": %g}", (long long)id, score);

	cJSON_Delete(call(200, "/mark_validated", NULL, body));
	free(body);
}

static char *commit_body(const char *hotkey, const char *salt)
{
	char hash[65];

	message_commitment_hash(salt, URL, hash);
	return xprintf(
		"{\"miner_hotkey\": \"%s\", \"commitment_hash\": \"%s\", \"target_sequence_length\": 300000,"
		" \"signature\": \"s\"}",
		hotkey, hash);
}

static char *reveal_body(int64_t id, const char *hotkey, const char *salt)
{
	return xprintf("{\"submission_id\": %lld, \"miner_hotkey\": \"%s\", \"commitment_salt\": \"%s\","
		       " \"fork_url\": \"" URL "\", \"commit_hash\": \"c0ffee\", \"tokens_per_sec\": 5.5,"
		       " \"signature\": \"s\", \"benchmarks\": {\"4096\": {\"tokens_per_sec\": 5}}}",
		(long long)id, hotkey, salt);
}

/* --- tests ------------------------------------------------------------------------------------- */

/* "{"hotkey", "model_name", "league"}"; the caller frees. */
static char *registration(const char *hotkey, const char *league)
{
	return xprintf("{\"hotkey\":\"%s\",\"model_name\":\"m\",\"league\":\"%s\"}", hotkey, league);
}

static bool authenticates(const char *hotkey, const char *signature)
{
	struct server_request request = {0};
	struct server_reply reply = {.status = 200};
	cJSON *headers = cJSON_CreateObject();
	bool passed;

	request.headers = headers;
	if (hotkey)
		cJSON_AddStringToObject(headers, "hotkey", hotkey); /* names ignore case */
	if (signature)
		cJSON_AddStringToObject(headers, "SIGNATURE", signature);
	passed = find_route("/submit_kernel")->check(&request, &reply, validator);
	assert_int_equal(reply.status, passed ? 200 : 401);
	assert_true(!passed || request.identity);
	cJSON_Delete(headers);
	cJSON_Delete(reply.body);
	return passed;
}

/* The vectors hold signatures of many messages: only a valid one of the address itself opens the door. */
static void only_a_signature_of_the_own_address_opens(void **state)
{
	cJSON *keys = read_vectors(VECTORS "sr25519.json"), *key, *signature;
	int opened = 0;

	(void)state;
	cJSON_ArrayForEach (key, keys) {
		const char *address = text_of(key, "ss58");
		char *own = xmalloc(2 * strlen(address) + 1);

		hex_encode((const uint8_t *)address, strlen(address), own);
		cJSON_ArrayForEach (signature, cJSON_GetObjectItem(key, "signatures")) {
			const char *hex = text_of(signature, "signature");
			bool valid = cJSON_IsTrue(cJSON_GetObjectItem(signature, "valid")) &&
				!strcmp(text_of(signature, "message"), own);
			char *prefixed = xprintf("0x%s", hex);

			assert_int_equal(authenticates(address, hex), valid);
			assert_false(authenticates(address, prefixed));
			assert_false(authenticates("5GrwvaEF5zXb26Fz9rcQpDWS57CtERHpNehXCPcNoHGKutQY", hex));
			assert_false(authenticates("not an address", hex));
			opened += valid;
			free(prefixed);
		}
		assert_false(authenticates(address, NULL));
		assert_false(authenticates(address, ""));
		assert_false(authenticates(address, "00"));
		assert_false(authenticates(NULL, "00"));
		free(own);
	}
	assert_true(opened > 0);
	cJSON_Delete(keys);
}

static void a_hotkey_registers_for_each_model_and_league(void **state)
{
	cJSON *answer;

	(void)state;
	answer = call(
		200, "/register_miner", "a", "{\"hotkey\":\"a\",\"model_name\":\"m\",\"league\":\"100k\"}");
	assert_string_equal(text_of(answer, "status"), "registered");
	assert_null(cJSON_GetObjectItem(answer, "current_score"));
	cJSON_Delete(answer);
	answer = call(
		200, "/register_miner", "a", "{\"hotkey\":\"a\",\"model_name\":\"m\",\"league\":\"100k\"}");
	assert_string_equal(text_of(answer, "status"), "already_registered");
	assert_true(number_of(answer, "current_score") == 0);
	cJSON_Delete(answer);
	answer = call(
		200, "/register_miner", "a", "{\"hotkey\":\"a\",\"model_name\":\"m\",\"league\":\"1M\"}");
	assert_string_equal(text_of(answer, "status"), "registered");
	cJSON_Delete(answer);
	refused(call(400, "/register_miner", "a",
			"{\"hotkey\":\"a\",\"model_name\":\"m\",\"league\":\"2M\"}"),
		"Invalid league");
	refused(call(403, "/register_miner", "b",
			"{\"hotkey\":\"a\",\"model_name\":\"m\",\"league\":\"1M\"}"),
		"Hotkey mismatch");
}

static void foreign_and_unregistered_hotkeys_are_refused(void **state)
{
	char *body = commit_body("a", "salt");

	(void)state;
	refused(call(404, "/commit_submission", "a", body), "Miner not registered");
	register_miner("a");
	register_miner("b");
	refused(call(403, "/commit_submission", "b", body), "Hotkey mismatch");
	cJSON_Delete(call(200, "/commit_submission", "a", body));
	free(body);
}

static void the_eleventh_request_in_a_minute_waits(void **state)
{
	const char *body = "{\"hotkey\":\"a\",\"model_name\":\"m\",\"league\":\"1M\"}";
	const struct server_request request = {.client = "192.0.2.1", .identity = "a", .body = parse(body)};
	struct server_reply reply = {.status = 200};
	struct error err = {0};

	(void)state;
	options.rate_limit = 10;
	open_like("strict");
	for (int i = 0; i < 10; i++, now += 1)
		cJSON_Delete(call(200, "/register_miner", "a", body));
	refused(call(429, "/register_miner", "a", body), "Rate limit exceeded");
	register_miner("b");
	assert_int_equal(find_route("/register_miner")->handle(&request, &reply, validator, &err), 0);
	assert_true(reply.retry_after == 50); /* the first of the ten was 10 s ago */
	cJSON_Delete(reply.body);
	cJSON_Delete((cJSON *)request.body);
	now += 49.9;
	refused(call(429, "/register_miner", "a", body), "Rate limit exceeded");
	now += 0.2;
	cJSON_Delete(call(200, "/register_miner", "a", body));
	refused(call(429, "/register_miner", "a", body), "Rate limit exceeded");
}

static void reveals_wait_for_their_block(void **state)
{
	const char *salt = "2291d8cdc310411e7ec27378a661c935187c07e4d5636e9bc3c400b27244b8cd";
	char *commit = commit_body("a", salt), *reveal, *foreign, *wrong;
	int64_t block = (1700000000LL - 1609459200) / 12, id;
	cJSON *answer, *pending;

	(void)state;
	register_miner("a");
	register_miner("b");
	answer = call(200, "/commit_submission", "a", commit);
	id = (int64_t)number_of(answer, "submission_id");
	assert_true(number_of(answer, "reveal_block") == (double)block + 100);
	assert_string_equal(text_of(answer, "estimated_reveal_time"), "2023-11-14T22:33:12.000000");
	cJSON_Delete(answer);
	refused(call(409, "/commit_submission", "a", commit),
		"Commitment hash already exists. Use a different salt.");

	reveal = reveal_body(id, "a", salt);
	foreign = reveal_body(id, "b", salt);
	wrong = reveal_body(id, "a", "another salt");
	refused(call(425, "/reveal_submission", "a", reveal),
		"Cannot reveal yet. Wait 100 blocks (~20 minutes)");
	now = 1609459200 + (double)(block + 99) * 12 + 11.9;
	refused(call(425, "/reveal_submission", "a", reveal),
		"Cannot reveal yet. Wait 1 blocks (~0 minutes)");
	answer = call(200, "/pending_reveals", NULL, NULL);
	assert_true(number_of(answer, "current_block") == (double)block + 99);
	pending = cJSON_GetArrayItem(cJSON_GetObjectItem(answer, "pending_reveals"), 0);
	assert_true(number_of(pending, "blocks_remaining") == 1);
	assert_true(cJSON_IsFalse(cJSON_GetObjectItem(pending, "can_reveal")));
	assert_int_equal(strlen(text_of(pending, "commitment_hash")), 19);
	cJSON_Delete(answer);

	now += 0.1;
	refused(call(404, "/reveal_submission", "b", foreign), "Submission not found");
	refused(call(400, "/reveal_submission", "a", wrong), "Hash mismatch");
	answer = call(200, "/reveal_submission", "a", reveal);
	assert_true(cJSON_IsTrue(cJSON_GetObjectItem(answer, "is_revealed")));
	cJSON_Delete(answer);
	refused(call(409, "/reveal_submission", "a", reveal), "Submission already revealed");
	answer = call(200, "/pending_reveals", NULL, NULL);
	assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(answer, "pending_reveals")), 0);
	cJSON_Delete(answer);

	/* what was revealed counts from the commitment's time on */
	answer = call(200, "/get_submission_stats", NULL, NULL);
	pending = cJSON_GetArrayItem(cJSON_GetObjectItem(answer, "recent_submissions"), 0);
	assert_string_equal(text_of(pending, "created_at"), "2023-11-14T22:13:20.000000");
	assert_string_equal(text_of(pending, "fork_url"), URL);
	assert_true(number_of(pending, "tokens_per_sec") == 5.5);
	cJSON_Delete(answer);
	free(commit);
	free(reveal);
	free(foreign);
	free(wrong);
}

static void a_docker_image_takes_the_urls_place(void **state)
{
	const char *salt = "97f11ae651070506a68a02f0e161af37f86cb9078738c370f07e8d3b583bad38";
	const char *commit = "{\"miner_hotkey\": \"a\", \"commitment_hash\":"
			     " \"1c2a91f80eb7a4a873a021bf428974819f73e086d40a9ab6e4919a7da7fbf122\","
			     " \"target_sequence_length\": 300000, \"signature\": \"s\"}";
	char *body = reveal_body(1, "a", salt), *with_image;

	(void)state;
	register_miner("a");
	cJSON_Delete(call(200, "/commit_submission", "a", commit));
	now += 1200;
	body[strlen(body) - 1] = '\0';
	with_image = xprintf("%s, \"docker_image\": \"ghcr.io/me/quasar-miner:1.2\"}", body);
	cJSON_Delete(call(200, "/reveal_submission", "a", with_image));
	free(body);
	free(with_image);
}

static void five_failures_ban_an_address_for_a_day(void **state)
{
	char *wrong = reveal_body(1, "a", "wrong"), *commit = commit_body("a", "salt");

	(void)state;
	register_miner("a");
	cJSON_Delete(call(200, "/commit_submission", "a", commit));
	now += 1200;
	for (int i = 0; i < 5; i++)
		refused(call(400, "/reveal_submission", "a", wrong), "Hash mismatch");
	refused(call(403, "/reveal_submission", "a", wrong),
		"IP address banned: IP banned for 24.0 more hours, until 2023-11-15T22:33:20 UTC");
	cJSON_Delete(call_from("192.0.2.2", 400, "/reveal_submission", "a", NULL, wrong)); /* others go on */
	now += 86400;
	refused(call(400, "/reveal_submission", "a", wrong), "Hash mismatch"); /* counted anew */
	refused(call(400, "/reveal_submission", "a", wrong), "Hash mismatch");
	free(wrong);
	free(commit);
}

static void judgements_tell_on_the_address(void **state)
{
	const char *failure = "{\"ip_address\": \"192.0.2.1\"}";
	int64_t id;

	(void)state;
	register_miner("a");
	for (int i = 0; i < 4; i++)
		cJSON_Delete(call(200, "/record_failure", NULL, failure));
	id = submit("a", 1, 1); /* accepted: forgiven */
	for (int i = 0; i < 4; i++)
		cJSON_Delete(call(200, "/record_failure", NULL, failure));
	judge(id, 1); /* found good: forgiven */
	for (int i = 0; i < 3; i++)
		judge(id, 0); /* a second judgement tells nothing new */
	for (int i = 0; i < 3; i++)
		id = submit("a", 1, 1);
	for (int i = 0; i < 4; i++)
		cJSON_Delete(call(200, "/record_failure", NULL, failure));
	judge(id, 0);
	refused(call(403, "/register_miner", "a",
			"{\"hotkey\":\"a\",\"model_name\":\"m\",\"league\":\"1M\"}"),
		"IP address banned: ");
	cJSON_Delete(call(200, "/record_failure", NULL, "{}"));
}

static void judges_are_told_what_is_wrong(void **state)
{
	(void)state;
	refused(call(400, "/mark_validated", NULL, "{\"score\": 1}"), "submission_id required");
	refused(call(404, "/mark_validated", NULL, "{\"submission_id\": 1, \"score\": 1}"),
		"Submission not found");
	refused(call_from("x", 404, "/record_verification", NULL,
			"{\"submission_id\":\"1\",\"verified\":\"true\"}", NULL),
		"Submission not found");
	refused(call_from("x", 404, "/finalize_round/{round_id}", NULL, "{\"round_id\":\"1\"}", NULL),
		"Round not found");
	cJSON_Delete(call(422, "/mark_validated", NULL, "[]"));
	cJSON_Delete(call(422, "/mark_validated", NULL, NULL));
}

/* The problems of a refused request as "loc/loc type;…". The caller frees. */
static char *problems(cJSON *answer)
{
	struct buffer text = {0};
	const cJSON *problem, *key;

	cJSON_ArrayForEach (problem, cJSON_GetObjectItem(answer, "detail")) {
		cJSON_ArrayForEach (key, cJSON_GetObjectItem(problem, "loc"))
			buffer_printf(&text, "%s/", cJSON_GetStringValue(key));
		buffer_printf(&text, " %s;", text_of(problem, "type"));
		assert_true(*text_of(problem, "msg"));
	}
	cJSON_Delete(answer);
	return text.data;
}

static void each_wrong_field_is_named(void **state)
{
	static const struct {
		const char *route, *parameters, *body, *problems;
	} cases[] = {
		{"/commit_submission", NULL, "{\"miner_hotkey\": 1, \"target_sequence_length\": \"x\"}",
			"body/miner_hotkey/ string_type;body/commitment_hash/ missing;"
			"body/target_sequence_length/ int_parsing;body/signature/ missing;"},
		{"/submit_kernel", NULL,
			"{\"miner_hotkey\": \"a\", \"fork_url\": null, \"commit_hash\": \"c\", \"signature\": \"s\","
			" \"target_sequence_length\": 1.5, \"tokens_per_sec\": [], \"vram_mb\": \"much\","
			" \"benchmarks\": {\"4096\": 1, \"512\": {\"tokens_per_sec\": \"fast\"}}}",
			"body/target_sequence_length/ int_from_float;body/fork_url/ string_type;"
			"body/tokens_per_sec/ float_type;body/vram_mb/ float_parsing;"
			"body/benchmarks/4096/ dict_type;body/benchmarks/512/tokens_per_sec/ float_type;"},
		{"/submit_kernel", NULL,
			"{\"miner_hotkey\": \"a\", \"fork_url\": \"u\", \"commit_hash\": \"c\", \"signature\": \"s\","
			" \"target_sequence_length\": 1e300, \"tokens_per_sec\": 1e999, \"benchmarks\": 3}",
			"body/target_sequence_length/ int_parsing_size;body/tokens_per_sec/ finite_number;"
			"body/benchmarks/ dict_type;"},
		{"/register_miner", NULL, "\"text\"", "body/ model_attributes_type;"},
		{"/mark_validated", NULL, "[]", "body/ dict_type;"},
		{"/register_miner", NULL, NULL, "body/ missing;"},
		{"/record_verification", "{\"verified\": \"perhaps\"}", NULL,
			"query/submission_id/ missing;query/verified/ bool_parsing;"},
		{"/get_submission_stats", "{\"limit\": \"1e3\"}", NULL, "query/limit/ int_parsing;"},
		{"/finalize_round/{round_id}", "{\"round_id\": \"x\"}", NULL, "path/round_id/ int_parsing;"},
		{"/create_round", NULL, "{\"duration_hours\": 0}",
			"body/duration_hours/ greater_than_equal;"},
		{"/create_round", NULL, "{\"duration_hours\": 9000}",
			"body/duration_hours/ less_than_equal;"},
		{"/mark_validated", NULL, "{\"submission_id\": 1, \"score\": -1}",
			"body/score/ greater_than_equal;"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		char *found = problems(
			call_from("x", 422, cases[i].route, "a", cases[i].parameters, cases[i].body));

		assert_string_equal(found, cases[i].problems);
		free(found);
	}
}

/* Rank, exclusions and rewards, by the vectors and by the pages' rules for the rounds that follow. */
static void rounds_rank_and_the_winner_is_the_next_baseline(void **state)
{
	cJSON *vectors = read_vectors(VECTORS "scoring.json"),
	      *ranking = cJSON_GetObjectItem(vectors, "ranking");
	static const double shares[] = {0.60, 0.25, 0.10, 0.05};
	cJSON *entry, *answer, *list;
	int64_t hidden;
	char *hidden_commit = commit_body("hidden", "salt");

	(void)state;
	now = START;
	answer = call(200, "/get_current_round", NULL, NULL);
	assert_true(number_of(answer, "round_number") == 1);
	assert_true(number_of(answer, "time_remaining_seconds") == 48 * 3600);
	assert_true(cJSON_IsNull(cJSON_GetObjectItem(answer, "baseline_submission_id")));
	cJSON_Delete(answer);
	cJSON_ArrayForEach (entry, cJSON_GetObjectItem(ranking, "submissions")) {
		const char *hotkey = text_of(entry, "miner_hotkey");
		const cJSON *logits = cJSON_GetObjectItem(entry, "logit_verification_passed");

		now = number_of(entry, "created_at");
		register_miner(hotkey);
		assert_true(submit(hotkey, number_of(entry, "tokens_per_sec"),
				    number_of(entry, "target_sequence_length")) ==
			(int64_t)number_of(entry, "id"));
		judge((int64_t)number_of(entry, "id"), 1);
		if (!cJSON_IsNull(logits)) {
			char *query = xprintf("{\"submission_id\": \"%.0f\", \"verified\": \"%s\","
					      " \"cosine_similarity\": \"0.5\"}",
				number_of(entry, "id"), cJSON_IsTrue(logits) ? "true" : "false");

			cJSON_Delete(call_from("x", 200, "/record_verification", NULL, query, NULL));
			free(query);
		}
	}
	register_miner("hidden");
	answer = call(200, "/commit_submission", "hidden", hidden_commit);
	hidden = (int64_t)number_of(answer, "submission_id");
	cJSON_Delete(answer);
	judge(hidden, 1);
	submit("hk0", 1e9, 1000000); /* nobody has judged it */

	answer = call(200, "/verification_stats", NULL, NULL);
	assert_true(number_of(answer, "total_submissions") == 15);
	assert_true(number_of(answer, "verified_passed") == 4);
	assert_true(number_of(answer, "verified_failed") == 6);
	assert_true(number_of(answer, "pending_verification") == 5);
	assert_true(number_of(answer, "pass_rate") == 0.4);
	assert_true(number_of(answer, "avg_cosine_similarity") == 0.5);
	assert_true(cJSON_IsNull(cJSON_GetObjectItem(answer, "avg_max_abs_diff")));
	cJSON_Delete(answer);

	answer = call_from("x", 200, "/finalize_round/{round_id}", NULL, "{\"round_id\": \"1\"}", NULL);
	assert_string_equal(text_of(answer, "status"), "completed");
	assert_string_equal(text_of(answer, "winner"), "hk1");
	list = cJSON_GetObjectItem(answer, "rankings");
	assert_int_equal(cJSON_GetArraySize(list), 4);
	for (int i = 0; i < 4; i++)
		assert_true(number_of(cJSON_GetArrayItem(list, i), "submission_id") ==
			cJSON_GetArrayItem(cJSON_GetObjectItem(ranking, "order"), i)->valuedouble);
	assert_true(number_of(cJSON_GetArrayItem(list, 0), "weighted_score") == 9e6);
	cJSON_Delete(answer);
	refused(call_from("x", 400, "/finalize_round/{round_id}", NULL, "{\"round_id\": \"1\"}", NULL),
		"Round already finalized");

	answer = call(200, "/get_weights", NULL, NULL);
	list = cJSON_GetObjectItem(answer, "weights");
	assert_int_equal(cJSON_GetArraySize(list), 4);
	for (int i = 0; i < 4; i++)
		assert_true(number_of(cJSON_GetArrayItem(list, i), "weight") == shares[i]);
	assert_string_equal(text_of(cJSON_GetArrayItem(list, 0), "hotkey"), "hk1");
	cJSON_Delete(answer);

	/* the second round: 9e6 has to be beaten, equalling it is not enough */
	judge(submit("hk0", 3000000, 1000000), 1);
	judge(submit("hk2", 3000001, 1000000), 1);
	answer = call(200, "/get_current_round", NULL, NULL);
	assert_true(number_of(answer, "round_number") == 2);
	assert_true(number_of(answer, "baseline_submission_id") == 2);
	assert_true(number_of(answer, "total_submissions") == 2);
	cJSON_Delete(answer);
	answer = call_from("x", 200, "/finalize_round/{round_id}", NULL, "{\"round_id\": \"2\"}", NULL);
	assert_string_equal(text_of(answer, "winner"), "hk2");
	assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(answer, "rankings")), 1);
	cJSON_Delete(answer);

	/* a third that nobody wins hands its baseline on; an explicit one counts instead */
	answer = call(200, "/create_round", NULL, "{\"duration_hours\": 1}");
	assert_true(number_of(answer, "round_number") == 3);
	assert_true(number_of(answer, "time_remaining_seconds") == 3600);
	assert_true(number_of(answer, "baseline_submission_id") == 18);
	cJSON_Delete(answer);
	answer = call_from("x", 200, "/finalize_round/{round_id}", NULL, "{\"round_id\": \"3\"}", NULL);
	assert_true(cJSON_IsNull(cJSON_GetObjectItem(answer, "winner")));
	cJSON_Delete(answer);
	answer = call(200, "/create_round", NULL, "{}");
	assert_true(number_of(answer, "baseline_submission_id") == 18);
	cJSON_Delete(answer);
	answer = call(200, "/create_round", NULL, "{\"baseline_submission_id\": 1}");
	assert_true(number_of(answer, "baseline_submission_id") == 1);
	cJSON_Delete(answer);
	refused(call(404, "/create_round", NULL, "{\"baseline_submission_id\": 999}"),
		"Submission not found");
	free(hidden_commit);
	cJSON_Delete(vectors);
}

static void statistics_tell_what_waits(void **state)
{
	cJSON *answer, *stats;

	(void)state;
	register_miner("a");
	submit("a", 100, 1000000);
	now += 300;
	submit("a", 200.126, 100000);
	judge(submit("a", 400, 100000), 1);
	answer = call_from("x", 200, "/get_submission_stats", NULL, "{\"limit\": \"10\"}", NULL);
	assert_true(number_of(answer, "total_submissions") == 3);
	assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(answer, "recent_submissions")), 2);
	assert_true(number_of(cJSON_GetArrayItem(cJSON_GetObjectItem(answer, "recent_submissions"), 0),
			    "id") == 2);
	stats = cJSON_GetObjectItem(answer, "stats");
	assert_true(number_of(stats, "avg_tokens_per_sec") == 150.06);
	assert_true(number_of(stats, "max_tokens_per_sec") == 200.13);
	assert_true(number_of(stats, "min_tokens_per_sec") == 100);
	assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(answer, "top_performers")), 3);
	assert_true(
		number_of(cJSON_GetArrayItem(cJSON_GetObjectItem(answer, "top_performers"), 0), "id") == 3);
	cJSON_Delete(answer);
	now += 301;
	answer = call(200, "/get_submission_rate", NULL, NULL);
	assert_true(number_of(answer, "recent_submissions") == 2);
	assert_true(number_of(answer, "submissions_per_minute") == 0.2);
	assert_true(number_of(answer, "window_minutes") == 10);
	cJSON_Delete(answer);
	answer = call_from("x", 200, "/get_submission_rate", NULL, "{\"window_minutes\": \"0\"}", NULL);
	assert_true(number_of(answer, "submissions_per_minute") == 0);
	cJSON_Delete(answer);
}

static void finalize(unsigned expected, int64_t round, const char *winner)
{
	char *parameters = xprintf("{\"round_id\": \"%lld\"}", (long long)round);
	cJSON *answer = call_from("x", expected, "/finalize_round/{round_id}", NULL, parameters, NULL);

	if (winner)
		assert_string_equal(text_of(answer, "winner"), winner);
	cJSON_Delete(answer);
	free(parameters);
}

static int count_weights(int64_t round)
{
	char *parameters = round ? xprintf("{\"round_id\": \"%lld\"}", (long long)round) : NULL;
	cJSON *answer = call_from("x", 200, "/get_weights", NULL, parameters, NULL);
	int count = cJSON_GetArraySize(cJSON_GetObjectItem(answer, "weights"));

	cJSON_Delete(answer);
	free(parameters);
	return count;
}

/* --- like 2026-02 ------------------------------------------------------------------------------ */

static void deployed_registers_once_and_whoever_signs(void **state)
{
	char *first = registration("a", "1M"), *second = registration("a", "100k");
	cJSON *answer;

	(void)state;
	open_deployed();
	cJSON_Delete(call(200, "/register_miner", "a", first));
	answer = call(500, "/register_miner", "a", second);
	assert_string_equal(cJSON_GetStringValue(answer), "Internal Server Error");
	cJSON_Delete(answer);
	cJSON_Delete(call(500, "/register_miner", "a", second));
	cJSON_Delete(call(200, "/register_miner", "a", first));
	answer = call(200, "/register_miner", "b", first);
	assert_string_equal(text_of(answer, "hotkey"), "b");
	cJSON_Delete(answer);
	free(first);
	free(second);
}

static void deployed_takes_wrapped_signatures(void **state)
{
	static const uint8_t seed[SEED_LENGTH] = {7};
	struct error err = {0};
	struct keypair *keypair = keypair_from_seed(CRYPTO_SR25519, seed, &err);
	const char *address = keypair_address(keypair);
	char *wrapped = xprintf("<Bytes>%s</Bytes>", address), hex[2 * SIGNATURE_LENGTH + 1];
	uint8_t signature[SIGNATURE_LENGTH];

	(void)state;
	assert_int_equal(keypair_sign(keypair, wrapped, strlen(wrapped), signature, &err), 0);
	hex_encode(signature, sizeof(signature), hex);
	assert_false(authenticates(address, hex));
	open_deployed();
	assert_true(authenticates(address, hex));
	hex[0] ^= 1;
	assert_false(authenticates(address, hex));
	free(wrapped);
	keypair_free(keypair);
}

/* Asking for the round mends it. */
static void deployed_waits_for_the_next_round(void **state)
{
	char *commit = commit_body("a", "salt");

	(void)state;
	open_deployed();
	register_miner("a");
	submit("a", 1, 1); /* begins the first round */
	finalize(200, 1, NULL);
	refused(call(500, "/commit_submission", "a", commit),
		"(sqlite3.IntegrityError) UNIQUE constraint failed");
	refused(call(500, "/submit_kernel", "a",
			"{\"miner_hotkey\": \"a\", \"fork_url\": \"u\", \"commit_hash\": \"c\", \"signature\": \"s\","
			" \"target_sequence_length\": 1, \"tokens_per_sec\": 1}"),
		"(sqlite3.IntegrityError)");
	cJSON_Delete(call(200, "/get_current_round", NULL, NULL));
	cJSON_Delete(call(200, "/commit_submission", "a", commit));
	free(commit);
}

/* The winner of the round before, and of none but that, counts for the weights; the round does not tell. */
static void deployed_baselines_count_for_the_weights_alone(void **state)
{
	cJSON *answer;

	(void)state;
	open_deployed();
	register_miner("a");
	register_miner("b");
	judge(submit("a", 100, 1000000), 1);
	finalize(200, 1, "a");
	assert_int_equal(count_weights(0), 1);
	answer = call(200, "/get_current_round", NULL, NULL);
	assert_true(number_of(answer, "round_number") == 2);
	assert_true(cJSON_IsNull(cJSON_GetObjectItem(answer, "baseline_submission_id")));
	cJSON_Delete(answer);
	judge(submit("b", 50, 1000000), 1);
	finalize(200, 2, "b");
	assert_int_equal(count_weights(0), 0);
	assert_int_equal(count_weights(1), 1);
	cJSON_Delete(call(200, "/get_current_round", NULL, NULL));
	judge(submit("a", 60, 1000000), 1); /* more than the last winner's 50, less than the first's 100 */
	finalize(200, 3, "a");
	assert_int_equal(count_weights(0), 1);

	/* nobody: the answer says little, and the round after has no baseline */
	cJSON_Delete(call(200, "/get_current_round", NULL, NULL));
	answer = call_from("x", 200, "/finalize_round/{round_id}", NULL, "{\"round_id\": \"4\"}", NULL);
	assert_null(cJSON_GetObjectItem(answer, "winner"));
	assert_true(cJSON_IsArray(cJSON_GetObjectItem(answer, "winners")));
	cJSON_Delete(answer);
	cJSON_Delete(call(200, "/get_current_round", NULL, NULL));
	judge(submit("b", 1, 1000000), 1);
	finalize(200, 5, "b");
	assert_int_equal(count_weights(0), 1);
}

static void deployed_creates_rounds_and_says_500(void **state)
{
	cJSON *answer;

	(void)state;
	open_deployed();
	cJSON_Delete(call(500, "/create_round", NULL, "{\"duration_hours\": 2}"));
	answer = call(200, "/get_current_round", NULL, NULL);
	assert_true(number_of(answer, "round_number") == 1);
	assert_true(number_of(answer, "time_remaining_seconds") == 7200);
	cJSON_Delete(answer);
	cJSON_Delete(call(500, "/create_round", NULL, "{\"duration_hours\": -2}"));
	cJSON_Delete(call(422, "/create_round", NULL, "{\"duration_hours\": 1.5}"));
	cJSON_Delete(call(500, "/create_round", NULL, "{\"duration_hours\": 99999999999}"));
	cJSON_Delete(call(500, "/create_round", NULL, "{\"baseline_submission_id\": 1e19}"));
	answer = call(200, "/get_current_round", NULL, NULL);
	assert_true(number_of(answer, "round_number") == 3); /* the third could not be made */
	cJSON_Delete(answer);
}

/* One of them, and everybody's list is gone. */
static void deployed_stores_any_speed(void **state)
{
	static const char claim[] = "{\"miner_hotkey\": \"a\", \"fork_url\": \"u\", \"commit_hash\": \"c\","
				    " \"signature\": \"s\", \"target_sequence_length\": 1152921504606846976,"
				    " \"tokens_per_sec\": %s}";
	static const char *const speeds[] = {"1e999", "-1e999", "1.7e308"};
	cJSON *answer;

	(void)state;
	for (size_t i = 0; i < sizeof(speeds) / sizeof(*speeds); i++) {
		char *body = xprintf(claim, speeds[i]), *problem;

		open_anew("strict");
		register_miner("a");
		problem = problems(call(422, "/submit_kernel", "a", body));
		assert_non_null(strstr(problem, "body/target_sequence_length/ int_parsing_size;"));
		assert_non_null(strstr(problem, "body/tokens_per_sec/"));
		free(problem);

		open_deployed();
		register_miner("a");
		/* the server cannot write the answer, see test_server.c; what counts is that the row is there */
		cJSON_Delete(call(200, "/submit_kernel", "a", body));
		cJSON_Delete(call(200, "/submit_kernel", "a", body));
		free(body);
		if (strstr(speeds[i], "999")) {
			answer = call(500, "/get_submission_stats", NULL, NULL);
			assert_string_equal(cJSON_GetStringValue(answer), "Internal Server Error");
			cJSON_Delete(answer);
		}
	}
	answer = call(200, "/get_submission_stats", NULL, NULL);
	answer->valuedouble = number_of(
		cJSON_GetArrayItem(cJSON_GetObjectItem(answer, "recent_submissions"), 0),
		"target_sequence_length");
	assert_true(answer->valuedouble == 0x1p60);
	cJSON_Delete(answer);
}

static void deployed_judges_may_write_anything(void **state)
{
	static const struct {
		unsigned status;
		const char *body;
	} cases[] = {
		{400, "{}"},
		{400, "{\"submission_id\": 0}"},
		{400, "{\"submission_id\": []}"},
		{404, "{\"submission_id\": \"x\"}"},
		{404, "{\"submission_id\": 1.5}"},
		{404, "{\"submission_id\": 9}"},
		{500, "{\"submission_id\": [1]}"},
		{500, "{\"submission_id\": 1e19}"},
		{500, "{\"submission_id\": 1, \"score\": \"x\"}"},
		{200, "{\"submission_id\": \"1\"}"},
		{200, "{\"submission_id\": true, \"score\": null}"},
		{422, "[]"},
	};

	(void)state;
	open_deployed();
	register_miner("a");
	submit("a", 1, 1);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		cJSON_Delete(call(cases[i].status, "/mark_validated", NULL, cases[i].body));
	cJSON_Delete(call(500, "/record_failure", NULL, "{\"ip_address\": [1]}"));
	cJSON_Delete(call(200, "/record_failure", NULL, "{\"ip_address\": 5}"));
}

/* A score of 0 makes good for failures; a ban is asked for where something is submitted. */
static void deployed_bans_are_half_hearted(void **state)
{
	const char *failure = "{\"ip_address\": \"192.0.2.1\"}";
	char *register_a = registration("a", "1M"), *commit = commit_body("a", "salt"),
	     *reveal = reveal_body(1, "a", "salt");

	(void)state;
	open_deployed();
	register_miner("a");
	cJSON_Delete(call(200, "/commit_submission", "a", commit));
	submit("a", 1, 1);
	for (int i = 0; i < 4; i++)
		cJSON_Delete(call(200, "/record_failure", NULL, failure));
	judge(2, 0);
	for (int i = 0; i < 4; i++)
		cJSON_Delete(call(200, "/record_failure", NULL, failure));
	submit("a", 1, 1);
	for (int i = 0; i < 5; i++)
		cJSON_Delete(call(200, "/record_failure", NULL, failure));
	refused(call(403, "/commit_submission", "a", commit), "IP address banned: ");
	cJSON_Delete(call(200, "/register_miner", "a", register_a));
	now += 1200;
	cJSON_Delete(call(200, "/reveal_submission", "a", reveal));
	free(register_a);
	free(commit);
	free(reveal);
}

/* Each field has its bound, where fields are bounded. */
static void strict_fields_are_bounded(void **state)
{
	char long_text[4096], *body, *problem;

	(void)state;
	memset(long_text, 'x', sizeof(long_text));
	long_text[3000] = '\0';
	body = xprintf("{\"miner_hotkey\": \"%s\", \"fork_url\": \"%s\", \"commit_hash\": \"%s\","
		       " \"repo_hash\": \"%s\", \"signature\": \"%s\", \"target_sequence_length\": 1e15,"
		       " \"tokens_per_sec\": 1e300, \"vram_mb\": -1}",
		long_text, long_text, long_text, long_text, long_text);
	problem = problems(call(422, "/submit_kernel", "a", body));
	assert_string_equal(problem,
		"body/miner_hotkey/ string_too_long;body/target_sequence_length/ less_than_equal;"
		"body/repo_hash/ string_too_long;body/fork_url/ string_too_long;body/commit_hash/ string_too_long;"
		"body/signature/ string_too_long;body/tokens_per_sec/ less_than_equal;"
		"body/vram_mb/ greater_than_equal;");
	free(problem);
	free(body);
}

/* Everything that an answer spoke of is there after a restart, bans and rounds included. */
static void a_restart_forgets_nothing(void **state)
{
	static const char *const reports[] = {"/pending_reveals", "/get_submission_stats",
		"/get_submission_rate", "/get_current_round", "/verification_stats", "/get_weights", NULL};
	char *before[6], *commit = commit_body("a", "salt");

	(void)state;
	register_miner("a");
	judge(submit("a", 1, 1), 1);
	submit("a", 2, 2);
	cJSON_Delete(call(200, "/commit_submission", "a", commit));
	for (int i = 0; i < 5; i++)
		cJSON_Delete(call(200, "/record_failure", NULL, "{\"ip_address\": \"192.0.2.9\"}"));
	cJSON_Delete(call_from("x", 200, "/finalize_round/{round_id}", NULL, "{\"round_id\": \"1\"}", NULL));
	for (int i = 0; reports[i]; i++) {
		cJSON *answer = call(200, reports[i], NULL, NULL);

		before[i] = cJSON_Print(answer);
		cJSON_Delete(answer);
	}
	open_like("strict");
	for (int i = 0; reports[i]; i++) {
		cJSON *answer = call(200, reports[i], NULL, NULL);
		char *after = cJSON_Print(answer);

		assert_string_equal(after, before[i]);
		cJSON_Delete(answer);
		cJSON_free(after);
		cJSON_free(before[i]);
	}
	refused(call(409, "/commit_submission", "a", commit), "Commitment hash already exists");
	refused(call_from("192.0.2.9", 403, "/commit_submission", "a", NULL, commit), "IP address banned");
	free(commit);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, remove_service)
		TEST(only_a_signature_of_the_own_address_opens),
		TEST(a_hotkey_registers_for_each_model_and_league),
		TEST(foreign_and_unregistered_hotkeys_are_refused),
		TEST(the_eleventh_request_in_a_minute_waits),
		TEST(reveals_wait_for_their_block),
		TEST(a_docker_image_takes_the_urls_place),
		TEST(five_failures_ban_an_address_for_a_day),
		TEST(judgements_tell_on_the_address),
		TEST(judges_are_told_what_is_wrong),
		TEST(each_wrong_field_is_named),
		TEST(rounds_rank_and_the_winner_is_the_next_baseline),
		TEST(statistics_tell_what_waits),
		TEST(deployed_registers_once_and_whoever_signs),
		TEST(deployed_takes_wrapped_signatures),
		TEST(deployed_waits_for_the_next_round),
		TEST(deployed_baselines_count_for_the_weights_alone),
		TEST(deployed_creates_rounds_and_says_500),
		TEST(deployed_stores_any_speed),
		TEST(deployed_judges_may_write_anything),
		TEST(deployed_bans_are_half_hearted),
		TEST(strict_fields_are_bounded),
		TEST(a_restart_forgets_nothing),
	};

	if (sodium_init() < 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
