/* choice: how linear attention is built and cut up for a problem; see common/choice.h. The passes of a gradient share a
 * choice. */
#pragma once

#include "common/choice.h"
#include "linear/layout.h"

/* What counts of a pass. */
struct linear_shape {
	int pass, input, key_dim, value_dim, causal, normalised; /* PASS, INPUT, … */
	long long sequences, tokens;                             /* sequences: batch · heads */
};

struct linear_choice {
	int value_tile, num_warps, num_stages, min_blocks, groups;
};

/* A pass of an operation with keys and values of these sizes, or of its gradient. */
CHOICE_FUNCTION struct linear_shape linear_pass_shape(int pass, int input, int key_dim, int value_dim,
	int causal, int normalised, long long sequences, long long tokens)
{
	const int turned = pass == PASS_DQ || pass == PASS_DK;
	const struct linear_shape shape = {pass, input, turned ? value_dim : key_dim,
		turned ? key_dim : value_dim, causal, normalised, sequences, tokens};

	return shape;
}

/* Of the pass whose linear_sum makes the states that this one starts from. */
CHOICE_FUNCTION struct linear_shape linear_sum_shape(const struct linear_shape *shape)
{
	struct linear_shape sum = *shape;

	sum.pass = LINEAR_SUM_PASS(shape->pass);
	if (sum.pass == shape->pass)
		return sum;
	sum.key_dim = shape->value_dim;
	sum.value_dim = shape->key_dim;
	return sum;
}

/* --- what fits --------------------------------------------------------------------------------------- */

CHOICE_FUNCTION int linear_output_stage(const struct linear_shape *shape, int value_tile)
{
	return LINEAR_OUTPUT_STAGE(shape->input, shape->key_dim, value_tile, shape->causal, shape->pass);
}

/* Columns of the state of its pass that a warp of linear_sum owns. */
CHOICE_FUNCTION int linear_sum_tile(const struct linear_shape *sum, const struct linear_choice *choice)
{
	return choice->value_tile < sum->value_dim ? choice->value_tile : sum->value_dim;
}

CHOICE_FUNCTION int linear_sum_stage(const struct linear_shape *sum, const struct linear_choice *choice)
{
	return LINEAR_SUM_STAGE(
		sum->input, sum->key_dim, linear_sum_tile(sum, choice), sum->pass, sum->normalised);
}

/* Bytes of a block. */
CHOICE_FUNCTION int linear_output_shared(const struct linear_shape *shape, const struct linear_choice *choice)
{
	return choice->num_warps * choice->num_stages * linear_output_stage(shape, choice->value_tile);
}

CHOICE_FUNCTION int linear_sum_shared(const struct linear_shape *sum, const struct linear_choice *choice)
{
	const int stages = choice->num_warps * choice->num_stages * linear_sum_stage(sum, choice);
	const int exchange = sum->causal ? 0
					 : LINEAR_EXCHANGE_BYTES(sum->key_dim, linear_sum_tile(sum, choice));

	return stages > exchange ? stages : exchange;
}

CHOICE_FUNCTION int linear_most_shared(const struct linear_shape *shape, const struct linear_choice *choice)
{
	const struct linear_shape sum = linear_sum_shape(shape);
	const int output = linear_output_shared(shape, choice), summing = linear_sum_shared(&sum, choice);

	return output > summing ? output : summing;
}

/* Whether a GPU has shared memory for a block, and for as many as are wanted. */
CHOICE_FUNCTION int linear_has_room(const struct linear_shape *shape, const struct choice_machine *machine,
	const struct linear_choice *choice)
{
	const int shared = linear_most_shared(shape, choice);

	return shared <= machine->shared_per_block &&
		choice->min_blocks * (shared + GPU_DRIVER_SHARED) <= machine->shared_per_multiprocessor;
}

/* --- how it is cut up -------------------------------------------------------------------------------- */

CHOICE_FUNCTION long long linear_chunks(const struct linear_shape *shape)
{
	return (shape->tokens + LINEAR_CHUNK - 1) / LINEAR_CHUNK;
}

CHOICE_FUNCTION int linear_chunks_of_group(
	const struct linear_shape *shape, const struct linear_choice *choice)
{
	return (int)((linear_chunks(shape) + choice->groups - 1) / choice->groups);
}

/* The number of groups nearest to `wanted` that chunks can be cut into. */
CHOICE_FUNCTION int linear_cut(const struct linear_shape *shape, long long wanted)
{
	const long long chunks = linear_chunks(shape),
			groups = wanted < 1 ? 1
		: wanted < chunks           ? wanted
					    : chunks;
	const long long length = (chunks + groups - 1) / groups;

	return (int)((chunks + length - 1) / length);
}

/* As many units of work as run at a time, none of them so short that its state costs more than its rows. */
#define SHORTEST_GROUP 4 /* chunks a warp */

