/* block: the clock by which reveals are due. */
#pragma once

#include <stdint.h>

#define BLOCK_GENESIS 1609459200         /* Unix time of block 0 */
#define BLOCK_GENESIS_2026_04 1687939200 /* and in the version of April 2026, where it cannot ask the chain */
#define BLOCK_SECONDS 12

/* (unix_time - genesis) div 12. */
int64_t block_at(double unix_time);

/* Follows a validator's blocks as its answers report them, whatever length they have there: a local
 * validator may run faster than 12 s a block. Zero-initialised. */
struct block_clock {
	int64_t first, last;          /* blocks of the first and the latest observation; 0: none yet */
	double first_seen, last_seen; /* clock_uptime() then */
	double expected;              /* seconds a block, from their count since BLOCK_GENESIS */
};

/* Takes note of a `current_block` that was reported at `elapsed` (clock_uptime()). */
void block_clock_observe(struct block_clock *clock, int64_t block, double elapsed);

/* Seconds a block takes: as their count says, 12 at most, unless the observations say otherwise. */
double block_clock_length(const struct block_clock *clock);

/* Seconds from `elapsed` until `block` begins at the latest; 0 when it has begun. At least one
 * observation must have been made. */
double block_clock_until(const struct block_clock *clock, int64_t block, double elapsed);
