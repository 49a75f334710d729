#include "race.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

#define WORD 2 /* bytes that are watched together */

/* When a warp was last at a word, by its clock, and with which instruction. */
struct visit {
	uint32_t clock, line; /* clock 0: never */
};

struct race_check {
	int warps;
	size_t words;
	uint32_t clocks[MOST_WARPS][MOST_WARPS]; /* of a warp, what it knows of each */
	uint32_t barriers[BARRIERS][MOST_WARPS]; /* the same of those that have arrived */
	struct visit *writes, *reads;            /* of each word by each warp */
};

struct race_check *race_check_make(const struct launch *launch, int warp_count)
{
	const char *wanted = getenv("EMULATOR_RACECHECK");
	struct race_check *check;

	if (!wanted || wanted[0] != '1')
		return NULL;
	check = xcalloc(1, sizeof(*check));
	check->warps = warp_count;
	check->words = launch->shared_bytes / WORD;
	check->writes = xcalloc(check->words * (size_t)warp_count, sizeof(*check->writes));
	check->reads = xcalloc(check->words * (size_t)warp_count, sizeof(*check->reads));
	return check;
}

void race_check_free(struct race_check *check)
{
	if (!check)
		return;
	free(check->writes);
	free(check->reads);
	free(check);
}

void race_check_start(struct race_check *check)
{
	size_t bytes;

	if (!check)
		return;
	bytes = check->words * (size_t)check->warps * sizeof(*check->writes);
	memset(check->writes, 0, bytes);
	memset(check->reads, 0, bytes);
	memset(check->clocks, 0, sizeof(check->clocks));
	memset(check->barriers, 0, sizeof(check->barriers));
	for (int i = 0; i < check->warps; i++)
		check->clocks[i][i] = 1;
}

/* Fails when a warp other than this one was there, and no barrier since. */
static void check_visits(const struct race_check *check, const struct warp *warp,
	const struct instruction *instruction, int lane, uint64_t address, const struct visit *visits,
	const char *what)
{
	for (int other = 0; other < check->warps; other++)
		if (other != warp->index && visits[other].clock > check->clocks[warp->index][other])
			fault(warp, instruction, lane, CUDA_ERROR_LAUNCH_FAILED,
				"a race at %#llx of shared memory: warp %d %s it at PTX line %u, and no barrier is "
				"between",
				(unsigned long long)address, other, what, visits[other].line);
}

void race_check_access(struct race_check *check, const struct warp *warp,
	const struct instruction *instruction, int lane, uint64_t address, size_t bytes, bool write)
{
	const struct visit now = {check->clocks[warp->index][warp->index], instruction->line};

	for (uint64_t word = address / WORD; word <= (address + bytes - 1) / WORD; word++) {
		struct visit *writes = check->writes + word * (size_t)check->warps;
		struct visit *reads = check->reads + word * (size_t)check->warps;

		check_visits(check, warp, instruction, lane, address, writes, "wrote");
		if (write)
			check_visits(check, warp, instruction, lane, address, reads, "read");
		(write ? writes : reads)[warp->index] = now;
	}
}

static void learn(uint32_t *to, const uint32_t *from)
{
	for (int i = 0; i < MOST_WARPS; i++)
		to[i] = to[i] > from[i] ? to[i] : from[i];
}

void race_check_arrive(struct race_check *check, int warp, uint32_t barrier)
{
	if (!check)
		return;
	learn(check->barriers[barrier], check->clocks[warp]);
	check->clocks[warp][warp]++;
}

void race_check_leave(struct race_check *check, int warp, uint32_t barrier)
{
	if (check)
		learn(check->clocks[warp], check->barriers[barrier]);
}

void race_check_close(struct race_check *check, uint32_t barrier)
{
	if (check)
		memset(check->barriers[barrier], 0, sizeof(check->barriers[barrier]));
}
