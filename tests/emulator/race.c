#include "race.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

#define MOST_VISITORS (MOST_WARPS + 1) /* the last: bulk copies */

#define VISITOR_BITS 6
#define MARK(visitor, line) ((line) << VISITOR_BITS | (uint32_t)(visitor))
#define VISITOR(mark) ((int)((mark) & ((1u << VISITOR_BITS) - 1)))
#define LINE(mark) ((mark) >> VISITOR_BITS)

/* Up to when each visitor's accesses are ordered before one's own, and its writes are published. */
struct knowledge {
	uint32_t clock[MOST_VISITORS], published[MOST_VISITORS];
};

/* What those knew that have arrived, and what those learn that leave. */
struct meeting {
	uint64_t barrier;
	struct knowledge arrived, closed;
};

/* Clocks of each visitor's last access of a kind. */
struct latest {
	uint32_t clock[MOST_VISITORS];
};

struct race_check {
	int visitors; /* warps, and behind them bulk copies */
	size_t words;
	struct knowledge known[MOST_VISITORS]; /* by each; of bulk copies no more than their own clock */
	struct meeting *meetings;
	size_t meeting_count;
	struct latest writes, reads;
	/* Of each word. Of warps' writes only the last: whoever is ordered behind it is so behind those before, too. */
	struct visit *written, *copied;
	struct visit *read; /* by each warp, whose words are side by side */
};

struct race_check *race_check_make(const struct launch *launch, int warp_count)
{
	const char *wanted = getenv("EMULATOR_RACECHECK");
	struct race_check *check;

	if (!wanted || wanted[0] != '1')
		return NULL;
	check = xcalloc(1, sizeof(*check));
	check->visitors = warp_count + 1;
	check->words = launch->shared_bytes / RACE_WORD;
	check->written = xcalloc(check->words, sizeof(*check->written));
	check->copied = xcalloc(check->words, sizeof(*check->copied));
	check->read = xcalloc(check->words * (size_t)warp_count, sizeof(*check->read));
	return check;
}

void race_check_free(struct race_check *check)
{
	if (!check)
		return;
	free(check->meetings);
	free(check->written);
	free(check->copied);
	free(check->read);
	free(check);
}

void race_check_start(struct race_check *check)
{
	struct knowledge all = {0};

	if (!check)
		return;
	for (int i = 0; i < check->visitors; i++)
		all.clock[i] = all.published[i] = check->known[i].clock[i];
	for (int i = 0; i < check->visitors; i++) {
		check->known[i] = all;
		check->known[i].clock[i]++;
	}
	check->meeting_count = 0;
}

/* --- accesses ----------------------------------------------------------------------------------------- */

static int copies_of(const struct race_check *check)
{
	return check->visitors - 1;
}

static struct visit *read_by(const struct race_check *check, int warp)
{
	return check->read + check->words * (size_t)warp;
}

/* The first of the visits to these bytes that is not `known`; NULL: there is none. */
static const struct visit *unknown(
	const struct visit *visits, const uint32_t *known, uint64_t address, size_t bytes)
{
	for (uint64_t word = address / RACE_WORD; word <= LAST_WORD(address, bytes); word++)
		if (visits[word].clock > known[VISITOR(visits[word].mark)])
			return &visits[word];
	return NULL;
}

static _Noreturn void race(const struct race_check *check, const struct warp *warp,
	const struct instruction *instruction, int lane, uint64_t address, const struct visit *other,
	const char *what)
{
	char who[16];

	snprintf(who, sizeof(who), VISITOR(other->mark) == copies_of(check) ? "a bulk copy" : "warp %d",
		VISITOR(other->mark));
	fault(warp, instruction, lane, CUDA_ERROR_LAUNCH_FAILED,
		"a race at %#llx of shared memory: %s %s it at PTX line %u, and no barrier is between",
		(unsigned long long)address, who, what, LINE(other->mark));
}

/* Who may have been anywhere since the warp last heard of it. A bit for each. */
static uint64_t suspects_of(const struct race_check *check, const struct warp *warp, bool write)
{
	const uint32_t *known = check->known[warp->index].clock;
	uint64_t found = 0;

	for (int i = 0; i < check->visitors; i++)
		found |= (uint64_t)(check->writes.clock[i] > known[i] ||
				 (write && check->reads.clock[i] > known[i]))
			<< i;
	return found;
}

/* Ends the launch when one of the suspects was there that is not known to be done. */
static void check_visits(const struct race_check *check, uint64_t suspects, const struct warp *warp,
	const struct instruction *instruction, int lane, uint64_t address, size_t bytes, bool write)
{
	const uint32_t *known = check->known[warp->index].clock;
	const struct visit *found = unknown(check->written, known, address, bytes);

	if (!found && suspects >> copies_of(check))
		found = unknown(check->copied, known, address, bytes);
	if (found)
		race(check, warp, instruction, lane, address, found, "wrote");
	for (; write && suspects; suspects &= suspects - 1) {
		const int other = __builtin_ctzll(suspects);

		if (check->reads.clock[other] <= known[other])
			continue;
		found = unknown(read_by(check, other), known, address, bytes);
		if (found)
			race(check, warp, instruction, lane, address, found, "read");
	}
}

struct race_watch race_check_watch(
	struct race_check *check, const struct warp *warp, const struct instruction *instruction, bool write)
{
	const uint32_t clock = check->known[warp->index].clock[warp->index];

	(write ? &check->writes : &check->reads)->clock[warp->index] = clock;
	return (struct race_watch){.check = check,
		.suspects = suspects_of(check, warp, write),
		.visits = write ? check->written : read_by(check, warp->index),
		.now = {clock, MARK(warp->index, instruction->line)},
		.write = write};
}

void race_check_suspects(const struct race_watch *watch, const struct warp *warp,
	const struct instruction *instruction, int lane, uint64_t address, size_t bytes)
{
	check_visits(watch->check, watch->suspects, warp, instruction, lane, address, bytes, watch->write);
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
	const struct visit *found = unknown(check->written, begun->clock, address, bytes);
	struct race_watch watch;

	if (!found)
		found = unknown(check->copied, begun->clock, address, bytes);
	if (found)
		race(check, warp, instruction, 0, address, found, "wrote");
	found = unknown(check->written, begun->published, address, bytes);
	if (found)
		fault(warp, instruction, 0, CUDA_ERROR_LAUNCH_FAILED,
			"warp %d wrote %#llx of shared memory at PTX line %u, and no fence.proxy.async is "
			"between",
			VISITOR(found->mark), (unsigned long long)address, LINE(found->mark));
	watch = race_check_watch(check, warp, instruction, false);
	race_watch_note(&watch, address, bytes);
}

uint32_t race_check_copy(struct race_check *check, const struct warp *warp,
	const struct instruction *instruction, int lane, uint64_t address, size_t bytes)
{
	struct race_watch watch = {0};
	int copies;

	if (!check)
		return 0;
	check_visits(check, suspects_of(check, warp, true), warp, instruction, lane, address, bytes, true);
	copies = copies_of(check);
	check->writes.clock[copies] = ++check->known[copies].clock[copies];
	watch.visits = check->copied;
	watch.now = (struct visit){check->writes.clock[copies], MARK(copies, instruction->line)};
	race_watch_note(&watch, address, bytes);
	return watch.now.clock;
}

void race_check_copied(struct race_check *check, uint32_t copy, uint64_t barrier)
{
	uint32_t *known;

	if (!check)
		return;
	known = &meeting_at(check, barrier)->arrived.clock[copies_of(check)];
	*known = *known > copy ? *known : copy;
}
