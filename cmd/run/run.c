/* quasar run: the miner's loop, for a machine that is left alone.
 *
 * One thread waits for what comes first: a block, the interval, a new commit of the fork, a signal. What
 * computes for long (`quasar verify`, `quasar bench`) runs in a process of its own, so that a reveal is
 * never late for it and its memory goes with it. What must survive lies in the state store, and every step
 * starts from there: a loop that was killed goes on as if it had not been. Its parts are in cmd/run/. */
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/service.h"
#include "base/version.h"
#include "cli/proposal.h"
#include "cmd/commands.h"
#include "cmd/run/run.h"
#include "fork/fork.h"
#include "space/due.h"
#include "space/hidden.h"

/* --- the fork, the settings ----------------------------------------------------------------------- */

static void look_at_fork(struct loop *loop)
{
	const char *path = loop->session.workspace.fork_path;
	struct error err;
	char head[41];
	cJSON *fields;

	if (loop->watch >= 0)
		close(loop->watch);
	loop->watch = fork_watch(path); /* before looking, so that nothing slips between */
	if (fork_head(path, head, &err) < 0) {
		loop_tell_problem(loop, &err);
		return;
	}
	if (!strcmp(head, loop->head))
		return;
	memcpy(loop->head, head, sizeof(head));
	fields = cJSON_CreateObject();
	cJSON_AddStringToObject(fields, "commit", head);
	event_emit(&loop->events, "fork", fields, "the fork is at commit %.10s", head);
	loop_begin_round(loop);
}

static bool same_setting(const struct settings *a, const struct settings *b, const char *name)
{
	const char *x = settings_get(a, name, NULL), *y = settings_get(b, name, NULL);

	return x == y || (x && y && !strcmp(x, y));
}

static int read_options(struct loop *loop, struct error *err)
{
	int64_t tokens;
	double margin;

	/* needed later, but a mistake in them is told now */
	if (proposal_options(loop->invocation, &tokens, &margin, err) < 0 ||
		arg_real(loop->invocation, "improve", -1, 1000, &loop->improve, err) < 0)
		return -1;
	return arg_real(loop->invocation, "interval", 0.1, 1e7, &loop->interval, err);
}

/* Opens the session anew under other settings; the hotkey only if it may be another one, for its password
 * may have been typed in. */
static int reopen(struct loop *loop, const struct settings *before, struct error *err)
{
	static const char *const names[] = {
		"WALLET_MINER_NAME", "WALLET_HOTKEY", "BT_WALLET_PATH", "WALLET_PASSWORD"};
	struct session session;
	bool same = true;

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		same &= same_setting(before, loop->invocation->settings, names[i]);
	if (read_options(loop, err) < 0)
		return -1;
	if ((same ? session_open_as(loop->invocation, loop->session.keypair, &session, err)
		  : session_open(loop->invocation, &session, err)) < 0)
		return -1;
	if (same)
		loop->session.keypair = NULL;
	session_close(&loop->session);
	loop->session = session;
	return 0;
}

/* Somebody has put a backup in the place of the store, or has taken it away: then the loop holds the last of
 * it, and waits for another. True when it can go on. */
static bool follow_store(struct loop *loop)
{
	struct session *session = &loop->session;
	struct store_merge merged;
	struct error err;

	process_kill(&loop->work);
	loop->stage = STAGE_WAITING;
	if (store_reopen(&session->workspace.store, session->workspace.directory, &merged, &err) < 0) {
		error_context(&err, "the state store was taken away");
		error_hint(&err, "This loop still has what was in it, and waits: put it or a backup back. If the "
				 "workspace was moved, stop this loop and start it there.");
		loop_tell_problem(loop, &err);
		return false;
	}
	session->workflow.store = session->workspace.store;
	loop->compared = false;
	loop->problem[0] = '\0';
	loop->next_look = loop->next_round = 0;
	event_emit(&loop->events, "store", NULL,
		"another state store is in the place of this loop's: %zu submission%s that it lacked %s added",
		merged.added, merged.added == 1 ? "" : "s", merged.added == 1 ? "was" : "were");
	return true;
}

/* Commitments that this loop is not going to reveal. */
static void look_elsewhere(struct loop *loop)
{
	struct error err;

	if (session_check_elsewhere(&loop->session, &err) < 0)
		loop_tell_problem(loop, &err);
}

