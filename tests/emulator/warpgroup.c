/* warpgroup: products of matrices by four warps together. Each has 16 rows of the left factor, of 64, and of the sums. The
 * right factor is in shared memory, the left one in shared memory or in registers, as mma.sync has it.
 *
 * Products are made when they are waited for, as late as they may: what changes a factor before that is found out. Their
 * registers belong to them until then. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "access.h"
#include "base/memory.h"
#include "half.h"
#include "race.h"

#define ROWS 16 /* of a warp */
#define INNER 16
#define MOST_COLUMNS 256
#define PIECE 8 /* elements of 16 bytes */

struct product {
	struct product *next; /* of the kernel */
	int columns;
	float (*value)(uint16_t element);
	bool left_shared, left_transposed, right_transposed, left_negated, right_negated;
	uint32_t sums[MOST_COLUMNS / 2], left[4], right,
		accumulate; /* slots; left[0] may be a descriptor's */
};

/* What four warps all have to ask for. */
struct request {
	const struct instruction *instruction;
	uint64_t left, right; /* descriptors */
	bool accumulate;
};

struct pending_product {
	struct request request;
	uint32_t group;
	struct knowledge *begun;
};

/* --- factors in shared memory ------------------------------------------------------------------------- */

/* A descriptor: 14 bits each of the address, of a leading and of a stride offset, in units of 16 bytes, and the layout.
 *
 * A layout has blocks of eight lines, a line being 16, 32, 64 or 128 bytes wide. A line has elements of one row of the
 * left factor or column of the right one, or, transposed, of one step of the inner dimension. Pieces of 16 bytes are
 * permuted within it by its number. */
struct layout {
	uint64_t start, leading, stride;
	int width; /* bytes of a line */
};

static struct layout layout_of(struct warp *warp, const struct instruction *instruction, uint64_t descriptor)
{
	static const int widths[] = {16, 128, 64, 32};

	if (descriptor >> 49 & 7)
		fault(warp, instruction, 0, CUDA_ERROR_ILLEGAL_INSTRUCTION,
			"a base offset is not emulated: tiles have to begin where their pattern does");
	return (struct layout){(descriptor & 0x3fff) << 4, (descriptor >> 16 & 0x3fff) << 4,
		(descriptor >> 32 & 0x3fff) << 4, widths[descriptor >> 62]};
}

/* Piece `piece` of line `line`. Where lines are one piece wide, both offsets are from one piece to another. */
static uint64_t piece_address(const struct layout *layout, bool transposed, int line, int piece)
{
	const int pieces = layout->width / 16;
	uint64_t address = layout->start + (uint64_t)(line % 8 * layout->width);

	if (pieces > 1)
		address += (uint64_t)(line / 8) * layout->stride +
			(uint64_t)(piece / pieces) * layout->leading + (uint64_t)(piece % pieces * 16);
	else if (transposed)
		address += (uint64_t)(line / 8) * layout->leading + (uint64_t)piece * layout->stride;
	else
		address += (uint64_t)(line / 8) * layout->stride + (uint64_t)piece * layout->leading;
	return permuted(address, (uint32_t)pieces);
}

/* The elements of a piece, of a product that ends now. */
static void read_piece(
	struct warp *warp, const struct pending_product *pending, uint64_t address, float to[PIECE])
{
	const struct instruction *instruction = pending->request.instruction;
	uint16_t elements[PIECE];

	memcpy(elements, locate(warp, instruction, 0, SPACE_SHARED, address, sizeof(elements), 16, READ),
		sizeof(elements));
	if (warp->block->races)
		race_check_end(
			warp->block->races, warp, instruction, pending->begun, address, sizeof(elements));
	for (int i = 0; i < PIECE; i++)
		to[i] = instruction->product->value(elements[i]);
}

/* Rows `first` … of the left factor, or so many columns of the right one, by steps of the inner dimension. */
static void read_factor(struct warp *warp, const struct pending_product *pending, uint64_t descriptor,
	bool transposed, int first, int count, float to[INNER][MOST_COLUMNS])
{
	const struct layout layout = layout_of(warp, pending->request.instruction, descriptor);

	for (int line = 0; line < (transposed ? INNER : count); line++)
		for (int piece = 0; piece < (transposed ? count : INNER) / PIECE; piece++) {
			float elements[PIECE];

			read_piece(warp, pending,
				transposed ? piece_address(&layout, true, line, first / PIECE + piece)
					   : piece_address(&layout, false, first + line, piece),
				elements);
			for (int i = 0; i < PIECE; i++)
				*(transposed ? &to[line][piece * PIECE + i]
					     : &to[piece * PIECE + i][line]) = elements[i];
		}
}

/* --- products ----------------------------------------------------------------------------------------- */

#define AT_SLOT(type, slot) ((type *)(warp->registers + (slot)))

