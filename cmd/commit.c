/* quasar commit and quasar submit: the two ways to hand in the fork. */
#include <stdio.h>
#include <unistd.h>

#include "api/version.h"
#include "base/clock.h"
#include "base/layout.h"
#include "base/log.h"
#include "base/number.h"
#include "cli/proposal.h"
#include "cli/report.h"
#include "cmd/commands.h"
#include "space/due.h"
#include "space/hidden.h"

#define LONGEST_TURN 600.0 /* s to wait for another process that submits from the same workspace */

static void print_committed(struct session *session, const struct submission *submission, bool already)
{
	struct block_clock blocks = {0};
	const char *said = already ? "This commit was already sent" : "Committed";
	char block[48], wait[64] = "";

	if (submission->step != STEP_COMMITTED) {
		printf("%s as submission %s, %s.\n", said, submission_label(submission),
			submission_step_name(submission->step));
		return;
	}
	number_grouped((double)submission->reveal_block, block);
	if (due_left(&session->workflow, submission, &blocks) > 0)
		due_describe_left(&session->workflow, submission, &blocks, wait);
	layout_format(stdout, 0,
		"%s as submission %s; it can be revealed from block %s%s%s.\nNext: quasar reveal --wait",
		said, submission_label(submission), block, wait[0] ? ", " : "", wait);
}

static void print_submitted(struct session *session, const struct submission *submission, bool already)
{
	(void)session;
	printf("%s as submission %s, visible to everyone.\nNext: quasar status\n",
		already ? "This commit was already sent" : "Submitted", submission_label(submission));
}

/* The two ways to submit: only the sending and the words differ. */
struct way {
	enum submission_kind kind;
	int (*send)(struct workflow *, const struct plan *, int64_t *id, struct error *);
	void (*print)(struct session *session, const struct submission *submission, bool already);
};

static const struct way by_commitment = {SUBMISSION_COMMIT, workflow_commit, print_committed};
static const struct way directly = {SUBMISSION_DIRECT, workflow_submit, print_submitted};

static int report(const struct invocation *invocation, struct session *session, const struct way *way,
	int64_t id, bool already, struct error *err)
{
	struct submission submission;

	if (store_submission_get(session->workspace.store, id, &submission, err) < 0)
		return -1;
	if (invocation->json) {
		cJSON *document = submission_json(&submission);

		cJSON_AddBoolToObject(document, "already", already);
		output_json(document);
	} else {
		way->print(session, &submission, already);
	}
	submission_free(&submission);
	return 0;
}

/* The id of an earlier submission of the same thing that makes another one unnecessary; 0: none. */
static int find_earlier(const struct invocation *invocation, struct session *session, const struct way *way,
	const struct plan *plan, bool settled, int64_t *id, struct error *err)
{
	struct submission earlier;
	struct error ignored;
	bool found;

	*id = 0;
	if (workflow_find(&session->workflow, way->kind, plan, &found, &earlier, err) < 0)
		return -1;
	/* a commitment that the validator has lost since makes nothing unnecessary */
	if (found && earlier.step == STEP_COMMITTED) {
		submission_free(&earlier);
		workflow_refresh(&session->workflow, &ignored);
		if (workflow_find(&session->workflow, way->kind, plan, &found, &earlier, err) < 0)
			return -1;
	}
	if (found && earlier.step == STEP_PREPARED) {
		error_set(err, STATUS_NETWORK, "submission %s may not have arrived",
			submission_label(&earlier));
		submission_free(&earlier);
		return error_hint(err, "Nothing is lost. Run `quasar %s` again later.",
			way->kind == SUBMISSION_COMMIT ? "commit" : "submit");
	}
	/* --again asks for another one, but not for one more than the one just taken up again */
	if (found && (settled || !arg_flag(invocation, "again")))
		*id = earlier.id;
	if (found)
		submission_free(&earlier);
	return 0;
}

