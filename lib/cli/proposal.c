#include "cli/proposal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/version.h"
#include "base/log.h"
#include "base/number.h"
#include "cli/connect.h"
#include "cli/python.h"
#include "cli/verification.h"
#include "image/image.h"
#include "score/score.h"
#include "space/neighbours.h"

/* The claim: by hand, or what the commit's benchmarks allow. They go with it either way. */
static int make_claim(
	const struct session *session, double by_hand, struct proposal *proposal, struct error *err)
{
	const struct benchmark_filter filter = {.fork_commit = proposal->fork.commit};
	struct plan *plan = &proposal->plan;
	const struct claim_terms terms = {
		.commit = plan->commit_hash,
		.tokens = plan->target_sequence_length,
		.margin = proposal->margin,
		.rehearsal = proposal->rehearsal,
	};
	struct benchmark_list list;
	int result;

	if (benchmark_list(session->workspace.store, &filter, 0, &list, err) < 0)
		return -1;
	result = claim_make(&list, &terms, &proposal->claim, err);
	if (result < 0 && proposal->fork.changed)
		claim_refuse_changes(proposal->fork.changed_name, err);
	benchmark_list_free(&list);
	plan->tokens_per_sec = by_hand > 0 ? by_hand : proposal->claim.tokens_per_sec;
	plan->vram_mb = proposal->claim.memory_mb;
	plan->benchmarks = proposal->claim.benchmarks;
	return by_hand > 0 ? 0 : result;
}

int proposal_options(const struct invocation *invocation, int64_t *tokens, double *margin, struct error *err)
{
	if (arg_integer(invocation, "seq", 1, MOST_TOKENS, tokens, err) < 0)
		return -1;
	return arg_percent(invocation, "margin", 0, 0.9, margin, err);
}

/* Where only what validators measure ranks, a low claim costs nothing; one that is much too high, everything. */
static int fit_claim(struct proposal *proposal, struct error *err)
{
	const struct api_version *version = proposal->version;
	double *claim = &proposal->plan.tokens_per_sec;

	if (!proposal->by_hand && !version->claims_rank)
		*claim = fmin(fmax(floor(*claim * version->claim_share), version->claim_least),
			version->claim_most);
	if (*claim >= version->claim_least && *claim <= version->claim_most)
		return 0;
	error_set(err, STATUS_USAGE, "this validator takes claims from %.0f to %.0f tokens/s, not %.6g",
		version->claim_least, version->claim_most, *claim);
	return error_hint(err, "Only what validators measure ranks: claim less with --claim.");
}

/* What the validator's version asks for. */
static int follow_version(const struct invocation *invocation, struct session *session,
	struct proposal *proposal, struct error *err)
{
	struct plan *plan = &proposal->plan;

	if (api_find_version(session->api, err) < 0) {
		if (err->status == STATUS_INTERRUPTED)
			return -1;
		log_warn("%s; taking it for %s", err->message, api_version(session->api)->name);
	}
	proposal->version = api_version(session->api);
	if (api_require_network(session->api, err) < 0)
		return -1;
	if (proposal->version->networks)
		proposal->network = api_network(session->api);
	if (proposal->version->images)
		plan->docker_image = proposal->docker_image = workspace_docker_image(invocation->settings);
	if (plan->docker_image && image_check_syntax(plan->docker_image, err) < 0)
		return -1;
	return fit_claim(proposal, err);
}

void proposal_concerns(const struct proposal *proposal,
	void (*tell)(const struct error *concern, void *context), void *context)
{
	const struct api_version *version = proposal->version;
	struct error concern;

	if (version->images && !proposal->docker_image) {
		error_set(&concern, STATUS_ENVIRONMENT,
			"no image of an inference server is set: this validator (%s) never ranks a submission "
			"without one",
			version->name);
		error_hint(&concern, "Set MINER_DOCKER_IMAGE in .env.");
		tell(&concern, context);
	}
	if (version->flags && proposal->plan.tokens_per_sec > proposal->claim.measured) {
		error_set(&concern, STATUS_ENVIRONMENT,
			"the claim is above what was measured here: this validator (%s) flags a hotkey for good "
			"when it measures less than half of its claim",
			version->name);
		error_hint(&concern, "Only what validators measure ranks: a low claim costs nothing.");
		tell(&concern, context);
	}
}

int proposal_read(const struct invocation *invocation, struct session *session, double claim,
	struct proposal *proposal, struct error *err)
{
	*proposal = (struct proposal){.plan.vram_mb = NAN, .by_hand = claim > 0};
	if (proposal_options(invocation, &proposal->plan.target_sequence_length, &proposal->margin, err) <
			0 ||
		fork_state_read(session->workspace.fork_path, &proposal->fork, err) < 0)
		return -1;
	if (!proposal->fork.commit[0]) {
		error_set(err, STATUS_ENVIRONMENT, "the fork %s has no commit yet",
			session->workspace.fork_path);
		error_hint(err, "Commit your kernels with git and push them.");
		goto failed;
	}
	if (!session->workspace.fork_url) {
		error_set(
			err, STATUS_ENVIRONMENT, "there is no URL from which validators can clone the fork");
		error_hint(err, "Add a remote \"origin\" to %s, or set FORK_URL in .env.",
			session->workspace.fork_path);
		goto failed;
	}
	proposal->plan.fork_url = session->workspace.fork_url;
	proposal->plan.commit_hash = proposal->fork.commit;
	proposal->rehearsal = command_rehearsal(invocation, session->api, session->workspace.fork_path);
	if (make_claim(session, claim, proposal, err) == 0 &&
		follow_version(invocation, session, proposal, err) == 0)
		return 0;
failed:
	proposal_free(proposal);
	return -1;
}

