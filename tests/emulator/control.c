/* control: branches, ends, barriers, and what orders memory. Blocks run one after the other on one processor, so that
 * there is nothing to be done for the latter, but that the race check wants to know of some. */
#include "operations.h"
#include "race.h"

/* --- branches ----------------------------------------------------------------------------------------- */

OPERATION(branch)
{
	if (warp->active == warp->live)
		warp->pc = instruction->target;
	else
		warp_split(warp, instruction->target);
}

OPERATION(branch_by_index)
{
	const uint32_t *index = SLOT(uint32_t, 0);

	for (uint32_t left = warp->active; left; left &= left - 1) {
		int lane = __builtin_ctz(left);

		if (index[lane] >= instruction->immediate)
			fault(warp, instruction, lane, CUDA_ERROR_LAUNCH_FAILED, "there is no branch %u",
				index[lane]);
		warp->at[lane] = instruction->target + instruction->targets[index[lane]];
	}
	warp_scatter(warp);
}

static int decode_branch(struct decoding *decoding, struct error *err)
{
	struct instruction *instruction = decoding->instruction;
	const struct statement *statement = decoding->statement;
	int64_t target;

	drop_parts(decoding, "uni");
	if (no_parts_left(decoding, err) < 0)
		return -1;
	target = statement->operand_count == 1 && statement->operands[0].kind == OPERAND_NAME
		? ptx_label(decoding->frame->function, statement->scope, statement->operands[0].name)
		: -1;
	if (target < 0)
		return not_understood(decoding, err, "no such label");
	instruction->execute = branch;
	instruction->target = decoding->frame->code + (uint32_t)target;
	return 0;
}

/* brx.idx index, list */
static int decode_branch_by_index(struct decoding *decoding, struct error *err)
{
	struct instruction *instruction = decoding->instruction;
	const struct statement *statement = decoding->statement;
	size_t count = 0;

	drop_parts(decoding, "idx uni");
	if (no_parts_left(decoding, err) < 0)
		return -1;
	if (statement->operand_count == 2 && statement->operands[1].kind == OPERAND_NAME)
		instruction->targets = ptx_targets(
			decoding->frame->function, statement->scope, statement->operands[1].name, &count);
	if (!instruction->targets)
		return not_understood(decoding, err, "no such list of labels");
	instruction->execute = branch_by_index;
	instruction->immediate = (int64_t)count;
	instruction->target = decoding->frame->code;
	return decode_operand(decoding, 0, 0, 4, err);
}

/* --- ends --------------------------------------------------------------------------------------------- */

OPERATION(end)
{
	if (warp->product_count)
		fault(warp, instruction, __builtin_ctz(warp->active), CUDA_ERROR_ILLEGAL_INSTRUCTION,
			"nobody has waited for the warp's products");
	finish_copies(warp, warp->active, -1);
	warp_end(warp);
}

OPERATION(trap)
{
	fault(warp, instruction, __builtin_ctz(warp->active), CUDA_ERROR_LAUNCH_FAILED, "a trap");
}

OPERATION(nothing)
{
	(void)warp;
}

int decode_end(struct decoding *decoding, struct error *err)
{
	drop_parts(decoding, "uni");
	decoding->instruction->execute = end;
	return no_parts_left(decoding, err);
}

static int decode_trap(struct decoding *decoding, struct error *err)
{
	decoding->instruction->execute = trap;
	return no_parts_left(decoding, err);
}

static int decode_nothing(struct decoding *decoding, struct error *err)
{
	(void)err;
	decoding->instruction->execute = nothing;
	return 0;
}

/* Lets the others go first. */
OPERATION(yield)
{
	warp->budget = 0;
}

static int decode_yield(struct decoding *decoding, struct error *err)
{
	(void)err;
	decoding->instruction->execute = yield;
	return 0;
}

/* The launch before has ended long ago; what can be seen is whether a kernel waits for it. */
OPERATION(wait_for_launch_before)
{
	warp->waited = true;
}

static int decode_launch_order(struct decoding *decoding, struct error *err)
{
	(void)err;
	decoding->instruction->execute = take_part(decoding, "wait") ? wait_for_launch_before : nothing;
	return 0;
}

/* --- order of memory ---------------------------------------------------------------------------------- */

OPERATION(publish)
{
	race_check_publish(warp->block->races, warp->index);
}

/* fence.proxy.async{.space}; any other has nothing to do */
static int decode_fence(struct decoding *decoding, struct error *err)
{
	const bool proxy = take_part(decoding, "proxy");
	const bool async = take_part(decoding, "async") || take_part(decoding, "async::generic");

	(void)err;
	decoding->instruction->execute = proxy && async ? publish : nothing;
	return 0;
}

/* --- registers ---------------------------------------------------------------------------------------- */

