#include "api/block.h"

#include <math.h>

#include "base/clock.h"

int64_t block_at(double unix_time)
{
	return (int64_t)floor((floor(unix_time) - BLOCK_GENESIS) / BLOCK_SECONDS);
}

static double expected_length(int64_t block)
{
	double seconds = (clock_now() - BLOCK_GENESIS) / (double)block;

	return seconds > 0 && seconds < BLOCK_SECONDS ? seconds : BLOCK_SECONDS;
}

void block_clock_observe(struct block_clock *clock, int64_t block, double elapsed)
{
	/* a clock that jumped back, or another validator: begin anew */
	if (!clock->last || block < clock->last)
		*clock = (struct block_clock){block, block, elapsed, elapsed, expected_length(block)};
	if (block > clock->last) {
		clock->last = block;
		clock->last_seen = elapsed;
	}
}

double block_clock_length(const struct block_clock *clock)
{
	int64_t blocks = clock->last - clock->first;
	double seconds = clock->last_seen - clock->first_seen;

	/* each observation falls somewhere within its block, so `blocks` is uncertain by one */
	if (seconds <= (double)(blocks + 1) * clock->expected &&
		seconds >= (double)(blocks - 1) * clock->expected)
		return clock->expected;
	return seconds / (double)(blocks > 0 ? blocks : 1);
}

double block_clock_until(const struct block_clock *clock, int64_t block, double elapsed)
{
	double seconds = (double)(block - clock->last) * block_clock_length(clock);

	return fmax(0, clock->last_seen + seconds - elapsed);
}
