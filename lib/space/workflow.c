#include "space/workflow.h"

#include <math.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "api/block.h"
#include "api/message.h"
#include "api/retry.h"
#include "api/version.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/memory.h"

#define SUBMISSIONS_READ 1000 /* more than any validator holds unvalidated */
#define UNCLEAR_ATTEMPTS 4    /* a proxy's stray page passes; another version's words do not */
#define EVIDENCE_SECONDS 10.0 /* for an answer that would help, but is not needed */

/* The pause that validators ask for between two submissions: it is at least, and at most, so long. */
#define COOLDOWN_LEAST 120.0
#define COOLDOWN_MOST 3600.0

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
		if (!benchmarks) {
			err->status = STATUS_ENVIRONMENT; /* no validator said this */
			return error_context(
				err, "the benchmarks stored with submission %lld", (long long)submission->id);
		}
	}
	*claim = (struct api_claim){
		.fork_url = submission->fork_url,
		.commit_hash = submission->commit_hash,
		.docker_image = submission->docker_image,
		.tokens_per_sec = submission->tokens_per_sec,
		.vram_mb = submission->vram_mb,
		.benchmarks = benchmarks,
	};
	return 0;
}

static bool has_salt(const struct submission *submission)
{
	return message_salt_fits(
		submission->salt, submission_hidden(submission), submission->commitment_hash);
}

/* --- the validator's list ---------------------------------------------------------------------------- */

const struct api_pending_reveal *workflow_listed(
	const struct api_pending_reveals *pending, const struct submission *submission)
{
	for (size_t i = 0; submission->commitment_hash && i < pending->count; i++)
		if (api_pending_matches(
			    &pending->reveals[i], submission->hotkey, submission->commitment_hash))
			return &pending->reveals[i];
	return NULL;
}

/* Where the validator says when it came, that is what counts. */
static int keep_time(
	struct workflow *workflow, const struct submission *submission, double came_at, struct error *err)
{
	if (isnan(came_at) || came_at == submission->sent_at)
		return 0;
	return store_submission_sent_at(workflow->store, submission->id, came_at, err);
}

/* The list has the last word on a commitment's id, block and time, and on whether it is there. */
static int follow(struct workflow *workflow, const struct submission *submission,
	const struct api_pending_reveal *reveal, struct error *err)
{
	int64_t block = reveal->reveal_block ? reveal->reveal_block : submission->reveal_block;

	if (keep_time(workflow, submission, reveal->created_at, err) < 0)
		return -1;
	if (submission->step == STEP_COMMITTED && block == submission->reveal_block &&
		reveal->submission_id == submission->server_id)
		return 0;
	if (submission->step == STEP_REFUSED)
		log_warn("the validator lists submission #%lld again: it can be revealed",
			(long long)submission->id);
	if (reveal->submission_id != submission->server_id)
		log_warn("the validator lists submission #%lld under the id %lld", (long long)submission->id,
			(long long)reveal->submission_id);
	if (submission->reveal_block && block != submission->reveal_block)
		log_warn("the validator moved the reveal of submission #%lld from block %lld to %lld",
			(long long)submission->id, (long long)submission->reveal_block, (long long)block);
	return store_submission_committed(workflow->store, submission->id, reveal->submission_id, block, err);
}

/* The commitments that may still be at the validator. */
static int open_commitments(
	struct workflow *workflow, unsigned steps, struct submission_list *list, struct error *err)
{
	struct submission_filter filter = {
		.steps = steps, .api_url = workflow->api_url, .hotkey = workflow->hotkey};

	return store_submissions(workflow->store, &filter, list, err);
}

int workflow_pending(struct workflow *workflow, struct api_pending_reveals *pending, struct error *err)
{
	struct api_pending_filter filter = {.hotkey = workflow->hotkey};
	struct submission_list list;
	struct error ignored;
	int64_t *ids;
	int result;

	*pending = (struct api_pending_reveals){0};
	if (open_commitments(workflow, STEP_BIT(STEP_COMMITTED) | STEP_BIT(STEP_REFUSED), &list, err) < 0)
		return -1;
	filter.ids = ids = xcalloc(list.count + 1, sizeof(*ids));
	for (size_t i = 0; i < list.count; i++)
		if (list.items[i].server_id)
			ids[filter.id_count++] = list.items[i].server_id;
	result = api_pending_reveals(workflow->api, &filter, pending, err);
	for (size_t i = 0; !result && i < list.count; i++) {
		const struct api_pending_reveal *reveal = workflow_listed(pending, &list.items[i]);

		/* a store that cannot be written now hears of it the next time */
		if (reveal && has_salt(&list.items[i]))
			follow(workflow, &list.items[i], reveal, &ignored);
	}
	free(ids);
	submission_list_free(&list);
	return result;
}

