#include "space/workflow.h"

#include <sodium.h>
#include <string.h>

#include "api/message.h"
#include "api/retry.h"
#include "base/clock.h"
#include "base/json.h"

int workflow_find(struct workflow *workflow, enum submission_kind kind, const struct plan *plan, bool *found,
	struct submission *submission, struct error *err)
{
	struct submission_filter filter = {
		.steps = ~(STEP_BIT(STEP_REFUSED) | STEP_BIT(STEP_ABANDONED)),
		.api_url = workflow->api_url,
		.hotkey = workflow->hotkey,
	};
	struct submission_list list;
	int64_t id = 0;

	*found = false;
	if (store_submissions(workflow->store, &filter, &list, err) < 0)
		return -1;
	for (size_t i = 0; i < list.count; i++) {
		const struct submission *item = &list.items[i];

		if (item->kind == kind && !strcmp(item->fork_url, plan->fork_url) &&
			!strcmp(item->commit_hash, plan->commit_hash) &&
			item->target_sequence_length == plan->target_sequence_length)
			id = item->id;
	}
	submission_list_free(&list);
	if (!id)
		return 0;
	*found = true;
	return store_submission_get(workflow->store, id, submission, err);
}

/* The claim as stored, for a request. `claim->benchmarks` is the caller's to delete. */
static int read_claim(const struct submission *submission, struct api_claim *claim, struct error *err)
{
	cJSON *benchmarks = NULL;

	if (submission->benchmarks) {
		benchmarks = json_parse(submission->benchmarks, strlen(submission->benchmarks), err);
		if (!benchmarks)
			return error_context(err, "the benchmarks stored with submission %lld",
				(long long)submission->id);
	}
	*claim = (struct api_claim){
		.fork_url = submission->fork_url,
		.commit_hash = submission->commit_hash,
		.tokens_per_sec = submission->tokens_per_sec,
		.vram_mb = submission->vram_mb,
		.benchmarks = benchmarks,
	};
	return 0;
}

/* --- commit --------------------------------------------------------------------------------------- */

/* Looks for the commitment among the validator's pending reveals, and stores where it stands if it is
 * there. `found` says whether. */
static int find_commitment(struct workflow *workflow, const struct submission *submission, bool *found,
	struct error *err)
{
	struct api_pending_reveals pending;
	int result = api_pending_reveals(workflow->api, &pending, err);

	*found = false;
	for (size_t i = 0; !result && !*found && i < pending.count; i++) {
		const struct api_pending_reveal *reveal = &pending.reveals[i];

		if (!api_pending_matches(reveal, submission->hotkey, submission->commitment_hash))
			continue;
		*found = true;
		result = store_submission_committed(workflow->store, submission->id,
			reveal->submission_id, reveal->reveal_block, err);
	}
	api_release(&pending.memory);
	return result;
}

static int send_commitment(struct workflow *workflow, const struct submission *submission, struct error *err)
{
	struct api_commitment answer;
	int result;

	if (store_submission_note(workflow->store, submission->id, "sending the commitment", err) < 0)
		return -1;
	result = api_commit_submission(workflow->api, submission->commitment_hash,
		submission->target_sequence_length, &answer, err);
	if (!result)
		result = store_submission_committed(workflow->store, submission->id, answer.submission_id,
			answer.reveal_block, err);
	api_release(&answer.memory);
	return result;
}

/* --- direct submission ------------------------------------------------------------------------------ */

bool workflow_knows_submission(struct workflow *workflow, int64_t server_id)
{
	struct submission_filter filter = {
		.api_url = workflow->api_url, .hotkey = workflow->hotkey, .server_id = server_id};
	struct submission_list list;
	struct error ignored;
	bool known = false;

	if (store_submissions(workflow->store, &filter, &list, &ignored) < 0)
		return false;
	known = list.count > 0;
	submission_list_free(&list);
	return known;
}

/* The fields that a listing leaves out count as equal. */
static bool same_submission(const struct api_submission *listed, const struct submission *ours)
{
	return listed->target_sequence_length == ours->target_sequence_length &&
	       listed->tokens_per_sec == ours->tokens_per_sec &&
	       !strcmp(listed->miner_hotkey, ours->hotkey) &&
	       (!listed->fork_url || !strcmp(listed->fork_url, ours->fork_url)) &&
	       (!listed->commit_hash || !strcmp(listed->commit_hash, ours->commit_hash));
}

