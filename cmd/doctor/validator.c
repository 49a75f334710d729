#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/version.h"
#include "base/clock.h"
#include "cli/connect.h"
#include "cli/hotkey.h"
#include "cmd/doctor/doctor.h"
#include "image/image.h"
#include "space/due.h"
#include "space/neighbours.h"
#include "space/workspace.h"

#define SKEW_SECONDS 5

static void check_clock(const struct api *api, struct check_list *checks)
{
	double skew = api_clock_skew(api);
	bool off = fabs(skew) > SKEW_SECONDS;

	check_add(checks, "clock", off ? CHECK_WARN : CHECK_OK, off ? "timedatectl set-ntp true" : NULL,
		skew == 0 ? "agrees with the validator's" : "%.1f s %s the validator's", fabs(skew),
		skew > 0 ? "behind" : "ahead of");
}

static void check_round(struct api *api, struct check_list *checks)
{
	struct error err = {0};
	struct api_round round;
	char left[32];

	if (!api_shows_lists(api)) {
		check_add(checks, "round", CHECK_SKIP, NULL, "not shown to miners");
		return;
	}
	if (api_current_round(api, &round, &err) < 0) {
		check_problem(checks, "round", CHECK_WARN, &err);
	} else {
		clock_duration((double)round.time_remaining_seconds, left);
		check_add(checks, "round", CHECK_OK, NULL, "%lld, %s left", (long long)round.round_number,
			left);
	}
	api_release(&round.memory);
}

/* What the validator's version asks of a miner. */
static void check_version(const struct invocation *invocation, struct api *api, struct check_list *checks)
{
	char *image = workspace_docker_image(invocation->settings);
	const struct api_version *version;
	struct error err;

	if (api_find_version(api, &err) < 0)
		check_problem(checks, "api.version", CHECK_WARN, &err);
	version = api_version(api);
	if (api_version_if_found(api) || strcmp(arg_string(invocation, "api-version"), "auto"))
		check_add(checks, "api.version", CHECK_OK, NULL, "%s", version->name);
	if (api_require_network(api, &err) < 0)
		check_problem(checks, "network", CHECK_FAIL, &err);
	else if (version->networks)
		check_add(checks, "network", CHECK_OK, NULL, "%s", api_network(api));
	if (version->images && image)
		image_check(image, NULL, 0, checks);
	else if (version->images)
		check_add(checks, "image", CHECK_WARN, "Set MINER_DOCKER_IMAGE in .env.",
			"no image of an inference server is set; without one, no submission ranks here");
	free(image);
}

/* Of this workspace's commitments at this validator. */
struct waiting {
	size_t ready, later, missing, accepted;
};

static void count_waiting(
	const struct workflow *workflow, const struct api_pending_reveals *pending, struct waiting *waiting)
{
	static const struct block_clock no_blocks;
	struct submission_filter filter = {.api_url = workflow->api_url, .hotkey = workflow->hotkey};
	struct error ignored = {0};
	struct submission_list list = {0};

	if (workflow->store)
		store_submissions(workflow->store, &filter, &list, &ignored);
	for (size_t i = 0; i < list.count; i++) {
		const struct submission *submission = &list.items[i];

		waiting->accepted += submission->server_id != 0;
		if (submission->step != STEP_COMMITTED)
			continue;
		if (pending && !pending->skipped && !workflow_listed(pending, submission))
			waiting->missing++;
		else if (pending ? submission->reveal_block <= pending->current_block
				 : due_left(workflow, submission, &no_blocks) <= 0)
			waiting->ready++;
		else
			waiting->later++;
	}
	submission_list_free(&list);
}

static void check_reveals(const struct waiting *waiting, struct check_list *checks)
{
	bool due = waiting->ready || waiting->missing;
	char missing[64] = "";

	if (waiting->missing)
		snprintf(missing, sizeof(missing), ", %zu not listed by the validator", waiting->missing);
	check_add(checks, "reveals", due ? CHECK_WARN : CHECK_OK, due ? "quasar reveal" : NULL,
		"%zu ready to reveal, %zu waiting for their block%s", waiting->ready, waiting->later,
		missing);
}

