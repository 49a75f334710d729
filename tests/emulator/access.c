/* access: loads, stores and asynchronous copies. */
#include "access.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

/* --- where memory is ---------------------------------------------------------------------------------- */

static const char *const space_names[] = {"generic", "global", "shared", "local", "parameter"};

static _Noreturn void bad_access(const struct warp *warp, const struct instruction *instruction, int lane,
	enum space space, uint64_t address, size_t bytes, enum direction direction)
{
	fault(warp, instruction, lane, CUDA_ERROR_ILLEGAL_ADDRESS,
		"invalid %s of %zu bytes of %s memory at %#llx", direction == READ ? "read" : "write", bytes,
		space_names[space], (unsigned long long)address);
}

static unsigned char *reach_global(struct warp *warp, const struct instruction *instruction, int lane,
	uint64_t address, size_t bytes, enum direction direction)
{
	const struct launch *launch = warp->block->launch;
	struct allocation *last = &launch->found[instruction - launch->kernel->code];

	if (address - last->address >= last->bytes || last->bytes - (address - last->address) < bytes) {
		const struct allocation *found = memory_find(address, bytes);

		if (launch->early && !warp->waited)
			fault(warp, instruction, lane, CUDA_ERROR_LAUNCH_FAILED,
				"memory is used before the launch before has ended (griddepcontrol.wait)");
		if (!found)
			bad_access(warp, instruction, lane, SPACE_GLOBAL, address, bytes, direction);
		*last = *found;
	}
	return (unsigned char *)address;
}

/* Generic addresses are a window of each space. */
static void leave_window(enum space *space, uint64_t *address)
{
	if (*space != SPACE_GENERIC)
		return;
	*space = WINDOW_OF(*address);
	*address &= WINDOW(1) - 1;
}

unsigned char *locate(struct warp *warp, const struct instruction *instruction, int lane, enum space space,
	uint64_t address, size_t bytes, size_t alignment, enum direction direction)
{
	const struct launch *launch = warp->block->launch;
	unsigned char *memory;
	size_t start = 0, end;

	if (address % alignment)
		fault(warp, instruction, lane, CUDA_ERROR_MISALIGNED_ADDRESS,
			"misaligned %s of %zu bytes of %s memory at %#llx",
			direction == READ ? "read" : "write", bytes, space_names[space],
			(unsigned long long)address);
	leave_window(&space, &address);
	switch (space) {
	case SPACE_SHARED:
		memory = warp->block->shared;
		start = SHARED_START;
		end = launch->shared_bytes;
		break;
	case SPACE_LOCAL:
		memory = warp->local + (size_t)lane * launch->kernel->local_bytes;
		end = launch->kernel->local_bytes;
		break;
	case SPACE_PARAM:
		memory = launch->parameters;
		end = direction == READ ? launch->kernel->parameter_bytes : 0;
		break;
	default:
		return reach_global(warp, instruction, lane, address, bytes, direction);
	}
	if (address < start || address > end || end - address < bytes)
		bad_access(warp, instruction, lane, space, address, bytes, direction);
	return memory + address;
}

unsigned char *reach(struct warp *warp, const struct instruction *instruction, int lane, enum space space,
	uint64_t address, size_t bytes, enum direction direction)
{
	unsigned char *memory = locate(warp, instruction, lane, space, address, bytes, bytes, direction);

	leave_window(&space, &address);
	if (space == SPACE_SHARED && warp->block->races && direction != CHANGE) {
		const struct race_watch watch = race_check_watch(
			warp->block->races, warp, instruction, direction == WRITE);

		race_watch_access(&watch, warp, instruction, lane, address, bytes);
	}
	return memory;
}

struct view view_of(const struct warp *warp, const struct instruction *instruction, enum direction direction)
{
	const struct launch *launch = warp->block->launch;
	const struct allocation *last = &launch->found[instruction - launch->kernel->code];

