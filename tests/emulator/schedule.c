/* schedule: whose turn it is. Blocks are resident as many as fit the GPU, and their warps take turns, so that one that
 * waits for another gets what it waits for. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "memory.h"
#include "operations.h"
#include "race.h"

#define TURN 20000         /* instructions */
#define SHORT_TURN 20      /* of a warp that lags */
#define MOST_REGISTERS 248 /* of a thread, in steps of 8 */
#define PATIENCE 1000      /* turns of all, until they are held to wait for ever */

/* --- the lanes of a warp ------------------------------------------------------------------------------ */

/* The lowest program counter of these lanes from `least` on; UINT32_MAX: none. */
static uint32_t lowest(const struct warp *warp, uint32_t lanes, uint32_t least)
{
	uint32_t found = UINT32_MAX;

	for (; lanes; lanes &= lanes - 1) {
		uint32_t at = warp->at[__builtin_ctz(lanes)];

		if (at >= least && at < found)
			found = at;
	}
	return found;
}

static void leave_group(struct warp *warp)
{
	for (uint32_t left = warp->group; left; left &= left - 1)
		warp->at[__builtin_ctz(left)] = warp->pc;
	warp->group = 0;
}

static void form_group(struct warp *warp, uint32_t pc)
{
	uint32_t others = warp->live & ~warp->held;

	warp->pc = pc;
	warp->group = 0;
	for (uint32_t left = others; left; left &= left - 1)
		if (warp->at[__builtin_ctz(left)] == pc)
			warp->group |= left & -left;
	warp->blocked &= ~warp->group;
	warp->next = lowest(warp, others & ~warp->group, pc + 1);
}

static uint32_t runnable(const struct warp *warp)
{
	return warp->live & ~warp->blocked & ~warp->held;
}

/* Chooses the lanes that go on. */
static void regroup(struct warp *warp)
{
	leave_group(warp);
	if (runnable(warp))
		form_group(warp, lowest(warp, runnable(warp), 0));
}

/* Those that are behind, for once: the others may wait for them in a loop. */
static void take_turns(struct warp *warp)
{
	uint32_t furthest = 0;

	leave_group(warp);
	for (uint32_t left = runnable(warp); left; left &= left - 1) {
		uint32_t at = warp->at[__builtin_ctz(left)];

		furthest = at > furthest ? at : furthest;
	}
	form_group(warp, furthest);
}

void warp_split(struct warp *warp, uint32_t target)
{
	leave_group(warp);
	for (uint32_t left = warp->active; left; left &= left - 1)
		warp->at[__builtin_ctz(left)] = target;
	regroup(warp);
}

void warp_wait(struct warp *warp)
{
	warp->blocked |= warp->active;
	warp_split(warp, warp->pc - 1);
}

void warp_waits(struct warp *warp, const struct instruction *instruction)
{
	warp->waits = instruction;
	warp->budget = 0;
}

/* Lets go the lanes whose masks have nobody left to wait for. */
static void open_meetings(struct warp *warp)
{
	for (uint32_t left = warp->live; left; left &= left - 1) {
		uint32_t mask = warp->meets[__builtin_ctz(left)] & warp->live, there = 0;

		for (uint32_t lanes = mask; lanes; lanes &= lanes - 1)
			if (warp->meets[__builtin_ctz(lanes)])
				there |= lanes & -lanes;
		if (!mask || there != mask)
			continue;
		for (uint32_t lanes = mask; lanes; lanes &= lanes - 1)
			warp->meets[__builtin_ctz(lanes)] = 0;
		warp->held &= ~mask;
	}
}

void warp_meet(struct warp *warp, uint32_t mask)
{
	if (!(mask & warp->live & ~warp->active))
		return;
	for (uint32_t left = warp->active; left; left &= left - 1)
		warp->meets[__builtin_ctz(left)] = mask;
	warp->held |= warp->active;
	open_meetings(warp);
	regroup(warp);
}

/* --- barriers of a block ------------------------------------------------------------------------------ */

static uint32_t live_threads(const struct block *block)
{
	uint32_t count = 0;

	for (int i = 0; i < block->warp_count; i++)
		count += (uint32_t)__builtin_popcount(block->warps[i].live);
	return count;
}

