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

#include "api/version.h"
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
	/* there is none while its branch is being renamed */
	if (!head[0] || !strcmp(head, loop->head))
		return;
	if (fork_settled(path, &err) < 0) { /* then HEAD is going to move again, mostly at once */
		if (!loop->head[0])
			loop_tell_problem(loop, &err);
		return;
	}
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
		arg_percent(loop->invocation, "improve", -1, 1000, &loop->improve, err) < 0)
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
		error_context(&err, "the state store has disappeared");
		error_hint(&err,
			"`quasar run` still has its content, and waits: put it or a backup back. If you "
			"moved the workspace, stop `quasar run` and start it there.");
		loop_tell_problem(loop, &err);
		return false;
	}
	session->workflow.store = session->workspace.store;
	loop->compared = false;
	loop->problem[0] = '\0';
	loop->next_look = loop->next_round = 0;
	event_emit(&loop->events, "store", NULL,
		"the state store was replaced by another one: %zu submission%s that it lacked %s added",
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
		settings_export_compute(fresh);
		if (reopen(loop, before, &err) == 0) {
			settings_free(before);
			event_emit(&loop->events, "settings", NULL, "reloaded .env");
			loop->verified[0] = loop->refused[0] = loop->problem[0] = '\0';
			loop->next_look = loop->next_standing = 0;
			look_elsewhere(loop);
			look_at_fork(loop);
			loop_begin_round(loop);
			return;
		}
		loop->invocation->settings = before;
		settings_export_compute(before);
		settings_free(fresh);
		read_options(loop, &ignored); /* they were good before */
	}
	event_emit(&loop->events, "problem", event_error(&err), "keeping the old settings: %s", err.message);
}

/* --- the loop ------------------------------------------------------------------------------------- */

/* Does whatever is due. -1 ends the loop. */
static int turn(struct loop *loop, struct error *err)
{
	double now = clock_uptime();

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
	next = fmin(next - clock_uptime(), fmin(event_pause(&loop->events), process_pause(&loop->work)));
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

	if (hangup_poll(fds, sizeof(fds) / sizeof(*fds), pause_length(loop), err) < 0)
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
	if (api_learn_version(loop->session.api)->judges_hidden)
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
		return -1;
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
	.summary = "mine unattended: verify, bench, commit improvements, reveal, repeat",
	.description =
		"Mines without supervision, for instance under pm2, systemd or screen. It verifies and "
		"benchmarks the fork's HEAD at startup, whenever HEAD moves, and every "
		"OPTIMIZATION_INTERVAL seconds. It commits when the claim's weighted score beats that of "
		"this round's last submission by --improve. It reveals each commitment as soon as its "
		"block is reached, even during a benchmark, and it follows rank and round. To submit the "
		"same commit again, the improvement must also exceed the spread of its benchmarks, so "
		"that noise is not submitted. Where a hotkey that wins several places of a round is paid for "
		"the lowest only (2026-04), it submits once a round: an improvement is held until then.\n\n"
		"Each event is one line of JSON on stdout with its time (UTC), name, message and details: "
		"started, note, version, fork, verify, bench, kept, held, waiting, committed, settled, revealed, "
		"refused, rank, measured, round, outage, recovered, problem, settings, store, stopped. With --notify, a command is "
		"run for each event. It gets the same line on stdin, the event's name in QUASAR_EVENT and "
		"its message in QUASAR_MESSAGE, and it has 30 seconds. Its environment has only PATH, "
		"HOME, the locale and the like; it must read anything else it needs from a file.\n\n"
		"It waits out validator outages, unintelligible responses and full disks. An outage event "
		"names what failed (list, reveal, commit, standings, round) and why (connection, server, "
		"unreadable, unclear); recovered follows when that works again. A problem that persists "
		"or recurs is reported less and less often. A commitment is given up only when the "
		"validator itself rejects it and no longer lists it. Whatever ends the process, the next "
		"one continues from the state store. Only one `quasar run` can use a workspace; all other "
		"commands can be used alongside it.\n\n"
		"SIGTERM and SIGINT end it with exit code 0. SIGHUP reloads .env, so closing the terminal "
		"does not end it. It exits on its own only when it needs you: with 3 if the wallet or "
		"workspace cannot be used, with 5 if the validator refuses this miner (banned, not "
		"registered). Even then, the files that `quasar init` writes for process managers restart "
		"it after five minutes, as such problems often pass. Under systemd, it reports its state "
		"and feeds the watchdog.",
	.opts =
		(const struct opt[]){
			{"improve", 0, "PERCENT", NULL, "1%", NULL,
				"How far a weighted score must exceed the last one. -100%: commit every "
				"new HEAD."},
			{"interval", 0, "SECONDS", "OPTIMIZATION_INTERVAL", NULL, NULL,
				"Time from the start of one round of work to the next."},
			{"notify", 0, "CMD", NULL, NULL, NULL, "Run CMD in a shell for each event."},
			{"log", 0, "FORMAT", NULL, "json", "json|text",
				"Output format: for programs or for people."},
			OPTS_CLAIM,
			OPT_PYTHON,
			OPTS_WALLET,
			OPTS_VALIDATOR,
			{"timeout", 0, "SECONDS", NULL, "60", NULL,
				"Time limit for one exchange with the validator; what fails is retried "
				"later."},
			{0},
		},
	.examples =
		(const struct example[]){
			{"quasar run", "mine in this workspace until told to stop"},
			{"quasar run --log text --improve 2%",
				"readable output; commit improvements of 2% or more"},
			{"quasar run --notify 'jq -r .message | mail -s \"quasar: $QUASAR_EVENT\" me'",
				"send mail for each event"},
			{"quasar run --notify '[ \"$QUASAR_EVENT\" != revealed ] || touch /tmp/revealed'",
				"react to one kind of event"},
			{"kill -HUP $(systemctl --user show -P MainPID quasar-miner)",
				"have it read .env again"},
			{0},
		},
	.exits = (const enum status[]){STATUS_ENVIRONMENT, STATUS_REFUSED, 0},
	.run = run,
};