	if (instruction->space == SPACE_GLOBAL)
		return (struct view){.memory = (unsigned char *)last->address,
			.start = last->address,
			.bytes = last->bytes};
	if (instruction->space == SPACE_SHARED) {
		struct view view = {.memory = warp->block->shared + SHARED_START,
			.start = SHARED_START,
			.bytes = launch->shared_bytes - SHARED_START};

		if (warp->block->races && direction != CHANGE)
			view.watch = race_check_watch(
				warp->block->races, warp, instruction, direction == WRITE);
		return view;
	}
	if (instruction->space == SPACE_PARAM && direction == READ)
		return (struct view){.memory = launch->parameters, .bytes = launch->kernel->parameter_bytes};
	return (struct view){0}; /* each access is looked at */
}

/* --- opcodes ------------------------------------------------------------------------------------------ */

void decode_space(struct decoding *decoding)
{
	static const struct {
		const char *name;
		enum space space;
	} spaces[] = {{"global", SPACE_GLOBAL}, {"const", SPACE_GLOBAL}, {"shared", SPACE_SHARED},
		{"shared::cta", SPACE_SHARED}, {"shared::cluster", SPACE_SHARED}, {"local", SPACE_LOCAL},
		{"param", SPACE_PARAM}, {"param::entry", SPACE_PARAM}, {"param::func", SPACE_LOCAL}};

	drop_parts(decoding,
		"volatile relaxed acquire release acq_rel weak mmio cta cluster gpu sys ca cg cs lu cv wb wt nc "
		"L1::evict_normal L1::evict_unchanged L1::evict_first L1::evict_last L1::no_allocate "
		"L2::evict_normal L2::evict_first L2::evict_last L2::64B L2::128B L2::256B noftz");
	for (size_t i = 0; i < sizeof(spaces) / sizeof(*spaces); i++)
		if (take_part(decoding, spaces[i].name))
			decoding->instruction->space = (uint8_t)spaces[i].space;
}

int decode_address(struct decoding *decoding, int number, struct error *err)
{
	struct instruction *instruction = decoding->instruction;
	const struct operand *operand = &decoding->statement->operands[number];

	if (number >= decoding->statement->operand_count || !operand->memory)
		return not_understood(decoding, err, "an address is expected");
	if (operand->kind == OPERAND_SYMBOL)
		instruction->space = (uint8_t)operand->space;
	instruction->address_width = operand->kind == OPERAND_REGISTER ? (uint8_t)operand->width : 8;
	instruction->immediate = operand->kind == OPERAND_REGISTER ? operand->offset : 0;
	return decode_operand(decoding, number, ADDRESS, instruction->address_width, err);
}

struct type {
	const char *name;
	int bytes;
	bool is_signed;
};

static const struct type *take_type(struct decoding *decoding)
{
	static const struct type types[] = {{"b8", 1, 0}, {"u8", 1, 0}, {"s8", 1, 1}, {"b16", 2, 0},
		{"u16", 2, 0}, {"s16", 2, 1}, {"b32", 4, 0}, {"u32", 4, 0}, {"s32", 4, 1}, {"f32", 4, 0},
		{"b64", 8, 0}, {"u64", 8, 0}, {"s64", 8, 1}, {"f64", 8, 0}, {"b128", 16, 0}};

	for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++)
		if (take_part(decoding, types[i].name))
			return &types[i];
	return NULL;
}

/* The vector's length. */
static int take_count(struct decoding *decoding)
{
	return take_part(decoding, "v2")    ? 2
		: take_part(decoding, "v4") ? 4
		: take_part(decoding, "v8") ? 8
					    : 1;
}

/* --- elements ----------------------------------------------------------------------------------------- */

/* Does something for each element of each lane: number i, which is `at` some place of the host's memory. */
#define EACH_ACCESS(direction, type, ...)                                                                    \
	const size_t bytes = instruction->count * sizeof(type);                                              \
	struct view view = view_of(warp, instruction, direction);                                            \
	unsigned char *reached[LANES];                                                                       \
                                                                                                             \
	if (reach_addresses(warp, instruction, bytes, &view, reached))                                       \
		for (int i = 0; i < instruction->count; i++)                                                 \
			for (int lane = 0; lane < LANES; lane++) {                                           \
				unsigned char *at = reached[lane] + (size_t)i * sizeof(type);                \
				__VA_ARGS__;                                                                 \
			}                                                                                    \
	else                                                                                                 \
		for (uint32_t left = warp->active; left; left &= left - 1) {                                 \
			const int lane = __builtin_ctz(left);                                                \
			unsigned char *at = reach_address(warp, instruction, lane, bytes, direction, &view); \
                                                                                                             \
			for (int i = 0; i < instruction->count; i++, at += sizeof(type)) {                   \
				__VA_ARGS__;                                                                 \
			}                                                                                    \
		}