/* Looks for a direct submission whose answer was lost among those the validator lists, leaving out the ones
 * that are known as others of ours. */
static int find_submission(struct workflow *workflow, const struct submission *submission, bool *found,
	struct error *err)
{
	struct api_submission_stats stats;
	int result = api_submission_stats(workflow->api, 1000, &stats, err);

	*found = false;
	for (size_t i = 0; !result && !*found && i < stats.recent_count + stats.top_count; i++) {
		const struct api_submission *listed =
			i < stats.recent_count ? &stats.recent[i] : &stats.top[i - stats.recent_count];

		if (!same_submission(listed, submission) || workflow_knows_submission(workflow, listed->id))
			continue;
		*found = true;
		result = store_submission_submitted(workflow->store, submission->id, listed->id, err);
	}
	api_release(&stats.memory);
	return result;
}

static int send_submission(struct workflow *workflow, const struct submission *submission, struct error *err)
{
	struct api_claim claim;
	int64_t server_id;
	int result;

	if (read_claim(submission, &claim, err) < 0)
		return -1;
	result = store_submission_note(workflow->store, submission->id, "sending the submission", err);
	if (!result)
		result = api_submit_kernel(workflow->api, &claim, submission->target_sequence_length,
			submission->repo_hash, &server_id, err);
	if (!result)
		result = store_submission_submitted(workflow->store, submission->id, server_id, err);
	cJSON_Delete((cJSON *)claim.benchmarks);
	return result;
}

/* --- both ------------------------------------------------------------------------------------------- */

/* The two ways to submit differ in what is sent and where a lost one is looked for. */
struct sender {
	int (*find)(struct workflow *, const struct submission *, bool *found, struct error *);
	int (*send)(struct workflow *, const struct submission *, struct error *);
	const char *command;
};

static const struct sender senders[] = {
	[SUBMISSION_COMMIT] = {find_commitment, send_commitment, "commit"},
	[SUBMISSION_DIRECT] = {find_submission, send_submission, "submit"},
};

/* A conflict means that the validator has this commitment: its salt is ours alone. */
static bool already_there(const struct api_exchange *exchange, const struct submission *submission)
{
	return submission->kind == SUBMISSION_COMMIT && exchange->http_status == 409;
}

/* Sends until the validator has it, has refused it, or the time is up; looks for it first whenever an
 * earlier attempt may have arrived. */
static int deliver(struct workflow *workflow, const struct submission *submission, bool may_be_there,
	struct error *err)
{
	const struct sender *sender = &senders[submission->kind];
	struct retry retry;

	retry_begin(&retry, workflow->timeout);
	for (;;) {
		struct api_exchange last;
		bool found;

		if (may_be_there) {
			if (sender->find(workflow, submission, &found, err) < 0)
				goto undelivered;
			if (found)
				return store_submission_note(workflow->store, submission->id,
					"found at the validator", err);
		}
		if (sender->send(workflow, submission, err) == 0)
			return 0;
		if (err->status == STATUS_ENVIRONMENT) /* the store failed: trying again would not help */
			return -1;
		last = *api_last(workflow->api);
		if (already_there(&last, submission) && !may_be_there) {
			may_be_there = true;
			continue;
		}
		if (last.delivery == API_REFUSED && !last.transient && !already_there(&last, submission)) {
			struct error ignored;

			store_submission_refused(workflow->store, submission->id, err->message, &ignored);
			return -1;
		}
		may_be_there = may_be_there || last.delivery == API_UNKNOWN;
		if (!last.transient && last.delivery != API_UNKNOWN)
			goto undelivered;
		if (retry_wait(&retry, last.retry_after, err) < 0)
			goto undelivered;
	}
undelivered:
	if (err->status == STATUS_NETWORK || err->status == STATUS_INTERRUPTED)
		error_hint(err,
			"Nothing is lost: run `quasar %s` again. It looks for this submission at the "
			"validator before it sends anything.",
			sender->command);
	return -1;
}