/* Register i of a lane has two neighbours of row lane / 4, or eight below, and then of the next eight columns. */
static void read_left_registers(
	const struct warp *warp, const struct product *product, float to[INNER][MOST_COLUMNS])
{
	for (int i = 0; i < 4; i++)
		for (int lane = 0; lane < LANES; lane++) {
			const uint32_t pair = AT_SLOT(uint32_t, product->left[i])[lane];
			const int row = lane / 4 + i % 2 * 8, column = lane % 4 * 2 + i / 2 * 8;

			to[column][row] = product->value(low_half(pair));
			to[column + 1][row] = product->value(high_half(pair));
		}
}

/* Register i of a lane has columns 2 (lane % 4) and the next, in rows lane / 4 and eight below, of every eight columns. */
static float *sum_at(const struct warp *warp, const struct product *product, int row, int column)
{
	const int lane = row % 8 * 4 + column % 8 / 2, i = column / 8 * 4 + row / 8 * 2 + column % 2;

	return &AT_SLOT(float, product->sums[i])[lane];
}

static void multiply(struct warp *warp, const struct pending_product *pending)
{
	const struct request *request = &pending->request;
	const struct product *product = request->instruction->product;
	const float sign = product->left_negated != product->right_negated ? -1 : 1;
	float left[INNER][MOST_COLUMNS], right[INNER][MOST_COLUMNS];

	if (product->left_shared)
		read_factor(warp, pending, request->left, product->left_transposed,
			warp->index % WARPGROUP * ROWS, ROWS, left);
	else
		read_left_registers(warp, product, left);
	read_factor(warp, pending, request->right, product->right_transposed, 0, product->columns, right);
	for (int row = 0; row < ROWS; row++) {
		float sums[MOST_COLUMNS];

		for (int column = 0; column < product->columns; column++)
			sums[column] = request->accumulate ? *sum_at(warp, product, row, column) : 0;
		for (int i = 0; i < INNER; i++)
			for (int column = 0; column < product->columns; column++)
				sums[column] += sign * left[i][row] * right[i][column];
		for (int column = 0; column < product->columns; column++)
			*sum_at(warp, product, row, column) = sums[column];
	}
}

/* --- from beginning to end ---------------------------------------------------------------------------- */

/* Registers that a product has: sums, and where it is in registers the left factor. */
static void mark_registers(struct warp *warp, const struct product *product)
{
	for (int i = 0; i < product->columns / 2; i++)
		warp->taken[TAKEN(product->sums[i])] = true;
	for (int i = 0; i < 4 && !product->left_shared; i++)
		warp->taken[TAKEN(product->left[i])] = true;
}

void products_guard(struct warp *warp, const struct instruction *instruction)
{
	if (instruction->product)
		return;
	for (int i = 0; i < MOST_OPERANDS; i++)
		if (warp->taken[TAKEN(instruction->slot[i])])
			fault(warp, instruction, __builtin_ctz(warp->active), CUDA_ERROR_ILLEGAL_INSTRUCTION,
				"a register of a product that has not been waited for");
}

/* A value that all lanes have to have the same of. */
static uint64_t uniform(struct warp *warp, const struct instruction *instruction, uint32_t slot, int width)
{
	uint64_t value = 0, other = 0;

	memcpy(&value, warp->registers + slot, (size_t)width);
	for (int lane = 1; lane < LANES; lane++) {
		memcpy(&other, warp->registers + slot + lane * width, (size_t)width);
		if (other != value)
			fault(warp, instruction, lane, CUDA_ERROR_ILLEGAL_INSTRUCTION,
				"not the operand that the warp's first lane has");
	}
	return value;
}

/* The first of four warps to come here says what their next product is; the others have to agree. */
static void check_request(struct warp *warp, const struct request *request)
{
	struct requests *four = &warp->block->requests[warp->index / WARPGROUP];
	const struct request *other;

	if (warp->request_count == four->count) {
		four->items = xrealloc(four->items, (four->count + 1) * sizeof(*four->items));
		four->items[four->count++] = *request;
	}
	other = &four->items[warp->request_count++];
	if (other->instruction != request->instruction || other->left != request->left ||
		other->right != request->right || other->accumulate != request->accumulate)
		fault(warp, request->instruction, 0, CUDA_ERROR_ILLEGAL_INSTRUCTION,
			"not the product that another of the four warps has, at PTX line %u",
			other->instruction->line);
}

OPERATION(begin_product)
{
	const struct product *product = instruction->product;
	struct request request = {.instruction = instruction};

	if (!all_here(warp, instruction))
		return;
	if (warp->index / WARPGROUP * WARPGROUP + WARPGROUP > warp->block->warp_count)
		fault(warp, instruction, 0, CUDA_ERROR_ILLEGAL_INSTRUCTION, "there are no four warps for it");
	if (product->left_shared)
		request.left = uniform(warp, instruction, product->left[0], 8);
	request.right = uniform(warp, instruction, product->right, 8);
	request.accumulate = uniform(warp, instruction, product->accumulate, 4);
	check_request(warp, &request);
	if (warp->product_count == warp->product_room) {
		warp->product_room = warp->product_room * 2 + 16;
		warp->products = xrealloc(warp->products, warp->product_room * sizeof(*warp->products));
	}
	warp->products[warp->product_count++] = (struct pending_product){
		request, warp->product_group, race_check_begin(warp->block->races, warp->index)};
	mark_registers(warp, product);
}