/* --- loads -------------------------------------------------------------------------------------------- */

/* Registers may be wider than what is loaded: zeros or the sign go before it. */
#define LOADS(_)                                                                                             \
	_(u8, uint8_t, uint16_t, 2)                                                                          \
	_(u8, uint8_t, uint32_t, 4)                                                                          \
	_(u8, uint8_t, uint64_t, 8)                                                                          \
	_(s8, int8_t, int16_t, 2)                                                                            \
	_(s8, int8_t, int32_t, 4)                                                                            \
	_(s8, int8_t, int64_t, 8)                                                                            \
	_(u16, uint16_t, uint16_t, 2)                                                                        \
	_(u16, uint16_t, uint32_t, 4)                                                                        \
	_(u16, uint16_t, uint64_t, 8)                                                                        \
	_(s16, int16_t, int16_t, 2)                                                                          \
	_(s16, int16_t, int32_t, 4)                                                                          \
	_(s16, int16_t, int64_t, 8)                                                                          \
	_(u32, uint32_t, uint32_t, 4)                                                                        \
	_(u32, uint32_t, uint64_t, 8)                                                                        \
	_(s32, int32_t, int32_t, 4)                                                                          \
	_(s32, int32_t, int64_t, 8)                                                                          \
	_(u64, uint64_t, uint64_t, 8)                                                                        \
	_(s64, int64_t, int64_t, 8)                                                                          \
	_(b128, __int128, __int128, 16)