/* Asks the remote as a validator would: without the miner's token. */
static int check_published(const struct proposal *proposal, const struct session *session,
	struct check_list *checks, struct error *err)
{
	const struct fork_remote remote = {.allow_local = true, .timeout = 60};
	bool published;

	if (fork_published(session->workspace.fork_path, proposal->plan.fork_url, proposal->plan.commit_hash,
		    &remote, &published, err) < 0) {
		if (err->status == STATUS_INTERRUPTED)
			return -1;
		check_add(checks, "git.published", CHECK_FAIL,
			err->hint[0] ? err->hint : "Validators clone without your token. Is the fork public?",
			"%s", err->message);
	} else if (!published) {
		check_add(checks, "git.published", CHECK_FAIL, "Push it with: quasar push",
			"%s does not have commit %.10s on a branch", proposal->plan.fork_url,
			proposal->plan.commit_hash);
	} else {
		check_add(checks, "git.published", CHECK_OK, NULL, "%s has commit %.10s",
			proposal->plan.fork_url, proposal->plan.commit_hash);
	}
	return 0;
}

/* How many checks failed, and the first of them with its remedy. */
static int checks_failed(const struct check_list *checks, struct error *err)
{
	const struct check *first = checks->items;
	size_t count = check_count(checks, CHECK_FAIL);

	while (first->status != CHECK_FAIL)
		first++;
	error_set(err, STATUS_FAILED, "%zu check%s failed, so nothing was sent: %s: %s", count,
		count == 1 ? "" : "s", first->name, first->detail);
	return error_hint(err, "%s", first->remedy ? first->remedy : "`quasar verify` shows all checks.");
}

int proposal_verify(const struct invocation *invocation, const struct session *session,
	const struct proposal *proposal, bool compute, check_report *report, struct error *err)
{
	struct verify_request request = {
		.fork_path = session->workspace.fork_path,
		.fork_url = proposal->plan.fork_url,
		.version = proposal->version,
		.submitting = true,
		.static_only = !compute,
		.rehearsal = proposal->rehearsal,
		/* a rehearsal is to be quick, and its lengths are often tiny */
		.tokens = proposal->rehearsal && proposal->plan.target_sequence_length < VERIFY_TOKENS
			? proposal->plan.target_sequence_length
			: VERIFY_TOKENS,
		.budget = VERIFY_SECONDS,
		.measured = proposal->claim.measured,
		.claimed = proposal->claim.measured > 0 ? proposal->plan.tokens_per_sec
							: 0, /* else unchecked */
	};
	const struct neighbour own = {
		.api_url = session->workflow.api_url,
		.hotkey = session->workflow.hotkey,
		.fork_url = proposal->plan.fork_url,
		.wallet = arg_string(invocation, "wallet"),
		.directory = session->workspace.directory,
	};
	struct check_list checks = {.report = report};
	struct error ignored;
	int result = verify_run(invocation, &request, &checks, err);

	if (!result && !fork_is_still(request.fork_path, &proposal->fork))
		check_add(&checks, "git", CHECK_FAIL, "Run it again, for the fork as it is now.",
			"the fork was changed while it was checked");
	if (!result)
		result = check_published(proposal, session, &checks, err);
	if (!result && proposal->version->flags)
		neighbours_check(&own, &checks);
	if (!result && check_count(&checks, CHECK_FAIL))
		result = checks_failed(&checks, err);
	/* a list that cannot be written warns of nothing, and keeps nothing from being sent */
	if (!result && proposal->version->flags)
		neighbours_note(&own, &ignored);
	check_free(&checks);
	return result;
}

void proposal_print(const struct proposal *proposal)
{
	const struct plan *plan = &proposal->plan;
	const struct league *league = league_for(plan->target_sequence_length);
	const struct claim *claim = &proposal->claim;
	char claimed[48], tokens[48], weighted[48], measured[48];

	number_grouped(plan->tokens_per_sec, claimed);
	number_grouped((double)plan->target_sequence_length, tokens);
	number_grouped(score_weighted(plan->tokens_per_sec, plan->target_sequence_length), weighted);
	number_grouped(claim->measured, measured);
	printf("fork      %s at %.10s\n", plan->fork_url, plan->commit_hash);
	printf("league    %s (%s tokens, x%g)\n", league->name, tokens, league->multiplier);
	if (proposal->network)
		printf("network   %s\n", proposal->network);
	if (proposal->docker_image)
		printf("image     %s\n", proposal->docker_image);
	if (!proposal->by_hand && !proposal->version->claims_rank)
		printf("claim     %s tokens/s, well below the measured %s: only what validators measure ranks\n",
			claimed, measured);
	else if (claim->measured > 0 && plan->tokens_per_sec == claim->tokens_per_sec)
		printf("claim     %s tokens/s: measured %s less %.3g %%%s%s\n", claimed, measured,
			claim->margin * 100, claim->margin > proposal->margin ? ", as its runs differ" : "",
			claim->runs == 1 ? " (a single run: how noisy it is, is not known)" : "");
	else
		printf("claim     %s tokens/s, as given%s%s\n", claimed,
			claim->measured > 0 ? "; measured " : "", claim->measured > 0 ? measured : "");
	if (claim->stands_in)
		printf("          " CLAIM_REHEARSAL "\n");
	printf("weighted  %s\n", weighted);
}

void proposal_free(struct proposal *proposal)
{
	free(proposal->docker_image);
	fork_state_free(&proposal->fork);
	claim_free(&proposal->claim);
}
