/* warp: what the lanes of a warp do together. */
#include <string.h>

#include "operations.h"

/* Whether all lanes that the mask names are here; if not, those that are wait for the others, and will be back. */
static bool together(struct warp *warp, int mask_slot, const struct instruction *instruction)
{
	const uint32_t mask = SLOT(uint32_t, mask_slot)[__builtin_ctz(warp->active)];
	const uint32_t missing = mask & warp->live & ~warp->active;

	if (warp->active & ~mask)
		fault(warp, instruction, __builtin_ctz(warp->active & ~mask), CUDA_ERROR_ILLEGAL_INSTRUCTION,
			"the mask %#x does not name this lane", mask);
	return !missing || (warp_wait(warp), false);
}

/* --- shuffles ----------------------------------------------------------------------------------------- */

enum { SHUFFLE_UP, SHUFFLE_DOWN, SHUFFLE_BUTTERFLY, SHUFFLE_INDEX };

/* d|p, a, b, c, mask: b says which lane, c which segment and how far. */
OPERATION(shuffle)
{
	uint32_t *d = SLOT(uint32_t, 0), *p = SLOT(uint32_t, 1), from[LANES];
	const uint32_t *a = SLOT(uint32_t, 2), *b = SLOT(uint32_t, 3), *c = SLOT(uint32_t, 4);

	if (!together(warp, 5, instruction))
		return;
	memcpy(from, a, sizeof(from));
	EACH_LANE(const int segment = c[lane] >> 8 & 31; const int clamp = c[lane] & 31;
		  const int by = b[lane] & 31; const int lowest = lane & segment;
		  const int limit = (lane & segment) | (clamp & ~segment);
		  int source = instruction->variant == SHUFFLE_UP     ? lane - by
			  : instruction->variant == SHUFFLE_DOWN      ? lane + by
			  : instruction->variant == SHUFFLE_BUTTERFLY ? lane ^ by
								      : lowest | (by & ~segment);
		  const bool inside = instruction->variant == SHUFFLE_UP ? source >= limit : source <= limit;
		  p[lane] = inside; source = inside ? source : lane; if (!(warp->active >> source & 1))
			  fault(warp, instruction, lane, CUDA_ERROR_ILLEGAL_INSTRUCTION,
				  "a value from lane %d, which takes no part", source);
		  d[lane] = from[source]);
}

static int decode_shuffle(struct decoding *decoding, struct error *err)
{
	static const char *const modes[] = {"up", "down", "bfly", "idx", NULL};
	struct instruction *instruction = decoding->instruction;
	const struct statement *statement = decoding->statement;
	int mode = take_one_of(decoding, modes), first, results = group_size(statement, 0, &first);

	drop_parts(decoding, "sync b32");
	if (mode < 0 || statement->operand_count != results + 4)
		return not_understood(decoding, err, "unknown");
	instruction->execute = shuffle;
	instruction->variant = (uint8_t)mode;
	instruction->slot[1] = scratch_register(decoding, 4);
	for (int i = 0; i < statement->operand_count; i++)
		if (decode_operand(decoding, i, i < results ? i : i - results + 2, 4, err) < 0)
			return -1;
	return no_parts_left(decoding, err);
}

/* --- votes -------------------------------------------------------------------------------------------- */

enum { VOTE_ALL, VOTE_ANY, VOTE_UNIFORM, VOTE_BALLOT };

static uint32_t true_lanes(const struct warp *warp, const struct instruction *instruction, int slot)
{
	const uint32_t *p = SLOT(const uint32_t, slot), negated = instruction->negated_source;
	uint32_t lanes = 0;

	EACH_LANE(lanes |= (uint32_t)(p[lane] != negated) << lane);
	return lanes;
}

OPERATION(vote)
{
	uint32_t *d = SLOT(uint32_t, 0), lanes, result;

	if (!together(warp, 2, instruction))
		return;
	lanes = true_lanes(warp, instruction, 1);
	result = instruction->variant == VOTE_BALLOT ? lanes
		: instruction->variant == VOTE_ANY   ? lanes != 0
		: instruction->variant == VOTE_ALL   ? lanes == warp->active
						     : lanes == warp->active || !lanes;
	EACH_LANE(d[lane] = result);
}

static int decode_vote(struct decoding *decoding, struct error *err)
{
	static const char *const modes[] = {"all", "any", "uni", "ballot", NULL};
	struct instruction *instruction = decoding->instruction;
	int mode = take_one_of(decoding, modes);

	drop_parts(decoding, "sync pred b32");
	if (mode < 0 || decoding->statement->operand_count != 3)
		return not_understood(decoding, err, "unknown");
	instruction->execute = vote;
	instruction->variant = (uint8_t)mode;
	instruction->negated_source = decoding->statement->operands[1].negated;
	for (int i = 0; i < 3; i++)
		if (decode_operand(decoding, i, i, 4, err) < 0)
			return -1;
	return no_parts_left(decoding, err);
}

