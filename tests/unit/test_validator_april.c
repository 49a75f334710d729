/* validator: what it does like 2026-04 and not before */
#include "service.h"

#include <sodium.h>

#include "api/message.h"
#include "base/database.h"
#include "base/hex.h"
#include "key/keypair.h"

#define HOUR 3600.0

static int set_up(void **state)
{
	(void)state;
	return make_service("2026-04");
}

/* --- requests ---------------------------------------------------------------------------------- */

/* A document in which ' stands for ". The caller frees. */
__attribute__((format(printf, 1, 2))) static char *quoted(const char *format, ...)
{
	va_list args;
	char *text;

	va_start(args, format);
	assert_true(vasprintf(&text, format, args) > 0);
	va_end(args);
	for (char *at = text; (at = strchr(at, '\''));)
		*at = '"';
	return text;
}

static cJSON *post(unsigned expected, const char *route, const char *hotkey, char *body)
{
	cJSON *answer = call(expected, route, hotkey, body);

	free(body);
	return answer;
}

static cJSON *get(const char *route, char *parameters)
{
	cJSON *answer = call_from("192.0.2.1", 200, route, NULL, parameters, NULL);

	free(parameters);
	return answer;
}

/* From a fork of the hotkey's own, unless `owner` names another. */
static char *kernel(const char *hotkey, const char *owner, double speed, const char *network)
{
	return quoted(
		"{'miner_hotkey': '%s', 'fork_url': 'https://github.com/%s/fla', 'commit_hash': 'c0ffee',"
		" 'target_sequence_length': 1000000, 'tokens_per_sec': %.17g, 'signature': 's',"
		" 'docker_image': 'me/image:1', 'network': '%s', 'benchmarks': {'512':{'tokens_per_sec':1}}}",
		hotkey, owner ? owner : hotkey, speed, network);
}

static int64_t submit(const char *hotkey, double speed, const char *network)
{
	cJSON *answer = post(200, "/submit_kernel", hotkey, kernel(hotkey, NULL, speed, network));
	int64_t id = (int64_t)number_of(answer, "submission_id");

	assert_string_equal(text_of(answer, "docker_image"), "me/image:1");
	cJSON_Delete(answer);
	return id;
}

static cJSON *verify(unsigned expected, int64_t id, double speed, const char *verified)
{
	return post(expected, "/mark_validated_with_verification", NULL,
		quoted("{'submission_id': %lld, 'score': 1, 'actual_tokens_per_sec': %.17g, 'verified': %s,"
		       " 'cosine_similarity': 0.999, 'max_abs_diff': 0.01, 'throughput': 9.5, 'reason': 'r'}",
			(long long)id, speed, verified));
}

static char *commitment(const char *hotkey, const char *data)
{
	char hash[65];

	message_commitment_hash("salt", data, hash);
	return quoted("{'miner_hotkey': '%s', 'commitment_hash': '%s', 'target_sequence_length': 300000,"
		      " 'signature': 's'}",
		hotkey, hash);
}

static char *revelation(int64_t id, const char *hotkey, const char *owner, const char *image, double speed)
{
	return quoted(
		"{'submission_id': %lld, 'miner_hotkey': '%s', 'commitment_salt': 'salt',"
		" 'fork_url': 'https://github.com/%s/fla', 'commit_hash': 'c0ffee', 'tokens_per_sec': %g,"
		" 'signature': 's', 'docker_image': '%s'}",
		(long long)id, hotkey, owner, speed, image);
}

/* The list of an answer, which is to be freed. */
static const cJSON *list_of(const cJSON *answer, const char *name, int count)
{
	const cJSON *list = cJSON_GetObjectItem(answer, name);

	assert_true(cJSON_IsArray(list));
	assert_int_equal(cJSON_GetArraySize(list), count);
	return list;
}

/* --- who may do what --------------------------------------------------------------------------- */

static struct keypair *make_key(uint8_t first)
{
	const uint8_t seed[SEED_LENGTH] = {first};
	struct error err = {0};
	struct keypair *key = keypair_from_seed(CRYPTO_SR25519, seed, &err);

	assert_non_null(key);
	return key;
}

/* The status that a route's check comes to, with a signature of `key` over its address and `signed_time`, and with a
 * Timestamp header; either NULL: without. */
