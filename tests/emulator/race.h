/* race: two warps of a block at the same word of its shared memory, one of them writing, and no barrier between. Looked
 * for when EMULATOR_RACECHECK=1. Each warp has a clock, and of every other warp's clock what barriers have told it: what
 * happened since is not ordered with what it does. Warps that wait for each other by words in memory are not followed. */
#pragma once

#include "machine.h"

struct race_check;

/* NULL when nobody asked for it. */
struct race_check *race_check_make(const struct launch *launch, int warp_count);
void race_check_free(struct race_check *check);
/* A block begins. */
void race_check_start(struct race_check *check);

/* Ends the launch when this access races with an earlier one. */
void race_check_access(struct race_check *check, const struct warp *warp,
	const struct instruction *instruction, int lane, uint64_t address, size_t bytes, bool write);

/* What a warp has done is ordered before what warps do that leave the barrier. */
void race_check_arrive(struct race_check *check, int warp, uint32_t barrier);
void race_check_leave(struct race_check *check, int warp, uint32_t barrier);
/* All have left it. */
void race_check_close(struct race_check *check, uint32_t barrier);