static uint32_t reduced(const struct barrier *barrier, int reduction)
{
	return reduction == BARRIER_COUNT  ? barrier->counted
		: reduction == BARRIER_AND ? barrier->counted == barrier->arrived
					   : barrier->counted != 0;
}

/* Opens the barrier when it has all that it expects. */
static void open_barrier(struct block *block, uint32_t number)
{
	struct barrier *barrier = &block->barriers[number];
	const struct instruction *code = block->launch->kernel->code;

	if (!barrier->arrived ||
		barrier->arrived < (barrier->expected ? barrier->expected : live_threads(block)))
		return;
	race_check_close(block->races, number);
	for (int i = 0; i < block->warp_count; i++) {
		struct warp *warp = &block->warps[i];

		for (uint32_t left = barrier->lanes[i]; left; left &= left - 1) {
			int lane = __builtin_ctz(left);
			const struct instruction *instruction = &code[warp->at[lane] - 1];

			if (instruction->variant != BARRIER_PLAIN)
				SLOT(uint32_t, 0)[lane] = reduced(barrier, instruction->variant);
		}
		warp->held &= ~barrier->lanes[i];
		if (barrier->lanes[i])
			race_check_leave(block->races, i, number);
		leave_group(warp); /* those let go may have to go first */
	}
	*barrier = (struct barrier){0};
}

void block_arrive(struct warp *warp, const struct instruction *instruction, uint32_t number,
	uint32_t expected, bool wait)
{
	struct block *block = warp->block;
	struct barrier *barrier = &block->barriers[number % BARRIERS];
	const uint32_t lanes = warp->active;

	if (number >= BARRIERS)
		fault(warp, instruction, __builtin_ctz(lanes), CUDA_ERROR_ILLEGAL_INSTRUCTION,
			"there is no barrier %u", number);
	if (barrier->arrived && barrier->expected != expected)
		fault(warp, instruction, __builtin_ctz(lanes), CUDA_ERROR_ILLEGAL_INSTRUCTION,
			"barrier %u expects %u threads, not %u", number, barrier->expected, expected);
	barrier->expected = expected;
	barrier->arrived += (uint32_t)__builtin_popcount(lanes);
	if (instruction->variant != BARRIER_PLAIN)
		for (uint32_t left = lanes; left; left &= left - 1)
			barrier->counted += SLOT(uint32_t, 3)[__builtin_ctz(left)] !=
				instruction->negated_source;
	leave_group(warp);
	if (wait) {
		warp->held |= lanes;
		barrier->lanes[warp->index] |= lanes;
	}
	race_check_arrive(block->races, warp->index, number);
	open_barrier(block, number);
	regroup(warp);
}

void warp_end(struct warp *warp)
{
	struct block *block = warp->block;

	leave_group(warp);
	warp->live &= ~warp->active;
	warp->blocked = 0; /* some may have waited for these */
	open_meetings(warp);
	for (uint32_t i = 0; i < BARRIERS; i++)
		open_barrier(block, i);
	if (!live_threads(block))
		bulk_copies_end(block);
	regroup(warp);
}

void warp_scatter(struct warp *warp)
{
	uint32_t at[LANES];

	memcpy(at, warp->at, sizeof(at));
	leave_group(warp);
	for (uint32_t left = warp->active; left; left &= left - 1)
		warp->at[__builtin_ctz(left)] = at[__builtin_ctz(left)];
	regroup(warp);
}

/* --- turns -------------------------------------------------------------------------------------------- */

static uint32_t predicate_mask(const struct warp *warp, const struct instruction *instruction)
{
	const uint32_t *predicate = (const uint32_t *)(warp->registers + instruction->predicate);
	uint32_t mask = 0;

	for (int lane = 0; lane < LANES; lane++)
		mask |= (predicate[lane] & 1) << lane;
	return instruction->negated ? ~mask : mask;
}