OPERATION(active_mask)
{
	EACH_LANE(SLOT(uint32_t, 0)[lane] = warp->active);
}

/* --- matches ------------------------------------------------------------------------------------------ */

static uint64_t value_of(const struct warp *warp, const struct instruction *instruction, int slot, int lane)
{
	return instruction->bytes == 8 ? SLOT(const uint64_t, slot)[lane] : SLOT(const uint32_t, slot)[lane];
}

static uint32_t same_lanes(const struct warp *warp, const struct instruction *instruction, int slot, int lane)
{
	uint32_t lanes = 0;

	for (uint32_t left = warp->active; left; left &= left - 1) {
		int other = __builtin_ctz(left);

		if (value_of(warp, instruction, slot, other) == value_of(warp, instruction, slot, lane))
			lanes |= 1u << other;
	}
	return lanes;
}

/* d|p, a, mask */
OPERATION(match)
{
	uint32_t *d = SLOT(uint32_t, 0), *p = SLOT(uint32_t, 1), result[LANES];

	if (!together(warp, 3, instruction))
		return;
	EACH_LANE(result[lane] = same_lanes(warp, instruction, 2, lane));
	EACH_LANE(p[lane] = result[lane] == warp->active;
		  d[lane] = instruction->variant && !p[lane] ? 0 : result[lane]);
}

static int decode_match(struct decoding *decoding, struct error *err)
{
	struct instruction *instruction = decoding->instruction;
	const struct statement *statement = decoding->statement;
	int first, results = group_size(statement, 0, &first);

	instruction->variant = take_part(decoding, "all");
	instruction->bytes = take_part(decoding, "b64") ? 8 : 4;
	drop_parts(decoding, "any sync b32");
	if (statement->operand_count != results + 2)
		return not_understood(decoding, err, "unknown");
	instruction->execute = match;
	instruction->slot[1] = scratch_register(decoding, 4);
	for (int i = 0; i < statement->operand_count; i++) {
		int slot = i < results ? i : i - results + 2;

		if (decode_operand(decoding, i, slot, slot == 2 ? instruction->bytes : 4, err) < 0)
			return -1;
	}
	return no_parts_left(decoding, err);
}

/* --- reductions --------------------------------------------------------------------------------------- */

#define REDUCTIONS(_)                                                                                        \
	_(add_s32, "redux.add.s32", int32_t, A + B)                                                          \
	_(add_u32, "redux.add.u32", uint32_t, A + B)                                                         \
	_(min_s32, "redux.min.s32", int32_t, A < B ? A : B)                                                  \
	_(min_u32, "redux.min.u32", uint32_t, A < B ? A : B)                                                 \
	_(max_s32, "redux.max.s32", int32_t, A > B ? A : B)                                                  \
	_(max_u32, "redux.max.u32", uint32_t, A > B ? A : B)                                                 \
	_(and_b32, "redux.and.b32", uint32_t, A &B)                                                          \
	_(or_b32, "redux.or.b32", uint32_t, A | B)                                                           \
	_(xor_b32, "redux.xor.b32", uint32_t, A ^ B)
#define REDUCTION(function, name, type, x)                                                                   \
	OPERATION(redux_##function)                                                                          \
	{                                                                                                    \
		type *d = SLOT(type, 0);                                                                     \
		const type *a = SLOT(type, 1);                                                               \
		uint32_t left = warp->active;                                                                \
		type A;                                                                                      \
                                                                                                             \
		if (!together(warp, 2, instruction))                                                         \
			return;                                                                              \
		A = a[__builtin_ctz(left)];                                                                  \
		for (left &= left - 1; left; left &= left - 1) {                                             \
			const type B = a[__builtin_ctz(left)];                                               \
                                                                                                             \
			A = (x);                                                                             \
		}                                                                                            \
		EACH_LANE(d[lane] = A);                                                                      \
	}
REDUCTIONS(REDUCTION)

OPERATION(elect)
{
	uint32_t *d = SLOT(uint32_t, 0), *p = SLOT(uint32_t, 1);
	uint32_t leader = (uint32_t)__builtin_ctz(warp->active);

	if (!together(warp, 2, instruction))
		return;
	EACH_LANE(d[lane] = leader; p[lane] = lane == (int)leader);
}

#define REDUCTION_ROW(function, name, type, x) {name, redux_##function, "www", 3},
const struct row warp_rows[] = {
	REDUCTIONS(REDUCTION_ROW){"activemask.b32", active_mask, "w", 1}, {"elect", elect, "wpw", 3}, {0}};

const struct family warp_families[] = {
	{"shfl", decode_shuffle}, {"vote", decode_vote}, {"match", decode_match}, {0}};