static int prepare_and_deliver(struct workflow *workflow, enum submission_kind kind, const struct plan *plan,
	char *salt, char *commitment_hash, int64_t *id, struct error *err)
{
	char *benchmarks = plan->benchmarks ? cJSON_PrintUnformatted(plan->benchmarks) : NULL;
	struct submission submission = {
		.kind = kind,
		.api_url = (char *)workflow->api_url,
		.hotkey = (char *)workflow->hotkey,
		.fork_url = (char *)plan->fork_url,
		.commit_hash = (char *)plan->commit_hash,
		.repo_hash = (char *)plan->repo_hash,
		.target_sequence_length = plan->target_sequence_length,
		.tokens_per_sec = plan->tokens_per_sec,
		.vram_mb = plan->vram_mb,
		.benchmarks = benchmarks,
		.salt = salt,
		.commitment_hash = commitment_hash,
		.created_at = clock_now() + api_clock_skew(workflow->api), /* ours may be set right later */
	};
	int result = store_submission_prepare(workflow->store, &submission, id, err);

	submission.id = *id;
	if (!result)
		result = deliver(workflow, &submission, false, err);
	cJSON_free(benchmarks);
	return result;
}

int workflow_commit(struct workflow *workflow, const struct plan *plan, int64_t *id, struct error *err)
{
	char salt[65], commitment_hash[65];
	int result;

	message_salt(salt);
	message_commitment_hash(salt, plan->fork_url, commitment_hash);
	result = prepare_and_deliver(workflow, SUBMISSION_COMMIT, plan, salt, commitment_hash, id, err);
	sodium_memzero(salt, sizeof(salt));
	return result;
}

int workflow_submit(struct workflow *workflow, const struct plan *plan, int64_t *id, struct error *err)
{
	return prepare_and_deliver(workflow, SUBMISSION_DIRECT, plan, NULL, NULL, id, err);
}

int workflow_settle(struct workflow *workflow, const struct submission *submission, struct error *err)
{
	return deliver(workflow, submission, true, err);
}

/* --- reveal ----------------------------------------------------------------------------------------- */

static bool has_salt(const struct submission *submission)
{
	char hash[65];

	if (!submission->salt || !submission->commitment_hash)
		return false;
	message_commitment_hash(submission->salt, submission->fork_url, hash);
	return !strcmp(hash, submission->commitment_hash);
}

/* A hash that does not fit would count as a failure against this machine's address: better not sent. */
static int check_salt(const struct submission *submission, struct error *err)
{
	if (has_salt(submission))
		return 0;
	error_set(err, STATUS_ENVIRONMENT,
		"submission %lld: the stored salt does not belong to its commitment",
		(long long)submission->id);
	return error_hint(err, "Nothing was sent. The state store was damaged or edited: `quasar import-state` "
			       "takes the salt from a backup.");
}

static int send_reveal(struct workflow *workflow, const struct submission *submission,
	const struct api_claim *claim, struct error *err)
{
	struct api_revelation answer;
	int result;

	if (store_submission_note(workflow->store, submission->id, "revealing", err) < 0)
		return -1;
	result = api_reveal_submission(
		workflow->api, submission->server_id, submission->salt, claim, NULL, &answer, err);
	api_release(&answer.memory);
	return result;
}

int workflow_forgotten(struct workflow *workflow, const struct submission *submission, struct error *err)
{
	struct error ignored;

	error_set(err, STATUS_REFUSED,
		"the validator has lost submission #%lld: the id %lld is another one's there",
		(long long)submission->id, (long long)submission->server_id);
	store_submission_refused(workflow->store, submission->id, err->message, &ignored);
	return error_hint(err, "Its database may have been reset. Commit again: quasar commit");
}

/* Whether the validator lists another submission under this one's id. */
static int find_other(struct workflow *workflow, const struct submission *submission, bool *found,
	struct error *err)
{
	struct api_submission_stats stats;
	int result = api_submission_stats(workflow->api, 1000, &stats, err);

	*found = false;
	for (size_t i = 0; !result && i < stats.recent_count; i++)
		if (stats.recent[i].id == submission->server_id &&
			!same_submission(&stats.recent[i], submission))
			*found = true;
	api_release(&stats.memory);
	return result;
}

