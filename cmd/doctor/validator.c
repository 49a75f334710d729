#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/client.h"
#include "base/clock.h"
#include "cli/hotkey.h"
#include "cmd/doctor/doctor.h"
#include "space/workflow.h"

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

	if (api_current_round(api, &round, &err) < 0) {
		check_problem(checks, "round", CHECK_WARN, &err);
	} else {
		clock_duration((double)round.time_remaining_seconds, left);
		check_add(checks, "round", CHECK_OK, NULL, "%lld, %s left", (long long)round.round_number,
			left);
	}
	api_release(&round.memory);
}

/* Of this workspace's commitments at this validator. */
struct waiting {
	size_t ready, later, missing, accepted;
};

static void count_waiting(const struct invocation *invocation, const struct api *api,
	const struct api_pending_reveals *pending, const char *hotkey, struct waiting *waiting)
{
	struct submission_filter filter = {.api_url = api_url(api), .hotkey = hotkey};
	struct error ignored = {0};
	struct store *store = store_exists(invocation->workspace)
		? store_open(invocation->workspace, &ignored)
		: NULL;
	struct submission_list list = {0};

	if (store)
		store_submissions(store, &filter, &list, &ignored);
	for (size_t i = 0; i < list.count; i++) {
		const struct submission *submission = &list.items[i];

		waiting->accepted += submission->server_id != 0;
		if (submission->step != STEP_COMMITTED)
			continue;
		if (!pending->skipped && !workflow_listed(pending, submission))
			waiting->missing++;
		else if (submission->reveal_block <= pending->current_block)
			waiting->ready++;
		else
			waiting->later++;
	}
	submission_list_free(&list);
	store_close(store);
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
static void check_registered(const struct api_pending_reveals *pending, const struct waiting *waiting,
	const char *hotkey, struct check_list *checks)
{
	bool seen = waiting->accepted > 0;

	for (size_t i = 0; i < pending->count; i++)
		seen |= !strcmp(pending->reveals[i].miner_hotkey, hotkey);
	check_add(checks, "registered", seen ? CHECK_OK : CHECK_SKIP, seen ? NULL : "quasar register",
		seen ? "the validator has accepted submissions from this hotkey"
		     : "unknown, as nothing was submitted yet. Registering again does no harm");
}

static void check_submissions(const struct invocation *invocation, struct api *api, struct check_list *checks)
{
	struct api_pending_reveals pending;
	struct waiting waiting = {0};
	struct error err = {0};
	struct hotkey hotkey = {0};

	if (wallet_inspect_hotkey(arg_string(invocation, "path"), arg_string(invocation, "wallet"),
		    arg_string(invocation, "hotkey"), &hotkey, &err) < 0)
		return;
	if (api_pending_reveals(api, &(struct api_pending_filter){.hotkey = hotkey.address}, &pending, &err) <
		0) {
		check_problem(checks, "reveals", CHECK_WARN, &err);
	} else {
		if (invocation->workspace)
			count_waiting(invocation, api, &pending, hotkey.address, &waiting);
		check_registered(&pending, &waiting, hotkey.address, checks);
		check_reveals(&waiting, checks);
	}
	api_release(&pending.memory);
	hotkey_free(&hotkey);
}

void doctor_validator(const struct invocation *invocation, double timeout, struct check_list *checks)
{
	const char *url = arg_string(invocation, "api");
	struct error err = {0};
	struct api *api = api_open(url, NULL, timeout, &err);

	/* the rest would only wait in vain, too */
	if (!api || api_health(api, &err) < 0) {
		check_problem(checks, "api", CHECK_FAIL, &err);
	} else {
		check_add(checks, "api", CHECK_OK, NULL, "%s answers", url);
		check_clock(api, checks);
		check_round(api, checks);
		check_submissions(invocation, api, checks);
	}
	api_close(api);
}
