/* model: small random models. That their logits are right, the peer tests tell (tests/peer/test_model.py); here, that they are
 * the same however requests are put together, what is refused, and how answers are judged. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cpu/cpu.h"
#include "directory.h"
#include "logits/check.h"
#include "logits/responder.h"
#include "model/model.h"
#include "tests/random_model.h"

#define VOCABULARY 131

static const struct random_model kinds[] = {
	{"qwen2", VOCABULARY, 48, 2, 6, 2, 8, 80, 700, true, DTYPE_BF16},
	{"qwen3", VOCABULARY, 40, 2, 4, 4, 20, 56, 700, false, DTYPE_F16},
	{"llama", VOCABULARY, 64, 1, 4, 1, 16, 72, 700, false, DTYPE_F32},
};

static struct model *open_random(const struct random_model *kind, const char *folder)
{
	struct error err = {0};
	struct model *model;

	assert_int_equal(random_model_write(kind, folder, 3), 0);
	model = model_open(folder, "cpu", &err);
	if (!model)
		fail_msg("%s", err.message);
	return model;
}

/* A session that has taken tokens, `at_once` of them in a step, and the logits that follow. */
static struct model_session *take(
	struct model *model, const int32_t *tokens, int count, int at_once, float *logits, int32_t *next)
{
	struct error err = {0};
	struct model_session *session = model_session_open(model, 600, &err);

	assert_non_null(session);
	for (int at = 0; at < count; at += at_once) {
		int left = count - at;
		struct model_piece piece = {.session = session,
			.tokens = tokens + at,
			.count = left < at_once ? left : at_once,
			.predicts = left <= at_once,
			.logits = left <= at_once ? logits : NULL};

		assert_int_equal(model_step(model, &piece, 1, NULL, &err), 0);
		*next = piece.next;
	}
	assert_int_equal(model_session_length(session), count);
	return session;
}

static void assert_close(const float *a, const float *b)
{
	struct comparison found = compare_float(a, b, VOCABULARY);

	assert_true(found.finite);
	if (!(found.max_difference < 2e-5))
		fail_msg("%g apart", found.max_difference);
}

static void fill(int32_t *tokens, int count, int seed)
{
	for (int i = 0; i < count; i++)
		tokens[i] = (int32_t)((unsigned)(i * 37 + seed * 11) % VOCABULARY);
}

/* Token by token, by our own products; in pieces and whole, by OpenBLAS's. */
static void pieces_make_no_difference(void **state)
{
	int32_t tokens[530], next[4];
	float logits[4][VOCABULARY];

	fill(tokens, 530, 1);
	for (size_t kind = 0; kind < 3; kind++) {
		struct model *model = open_random(&kinds[kind], *state);

		for (int i = 0; cpu_variants()[i]; i++) {
			static const int at_once[] = {1, 3, 40, MODEL_STEP_TOKENS};
			int count = i ? 60
				      : 530; /* the whole length once: it takes long with the sanitizers */

			assert_int_equal(cpu_variant_select(cpu_variants()[i]), 0);
			for (int n = i ? 0 : 2; n < 4; n++)
				model_session_close(
					take(model, tokens, count, at_once[n], logits[n], &next[n]));
			for (int n = i ? 0 : 2; n < 3; n++) {
				assert_close(logits[n], logits[3]);
				assert_int_equal(next[n], next[3]);
			}
		}
		model_close(model);
	}
}