static unsigned check(const char *route, const struct keypair *key, const char *signed_time,
	const char *sent_time, const char *prefix)
{
	char hex[2 * SIGNATURE_LENGTH + 1], *text = message_identity(keypair_address(key), signed_time),
					    *value;
	uint8_t signature[SIGNATURE_LENGTH];
	cJSON *headers = cJSON_CreateObject();
	struct server_request request = {.headers = headers};
	struct server_reply reply = {.status = 200};
	struct error err = {0};
	bool passed;

	assert_int_equal(keypair_sign(key, text, strlen(text), signature, &err), 0);
	hex_encode(signature, sizeof(signature), hex);
	value = xprintf("%s%s", prefix, hex);
	cJSON_AddStringToObject(headers, "Hotkey", keypair_address(key));
	cJSON_AddStringToObject(headers, "Signature", value);
	if (sent_time)
		cJSON_AddStringToObject(headers, "Timestamp", sent_time);
	passed = find_route(route)->check(&request, &reply, validator);
	assert_int_equal(passed, reply.status == 200);
	cJSON_Delete(headers);
	cJSON_Delete(reply.body);
	free(value);
	free(text);
	return reply.status;
}

static void signatures_cover_the_time_where_it_is_sent(void **state)
{
	static const struct {
		const char *signed_time, *sent_time;
		unsigned status;
	} cases[] = {
		{NULL, NULL, 200},
		{"1700000000", "1700000000", 200},
		{"1699999880", "1699999880", 200}, /* 120 s */
		{"1700000120", "1700000120", 200},
		{"1699999879", "1699999879", 401},
		{"1700000121", "1700000121", 401},
		{"1700000000", "1700000001", 401},
		{NULL, "1700000000", 401},
		{"1700000000", NULL, 401},
		{"soon", "soon", 401},
		{"1700000000.5", "1700000000.5", 401},
		{"99999999999999999999", "99999999999999999999", 401},
		{"", "", 401},
	};
	struct keypair *key = make_key(7);

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		for (int prefixed = 0; prefixed < 2; prefixed++)
			assert_int_equal(check("/submit_kernel", key, cases[i].signed_time,
						 cases[i].sent_time, prefixed ? "0x" : ""),
				cases[i].status);
	open_anew("2026-02"); /* knows nothing of it */
	assert_int_equal(check("/submit_kernel", key, NULL, "17", ""), 200);
	assert_int_equal(check("/submit_kernel", key, "1700000000", "1700000000", ""), 401);
	assert_int_equal(check("/submit_kernel", key, NULL, NULL, "0x"), 401);
	keypair_free(key);
}

static void lists_are_for_validators(void **state)
{
	struct keypair *miner = make_key(7), *judge = make_key(8);
	char *hotkeys = xprintf("5Other, %s", keypair_address(judge));
	struct server_request nobody = {.headers = NULL};
	int guarded = 0;

	(void)state;
	for (const struct server_route *route = options.version->routes; route->method; route++) {
		struct server_reply reply = {.status = 200};
		bool dashboard = !strncmp(route->pattern, "/dashboard/", 11);

		if (!route->handle || !strcmp(route->pattern, "/"))
			continue; /* the page is this machine's user's */
		assert_non_null(route->check);
		assert_false(route->check(&nobody, &reply, validator));
		assert_int_equal(reply.status, 401);
		cJSON_Delete(reply.body);
		options.validator_hotkeys = "";
		open_like("2026-04");
		if (check(route->pattern, judge, NULL, NULL, "") == 200)
			continue; /* a miner's */
		assert_int_equal(check(route->pattern, judge, NULL, NULL, ""), dashboard ? 401 : 503);
		options.validator_hotkeys = hotkeys;
		open_like("2026-04");
		assert_int_equal(check(route->pattern, judge, NULL, NULL, ""), 200);
		assert_int_equal(check(route->pattern, miner, NULL, NULL, ""), dashboard ? 401 : 403);
		guarded++;
	}
	assert_int_equal(guarded, 22);
	free(hotkeys);
	keypair_free(miner);
	keypair_free(judge);
}

static bool opens(const char *header, const char *value)
{
	cJSON *headers = cJSON_CreateObject();
	struct server_request request = {.headers = headers};
	struct server_reply reply = {.status = 200};
	bool open;

	cJSON_AddStringToObject(headers, header, value);
	open = find_route("/dashboard/overview")->check(&request, &reply, validator);
	assert_int_equal(reply.status, open ? 200 : 401);
	cJSON_Delete(reply.body);
	cJSON_Delete(headers);
	return open;
}

static void dashboards_open_to_keys(void **state)
{
	(void)state;
	assert_false(opens("X-API-Key", ""));
	options.api_keys = "one:read, two:admin,three,:x";
	open_like("2026-04");
	assert_true(opens("X-API-Key", "one"));
	assert_true(opens("x-api-key", "two"));
	assert_true(opens("Authorization", "Bearer three"));
	assert_true(opens("authorization", "bearer one"));
	assert_false(opens("Authorization", "one"));
	assert_false(opens("X-API-Key", "one:read"));
	assert_false(opens("X-API-Key", "read"));
	assert_false(opens("X-API-Key", "on"));
	assert_false(opens("X-API-Key", ""));
	assert_false(opens("X-API-Key", "x"));
}