/* Whether the hotkey has handed in something during so many seconds. */
static bool submitted_lately(const struct session *session, double seconds)
{
	struct submission_filter filter = {
		.steps = STEP_BIT(STEP_COMMITTED) | STEP_BIT(STEP_REVEALED) | STEP_BIT(STEP_SUBMITTED),
		.api_url = session->workflow.api_url,
		.hotkey = session->workflow.hotkey,
	};
	struct submission_list list;
	struct error ignored;
	bool found = false;

	if (store_submissions(session->workspace.store, &filter, &list, &ignored) < 0)
		return false;
	for (size_t i = 0; i < list.count; i++)
		found |= api_now(session->api) - submission_came_at(&list.items[i]) < seconds;
	submission_list_free(&list);
	return found;
}

/* Everything that a validator would object to, unless the miner wants it sent all the same. */
static int verify(const struct invocation *invocation, const struct session *session,
	const struct proposal *proposal, struct error *err)
{
	bool anyway = arg_flag(invocation, "no-verify"); /* then without the seconds that decide nothing */

	log_note("Running every check that a validator runs …");
	if (proposal_verify(invocation, session, proposal, !anyway, report_problem, err) == 0)
		return 0;
	if (err->status != STATUS_FAILED || !anyway)
		return -1;
	log_warn("checks failed; sending anyway, as you asked (--no-verify). A failed validation scores "
		 "zero, and five of them ban your address for a day.");
	return 0;
}

/* Settles what earlier calls left. With --again, one of which nobody can say whether it arrived is given up. */
static int settle(const struct invocation *invocation, struct session *session, const struct way *way,
	size_t *settled, struct error *err)
{
	int result = session_settle(session, way->kind, settled, err);

	while (result && session->workflow.in_doubt && arg_flag(invocation, "again")) {
		if (workflow_abandon_in_doubt(&session->workflow, err) < 0)
			return -1;
		result = session_settle(session, way->kind, settled, err);
	}
	return result;
}

static void warn_of(const struct error *concern, void *context)
{
	(void)context;
	log_warn("%s. %s", concern->message, concern->hint);
}

/* What people should know before it is sent. */
static void advise(const struct session *session, const struct way *way, const struct proposal *proposal)
{
	if (way->kind == SUBMISSION_COMMIT && proposal->version->judges_hidden)
		log_note("%s", hidden_advice);
	proposal_concerns(proposal, warn_of, NULL);
	if (proposal->version->pays_lowest && submitted_lately(session, proposal->version->round_seconds))
		log_note(
			"This hotkey has submitted within the last %.0f hours. If several of its submissions "
			"win in a round, this validator pays it for the lowest place only.",
			proposal->version->round_seconds / 3600);
}

static int send(const struct invocation *invocation, struct session *session, const struct way *way,
	struct error *err)
{
	struct proposal proposal;
	double claim = 0;
	size_t settled;
	int64_t id, earlier;
	int result;

	if (arg_real(invocation, "claim", 1e-3, 1e12, &claim, err) < 0 ||
		settle(invocation, session, way, &settled, err) < 0 ||
		proposal_read(invocation, session, claim, &proposal, err) < 0)
		return -1;
	result = find_earlier(invocation, session, way, &proposal.plan, settled > 0, &earlier, err);
	id = earlier;
	if (!result && earlier && proposal.fork.changed)
		log_note(
			"The fork has changes that are not part of this commit, for example in %s. To submit them: "
			"quasar push && quasar bench && quasar %s",
			proposal.fork.changed_name, way->kind == SUBMISSION_COMMIT ? "commit" : "submit");
	if (!result && !earlier) {
		if (!invocation->json)
			proposal_print(&proposal);
		else if (proposal.claim.stands_in)
			log_warn(CLAIM_REHEARSAL);
		advise(session, way, &proposal);
		result = verify(invocation, session, &proposal, err);
		if (!result)
			result = way->send(&session->workflow, &proposal.plan, &id, err);
	}
	proposal_free(&proposal);
	return result ? -1 : report(invocation, session, way, id, earlier && !settled, err);
}