static void requests_share_steps(void **state)
{
	enum { COUNT = 3 };
	struct model *model = open_random(&kinds[0], *state);
	static const int lengths[COUNT] = {50, 1, 17};
	int32_t tokens[COUNT][51], alone_next, more[COUNT] = {5, 6, 7};
	struct model_session *sessions[COUNT];
	float logits[COUNT][VOCABULARY], alone[VOCABULARY];
	struct model_piece pieces[COUNT];
	struct error err = {0};

	for (int i = 0; i < COUNT; i++) {
		fill(tokens[i], 50, i);
		sessions[i] = model_session_open(model, 60, &err);
		pieces[i] = (struct model_piece){sessions[i], tokens[i], lengths[i], false, NULL, -2};
	}
	pieces[2].count = 9; /* the rest of its prompt comes with the tokens of the others */
	assert_int_equal(model_step(model, pieces, COUNT, NULL, &err), 0);
	assert_int_equal(pieces[0].next, -2);
	for (int i = 0; i < COUNT; i++)
		pieces[i] = (struct model_piece){sessions[i], &more[i], 1, true, logits[i], -2};
	pieces[2].tokens = tokens[2] + 9;
	pieces[2].count = 8;
	assert_int_equal(model_step(model, pieces, COUNT, NULL, &err), 0);
	for (int i = 0; i < COUNT; i++) {
		int length = i == 2 ? lengths[i] : lengths[i] + 1;

		if (i < 2)
			tokens[i][lengths[i]] = more[i];
		model_session_close(take(model, tokens[i], length, length, alone, &alone_next));
		assert_close(logits[i], alone);
		assert_int_equal(pieces[i].next, alone_next);
		assert_int_equal(model_session_length(sessions[i]), length);
		model_session_close(sessions[i]);
	}
	model_close(model);
}

static bool at_once(void)
{
	return true;
}

static void bad_requests_change_nothing(void **state)
{
	struct model *model = open_random(&kinds[2], *state);
	struct error err = {0};
	struct model_session *session = model_session_open(model, 16, &err);
	int32_t tokens[17];
	struct model_piece piece = {.session = session, .tokens = tokens, .count = 17};

	fill(tokens, 17, 1);
	assert_int_equal(model_step(model, &piece, 1, NULL, &err), -1);
	assert_int_equal(err.status, STATUS_USAGE);
	piece.count = 16;
	tokens[15] = VOCABULARY;
	assert_int_equal(model_step(model, &piece, 1, NULL, &err), -1);
	assert_string_equal(err.message, "token 131 is not in the vocabulary of 131");
	tokens[15] = -1;
	assert_int_equal(model_step(model, &piece, 1, NULL, &err), -1);
	tokens[15] = 0;
	assert_int_equal(model_step(model, &piece, 1, at_once, &err), -1);
	assert_int_equal(err.status, STATUS_INTERRUPTED);
	assert_int_equal(model_session_length(session), 0);
	assert_int_equal(model_step(model, &piece, 1, NULL, &err), 0);
	assert_int_equal(model_session_length(session), 16);
	assert_null(model_session_open(model, 701, &err));
	assert_null(model_session_open(model, 0, &err));
	model_session_close(session);
	model_close(model);
	assert_null(model_open(*state, "cuda:1", &err));
	assert_int_equal(err.status, STATUS_ENVIRONMENT);
	assert_null(model_open(*state, "tpu", &err));
	assert_int_equal(err.status, STATUS_USAGE);
}

/* --- bad models ---------------------------------------------------------------------------------- */

static void read_text(const char *folder, const char *name, struct buffer *text)
{
	char *path = path_join(folder, name);
	struct error err;

	assert_int_equal(file_read(path, 8 << 20, text, &err), 0);
	free(path);
}

/* The same with one text in place of another, as long. */
static void put_changed(
	const char *folder, const char *name, const struct buffer *whole, const char *from, const char *to)
{
	struct buffer copy = {0};
	char *at;

	buffer_append(&copy, whole->data, whole->length);
	at = memmem(copy.data, copy.length, from, strlen(from));
	assert_non_null(at);
	assert_int_equal(strlen(from), strlen(to));
	memcpy(at, to, strlen(to));
	put(folder, name, copy.data, copy.length);
	buffer_free(&copy);
}

static void assert_refused(const char *folder, const char *because)
{
	struct error err = {0};
	struct model *model = model_open(folder, "cpu", &err);

	if (model)
		fail_msg("not refused, though %s", because);
	assert_int_equal(err.status, STATUS_ENVIRONMENT);
	if (!strstr(err.message, because))
		fail_msg("\"%s\" does not say \"%s\"", err.message, because);
}