/* --- miners ------------------------------------------------------------------------------------ */

static void who_submits_becomes_a_miner_and_cannot_register(void **state)
{
	char *body = quoted(
		"{'hotkey': 'a', 'model_name': 'm', 'league': '1M', 'uid': 5, 'network': 'test'}");
	char *again = quoted("{'hotkey': 'a', 'model_name': 'm', 'league': '900k', 'network': 'test'}");
	cJSON *answer;

	(void)state;
	submit("a", 100, "finney");
	cJSON_Delete(post(500, "/register_miner", "a",
		quoted("{'hotkey': 'a', 'model_name': 'm', 'league': '1M', 'network': 'elsewhere'}")));
	answer = call(200, "/register_miner", "a", body); /* not on the other network */
	assert_string_equal(text_of(answer, "status"), "registered");
	assert_string_equal(text_of(answer, "network"), "test");
	assert_true(number_of(answer, "uid") == 5);
	cJSON_Delete(answer);
	answer = call(200, "/register_miner", "a", body);
	assert_string_equal(text_of(answer, "status"), "already_registered");
	cJSON_Delete(answer);
	cJSON_Delete(call(500, "/register_miner", "a", again));
	cJSON_Delete(post(200, "/commit_submission", "b", commitment("b", "i")));
	cJSON_Delete(post(
		500, "/register_miner", "b", quoted("{'hotkey': 'b', 'model_name': 'm', 'league': '1M'}")));
	answer = get("/dashboard/miner/{hotkey}", quoted("{'hotkey': 'a'}"));
	assert_true(number_of(answer, "uid") == -1);
	cJSON_Delete(answer);
	answer = get("/dashboard/miner/{hotkey}", quoted("{'hotkey': 'b'}"));
	assert_true(number_of(answer, "uid") == 0);
	cJSON_Delete(answer);
	free(body);
	free(again);
}

static void a_sync_replaces_the_miners_of_a_network(void **state)
{
	char *registered = quoted("{'hotkey': 'c', 'model_name': 'm', 'league': '1M'}");
	cJSON *answer;

	(void)state;
	submit("a", 100, "finney");
	submit("b", 100, "finney");
	submit("b", 100, "test");
	cJSON_Delete(post(200, "/flag_miner", NULL, quoted("{'hotkey': 'b', 'reason': 'why'}")));
	answer = post(200, "/sync_uids", NULL,
		quoted("{'network': 'finney', 'uid_map': {'a': 3, 'c': 4}, 'coldkey_map': {'a': 'cold'}}"));
	assert_true(number_of(answer, "deleted") == 1);
	assert_true(number_of(answer, "updated") == 2);
	cJSON_Delete(answer);
	cJSON_Delete(call(500, "/register_miner", "c", registered)); /* it has a row */
	answer = get("/dashboard/miner/{hotkey}", quoted("{'hotkey': 'a'}"));
	assert_true(number_of(answer, "uid") == 3);
	cJSON_Delete(answer);
	cJSON_Delete(call_from("x", 404, "/dashboard/miner/{hotkey}", NULL, "{\"hotkey\": \"b\"}", NULL));
	/* on the other network it is still there, and still flagged */
	refused(post(403, "/submit_kernel", "b", kernel("b", NULL, 100, "finney")), "Miner flagged: why");
	cJSON_Delete(post(200, "/sync_uids", NULL, quoted("{'network': 'test', 'uid_map': {}}")));
	submit("b", 100, "finney");
	cJSON_Delete(
		post(422, "/sync_uids", NULL, quoted("{'uid_map': {'a': 'x'}, 'coldkey_map': {'a': 5}}")));
	cJSON_Delete(post(422, "/sync_uids", NULL, quoted("{'uid_map': [1]}")));
	cJSON_Delete(post(422, "/sync_uids", NULL, quoted("{}")));
	free(registered);
}

/* --- submissions ------------------------------------------------------------------------------- */