static void run_warp(struct warp *warp)
{
	const struct launch *launch = warp->block->launch;
	const struct instruction *code = launch->kernel->code;

	if (!warp->group)
		regroup(warp);
	warp->waits = NULL;
	for (warp->budget = warp->index == launch->slow_warp ? SHORT_TURN : TURN;
		warp->group && warp->budget > 0; warp->budget--) {
		const struct instruction *instruction = &code[warp->pc++];

		warp->active = warp->group;
		if (instruction->predicate)
			warp->active &= predicate_mask(warp, instruction);
		if (warp->active && warp->product_count)
			products_guard(warp, instruction);
		if (warp->active)
			instruction->execute(warp, instruction);
		if (warp->pc >= warp->next)
			regroup(warp);
	}
	if (warp->group && warp->group != runnable(warp))
		take_turns(warp);
}

/* --- blocks ------------------------------------------------------------------------------------------- */

static void fill_initial(struct warp *warp, const struct initial *initial)
{
	unsigned char *to = warp->registers + initial->slot;

	for (int lane = 0; lane < LANES; lane++) {
		uint64_t value = initial->special ? initial->special(warp, lane) : initial->value;

		memcpy(to + lane * initial->width, &value, (size_t)initial->width);
	}
}

static void block_make(struct block *block, struct launch *launch)
{
	const struct kernel *kernel = launch->kernel;
	size_t threads = (size_t)launch->threads[0] * launch->threads[1] * launch->threads[2];

	*block = (struct block){.launch = launch, .warp_count = (int)((threads + LANES - 1) / LANES)};
	block->shared = xmalloc(launch->shared_bytes);
	block->races = race_check_make(launch, block->warp_count);
	block->warps = xcalloc((size_t)block->warp_count, sizeof(*block->warps));
	for (int i = 0; i < block->warp_count; i++) {
		struct warp *warp = &block->warps[i];

		warp->block = block;
		warp->index = i;
		warp->registers = aligned_alloc(64, (kernel->register_bytes + 63) / 64 * 64);
		if (!warp->registers)
			abort();
		memset(warp->registers, POISON, kernel->register_bytes);
		warp->taken = xcalloc(TAKEN(kernel->register_bytes) + 1, sizeof(*warp->taken));
		warp->local = xmalloc(kernel->local_bytes * LANES + 1);
		for (size_t j = 0; j < kernel->initial_count; j++)
			if (!kernel->initials[j].special)
				fill_initial(warp, &kernel->initials[j]);
	}
}

static void block_free(struct block *block)
{
	for (int i = 0; i < block->warp_count; i++) {
		free(block->warps[i].registers);
		free(block->warps[i].local);
		free(block->warps[i].copies);
	}
	products_drop(block);
	free(block->warps);
	free(block->copies);
	free(block->shared);
	race_check_free(block->races);
}

/* What ptxas gives a thread that shares registers out, as many as launch bounds leave. */
static int registers_at_start(const struct kernel *kernel)
{
	const int threads = kernel->most_threads * (kernel->least_blocks ? kernel->least_blocks : 1);
	const int count = threads ? REGISTERS / threads / 8 * 8 : 0;

	return count < MOST_REGISTERS ? count : MOST_REGISTERS;
}

static void block_start(struct block *block, uint64_t number)
{
	const struct launch *launch = block->launch;
	const struct kernel *kernel = launch->kernel;
	uint32_t threads = launch->threads[0] * launch->threads[1] * launch->threads[2];

	block->index[0] = (uint32_t)(number % launch->grid[0]);
	block->index[1] = (uint32_t)(number / launch->grid[0] % launch->grid[1]);
	block->index[2] = (uint32_t)(number / launch->grid[0] / launch->grid[1]);
	memset(block->shared, POISON, launch->shared_bytes);
	memset(block->barriers, 0, sizeof(block->barriers));
	race_check_start(block->races);
	products_start(block);
	block->spare_registers = 0;
	for (int i = 0; i < block->warp_count; i++) {
		struct warp *warp = &block->warps[i];
		uint32_t left = threads - (uint32_t)i * LANES;

		warp->live = left >= LANES ? ALL_LANES : (1u << left) - 1;
		warp->blocked = warp->held = warp->group = warp->carry = 0;
		warp->copy_count = 0;
		warp->register_count = registers_at_start(kernel);
		memset(warp->at, 0, sizeof(warp->at));
		memset(warp->meets, 0, sizeof(warp->meets));
		memset(warp->committed, 0, sizeof(warp->committed));
		memset(warp->local, POISON, kernel->local_bytes * LANES);
		for (size_t j = 0; j < kernel->initial_count; j++)
			if (kernel->initials[j].special)
				fill_initial(warp, &kernel->initials[j]);
	}
}