/* For half as many blocks as `halves` says on each multiprocessor, of those that are wanted. */
CHOICE_FUNCTION int linear_usual_groups(const struct linear_shape *shape,
	const struct choice_machine *machine, const struct linear_choice *choice, int halves)
{
	const long long warps = choice->num_warps;
	const long long blocks = (long long)machine->multiprocessors * choice->min_blocks * halves / 2;
	const long long tiles = shape->value_dim / choice->value_tile;
	const long long groups = blocks * (shape->causal ? warps : 1) / (shape->sequences * tiles);
	const long long most = linear_chunks(shape) / (SHORTEST_GROUP * (shape->causal ? 1 : warps));

	return linear_cut(shape, groups < most ? groups : most);
}

/* Of a kernel whose warps go through groups, with so many columns of the state each. */
CHOICE_FUNCTION long long linear_blocks(
	const struct linear_shape *shape, const struct linear_choice *choice, int tile)
{
	const long long units = shape->sequences * choice->groups * (shape->value_dim / tile);

	return shape->causal ? (units + choice->num_warps - 1) / choice->num_warps : units;
}

/* Of linear_scan, which takes a number of a sequence's records to a thread. */
CHOICE_FUNCTION long long linear_scan_blocks(const struct linear_shape *sum)
{
	const long long numbers = sum->sequences * LINEAR_RECORD(sum->key_dim, sum->value_dim, sum->pass);

	return (numbers + SCAN_THREADS - 1) / SCAN_THREADS;
}

/* --- the choice -------------------------------------------------------------------------------------- */

#define WIDEST_TILE 64

/* Columns of the state that a warp's registers hold: a state of 64 × 64 takes half of them, and each further bf16 that
 * carries a value takes its part. */
CHOICE_FUNCTION int linear_usual_tile(const struct linear_shape *shape)
{
	const int planes = LINEAR_PLANES(shape->input);
	int tile = 64 * 64 / shape->key_dim / (planes == 1 ? 1 : planes == 2 ? 2 : 4);

	if (tile > WIDEST_TILE)
		tile = WIDEST_TILE;
	if (tile < 16)
		tile = 16;
	return tile < shape->value_dim ? tile : shape->value_dim;
}

/* For an operation too short to keep as many warps busy as run at a time: more of them, with half of the columns each, or
 * a quarter where not even every multiprocessor had one. Only where a warp has room for the widest tile was it measured. */
CHOICE_FUNCTION struct linear_choice linear_wanted(
	const struct linear_shape *shape, const struct choice_machine *machine)
{
	const struct linear_choice usual = {linear_usual_tile(shape), 4, 3, 2, 1};
	const long long tiles = shape->value_dim / usual.value_tile,
			groups = linear_cut(shape, linear_chunks(shape) / SHORTEST_GROUP),
			warps = shape->sequences * tiles * groups,
			most = (long long)machine->multiprocessors * usual.min_blocks * usual.num_warps;
	const int part = warps < machine->multiprocessors ? 4 : 2;
	const struct linear_choice few = {usual.value_tile / part, 2, 2, 4, 1};

	return shape->pass == PASS_FORWARD && usual.value_tile == WIDEST_TILE && warps < most ? few : usual;
}

/* Of one pass: fewer stages, then one block, then fewer warps where shared memory is short. */
CHOICE_FUNCTION struct linear_choice linear_usual(
	const struct linear_shape *shape, const struct choice_machine *machine)
{
	struct linear_choice choice = linear_wanted(shape, machine);

	while (!linear_has_room(shape, machine, &choice)) {
		if (choice.num_stages > 2)
			choice.num_stages--;
		else if (choice.min_blocks > 1)
			choice.min_blocks--;
		else if (choice.num_warps > 2)
			choice.num_warps /= 2;
		else
			break;
	}
	choice.groups = linear_usual_groups(shape, machine, &choice, 2);
	return choice;
}

/* Whether a pass can share another one's choice. Causal, a warp adds to its state, which its registers then have to hold. */
CHOICE_FUNCTION int linear_suits(const struct linear_shape *shape, const struct choice_machine *machine,
	const struct linear_choice *choice)
{
	const int widest = shape->causal ? linear_usual_tile(shape) : shape->value_dim;

	return choice->value_tile <= widest && linear_has_room(shape, machine, choice);
}

/* The first pass's that suits all; where there is none, the last one's. */
CHOICE_FUNCTION struct linear_choice linear_choose(
	const struct linear_shape *passes, int count, const struct choice_machine *machine)
{
	struct linear_choice choice = {0};

	for (int i = 0, suited = 0; i < count && suited < count; i++) {
		choice = linear_usual(&passes[i], machine);
		for (suited = 0; suited < count && linear_suits(&passes[suited], machine, &choice);)
			suited++;
	}
	return choice;
}