static int run(const struct invocation *invocation, const struct way *way, struct error *err)
{
	struct session session;
	int result = -1, turn;

	if (session_open(invocation, &session, err) < 0)
		return -1;
	session.workflow.patient = true;
	if (workspace_turn(session.workspace.directory, LONGEST_TURN, &turn, err) == 0) {
		result = send(invocation, &session, way, err);
		close(turn);
	}
	session_close(&session);
	return result;
}

static int run_commit(struct invocation *invocation, struct error *err)
{
	return run(invocation, &by_commitment, err);
}

static int run_submit(struct invocation *invocation, struct error *err)
{
	return run(invocation, &directly, err);
}

static const struct opt opts[] = {
	OPTS_CLAIM,
	OPT_PYTHON,
	{"claim", 0, "N", NULL, NULL, NULL,
		"Tokens/s to claim. Default: the benchmark's median less the margin."},
	{"no-verify", 0, NULL, NULL, NULL, NULL,
		"Send even if checks fail, and skip those that compute. A failed validation scores zero, "
		"and five of them ban the address."},
	{"again", 0, NULL, NULL, NULL, NULL, "Send even if this commit was submitted before."},
	OPTS_WALLET,
	OPTS_API,
	{0},
};

static const enum status exits[] = {STATUS_FAILED, STATUS_ENVIRONMENT, STATUS_NETWORK, STATUS_REFUSED, 0};

const struct command cmd_commit = {
	.group = "Submit",
	.name = "commit",
	.summary = "commit to the fork's HEAD without revealing it yet",
	.description =
		"Sends the SHA-256 hash of a random salt and the fork's URL or, with versions from 2026-04 "
		"on, MINER_DOCKER_IMAGE if it is set. The hash gives neither away, but its time counts when "
		"scores are tied. From the reveal block on, `quasar reveal` discloses the fork.\n\n"
		"Fork, commit and claim come from the workspace: the clone's remote, its HEAD, and the "
		"latest `quasar bench` of that commit at the target length, less the margin; where its runs "
		"differ by more, so much less that the slow ones keep the claim. The fork must pass the "
		"checks of `quasar verify`, and validators must be able to fetch the commit.\n\n"
		"Where there is no PyTorch to run the fork, quasar's own layer stands in for it in a "
		"rehearsal alone: for a validator on this machine.\n\n"
		"The salt is written to disk before the commitment is sent. If the response is lost or "
		"the process dies, run `quasar commit` again: it asks the validator for the commitment "
		"first, and never sends a second one. Versions from 2026-04 on tell its id only with "
		"DASHBOARD_API_KEY; without it, a commitment whose response was lost is abandoned, as "
		"nobody can reveal it, and made anew.",
	.opts = opts,
	.examples =
		(const struct example[]){
			{"quasar commit", "commit to HEAD, at TARGET_SEQUENCE_LENGTH"},
			{"quasar commit --seq 1M --margin 5%",
				"in the x3 league, with a more cautious claim"},
			{"quasar commit && quasar reveal --wait", "commit, wait and reveal"},
			{0},
		},
	.exits = exits,
	.run = run_commit,
};

const struct command cmd_submit = {
	.name = "submit",
	.summary = "submit the fork's HEAD in one step, visible to everyone immediately",
	.description =
		"Sends the fork's URL, commit and claim without commit-reveal. Others can read and copy "
		"the fork immediately; `quasar commit` keeps it private until the reveal.\n\n"
		"What is sent, and what is checked first, is the same as for `quasar commit`. If the "
		"response was lost, the validator is asked about the submission before it is sent again.",
	.opts = opts,
	.examples =
		(const struct example[]){
			{"quasar submit", "submit HEAD, at TARGET_SEQUENCE_LENGTH"},
			{"quasar submit --seq 1M --json", "for a script"},
			{0},
		},
	.exits = exits,
	.run = run_submit,
};