OPERATION(commit_products)
{
	if (all_here(warp, instruction))
		warp->product_group++;
}

OPERATION(wait_for_products)
{
	size_t done = 0;

	if (!all_here(warp, instruction))
		return;
	for (; done < warp->product_count &&
		warp->products[done].group + instruction->immediate < warp->product_group;
		done++)
		multiply(warp, &warp->products[done]);
	for (size_t i = 0; i < done; i++)
		free(warp->products[i].begun);
	warp->product_count -= done;
	memmove(warp->products, warp->products + done, warp->product_count * sizeof(*warp->products));
	memset(warp->taken, 0, TAKEN(warp->block->launch->kernel->register_bytes));
	for (size_t i = 0; i < warp->product_count; i++)
		mark_registers(warp, warp->products[i].request.instruction->product);
}

OPERATION(order_registers)
{
	all_here(warp, instruction);
}

void products_start(struct block *block)
{
	for (int i = 0; i < MOST_WARPS / WARPGROUP; i++)
		block->requests[i].count = 0;
	for (int i = 0; i < block->warp_count; i++)
		block->warps[i].product_group = block->warps[i].request_count = 0;
}

void products_drop(struct block *block)
{
	for (int i = 0; i < MOST_WARPS / WARPGROUP; i++)
		free(block->requests[i].items);
	for (int i = 0; i < block->warp_count; i++) {
		struct warp *warp = &block->warps[i];

		for (size_t j = 0; j < warp->product_count; j++)
			free(warp->products[j].begun);
		free(warp->products);
		free(warp->taken);
	}
}

/* --- decoding ----------------------------------------------------------------------------------------- */

static struct product *product_add(struct kernel *kernel)
{
	struct product *product = xcalloc(1, sizeof(*product));

	product->next = kernel->products;
	return kernel->products = product;
}

void products_free(struct product *products)
{
	while (products) {
		struct product *next = products->next;

		free(products);
		products = next;
	}
}

/* Of the operands behind the factors: 0 or 1, 1 or −1. */
static int64_t constant_operand(const struct decoding *decoding, int number)
{
	return (int64_t)decoding->statement->operands[number].value;
}

/* wgmma.mma_async.sync.aligned.m64nNk16.f32.T.T {sums}, {left} or descriptor, descriptor, accumulate, ±1, ±1,{ left
 * transposed,} right transposed */
static int decode_product(struct decoding *decoding, struct error *err)
{
	static const char *const names[] = {"bf16", "f16", NULL};
	static float (*const values[])(uint16_t) = {bf16_to_float, f16_to_float};
	const struct statement *statement = decoding->statement;
	struct product *product = product_add(decoding->kernel);
	int first, next, type, end = 0;

	if (decoding->part_count == 5)
		sscanf(decoding->parts[1], "m64n%dk16%n", &product->columns, &end);
	take_part(decoding, "f32");
	type = take_one_of(decoding, names);
	if (!end || product->columns < 8 || product->columns > MOST_COLUMNS || product->columns % 8 ||
		type < 0 || !take_part(decoding, names[type]) || decoding->part_count != 2)
		return not_understood(decoding, err, "an unknown product");
	next = group_size(statement, 0, &first);
	product->left_shared = group_size(statement, 1, &first) == 1;
	if (next != product->columns / 2 || statement->operand_count != next + (product->left_shared ? 7 : 9))
		return not_understood(decoding, err, "not the operands that are expected");
	for (int i = 0; i < next; i++)
		if (decode_slot(decoding, i, 4, &product->sums[i], err) < 0)
			return -1;
	for (int i = 0; i < (product->left_shared ? 1 : 4); i++)
		if (decode_slot(decoding, next++, product->left_shared ? 8 : 4, &product->left[i], err) < 0)
			return -1;
	if (decode_slot(decoding, next++, 8, &product->right, err) < 0 ||
		decode_slot(decoding, next++, 4, &product->accumulate, err) < 0)
		return -1;
	product->value = values[type];
	product->left_negated = constant_operand(decoding, next++) < 0;
	product->right_negated = constant_operand(decoding, next++) < 0;
	product->left_transposed = product->left_shared && constant_operand(decoding, next++);
	product->right_transposed = constant_operand(decoding, next);
	decoding->instruction->execute = begin_product;
	decoding->instruction->product = product;
	return 0;
}

static int decode_warpgroup(struct decoding *decoding, struct error *err)
{
	static const char *const names[] = {"fence", "commit_group", "wait_group", NULL};
	static operation *const operations[] = {order_registers, commit_products, wait_for_products};
	int chosen;

	drop_parts(decoding, "sync aligned");
	if (take_part(decoding, "mma_async"))
		return decode_product(decoding, err);
	chosen = take_one_of(decoding, names);
	if (chosen < 0)
		return not_understood(decoding, err, "unknown");
	decoding->instruction->execute = operations[chosen];
	if (decoding->statement->operand_count)
		decoding->instruction->immediate = constant_operand(decoding, 0);
	return no_parts_left(decoding, err);
}

const struct family warpgroup_families[] = {{"wgmma", decode_warpgroup}, {0}};