/* --- commit --------------------------------------------------------------------------------------- */

/* Looks for the commitment in the validator's list, and stores where it stands if it is there. `found` says
 * whether. */
static int find_commitment(
	struct workflow *workflow, const struct submission *submission, bool *found, struct error *err)
{
	struct api_pending_reveals pending;
	const struct api_pending_reveal *reveal = NULL;
	int result = workflow_pending(workflow, &pending, err);

	if (!result)
		reveal = workflow_listed(&pending, submission);
	*found = reveal != NULL;
	if (reveal && submission->step == STEP_PREPARED)
		result = keep_time(workflow, submission, reveal->created_at, err) < 0
			? -1
			: store_submission_committed(workflow->store, submission->id, reveal->submission_id,
				  reveal->reveal_block, err);
	api_release(&pending.memory);
	return result;
}

static int send_commitment(struct workflow *workflow, const struct submission *submission, struct error *err)
{
	struct api_commitment answer;
	int result;

	if (store_submission_sending(workflow->store, submission->id, api_now(workflow->api),
		    "sending the commitment", err) < 0)
		return -1;
	result = api_commit_submission(
		workflow->api, submission->commitment_hash, submission->target_sequence_length, &answer, err);
	if (!result)
		result = store_submission_committed(
			workflow->store, submission->id, answer.submission_id, answer.reveal_block, err);
	if (!result)
		result = store_submission_reveal_time(
			workflow->store, submission->id, answer.estimated_reveal_time, err);
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
static int find_submission(
	struct workflow *workflow, const struct submission *submission, bool *found, struct error *err)
{
	struct api_submission_stats stats;
	int result = api_submission_stats(workflow->api, SUBMISSIONS_READ, &stats, err);

	*found = false;
	for (size_t i = 0; !result && !*found && i < stats.recent_count + stats.top_count; i++) {
		const struct api_submission *listed = i < stats.recent_count
			? &stats.recent[i]
			: &stats.top[i - stats.recent_count];

		if (!same_submission(listed, submission) || workflow_knows_submission(workflow, listed->id))
			continue;
		*found = true;
		result = keep_time(workflow, submission, listed->created_at, err) < 0
			? -1
			: store_submission_submitted(workflow->store, submission->id, listed->id, err);
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
	result = store_submission_sending(
		workflow->store, submission->id, api_now(workflow->api), "sending the submission", err);
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

/* Stores a score, unless it is known. A validator that began anew counts from the start again: then the id is the
 * latest submission's. */
static void keep_score(
	struct workflow *workflow, const struct submission_list *list, const struct api_own_submission *shown)
{
	const struct submission *submission = NULL;
	struct error ignored; /* what cannot be written now is at the next look */

	for (size_t i = 0; i < list->count; i++)
		if (list->items[i].server_id == shown->id)
			submission = &list->items[i];
	if (submission && !isnan(shown->score) && shown->score != submission->score)
		store_submission_judged(workflow->store, submission->id, shown->score, &ignored);
}

int workflow_dashboard(struct workflow *workflow, struct api_miner *miner, struct error *err)
{
	struct submission_filter filter = {.api_url = workflow->api_url, .hotkey = workflow->hotkey};
	struct submission_list list;

	if (api_dashboard_miner(workflow->api, workflow->hotkey, miner, err) < 0 ||
		store_submissions(workflow->store, &filter, &list, err) < 0)
		return -1;
	for (size_t i = 0; i < miner->count; i++)
		keep_score(workflow, &list, &miner->submissions[i]);
	submission_list_free(&list);
	return 0;
}

/* The clocks of both, and the time that a request took. */
#define CREATION_MARGIN 120.0

/* Whether a row of the dashboard can be this submission: it shows neither fork nor commitment. */
static bool may_be(struct workflow *workflow, const struct api_own_submission *listed,
	const struct submission *submission)
{
	bool is_direct = submission->kind == SUBMISSION_DIRECT;

	return listed->target_sequence_length == submission->target_sequence_length &&
		listed->is_revealed == is_direct &&
		(!is_direct || listed->tokens_per_sec == submission->tokens_per_sec) &&
		listed->created_at >= submission->doubt_since - CREATION_MARGIN &&
		!workflow_knows_submission(workflow, listed->id);
}

/* Looks for a submission on the dashboard. `found` also says that there is no other one that it could be. */
static int find_on_dashboard(
	struct workflow *workflow, const struct submission *submission, bool *found, struct error *err)
{
	const struct api_own_submission *candidate = NULL;
	size_t candidates = 0;
	struct api_miner miner;
	int result = workflow_dashboard(workflow, &miner, err);

	*found = false;
	if (result < 0 && api_last(workflow->api)->refusal == REFUSAL_UNKNOWN)
		result = 0; /* nothing of this hotkey is there yet */
	for (size_t i = 0; i < miner.count; i++)
		if (may_be(workflow, &miner.submissions[i], submission)) {
			candidate = &miner.submissions[i];
			candidates++;
		}
	if (!result && candidates == 1) {
		*found = true;
		result = keep_time(workflow, submission, candidate->created_at, err);
	}
	if (*found && !result)
		result = submission->kind == SUBMISSION_DIRECT
			? store_submission_submitted(workflow->store, submission->id, candidate->id, err)
			: store_submission_committed(workflow->store, submission->id, candidate->id, 0, err);
	api_release(&miner.memory);
	return result;
}

/* Looks for it wherever this validator lets a miner look: -1 with REFUSAL_NOT_FOR_US when that is nowhere. */
static int find(
	struct workflow *workflow, const struct submission *submission, bool *found, struct error *err)
{
	*found = false;
	return api_shows_lists(workflow->api)
		? senders[submission->kind].find(workflow, submission, found, err)
		: find_on_dashboard(workflow, submission, found, err);
}

/* Nothing was sent that could be taken up again, and sending the same once more would end the same. */
static bool is_final(enum refusal refusal)
{
	return refusal_is_clear(refusal) && refusal != REFUSAL_NO_ROUTE && refusal != REFUSAL_EXISTS &&
		refusal != REFUSAL_NOT_FOR_US && refusal != REFUSAL_EARLY && refusal != REFUSAL_COOLDOWN &&
		refusal != REFUSAL_EXPIRED;
}

static int undelivered(const struct submission *submission, struct error *err)
{
	if (err->status == STATUS_NETWORK || err->status == STATUS_INTERRUPTED)
		error_hint(err,
			"Nothing is lost. Run `quasar %s` again: it asks the validator about this "
			"submission before it sends anything.",
			senders[submission->kind].command);
	return -1;
}

/* A submission on its way. */
struct delivery {
	struct workflow *workflow;
	struct submission submission; /* its strings are the caller's */
	bool look;                    /* it may be there: an earlier attempt may have arrived */
	bool anew;                    /* it was made for one that is there without its id being known */
	bool waited;                  /* for the pause after any other submission to end */
	int64_t *id;                  /* receives the store's, when another one is made for it */
};

static int deliver(struct delivery *delivery, struct error *err);

static bool is_in_doubt(const struct delivery *delivery)
{
	return !isnan(delivery->submission.doubt_since);
}

/* Nobody tells whether a direct submission has arrived, and a second one would compete with it. */
static int stays_in_doubt(const struct delivery *delivery, struct error *err)
{
	delivery->workflow->in_doubt = delivery->submission.id;
	error_set(err, STATUS_NETWORK,
		"submission #%lld may have arrived, and the validator does not show it to miners",
		(long long)delivery->submission.id);
	return error_hint(err,
		"It is not sent a second time. With DASHBOARD_API_KEY, quasar can look it up; `quasar submit "
		"--again` gives it up and sends another one.");
}

/* Whether what was asked for last is not for this miner to see. */
static bool is_hidden(const struct workflow *workflow)
{
	enum refusal refusal = api_last(workflow->api)->refusal;

	return refusal == REFUSAL_NOT_FOR_US || refusal == REFUSAL_KEY;
}

/* Sends nothing that could be there, unless the validator would not take it twice. */
static int look_before_sending(struct delivery *delivery, bool *found, struct error *err)
{
	struct workflow *workflow = delivery->workflow;
	const struct submission *submission = &delivery->submission;

	if (find(workflow, submission, found, err) == 0)
		return 0;
	if (is_hidden(workflow)) {
		bool recent = fabs(api_now(workflow->api) - submission->doubt_since) < COOLDOWN_LEAST;

		return submission->kind == SUBMISSION_COMMIT || !is_in_doubt(delivery) || recent
			? 0
			: stays_in_doubt(delivery, err);
	}
	/* a commitment may be sent again even if it cannot be looked for: each hash is taken once only */
	return submission->kind == SUBMISSION_COMMIT && err->status == STATUS_NETWORK &&
			api_last(workflow->api)->http_status
		? 0
		: undelivered(submission, err);
}

/* Keeps track of whether it may have arrived, over a restart, too. */
static int send(struct delivery *delivery, struct error *err)
{
	struct workflow *workflow = delivery->workflow;
	struct submission *submission = &delivery->submission;
	double since = submission->doubt_since;
	enum api_delivery came_to;
	struct error failure;

	submission->doubt_since = isnan(since) ? api_now(workflow->api) : since;
	if (senders[submission->kind].send(workflow, submission, err) == 0)
		return 0;
	came_to = api_last(workflow->api)->delivery;
	if (err->status == STATUS_ENVIRONMENT || came_to == API_UNKNOWN || came_to == API_DONE)
		return -1;
	submission->doubt_since = since;
	if (isnan(since) && store_submission_not_sent(workflow->store, submission->id, &failure) < 0)
		*err = failure;
	return -1;
}

static int found_at_validator(struct delivery *delivery, struct error *err)
{
	return store_submission_note(
		delivery->workflow->store, delivery->submission.id, "found at the validator", err);
}

/* Whether another submission of this hotkey can have begun the validator's pause. */
static bool has_other_recent(const struct delivery *delivery)
{
	const struct submission *submission = &delivery->submission;
	struct submission_filter filter = {.steps = ~STEP_BIT(STEP_REFUSED),
		.api_url = submission->api_url,
		.hotkey = submission->hotkey};
	struct submission_list list;
	struct error ignored;
	bool found = false;

	if (delivery->waited)
		return false;
	if (store_submissions(delivery->workflow->store, &filter, &list, &ignored) < 0)
		return true;
	for (size_t i = 0; i < list.count; i++)
		found |= list.items[i].id != submission->id &&
			api_now(delivery->workflow->api) - submission_came_at(&list.items[i]) < COOLDOWN_MOST;
	submission_list_free(&list);
	return found;
}

/* A direct submission is in doubt, and the validator takes none now: because it has this one? 0: it has; 1: it has not;
 * -1: that cannot be told, or error. */
static int resolve_doubt(struct delivery *delivery, struct error *err)
{
	struct workflow *workflow = delivery->workflow;
	const struct submission *submission = &delivery->submission;
	struct error pause = *err;
	bool found = false;

	if (find(workflow, submission, &found, err) == 0) {
		*err = pause;
		return found ? found_at_validator(delivery, err) : 1;
	}
	if (!is_hidden(workflow))
		return undelivered(submission, err);
	if (has_other_recent(delivery))
		return stays_in_doubt(delivery, err);
	if (store_submission_note(workflow->store, submission->id,
		    "the validator takes no second one now: it has arrived", err) < 0)
		return -1;
	return store_submission_submitted(workflow->store, submission->id, 0, err);
}

/* The validator takes no submission of this hotkey now. 0: it has one, which can only be this; 1: waited, try
 * again; -1: error. */
static int wait_for_turn(struct delivery *delivery, struct error *err)
{
	struct workflow *workflow = delivery->workflow;
	const struct submission *submission = &delivery->submission;
	double seconds = api_last(workflow->api)->retry_after;
	char text[32];
	int open = submission->kind == SUBMISSION_DIRECT && is_in_doubt(delivery)
		? resolve_doubt(delivery, err)
		: 1;

	if (open <= 0)
		return open;
	delivery->look |= is_in_doubt(delivery); /* it may still be on its way */
	if (!workflow->patient || !(seconds > 0 && seconds <= COOLDOWN_MOST))
		return undelivered(submission, err);
	delivery->waited = true;
	clock_duration(ceil(seconds), text);
	log_note("The validator takes the next submission of this hotkey in %s; waiting.", text);
	return clock_sleep(seconds, err) < 0 ? undelivered(submission, err) : 1;
}

/* The validator has the commitment, under an id that it does not tell. */
static int commit_anew(struct delivery *delivery, struct error *err)
{
	static const char reason[] = "it arrived, but the validator does not tell its id";
	struct workflow *workflow = delivery->workflow;
	struct submission *submission = &delivery->submission;
	char salt[65], commitment_hash[65];
	struct delivery next = *delivery;
	int64_t id;
	int result;

	log_warn(
		"The commitment of submission #%lld arrived, but without its id, which the validator does not "
		"show to miners, it can never be revealed. Committing anew, with a fresh salt.",
		(long long)submission->id);
	if (store_submission_abandoned(workflow->store, submission->id, reason, err) < 0)
		return -1;
	message_salt(salt);
	message_commitment_hash(salt, submission_hidden(submission), commitment_hash);
	next.submission.salt = salt;
	next.submission.commitment_hash = commitment_hash;
	next.submission.created_at = api_now(workflow->api);
	next.submission.doubt_since = NAN;
	next.look = false;
	next.anew = true;
	result = store_submission_prepare(workflow->store, &next.submission, &id, err);
	if (!result) {
		next.submission.id = id;
		if (delivery->id)
			*delivery->id = id;
		result = deliver(&next, err);
	}
	sodium_memzero(salt, sizeof(salt));
	return result;
}

/* The validator has this very commitment: its salt is ours alone. */
static int take_existing(struct delivery *delivery, struct error *err)
{
	struct workflow *workflow = delivery->workflow;
	const struct submission *submission = &delivery->submission;
	struct error conflict = *err;
	bool found = false;
	int result = find(workflow, submission, &found, err);

	if (found)
		return found_at_validator(delivery, err);
	if (!api_shows_lists(workflow->api) && (!result || is_hidden(workflow)) && !delivery->anew)
		return commit_anew(delivery, err);
	if (!result)
		*err = conflict;
	return undelivered(submission, err);
}

/* Sends until the validator has it, has refused it, or the time is up; looks for it first whenever an
 * earlier attempt may have arrived. */
static int deliver(struct delivery *delivery, struct error *err)
{
	struct workflow *workflow = delivery->workflow;
	const struct submission *submission = &delivery->submission;
	struct api_exchange last = {.refusal = REFUSAL_INTERNAL};
	unsigned unclear = 0;
	struct retry retry;

	retry_begin(&retry, workflow->timeout);
	for (;;) {
		bool found = false;
		int waited;

		if (delivery->look && look_before_sending(delivery, &found, err) < 0)
			return -1;
		if (found)
			return found_at_validator(delivery, err);
		if (last.refusal == REFUSAL_INTERNAL && api_wake_round(workflow->api, err) < 0)
			return undelivered(submission, err);
		if (send(delivery, err) == 0)
			return 0;
		if (err->status == STATUS_ENVIRONMENT) /* the store failed: trying again would not help */
			return -1;
		last = *api_last(workflow->api);
		if (last.refusal == REFUSAL_EXISTS)
			return take_existing(delivery, err);
		if (last.refusal == REFUSAL_COOLDOWN) {
			waited = wait_for_turn(delivery, err);
			if (waited <= 0)
				return waited;
			retry_begin(&retry, workflow->timeout);
			continue;
		}
		if (is_final(last.refusal)) {
			struct error ignored;

			store_submission_refused(workflow->store, submission->id, err->message, &ignored);
			return -1;
		}
		delivery->look |= last.delivery == API_UNKNOWN;
		unclear += last.refusal == REFUSAL_UNCLEAR;
		if ((!last.transient && last.delivery != API_UNKNOWN) || unclear == UNCLEAR_ATTEMPTS ||
			retry_wait(&retry, last.retry_after, err) < 0)
			return undelivered(submission, err);
	}
}

static int prepare_and_deliver(struct workflow *workflow, enum submission_kind kind, const struct plan *plan,
	char *salt, char *commitment_hash, int64_t *id, struct error *err)
{
	char *benchmarks = plan->benchmarks ? cJSON_PrintUnformatted(plan->benchmarks) : NULL;
	struct delivery delivery = {
		.workflow = workflow,
		.submission =
			{
				.kind = kind,
				.api_url = (char *)workflow->api_url,
				.hotkey = (char *)workflow->hotkey,
				.fork_url = (char *)plan->fork_url,
				.commit_hash = (char *)plan->commit_hash,
				.repo_hash = (char *)plan->repo_hash,
				.docker_image = (char *)plan->docker_image,
				.target_sequence_length = plan->target_sequence_length,
				.tokens_per_sec = plan->tokens_per_sec,
				.vram_mb = plan->vram_mb,
				.benchmarks = benchmarks,
				.salt = salt,
				.commitment_hash = commitment_hash,
				.doubt_since = NAN,
				/* ours may be set right later */
				.created_at = api_now(workflow->api),
			},
		.id = id,
	};
	int result = store_submission_prepare(workflow->store, &delivery.submission, id, err);

	delivery.submission.id = *id;
	if (!result)
		result = deliver(&delivery, err);
	cJSON_free(benchmarks);
	return result;
}

int workflow_commit(struct workflow *workflow, const struct plan *plan, int64_t *id, struct error *err)
{
	char salt[65], commitment_hash[65];
	int result;

	message_salt(salt);
	message_commitment_hash(
		salt, plan->docker_image ? plan->docker_image : plan->fork_url, commitment_hash);
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
	struct delivery delivery = {.workflow = workflow, .submission = *submission, .look = true};

	return deliver(&delivery, err);
}

int workflow_abandon_in_doubt(struct workflow *workflow, struct error *err)
{
	int64_t id = workflow->in_doubt;

	workflow->in_doubt = 0;
	return store_submission_abandoned(
		workflow->store, id, "given up without knowing whether it arrived", err);
}

/* --- reveal ----------------------------------------------------------------------------------------- */

/* Without lists, an id that the validator gave to a later commitment of ours tells that it has begun anew. */
static bool is_superseded(struct workflow *workflow, const struct submission *submission)
{
	struct submission_filter filter = {
		.api_url = workflow->api_url, .hotkey = workflow->hotkey, .server_id = submission->server_id};
	struct submission_list list;
	struct error ignored;
	bool found = false;

	if (api_shows_lists(workflow->api) ||
		store_submissions(workflow->store, &filter, &list, &ignored) < 0)
		return false;
	for (size_t i = 0; i < list.count; i++)
		found |= list.items[i].id > submission->id;
	submission_list_free(&list);
	return found;
}

/* A hash that does not fit would count as a failure against this machine's address: better not sent. */
static int check_salt(const struct submission *submission, struct error *err)
{
	if (has_salt(submission))
		return 0;
	error_set(err, STATUS_ENVIRONMENT,
		"submission %lld: the stored salt does not belong to its commitment",
		(long long)submission->id);
	return error_hint(err,
		"Nothing was sent. The state store was damaged or edited. `quasar import-state` restores "
		"the salt from a backup.");
}

static int send_reveal(struct workflow *workflow, const struct submission *submission,
	const struct api_claim *claim, struct error *err)
{
	struct api_revelation answer;
	int result;

	if (store_submission_note(workflow->store, submission->id, "revealing", err) < 0)
		return -1;
	result = api_reveal_submission(
		workflow->api, submission->server_id, submission->salt, claim, &answer, err);
	api_release(&answer.memory);
	return result;
}

/* Stores that the validator has lost it. Always -1, with STATUS_REFUSED. */
static int forgotten(struct workflow *workflow, const struct submission *submission, struct error *err)
{
	struct error failure;

	error_set(err, STATUS_REFUSED,
		"the validator has lost submission #%lld (server id %lld): commit again",
		(long long)submission->id, (long long)submission->server_id);
	if (store_submission_refused(workflow->store, submission->id, err->message, &failure) < 0)
		log_warn("%s", failure.message);
	return error_hint(err,
		"Its database was reset. Run `quasar register` if it asks for that, then `quasar commit`.");
}

/* Whether this row, of the submission's id, is about another submission. */
static bool is_another(const struct api_submission *listed, const struct submission *submission)
{
	if (listed->id != submission->server_id)
		return false;
	return listed->fork_url ? !same_submission(listed, submission)
				: strcmp(listed->miner_hotkey, submission->hotkey) != 0;
}

static bool stats_show_another(const struct api_submission_stats *stats, const struct submission *submission)
{
	for (size_t i = 0; i < stats->recent_count; i++)
		if (is_another(&stats->recent[i], submission))
			return true;
	return false;
}

/* Whether the list has another commitment under this one's id: a validator that began anew counts from the start
 * again. */
static bool pending_shows_another(
	const struct api_pending_reveals *pending, const struct submission *submission)
{
	for (size_t i = 0; i < pending->count; i++)
		if (pending->reveals[i].submission_id == submission->server_id &&
			!api_pending_matches(
				&pending->reveals[i], submission->hotkey, submission->commitment_hash))
			return true;
	return false;
}

/* Seconds by which a round has to be younger than a commitment, for it cannot be known better. */
#define AGE_MARGIN 120

/* Not to be in the list is not enough: it may be revealed, with the answer lost. */
static bool is_forgotten(const struct submission *submission, const struct api_pending_reveals *pending,
	const struct api_submission_stats *stats, const struct api_round *round)
{
	if (pending->skipped || workflow_listed(pending, submission))
		return false;
	if (pending_shows_another(pending, submission) || (stats && stats_show_another(stats, submission)))
		return true;
	if (stats && stats->total_submissions >= 0 && stats->total_submissions < submission->server_id)
		return true;
	return round && round->round_number == 1 &&
		round->start_time > submission_came_at(submission) + AGE_MARGIN;
}

int workflow_check_listed(struct workflow *workflow, const struct submission *submission,
	const struct api_pending_reveals *pending, struct error *err)
{
	return is_forgotten(submission, pending, NULL, NULL) ? forgotten(workflow, submission, err) : 0;
}

void workflow_mark_forgotten(struct workflow *workflow, const struct submission_list *before,
	const struct api_pending_reveals *pending, const struct api_submission_stats *stats,
	const struct api_round *round)
{
	struct error ignored;

	for (size_t i = 0; i < before->count; i++)
		if (before->items[i].step == STEP_COMMITTED &&
			is_forgotten(&before->items[i], pending, stats, round))
			forgotten(workflow, &before->items[i], &ignored);
}

int workflow_refresh(struct workflow *workflow, struct error *err)
{
	struct api_pending_reveals pending;
	struct api_submission_stats stats;
	struct api_round round = {0};
	struct submission_list before;
	bool has_stats, has_round;
	int result;

	if (open_commitments(workflow, STEP_BIT(STEP_COMMITTED), &before, err) < 0)
		return -1;
	result = workflow_pending(workflow, &pending, err);
	if (!result) {
		api_set_timeout(workflow->api, fmin(workflow->timeout, EVIDENCE_SECONDS));
		has_stats = api_submission_stats(workflow->api, SUBMISSIONS_READ, &stats, err) == 0;
		has_round = api_current_round(workflow->api, &round, err) == 0;
		workflow_mark_forgotten(
			workflow, &before, &pending, has_stats ? &stats : NULL, has_round ? &round : NULL);
		api_set_timeout(workflow->api, workflow->timeout);
		api_release(&stats.memory);
		api_release(&round.memory);
	}
	api_release(&pending.memory);
	submission_list_free(&before);
	return result;
}

/* What the lists tell about a commitment whose reveal was refused. */
enum presence { PRESENCE_LISTED, PRESENCE_ANOTHER, PRESENCE_ABSENT, PRESENCE_UNKNOWN };

static enum presence find_presence(struct workflow *workflow, const struct submission *submission)
{
	struct api_pending_reveals pending;
	struct api_submission_stats stats = {0};
	enum presence presence = PRESENCE_UNKNOWN;
	struct error err;

	api_set_timeout(workflow->api, fmin(workflow->timeout, EVIDENCE_SECONDS));
	if (workflow_pending(workflow, &pending, &err) < 0) {
		/* then its word is all there is */
		if (api_last(workflow->api)->refusal == REFUSAL_NOT_FOR_US)
			presence = PRESENCE_ABSENT;
	} else if (workflow_listed(&pending, submission)) {
		presence = PRESENCE_LISTED;
	} else if (pending_shows_another(&pending, submission) ||
		(api_submission_stats(workflow->api, SUBMISSIONS_READ, &stats, &err) == 0 &&
			stats_show_another(&stats, submission))) {
		presence = PRESENCE_ANOTHER;
	} else if (!pending.skipped) {
		presence = PRESENCE_ABSENT;
	}
	api_set_timeout(workflow->api, workflow->timeout);
	api_release(&pending.memory);
	api_release(&stats.memory);
	return presence;
}

/* Nothing is given up as long as the validator may still have it. */
static int kept(struct error *err)
{
	err->status = STATUS_NETWORK;
	return error_hint(err,
		"The commitment is kept, because the validator's list does not confirm this. Run `quasar "
		"reveal` to try again.");
}

/* The answer to an earlier reveal was lost; unless the conflict is about another submission than this one. */
static int revealed_before(struct workflow *workflow, const struct submission *submission, struct error *err)
{
	switch (find_presence(workflow, submission)) {
	case PRESENCE_ANOTHER:
		return forgotten(workflow, submission, err);
	case PRESENCE_ABSENT:
		return store_submission_revealed(workflow->store, submission->id, err);
	case PRESENCE_LISTED:
		error_set(err, STATUS_NETWORK,
			"the validator says this was already revealed, but still lists the commitment as "
			"not revealed");
		return error_hint(err, "Run `quasar reveal` again.");
	case PRESENCE_UNKNOWN:
		break;
	}
	return kept(err);
}

/* No such submission, says the validator. */
static int not_known(struct workflow *workflow, const struct submission *submission, struct error *err)
{
	switch (find_presence(workflow, submission)) {
	case PRESENCE_ANOTHER:
	case PRESENCE_ABSENT:
		return forgotten(workflow, submission, err);
	default: /* perhaps under another id, which is stored by now */
		return kept(err);
	}
}

/* The salt does not fit, says the validator. That counts as a failure: it is not tried again at once. */
static int mismatched(struct workflow *workflow, const struct submission *submission, struct error *err)
{
	struct error ignored;

	switch (find_presence(workflow, submission)) {
	case PRESENCE_ANOTHER:
		return forgotten(workflow, submission, err);
	case PRESENCE_ABSENT:
		store_submission_refused(workflow->store, submission->id, err->message, &ignored);
		return -1;
	default:
		return error_hint(err,
			"The commitment is kept, and its salt is the one that was committed. Ask the "
			"validator's operator before you reveal again: each such answer counts as a failure, "
			"and five ban the address.");
	}
}

/* What the validator's word on the wait comes to: the block may come at another time than was told before, or not
 * be known. */
static void note_reveal_time(
	struct workflow *workflow, const struct submission *submission, int64_t blocks_left)
{
	struct block_clock blocks = {0};
	double now = api_now(workflow->api);
	struct error ignored;

	if (submission->reveal_block)
		workflow->blocks_left = blocks_left;
	block_clock_observe(&blocks, submission->reveal_block - blocks_left, clock_uptime());
	store_submission_reveal_time(workflow->store, submission->id,
		now + (double)blocks_left * block_clock_length(&blocks), &ignored);
}

static int reveal_until_heard(struct workflow *workflow, const struct submission *submission,
	const struct api_claim *claim, struct error *err)
{
	unsigned unclear = 0;
	struct retry retry;

	retry_begin(&retry, workflow->timeout);
	for (;;) {
		struct api_exchange last;

		if (send_reveal(workflow, submission, claim, err) == 0)
			return store_submission_revealed(workflow->store, submission->id, err);
		if (err->status == STATUS_ENVIRONMENT) /* the store failed: trying again would not help */
			return -1;
		last = *api_last(workflow->api);
		workflow->refusal = last.refusal;
		if (last.blocks_left)
			note_reveal_time(workflow, submission, last.blocks_left);
		if (last.refusal == REFUSAL_REVEALED)
			return revealed_before(workflow, submission, err);
		if (last.refusal == REFUSAL_UNKNOWN)
			return not_known(workflow, submission, err);
		if (last.refusal == REFUSAL_MISMATCH)
			return mismatched(workflow, submission, err);
		unclear += last.refusal == REFUSAL_UNCLEAR;
		if ((!last.transient && last.delivery != API_UNKNOWN) || unclear == UNCLEAR_ATTEMPTS ||
			retry_wait(&retry, last.retry_after, err) < 0)
			return -1;
	}
}

int workflow_reveal(struct workflow *workflow, const struct submission *submission, struct error *err)
{
	struct api_claim claim;
	int result;

	workflow->refusal = REFUSAL_NONE;
	workflow->blocks_left = 0;
	if (check_salt(submission, err) < 0)
		return -1;
	if (is_superseded(workflow, submission))
		return forgotten(workflow, submission, err);
	if (read_claim(submission, &claim, err) < 0)
		return -1;
	result = reveal_until_heard(workflow, submission, &claim, err);
	cJSON_Delete((cJSON *)claim.benchmarks);
	return result;
}

bool workflow_gave_up(struct workflow *workflow, int64_t id)
{
	struct submission now;
	struct error ignored;
	bool refused;

	if (store_submission_get(workflow->store, id, &now, &ignored) < 0)
		return false;
	refused = now.step == STEP_REFUSED;
	submission_free(&now);
	return refused;
}

/* --- what the validator lists and the store does not --------------------------------------------------- */

int workflow_locate(struct workflow *workflow, const struct submission *submission, struct error *err)
{
	bool found;

	return find(workflow, submission, &found, err);
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