static void reread(struct loop *loop)
{
	struct settings *before = loop->invocation->settings;
	struct error err, ignored;
	struct settings *fresh = settings_load(loop->invocation->workspace, &err);

	if (fresh) {
		loop->invocation->settings = fresh;
		if (reopen(loop, before, &err) == 0) {
			settings_free(before);
			event_emit(&loop->events, "settings", NULL, "read .env again");
			loop->verified[0] = loop->refused[0] = loop->problem[0] = '\0';
			loop->next_look = loop->next_standing = 0;
			look_elsewhere(loop);
			look_at_fork(loop);
			loop_begin_round(loop);
			return;
		}
		loop->invocation->settings = before;
		settings_free(fresh);
		read_options(loop, &ignored); /* they were good before */
	}
	event_emit(&loop->events, "problem", event_error(&err), "kept the old settings: %s", err.message);
}

/* --- the loop ------------------------------------------------------------------------------------- */

/* Does whatever is due. -1 ends the loop. */
static int turn(struct loop *loop, struct error *err)
{
	double now = clock_elapsed();

	event_turn(&loop->events);
	service_notify(SERVICE_ALIVE);
	if (store_moved(loop->session.workspace.store) && !follow_store(loop))
		return 0;
	if (hangup_taken())
		reread(loop);
	if (now >= loop->next_look && loop_reveal_due(loop, err) < 0)
		return -1;
	loop_look_at_work(loop);
	if (loop->stage == STAGE_WAITING && now >= loop->next_round) {
		look_at_fork(loop);
		if (loop->stage == STAGE_WAITING)
			loop_begin_round(loop);
	}
	if (now >= loop->next_commit && loop_try_commit(loop, err) < 0)
		return -1;
	if (now >= loop->next_standing && loop_look_at_standings(loop, err) < 0)
		return -1;
	return 0;
}

/* Seconds until something is due. */
static double pause_length(const struct loop *loop)
{
	double next = fmin(fmin(loop->next_look, loop->next_standing), loop->next_commit);

	if (store_moved(loop->session.workspace.store))
		return PAUSE_SHORTEST;
	if (loop->stage == STAGE_WAITING)
		next = fmin(next, loop->next_round);
	next = fmin(next - clock_elapsed(), fmin(event_pause(&loop->events), process_pause(&loop->work)));
	if (service_watchdog() > 0)
		next = fmin(next, service_watchdog() / 2);
	return fmax(next, 0);
}

static int wait(struct loop *loop, struct error *err)
{
	struct pollfd fds[] = {
		{.fd = loop->watch, .events = POLLIN},
		{.fd = loop->work.pid ? loop->work.output : -1, .events = POLLIN},
		{.fd = loop->events.process.pid ? loop->events.process.output : -1, .events = POLLIN},
	};

	if (clock_poll(fds, sizeof(fds) / sizeof(*fds), pause_length(loop), err) < 0)
		return -1;
	if (fds[0].revents)
		look_at_fork(loop);
	return 0;
}

static void announce(struct loop *loop)
{
	cJSON *fields = cJSON_CreateObject();

	cJSON_AddStringToObject(fields, "workspace", loop->session.workspace.directory);
	cJSON_AddStringToObject(fields, "hotkey", loop->session.workflow.hotkey);
	cJSON_AddStringToObject(fields, "api", loop->session.workflow.api_url);
	cJSON_AddNumberToObject(fields, "pid", getpid());
	cJSON_AddNumberToObject(fields, "interval", loop->interval);
	cJSON_AddStringToObject(fields, "version", QUASAR_VERSION);
	event_emit(&loop->events, "started", fields, "mining in %s for %s", loop->session.workspace.directory,
		loop->session.workflow.api_url);
	event_emit(&loop->events, "note", NULL, "%s", hidden_advice);
}

/* To be told to stop is no failure; anything else that ends the loop needs a person. */
static int stopped(struct loop *loop, struct error *err)
{
	bool asked = err->status == STATUS_INTERRUPTED;
	cJSON *fields = asked ? cJSON_CreateObject() : event_error(err);

	cJSON_AddNumberToObject(fields, "exit", asked ? STATUS_OK : err->status);
	service_notify(SERVICE_STOPPING);
	event_emit(&loop->events, "stopped", fields, "%s", asked ? "asked to stop" : err->message);
	return asked ? 0 : -1;
}

/* A validator that takes its time must not look like a loop that hangs. */
static void keep_alive(void *context)
{
	(void)context;
	service_notify(SERVICE_ALIVE);
}

static int loop_run(struct loop *loop, struct error *err)
{
	hangup_install();
	signal(SIGPIPE, SIG_IGN); /* a log that nobody reads any more must not end the miner */
	announce(loop);
	service_notify(SERVICE_READY);
	clock_while_waiting(keep_alive, NULL);
	look_elsewhere(loop);
	look_at_fork(loop);
	while (turn(loop, err) == 0 && wait(loop, err) == 0)
		;
	return stopped(loop, err);
}