static void submissions_of_a_hotkey_are_apart(void **state)
{
	char *commit = commitment("a", "me/image:1");

	(void)state;
	options.cooldown = 300;
	open_like("2026-04");
	submit("a", 100, "finney");
	refused(post(429, "/submit_kernel", "a", kernel("a", NULL, 100, "finney")),
		"Rate limit exceeded. Please wait 300 seconds ");
	now += 0.5;
	refused(call(429, "/commit_submission", "a", commit),
		"Rate limit exceeded. Please wait 300 seconds ");
	submit("a", 100, "test");
	submit("b", 100, "finney");
	now += 298.5;
	refused(call(429, "/commit_submission", "a", commit), "Rate limit exceeded. Please wait 1 seconds ");
	open_like("2026-04"); /* a restart makes no difference */
	refused(call(429, "/commit_submission", "a", commit), "Rate limit exceeded. Please wait 1 seconds ");
	now += 1;
	cJSON_Delete(call(200, "/commit_submission", "a", commit));
	refused(call(429, "/commit_submission", "a", commit),
		"Rate limit exceeded. Please wait 300 seconds ");
	now += 300;
	refused(call(409, "/commit_submission", "a", commit), "Commitment hash already exists");
	cJSON_Delete(
		post(200, "/submit_kernel", "a", kernel("a", NULL, 100, "finney"))); /* a refusal is none */
	free(commit);
}