/* The answer to an earlier reveal was lost; unless the conflict is about another submission than this one. */
static int revealed_before(struct workflow *workflow, const struct submission *submission, struct error *err)
{
	bool waiting, other;

	if (find_commitment(workflow, submission, &waiting, err) < 0 ||
		find_other(workflow, submission, &other, err) < 0)
		return -1;
	if (other)
		return workflow_forgotten(workflow, submission, err);
	if (!waiting)
		return store_submission_revealed(workflow->store, submission->id, err);
	error_set(err, STATUS_NETWORK,
		"the validator says that it has this reveal, but lists its commitment as waiting for it");
	return error_hint(err, "Run `quasar reveal` again: it goes by the list.");
}

static int reveal_until_heard(struct workflow *workflow, const struct submission *submission,
	const struct api_claim *claim, struct error *err)
{
	struct retry retry;

	retry_begin(&retry, workflow->timeout);
	for (;;) {
		struct api_exchange last;

		if (send_reveal(workflow, submission, claim, err) == 0)
			return store_submission_revealed(workflow->store, submission->id, err);
		if (err->status == STATUS_ENVIRONMENT) /* the store failed: trying again would not help */
			return -1;
		last = *api_last(workflow->api);
		if (last.http_status == 409)
			return revealed_before(workflow, submission, err);
		if (last.http_status == 400) {
			struct error ignored;

			store_submission_refused(workflow->store, submission->id, err->message, &ignored);
			return -1;
		}
		if (!last.transient && last.delivery != API_UNKNOWN)
			return -1;
		if (retry_wait(&retry, last.retry_after, err) < 0)
			return -1;
	}
}

int workflow_reveal(struct workflow *workflow, const struct submission *submission, struct error *err)
{
	struct api_claim claim;
	int result;

	if (check_salt(submission, err) < 0 || read_claim(submission, &claim, err) < 0)
		return -1;
	result = reveal_until_heard(workflow, submission, &claim, err);
	cJSON_Delete((cJSON *)claim.benchmarks);
	return result;
}

/* --- what the validator lists and the store does not --------------------------------------------------- */

int workflow_locate(struct workflow *workflow, const struct submission *submission, struct error *err)
{
	bool found;

	return senders[submission->kind].find(workflow, submission, &found, err);
}

bool workflow_lacks_commitment(struct workflow *workflow, const struct api_pending_reveal *reveal)
{
	char digits[17]; /* that the validator shows */
	struct submission_filter filter = {
		.api_url = workflow->api_url, .hotkey = workflow->hotkey, .commitment_hash = digits};
	struct submission_list list;
	struct error ignored;
	bool known = false;

	if (strcmp(reveal->miner_hotkey, workflow->hotkey))
		return false;
	snprintf(digits, sizeof(digits), "%s", reveal->commitment_hash);
	if (store_submissions(workflow->store, &filter, &list, &ignored) < 0)
		return true;
	for (size_t i = 0; !known && i < list.count; i++)
		known = has_salt(&list.items[i]) &&
			api_pending_matches(reveal, workflow->hotkey, list.items[i].commitment_hash);
	submission_list_free(&list);
	return !known;
}

int workflow_adopt(struct workflow *workflow, const struct api_submission *listed, struct error *err)
{
	char *benchmarks = listed->benchmarks ? cJSON_PrintUnformatted(listed->benchmarks) : NULL;
	const struct submission submission = {
		.kind = SUBMISSION_DIRECT,
		.api_url = (char *)workflow->api_url,
		.hotkey = (char *)workflow->hotkey,
		.fork_url = (char *)listed->fork_url,
		.commit_hash = (char *)listed->commit_hash,
		.repo_hash = (char *)listed->repo_hash,
		.target_sequence_length = listed->target_sequence_length,
		.tokens_per_sec = listed->tokens_per_sec,
		.vram_mb = listed->vram_mb,
		.benchmarks = benchmarks,
		.created_at = listed->created_at,
	};
	int64_t id;
	int result = store_submission_prepare(workflow->store, &submission, &id, err);

	if (!result)
		result = store_submission_note(workflow->store, id, "known from the validator's list", err);
	if (!result)
		result = store_submission_submitted(workflow->store, id, listed->id, err);
	cJSON_free(benchmarks);
	return result;
}
