/* What a validator answers: every route's decoder, retries and refusals, with the network taken away.
 *
 * Input: a letter for the call, three digits of HTTP status, the content type; after that line the body. */
#include "fuzz.h"

#include <sodium.h>

#include "api/http.h"

/* stands in for http_exchange in the client below */
static int scripted_exchange(
	struct http *http, const struct http_request *request, struct http_answer *answer, struct error *err);
#define http_exchange scripted_exchange
#include "../../lib/api/client.c"
#undef http_exchange

#include "api/standings.h"
#include "score/score.h"

static struct {
	int status;
	const char *type, *body;
	size_t length;
} script;

static int scripted_exchange(
	struct http *http, const struct http_request *request, struct http_answer *answer, struct error *err)
{
	(void)http;
	(void)err;
	*answer = (struct http_answer){.status = script.status, .clock_skew = NAN, .sent = true};
	buffer_text(&answer->body, "");
	if (request->take && script.status >= 200 && script.status < 300)
		REQUIRE(request->take(request->context, script.body, script.length) == 0);
	else
		buffer_append(&answer->body, script.body, script.length);
	snprintf(answer->content_type, sizeof(answer->content_type), "%s", script.type);
	text_clean(answer->content_type);
	return 0;
}

/* Strings of an answer may be printed: UTF-8 without control characters. NULL: there is none. */
static void require_clean(const char *text)
{
	REQUIRE(!text || utf8_valid(text, strlen(text)));
	for (; text && *text; text++)
		REQUIRE((unsigned char)*text >= 0x20 && *text != 0x7f);
}

static const struct api_claim claim = {"https://github.com/a/b", "abc", NULL, 50000, NAN, NULL};

/* --- one function a route --------------------------------------------------------------------- */

static int health(struct api *api, struct error *err)
{
	return api_health(api, err);
}

static int register_miner(struct api *api, struct error *err)
{
	struct api_registration out;
	int result = api_register_miner(api, "quasar", "100k", &out, err);

	api_release(&out.memory);
	return result;
}

static int submit_kernel(struct api *api, struct error *err)
{
	int64_t id = 0;
	int result = api_submit_kernel(api, &claim, 100000, "0123", &id, err);

	REQUIRE(result < 0 || id > 0);
	return result;
}

static int commit_submission(struct api *api, struct error *err)
{
	struct api_commitment out;
	int result = api_commit_submission(api, "c0ffee", 100000, &out, err);

	if (!result) {
		REQUIRE(out.submission_id > 0 && out.reveal_block >= 0 &&
			isfinite(out.estimated_reveal_time));
		require_clean(out.message);
	}
	api_release(&out.memory);
	return result;
}

static int reveal_submission(struct api *api, struct error *err)
{
	struct api_revelation out;
	int result = api_reveal_submission(api, 1, "salt", &claim, &out, err);

	if (!result)
		require_clean(out.message);
	api_release(&out.memory);
	return result;
}

static int pending_reveals(struct api *api, struct error *err)
{
	const int64_t ids[] = {1, 2, 3};
	const struct api_pending_filter filter = {"5GrwvaEF5zXb26Fz9rcQpDWS57CtERHpNehXCPcNoHGKutQY", ids, 3};
	struct api_pending_reveals out;
	int result = api_pending_reveals(api, &filter, &out, err);

	for (size_t i = 0; !result && i < out.count; i++) {
		require_clean(out.reveals[i].miner_hotkey);
		require_clean(out.reveals[i].commitment_hash);
		api_pending_matches(&out.reveals[i], api_hotkey(api),
			"c0ffeec0ffeec0ffeec0ffeec0ffeec0ffeec0ffeec0ffeec0ffeec0ffeec0ff");
	}
	api_release(&out.memory);
	return result;
}

/* The statistics, and the ranks that are made of them. */
static int stats(struct api *api, struct error *err)
{
	struct standings standings;
	int result = standings_read(api, &standings, err);

	for (size_t i = 0; i < standings.count; i++) {
		const struct api_submission *submission = standings.ranked[i].submission;

		require_clean(submission->miner_hotkey);
		require_clean(submission->fork_url);
		REQUIRE(isfinite(submission->tokens_per_sec) && isfinite(submission->created_at));
		REQUIRE(standings_rank(&standings, submission->id) <= i + 1);
	}
	standings_free(&standings);
	return result;
}

static int check_round(struct api_round *out, int result)
{
	if (!result) {
		require_clean(out->status);
		require_clean(out->winner_hotkey);
	}
	api_release(&out->memory);
	return result;
}

static int current_round(struct api *api, struct error *err)
{
	struct api_round out;

	return check_round(&out, api_current_round(api, &out, err));
}

static int create_round(struct api *api, struct error *err)
{
	struct api_round out;

	return check_round(&out, api_create_round(api, 48, 7, &out, err));
}

static int finalize_round(struct api *api, struct error *err)
{
	struct api_round_result out;
	int result = api_finalize_round(api, 1, &out, err);

	for (size_t i = 0; !result && i < out.count; i++)
		require_clean(out.rankings[i].miner_hotkey);
	api_release(&out.memory);
	return result;
}

static int weights(struct api *api, struct error *err)
{
	struct api_weights out;
	int result = api_weights(api, 1, &out, err);

	for (size_t i = 0; !result && i < out.count; i++)
		require_clean(out.weights[i].hotkey);
	api_release(&out.memory);
	return result;
}

static int submission_rate(struct api *api, struct error *err)
{
	struct api_submission_rate out;

	return api_submission_rate(api, 10, &out, err);
}

static int record_verification(struct api *api, struct error *err)
{
	return api_record_verification(api, 1, true, 0.5, NAN, 1, "a reason", err);
}

static int verification_stats(struct api *api, struct error *err)
{
	struct api_memory out;
	int result = api_verification_stats(api, 0, &out, err);

	api_release(&out);
	return result;
}

static int mark_validated(struct api *api, struct error *err)
{
	return api_mark_validated(api, 1, 0.5, err);
}

static int record_failure(struct api *api, struct error *err)
{
	return api_record_failure(api, "192.0.2.1", err);
}

static int (*const calls[])(struct api *api, struct error *err) = {
	health,
	register_miner,
	submit_kernel,
	commit_submission,
	reveal_submission,
	pending_reveals,
	stats,
	current_round,
	create_round,
	finalize_round,
	weights,
	submission_rate,
	record_verification,
	verification_stats,
	mark_validated,
	record_failure,
};

static struct api *open_client(void)
{
	static const uint8_t seed[SEED_LENGTH] = {1};
	struct error err = {0};
	struct api *api;

	log_set_level(LOG_QUIET);
	REQUIRE(sodium_init() >= 0);
	/* no time for a second attempt */
	api = api_open("http://127.0.0.1", keypair_from_seed(CRYPTO_ED25519, seed, &err), 0, &err);
	REQUIRE(api);
	return api;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct api *api;
	struct error err = {0};
	char *input = fuzz_string(data, size), *rest = input, *head = fuzz_line(&rest);
	int result;

	if (!api)
		api = open_client();
	if (strlen(head) >= 4) {
		script.status = atoi((char[]){head[1], head[2], head[3], '\0'});
		script.type = head + 4;
		script.body = rest;
		script.length = size - (size_t)(rest - input);
		result = calls[(uint8_t)(head[0] - 'a') % (sizeof(calls) / sizeof(*calls))](api, &err);
		REQUIRE(result == 0 || result == -1);
		REQUIRE(result == 0 || (err.status != STATUS_OK && err.message[0]));
		require_clean(err.message);
		require_clean(api_last(api)->detail);
	}
	free(input);
	return 0;
}