static void claims_are_plausible(void **state)
{
	static const struct {
		double speed;
		const char *words;
	} cases[] = {
		{0, "tokens_per_sec must be a positive number."},
		{-1, "tokens_per_sec must be a positive number."},
		{9.99, "tokens_per_sec 9.99 outside plausible range"},
		{50000000.5, "tokens_per_sec 50000000.5 outside plausible range"},
		{1e300, "tokens_per_sec 1e+300 outside plausible range"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		refused(post(400, "/submit_kernel", "a", kernel("a", NULL, cases[i].speed, "finney")),
			cases[i].words);
	refused(post(400, "/submit_kernel", "a",
			quoted("{'miner_hotkey': 'a', 'fork_url': 'u', 'commit_hash': 'c', 'signature': 's',"
			       " 'target_sequence_length': 1, 'tokens_per_sec': 1e999}")),
		"tokens_per_sec inf outside plausible range");
	submit("a", 10, "finney");
	submit("a", 50000000, "finney");
}

static void reveals_are_checked_in_turn(void **state)
{
	int64_t id;
	cJSON *answer;

	(void)state;
	submit("owner", 100, "finney");
	answer = post(200, "/commit_submission", "a", commitment("a", "me/image:1"));
	id = (int64_t)number_of(answer, "submission_id");
	/* the blocks of 2026-04 begin later */
	assert_true(number_of(answer, "reveal_block") == (double)((1700000000LL - 1687939200) / 12 + 100));
	cJSON_Delete(answer);
	refused(post(404, "/reveal_submission", "a", revelation(99, "a", "a", "me/image:1", 5)),
		"Submission not found");
	refused(post(425, "/reveal_submission", "a", revelation(id, "a", "owner", "wrong", -1)),
		"Cannot reveal yet. Wait 100 blocks (~20 minutes)");
	now += 1200;
	refused(post(400, "/reveal_submission", "a", revelation(id, "a", "owner", "wrong", -1)),
		"Hash mismatch");
	refused(post(403, "/reveal_submission", "a", revelation(id, "a", "owner", "me/image:1", -1)),
		"GitHub account owner belongs to another hotkey");
	refused(post(400, "/reveal_submission", "a", revelation(id, "a", "a", "me/image:1", 0)),
		"tokens_per_sec must be a positive number.");
	/* nobody was flagged, and any positive speed will do */
	cJSON_Delete(post(200, "/reveal_submission", "a", revelation(id, "a", "a", "me/image:1", 5)));
	refused(post(409, "/reveal_submission", "a", revelation(id, "a", "a", "me/image:1", 5)),
		"Submission already revealed");
	/* committed to the URL: an image cannot be added */
	answer = post(200, "/commit_submission", "a", commitment("a", "https://github.com/a/fla"));
	id = (int64_t)number_of(answer, "submission_id");
	cJSON_Delete(answer);
	now += 1200;
	refused(post(400, "/reveal_submission", "a", revelation(id, "a", "a", "me/image:1", 5)),
		"Hash mismatch");
	cJSON_Delete(post(200, "/reveal_submission", "a", revelation(id, "a", "a", "", 5)));
}

static void lists_hide_the_forks(void **state)
{
	const cJSON *entry;
	cJSON *answer;

	(void)state;
	submit("a", 100, "finney");
	answer = get("/get_submission_stats", quoted("{'limit': '200'}"));
	entry = list_of(answer, "recent_submissions", 1)->child;
	assert_string_equal(text_of(entry, "fork_url"), "[HIDDEN]");
	assert_string_equal(text_of(entry, "commit_hash"), "[HIDDEN]");
	cJSON_Delete(answer);
	cJSON_Delete(call_from("x", 422, "/get_submission_stats", NULL, "{\"limit\": \"201\"}", NULL));
}

/* --- judgement --------------------------------------------------------------------------------- */

static void validators_are_given_what_waits(void **state)
{
	const cJSON *list, *entry;
	cJSON *answer;
	int64_t first;

	(void)state;
	cJSON_Delete(post(200, "/commit_submission", "hidden", commitment("hidden", "i")));
	first = submit("a", 100, "finney");
	submit("flagged", 100, "finney");
	submit("elsewhere", 100, "test");
	now++;
	submit("b", 100, "finney");
	now++;
	submit("b", 100, "finney");
	cJSON_Delete(post(200, "/flag_miner", NULL, quoted("{'hotkey': 'flagged'}")));
	cJSON_Delete(verify(200, submit("c", 100, "finney"), 100, "true"));
	answer = get("/get_pending_validations", quoted("{'limit': '2'}"));
	assert_true(number_of(answer, "pending_count") == 2);
	assert_true(number_of(answer, "total_pending") == 3);
	list = list_of(answer, "submissions", 2);
	entry = list->child;
	assert_true(number_of(entry, "id") == (double)first);
	assert_string_equal(text_of(entry, "fork_url"), "https://github.com/a/fla");
	assert_string_equal(text_of(entry, "docker_image"), "me/image:1");
	assert_string_equal(text_of(entry, "benchmarks"), "{\"512\":{\"tokens_per_sec\":1}}");
	assert_null(cJSON_GetObjectItem(entry, "ip_address"));
	assert_string_equal(text_of(entry->next, "miner_hotkey"), "b");
	cJSON_Delete(answer);
	cJSON_Delete(call_from("x", 422, "/get_pending_validations", NULL, "{\"limit\": \"101\"}", NULL));
}

static void judgements_come_with_a_verification(void **state)
{
	int64_t id = submit("a", 50000, "finney"), hidden;
	cJSON *answer;

	(void)state;
	refused(verify(404, 99, 100, "true"), "Submission not found");
	answer = post(200, "/commit_submission", "a", commitment("a", "i"));
	hidden = (int64_t)number_of(answer, "submission_id");
	cJSON_Delete(answer);
	refused(verify(409, hidden, 100, "true"), "Submission is not revealed yet");
	refused(verify(400, id, 9, "true"), "actual_tokens_per_sec 9.0 outside plausible range");
	answer = get("/get_pending_validations", NULL); /* it still waits */
	list_of(answer, "submissions", 1);
	cJSON_Delete(answer);
	answer = post(200, "/mark_validated_with_verification", NULL,
		quoted("{'submission_id': %lld, 'score': 7, 'actual_tokens_per_sec': 49999, 'verified': true}",
			(long long)id));
	assert_true(number_of(answer, "score") == 1);
	assert_true(cJSON_IsFalse(cJSON_GetObjectItem(answer, "flagged")));
	cJSON_Delete(answer);
	answer = post(200, "/mark_validated_with_verification", NULL,
		quoted("{'submission_id': %lld, 'score': -1}", (long long)id));
	assert_true(number_of(answer, "score") == 0);
	assert_true(cJSON_IsNull(cJSON_GetObjectItem(answer, "verified")));
	assert_true(cJSON_IsFalse(cJSON_GetObjectItem(answer, "flagged"))); /* nothing was measured */
	cJSON_Delete(answer);
	cJSON_Delete(post(422, "/mark_validated_with_verification", NULL, quoted("{'submission_id': 1}")));
}

/* More than half of the claim too much, and more than 1000 tokens/s. */
static void bold_claims_are_flagged(void **state)
{
	static const struct {
		double claim, measured;
		bool bold;
	} cases[] = {{4000, 2000, false}, {4000, 1999, true}, {1900, 899.5, true}, {1900, 900, false},
		{1000, 10, false}, {50e6, 24e6, true}, {100, 200, false}};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		char hotkey[2] = {(char)('a' + i)};
		cJSON *answer = verify(
			200, submit(hotkey, cases[i].claim, "finney"), cases[i].measured, "true");

		assert_int_equal(cJSON_IsTrue(cJSON_GetObjectItem(answer, "flagged")), cases[i].bold);
		cJSON_Delete(answer);
		answer = post(cases[i].bold ? 403 : 200, "/submit_kernel", hotkey,
			kernel(hotkey, NULL, 100, "test"));
		if (cases[i].bold)
			refused(answer, "Miner flagged: Claimed ");
		else
			cJSON_Delete(answer);
	}
}

/* --- flags ------------------------------------------------------------------------------------- */

static void a_github_name_has_one_hotkey(void **state)
{
	(void)state;
	submit("a", 100, "finney");
	refused(post(403, "/submit_kernel", "b", kernel("b", "a", 100, "test")),
		"GitHub account a belongs to another hotkey");
	refused(post(403, "/submit_kernel", "b", kernel("b", "b", 100, "finney")),
		"Miner flagged: GitHub account a belongs to another hotkey");
	refused(post(403, "/commit_submission", "b", commitment("b", "i")), "Miner flagged: ");
	refused(post(403, "/register_miner", "b",
			quoted("{'hotkey': 'b', 'model_name': 'm', 'league': '1M'}")),
		"Miner flagged: ");
	cJSON_Delete(post(200, "/submit_kernel", "c", kernel("c", "A", 100, "finney"))); /* case counts */
	submit("a", 100, "finney");
	cJSON_Delete(post(200, "/flag_miner", NULL, quoted("{'hotkey': 'b', 'flag': false}")));
	submit("b", 100, "finney");
	refused(post(404, "/flag_miner", NULL, quoted("{'hotkey': 'nobody'}")), "Miner not found");
}

static cJSON *submit_from(unsigned expected, const char *client, const char *hotkey)
{
	char *body = kernel(hotkey, NULL, 100, "finney");
	cJSON *answer = call_from(client, expected, "/submit_kernel", hotkey, NULL, body);

	free(body);
	return answer;
}

/* The later one is flagged at once, the earlier one at its next submission. */
static void a_public_address_has_one_hotkey(void **state)
{
	const cJSON *list;
	cJSON *answer;

	(void)state;
	cJSON_Delete(submit_from(200, "8.8.4.4", "a"));
	refused(submit_from(403, "8.8.4.4", "b"), "IP address 8.8.4.4 belongs to another hotkey");
	refused(submit_from(403, "8.8.4.5", "b"), "Miner flagged: IP address 8.8.4.4");
	refused(submit_from(403, "8.8.4.4", "a"), "IP address 8.8.4.4 belongs to another hotkey");
	answer = get("/flagged_miners", NULL);
	assert_true(number_of(answer, "count") == 2);
	list = list_of(answer, "flagged_miners", 2);
	assert_string_equal(text_of(list->child, "reason"), "IP address 8.8.4.4 belongs to another hotkey");
	cJSON_Delete(answer);
	cJSON_Delete(submit_from(200, "2600::1", "c"));
	refused(submit_from(403, "2600::1", "d"), "IP address 2600::1 belongs");
	for (const char *const *own = (const char *const[]){"127.0.0.1", "10.1.2.3", "::1", "fe80::1", NULL};
		*own; own++) {
		cJSON_Delete(submit_from(200, *own, "e"));
		cJSON_Delete(submit_from(200, *own, "f"));
	}
}

static void a_coldkey_has_one_hotkey(void **state)
{
	(void)state;
	cJSON_Delete(post(200, "/sync_uids", NULL,
		quoted("{'uid_map': {'a': 1, 'b': 2, 'c': 3}, 'coldkey_map': {'a': 'x', 'b': 'x', 'c': 'y'}}")));
	refused(post(403, "/commit_submission", "a", commitment("a", "i")),
		"Coldkey x belongs to another hotkey");
	refused(post(403, "/submit_kernel", "b", kernel("b", NULL, 100, "finney")), "Coldkey x belongs");
	refused(post(403, "/submit_kernel", "b", kernel("b", NULL, 100, "finney")),
		"Miner flagged: Coldkey x");
	submit("c", 100, "finney");
}

/* --- rounds ------------------------------------------------------------------------------------ */

static int64_t current_round(const char *network)
{
	cJSON *answer = get("/get_current_round", quoted("{'network': '%s'}", network));
	int64_t id = (int64_t)number_of(answer, "id");

	cJSON_Delete(answer);
	return id;
}

static cJSON *finalize(unsigned expected, const char *route, int64_t round)
{
	char *parameters = quoted("{'round_id': '%lld'}", (long long)round);
	cJSON *answer = call_from("x", expected, route, NULL, parameters, NULL);

	free(parameters);
	return answer;
}

#define FINALIZE "/finalize_round/{round_id}"
#define REFINALIZE "/refinalize_round/{round_id}"

static void measured_and_verified_submissions_rank(void **state)
{
	static const double shares[] = {0.60, 0.25, 0.10}, speeds[] = {1501, 1500, 1400};
	static const char *const hotkeys[] = {"a", "b", "c", "d", "e", "f"},
				 *const ranked[] = {"b", "a", "b"};
	int64_t ids[6], round = current_round("finney");
	const cJSON *weights;
	cJSON *answer;

	(void)state;
	/* the claim does not count, and who bets on it least wins here */
	for (int i = 0; i < 6; i++)
		ids[i] = submit(hotkeys[i], 2000 - 100 * i, "finney");
	cJSON_Delete(verify(200, ids[0], 1500, "true"));
	cJSON_Delete(verify(200, ids[1], 1501, "true"));
	cJSON_Delete(verify(200, ids[2], 9000, "false"));
	cJSON_Delete(verify(200, ids[3], 9001, "null"));
	cJSON_Delete(verify(200, ids[4], 9002, "true"));
	cJSON_Delete(post(200, "/flag_miner", NULL, quoted("{'hotkey': 'e'}")));
	/* no speed is told */
	cJSON_Delete(post(200, "/mark_validated", NULL,
		quoted("{'submission_id': %lld, 'score': 1}", (long long)ids[5])));
	cJSON_Delete(call_from("x", 200, "/record_verification", NULL,
		"{\"submission_id\": \"6\", \"verified\": \"true\"}", NULL));
	ids[0] = submit("b", 1000, "finney"); /* a hotkey may hold several places */
	cJSON_Delete(verify(200, ids[0], 1400, "true"));

	answer = get("/get_weights", NULL); /* interim */
	assert_true(number_of(answer, "round_id") == (double)round);
	assert_string_equal(text_of(answer, "round_status"), "active");
	list_of(answer, "weights", 3);
	cJSON_Delete(answer);
	answer = get("/get_weights", quoted("{'completed_only': 'true'}"));
	assert_true(cJSON_IsNull(cJSON_GetObjectItem(answer, "round_id")));
	list_of(answer, "weights", 0);
	cJSON_Delete(answer);

	refused(finalize(400, FINALIZE, round), "Round has not ended yet");
	refused(finalize(400, REFINALIZE, round), "Round is not finalized yet");
	now += 48 * HOUR;
	answer = finalize(200, FINALIZE, round);
	assert_string_equal(text_of(answer, "winner"), "b");
	assert_true(number_of(list_of(answer, "rankings", 3)->child, "weighted_score") == 3 * 1501);
	cJSON_Delete(answer);
	refused(finalize(400, FINALIZE, round), "Round already finalized");
	refused(finalize(404, REFINALIZE, 99), "Round not found");

	answer = get("/get_weights", quoted("{'completed_only': 'true'}"));
	assert_string_equal(text_of(answer, "round_status"), "completed");
	assert_string_equal(text_of(answer, "winner_hotkey"), "b");
	assert_true(number_of(answer, "round_number") == 1);
	weights = list_of(answer, "weights", 3);
	for (int i = 0; i < 3; i++) {
		const cJSON *entry = cJSON_GetArrayItem(weights, i);

		assert_true(number_of(entry, "weight") == shares[i]);
		assert_true(number_of(entry, "tokens_per_sec") == speeds[i]);
		assert_string_equal(text_of(entry, "hotkey"), ranked[i]);
		assert_string_equal(text_of(entry, "github_username"), text_of(entry, "hotkey"));
		assert_true(number_of(entry, "uid") == -1);
	}
	cJSON_Delete(answer);
}

/* In time, by the next submission or question; only the winner of the round before has to be beaten. */
static void rounds_end_by_themselves(void **state)
{
	int64_t first, late;
	cJSON *answer;

	(void)state;
	first = current_round("finney");
	cJSON_Delete(verify(200, submit("a", 100, "finney"), 100, "true"));
	late = submit("b", 200, "finney");
	now += 48 * HOUR - 1;
	assert_int_equal(current_round("finney"), first);
	now += 1;
	cJSON_Delete(verify(200, submit("c", 100, "finney"), 100, "true"));
	assert_true(current_round("finney") != first);
	answer = get("/get_completed_rounds", NULL);
	assert_string_equal(text_of(list_of(answer, "rounds", 1)->child, "winner_hotkey"), "a");
	cJSON_Delete(answer);

	cJSON_Delete(verify(200, late, 200, "true")); /* too late, but for who asks again */
	answer = finalize(200, REFINALIZE, first);
	assert_string_equal(text_of(answer, "winner"), "b");
	cJSON_Delete(answer);

	now += 48 * HOUR; /* 100 does not beat 200 */
	answer = get("/get_current_round", NULL);
	assert_true(number_of(answer, "round_number") == 3);
	assert_true(cJSON_IsNull(cJSON_GetObjectItem(answer, "baseline_submission_id")));
	cJSON_Delete(answer);
	answer = get("/get_completed_rounds", quoted("{'limit': '1'}"));
	assert_true(cJSON_IsNull(cJSON_GetObjectItem(list_of(answer, "rounds", 1)->child, "winner_hotkey")));
	cJSON_Delete(answer);
	/* and nobody has to be beaten after that */
	cJSON_Delete(verify(200, submit("d", 50, "finney"), 50, "true"));
	now += 48 * HOUR;
	current_round("finney");
	answer = get("/get_completed_rounds", quoted("{'limit': '1'}"));
	assert_string_equal(text_of(list_of(answer, "rounds", 1)->child, "winner_hotkey"), "d");
	cJSON_Delete(answer);
}

static void networks_have_rounds_of_their_own(void **state)
{
	int64_t test, finney = current_round("finney");
	cJSON *answer;

	(void)state;
	test = current_round("test");
	assert_true(test != finney);
	cJSON_Delete(verify(200, submit("a", 100, "test"), 100, "true"));
	answer = get("/get_weights", NULL);
	list_of(answer, "weights", 0);
	cJSON_Delete(answer);
	answer = get("/get_weights", quoted("{'network': 'test'}"));
	assert_true(number_of(answer, "round_number") == 1);
	list_of(answer, "weights", 1);
	cJSON_Delete(answer);
	answer = post(200, "/create_round", NULL, quoted("{'network': 'test', 'duration_hours': 1}"));
	assert_true(number_of(answer, "round_number") == 2);
	assert_true(number_of(answer, "time_remaining_seconds") == 3600);
	cJSON_Delete(answer);
	assert_int_equal(current_round("finney"), finney);
}

static void dashboards_tell_of_each_network(void **state)
{
	const cJSON *list;
	cJSON *answer;
	int64_t id;

	(void)state;
	id = submit("a", 100, "finney");
	cJSON_Delete(verify(200, id, 90, "true"));
	now++;
	cJSON_Delete(post(200, "/commit_submission", "a", commitment("a", "i")));
	cJSON_Delete(verify(200, submit("b", 100, "test"), 95, "true"));
	answer = get("/dashboard/overview", NULL);
	assert_true(number_of(answer, "total_submissions") == 2);
	assert_true(number_of(answer, "unrevealed_submissions") == 1);
	assert_true(number_of(answer, "validated_submissions") == 1);
	assert_true(number_of(answer, "total_miners") == 1);
	cJSON_Delete(answer);
	answer = get("/dashboard/leaderboard", NULL);
	assert_true(number_of(list_of(answer, "leaderboard", 1)->child, "weighted_score") == 270);
	cJSON_Delete(answer);
	answer = get("/dashboard/top_miners", quoted("{'network': 'test'}"));
	assert_string_equal(text_of(list_of(answer, "top_miners", 1)->child, "hotkey"), "b");
	cJSON_Delete(answer);
	answer = get("/dashboard/miner/{hotkey}", quoted("{'hotkey': 'a'}"));
	assert_true(cJSON_IsFalse(cJSON_GetObjectItem(answer, "is_flagged")));
	list = list_of(answer, "submissions", 2);
	assert_true(cJSON_IsFalse(cJSON_GetObjectItem(list->child, "is_revealed"))); /* the newest first */
	assert_true(number_of(list->child->next, "validated_tokens_per_sec") == 90);
	assert_true(number_of(list->child->next, "score") == 1);
	cJSON_Delete(answer);
}

/* --- databases --------------------------------------------------------------------------------- */

static void a_database_belongs_to_one_version(void **state)
{
	struct error err = {0};

	(void)state;
	validator_close(validator);
	options.version = validator_version("2026-02");
	validator = validator_open(&options, &err);
	assert_null(validator);
	assert_int_equal(err.status, STATUS_ENVIRONMENT);
	assert_non_null(
		strstr(err.message, "is the database of a local validator like 2026-04, not 2026-02"));
	assert_non_null(strstr(err.hint, "--like 2026-04"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, remove_service)
		TEST(signatures_cover_the_time_where_it_is_sent),
		TEST(lists_are_for_validators),
		TEST(dashboards_open_to_keys),
		TEST(who_submits_becomes_a_miner_and_cannot_register),
		TEST(a_sync_replaces_the_miners_of_a_network),
		TEST(submissions_of_a_hotkey_are_apart),
		TEST(claims_are_plausible),
		TEST(reveals_are_checked_in_turn),
		TEST(lists_hide_the_forks),
		TEST(validators_are_given_what_waits),
		TEST(judgements_come_with_a_verification),
		TEST(bold_claims_are_flagged),
		TEST(a_github_name_has_one_hotkey),
		TEST(a_public_address_has_one_hotkey),
		TEST(a_coldkey_has_one_hotkey),
		TEST(measured_and_verified_submissions_rank),
		TEST(rounds_end_by_themselves),
		TEST(networks_have_rounds_of_their_own),
		TEST(dashboards_tell_of_each_network),
		TEST(a_database_belongs_to_one_version),
	};

	if (sodium_init() < 0)
		return 1;
	return cmocka_run_group_tests_name("validator like 2026-04", tests, NULL, NULL);
}