#define LOAD(name, type, reg, width)                                                                         \
	OPERATION(load_##name##_##width)                                                                     \
	{                                                                                                    \
		EACH_ACCESS(READ, type, type value; memcpy(&value, at, sizeof(value));                       \
			    SLOT(reg, i)[lane] = (reg)value)                                                 \
	}
LOADS(LOAD)

#pragma GCC diagnostic ignored "-Wtype-limits"
#define LOAD_ENTRY(name, type, reg, width) {sizeof(type), width, (type)-1 < 0, load_##name##_##width},
static const struct {
	int bytes, width;
	bool is_signed;
	operation *execute;
} loads[] = {LOADS(LOAD_ENTRY)};

static int decode_load(struct decoding *decoding, struct error *err)
{
	struct instruction *instruction = decoding->instruction;
	const struct statement *statement = decoding->statement;
	const struct type *type;
	int width = statement->operands[0].width;

	decode_space(decoding);
	instruction->count = (uint8_t)take_count(decoding);
	type = take_type(decoding);
	if (!type)
		return not_understood(decoding, err, "an unknown type");
	if (no_parts_left(decoding, err) < 0)
		return -1;
	if (statement->operand_count != instruction->count + 1)
		return not_understood(decoding, err, "not one register for each element");
	for (int i = 0; i < instruction->count; i++) {
		width = statement->operands[i].width ? statement->operands[i].width : width;
		if (decode_operand(decoding, i, i, width, err) < 0)
			return -1;
	}
	for (size_t i = 0; i < sizeof(loads) / sizeof(*loads); i++)
		if (loads[i].bytes == type->bytes && loads[i].width == width &&
			(loads[i].is_signed == type->is_signed || loads[i].bytes == 16))
			instruction->execute = loads[i].execute;
	if (!instruction->execute)
		return not_understood(decoding, err, "no load into such a register");
	return decode_address(decoding, instruction->count, err);
}

/* --- stores ------------------------------------------------------------------------------------------- */

/* Registers may be wider than what is stored. */
#define STORES(_)                                                                                            \
	_(uint8_t, uint16_t, 1, 2)                                                                           \
	_(uint8_t, uint32_t, 1, 4)                                                                           \
	_(uint8_t, uint64_t, 1, 8)                                                                           \
	_(uint16_t, uint16_t, 2, 2)                                                                          \
	_(uint16_t, uint32_t, 2, 4)                                                                          \
	_(uint16_t, uint64_t, 2, 8)                                                                          \
	_(uint32_t, uint32_t, 4, 4)                                                                          \
	_(uint32_t, uint64_t, 4, 8)                                                                          \
	_(uint64_t, uint64_t, 8, 8)                                                                          \
	_(__int128, __int128, 16, 16)

#define STORE(type, reg, size, width)                                                                        \
	OPERATION(store_##size##_##width)                                                                    \
	{                                                                                                    \
		EACH_ACCESS(WRITE, type, const type value = (type)SLOT(reg, i)[lane];                        \
			    memcpy(at, &value, sizeof(value)))                                               \
	}
STORES(STORE)

#define STORE_ENTRY(type, reg, size, width) {size, width, store_##size##_##width},
static const struct {
	int bytes, width;
	operation *execute;
} stores[] = {STORES(STORE_ENTRY)};

static int decode_store(struct decoding *decoding, struct error *err)
{
	struct instruction *instruction = decoding->instruction;
	const struct statement *statement = decoding->statement;
	const struct type *type;
	int width = 0;

	decode_space(decoding);
	instruction->count = (uint8_t)take_count(decoding);
	type = take_type(decoding);
	if (!type)
		return not_understood(decoding, err, "an unknown type");
	if (no_parts_left(decoding, err) < 0 || decode_address(decoding, 0, err) < 0)
		return -1;
	if (statement->operand_count != instruction->count + 1)
		return not_understood(decoding, err, "not one register for each element");
	for (int i = 1; i < statement->operand_count; i++)
		if (statement->operands[i].kind == OPERAND_REGISTER)
			width = statement->operands[i].width;
	width = width ? width : type->bytes == 1 ? 2 : type->bytes;
	for (int i = 0; i < instruction->count; i++)
		if (decode_operand(decoding, i + 1, i, width, err) < 0)
			return -1;
	for (size_t i = 0; i < sizeof(stores) / sizeof(*stores); i++)
		if (stores[i].bytes == type->bytes && stores[i].width == width)
			instruction->execute = stores[i].execute;
	return instruction->execute ? 0 : not_understood(decoding, err, "no store from such a register");
}

/* --- asynchronous copies ------------------------------------------------------------------------------ */

/* They happen as late as they may, when they are waited for: what reads too early finds what was there before. */
OPERATION(copy_async)
{
	struct pending_copy *copy;

	if (warp->copy_count == warp->copy_room) {
		warp->copy_room = warp->copy_room * 2 + 64;
		warp->copies = xrealloc(warp->copies, warp->copy_room * sizeof(*warp->copies));
	}
	copy = &warp->copies[warp->copy_count++];
	copy->lanes = warp->active;
	copy->bytes = instruction->bytes;
	EACH_LANE(
		const uint64_t to = address_of(warp, instruction, lane, ADDRESS, instruction->address_width) +
			(uint64_t)instruction->immediate;
		const uint64_t from = address_of(warp, instruction, lane, SECOND_ADDRESS, 8) +
			(uint64_t)(int32_t)instruction->target;
		const uint32_t valid = SLOT(uint32_t, 0)[lane];
		copy->valid[lane] = (uint8_t)(valid < copy->bytes ? valid : copy->bytes);
		copy->group[lane] = warp->committed[lane];
		copy->to[lane] = (uint32_t)(reach(warp, instruction, lane, SPACE_SHARED, to, copy->bytes,
						    WRITE) -
			warp->block->shared);
		copy->from[lane] = valid
			? reach(warp, instruction, lane, SPACE_GLOBAL, from, copy->bytes, READ)
			: NULL);
}

void finish_copies(struct warp *warp, uint32_t lanes, int64_t but)
{
	size_t kept = 0;

	for (size_t i = 0; i < warp->copy_count; i++) {
		struct pending_copy *copy = &warp->copies[i];

		for (uint32_t left = copy->lanes & lanes; left; left &= left - 1) {
			int lane = __builtin_ctz(left);
			unsigned char *to = warp->block->shared + copy->to[lane];

			if (but >= 0 && copy->group[lane] + but >= warp->committed[lane])
				continue;
			if (copy->valid[lane])
				memcpy(to, copy->from[lane], copy->valid[lane]);
			memset(to + copy->valid[lane], 0, copy->bytes - copy->valid[lane]);
			copy->lanes &= ~(1u << lane);
		}
		if (copy->lanes)
			warp->copies[kept++] = *copy;
	}
	warp->copy_count = kept;
}

OPERATION(commit_copies)
{
	EACH_LANE(warp->committed[lane]++);
}

OPERATION(wait_for_copies)
{
	finish_copies(warp, warp->active, instruction->immediate);
}

/* cp.async.{ca,cg}.shared.global [to], [from], bytes{, valid}; cp.async.commit_group; cp.async.wait_group n;
 * cp.async.wait_all */
static int decode_copy(struct decoding *decoding, struct error *err)
{
	struct instruction *instruction = decoding->instruction;
	const struct statement *statement = decoding->statement;
	const struct operand *operands = statement->operands;

	if (!take_part(decoding, "async"))
		return not_understood(decoding, err, "unknown");
	if (take_part(decoding, "bulk"))
		return decode_bulk(decoding, err);
	if (take_part(decoding, "commit_group")) {
		instruction->execute = commit_copies;
	} else if (take_part(decoding, "wait_all")) {
		instruction->execute = wait_for_copies;
		instruction->immediate = -1;
	} else if (take_part(decoding, "wait_group")) {
		instruction->execute = wait_for_copies;
		instruction->immediate = statement->operand_count == 1 ? (int64_t)operands[0].value : 0;
	} else {
		decode_space(decoding);
		if (statement->operand_count < 3 || statement->operand_count > 4 || !operands[1].memory ||
			operands[2].kind != OPERAND_INTEGER)
			return not_understood(decoding, err, "unknown");
		if (decode_address(decoding, 0, err) < 0 ||
			decode_operand(decoding, 1, SECOND_ADDRESS, 8, err) < 0 ||
			decode_operand(decoding, statement->operand_count - 1, 0, 4, err) < 0)
			return -1;
		instruction->execute = copy_async;
		instruction->bytes = (uint8_t)operands[2].value;
		instruction->target = (uint32_t)operands[1].offset;
	}
	return no_parts_left(decoding, err);
}

/* --- addresses ---------------------------------------------------------------------------------------- */

/* cvta{.to}.space.u64: between a space's own addresses and generic ones. */
OPERATION(to_generic)
{
	uint64_t *d = SLOT(uint64_t, 0);
	const uint64_t *a = SLOT(uint64_t, 1);

	EACH_LANE(d[lane] = a[lane] + (uint64_t)instruction->immediate);
}

static int decode_convert_address(struct decoding *decoding, struct error *err)
{
	struct instruction *instruction = decoding->instruction;
	bool to = take_part(decoding, "to");
	uint64_t window;

	decode_space(decoding);
	drop_parts(decoding, "u64");
	if (no_parts_left(decoding, err) < 0)
		return -1;
	window = instruction->space == SPACE_GLOBAL ? 0 : WINDOW(instruction->space);
	instruction->execute = to_generic;
	instruction->immediate = (int64_t)(to ? -window : window);
	return decode_operand(decoding, 0, 0, 8, err) < 0 || decode_operand(decoding, 1, 1, 8, err) < 0 ? -1
													: 0;
}

OPERATION(is_space)
{
	uint32_t *d = SLOT(uint32_t, 0);
	const uint64_t *a = SLOT(uint64_t, 1);

	EACH_LANE(d[lane] = WINDOW_OF(a[lane]) ==
			(instruction->space == SPACE_GLOBAL ? 0 : instruction->space));
}

static int decode_is_space(struct decoding *decoding, struct error *err)
{
	decode_space(decoding);
	if (no_parts_left(decoding, err) < 0)
		return -1;
	decoding->instruction->execute = is_space;
	return decode_operand(decoding, 0, 0, 4, err) < 0 || decode_operand(decoding, 1, 1, 8, err) < 0 ? -1
													: 0;
}

const struct family access_families[] = {{"ld", decode_load}, {"ldu", decode_load}, {"st", decode_store},
	{"cp", decode_copy}, {"cvta", decode_convert_address}, {"isspacep", decode_is_space}, {0}};