static int run(struct invocation *invocation, struct error *err)
{
	struct loop loop = {.invocation = invocation, .watch = -1, .poll = DUE_POLL_SHORTEST};
	const char *directory = require_workspace(invocation, err);
	int lock, result;

	service_begin();
	if (!directory || read_options(&loop, err) < 0)
		return -1;
	if (workspace_lock(directory, &lock, err) < 0)
		return error_hint(err, "One loop a workspace: `quasar status` shows where it stands.");
	loop.settings = settings_environment();
	loop.events = (struct event_log){
		.text = !invocation->json && !strcmp(arg_string(invocation, "log"), "text"),
		.command = arg_string(invocation, "notify"),
	};
	invocation->json = false; /* from here on the events are what stdout is for */
	if (session_open(invocation, &loop.session, err) < 0) {
		result = stopped(&loop, err);
	} else {
		result = loop_run(&loop, err);
		process_kill(&loop.work);
		session_close(&loop.session);
	}
	event_close(&loop.events);
	free(loop.troubles);
	free(loop.settings);
	if (loop.watch >= 0)
		close(loop.watch);
	close(lock);
	return result;
}

const struct command cmd_run = {
	.name = "run",
	.summary = "mine unattended: verify, bench, commit what is better, reveal, again",
	.description =
		"The loop for a machine that is left alone, under pm2, systemd or screen. It checks and measures "
		"the fork's HEAD at the start, at once when HEAD moves, and every OPTIMIZATION_INTERVAL seconds; "
		"commits when the weighted score of the claim beats that of the last submission of this round "
		"by --improve; reveals each commitment when its block is reached, also while something is "
		"measured; and follows rank and round. A further submission of the same commit must also beat "
		"the spread of its measurements, so that noise is not submitted.\n\n"
		"Each event is a line of JSON on stdout, with time (UTC), event, message and details: started, note, "
		"fork, verify, bench, kept, committed, settled, revealed, refused, rank, round, outage, recovered, "
		"problem, settings, store, stopped. With --notify a command gets the same line on its stdin, the "
		"event's name in QUASAR_EVENT and the sentence in QUASAR_MESSAGE; it has 30 seconds. Of the environment "
		"it sees PATH, HOME, the locale and the like; what else it needs it has to read from a file.\n\n"
		"Outages of the validator, answers that make no sense, and full disks are waited through. An outage "
		"names its part (list, reveal, commit, standings, round) and cause (connection, server, unreadable, "
		"unclear); recovered follows when that part works again. What stays, or comes and goes, is told more "
		"and more seldom. A commitment is given up only when the validator itself says so and its list does "
		"not have it. Whatever ends the process, a new one "
		"goes on from the state store. A second loop in a workspace refuses and names the first; "
		"other commands may be used beside it.\n\n"
		"SIGTERM and SIGINT end it with exit code 0. SIGHUP reads .env again, so a terminal that goes "
		"away does not end it. It ends by itself only when a person is needed: 3 when wallet or workspace "
		"cannot be used, 5 when the validator refuses this miner (banned, not registered). The files that "
		"`quasar init` writes for process managers start it again then, too, after five minutes: much of "
		"that passes. Under systemd it reports its state and feeds the watchdog.",
	.opts =
		(const struct opt[]){
			{"improve", 0, "PERCENT", NULL, "1%", NULL,
				"What a weighted score must be above the last one; -100%: commit every new HEAD."},
			{"interval", 0, "SECONDS", "OPTIMIZATION_INTERVAL", NULL, NULL,
				"From the start of one round of work to that of the next."},
			{"notify", 0, "CMD", NULL, NULL, NULL, "Run CMD in a shell for each event."},
			{"log", 0, "FORMAT", NULL, "json", "json|text", "Lines for programs or for people."},
			OPTS_CLAIM,
			OPTS_WALLET,
			{"api", 0, "URL", "VALIDATOR_API_URL", NULL, NULL, "Base URL of the validator API."},
			{"timeout", 0, "SECONDS", NULL, "60", NULL,
				"Longest time for one step at the validator; what did not succeed is tried later."},
			{0},
		},
	.examples =
		(const struct example[]){
			{"quasar run", "mine in this workspace until told to stop"},
			{"quasar run --log text --improve 2%", "lines for people; commit what is 2 % better"},
			{"quasar run --notify 'jq -r .message | mail -s \"quasar: $QUASAR_EVENT\" me'",
				"mail for each event"},
			{"quasar run --notify '[ \"$QUASAR_EVENT\" != revealed ] || touch /tmp/revealed'",
				"act on one kind of event"},
			{"kill -HUP $(systemctl --user show -P MainPID quasar-miner)", "read .env again"},
			{0},
		},
	.exits = (const enum status[]){STATUS_ENVIRONMENT, STATUS_REFUSED, 0},
	.run = run,
};
