#include "race.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

#define WORD 2                         /* bytes that are watched together */
#define MOST_VISITORS (MOST_WARPS + 1) /* the last: bulk copies */

/* When somebody was last at a word, by its clock, and with which instruction. */
struct visit {
	uint32_t clock, line; /* clock 0: never */
};

/* Up to when each visitor's accesses are ordered before one's own, and its writes are published. */
struct knowledge {
	uint32_t clock[MOST_VISITORS], published[MOST_VISITORS];
};

/* What those knew that have arrived, and what those learn that leave. */
struct meeting {
	uint64_t barrier;
	struct knowledge arrived, closed;
};

struct race_check {
	int visitors; /* warps, and behind them bulk copies */
	size_t words;
	struct knowledge known[MOST_VISITORS]; /* by each; of bulk copies no more than their own clock */
	struct meeting *meetings;
	size_t meeting_count;
	struct visit *writes, *reads; /* of each word by each visitor */
};

struct race_check *race_check_make(const struct launch *launch, int warp_count)
{
	const char *wanted = getenv("EMULATOR_RACECHECK");
	struct race_check *check;

	if (!wanted || wanted[0] != '1')
		return NULL;
	check = xcalloc(1, sizeof(*check));
	check->visitors = warp_count + 1;
	check->words = launch->shared_bytes / WORD;
	check->writes = xcalloc(check->words * (size_t)check->visitors, sizeof(*check->writes));
	check->reads = xcalloc(check->words * (size_t)check->visitors, sizeof(*check->reads));
	return check;
}

void race_check_free(struct race_check *check)
{
	if (!check)
		return;
	free(check->meetings);
	free(check->writes);
	free(check->reads);
	free(check);
}

void race_check_start(struct race_check *check)
{
	size_t bytes;

	if (!check)
		return;
	bytes = check->words * (size_t)check->visitors * sizeof(*check->writes);
	memset(check->writes, 0, bytes);
	memset(check->reads, 0, bytes);
	memset(check->known, 0, sizeof(check->known));
	check->meeting_count = 0;
	for (int i = 0; i < check->visitors; i++)
		check->known[i].clock[i] = 1;
}

/* --- accesses ----------------------------------------------------------------------------------------- */

static int copies_of(const struct race_check *check)
{
	return check->visitors - 1;
}

static struct visit *visits_of(const struct race_check *check, struct visit *visits, uint64_t word)
{
	return visits + word * (size_t)check->visitors;
}

static _Noreturn void race(const struct race_check *check, const struct warp *warp,
	const struct instruction *instruction, int lane, uint64_t address, int other, uint32_t line,
	const char *what)
{
	char who[16];

	snprintf(who, sizeof(who), other == copies_of(check) ? "a bulk copy" : "warp %d", other);
	fault(warp, instruction, lane, CUDA_ERROR_LAUNCH_FAILED,
		"a race at %#llx of shared memory: %s %s it at PTX line %u, and no barrier is between",
		(unsigned long long)address, who, what, line);
}

/* Fails when a visitor other than this one was there that is not known to be done. */
static void check_visits(const struct race_check *check, const struct warp *warp,
	const struct instruction *instruction, int lane, uint64_t address, const struct visit *visits,
	const char *what)
{
	for (int other = 0; other < check->visitors; other++)
		if (other != warp->index && visits[other].clock > check->known[warp->index].clock[other])
			race(check, warp, instruction, lane, address, other, visits[other].line, what);
}

void race_check_access(struct race_check *check, const struct warp *warp,
	const struct instruction *instruction, int lane, uint64_t address, size_t bytes, bool write)
{
	const struct visit now = {check->known[warp->index].clock[warp->index], instruction->line};

	for (uint64_t word = address / WORD; word <= (address + bytes - 1) / WORD; word++) {
		struct visit *writes = visits_of(check, check->writes, word);
		struct visit *reads = visits_of(check, check->reads, word);

		check_visits(check, warp, instruction, lane, address, writes, "wrote");
		if (write)
			check_visits(check, warp, instruction, lane, address, reads, "read");
		(write ? writes : reads)[warp->index] = now;
	}
}

/* --- barriers ----------------------------------------------------------------------------------------- */

