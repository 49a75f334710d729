#include "cli/proposal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/number.h"
#include "cli/python.h"
#include "cli/verification.h"
#include "score/score.h"

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
	return arg_real(invocation, "margin", 0, 0.9, margin, err);
}

int proposal_read(const struct invocation *invocation, struct session *session, double claim,
	struct proposal *proposal, struct error *err)
{
	*proposal = (struct proposal){.plan.vram_mb = NAN};
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
	if (make_claim(session, claim, proposal, err) == 0)
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
	const struct verify_request request = {
		.fork_path = session->workspace.fork_path,
		.fork_url = proposal->plan.fork_url,
		.submitting = true,
		.static_only = !compute,
		.rehearsal = proposal->rehearsal,
		.tokens = VERIFY_TOKENS,
		.budget = VERIFY_SECONDS,
		.measured = proposal->claim.measured,
		.claimed = proposal->claim.measured > 0 ? proposal->plan.tokens_per_sec
							: 0, /* else unchecked */
	};
	struct check_list checks = {.report = report};
	int result = verify_run(invocation, &request, &checks, err);

	if (!result)
		result = check_published(proposal, session, &checks, err);
	if (!result && check_count(&checks, CHECK_FAIL))
		result = checks_failed(&checks, err);
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
	if (claim->measured > 0 && plan->tokens_per_sec == claim->tokens_per_sec)
		printf("claim     %s tokens/s: measured %s less %.3g%%%s%s\n", claimed, measured,
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
	fork_state_free(&proposal->fork);
	claim_free(&proposal->claim);
}