#define WEIGHTS "model.safetensors"

static void bad_models_are_refused(void **state)
{
	static const struct {
		const char *from, *to, *because;
	} headers[] = {
		{"model.norm.weight", "model.morn.weight", "no tensor \"model.norm.weight\""},
		{"layers.1.self_attn.q_proj.bias", "layers.1.self_attn.q_proj.bios",
			"layers.1.self_attn.q_proj.bias"},
		{"\"shape\":[131,48]", "\"shape\":[48,131]", "\"model.embed_tokens.weight\""},
		{"[0,12576]", "[0,12577]", "\"model.embed_tokens.weight\""},
		{"[12576,12672]", "[12574,12670]", "shares bytes"},
		{"[12576,12672]", "[99999,12672]", "\"model.norm.weight\""},
		{"\"BF16\",\"shape\":[48]", "\"BF17\",\"shape\":[48]", "\"model.norm.weight\""},
	};
	struct buffer weights = {0}, config = {0};

	model_close(open_random(&kinds[0], *state));
	read_text(*state, WEIGHTS, &weights);
	read_text(*state, "config.json", &config);
	for (size_t i = 0; i < sizeof(headers) / sizeof(*headers); i++) {
		put_changed(*state, WEIGHTS, &weights, headers[i].from, headers[i].to);
		assert_refused(*state, headers[i].because);
	}
	put(*state, WEIGHTS, weights.data, weights.length - 100); /* truncated */
	assert_refused(*state, "\"model.layers.1.mlp.down_proj.weight\"");
	put(*state, WEIGHTS, weights.data, 4);
	assert_refused(*state, "too short");
	memcpy(weights.data + weights.length - 2, "\xc0\x7f", 2); /* a NaN */
	put(*state, WEIGHTS, weights.data, weights.length);
	assert_refused(*state, "\"model.layers.1.mlp.down_proj.weight\"");
	put_changed(*state, "config.json", &config, "\"qwen2\"", "\"gpt-2\"");
	assert_refused(*state, "gpt-2");
	put_text(*state, "config.json", "{");
	assert_refused(*state, "config.json");
	buffer_free(&weights);
	buffer_free(&config);
}

#define INDEX "model.safetensors.index.json"

static void an_index_names_files_of_its_folder(void **state)
{
	struct error err = {0};
	char *from = path_join(*state, WEIGHTS), *to = path_join(*state, "part.safetensors");
	struct buffer map = {0};
	struct random_tensors *tensors = xmalloc(sizeof(*tensors));
	struct model *model;

	model_close(open_random(&kinds[0], *state));
	assert_int_equal(rename(from, to), 0);
	assert_refused(*state, INDEX);
	random_tensors_of(&kinds[0], tensors);
	for (int i = 0; i < tensors->count; i++)
		buffer_printf(&map, "%s\"%s\":\"part.safetensors\"", i ? "," : "{\"weight_map\":{",
			tensors->list[i].name);
	buffer_text(&map, "}}");
	put_text(*state, INDEX, map.data);
	model = model_open(*state, "cpu", &err);
	assert_non_null(model);
	model_close(model);
	put_changed(*state, INDEX, &map, "part.safetensors", "../x.safetensors");
	assert_refused(*state, "no file beside it");
	put_changed(*state, INDEX, &map, "part.safetensors", "trap.safetensors");
	assert_refused(*state, "trap.safetensors");
	put_changed(*state, INDEX, &map, "norm", "morn");
	assert_refused(*state, "norm.weight");
	put_text(*state, INDEX, "{}");
	assert_refused(*state, INDEX);
	buffer_free(&map);
	free(tensors);
	free(from);
	free(to);
}

/* --- names --------------------------------------------------------------------------------------- */