/* Whether any of its warps got on: those that wait in vain have not. */
static bool block_run(struct block *block)
{
	const uint32_t phases = block->phases;
	bool ran = false;

	for (int i = 0; i < block->warp_count; i++)
		if (runnable(&block->warps[i])) {
			run_warp(&block->warps[i]);
			ran |= !block->warps[i].waits;
		}
	return ran || block->phases != phases;
}

/* Every thread waits for another. */
static _Noreturn void deadlock(struct block *block)
{
	const struct instruction *code = block->launch->kernel->code;
	struct warp *warp = block->warps;
	int lane;

	while (!warp->live)
		warp++;
	lane = __builtin_ctz(warp->live);
	if (warp->waits)
		fault(warp, warp->waits, lane, CUDA_ERROR_LAUNCH_FAILED, "waits for what never comes");
	fault(warp, &code[warp->at[lane] - (warp->held >> lane & 1)], lane, CUDA_ERROR_LAUNCH_FAILED,
		"waits for threads that never come");
}

static void run_blocks(struct launch *launch, struct block *blocks, uint64_t resident)
{
	const uint64_t total = (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2];
	uint64_t next = 0, left = total;
	int patience = PATIENCE;

	for (; next < resident; next++)
		block_start(&blocks[next], next);
	while (left) {
		bool ran = false;

		for (uint64_t i = 0; i < resident; i++) {
			if (!live_threads(&blocks[i]))
				continue;
			ran |= block_run(&blocks[i]);
			if (live_threads(&blocks[i]))
				continue;
			left--;
			if (next < total)
				block_start(&blocks[i], next++);
		}
		patience = ran ? PATIENCE : patience - 1;
		for (uint64_t i = 0; i < resident && !patience; i++)
			if (live_threads(&blocks[i]))
				deadlock(&blocks[i]);
	}
}

/* With EMULATOR_LAG=N warp N of every block is slow: a GPU promises nothing about whose instructions come when. */
static int slow_warp(void)
{
	const char *wanted = getenv("EMULATOR_LAG");

	return wanted ? atoi(wanted) : -1;
}

int run_grid(struct launch *launch, int resident_blocks)
{
	const uint64_t total = (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2];
	const uint64_t resident = total < (uint64_t)resident_blocks ? total : (uint64_t)resident_blocks;
	struct block *blocks = xcalloc(resident, sizeof(*blocks));

	launch->blocks = blocks;
	launch->slow_warp = slow_warp();
	launch->found = xcalloc(launch->kernel->instruction_count, sizeof(*launch->found));
	for (uint64_t i = 0; i < resident; i++)
		block_make(&blocks[i], launch);
	launch->code = CUDA_SUCCESS;
	if (!setjmp(launch->failed))
		run_blocks(launch, blocks, resident);
	for (uint64_t i = 0; i < resident; i++)
		block_free(&blocks[i]);
	free(blocks);
	free(launch->found);
	return launch->code;
}

void fault(const struct warp *warp, const struct instruction *instruction, int lane, int code,
	const char *format, ...)
{
	struct launch *launch = warp->block->launch;
	uint32_t thread = (uint32_t)(warp->index * LANES + lane);
	va_list arguments;

	fprintf(stderr,
		"emulated GPU: kernel %s, block (%u, %u, %u), thread (%u, %u, %u): ", launch->kernel->name,
		warp->block->index[0], warp->block->index[1], warp->block->index[2],
		thread % launch->threads[0], thread / launch->threads[0] % launch->threads[1],
		thread / launch->threads[0] / launch->threads[1]);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	if (instruction->text)
		fprintf(stderr, "\n  PTX line %u: %.*s\n", instruction->line,
			(int)strcspn(instruction->text, "\n"), instruction->text);
	launch->code = code;
	longjmp(launch->failed, 1);
}
