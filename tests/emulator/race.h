/* race: two warps of a block at the same word of its shared memory, one of them writing, and no barrier between. Looked
 * for when EMULATOR_RACECHECK=1. Each warp has a clock, and of every other warp's clock what barriers have told it: what
 * happened since is not ordered with what it does. Warps that wait for each other by words in memory are not followed.
 *
 * What goes on behind an instruction is watched from there to where it is waited for. Bulk copies are one more that
 * writes, with a clock of its own. Matrix products by four warps read what was ordered before they began, and what other
 * instructions wrote of it only behind a fence.proxy.async; until they are waited for, their own warp must not write
 * there either. */
#pragma once

#include "machine.h"

struct race_check;
struct knowledge; /* of everyone's clocks, at some time */

/* NULL when nobody asked for it. */
struct race_check *race_check_make(const struct launch *launch, int warp_count);
void race_check_free(struct race_check *check);
/* A block begins. */
void race_check_start(struct race_check *check);

#define RACE_WORD 2 /* bytes that are watched together */
#define LAST_WORD(address, bytes) (((address) + (bytes)-1) / RACE_WORD)

/* When somebody was last at a word, by its clock, and with which instruction. */
struct visit {
	uint32_t clock; /* 0: never */
	uint32_t mark;  /* the line, and in its lowest bits the visitor */
};

/* What the accesses of one instruction of a warp have in common. */
struct race_watch {
	struct race_check *check; /* NULL: nobody asked for it */
	uint64_t suspects;        /* whom they can race with */
	struct visit *visits;     /* where they are noted, by word */
	struct visit now;
	bool write;
};

struct race_watch race_check_watch(
	struct race_check *check, const struct warp *warp, const struct instruction *instruction, bool write);
/* Ends the launch when this access races with an earlier one, by a suspect. */
void race_check_suspects(const struct race_watch *watch, const struct warp *warp,
	const struct instruction *instruction, int lane, uint64_t address, size_t bytes);

static inline void race_watch_note(const struct race_watch *watch, uint64_t address, size_t bytes)
{
	struct visit *visits = watch->visits;

	for (uint64_t word = address / RACE_WORD; word <= LAST_WORD(address, bytes); word++) {
		visits[word] = watch->now;
		__asm__("" : "+r"(visits)); /* it is a word or two, mostly: vectors would take longer */
	}
}

/* Ends the launch when this access races with an earlier one. */
static inline void race_watch_access(const struct race_watch *watch, const struct warp *warp,
	const struct instruction *instruction, int lane, uint64_t address, size_t bytes)
{
	if (watch->suspects)
		race_check_suspects(watch, warp, instruction, lane, address, bytes);
	race_watch_note(watch, address, bytes);
}

/* What a warp has done is ordered before what warps do that leave the barrier when it has closed. A barrier is known by its
 * number or by its address. */
void race_check_arrive(struct race_check *check, int warp, uint64_t barrier);
void race_check_close(struct race_check *check, uint64_t barrier);
void race_check_leave(struct race_check *check, int warp, uint64_t barrier);

/* A fence: asynchronous reads see what this warp knows to have been written. */
void race_check_publish(struct race_check *check, int warp);
/* What an asynchronous read that begins now may read. The caller's to free; NULL without a check. */
struct knowledge *race_check_begin(struct race_check *check, int warp);
/* Such a read at its end. */
void race_check_end(struct race_check *check, const struct warp *warp, const struct instruction *instruction,
	const struct knowledge *begun, uint64_t address, size_t bytes);

/* A lane starts a bulk copy to these bytes; returns what to say at its end, to those who wait at a barrier. */
uint32_t race_check_copy(struct race_check *check, const struct warp *warp,
	const struct instruction *instruction, int lane, uint64_t address, size_t bytes);
void race_check_copied(struct race_check *check, uint32_t copy, uint64_t barrier);