static void assert_found(const char *name, const char *folder, const char *expected)
{
	struct error err = {0};
	char *found = model_find(name, &err), *path = path_join(folder, expected);

	if (!found)
		fail_msg("%s: %s", name, err.message);
	assert_string_equal(found, path);
	free(found);
	free(path);
}

static void names_are_found_in_the_cache(void **state)
{
#define MODEL "hub/models--Qwen--Tiny/"
	static const char *const unfit[] = {
		"a/b/c", "../x", "Qwen/", "/Qwen", "a b", "", "Qwen/Tiny@", "Qwen/Tiny@../x"};
	struct error err = {0};

	setenv("HF_HOME", *state, 1);
	unsetenv("HF_HUB_CACHE");
	put_text(*state, MODEL "refs/main", "abc123\n");
	put_text(*state, MODEL "snapshots/abc123/config.json", "{}");
	put_text(*state, MODEL "snapshots/def456/config.json", "{}");
	assert_found("Qwen/Tiny", *state, MODEL "snapshots/abc123");
	assert_found("Qwen/Tiny@main", *state, MODEL "snapshots/abc123");
	assert_found("Qwen/Tiny@def456", *state, MODEL "snapshots/def456");
	assert_null(model_find("Qwen/Tiny@v2", &err));
	assert_string_equal(
		err.hint, "Get it with: hf download Qwen/Tiny --revision v2 (pip install huggingface_hub)");
	put_text(*state, MODEL "refs/evil", "../../../..");
	assert_null(model_find("Qwen/Tiny@evil", &err));
	assert_int_equal(err.status, STATUS_ENVIRONMENT);
	for (size_t i = 0; i < sizeof(unfit) / sizeof(*unfit); i++)
		assert_null(model_find(unfit[i], &err));
	unsetenv("HF_HOME");
}

/* --- logit verification -------------------------------------------------------------------------- */

static void challenges_are_as_validators_make_them(void **state)
{
	struct model_info info = {.vocabulary = 30, .context = 32768};
	struct challenge challenge, again;
	struct error err = {0};
	int least = 99, most = 0;

	(void)state;
	for (int i = 0; i < 200; i++) {
		assert_int_equal(challenge_make(CHALLENGE_2026_04, &info, 7, i, &challenge, &err), 0);
		assert_int_equal(challenge.step_count, 3);
		assert_true(1 <= challenge.steps[0] && challenge.steps[0] < challenge.steps[1] &&
			challenge.steps[1] < challenge.steps[2] && challenge.steps[2] <= 511);
		for (int t = 0; t < CHALLENGE_PROMPT; t++)
			assert_in_range(challenge.prompt[t], 10, 29);
		assert_int_equal(challenge_make(CHALLENGE_2026_02, &info, 7, i, &again, &err), 0);
		assert_memory_equal(challenge.prompt, again.prompt, sizeof(again.prompt));
		assert_int_equal(again.step_count, 1);
		least = again.steps[0] < least ? again.steps[0] : least;
		most = again.steps[0] > most ? again.steps[0] : most;
	}
	assert_true(least >= 1 && least < 5 && most > 45 && most <= 50);
	info.context = 130;
	assert_int_equal(challenge_make(CHALLENGE_2026_04, &info, 7, 0, &challenge, &err), 0);
	assert_int_equal(challenge.length, 2);
	assert_int_equal(challenge.step_count, 1);
	info.context = 128;
	assert_int_equal(challenge_make(CHALLENGE_2026_04, &info, 7, 0, &challenge, &err), -1);
}

