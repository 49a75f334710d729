/* run: the parts of the miner's loop, and what they share. Each part does what is due of its own and says
 * when it is next to be called; cmd/run/run.c calls them. */
#pragma once

#include "api/block.h"
#include "base/process.h"
#include "cli/event.h"
#include "cli/session.h"

#define PAUSE_SHORTEST 1.0 /* s between two attempts at something that failed */
#define PAUSE_LONGEST 60.0

/* What the loop asks of the validator: what fails, and works again, independently of the rest. */
enum part { PART_LIST, PART_REVEAL, PART_COMMIT, PART_STANDINGS, PART_ROUND };

/* Trouble with one of them. */
struct trouble {
	enum part part;
	int64_t id;         /* the submission, with PART_REVEAL; else 0 */
	double began;       /* clock_uptime(); 0: it works */
	double pause, next; /* between attempts, and when the next one is to be made */
	unsigned told;      /* the causes that were told since it began */
	/* trouble that comes and goes is told more and more seldom, and so is the reminder that it stays */
	double ended, quiet_until, interval;
};

/* Where a round of work stands. */
enum stage { STAGE_WAITING, STAGE_VERIFYING, STAGE_BENCHING, STAGE_COMMITTING };

struct loop {
	struct invocation *invocation;
	struct session session;
	struct event_log events;
	char **settings; /* of the environment, for verify and bench */
	double improve, interval;

	enum stage stage;
	struct process work; /* verify or bench */
	double work_began;
	bool rehearsal;    /* command_rehearsal(), when this round of work began */
	char head[41];     /* the fork's commit that the round is about; "": none yet */
	char verified[41]; /* the commit that passed `quasar verify` last */
	char refused[41];  /* the commit whose submission the validator refused last */
	double refused_until;
	char held[41]; /* the commit that was said last to wait for the next round, and until when */
	double held_until;
	int watch; /* readable when the fork's HEAD may have moved; -1: none */

	/* clock_uptime() at which each is next to be done */
	double next_round, next_look, next_commit, next_standing, next_version;
	double turn;   /* when the validator takes the next submission, as it was told last; 0: it was not */
	bool compared; /* the store, with the commitments that the validator has of this hotkey */

	struct block_clock blocks;
	double poll;              /* longest pause between two looks at the validator's clock */
	struct trouble *troubles; /* past ones, too */
	size_t trouble_count;
	char problem[1024]; /* the last one told, so that it is not told again and again */
	int64_t round_number, rank_id;
	size_t rank;
	int64_t measured_id; /* the submission whose measurement was told last */
};

/* --- what there is to say (cmd/run/tell.c) -------------------------------------------------------------- */

/* Something that somebody has to mend while the loop goes on: told once. */
void loop_tell_problem(struct loop *loop, const struct error *err);

/* `refusal`: why the validator refused it; NULL: it did not. `remark`: what else is to be said; NULL: nothing. */
void loop_tell_submission(
	struct loop *loop, const char *name, int64_t id, const struct error *refusal, const char *remark);

/* The validator did not do this as it should, which passes. Tells it, unless it is known. `refusal`: what it
 * answered. Returns when to try again. */
double loop_outage(
	struct loop *loop, enum part part, int64_t id, enum refusal refusal, const struct error *err);
/* To be called whenever it did. */
void loop_answered(struct loop *loop, enum part part, int64_t id);
/* The trouble that there is with it, or NULL. */
struct trouble *loop_trouble(const struct loop *loop, enum part part, int64_t id);

/* Banned, flagged, not registered, or not who it says it is, in the validator's own words: waiting does not help. */
bool loop_needs_a_person(enum refusal refusal, const struct error *err);

/* --- the parts: -1 ends the loop, which cannot go on without a person or was told to stop ---------------- */

/* Reveals every commitment whose block is reached; sets `next_look` (cmd/run/reveal.c). */
int loop_reveal_due(struct loop *loop, struct error *err);

/* Follows rank and round; sets `next_standing` (cmd/run/standing.c). */
int loop_look_at_standings(struct loop *loop, struct error *err);

/* A round of work is verify, bench, commit (cmd/run/work.c). Begins one for `head`, ending what was under
 * way; sets `next_round`. */
void loop_begin_round(struct loop *loop);
/* Goes on when verify or bench has ended; sets `next_commit` when there is something to commit. */
void loop_look_at_work(struct loop *loop);
/* Settles what an earlier run left unfinished, then commits if that is the stage; sets `next_commit`. */
int loop_try_commit(struct loop *loop, struct error *err);