/* What one warp has given, another can take; it waits until there are enough. */
OPERATION(set_registers)
{
	const int count = (int)instruction->immediate, more = count - warp->register_count;

	if (!all_here(warp, instruction))
		return;
	if (!warp->register_count)
		fault(warp, instruction, 0, CUDA_ERROR_ILLEGAL_INSTRUCTION,
			"how many registers a thread begins with is not known without launch bounds");
	if (instruction->variant ? more > 0 : more < 0)
		fault(warp, instruction, 0, CUDA_ERROR_ILLEGAL_INSTRUCTION, "this warp has %d registers",
			warp->register_count);
	if (more > warp->block->spare_registers) {
		warp->pc--;
		warp_waits(warp, instruction);
		return;
	}
	warp->block->spare_registers -= more;
	warp->register_count = count;
}

/* setmaxnreg.{inc,dec}.sync.aligned.u32 count */
static int decode_registers(struct decoding *decoding, struct error *err)
{
	const struct operand *count = decoding->statement->operands;
	struct instruction *instruction = decoding->instruction;

	instruction->variant = take_part(decoding, "dec");
	drop_parts(decoding, "inc sync aligned u32");
	instruction->execute = set_registers;
	if (no_parts_left(decoding, err) < 0)
		return -1;
	if (decoding->statement->operand_count != 1 || count->kind != OPERAND_INTEGER || count->value < 24 ||
		count->value > 256 || count->value % 8)
		return not_understood(decoding, err, "no such number of registers");
	instruction->immediate = (int64_t)count->value;
	return 0;
}

/* --- barriers of a block ------------------------------------------------------------------------------ */

/* The operands are the barrier, the threads that it expects (0: all), and for bar.red their predicate. */
OPERATION(arrive_and_wait)
{
	const int lane = __builtin_ctz(warp->active);

	block_arrive(warp, instruction, SLOT(uint32_t, 1)[lane], SLOT(uint32_t, 2)[lane], true);
}

OPERATION(arrive)
{
	const int lane = __builtin_ctz(warp->active);

	block_arrive(warp, instruction, SLOT(uint32_t, 1)[lane], SLOT(uint32_t, 2)[lane], false);
}

static int decode_warp_barrier(struct decoding *decoding, struct error *err);

/* bar.sync a{, b}; bar.arrive a, b; bar.red.{and,or}.pred p, a{, b}, {!}c; bar.red.popc.u32 d, a{, b}, {!}c;
 * bar.warp.sync mask. barrier.cta is the same by another name. */
static int decode_barrier(struct decoding *decoding, struct error *err)
{
	static const char *const reductions[] = {"popc", "and", "or", NULL};
	struct instruction *instruction = decoding->instruction;
	const struct statement *statement = decoding->statement;
	int next = 0, last = statement->operand_count;

	if (take_part(decoding, "warp"))
		return decode_warp_barrier(decoding, err);
	drop_parts(decoding, "cta aligned");
	instruction->execute = take_part(decoding, "arrive") ? arrive : arrive_and_wait;
	instruction->variant = BARRIER_PLAIN;
	if (take_part(decoding, "red")) {
		int reduction = take_one_of(decoding, reductions);

		drop_parts(decoding, "pred u32");
		instruction->variant = (uint8_t)(BARRIER_COUNT + reduction);
		if (reduction < 0 || last < 3 || decode_operand(decoding, next++, 0, 4, err) < 0 ||
			decode_operand(decoding, --last, 3, 4, err) < 0)
			return not_understood(decoding, err, "unknown");
		instruction->negated_source = statement->operands[last].negated;
	} else {
		drop_parts(decoding, "sync");
	}
	instruction->slot[2] = constant_slot(decoding, 0, 4);
	if (no_parts_left(decoding, err) < 0 || next >= last ||
		decode_operand(decoding, next, 1, 4, err) < 0 ||
		(next + 1 < last && decode_operand(decoding, next + 1, 2, 4, err) < 0))
		return -1;
	return 0;
}

/* --- barriers of a warp ------------------------------------------------------------------------------- */

OPERATION(wait_for_lanes)
{
	warp_meet(warp, SLOT(uint32_t, 0)[__builtin_ctz(warp->active)]);
}

static int decode_warp_barrier(struct decoding *decoding, struct error *err)
{
	drop_parts(decoding, "sync");
	decoding->instruction->execute = wait_for_lanes;
	return no_parts_left(decoding, err) < 0 ? -1 : decode_operand(decoding, 0, 0, 4, err);
}

const struct family control_families[] = {{"bra", decode_branch}, {"brx", decode_branch_by_index},
	{"exit", decode_end}, {"trap", decode_trap}, {"bar", decode_barrier}, {"barrier", decode_barrier},
	{"membar", decode_nothing}, {"fence", decode_fence}, {"setmaxnreg", decode_registers},
	{"prefetch", decode_nothing}, {"prefetchu", decode_nothing}, {"griddepcontrol", decode_launch_order},
	{"discard", decode_nothing}, {"nanosleep", decode_yield}, {0}};