static void learn(struct knowledge *to, const struct knowledge *from)
{
	for (int i = 0; i < MOST_VISITORS; i++) {
		to->clock[i] = to->clock[i] > from->clock[i] ? to->clock[i] : from->clock[i];
		to->published[i] = to->published[i] > from->published[i] ? to->published[i]
									 : from->published[i];
	}
}

static struct meeting *meeting_at(struct race_check *check, uint64_t barrier)
{
	for (size_t i = 0; i < check->meeting_count; i++)
		if (check->meetings[i].barrier == barrier)
			return &check->meetings[i];
	check->meetings = xrealloc(check->meetings, (check->meeting_count + 1) * sizeof(*check->meetings));
	check->meetings[check->meeting_count] = (struct meeting){.barrier = barrier};
	return &check->meetings[check->meeting_count++];
}

void race_check_arrive(struct race_check *check, int warp, uint64_t barrier)
{
	if (!check)
		return;
	learn(&meeting_at(check, barrier)->arrived, &check->known[warp]);
	check->known[warp].clock[warp]++;
}

void race_check_close(struct race_check *check, uint64_t barrier)
{
	struct meeting *meeting;

	if (!check)
		return;
	meeting = meeting_at(check, barrier);
	meeting->closed = meeting->arrived;
	meeting->arrived = (struct knowledge){0};
}

void race_check_leave(struct race_check *check, int warp, uint64_t barrier)
{
	if (check)
		learn(&check->known[warp], &meeting_at(check, barrier)->closed);
}

/* --- what goes on behind an instruction --------------------------------------------------------------- */

void race_check_publish(struct race_check *check, int warp)
{
	if (!check)
		return;
	memcpy(check->known[warp].published, check->known[warp].clock, sizeof(check->known[warp].clock));
	check->known[warp].clock[warp]++;
}

struct knowledge *race_check_begin(struct race_check *check, int warp)
{
	struct knowledge *now;

	if (!check)
		return NULL;
	now = xmalloc(sizeof(*now));
	*now = check->known[warp];
	check->known[warp].clock[warp]++;
	return now;
}

void race_check_end(struct race_check *check, const struct warp *warp, const struct instruction *instruction,
	const struct knowledge *begun, uint64_t address, size_t bytes)
{
	const struct visit now = {check->known[warp->index].clock[warp->index], instruction->line};

	for (uint64_t word = address / WORD; word <= (address + bytes - 1) / WORD; word++) {
		const struct visit *writes = visits_of(check, check->writes, word);

		for (int other = 0; other < check->visitors; other++) {
			if (writes[other].clock > begun->clock[other])
				race(check, warp, instruction, 0, address, other, writes[other].line,
					"wrote");
			if (other != copies_of(check) && writes[other].clock > begun->published[other])
				fault(warp, instruction, 0, CUDA_ERROR_LAUNCH_FAILED,
					"warp %d wrote %#llx of shared memory at PTX line %u, and no "
					"fence.proxy.async is between",
					other, (unsigned long long)address, writes[other].line);
		}
		visits_of(check, check->reads, word)[warp->index] = now;
	}
}

uint32_t race_check_copy(struct race_check *check, const struct warp *warp,
	const struct instruction *instruction, int lane, uint64_t address, size_t bytes)
{
	struct visit now = {.line = instruction->line};

	if (!check)
		return 0;
	now.clock = ++check->known[copies_of(check)].clock[copies_of(check)];
	for (uint64_t word = address / WORD; word <= (address + bytes - 1) / WORD; word++) {
		struct visit *writes = visits_of(check, check->writes, word);
		struct visit *reads = visits_of(check, check->reads, word);

		check_visits(check, warp, instruction, lane, address, writes, "wrote");
		check_visits(check, warp, instruction, lane, address, reads, "read");
		writes[copies_of(check)] = now;
	}
	return now.clock;
}

void race_check_copied(struct race_check *check, uint32_t copy, uint64_t barrier)
{
	uint32_t *known;

	if (!check)
		return;
	known = &meeting_at(check, barrier)->arrived.clock[copies_of(check)];
	*known = *known > copy ? *known : copy;
}