/* No route tells without changing something, but a validator takes submissions of registered hotkeys only. */
static void check_registered(const struct workflow *workflow, const struct api_pending_reveals *pending,
	const struct waiting *waiting, struct check_list *checks)
{
	bool seen = waiting->accepted > 0;

	for (size_t i = 0; pending && i < pending->count; i++)
		seen |= !strcmp(pending->reveals[i].miner_hotkey, workflow->hotkey);
	if (!seen && api_version(workflow->api)->registers) {
		check_add(checks, "registered", CHECK_OK, NULL,
			"the validator registers a hotkey by itself when it first submits");
		return;
	}
	check_add(checks, "registered", seen ? CHECK_OK : CHECK_SKIP, seen ? NULL : "quasar register",
		seen ? "the validator has accepted submissions from this hotkey"
		     : "unknown, as nothing was submitted yet. Registering again does no harm");
}

/* By the validator's list or, where miners are not shown it, by what is stored. */
static void check_commitments(struct workflow *workflow, struct check_list *checks)
{
	const struct api_pending_filter filter = {.hotkey = workflow->hotkey};
	struct api_pending_reveals pending = {0};
	struct waiting waiting = {0};
	struct error err = {0};
	bool listed = api_shows_lists(workflow->api);

	if (listed && api_pending_reveals(workflow->api, &filter, &pending, &err) < 0) {
		check_problem(checks, "reveals", CHECK_WARN, &err);
	} else {
		count_waiting(workflow, listed ? &pending : NULL, &waiting);
		check_registered(workflow, listed ? &pending : NULL, &waiting, checks);
		check_reveals(&waiting, checks);
	}
	api_release(&pending.memory);
}

/* Whether the hotkey is shut out, or about to be. */
static void check_flags(const struct invocation *invocation, const struct workflow *workflow,
	const char *fork_url, struct check_list *checks)
{
	const struct neighbour own = {
		.api_url = workflow->api_url,
		.hotkey = workflow->hotkey,
		.fork_url = fork_url ? fork_url : "",
		.wallet = arg_string(invocation, "wallet"),
		.directory = invocation->workspace ? invocation->workspace : "",
	};
	struct api_miner miner = {0};
	struct error err;

	if (api_has_dashboard(workflow->api)) {
		if (api_dashboard_miner(workflow->api, workflow->hotkey, &miner, &err) < 0 &&
			api_last(workflow->api)->refusal != REFUSAL_UNKNOWN)
			check_problem(checks, "flag", CHECK_WARN, &err);
		else
			check_add(checks, "flag", miner.flag_reason ? CHECK_FAIL : CHECK_OK,
				miner.flag_reason ? "Ask the validator's operator to lift it." : NULL, "%s",
				miner.flag_reason ? miner.flag_reason : "the hotkey is not flagged");
		api_release(&miner.memory);
	}
	neighbours_check(&own, checks);
}

static void check_miner(const struct invocation *invocation, struct api *api, struct check_list *checks)
{
	struct workflow workflow = {.api = api, .api_url = api_url(api)};
	struct workspace workspace = {0};
	struct hotkey hotkey = {0};
	struct error ignored = {0};

	if (wallet_inspect_hotkey(arg_string(invocation, "path"), arg_string(invocation, "wallet"),
		    arg_string(invocation, "hotkey"), &hotkey, &ignored) < 0)
		return;
	workflow.hotkey = hotkey.address;
	if (invocation->workspace && store_exists(invocation->workspace) &&
		workspace_open(invocation->workspace, invocation->settings, &workspace, &ignored) == 0)
		workflow.store = workspace.store;
	check_commitments(&workflow, checks);
	if (api_version(api)->flags)
		check_flags(invocation, &workflow, workspace.fork_url, checks);
	workspace_close(&workspace);
	hotkey_free(&hotkey);
}

void doctor_validator(const struct invocation *invocation, double timeout, struct check_list *checks)
{
	const char *url = arg_string(invocation, "api");
	struct error err = {0};
	struct api *api = require_api_for(invocation, NULL, timeout, &err);

	/* the rest would only wait in vain, too */
	if (!api || api_health(api, &err) < 0) {
		check_problem(checks, "api", CHECK_FAIL, &err);
	} else {
		check_add(checks, "api", CHECK_OK, NULL, "%s answers", url);
		check_clock(api, checks);
		check_version(invocation, api, checks);
		check_round(api, checks);
		check_miner(invocation, api, checks);
	}
	api_close(api);
}