static void answers_are_judged(void **state)
{
	const struct challenge challenge = {.length = 3, .steps = {2}, .step_count = 1};
	const struct challenge_limits limits = {.cosine = 0.99, .difference = 0.1};
	float ours[3] = {1, 2, 3}, theirs[3] = {1, 2, 3.05f};
	struct challenge_answer reference = {.tokens = {5, 6, 7},
		.token_count = 3,
		.logits = {ours},
		.logit_count = {3},
		.margins = {0, 0, 0.25f}};
	struct challenge_answer answer = {.tokens = {5, 6, 8},
		.token_count = 3,
		.logits = {theirs},
		.logit_count = {3},
		.seconds = 1.5};
	struct challenge_verdict verdict;

	(void)state;
	challenge_judge(&challenge, &answer, &reference, &limits, &verdict);
	assert_true(verdict.accepted);
	assert_float_equal(verdict.difference, 0.05, 1e-6);
	assert_float_equal(verdict.tokens_per_second, 2, 1e-9);
	assert_int_equal(verdict.diverges, 3);
	assert_float_equal(verdict.margin, 0.25, 0);
	theirs[2] = 3.2f;
	challenge_judge(&challenge, &answer, &reference, &limits, &verdict);
	assert_string_equal(verdict.reason, "difference 0.2 at step 2, above 0.1");
	theirs[0] = -3;
	challenge_judge(&challenge, &answer, &reference, &limits, &verdict);
	assert_non_null(strstr(verdict.reason, "cosine"));
	theirs[0] = NAN;
	challenge_judge(&challenge, &answer, &reference, &limits, &verdict);
	assert_non_null(strstr(verdict.reason, "not all finite"));
	memset(theirs, 0, sizeof(theirs));
	challenge_judge(&challenge, &answer, &reference, &limits, &verdict);
	assert_non_null(strstr(verdict.reason, "all zero"));
	answer.logit_count[0] = 2;
	challenge_judge(&challenge, &answer, &reference, &limits, &verdict);
	assert_string_equal(verdict.reason, "2 logits at step 2 instead of 3");
	answer.logits[0] = NULL;
	challenge_judge(&challenge, &answer, &reference, &limits, &verdict);
	assert_false(verdict.accepted);
	assert_string_equal(verdict.reason, "no logits of step 2");
}

/* Side by side or alone, a model gives the same answers; so it accepts itself, and no other. */
static void a_model_accepts_itself(void **state)
{
	struct logits_plan plan = {.kinds = {true, true},
		.count = 1,
		.seed = 5,
		.limits = {.cosine = 0.9999, .difference = 1e-3}};
	struct random_model small = kinds[2];
	struct check_list checks = {0};
	struct logits_result result;
	struct error err = {0};

	small.context = CHALLENGE_PROMPT + 40;
	plan.reference = plan.model = open_random(&small, *state);
	assert_int_equal(logits_check(&plan, &checks, &result, &err), 0);
	assert_true(result.accepted);
	assert_int_equal(checks.count, 2);
	assert_string_equal(checks.items[1].name, "logits.2026-04.1");
	assert_non_null(strstr(checks.items[1].detail, "all 40 tokens the same"));
	assert_int_equal(random_model_write(&small, *state, 4), 0);
	plan.model = model_open(*state, "cpu", &err);
	assert_int_equal(logits_check(&plan, &checks, &result, &err), 0);
	assert_false(result.accepted);
	assert_int_equal(check_count(&checks, CHECK_FAIL), 2);
	check_free(&checks);
	model_close(plan.model);
	model_close(plan.reference);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(pieces_make_no_difference, make_directory, remove_directory),
		cmocka_unit_test_setup_teardown(requests_share_steps, make_directory, remove_directory),
		cmocka_unit_test_setup_teardown(
			bad_requests_change_nothing, make_directory, remove_directory),
		cmocka_unit_test_setup_teardown(bad_models_are_refused, make_directory, remove_directory),
		cmocka_unit_test_setup_teardown(
			an_index_names_files_of_its_folder, make_directory, remove_directory),
		cmocka_unit_test_setup_teardown(
			names_are_found_in_the_cache, make_directory, remove_directory),
		cmocka_unit_test(challenges_are_as_validators_make_them),
		cmocka_unit_test(answers_are_judged),
		cmocka_unit_test_setup_teardown(a_model_accepts_itself, make_directory, remove_directory),
	};

	return cmocka_run_group_tests_name("model", tests, NULL, NULL);
}
